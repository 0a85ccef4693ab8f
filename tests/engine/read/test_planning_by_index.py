"""What it takes to plan a read of many partitions by the file index, exactly; and who makes one.

The numbers are those of docs/design/0030-file-index.md.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from live_table import SCHEMA, LiveTable, rows_of, window
from storages.counting import CountingStorage
from table import BuiltTable

from lakelatch.engine.arrow import ArrowTable
from lakelatch.engine.options.calls.registry import Call
from lakelatch.engine.read.plan import plan_read
from lakelatch.engine.read.where import conditions_in
from lakelatch.engine.run.executor import NO_TASKS
from lakelatch.engine.run.report import DONE
from lakelatch.engine.run.result import CommitResult
from lakelatch.engine.services.keeping.inline import after_commit
from lakelatch.engine.services.keeping.maintenance import keep
from lakelatch.engine.services.keeping.steps import Steps
from lakelatch.engine.services.service import ServiceContext
from lakelatch.engine.table.opening import open_table
from lakelatch.format.index.file_index import INDEX_FOLDER
from lakelatch.format.slices import index_making as making
from lakelatch.format.slices import partitions
from lakelatch.format.slices.index_making import make_index
from lakelatch.format.slices.partitions import FEW_FOLDERS
from lakelatch.locks.contract import LockScope
from lakelatch.locks.filesystem.provider import FilesystemLockProvider
from lakelatch.storage import LocalStorage
from lakelatch.storage.contract import Storage

PARTITIONS = [f"d{number:03}" for number in range(FEW_FOLDERS)]
BY_INDEX = [
    "  1 read           .hoodie/hoodie.properties",
    "  1 list           .hoodie/timeline",
    "  2 walk           ",
    "  3 read           .hoodie/.lakelatch/index/{moment}.json.z",
    "  4 list           .hoodie/timeline",
]


def load(table: LiveTable, partitions: list[str], ts: int = 1) -> CommitResult:
    """One commit with a row in each partition."""
    columns = [[7] * len(partitions), [ts] * len(partitions), [f"v{ts}"] * len(partitions), partitions]
    return table.begin().put_table(pa.Table.from_arrays(columns, schema=SCHEMA)).commit()


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("loaded") / "t"
    load(LiveTable(root, buckets=1), PARTITIONS)
    return root


@pytest.fixture
def table(tmp_path: Path, loaded: Path) -> LiveTable:
    shutil.copytree(loaded, tmp_path / "t")
    return LiveTable(tmp_path / "t", buckets=1)


def lift(storage: Storage, name: str) -> CountingStorage:
    """An object store of the folder's content, which needs more than one answer to show it."""
    far = CountingStorage(name)
    far.listed_at_once = 40
    for path in storage.walk(""):
        far.put(path, storage.read(path))
    far.forget()
    return far


def check_asks(far: CountingStorage, requests: int, steps: int, options: dict[str, object] | None = None) -> None:
    far.forget()
    plan_read(far.uri, options)
    assert (len(far.calls), far.steps) == (requests, steps), far.story()


def test_a_plan_by_index(table: LiveTable, request: pytest.FixtureRequest) -> None:
    index = make_index(table.storage, table.opened.config)
    assert index is not None
    far = lift(table.storage, request.node.name)
    check_asks(far, 6, 4)  # of each commit the columns are read once a process
    check_asks(far, 5, 4)
    assert far.story().splitlines() == [line.replace("{moment}", index.moment) for line in BY_INDEX]
    check_asks(far, 5 + FEW_FOLDERS, 5, {"lakelatch.read.index": "false"})
    load(table, PARTITIONS[:3], 2)
    load(table, [PARTITIONS[1], "new"], 3)
    far = lift(table.storage, request.node.name)
    expected = plan_read(str(table.root), {"lakelatch.read.index": "false"}).slices
    assert plan_read(far.uri).slices == expected and len(expected) == FEW_FOLDERS + 1
    assert {call.step for call in far.calls if call.operation == "read" and "deltacommit" in call.path} == {2, 4}
    check_asks(far, 5, 4)
    optimized: dict[str, object] = {"hoodie.datasource.query.type": "read_optimized"}
    check_asks(far, 5, 4, optimized)
    assert plan_read(far.uri, optimized).slices == ()


