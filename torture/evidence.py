"""Everything a judge looks at: a round's table, its history and its settings."""

from __future__ import annotations

import json
from functools import cached_property
from pathlib import Path
from typing import Any

from lakelatch.torture.history import History, read_history
from lakelatch.torture.log_reading import Row
from lakelatch.torture.table_files import Commit, TableFiles

LYING = "lying"
BANK, JOURNAL = "bank", "journal"


class Evidence:
    """One finished round, read once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.round: dict[str, Any] = json.loads((folder / "round.json").read_bytes())
        self.table = TableFiles(folder / "table")
        self.history = History(read_history(folder / "history"))

    def setting(self, name: str, default: float) -> float:
        """A number from the round's own file or its settings, or from those of the run."""
        run = self.folder.parent.parent / "run.json"
        places = [self.round, self.round.get("settings") or {}]
        if run.is_file():
            places.append(json.loads(run.read_bytes()))
        for place in places:
            if place.get(name) is not None:
                return float(place[name])
        return default

    @property
    def provider(self) -> str:
        return str(self.round.get("provider", ""))

    @property
    def lease_s(self) -> float:
        return self.setting("lease_s", 0.0)

    @property
    def healed_ns(self) -> int:
        return int(self.round.get("healed_ns") or 0)

    @cached_property
    def bank(self) -> list[tuple[Commit, list[Row]]]:
        """Each commit that has bank rows, with those, by completion time."""
        found = [(commit, [row for row in rows if row.kind == BANK]) for commit, rows in self.table.written]
        return [(commit, rows) for commit, rows in found if rows]
