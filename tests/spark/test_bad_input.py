"""Wrong options and wrong data: the error says what and how to go on, and the table is as it was.

Two kinds are told apart. What the options and columns show is refused before anything begins: not a byte changes. What
only the rows show is found by the tasks, when a transaction has begun: its rollback is on the timeline, nothing else.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import lakelatch
from lakelatch.errors import InvalidRequest

pytestmark = pytest.mark.spark
MakeTable = Callable[..., Any]
TreeHash = Callable[[str], dict[str, str]]

ROWS = [(1, 1, "a"), (2, 1, "b")]
PROPERTIES = ".hoodie/hoodie.properties"
ROLLBACK = re.compile(r"\.hoodie/(timeline/[0-9_]+\.rollback.*|\.lakelatch/log/.*|\.hoodie_partition_metadata)")


def _refused(call: Callable[[], object], *named: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        call()
    assert type(caught.value) is InvalidRequest
    for text in named:
        assert text in str(caught.value)


@pytest.mark.parametrize(
    "more, named",
    [
        ({"hoodie__bucket__index__num__bucket": "2"}, ("'hoodie.bucket.index.num.bucket'", "num.buckets'?")),
        ({"hoodie__bucket__index__num__buckets": "3"}, ("hoodie.bucket.index.num.buckets=3", "made with 2")),
        ({"hoodie__bucket__index__num__buckets": "many"}, ("hoodie.bucket.index.num.buckets='many'", "whole number")),
        ({"hoodie__datasource__write__recordkey__field": "v"}, ("recordkey.field=v", "made with id")),
        ({"hoodie__datasource__write__partitionpath__field": "v"}, ("partitionpath.field=v", "Leave the option out")),
        ({"hoodie__datasource__write__precombine__field": "id"}, ("precombine.field=id", "made with ts")),
        ({"hoodie__table__ordering__fields": "id"}, ("one ordering field", "id, ts")),
        ({"hoodie__record__merge__mode": "COMMIT_TIME_ORDERING"}, ("hoodie.record.merge.mode=COMMIT_TIME_ORDERING",)),
        ({"hoodie__record__merge__mode": "CUSTOM"}, ("'CUSTOM'", "EVENT_TIME_ORDERING or COMMIT_TIME_ORDERING")),
        ({"hoodie__datasource__write__table__type": "COPY_ON_WRITE"}, ("table.type=COPY_ON_WRITE", "MERGE_ON_READ")),
        ({"hoodie__index__type": "BLOOM"}, ("hoodie.index.type='BLOOM'", "use BUCKET")),
        ({"hoodie__datasource__write__operation": "merge"}, ("'merge'", "upsert or insert")),
        ({"hoodie__datasource__write__operation": "delete_partition"}, ("call lakelatch.delete_partitions(",)),
        ({"hoodie__metadata__enable": "true"}, ("hoodie.metadata.enable=true", "set it to false")),
        ({"hoodie__write__lock__provider": "zoo"}, ("hoodie.write.lock.provider='zoo'", "Installed: ", "filesystem")),
        ({"hoodie__time__generator__type": "hybird"}, ("hoodie.time.generator.type='hybird'", "hybrid")),
        ({"hoodie__write__concurrency__mode": "NBCC"}, ("hoodie.write.concurrency.mode='NBCC'", "NON_BLOCKING")),
        ({"hoodie__clean__failed__writes__policy": "EAGER"}, ("EAGER", "LAZY")),
        ({"hoodie__write__lock__wait_time_ms": "soon"}, ("hoodie.write.lock.wait_time_ms='soon'", "whole number")),
        ({"hoodie__write__num__retries__on__conflict__failures": "-1"}, ("conflict.failures=-1", "0 to 1000")),
        ({"hoodie__client__heartbeat__interval_in_ms": "1"}, ("hoodie.client.heartbeat.interval_in_ms=1", "100 to")),
        ({"lakelatch__write__small__rows": "x"}, ("lakelatch.write.small.rows='x'",)),
        ({"hoodie__logfile__data__block__format": "hfile"}, ("block.format='hfile'", "parquet or avro")),
    ],
)
def test_wrong_options_change_nothing(
    make_table: MakeTable, tree_hash: TreeHash, more: dict[str, str], named: tuple[str, ...]
) -> None:
    table = make_table()
    table.write(ROWS)
    for state in ("requested", "inflight"):  # of a writer without a heartbeat, as Java's are: a write rolls it back
        Path(table.path, f".hoodie/timeline/20260101000000000.deltacommit.{state}").touch()
    before = tree_hash(table.path)
    _refused(lambda: table.write([(3, 1, "c")], **more), *named)
    assert tree_hash(table.path) == before


@pytest.mark.parametrize(
    "more, named",
    [
        ({"key": ""}, ("hoodie.datasource.write.recordkey.field", "identify a row")),
        ({"key": "nothing"}, ("hoodie.datasource.write.recordkey.field='nothing'", "id, ts, v")),
        ({"partition": "nothing"}, ("hoodie.datasource.write.partitionpath.field='nothing'",)),
        ({"ordering": "nothing"}, ("hoodie.datasource.write.precombine.field='nothing'",)),
        ({"hoodie__table__name": "a b"}, ("hoodie.table.name='a b'", "use letters")),
        ({"hoodie__bucket__index__hash__field": "v"}, ("hoodie.bucket.index.hash.field=v", "record key")),
        (
            {"ordering": None, "hoodie__record__merge__mode": "EVENT_TIME_ORDERING"},
            ("hoodie.record.merge.mode=EVENT_TIME_ORDERING", "precombine.field"),
        ),
        (
            {"ordering": None, "hoodie__write__concurrency__mode": "NON_BLOCKING_CONCURRENCY_CONTROL"},
            ("NON_BLOCKING_CONCURRENCY_CONTROL", "ordering field", "OPTIMISTIC_CONCURRENCY_CONTROL"),
        ),
        ({"hoodie__write__lock__provider": "zoo"}, ("hoodie.write.lock.provider='zoo'", "Installed: ")),
        ({"hoodie__time__generator__type": "hybird"}, ("hoodie.time.generator.type='hybird'",)),
        ({"hoodie__datasource__write__table__type": "COPY"}, ("'COPY'", "MERGE_ON_READ or COPY_ON_WRITE")),
        (
            {
                "hoodie__datasource__write__table__type": "COPY_ON_WRITE",
                "hoodie__write__concurrency__mode": "NON_BLOCKING_CONCURRENCY_CONTROL",
            },
            ("NON_BLOCKING_CONCURRENCY_CONTROL", "COPY_ON_WRITE", "OPTIMISTIC_CONCURRENCY_CONTROL"),
        ),
    ],
)
def test_a_first_write_with_wrong_options_makes_no_table(
    make_table: MakeTable, more: dict[str, str], named: tuple[str, ...]
) -> None:
    table = make_table(**more)
    _refused(lambda: table.write(ROWS), *named)
    assert not os.path.exists(table.path) or not any(Path(table.path).rglob("*.properties"))


def test_non_blocking_writes_to_a_table_without_ordering_field_are_refused(
    make_table: MakeTable, tree_hash: TreeHash
) -> None:
    table = make_table(ordering=None)
    table.write(ROWS)
    before = tree_hash(table.path)
    more = {"hoodie__write__concurrency__mode": "NON_BLOCKING_CONCURRENCY_CONTROL"}
    _refused(lambda: table.write(ROWS, **more), "hoodie.write.concurrency.mode", "EVENT_TIME_ORDERING")
    assert tree_hash(table.path) == before


@pytest.mark.parametrize(
    "columns, rows, named",
    [
        ("id long, ts long", [(1, 1)], ("lacks the column(s) v", "add them")),
        ("id long, v string", [(1, "a")], ("lacks the column(s) ts",)),
        ("id long, ts long, v string, more int, w int", [(1, 1, "a", 1, 1)], ("more, w are not in the table", "drop")),
        ("id string, ts long, v string", [("1", 1, "a")], ("'id' is string", "it is bigint", "cast it")),
        ("id long, ts double, v string", [(1, 1.0, "a")], ("'ts' is double", "it is bigint", "cast it")),
        ("id long, ts long, v int", [(1, 1, 1)], ("'v' is int", "it is string", "cast it")),
        ("id long, ts long, v interval day to second", [], ("'v'",)),
    ],
)
def test_wrong_columns_change_nothing(
    make_table: MakeTable, tree_hash: TreeHash, columns: str, rows: list[tuple[Any, ...]], named: tuple[str, ...]
) -> None:
    table = make_table()
    table.write(ROWS)
    before = tree_hash(table.path)
    _refused(lambda: table.write(rows, columns, local=False), *named)
    assert tree_hash(table.path) == before


def test_narrower_types_are_taken(make_table: MakeTable) -> None:
    table = make_table()
    table.write(ROWS)
    table.write([(2, 2, "B")], "id int, ts short, v string")
    assert table.read() == [(1, 1, "a"), (2, 2, "B")]


@pytest.mark.parametrize("local", [True, pytest.param(False, marks=pytest.mark.long)])
@pytest.mark.parametrize(
    "make, rows, named",
    [
        ({}, [(None, 1, "a"), (3, 1, "b")], ("1 of ", "'id'", "drop those rows")),
        ({"key": "v"}, [(3, 1, "")], ("empty", "'v'", "drop those rows")),
        ({"key": "v"}, [(3, 1, "a:b,c:d")], ("','", "':'", "'v'")),
        ({"key": "v,id"}, [(3, 1, "a,b:c")], ("','", "':'", "'v'")),
        ({"key": "v,id"}, [(None, 1, "")], ("record key field", "drop those rows")),
        ({}, [(3, None, "a")], ("1 rows have no value in the ordering field 'ts'", "Fill it")),
        ({"partition": "v"}, [(3, 1, "a?b")], ("'a?b'", "'v'", "hoodie.datasource.write.partitionpath.urlencode=true")),
        ({"partition": "v"}, [(3, 1, ".hoodie")], ("'.hoodie'", "'v'", "replace")),
    ],
)
def test_wrong_rows_are_rolled_back(
    make_table: MakeTable,
    tree_hash: TreeHash,
    local: bool,
    make: dict[str, str],
    rows: list[tuple[Any, ...]],
    named: tuple[str, ...],
) -> None:
    """A transaction had begun: only its rollback is new, and every row of the table is there."""
    table = make_table(**make)
    table.write(ROWS)
    before, rows_before = tree_hash(table.path), table.read()
    _refused(lambda: table.write(rows, local=local), *named)
    after = tree_hash(table.path)
    assert {path: after[path] for path in before if path in after} == before
    new = [path for path in after if path not in before]
    assert [path for path in new if not ROLLBACK.fullmatch(path)] == []
    assert table.read() == rows_before
    table.write([(7, 1, "g")])
    assert len(table.read()) == 3


def test_url_encoded_partitions_take_any_value(make_table: MakeTable) -> None:
    table = make_table(
        "id long, ts long, v string", partition="v", hoodie__datasource__write__partitionpath__urlencode="true"
    )
    rows = [(1, 1, "a/b"), (2, 1, "c=d:e"), (3, 1, "plain"), (4, 1, None)]
    table.write(rows)
    assert table.read() == rows
    paths = {path for (path,) in table.read(None, "_hoodie_partition_path")}
    assert paths == {"a%2Fb", "c%3Dd%3Ae", "plain", "__HIVE_DEFAULT_PARTITION__"}


def test_a_delete_needs_the_key_columns(make_table: MakeTable, tree_hash: TreeHash) -> None:
    table = make_table("id long, ts long, v string", partition="v")
    table.write(ROWS)
    before = tree_hash(table.path)
    _refused(lambda: table.operate("delete", [(1,)], "id long"), "lacks the column(s) v")
    assert tree_hash(table.path) == before


def test_a_path_that_is_no_table(make_table: MakeTable, tmp_path: Path) -> None:
    table = make_table()
    _refused(table.read, f"no table at file://{table.path}", PROPERTIES, "write to it")
    _refused(table.compact, f"no table at file://{table.path}")
    assert not os.path.exists(table.path)


def test_a_first_write_beside_foreign_files_is_refused(make_table: MakeTable, tree_hash: TreeHash) -> None:
    table = make_table()
    Path(table.path).mkdir()
    (Path(table.path) / "report.csv").write_text("1,2\n")
    before = tree_hash(table.path)
    _refused(lambda: table.write(ROWS), "'report.csv'", "Choose another path")
    assert tree_hash(table.path) == before


@pytest.mark.parametrize(
    "line, named",
    [
        ("hoodie.table.metadata.partitions=files", ("metadata table (files)", "hoodie.metadata.enable=false")),
        ("hoodie.table.version=10", ("hoodie.table.version=10", "Write to it with Hudi")),
        ("hoodie.table.version=11", ("hoodie.table.version=11", "upgrade lakelatch")),
        ("hoodie.table.version=6", ("hoodie.table.version=6", "upgrade the table")),
        ("hoodie.table.timeline.timezone=LOCAL", ("hoodie.table.timeline.timezone=LOCAL", "UTC")),
        ("hoodie.record.merge.mode=CUSTOM", ("CUSTOM",)),
        ("hoodie.bucket.index.num.buckets=", ("hoodie.bucket.index.num.buckets", PROPERTIES)),
    ],
)
def test_a_table_that_lakelatch_may_not_write(
    make_table: MakeTable, tree_hash: TreeHash, line: str, named: tuple[str, ...]
) -> None:
    table = make_table()
    table.write(ROWS)
    file = Path(table.path) / PROPERTIES
    key = line.partition("=")[0]
    changed = (f"{key}=", "lakelatch.table.checksum=")
    kept = [old for old in file.read_text().splitlines() if not old.startswith(changed)]
    file.write_text("\n".join([*kept, line, ""]))
    # For a process that has not written it: one that has may claim a time beside its look, for the next recovery.
    table.path = shutil.copytree(table.path, f"{table.path}-copy")
    before = tree_hash(table.path)
    options = {name: value for name, value in table.options.items() if "buckets" not in name}
    _refused(lambda: lakelatch.write(table.frame(ROWS), table.path, options), *named)
    _refused(table.compact, *named)
    assert tree_hash(table.path) == before
