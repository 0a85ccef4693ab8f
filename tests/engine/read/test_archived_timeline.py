"""Tables whose old instants were archived read as they did before: now, in the past, and from then on. No Spark."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from archiver import Archiver, remove_from_timeline
from clean_files import clean_metadata
from live_table import LiveTable, TableRows, rows_since

from lakelatch.errors import CorruptTable, InvalidRequest
from lakelatch.format.names import BaseFile, parse_data_file
from lakelatch.format.slices.table_view import TableView
from lakelatch.timegen.instant_time import to_instant, to_ms
from lakelatch.timeline.history.manifest import HISTORY_FOLDER, VERSION_PATH
from lakelatch.timeline.instant import TIMELINE_FOLDER, completed
from lakelatch.timeline.metadata import RollbackMetadata
from lakelatch.timeline.snapshot import Snapshot


def made(root: Path) -> LiveTable:
    """Upserts, a compaction, an overwrite of one partition, deletes, and logs after all of them."""
    table = LiveTable(root / "table")
    for n in range(2):
        table.write([(i, n, f"a{n}") for i in range(n, n + 3)], "a")
        table.write([(100 + i, n, f"b{n}") for i in range(n, n + 3)], "b")
    table.compact()
    table.write([(200, 5, "over"), (201, 5, "over")], "b", "insert_overwrite")
    table.write([(200, 6, "after"), (300, 6, "after")], "b")
    table.delete([(0, 9, "")], "a")
    table.write([(1, 9, "late")], "a")
    return table


def everything(table: LiveTable, times: list[str]) -> dict[str, TableRows]:
    """All reads that there are, by name."""
    found = {"now": table.read(meta=True), "optimized": table.optimized()}
    for time in ["0", *times]:
        found[f"since {time}"] = table.since(time)
        found[f"as of {time}"] = table.as_of(time)
        found[f"up to {time}"] = table.since("0", time)
    return found


def overwritten(table: LiveTable) -> list[str]:
    """Files of the partition that was overwritten, under the file ids that were replaced."""
    return [name for name in table.storage.list("b").files if "0000-0000-0000" in name]


def instants(table: LiveTable) -> list[str]:
    return sorted({instant.requested for instant in Snapshot.load(table.storage).completed})


def times(table: LiveTable) -> list[str]:
    return sorted(instant.completion or "" for instant in Snapshot.load(table.storage).completed)


def test_every_read_is_what_it_was_however_much_is_archived(tmp_path: Path) -> None:
    table = made(tmp_path)
    moments, before = times(table), everything(table, times(table))
    archiver = Archiver(table.storage)
    names = []
    for requested in instants(table)[:-1]:
        names.append(archiver.archive([requested]))
        assert everything(table, moments) == before, f"after {requested} was archived"
    archiver.merge(names)
    assert everything(table, moments) == before


def test_a_half_archived_table_reads_the_same_at_every_step(tmp_path: Path) -> None:
    table = made(tmp_path)
    before = table.read(meta=True)
    steps: list[str] = []

    def look(step: str) -> None:
        steps.append(step)
        assert table.read(meta=True) == before, step

    Archiver(table.storage, look).archive(instants(table)[:-2])
    assert {"level file", "manifest", "no version", "version", "deletion"} <= set(steps)


def test_a_compaction_of_an_archived_table_loses_nothing(tmp_path: Path) -> None:
    table = made(tmp_path)
    before = table.read()
    put_clean(table, {"b": overwritten(table)})  # hudi-rs forgets a replace commit that was archived
    Archiver(table.storage).archive(instants(table)[:-2])
    assert table.compact() is not None
    assert table.agreed() == before


def test_a_log_compaction_that_was_archived_still_holds(tmp_path: Path) -> None:
    table = LiveTable(tmp_path / "table")
    for n in range(4):
        table.write([(1, n, f"{n}"), (n, n, "own")], "a")
    log_compacted(table)
    before = table.read(meta=True)
    table.write([(50, 1, "last")], "b")
    Archiver(table.storage).archive(instants(table)[:-1])
    after = TableView.load(table.storage, table.opened.config)
    logs = [name for found in after.slices(["a"]) for name in found.log_files]
    assert len(logs) == len({name.partition("_")[0] for name in logs})  # one for each file group
    assert [row for row in table.read(meta=True) if ("part", "a") in row] == before


def log_compacted(table: LiveTable) -> None:
    assert table.compact_logs() is not None


def test_rows_go_to_the_successors_of_an_archived_replace_commit(tmp_path: Path) -> None:
    table = made(tmp_path)
    Archiver(table.storage).archive(instants(table)[:-1])
    table.write([(200, 20, "new"), (300, 20, "new")], "b")
    table.drop("a")
    table.write([(1, 30, "again")], "a")
    expected = [("a", 1, 30, "again"), ("b", 200, 20, "new"), ("b", 201, 5, "over"), ("b", 300, 20, "new")]
    assert table.read() == expected
    groups = {(found.partition, found.file_id) for found in TableView.load(table.storage, table.opened.config).slices()}
    assert len(groups) == 4 and all("0000-0000-0000" not in file_id for _, file_id in groups)


def test_an_overwrite_of_an_archived_table_takes_everything_away(tmp_path: Path) -> None:
    table = made(tmp_path)
    Archiver(table.storage).archive(instants(table)[:-1])
    table.write([(7, 1, "only")], "a", "insert_overwrite_table")
    assert table.read() == [("a", 7, 1, "only")]


def test_without_a_history_files_before_the_first_instant_count_as_hudis_readers_count_them(tmp_path: Path) -> None:
    table = LiveTable(tmp_path / "t")
    table.write([(1, 1, "first"), (2, 1, "first")], "a")
    table.write([(1, 2, "second")], "a")
    table.compact()
    before = table.read(meta=True)
    table.write([(900, 1, "last")], "c")
    remove_from_timeline(table.storage, instants(table)[:-1])
    assert set(table.read(meta=True)) > set(before)
    assert table.read(meta=True) == table.by_hudi_rs(meta=True)


def test_an_overwrite_that_nobody_remembers_is_refused(tmp_path: Path) -> None:
    table = made(tmp_path)
    remove_from_timeline(table.storage, instants(table)[:-1])
    with pytest.raises(CorruptTable, match="two live file groups"):
        table.read()


def test_a_window_that_nobody_recorded_is_refused_and_a_later_one_is_not(tmp_path: Path) -> None:
    table = made(tmp_path)
    known = instants(table)[-2:]
    start = Snapshot.load(table.storage).completion_times()[known[0]]
    remove_from_timeline(table.storage, instants(table)[:-2])
    with pytest.raises(InvalidRequest, match=r"neither on the active timeline nor in its history.*begin at"):
        table.since("0")
    assert table.since(start) == [("a", 1, 9, "late")]


def test_files_of_what_was_rolled_back_do_not_count_for_their_age(tmp_path: Path) -> None:
    table = made(tmp_path)
    view = TableView.load(table.storage, table.opened.config)
    base = next(found for found in view.slices(["a"]) if found.base_file)
    parsed = parse_data_file(base.base_file or "")
    assert isinstance(parsed, BaseFile)
    undone, at = "20200101000000000", "20200101000001000"
    name = BaseFile(parsed.file_id, parsed.write_token, undone).name
    table.storage.put(f"a/{name}", table.storage.read(base.base_path or ""))
    whole = view.whole
    assert TableView.load(table.storage, table.opened.config).whole.completion_times([undone]) == {undone: undone}
    end = max(times(table))
    content = RollbackMetadata(at, undone, "deltacommit", ()).to_avro()
    table.storage.put(completed(at, "rollback", end).path, content)
    assert TableView.load(table.storage, table.opened.config).whole.completion_times([undone]) == {}
    Archiver(table.storage).archive([at, *instants(table)[:3]])
    assert TableView.load(table.storage, table.opened.config).whole.completion_times([undone]) == {}
    assert whole.completion_times([undone]) == {undone: undone}


def put_clean(table: LiveTable, removed: dict[str, list[str]]) -> str:
    """Removes files as a cleaner does, and says so on the timeline."""
    time = to_instant(to_ms(max(times(table))) + 1)
    paths = [f"{partition}/{name}" for partition, names in removed.items() for name in names]
    for path in paths:
        table.storage.delete(path)
    table.storage.put(completed(time, "clean", to_instant(to_ms(time) + 1)).path, clean_metadata(time, paths))
    return time


@pytest.mark.parametrize("archived", [False, True])
def test_time_travel_to_what_was_cleaned_is_refused_by_the_name_of_the_file(tmp_path: Path, archived: bool) -> None:
    table = LiveTable(tmp_path / "table")
    first = table.write([(1, 1, "one")], "a").completion
    second = table.write([(2, 1, "two")], "b").completion
    table.compact()
    third = table.write([(3, 1, "three")], "b").completion
    group = TableView.load(table.storage, table.opened.config, first).slices(["a"])[0]
    at_second, now = table.as_of(second), table.read()
    table.write([(1, 2, "newer")], "a")
    table.compact()
    clean = put_clean(table, {"a": list(group.log_files)})
    if archived:
        table.write([(9, 9, "last")], "b")
        Archiver(table.storage).archive([*instants(table)[:-1]])
    assert at_second == [("a", 1, 1, "one"), ("b", 2, 1, "two")]
    for read in (table.as_of, lambda time: table.since("0", time)):
        with pytest.raises(InvalidRequest, match=f"needs a/{group.log_files[0]}, which the clean {clean}"):
            read(first)
    assert table.as_of(third) == now


def test_a_partition_that_a_clean_emptied_is_missed_by_time_travel(tmp_path: Path) -> None:
    table = LiveTable(tmp_path / "table")
    first = table.write([(1, 1, "one")], "a").completion
    table.write([(2, 1, "two")], "b")
    logs = TableView.load(table.storage, table.opened.config).slices(["a"])[0].log_files
    table.drop("a")
    put_clean(table, {"a": list(logs)})
    shutil.rmtree(tmp_path / "table" / "a")
    assert table.read() == [("b", 2, 1, "two")]
    with pytest.raises(InvalidRequest, match="needs a/"):
        table.as_of(first)


def lose_level_file(table: LiveTable) -> str:
    name = Archiver(table.storage).files_now()[0]
    table.storage.delete(f"{HISTORY_FOLDER}/{name}")
    return name


def cut_level_file(table: LiveTable) -> str:
    name = Archiver(table.storage).files_now()[0]
    path = f"{HISTORY_FOLDER}/{name}"
    table.storage.put(path, table.storage.read(path)[:100])
    return name


def lose_manifest(table: LiveTable) -> str:
    version = Archiver(table.storage).version()
    table.storage.delete(f"{HISTORY_FOLDER}/manifest_{version}")
    return f"manifest_{version}"


def lose_manifest_and_version(table: LiveTable) -> str:
    lose_manifest(table)
    table.storage.delete(VERSION_PATH)
    return "_version_"


@pytest.mark.parametrize("damage", [lose_level_file, cut_level_file, lose_manifest, lose_manifest_and_version])
def test_a_damaged_history_is_refused_by_name_and_never_read_as_less(
    tmp_path: Path, damage: Callable[[LiveTable], str]
) -> None:
    table = made(tmp_path)
    Archiver(table.storage).archive(instants(table)[:-1])
    name = damage(table)
    with pytest.raises(CorruptTable, match=name):
        table.read()
    with pytest.raises(CorruptTable, match=name):
        table.compact()


def test_hudi_rs_reads_the_same_from_an_archived_table_that_was_compacted(tmp_path: Path) -> None:
    table = made(tmp_path)
    table.compact()
    put_clean(table, {"b": overwritten(table)})
    table.write([(1, 50, "newest")], "a")
    begin = times(table)[-2]
    Archiver(table.storage).archive(instants(table)[:-2])
    ours = table.read(meta=True)
    assert ours == table.by_hudi_rs(meta=True)
    assert table.since(begin) == [("a", 1, 50, "newest")]
    assert len(table.by_hudi_rs(rows_since(begin))) == 1


def test_nothing_is_listed_besides_where_there_is_no_history(tmp_path: Path) -> None:
    table = made(tmp_path)
    assert not Snapshot.load(table.storage).has_history
    (tmp_path / "table" / TIMELINE_FOLDER / "history").mkdir()
    assert Snapshot.load(table.storage).has_history and table.agreed()
