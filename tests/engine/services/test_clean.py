"""Cleans of tables with rows: every reader sees the same before and after, or is told why not. No Spark runs here."""

from __future__ import annotations

import zipfile
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
import pytest
from bare_table import manager_of
from hudi import HudiTableBuilder
from java_hudi import Rows, plain
from live_table import LiveTable, rows_of
from sweep import find_losses

import lakelatch
from lakelatch.engine.options.calls.registry import Call
from lakelatch.engine.options.table_services.cleaning import CleaningOptions
from lakelatch.engine.read.plan import plan_read, plan_read_of
from lakelatch.engine.services.removals.cleaning import Clean, preview
from lakelatch.engine.services.service import ServiceContext
from lakelatch.engine.table.opening import open_table
from lakelatch.errors import InvalidRequest, LakelatchError
from lakelatch.failpoints import calling
from lakelatch.storage import LocalStorage
from lakelatch.testing.faults.storage import FaultyStorage
from lakelatch.timeline.log.events import LOG_FOLDER

T = TypeVar("T")
DATA = Path(__file__).parents[2] / "data"
MADE_BY_JAVA = sorted([*DATA.glob("java/*.zip"), *DATA.glob("archived/*.zip")])


def keeping(table: LiveTable, commits: int) -> dict[str, object]:
    shared = {key: value for key, value in table.options.items() if key.startswith("hoodie.write.")}
    return {**shared, "hoodie.clean.commits.retained": str(commits)}


def clean(table: LiveTable, commits: int = 1) -> list[str]:
    """Paths of what went."""
    results = lakelatch.clean(str(table.root), keeping(table, commits))
    assert find_losses(table.storage, table.opened.config) == []
    return [path for result in results for path in result.files]


def test_every_reader_sees_the_same_before_and_after(tmp_path: Path) -> None:
    table = LiveTable(tmp_path / "t")
    moments: dict[str, list[tuple[object, ...]]] = {}
    for number in range(1, 7):
        table.write([(key, number, f"v{number}") for key in range(8)])
        table.delete([(number, number + 1, "")])
        table.compact()
        done = table.write([(100 + number, 1, "new")], partition="q")
        moments[done.completion] = table.agreed()
    before = table.agreed()
    assert clean(table, 9)
    assert table.agreed() == before
    kept = list(moments)[-2:]
    assert {time: table.as_of(time) for time in kept} == {time: moments[time] for time in kept}
    assert table.since(kept[0], kept[1])
    with pytest.raises(InvalidRequest, match="removed"):
        table.as_of(next(iter(moments)))
    assert clean(table) and table.agreed() == before
    table.write([(1, 0, "late")])  # its delete is kept, and has outlived the versions that it was in
    assert table.agreed() == before


def test_overwritten_and_deleted_partitions(tmp_path: Path) -> None:
    table = LiveTable(tmp_path / "t")
    for number in range(3):
        table.write([(key, number, "a") for key in range(4)])
        table.write([(key, number, "b") for key in range(4)], partition="q")
    table.drop("q")
    writing = table.begin("insert_overwrite")
    writing.put("p", [(1, 9, "over")])
    writing.commit()
    for number in range(3):
        table.write([(50, number, "later")])
    gone = clean(table)
    assert any(path.startswith("q/") for path in gone) and table.agreed() == [
        ("p", 1, 9, "over"),
        ("p", 50, 2, "later"),
    ]
    table.write([(7, 1, "again")], partition="q")
    assert len(table.agreed()) == 3
    table.compact()
    for number in range(3, 6):
        table.write([(50, number, "later")])
    clean(table)
    assert len(table.agreed()) == 3


def test_logs_that_a_log_compaction_repeats_go_with_their_version(tmp_path: Path) -> None:
    table = LiveTable(tmp_path / "t", buckets=1)
    for number in range(6):
        table.write([(key, number, f"v{number}") for key in range(3)])
    options = CleaningOptions(commits=1)
    plan = table.plan_logs()
    assert plan is not None
    table.execute_logs(plan)
    before = table.agreed()
    assert table.clean(options)[0].files == ()
    table.compact()
    for number in range(6, 8):
        table.write([(9, number, "w")])
    gone = clean(table)
    assert len(gone) == 7 and all(".log." in path for path in gone)
    assert table.agreed() == [*before, ("p", 9, 7, "w")]


def test_a_reader_that_began_within_retention_reads_on(tmp_path: Path) -> None:
    table = LiveTable(tmp_path / "t")
    for number in range(4):
        table.write([(key, number, f"v{number}") for key in range(8)])
        table.compact()
    plan = plan_read(str(table.root))
    expected = table.read()
    for number in range(4, 6):
        table.write([(key, number, f"v{number}") for key in range(8)])
        table.compact()
    assert clean(table, 4)
    assert rows_of(plan) == expected
    for number in range(6, 8):
        table.write([(key, number, f"v{number}") for key in range(8)])
        table.compact()
    clean(table)
    with pytest.raises(LakelatchError):
        [list(plan.read(found)) for found in plan.slices]


