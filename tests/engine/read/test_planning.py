"""What it takes to plan a read in an object store, exactly; and that a plan lacks nothing, whatever comes in between.

The numbers are those of docs/design/0023-planning.md.
"""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from archiver import Archiver
from live_table import LiveTable, TableRows, rows_of, window
from storages.counting import CountingStorage

from lakelatch.engine.read.plan import plan_read, read_schema
from lakelatch.errors import Unavailable
from lakelatch.storage.contract import Listing, Storage
from lakelatch.storage.local import LocalStorage
from lakelatch.timeline.instant import TIMELINE_FOLDER
from lakelatch.timeline.snapshot import Snapshot

JAVA = Path(__file__).parents[2] / "data" / "java"
SNAPSHOT = [
    "  1 read           .hoodie/hoodie.properties",
    "  1 list           .hoodie/timeline",
    "  2 read           .hoodie/timeline/{last commit}",
    "  2 walk           ",
    "  3 list           .hoodie/timeline",
]


class FarStorage(CountingStorage):
    """Hides names from the next listing of a folder, as a listing does that they appeared behind."""

    hidden: frozenset[str] = frozenset()

    def list(self, folder: str) -> Listing:
        found = super().list(folder)
        if folder == TIMELINE_FOLDER and self.hidden:
            found = Listing(tuple(name for name in found.files if name not in self.hidden), found.folders)
            self.hidden = frozenset()
        return found


@pytest.fixture
def far(request: pytest.FixtureRequest) -> FarStorage:
    return FarStorage(request.node.name)


def lift(storage: Storage, far: FarStorage) -> None:
    """Makes the object store what the folder is."""
    there = set(storage.walk(""))
    for path in set(far.walk("")) - there:
        far.delete(path)
    for path in there:
        far.put(path, storage.read(path))


def read(far: FarStorage, options: dict[str, object] | None = None, requests: int | None = None) -> TableRows:
    far.forget()
    plan = plan_read(far.uri, options)
    assert requests is None or len(far.calls) == requests, far.story()
    return rows_of(plan)


def check_asks(far: FarStorage, requests: int, steps: int, options: dict[str, object] | None = None) -> None:
    far.forget()
    plan_read(far.uri, options)
    assert (len(far.calls), far.steps) == (requests, steps), far.story()


def test_a_snapshot(table: LiveTable, far: FarStorage) -> None:
    for partition in ("a", "b", "c"):
        table.write([(1, 1, "v")], partition)
    lift(table.storage, far)
    check_asks(far, 5, 3)  # of each commit the columns are read once a process
    last = Snapshot.load(table.storage).completed[-1].file_name
    assert far.story().splitlines() == [line.replace("{last commit}", last) for line in SNAPSHOT]
    check_asks(far, 4, 3)
    table.compact()
    lift(table.storage, far)
    check_asks(far, 4, 3)
    check_asks(far, 4, 3, {"hoodie.datasource.query.type": "read_optimized"})


def test_a_snapshot_without_partitions(tmp_path: Path, far: FarStorage) -> None:
    table = LiveTable(tmp_path / "t", partitioned=False)
    table.write([(1, 1, "v")], "")
    lift(table.storage, far)
    check_asks(far, 5, 3)


def test_a_snapshot_of_more_than_one_answer_holds(table: LiveTable, far: FarStorage) -> None:
    for partition in ("a", "b", "c"):
        table.write([(1, 1, "v")], partition)
    lift(table.storage, far)
    far.listed_at_once = 10
    check_asks(far, 9, 5)
    assert [call.path for call in far.calls if call.step == 4] == ["a", "b", "c"]


def test_a_table_of_java(tmp_path: Path, far: FarStorage) -> None:
    """Its columns are in its last commit, of which the one listing of the timeline tells."""
    with zipfile.ZipFile(JAVA / "mor_compacted.zip") as archive:
        archive.extractall(tmp_path)
    (root,) = tmp_path.iterdir()
    lift(LocalStorage(str(root)), far)
    check_asks(far, 7, 5)
    assert sum(call.path == TIMELINE_FOLDER for call in far.calls) == 2


def test_an_incremental_read(table: LiveTable, far: FarStorage) -> None:
    first = table.write([(1, 1, "v")], "a")
    for partition in ("a", "b"):
        table.write([(2, 1, "v")], partition)
    lift(table.storage, far)
    check_asks(far, 8, 5, window(first.completion))
    assert [call.path for call in far.calls if call.step == 4] == ["a", "b"]


def test_time_travel(table: LiveTable, far: FarStorage) -> None:
    first = table.write([(1, 1, "v")], "a")
    table.write([(1, 2, "w")], "a")
    lift(table.storage, far)
    check_asks(far, 5, 3, {"as.of.instant": first.completion})


def test_a_replace_commit_is_read_once_a_process(table: LiveTable, far: FarStorage) -> None:
    table.write([(1, 1, "v")], "a")
    table.drop("a")
    table.write([(2, 1, "v")], "a")
    lift(table.storage, far)
    check_asks(far, 6, 4)
    check_asks(far, 4, 3)


