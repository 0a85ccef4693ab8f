"""The file index beside all services in random order: whatever happens, an index gives the slices that listing gives.

An index of any age, made at any moment, is either held to be of no use or says exactly what is live. Slices that its
statistics rule out for a condition have no row that fulfils it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest
from live_table import LiveTable
from random_tables.index_checks import IndexChecks
from random_tables.services import Services, steps_of

from lakelatch.transactions.base.settings import NON_BLOCKING, OPTIMISTIC


@dataclass
class IndexedServices(Services):
    """Looks at the indexes after each step."""

    def __post_init__(self) -> None:
        self.indexes = IndexChecks(self.table.storage, self.table.opened.config, reads=("id", "ts", "v"))

    def check(self) -> None:
        assert self.indexes.look() == []


def run(root: Path, mode: str, seed: int, number: int) -> Counter[str]:
    services = IndexedServices(LiveTable(root, mode))
    for step in steps_of(seed, number):
        print(step)
        services.step(*step)
        services.check()
    print("end")
    services.end()
    return services.indexes.counts


def test_an_index_of_any_age_says_what_listing_says(tmp_path: Path) -> None:
    counts = run(tmp_path, NON_BLOCKING, 1, 25)
    assert counts["used"] > 60 and counts["left out"] > 60


@pytest.mark.long
@pytest.mark.parametrize("mode", [NON_BLOCKING, OPTIMISTIC])
@pytest.mark.parametrize("seed", range(300, 315))
def test_an_index_of_any_age_says_what_listing_says_for_long(tmp_path: Path, seed: int, mode: str) -> None:
    counts = run(tmp_path, mode, seed, 80)
    assert counts["used"] > 100 and counts["left out"] > 100