def test_named_partitions_are_listed_if_they_are_few(table: LiveTable, request: pytest.FixtureRequest) -> None:
    make_index(table.storage, table.opened.config)
    far = lift(table.storage, request.node.name)
    conditions = conditions_in("part = 'd001'", table.opened.full_schema)
    assert [found.partition for found in plan_read(far.uri, conditions=conditions).slices] == ["d001"]
    assert not any(INDEX_FOLDER in call.path for call in far.calls), far.story()


def test_the_past_and_a_window_are_listed(table: LiveTable, request: pytest.FixtureRequest) -> None:
    make_index(table.storage, table.opened.config)
    last = load(table, PARTITIONS[:3], 2)
    far = lift(table.storage, request.node.name)
    for options in ({"as.of.instant": last.completion}, window("20200101000000000")):
        far.forget()
        assert len(plan_read(far.uri, options).slices) == FEW_FOLDERS
        assert not any(INDEX_FOLDER in call.path for call in far.calls), far.story()


def test_a_table_without_one_asks_for_it_once_it_lists_many_folders(
    table: LiveTable, request: pytest.FixtureRequest
) -> None:
    far = lift(table.storage, request.node.name)
    plan_read(far.uri)
    check_asks(far, 5 + FEW_FOLDERS + 1, 6)


def test_few_partitions_have_none(tmp_path: Path) -> None:
    table = LiveTable(tmp_path / "t", buckets=1)
    load(table, PARTITIONS[:3])
    assert make_index(table.storage, table.opened.config) is None and indexes(table) == []


def test_a_folder_of_this_machine_is_planned_by_index(table: LiveTable) -> None:
    index = make_index(table.storage, table.opened.config)
    assert index is not None
    rows = table.read()
    inside = table.root / "d000"
    inside.rename(table.root / ".out-of-sight")
    assert len(plan_read(str(table.root)).slices) == FEW_FOLDERS, "nobody has listed it"
    (table.root / ".out-of-sight").rename(inside)
    assert table.read() == rows


# -- what its statistics rule out ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def compacted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A base file in each partition, whose `ts` is the partition's number."""
    table = LiveTable(tmp_path_factory.mktemp("compacted") / "t", buckets=1)
    writing = table.begin()
    for number, partition in enumerate(PARTITIONS):
        writing.put(partition, [(7, number, f"v{number}")], f"{number}-0-0")
    writing.commit()
    table.compact({"hoodie.compact.inline.max.delta.commits": "1"})
    return table.root


@pytest.fixture
def by_ts(tmp_path: Path, compacted: Path) -> LiveTable:
    shutil.copytree(compacted, tmp_path / "t")
    return LiveTable(tmp_path / "t", buckets=1)


def opened(far: CountingStorage, where: str, options: dict[str, object] | None = None) -> tuple[list[str], list[str]]:
    """The partitions with rows that fulfil it, and those in which files were opened on the way."""
    plan = plan_read(far.uri, options, where=where)
    far.forget()
    there = sorted({row[0] for row in rows_of(plan)})
    return there, sorted({call.path.partition("/")[0] for call in far.calls})


def test_files_that_statistics_rule_out_are_not_opened(by_ts: LiveTable, request: pytest.FixtureRequest) -> None:
    index = make_index(by_ts.storage, by_ts.opened.config)
    assert index is not None and sum(map(len, index.statistics.files.values())) == FEW_FOLDERS
    far = lift(by_ts.storage, request.node.name)
    listed: dict[str, object] = {"lakelatch.read.index": "false"}
    for where, found in {
        "ts >= 61": ["d061", "d062", "d063"],
        "v = 'v5' and ts < 9": ["d005"],
        "ts is null": [],
        "id = 8": [],
        "ts > 70": [],
        "ts + 1 > 70": PARTITIONS,  # not understood
    }.items():
        there = [one for one in found if one in opened(far, where, listed)[0]]
        assert opened(far, where) == (there, found), where
    assert opened(far, "ts >= 61", listed) == (["d061", "d062", "d063"], PARTITIONS)


