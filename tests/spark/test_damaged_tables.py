"""Storage that is damaged, full or locked: said at once, with the file and the way out; nothing is made worse."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import lakelatch
from lakelatch.engine.table import schema as table_schema
from lakelatch.errors import CorruptTable, LakelatchError

pytestmark = pytest.mark.spark
MakeTable = Callable[..., Any]
TreeHash = Callable[[str], dict[str, str]]
RunPython = Callable[..., "subprocess.Popen[str]"]

ROWS = [(1, 1, "a"), (2, 1, "b")]
PROPERTIES = ".hoodie/hoodie.properties"
DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda data: b"",
    "cut": lambda data: data[: len(data) // 2],
    "zeros": lambda data: bytes(len(data)),
    "other": lambda data: b"\xff\xfe not what it was",
}


def _refused(kind: type[LakelatchError], call: Callable[[], object], *named: str) -> None:
    with pytest.raises(LakelatchError) as caught:
        call()
    assert type(caught.value) is kind, str(caught.value)
    for text in named:
        assert text in str(caught.value)


def _damage(file: Path, damage: str) -> None:
    file.write_bytes(DAMAGES[damage](file.read_bytes()))


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_properties(make_table: MakeTable, tree_hash: TreeHash, damage: str) -> None:
    table = make_table()
    table.write(ROWS)
    file = Path(table.path) / PROPERTIES
    whole = file.read_bytes()
    _damage(file, damage)
    before = tree_hash(table.path)
    for call in (table.read, table.compact, lambda: table.write(ROWS)):
        _refused(CorruptTable, call, PROPERTIES, "Restore the file from a copy")
    assert tree_hash(table.path) == before
    Path(f"{file}.backup").write_bytes(whole)
    assert table.read() == ROWS
    table.write([(1, 2, "A")])
    assert table.read() == [(1, 2, "A"), (2, 1, "b")]


def test_properties_whose_checksum_is_wrong(make_table: MakeTable, tree_hash: TreeHash) -> None:
    table = make_table()
    table.write(ROWS)
    file = Path(table.path) / PROPERTIES
    file.write_text(file.read_text().replace("hoodie.table.name=trips", "hoodie.table.name=trip"))
    before = tree_hash(table.path)
    for call in (table.read, table.compact, lambda: table.write(ROWS)):
        _refused(CorruptTable, call, "hoodie.table.checksum", "restore")
    assert tree_hash(table.path) == before


@pytest.mark.parametrize("damage", ["cut", "zeros", "other"])
def test_a_damaged_log_file_is_never_read_as_fewer_rows(
    make_table: MakeTable, tree_hash: TreeHash, damage: str
) -> None:
    table = make_table(hoodie__bucket__index__num__buckets="1")
    table.write([(9, 9, "z")])
    (name,) = table.write(ROWS).files
    _damage(Path(table.path) / name, damage)
    before = tree_hash(table.path)
    _refused_by_task(lambda: table.read(), name)
    assert tree_hash(table.path) == before
    _refused(CorruptTable, table.compact, name)
    _refused_by_task(lambda: table.read(), name)


def test_an_emptied_log_file_is_not_compacted_away(make_table: MakeTable, tree_hash: TreeHash) -> None:
    """An empty file usually is the tombstone of a failed attempt; what the commit names was a file with rows."""
    table = make_table(hoodie__bucket__index__num__buckets="1")
    table.write([(9, 9, "z")])
    (name,) = table.write(ROWS).files
    whole = (Path(table.path) / name).read_bytes()
    _damage(Path(table.path) / name, "empty")
    before = tree_hash(table.path)
    _refused(CorruptTable, table.compact, name, "restore it")
    assert tree_hash(table.path) == before
    (Path(table.path) / name).write_bytes(whole)
    assert len(table.compact()) == 1
    assert table.read() == [*ROWS, (9, 9, "z")]


def _refused_by_task(call: Callable[[], object], *named: str) -> None:
    """A read fails in a task, where Spark keeps only the error's text."""
    from lakelatch.errors import reraise

    with pytest.raises(Exception, match="LAKELATCH-CORRUPT") as caught:
        call()
    _refused(CorruptTable, lambda: reraise(caught.value), *named)


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_commit_log_slot_stops_writers_and_not_readers(
    make_table: MakeTable, tree_hash: TreeHash, damage: str
) -> None:
    table = make_table()
    table.write(ROWS)
    folder = Path(table.path) / ".hoodie/.lakelatch/log"
    slot = max(file for file in folder.iterdir() if file.is_file())
    _damage(slot, damage)
    before = tree_hash(table.path)
    for call in (table.compact, lambda: table.write(ROWS)):
        _refused(CorruptTable, call, slot.name)
    assert tree_hash(table.path) == before
    assert table.read() == ROWS


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_completed_file_stops_who_needs_it(make_table: MakeTable, damage: str) -> None:
    """Readers of the whole table need only its name, but for the last one's columns; an incremental read needs all."""
    table = make_table()
    result = table.write(ROWS)
    table.write(ROWS)
    _damage(Path(table.path) / f".hoodie/timeline/{result.instant}_{result.completion}.deltacommit", damage)
    assert table.read() == ROWS
    since: dict[str, object] = {
        "hoodie.datasource.query.type": "incremental",
        "hoodie.datasource.read.begin.instanttime": "20200101000000000",
    }
    _refused(CorruptTable, lambda: table.read(since), result.instant, "restore it from a copy")
    last = table.write(ROWS)
    _damage(Path(table.path) / f".hoodie/timeline/{last.instant}_{last.completion}.deltacommit", damage)
    assert table.read() == ROWS  # a process knows what it has committed
    table_schema._place.cache_clear()  # and another one does not
    _refused(CorruptTable, table.read, last.instant, "restore it from a copy")


