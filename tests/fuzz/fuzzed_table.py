"""Two tables with every kind of file that stands below `.hoodie`, and copies of them to be damaged."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import count

from memory_tables import GROUPED, PARTITIONED, PLAIN, WIDE, MemoryTable

from lakelatch.errors import Unavailable
from lakelatch.failpoints import active
from lakelatch.format import file_groups as file_ids
from lakelatch.storage import MemoryStorage
from lakelatch.storage import memory as memory_module
from lakelatch.storage.checksums import strip_checksum
from lakelatch.testing.clock import ManualSystem
from lakelatch.timeline.history import named_files
from lakelatch.timeline.log import commit_log
from lakelatch.timeline.properties_file import PROPERTIES_PATH
from lakelatch.transactions.conflicts.contract import Conflict, OtherWrite
from lakelatch.transactions.conflicts.report import Work, record_loss, write_conflict
from lakelatch.transactions.early.notes import mark_aborted, note_work
from lakelatch.transactions.markers.files import marker_of

START_MS = 1_790_000_000_000
_numbers = count()


class Made:
    """Files by path; `live` is an instant whose writer is at work. Its text is short, as hypothesis prints it."""

    def __init__(self, files: Mapping[str, bytes], now_ms: int, live: str = "") -> None:
        self.files = files
        self.now_ms = now_ms
        self.live = live

    def __repr__(self) -> str:
        return "made"

    def place(self) -> Place:
        """A copy of the table, on a machine of its own."""
        return Place(self)


class Place:
    """One copy. Use it in a `with`, so that nothing of it stays in memory."""

    def __init__(self, made: Made) -> None:
        self.made = made
        self.system = ManualSystem(made.now_ms)
        self.storage = MemoryStorage(f"fuzz-{next(_numbers)}", self.system)

    def __enter__(self) -> Place:
        for path, data in self.made.files.items():
            self.storage.put(path, data)
        self.system.advance(3600)  # the live one is the only one that beats
        if self.made.live:
            path = f".hoodie/.heartbeat/{self.made.live}"
            self.storage.put(path, self.made.files[path])
        return self

    def __exit__(self, *_: object) -> None:
        memory_module._places.pop(self.storage.uri.removeprefix("memory://"), None)
        file_ids._place.cache_clear()
        named_files.forget_all()


def make_all() -> Made:
    """Everything that can be in a table, in the order in which it comes to be there."""
    with Place(Made({}, START_MS)) as place:
        table = MemoryTable(place.storage, place.system, PLAIN, PARTITIONED)
        table.write(row(1, 1, "a"), row(2, 1, "b"), row(3, 1, "c"))
        table.write(row(4, 1, "d", "q"))
        table.write(row(2, 2, "gone"), operation="delete")
        table.write(row(9, 1, "dropped", "r"))
        table.compact()
        table.drop("r")
        table.write(row(10, 1, "again", "r"))
        table.write(row(1, 3, "A"), row(5, 3, "e"), block_format="avro")
        table.write(row(3, 3, "gone"), operation="delete")
        table.compact_logs()
        table.write_batch(row(40, 1, "batch"))
        _lose(table)
        table.begin().put_rows(row(8, 8, "given up")).abort()
        with active("rollback.after_plan=raise"):
            writing = table.begin().put_rows(row(8, 8, "half rolled back", "q"))
            _fails(writing.abort)
        for time in (1, 2):
            table.write(row(6, time, "f", "q"), row(7, time, "g", "q"))
        assert table.plan_logs() is not None
        assert table.plan() is not None
        _leave_behind(table)
        live = _leave_alive(table)
        limit, commit_log.INLINE_LIMIT_BYTES = commit_log.INLINE_LIMIT_BYTES, 100
        last = table.write(row(11, 1, "beside the log", "q"))
        commit_log.INLINE_LIMIT_BYTES = limit
        files = _files(place.storage)
        del files[f".hoodie/timeline/{last.instant}_{last.completion}.deltacommit"]  # as if its writer had died
        return Made(files, place.system.realtime_ms(), live)


def make_grouped() -> Made:
    """A table with column groups: partial rows, deletes of groups, and what compactions keep of them."""
    with Place(Made({}, START_MS)) as place:
        table = MemoryTable(place.storage, place.system, WIDE, GROUPED)
        table.write({"id": 1, "dt": 1, "d": "x", "e": 1}, {"id": 2, "dt": 1, "d": "y", "e": 2})
        table.write({"id": 1, "at": 1, "a": "z"})
        table.write({"id": 2, "dt": 5}, operation="delete")
        table.compact()
        table.write({"id": 2, "at": 2, "a": "w"})
        table.write({"id": 1, "ts": 2, "v": "v"})
        table.compact_logs()
        table.write({"id": 3, "dt": 1, "d": "new", "e": 3})
        assert table.plan() is not None
        return Made(_files(place.storage), place.system.realtime_ms())


def unchecksummed(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """The same files as another writer leaves them: without our checksums, but for what only we have."""
    found = {
        path: data if path.startswith(".hoodie/.lakelatch/") else strip_checksum(data) for path, data in files.items()
    }
    lines = found[PROPERTIES_PATH].splitlines(keepends=True)
    found[PROPERTIES_PATH] = b"".join(line for line in lines if not line.startswith(b"lakelatch.table.checksum"))
    return found


def row(key: int, time: int, value: str, partition: str = "p") -> dict[str, object]:
    return {"id": key, "ts": time, "v": value, "part": partition}


def _lose(table: MemoryTable) -> None:
    """An entry of the list of conflicts."""
    winner = OtherWrite("20260101000000001", "deltacommit", "", frozenset({("p", "a")}), "other")
    lost = Conflict(winner, frozenset({("p", "a")}))
    record_loss(table.storage, "fuzz", write_conflict("20260101000000000", lost, 1.5, Work(1, 2, 3), early=True), {})


def _leave_behind(table: MemoryTable) -> None:
    """A write whose process died, with its markers, another write in its notes, and all that its tasks have said."""
    writing = table.begin().put_rows(row(12, 1, "dead"))
    instant = writing.instant
    groups = frozenset({("p", "a")})
    winner = OtherWrite("20260101000000001", "deltacommit", "", groups, "other", inflight=True)
    mark_aborted(table.storage, instant, Conflict(winner, groups))
    note_work(table.storage, instant, "0-0-0", Work(1, 2, 3))
    table.storage.put(f".hoodie/.lakelatch/beats/{instant}/0-0-0", b"")
    writing.die()


def _leave_alive(table: MemoryTable) -> str:
    """A write that is at work, with the markers of a server."""
    writing = table.begin()
    instant = writing.instant
    folder = f".hoodie/.temp/{instant}"
    names = [f".00000001-0000-0000-0000-000000000000-0_{instant}.log.{version}_0-0-0" for version in (1, 2)]
    table.storage.put(f"{folder}/MARKERS.type", b"TIMELINE_SERVER_BASED")
    table.storage.put(f"{folder}/MARKERS0", "".join(f"{marker_of('q', name)}\n" for name in names).encode())
    writing.die()
    return instant


def _fails(call: Callable[[], object]) -> None:
    try:
        call()
    except Unavailable:
        return
    raise AssertionError("the failpoint was passed")


def _files(storage: MemoryStorage) -> dict[str, bytes]:
    return {path: storage.read(path) for path in storage.walk("")}
