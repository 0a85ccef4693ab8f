"""The evidence for the checker: a table, a history, and the facts of the round."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from lakelatch.torture.check.files import Folder
from lakelatch.torture.check.log_reading import Row
from lakelatch.torture.check.table_files import Commit, TableFiles
from lakelatch.torture.history.reading import History, lines_of_table, read_history

LYING = "lying"
DECISIONS = ".hoodie/.lakelatch/decisions"
BANK, JOURNAL = "bank", "journal"


class Evidence:
    """The evidence of work that has ended: the table's files, the history, and the facts of the round."""

    def __init__(self, table: TableFiles, history: History, facts: Mapping[str, Any]) -> None:
        self.table, self.history, self.facts = table, history, facts

    @classmethod
    def of_round(cls, folder: Path) -> Evidence:
        """The evidence of a recorded round, of its first table if it has several.

        Facts that its own file lacks come from its settings, or the run's.
        """
        return cls.of_tables(folder)[0]

    @classmethod
    def of_tables(cls, folder: Path) -> list[Evidence]:
        """The same of each table of the round."""
        facts = json.loads((folder / "round.json").read_bytes())
        run = folder.parent.parent / "run.json"
        of_run = json.loads(run.read_bytes()) if run.is_file() else {}
        known = {**of_run, **_given(facts.get("settings") or {}), **_given(facts)}
        lines, names = read_history(folder / "history"), table_names(int(known.get("tables") or 1))
        files = [Folder(folder / name) for name in names]
        decisions = decisions_in(files)
        return [
            cls(
                TableFiles(each, kept=Folder(folder / name.replace("table", "kept")), decisions=decisions),
                History(lines_of_table(number, lines) if len(names) > 1 else lines),
                {**known, "problems": [] if number else known.get("problems")},
            )
            for number, (name, each) in enumerate(zip(names, files, strict=True))
        ]

    def setting(self, name: str, default: float) -> float:
        """A number among the facts."""
        value = self.facts.get(name)
        return default if value is None else float(value)

    @property
    def provider(self) -> str:
        return str(self.facts.get("provider", ""))

    @property
    def lease_s(self) -> float:
        return self.setting("lease_s", 0.0)

    @property
    def healed_ns(self) -> int:
        """When all faults had ended."""
        return int(self.facts.get("healed_ns") or 0)

    @cached_property
    def bank(self) -> list[tuple[Commit, list[Row]]]:
        """Each commit that has bank rows, with those, by completion time."""
        found = [(commit, [row for row in rows if row.kind == BANK]) for commit, rows in self.table.written]
        return [(commit, rows) for commit, rows in found if rows]


def table_names(count: int) -> list[str]:
    """The folders of a round's tables."""
    return ["table", *(f"table-{number}" for number in range(2, count + 1))]


def decisions_in(tables: Iterable[Mapping[str, bytes]]) -> dict[str, bytes]:
    """The decisions of transactions over several tables, by name: each lies in one of the tables."""
    return {
        path.rpartition("/")[2]: files[path]
        for files in tables
        for path in files
        if path.startswith(f"{DECISIONS}/") and not path.endswith(".done")
    }


def _given(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
