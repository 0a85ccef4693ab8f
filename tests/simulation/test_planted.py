from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from itertools import count

import pytest
from planted import PLANTED, PROTECTIONS
from simulate import simulate

# Those that show rarely take minutes; they are looked for when more than a few seeds are asked for.
_SEEDS_MOST = max(200, int(os.environ.get("LAKELATCH_SIMULATION_SEEDS", "0")))
_LOOKED_FOR = [name for name, mistake in PLANTED.items() if mistake.seeds <= _SEEDS_MOST or name in PROTECTIONS]


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("name", _LOOKED_FOR)
def test_a_planted_mistake_is_found(name: str) -> None:
    most = PLANTED[name].seeds
    assert next((seed for seed in count() if seed >= most or simulate(seed, name).problems), most) < most


def test_each_protection_can_be_turned_off() -> None:
    assert all(PLANTED[name].seeds <= 400 for name in PROTECTIONS)
