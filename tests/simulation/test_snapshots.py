"""Each snapshot of a run is compared with the one that its names alone say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import fields

import pytest
from simulate import simulate

from lakelatch.timeline.snapshot import Snapshot

_SEEN_BEFORE = {"latest_time", "number"}  # what a listing alone does not say


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[str]]:
    counts: Counter[str] = Counter()
    real = Snapshot.following

    def following(
        self: Snapshot, names: Collection[str], late: frozenset[str] = frozenset(), number: int = 0
    ) -> Snapshot:
        found = real(self, names, late, number)
        alone = Snapshot.of_names(frozenset(names) - late)
        expected = {one.name: getattr(alone, one.name) for one in fields(Snapshot) if one.name not in _SEEN_BEFORE}
        expected["listed"], expected["late"] = frozenset(names), late
        expected["undoers"] = Snapshot.of_names(names).undoers
        for name, value in expected.items():
            assert getattr(found, name) == value, name
        assert found.latest_time >= max(alone.latest_time, self.latest_time)
        counts["followed"] += 1
        counts["late"] += bool(late)
        counts["gone"] += bool(self.listed - found.listed)
        return found

    monkeypatch.setattr(Snapshot, "following", following)
    yield counts


def test_runs_see_what_their_listings_show(counted: Counter[str]) -> None:
    for seed in (*range(12), 8934, 9774):
        assert not simulate(seed).problems
    assert counted["followed"] > 1000 and counted["late"] > 10 and counted["gone"] > 100
