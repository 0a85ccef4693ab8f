"""Tables that Java Hudi archived: read as Java reads them, now, in the past and from then on. No Spark, no Java."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import hudi
import pyarrow as pa
import pytest
from live_table import LiveTable

from lakelatch.engine.read.plan import plan_read
from lakelatch.errors import InvalidRequest
from lakelatch.format.slices.table_view import TableView
from lakelatch.storage import LocalStorage
from lakelatch.timeline.actions import WRITE_ACTIONS
from lakelatch.timeline.history.history import History
from lakelatch.timeline.log.whole_timeline import WholeTimeline
from lakelatch.timeline.snapshot import Snapshot
from lakelatch.timeline.table_config import load_table_config

DATA = Path(__file__).parents[2] / "data" / "archived"
COMMITS = {"mor_1_2": 12, "mor_compacted_1_2": 14, "mor_compacted_1_1": 12, "cow_1_2": 12}
Rows = list[dict[str, Any]]


READ_BY_JAVA = json.loads((DATA / "rows.json").read_text())


def unzip(name: str, target: Path) -> str:
    with zipfile.ZipFile(DATA / f"{name}.zip") as archive:
        archive.extractall(target)
    return str(target / name)


def written(commits: int) -> list[tuple[str, str, int, int]]:
    """What commits 0 to n-1 of a table that Java wrote alone come to."""
    latest = {i: c for c in range(commits) for i in range(2 * c, 2 * c + 4)}
    return sorted(("ab"[i % 2], f"k{i}", c * 100 + i, c) for i, c in latest.items())


def read(root: str, **options: str) -> Rows:
    named = {name.replace("__", "."): value for name, value in options.items()}
    plan = plan_read(root, {"lakelatch.read.meta.columns": True, **named})
    return [row for found in plan.slices for batch in plan.read(found) for row in batch.to_pylist()]


def by_hudi_rs(root: str) -> Rows:
    batches = hudi.HudiTableBuilder.from_base_uri(root).build().read(hudi.HudiReadOptions())
    return [row for batch in batches for row in pa.record_batch(batch).to_pylist()]


def plain(rows: Rows) -> list[tuple[Any, ...]]:
    return sorted((row["part"], row["id"], row["val"], row["ts"]) for row in rows)


def items(rows: Rows) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.items()) for row in rows)


@pytest.mark.parametrize("name", sorted(COMMITS))
def test_a_table_that_java_wrote_and_archived(name: str, tmp_path: Path) -> None:
    root = unzip(name, tmp_path)
    archived = History.load(LocalStorage(root)).instants(WRITE_ACTIONS)
    active = Snapshot.load(LocalStorage(root)).completion_times()
    assert len(archived) >= 6 and not {one.requested for one in archived} & set(active)
    rows = read(root)
    assert plain(rows) == written(COMMITS[name])
    assert items(rows) == items(by_hudi_rs(root))


@pytest.mark.parametrize("name", sorted(COMMITS))
def test_its_past_is_read_or_refused_and_never_read_as_less(name: str, tmp_path: Path) -> None:
    root = unzip(name, tmp_path)
    whole = WholeTimeline.load(LocalStorage(root))
    writes = [one for one in whole.completed(WRITE_ACTIONS) if whole.metadata(one).operation_type == "UPSERT"]
    assert len(writes) == COMMITS[name]
    refused = []
    for number, instant in enumerate(writes, 1):
        try:
            assert plain(read(root, as__of__instant=instant.completion or "")) == written(number)
        except InvalidRequest as error:
            refused.append(number)
            assert "which the clean" in error.message
    assert refused == list(range(1, len(refused) + 1)) and len(refused) < len(writes)
    assert bool(refused) == bool(whole.completed(("clean",)))


@pytest.mark.parametrize("name", sorted(COMMITS))
def test_what_changed_since_an_archived_commit(name: str, tmp_path: Path) -> None:
    root = unzip(name, tmp_path)
    whole = WholeTimeline.load(LocalStorage(root))
    writes = [one for one in whole.completed(WRITE_ACTIONS) if whole.metadata(one).operation_type == "UPSERT"]
    for number, instant in enumerate(writes):
        since = read(
            root,
            hoodie__datasource__query__type="incremental",
            hoodie__datasource__read__begin__instanttime=instant.completion or "",
        )
        assert plain(since) == [row for row in written(len(writes)) if row[3] > number]


KEPT = [("a", 1, 9, "late"), ("a", 2, 16, "j6"), ("a", 3, 1, "o1-3"), *(("a", i, 2, f"o2-{i}") for i in range(4, 8))]
JAVAS = [("a", 1000 + c, 10 + c, f"j{c}") for c in range(7)]
OVER = [("b", 201, 5, "over1"), ("b", 202, 5, "over2"), ("b", 203, 5, "over3")]
BY_JAVA = {  # the rows that Java read; it shows nothing of what was overwritten in partition b, and nothing deleted
    "ours_1_2": [*KEPT, *JAVAS, ("b", 200, 6, "after"), *OVER, ("b", 300, 16, "j6")],
    "ours_compacted_1_2": [*KEPT, *JAVAS, ("b", 1, 77, "ours after"), ("b", 200, 77, "ours after"), *OVER],
}


@pytest.mark.parametrize("name", sorted(BY_JAVA))
def test_a_table_of_ours_that_java_archived(name: str, tmp_path: Path) -> None:
    root = unzip(name, tmp_path)
    rows = read(root)
    assert sorted((row["part"], row["id"], row["ts"], row["v"]) for row in rows) == BY_JAVA[name]
    theirs = items(by_hudi_rs(root))
    assert set(theirs) <= set(items(rows))
    # It cuts the slices of archived logs by their requested times, and forgets rows of groups without base files.
    assert (len(theirs) < len(rows)) == (name == "ours_1_2")


def test_a_compaction_of_it_loses_nothing(tmp_path: Path) -> None:
    root = unzip("ours_1_2", tmp_path)
    table = LiveTable(Path(root))
    before = table.read()
    assert table.compact() is not None
    assert table.agreed() == before
    table.write([(200, 50, "on")], "b")
    view = TableView.load(table.storage, load_table_config(table.storage))
    assert len(view.slices()) == 4, "rows go on in the successors of the archived overwrite"


@pytest.mark.parametrize("name", sorted(READ_BY_JAVA))
def test_what_java_replaced_clustered_undid_or_kept_before_it_archived(name: str, tmp_path: Path) -> None:
    root = unzip(name, tmp_path)
    assert History.load(LocalStorage(root)).instants(WRITE_ACTIONS)
    rows = read(root)
    assert sorted([row["part"], row["id"], row["val"]] for row in rows) == READ_BY_JAVA[name]["now"]
    assert items(rows) == items(by_hudi_rs(root))


def test_time_travel_to_archived_moments_gives_what_java_read_then(tmp_path: Path) -> None:
    root = unzip("uncleaned_1_2", tmp_path)
    past = READ_BY_JAVA["uncleaned_1_2"]["past"]
    assert min(past) < Snapshot.load(LocalStorage(root)).completed[0].requested
    for time, expected in past.items():
        assert sorted([row["part"], row["id"], row["val"]] for row in read(root, as__of__instant=time)) == expected


def test_a_savepoint_that_archivers_went_behind_is_still_there(tmp_path: Path) -> None:
    root = unzip("savepoint_1_2", tmp_path)
    whole = WholeTimeline.load(LocalStorage(root))
    first, kept, after = (one.completion or "" for one in whole.completed(WRITE_ACTIONS)[:3])
    assert plain(read(root, as__of__instant=kept)) == written(2)
    for time in (first, after):
        with pytest.raises(InvalidRequest, match="which the clean"):
            read(root, as__of__instant=time)