def test_a_read_that_a_clean_overtakes_between_two_listings_looks_again(tmp_path: Path) -> None:
    """The timeline was listed before what is read was superseded and cleaned, and the files afterwards."""
    table = LiveTable(tmp_path / "t", buckets=1)
    table.write([(1, 1, "a")])
    table.compact()
    overtaken: list[int] = []

    def overtake(operation: str, path: str) -> None:
        if (operation, path) == ("list", "p") and not overtaken:
            overtaken.append(1)
            for number in range(2, 5):
                table.write([(1, number, "b")])
                table.compact()
            clean(table)

    plan = plan_read_of(open_table(FaultyStorage(table.storage, before=overtake)), Call({}).read())
    assert rows_of(plan) == [("p", 1, 4, "b")] and overtaken


def test_a_clean_that_stops_between_its_files_hides_nothing(tmp_path: Path) -> None:
    table = LiveTable(tmp_path / "t", buckets=1)
    for number in range(4):
        table.write([(key, number, f"v{number}") for key in range(3)])
        table.compact()
    expected, visits = table.agreed(), list[str]()

    def look(name: str) -> None:
        visits.append(name)
        assert table.agreed() == expected

    with calling(look, ["clean.after_file", "clean.before_commit"]):
        options = {**keeping(table, 1), "hoodie.clean.parallelism": "1"}
        assert lakelatch.clean(str(table.root), options)
    assert len(visits) > 3


@pytest.mark.parametrize("archive", MADE_BY_JAVA, ids=[path.stem for path in MADE_BY_JAVA])
@pytest.mark.parametrize("policy", ["KEEP_LATEST_COMMITS", "KEEP_LATEST_FILE_VERSIONS"])
def test_tables_that_java_made(archive: Path, policy: str, tmp_path: Path) -> None:
    with zipfile.ZipFile(archive) as files:
        files.extractall(tmp_path)
    storage = LocalStorage(str(next(path.parent for path in tmp_path.glob("*/.hoodie"))))
    before, by_others = rows(storage), rows_by_hudi_rs(storage)
    manager = manager_of(storage)
    options = CleaningOptions(policy=policy, commits=1, versions=1)
    Clean(options).run(ServiceContext(open_table(storage), manager))
    assert rows(storage) == before and rows_by_hudi_rs(storage) == by_others
    assert Clean(options).run(ServiceContext(open_table(storage), manager)) == []


def rows(storage: LocalStorage) -> Rows:
    plan = plan_read(storage.root)
    return _plain([batch for found in plan.slices for batch in plan.read(found)])


def rows_by_hudi_rs(storage: LocalStorage) -> Rows:
    return _plain([pa.record_batch(batch) for batch in HudiTableBuilder.from_base_uri(storage.root).build().read()])


def _plain(batches: list[pa.RecordBatch]) -> Rows:
    return plain(pa.Table.from_batches(batches)) if batches else []


class WatchedStorage(LocalStorage):
    """Notes what is read while nothing else is asked beside it."""

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self.read_alone: list[str] = []
        self._beside = False

    def read(self, path: str) -> bytes:
        if not self._beside:
            self.read_alone.append(path)
        return super().read(path)

    def together(self, *requests: Callable[[], T]) -> Sequence[T]:
        self._beside = True
        try:
            return super().together(*requests)
        finally:
            self._beside = False


def test_what_writes_say_is_read_side_by_side(tmp_path: Path) -> None:
    """A clean is planned while others wait for the table's lock, or let its holder go first."""
    table = LiveTable(tmp_path / "t")
    for incremental in (False, True):
        for number in range(5):
            table.write([(1, number, "v")])
        table.compact()
        table.write([(1, 5, "v")])
        storage = WatchedStorage(str(table.root))
        options = CleaningOptions(commits=1, incremental=incremental)
        plan = preview(storage, table.opened.config, options, "me")
        assert plan is not None and len(plan.files["p"]) >= 5
        assert [path for path in storage.read_alone if path.endswith("commit")] == []
        clean(table)


def test_what_writes_say_is_not_read_anew_for_each_slot_that_a_clean_tries(tmp_path: Path) -> None:
    """Others take its slots, and it holds the table's lock meanwhile."""
    table = LiveTable(tmp_path / "t")
    for number in range(5):
        table.write([(1, number, "v")])
    table.compact()
    clean(table)
    for number in range(5):
        table.write([(1, number, "v")])
    table.compact()
    table.write([(1, 5, "v")])
    read: list[str] = []
    lost: list[str] = []

    def before(operation: str, path: str) -> None:
        if operation == "read" and path.endswith("commit"):
            read.append(path)
        elif operation == "put_if_absent" and path.startswith(LOG_FOLDER) and len(lost) < 2:
            lost.append(path)
            table.write([(2, len(lost), "v")])

    storage = FaultyStorage(LocalStorage(str(table.root)), before=before)
    context = ServiceContext(open_table(storage), table.manager(storage))
    plan = Clean(CleaningOptions(commits=1)).schedule(context)
    assert plan is not None and len(lost) == 2
    assert len(read) > 5 and max(Counter(read).values()) <= 2  # once more where missing files are looked for
