"""Which seeds have run, and what they met: a file that adds up over runs, one line of JSON for each range."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from lakelatch.torture.report.ledger import day, source

Line = dict[str, Any]
_SUMS = ("seeds", "several", "simulated_hours")


def read_record(file: Path) -> list[Line]:
    """All ranges of a file; none where there is none."""
    return [json.loads(text) for text in file.read_text().splitlines()] if file.exists() else []


def add_range(file: Path, line: Line) -> None:
    """Adds a range, to the line of the one before it where both are of one source."""
    lines = read_record(file)
    before = lines[-1] if lines else {}
    alike = ("source", "only_several")
    if before and before["last"] == line["first"] and all(before[name] == line[name] for name in alike):
        sums = {name: round(before[name] + line[name], 1) for name in _SUMS}
        counts: Counter[str] = Counter(before["counts"]) + Counter(line["counts"])
        line = {**line, **sums, "first": before["first"], "wrong": before["wrong"] + line["wrong"], "counts": counts}
        lines.pop()
    whole = file.with_name(file.name + ".new")  # the file is the old or the new one, never half of one
    whole.parent.mkdir(parents=True, exist_ok=True)
    whole.write_text("".join(json.dumps(one, sort_keys=True) + "\n" for one in [*lines, line]))
    whole.replace(file)


def seeds_once(lines: list[Line]) -> int:
    """How many different seeds ran."""
    once, reached = 0, -1
    for first, last in sorted((line["first"], line["last"]) for line in lines if not line["only_several"]):
        once += max(last - max(first, reached), 0)
        reached = max(reached, last)
    return once


def stamp() -> Line:
    """What ran, and when."""
    return {"source": source(), "day": day()}
