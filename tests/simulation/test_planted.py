from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from planted import PLANTED, PROTECTIONS
from simulate import simulate

_TIMES_SEEDS = 4
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
    """From the seed where it was found, and in so many that other draws do not lose it."""
    first, last = PLANTED[name].first, PLANTED[name].first + _TIMES_SEEDS * PLANTED[name].seeds
    assert any(simulate(seed, name).problems for seed in range(first, last))


def test_each_protection_can_be_turned_off() -> None:
    assert all(PLANTED[name].seeds <= 400 for name in PROTECTIONS)