def test_the_columns_alone_take_no_plan(table: LiveTable, far: FarStorage) -> None:
    """`format("lakelatch")` asks for them once, and plans when it is executed."""
    table.write([(1, 1, "v")], "a")
    lift(table.storage, far)
    far.forget()
    assert read_schema(far.uri, {"columns": "id,v"}).names == ["id", "v"]
    (last,) = Snapshot.load(table.storage).completed
    assert [call.path for call in far.calls] == [".hoodie/hoodie.properties", TIMELINE_FOLDER, last.path], far.story()


# -- what comes in between --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", [("walk", ""), ("list", TIMELINE_FOLDER)], ids=["before the walk", "at once"])
def test_a_commit_in_between_is_left_out_whole_and_costs_nothing(
    table: LiveTable, far: FarStorage, step: tuple[str, str]
) -> None:
    table.write([(1, 1, "before")], "a")
    lift(table.storage, far)
    table.write([(1, 2, "after")], "a")
    table.write([(9, 2, "after")], "b")
    before = [("a", 1, 1, "before")]
    after = [("a", 1, 2, "after"), ("b", 9, 2, "after")]

    def come() -> None:
        for path in table.storage.walk(""):
            far.put(path, table.storage.read(path))

    far.before(*step, come)
    far.forget()
    plan = plan_read(far.uri)
    assert rows_of(plan) == (before if step[0] == "walk" else after)
    assert [call.path for call in far.calls if call.operation == "list"] == [TIMELINE_FOLDER] * 2, "nothing again"


def test_a_listing_that_lacks_an_older_commit_is_not_believed(table: LiveTable, far: FarStorage) -> None:
    table.write([(1, 1, "a")], "a")
    table.write([(2, 1, "b")], "b")
    lift(table.storage, far)
    first, last = sorted(Snapshot.load(table.storage).completed, key=lambda one: one.completion or "")
    far.hidden = frozenset({first.file_name})
    assert read(far, requests=5 + 4) == [("a", 1, 1, "a"), ("b", 2, 1, "b")]
    far.hidden = frozenset({last.file_name})  # what is left out is the youngest one: the moment before it
    assert read(far, requests=5) == [("a", 1, 1, "a")]
    far.hidden = frozenset({last.file_name})
    assert read(far, {"as.of.instant": last.completion}) == [("a", 1, 1, "a"), ("b", 2, 1, "b")]


def test_an_incremental_read_does_not_step_over_a_commit_that_its_listing_lacked(
    table: LiveTable, far: FarStorage
) -> None:
    begin = table.write([(0, 1, "z")], "a").completion
    table.write([(1, 1, "a")], "a")
    table.write([(2, 1, "b")], "b")
    lift(table.storage, far)
    far.hidden = frozenset({Snapshot.load(table.storage).completed[1].file_name})
    assert read(far, window(begin)) == [("a", 1, 1, "a"), ("b", 2, 1, "b")]


def test_a_commit_that_is_taken_back_in_between_leaves_no_half(table: LiveTable, far: FarStorage) -> None:
    """Its completed file goes before its data files, so the last listing lacks it."""
    table.write([(1, 1, "a")], "a")
    table.write([(2, 1, "b")], "a")
    lift(table.storage, far)
    undone = max(Snapshot.load(table.storage).completed, key=lambda one: one.completion or "")

    def take_back() -> None:
        far.delete(undone.path)
        for path in [path for path in far.walk("a") if undone.requested in path]:
            far.delete(path)

    far.before("walk", "", take_back)
    assert read(far) == [("a", 1, 1, "a")]


@pytest.mark.parametrize("had_history", [False, True])
def test_what_is_archived_in_between_is_still_there(table: LiveTable, far: FarStorage, had_history: bool) -> None:
    writes = [table.write([(key, 1, "v")], "a") for key in (1, 2, 3)]
    if had_history:
        Archiver(table.storage).archive([writes[0].instant])
    lift(table.storage, far)

    def archive() -> None:
        Archiver(far).archive([one.instant for one in writes[had_history:2]])

    far.before("walk", "", archive)
    assert read(far) == [("a", key, 1, "v") for key in (1, 2, 3)]


def test_a_table_on_which_no_look_holds_is_unavailable(table: LiveTable, far: FarStorage) -> None:
    table.write([(1, 1, "v")], "a")
    lift(table.storage, far)
    number = iter(range(10_000))

    def clean() -> None:
        far.put(f"{TIMELINE_FOLDER}/2024010100000{next(number):04d}.clean.requested", b"")
        far.before("walk", "", clean)

    far.before("walk", "", clean)
    with pytest.raises(Unavailable, match="was cleaned during each of 20 tries"):
        read(far)


@pytest.mark.parametrize("names", [[], ["b"], ["b", "c", "d"]])
def test_every_plan_is_the_same_whatever_the_storage_shows_at_once(
    table: LiveTable, far: FarStorage, names: Sequence[str]
) -> None:
    for number, partition in enumerate(["a", *names]):
        table.write([(number, 1, "v"), (number + 10, 1, "w")], partition)
    lift(table.storage, far)
    plans: list[Callable[[], object]] = [lambda: plan_read(far.uri).slices, lambda: plan_read(str(table.root)).slices]
    expected = plans[1]()
    assert plans[0]() == expected
    far.listed_at_once = 1
    assert plans[0]() == expected
