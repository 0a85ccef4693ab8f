"""Reads the history of a round, which its processes wrote while they worked."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from lakelatch.errors import CorruptTable

WRITING_ROLES = ("transfer", "append", "spark", "write", "move")
Line: TypeAlias = dict[str, Any]


def read_history(folder: Path) -> list[Line]:
    """Every line of every process, by time; each also says its `process`, `client` and `incarnation`.

    The last line of a process that was killed may be cut short, and is left out. Errors: `CorruptTable` for any other
    line that is none.
    """
    found: list[Line] = []
    for path in sorted(folder.glob("*.jsonl")):
        client, _, incarnation = path.stem.rpartition(".")
        numbered = client != "" and incarnation.isdigit()
        own = {
            "process": path.stem,
            "client": client if numbered else path.stem,
            "incarnation": int(incarnation) if numbered else 0,
        }
        found += [{**line, **own} for line in _lines(path)]
    return sorted(found, key=lambda line: int(line["at_ns"]))


def lines_of_table(number: int, lines: list[Line]) -> list[Line]:
    """What a history says of one of several tables, as if its clients worked on that one alone.

    What clients of all tables were told of each is in `parts`. Whatever else they say is in the history of the first.
    """
    table_of = {line["process"]: line.get("table") for line in lines if line["event"] == "started"}
    found = []
    for line in lines:
        own = table_of.get(line["process"], number)  # the nemesis says what concerns all
        if own is None and "tables" in line:
            if number in line["tables"]:
                part = (line.get("parts") or {}).get(str(number), {})
                found.append({**line, **part} if line["event"] == "return" else line)
        elif number == (line.get("table") or 0 if own is None else own):
            found.append(line)
    return found


def _lines(path: Path) -> Iterator[Line]:
    texts = path.read_bytes().splitlines(keepends=True)
    for number, text in enumerate(texts, start=1):
        try:
            line = json.loads(text)
            whole = isinstance(line, dict) and {"at_ns", "event"} <= line.keys()
        except ValueError:
            whole = False
        if whole and text.endswith(b"\n"):
            yield line
        elif number < len(texts):
            raise CorruptTable(f"line {number} of {path.name} is not a line of a history: {text[:80]!r}")


@dataclass
class Work:
    """One thing that was asked for, over all attempts at it. `answered` says that the last attempt has an outcome."""

    name: str
    role: str
    kind: str
    process: str
    entries: int = 0  # of the journal, if the caller said how many it would write
    calls: int = 0
    begun: int = 0
    answered: bool = True
    returns: list[Line] = field(default_factory=list)

    @property
    def is_write(self) -> bool:
        return self.role in WRITING_ROLES

    @property
    def uncertain(self) -> bool:
        """Whether its caller cannot know if it is done, because of an unknown outcome or of its own death."""
        return not self.answered or any(line["outcome"] == "unknown" for line in self.returns)

    @property
    def attempts(self) -> int:
        """The number of attempts, as far as they were recorded."""
        return max(self.calls, self.begun, len(self.returns))

    def committed(self) -> list[Line]:
        """The answers that said so."""
        return [line for line in self.returns if line["outcome"] == "committed"]


class History:
    """The lines of one round, sorted by what they are about."""

    def __init__(self, lines: list[Line]) -> None:
        self.lines = lines
        self.works: dict[str, Work] = {}
        self.call_times: dict[str, list[int]] = {}  # of a work, one for each attempt that was called
        for line in lines:
            if line["event"] in ("call", "begun", "return"):
                self._add(line)
        self.faults = [line for line in lines if line["event"] == "fault"]
        self.leases = [line for line in lines if line["event"] == "lease"]
        self.snapshots = [line for line in lines if line["event"] == "snapshot"]
        self.seen = [line for line in lines if line["event"] == "seen"]
        self.hits = [line for line in lines if line["event"] == "hit"]
        self.finished = {line["process"]: int(line["at_ns"]) for line in lines if line["event"] == "finished"}
        self._heals = {line["id"]: int(line["at_ns"]) for line in lines if line["event"] == "heal"}

    def healed_ns(self, fault: Line) -> int | None:
        """When a fault ended; None if that was not recorded."""
        return self._heals.get(fault["id"])

    def _add(self, line: Line) -> None:
        name = line["work"]
        work = self.works.setdefault(name, Work(name, line.get("role", ""), line.get("kind", ""), line["process"]))
        work.role, work.kind = work.role or line.get("role", ""), work.kind or line.get("kind", "")
        if line["event"] == "return":
            work.returns.append(line)
            work.answered = True
            return
        work.answered = False
        if line["event"] == "call":
            work.calls += 1
            work.entries = int(line.get("entries") or 0)
            self.call_times.setdefault(name, []).append(int(line["at_ns"]))
        else:
            work.begun += 1
