"""Asks the checker of torture whether a table, and what its writers were told, are sound."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from statement_checks import writes_saw_all_before

from lakelatch.storage import open_storage
from lakelatch.torture.check.checker import OF_CALLERS, OF_TABLE, find_problems
from lakelatch.torture.check.evidence import Evidence
from lakelatch.torture.check.files import Folder
from lakelatch.torture.check.table_files import TableFiles
from lakelatch.torture.history.reading import History


def files_of(place: Path | str) -> Mapping[str, bytes]:
    """The files of a table in a folder, or below a URI, by their paths."""
    if isinstance(place, Path) or "://" not in place:
        return Folder(Path(place))
    storage = open_storage(place)
    return {path: storage.read(path) for path in storage.walk("")}


def find_problems_of(place: Path | str, told: Iterable[Mapping[str, str]], stated: bool = False) -> list[str]:
    """What is wrong with a table that nobody writes to any more, on a storage that does not fail.

    `told` is what writers print; `stated` says that data files hold what their writers had read.
    """
    lines = [
        {"at_ns": number, "event": "return", "process": "writer", "work": f"{number}", "role": "write", **line}
        for number, line in enumerate(told)
    ]
    evidence = Evidence(TableFiles(files_of(place), every_slot=True), History(lines), {})
    return find_problems(evidence, (*OF_TABLE, *((writes_saw_all_before,) if stated else ())), OF_CALLERS)
