"""A round rests until a write that was asked for after its faults has committed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lakelatch.torture.runs.rounds import _has_recovered
from lakelatch.torture.settings import Place

HEALED_NS = 100


def call(at_ns: int, work: str, role: str = "append") -> dict[str, Any]:
    return {"at_ns": at_ns, "event": "call", "work": work, "role": role}


def told(at_ns: int, work: str, outcome: str = "committed") -> dict[str, Any]:
    return {"at_ns": at_ns, "event": "return", "work": work, "outcome": outcome}


@pytest.mark.parametrize(
    ("lines", "recovered"),
    [
        ([call(90, "a"), told(95, "a")], False),
        ([call(90, "a"), told(900_000_000_000, "a")], False),  # it was under way, however long it took
        ([call(90, "a"), told(105, "a", "refused"), call(110, "a"), told(120, "a")], False),
        ([call(110, "a"), told(120, "a", "refused")], False),
        ([call(110, "a", "compact"), told(120, "a")], False),
        ([call(110, "a"), told(115, "a", "refused"), call(116, "a"), told(120, "a")], True),
    ],
)
def test_a_commit_counts_that_was_asked_for_later(lines: list[dict[str, Any]], recovered: bool, tmp_path: Path) -> None:
    place = Place(tmp_path, "filesystem", 2.0, 1)
    place.history.mkdir()
    (place.history / "append-1.1.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert _has_recovered(place, HEALED_NS) is recovered