def test_a_missing_data_file_is_an_error_and_not_fewer_rows(make_table: MakeTable) -> None:
    """A log that a compaction plan names has gone."""
    table = make_table(hoodie__bucket__index__num__buckets="1")
    (name,) = table.write(ROWS).files
    instant = lakelatch.schedule_compaction(table.path, {"hoodie.compact.inline.max.delta.commits": "1"})
    assert instant is not None
    (Path(table.path) / name).unlink()
    with pytest.raises(LakelatchError, match=name.replace(".", r"\.")):
        lakelatch.execute_compaction(table.spark, table.path, instant)


FULL_DISK_SCRIPT = """
import json, resource, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
path, options, rows = sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[3])
frame = spark.createDataFrame(spark.range(rows).selectExpr("id", "id as ts", "uuid() as v").toArrow())
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))
try:
    lakelatch.write(frame, path, options)
except lakelatch.errors.LakelatchError as error:
    print(type(error).__name__, str(error))
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
"""


@pytest.mark.long
def test_a_full_disk(make_table: MakeTable, tree_hash: TreeHash, run_python: RunPython) -> None:
    """No file may grow beyond 100 kB: the data file cannot be written, the rollback can."""
    table = make_table()
    table.write(ROWS)
    before = tree_hash(table.path)
    writer = run_python(FULL_DISK_SCRIPT, table.path, json.dumps(table.options), "20000")
    output, errors = writer.communicate(timeout=600)
    assert output.startswith("Unavailable [LAKELATCH-UNAVAILABLE]"), output + errors
    after = tree_hash(table.path)
    assert {path: after[path] for path in before} == before
    new = [path for path in after if path not in before]
    tombstones = {path for path in new if not (Path(table.path) / path).stat().st_size}
    assert [path for path in new if not (".rollback" in path or "lakelatch/log/" in path or path in tombstones)] == []
    assert any(path.endswith(".rollback") for path in new)
    assert table.read() == ROWS
    table.write([(3, 1, "c")])
    assert table.read() == [*ROWS, (3, 1, "c")]


READ_ONLY_SCRIPT = """
import json, os
path, options = sys.argv[1], json.loads(sys.argv[2])
frame = spark.createDataFrame(spark.createDataFrame([(3, 1, "c")], "id long, ts long, v string").toArrow())
lakelatch.write(frame, path + "-other", options)  # loads what another user may not
if os.geteuid() == 0:  # whom permissions do not stop
    os.setegid(65534)
    os.seteuid(65534)
try:
    lakelatch.write(frame, path, options)
except lakelatch.errors.LakelatchError as error:
    print(type(error).__name__, str(error))
print(len(lakelatch.read(spark, path).collect()))
"""


@pytest.mark.long
def test_a_read_only_folder(make_table: MakeTable, tree_hash: TreeHash, run_python: RunPython) -> None:
    """Readers need no right to write."""
    table = make_table()
    with tempfile.TemporaryDirectory(dir="/var/tmp") as outside:  # those of other tests are closed to other users
        os.chmod(outside, 0o755)
        table.path = f"{outside}/trips"
        table.write(ROWS)
        before = tree_hash(table.path)
        folders = [Path(table.path), *(path for path in Path(table.path).rglob("*") if path.is_dir())]
        for folder in folders:
            folder.chmod(0o555)
        writer = run_python(READ_ONLY_SCRIPT, table.path, json.dumps(table.options))
        output, errors = writer.communicate(timeout=600)
        for folder in folders:
            folder.chmod(0o755)
        after = tree_hash(table.path)
    assert output.startswith("Unavailable "), output + errors
    assert "Permission denied" in output
    assert output.splitlines()[-1] == "2", output + errors
    assert after == before


def test_a_table_whose_timeline_was_removed_is_neither_empty_nor_all_files(make_table: MakeTable) -> None:
    table = make_table()
    table.write(ROWS)
    shutil.rmtree(Path(table.path) / ".hoodie/timeline")
    _refused(CorruptTable, table.read, ".hoodie/timeline")
    _refused(CorruptTable, lambda: table.write([(3, 1, "c")]), ".hoodie/timeline")
