from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from course import PROBLEMS_MOST
from planted import PLANTED, PROTECTIONS
from shown import SHOWN, seeds_to_try
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
    """By the seed that has shown it, or else in so many that other draws do not lose it."""
    assert any(simulate(seed, name).problems for seed in seeds_to_try(name))


def test_a_run_over_several_tables_ends_where_enough_is_wrong() -> None:
    """Every look at what is shown too early finds the money wrong, and everybody tries again and again."""
    name = "a part is shown before it is decided"
    found = next(filter(None, (simulate(seed, name).problems for seed in seeds_to_try(name))))
    assert 1 < len(found) <= PROBLEMS_MOST + 1


def test_each_protection_can_be_turned_off() -> None:
    assert all(PLANTED[name].seeds <= 400 for name in PROTECTIONS)


def test_what_has_shown_a_mistake_is_tried_first_and_then_all_of_its_range() -> None:
    assert set(SHOWN) <= set(PLANTED)
    for name, mistake in PLANTED.items():
        seeds = list(seeds_to_try(name))
        whole = list(range(mistake.first, mistake.first + 4 * mistake.seeds))
        assert seeds == whole or (seeds == [SHOWN[name], *whole] and SHOWN[name] in whole)
