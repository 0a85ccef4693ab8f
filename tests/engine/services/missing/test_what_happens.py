"""What each call does in a process that knows nothing of the table, if a file of it was deleted: the guide's table."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from live_table import LiveTable, window
from taken_back_table import rows

import lakelatch
from lakelatch.engine.options.calls.registry import Call
from lakelatch.engine.options.table_services.archiving import ArchivingOptions
from lakelatch.engine.options.table_services.cleaning import CleaningOptions
from lakelatch.engine.read.rows.images import plan_images
from lakelatch.engine.table import schema as table_schema
from lakelatch.errors import CorruptTable
from lakelatch.timeline.history import named_files
from lakelatch.timeline.snapshot import Snapshot
from lakelatch.transactions.base.settings import NON_BLOCKING, OPTIMISTIC

GUIDE = Path(__file__).parents[4] / "docs/guide.md"
HEADING = "### A file that is gone"
ERROR, WITHOUT, RIGHT = "error", "without its rows", "right"
GOES_ON, LOST = "goes on", "lost for good"
COPY = {"hoodie__table__type": "COPY_ON_WRITE"}
CDC = {"hoodie__table__cdc__enabled": "true"}
BEGIN = "20000101000000000"
Use = Callable[[LiveTable], Any]


def images(table: LiveTable, verify: bool = False) -> list[Any]:
    more = {"hoodie.datasource.query.incremental.format": "cdc", "lakelatch.read.verify": str(verify).lower()}
    plan = plan_images(table.storage, Call({**window(BEGIN), **more}).read())
    return sorted((row for one in plan.slices for batch in plan.read(one) for row in batch.to_pylist()), key=repr)


def last(table: LiveTable) -> str:
    return max(one.completion or "" for one in Snapshot.load(table.storage).completed)


def write(table: LiveTable) -> None:
    table.manager().recover()
    table.write(rows(1, 50, "new"))


def delete(table: LiveTable) -> None:
    table.manager().recover()
    table.delete([(3, 50, "")])


def service(call: Use) -> Use:
    def run(table: LiveTable) -> None:
        table.manager().recover()
        call(table)

    return run


def logs_compacted(table: LiveTable) -> None:
    table.compact_logs()


def cleaned(table: LiveTable) -> None:
    table.clean(CleaningOptions(commits=1))


def archived(table: LiveTable) -> None:
    options = ArchivingOptions(min_commits=2, max_commits=3, minimum_age_s=0)
    table.archive(options)


def verified(table: LiveTable) -> None:
    found = [one.path for one in lakelatch.verify(str(table.root)).findings]
    if found:
        raise CorruptTable(f"{found} are missing")


READS: dict[str, Use] = {
    "read now, `format()`": LiveTable.read,
    "read as of a time": lambda table: table.as_of(last(table)),
    "changes": lambda table: table.since(BEGIN),
    "images": images,
    "any of these with `lakelatch.read.verify`": lambda table: (
        table.read({"lakelatch.read.verify": "true"}),
        table.read({"lakelatch.read.verify": "true", "as.of.instant": last(table)}),
    ),
}
CHANGES: dict[str, Use] = {
    "upsert, update, merge": write,
    "delete": delete,
    "compaction": service(LiveTable.compact),
    "log compaction": service(logs_compacted),
    "clustering": service(LiveTable.cluster),
    "clean": service(cleaned),
    "archive": service(archived),
    "`lakelatch verify`": verified,
}


NOT_FOR_COPIES = ("compaction", "log compaction")


def merge_on_read(root: Path) -> LiveTable:
    """Old logs, base files of compactions, and logs above them; the last write is of another partition."""
    table = LiveTable(root, NON_BLOCKING, True, 1, **CDC)
    table.write(rows(4, 1, "a"))
    for number in range(2):
        table.write(rows(4, 2 + number, "b"))
        table.compact()
    table.write(rows(3, 8, "c"))
    table.write(rows(2, 9, "d"))
    table.write(rows(1, 10, "e"))
    table.write(rows(2, 9, "f"), "z")
    return table


def ending_here(root: Path) -> LiveTable:
    table = merge_on_read(root)
    table.write(rows(2, 11, "last"))
    return table


def copy_on_write(root: Path) -> LiveTable:
    table = LiveTable(root, OPTIMISTIC, True, 1, **COPY, **CDC)
    for number in range(4):
        table.write(rows(4, 1 + number, f"{number}-"))
    table.write(rows(2, 9, "f"), "z")
    return table


def newest(table: LiveTable, pattern: str) -> Path:
    return max(table.root.glob(pattern), key=lambda path: (path.stem.rpartition("_")[2], path.name))


FILES: dict[str, tuple[Callable[[Path], LiveTable], Callable[[LiveTable], Path]]] = {
    "log file": (merge_on_read, lambda table: sorted(table.root.glob("p/.*.log.*"))[-1]),
    "base file": (merge_on_read, lambda table: newest(table, "p/*.parquet")),
    "base file, copy-on-write": (copy_on_write, lambda table: newest(table, "p/*.parquet")),
    "log file of the last write": (ending_here, lambda table: sorted(table.root.glob("p/.*.log.*"))[-1]),
    "completed file": (merge_on_read, lambda table: sorted(table.root.glob(".hoodie/timeline/*_*.deltacommit"))[-2]),
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, LiveTable]:
    return {file: make(tmp_path_factory.mktemp("made") / "table") for file, (make, _) in FILES.items()}


def copied(table: LiveTable, root: Path) -> LiveTable:
    """As another process opens it."""
    shutil.copytree(table.root, root)
    more = {key.replace(".", "__"): str(value) for key, value in table.options.items()}
    return LiveTable(root, table.mode, True, 1, **more)


def forget() -> None:
    """As a new process begins."""
    named_files.forget_all()
    table_schema._place.cache_clear()


def happens(made: LiveTable, path_of: Callable[[LiveTable], Path], use: Use, reads: bool, root: Path) -> str:
    """What a use says; of one that changes the table, whether its rows are the right ones once the file is back."""
    whole, table = copied(made, root / "whole"), copied(made, root / "damaged")
    right = use(whole)
    path = path_of(table)
    content = path.read_bytes()
    path.unlink()
    forget()
    try:
        answer = use(table)
    except CorruptTable as error:
        assert path.name in str(error)
        return ERROR
    if reads:
        return RIGHT if answer == right else WITHOUT
    path.write_bytes(content)
    return GOES_ON if table.read() == whole.read() else LOST


def guide() -> dict[tuple[str, str], str]:
    """What the guide says, by file and use."""
    lines = GUIDE.read_text().partition(HEADING)[2].splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    (_, *files), _, *said = cells[: len(READS) + len(CHANGES) + 2]
    return {(file, row[0]): cell for row in said for file, cell in zip(files, row[1:], strict=True)}


def test_the_guide_speaks_of_every_file_and_use() -> None:
    assert set(guide()) == {(file, use) for file in FILES for use in (*READS, *CHANGES)}


@pytest.mark.parametrize("use", [*READS, *CHANGES])
@pytest.mark.parametrize("file", FILES)
def test_what_happens(made: dict[str, LiveTable], tmp_path: Path, file: str, use: str) -> None:
    if use in NOT_FOR_COPIES and FILES[file][0] is copy_on_write:
        assert guide()[file, use] == "refused"  # of any table of that type
        return
    found = happens(made[file], FILES[file][1], {**READS, **CHANGES}[use], use in READS, tmp_path)
    print(f"MATRIX|{file}|{use}|{found}")
    assert guide()[file, use] == found