def test_slices_with_logs_are_kept_whatever_their_base_files_say(
    by_ts: LiveTable, request: pytest.FixtureRequest
) -> None:
    assert make_index(by_ts.storage, by_ts.opened.config) is not None
    by_ts.write([(8, 80, "new")], "d001")
    by_ts.write([(9, 80, "new")], "another")
    by_ts.delete([(7, 99, "")], "d062")
    far = lift(by_ts.storage, request.node.name)
    assert opened(far, "ts = 80") == (["another", "d001"], ["another", "d001", "d062"])
    optimized: dict[str, object] = {"hoodie.datasource.query.type": "read_optimized"}
    assert opened(far, "ts = 62", optimized) == (["d062"], ["d062"]), "there the base file says it all"


def test_the_past_and_a_window_do_not_ask_statistics(by_ts: LiveTable, request: pytest.FixtureRequest) -> None:
    make_index(by_ts.storage, by_ts.opened.config)
    last = load(by_ts, PARTITIONS[:3], 80)
    far = lift(by_ts.storage, request.node.name)
    past: dict[str, object] = {"as.of.instant": last.completion}
    for options in (past, window("20200101000000000")):
        assert opened(far, "ts = 62", options) == (["d062"], PARTITIONS)


def test_each_footer_is_read_once_and_so_many_for_an_index(
    by_ts: LiveTable, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(making, "_FOOTERS_MAX", 40)
    far = lift(by_ts.storage, request.node.name)
    read = []
    for ts in range(80, 83):
        load(by_ts, PARTITIONS[:1], ts)
        for path in by_ts.storage.walk(""):
            far.put_if_absent(path, by_ts.storage.read(path))
        far.forget()
        index = make_index(far, by_ts.opened.config)
        assert index is not None
        assert far.steps < 12, "side by side"
        read.append([call.path for call in far.calls if call.path.endswith(".parquet")])
    assert list(map(len, read)) == [40, FEW_FOLDERS - 1 - 40, 0], "one slice has logs"
    assert len({path for paths in read for path in paths}) == FEW_FOLDERS - 1


def test_those_of_a_file_that_was_rewritten_go_with_it(by_ts: LiveTable, request: pytest.FixtureRequest) -> None:
    assert make_index(by_ts.storage, by_ts.opened.config) is not None
    by_ts.write([(7, 90, "new")], "d001")
    by_ts.compact({"hoodie.compact.inline.max.delta.commits": "1"})
    far = lift(by_ts.storage, request.node.name)
    assert opened(far, "ts = 90") == (["d001"], ["d001"]), "nothing is known of its new base file"
    index = make_index(by_ts.storage, by_ts.opened.config)
    assert index is not None and len(index.statistics.files["d001"]) == 1
    far = lift(by_ts.storage, request.node.name)
    assert opened(far, "ts = 90") == (["d001"], ["d001"]) and opened(far, "ts = 1") == ([], [])


@pytest.mark.parametrize(("wider", "where"), [(pa.int64(), "n = 5"), (pa.string(), "n = '5'")])
def test_a_column_that_has_become_wider_rules_nothing_out(
    tmp_path: Path, wider: pa.DataType, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partitions, "FEW_FOLDERS", 1)
    monkeypatch.setattr(making, "FEW_FOLDERS", 1)
    keys: dict[str, object] = {
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.precombine.field": "ts",
        "hoodie.datasource.write.partitionpath.field": "part",
    }
    table = ArrowTable(tmp_path / "t", keys)
    once = pa.schema([("id", pa.int64()), ("ts", pa.int64()), ("part", pa.string()), ("n", pa.int32())])
    table.upsert(pa.table([[1, 2], [1, 1], ["p", "q"], [5, 6]], once))
    opened_table = open_table(LocalStorage(str(tmp_path / "t")))
    assert BuiltTable.at(opened_table.storage, keys).compact() is not None
    assert make_index(opened_table.storage, opened_table.config) is not None
    path = str(tmp_path / "t")
    assert [one.partition for one in plan_read(path, where="n = 5").slices] == ["p"]
    now = once.set(3, pa.field("n", wider))
    more = pa.table([[3], [1], ["r"], pa.array([7]).cast(wider)], now)
    table.upsert(more, {"mergeSchema": "true", "lakelatch.write.numbers.to.text": "true"})
    plan_now = plan_read(path, where=where)
    assert [one.partition for one in plan_now.slices] == ["p", "q", "r"] and plan_now.counts.index
    rows = [row for one in plan_now.slices for batch in plan_now.read(one) for row in batch.to_pylist()]
    assert [row["id"] for row in rows] == [1]


# -- who makes it -----------------------------------------------------------------------------------------------------


def indexes(table: LiveTable) -> list[str]:
    return sorted(table.storage.list(INDEX_FOLDER).files)


def test_commits_make_one_and_three_stay(table: LiveTable) -> None:
    options = Call({"lakelatch.index.commits": 1}).services()
    made = []
    for ts in range(2, 7):
        writing = table.begin().put("d001", [(1, ts, "v")])
        result = after_commit(writing.commit(), ServiceContext(table.opened, writing.manager, NO_TASKS), options)
        assert [(run.service, run.outcome) for run in result.services] == [("index", DONE)]
        made.append(f"{result.completion}.json.z")
    assert indexes(table) == made[-3:]


def test_few_commits_make_none(table: LiveTable) -> None:
    options = Call({"lakelatch.index.commits": 9}).services()
    for ts in range(2, 9):
        writing = table.begin().put("d001", [(1, ts, "v")])
        assert (
            after_commit(writing.commit(), ServiceContext(table.opened, writing.manager, NO_TASKS), options).services
            == ()
        )
    assert indexes(table) == []


@pytest.mark.parametrize("every", [0, 1])
def test_nobody_makes_one_who_was_told_not_to_or_takes_hudis_locks(table: LiveTable, every: int) -> None:
    class TakenByHudi(FilesystemLockProvider):
        taken_by_hudi = True

    options = Call({"lakelatch.index.commits": every}).services()
    writing = table.begin().put("d001", [(1, 2, "v")])
    manager = writing.manager
    if every:
        provider = TakenByHudi(LockScope(table.storage.uri, {}))
        manager.context = replace(manager.context, provider=provider)
    assert after_commit(writing.commit(), ServiceContext(table.opened, manager, NO_TASKS), options).services == ()
    assert indexes(table) == []


def test_a_maintenance_makes_one_after_so_many_commits(table: LiveTable) -> None:
    options = Call({"lakelatch.index.commits": 2}).services()
    context = ServiceContext(table.opened, table.manager())
    due = [step for step in Steps(options).of_maintenance() if step.service == "index"]
    outcomes = []
    for ts in range(2, 7):
        table.write([(1, ts, "v")], "d001")
        outcomes.append([(run.service, run.outcome) for run in keep(context, due)])
    assert outcomes == [[("index", DONE)], [], [("index", DONE)], [], [("index", DONE)]]


def test_a_maker_whose_look_was_overtaken_makes_none(table: LiveTable) -> None:
    """Something is cleaned, rolled back or archived between its two listings: the next one will do."""

    class Moving(LocalStorage):
        looks = 0

        def names(self, folder: str) -> list[str]:
            found = list(super().names(folder))
            if folder == ".hoodie/timeline":
                self.looks += 1
                found += ["20990101000000000.clean.requested"] if self.looks > 1 else []
            return found

    assert make_index(Moving(str(table.root)), table.opened.config) is None and indexes(table) == []
    assert make_index(table.storage, table.opened.config) is not None and len(indexes(table)) == 1
