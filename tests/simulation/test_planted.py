from __future__ import annotations

import logging
from collections.abc import Iterator
from itertools import count

import pytest
from planted import PLANTED, PROTECTIONS
from simulate import simulate

_SEEDS_MOST = 100  # what needs more is looked for in the long stage
_LOOKED_FOR = [
    pytest.param(name, marks=() if mistake.seeds <= _SEEDS_MOST else pytest.mark.long)
    for name, mistake in PLANTED.items()
]


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("name", _LOOKED_FOR)
def test_a_planted_mistake_is_found(name: str) -> None:
    first = PLANTED[name].first
    most = first + PLANTED[name].seeds
    assert next((seed for seed in count(first) if seed >= most or simulate(seed, name).problems), most) < most


def test_each_protection_can_be_turned_off() -> None:
    assert all(PLANTED[name].seeds <= 400 for name in PROTECTIONS)
