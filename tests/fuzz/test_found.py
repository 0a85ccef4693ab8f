"""What the fuzzing has found, each in one small case."""

from __future__ import annotations

import pyarrow as pa
import pytest
from fuzzed_table import START_MS, Made, Place, row, unchecksummed
from memory_tables import PARTITIONED, PLAIN, MemoryTable, manager_of
from uses import plain

from lakelatch.engine.read.plan import plan_read
from lakelatch.errors import CorruptTable
from lakelatch.format.avro import with_meta_columns
from lakelatch.format.log.blocks import encode_log_file
from lakelatch.format.names import NO_TASK, token_within
from lakelatch.locks.contract import LockScope
from lakelatch.locks.object_store.provider import HudiStorageLockProvider
from lakelatch.storage.checksums import checksummed_json, open_checksummed_json
from lakelatch.timeline.properties_file import PROPERTIES_PATH
from lakelatch.timeline.snapshot import Snapshot
from lakelatch.transactions.base.settings import MarkerServerSettings
from lakelatch.transactions.markers.files import MARKERS_FOLDER

_TOKEN = token_within("p", NO_TASK)
FIRST_LOG = f"p/.00000000-0000-0000-0000-000000000000-0_20260921151320000.log.1_{_TOKEN}"


def _table(place: Place) -> MemoryTable:
    return MemoryTable(place.storage, place.system, PLAIN, PARTITIONED)


def _path(made: Made, *marks: str) -> str:
    return next(path for path in sorted(made.files) if all(mark in path for mark in marks))


def test_an_emptied_log_file_is_not_read_as_no_rows(made: Made) -> None:
    last = _path(made, "q/", "20260921151320035.log.1")
    with made.place() as place:
        manager_of(place.storage, place.system).recover()  # shows the commit that names it
        place.storage.put(last, b"")
        with pytest.raises(CorruptTable, match="says that it is not"):
            plain(place)


def test_log_files_that_were_exchanged_are_not_believed(made: Made) -> None:
    """Each is a whole log file, and of the same write."""
    with Made({}, made.now_ms).place() as place:
        table = _table(place)
        written = table.write(row(1, 1, "a"), row(2, 1, "b"), row(3, 1, "c"), row(4, 1, "d"))
        one, two = (f"p/{name}" for name in written.files)
        data = place.storage.read(one)
        place.storage.put(one, place.storage.read(two))
        place.storage.put(two, data)
        with pytest.raises(CorruptTable, match="of another file"):
            plain(place)


def test_base_files_of_one_file_id_that_were_exchanged_are_not_believed() -> None:
    """Buckets have the same file ids in each partition."""
    with Made({}, START_MS).place() as place:
        table = _table(place)
        table.write(row(1, 1, "a", "p"), row(1, 1, "b", "q"))
        table.compact()
        one, two = sorted(path for path in place.storage.walk("") if path.endswith(".parquet"))
        assert one.rpartition("/")[2].partition("_")[0] == two.rpartition("/")[2].partition("_")[0]
        data = place.storage.read(one)
        place.storage.put(one, place.storage.read(two))
        place.storage.put(two, data)
        with pytest.raises(CorruptTable, match="of another file"):
            plain(place)


@pytest.mark.parametrize(
    "name, value", [("num.buckets=2", "num.buckets=3"), ("ordering.fields=ts", "ordering.fields=v")]
)
def test_settings_that_would_change_rows_are_refused(made: Made, name: str, value: str) -> None:
    with made.place() as place:
        changed = made.files[PROPERTIES_PATH].replace(name.encode(), value.encode())
        assert changed != made.files[PROPERTIES_PATH]
        place.storage.put(PROPERTIES_PATH, changed)
        for call in (lambda: plan_read(place.storage.uri), lambda: _table(place)):
            with pytest.raises(CorruptTable, match=r"lakelatch\.table\.checksum"):
                call()


def test_a_damaged_slot_aborts_nobody(made: Made) -> None:
    """Its bytes are JSON of the right form, and say that another instant was rolled back."""
    path = ".hoodie/.lakelatch/log/00000000000000000016.json"
    with made.place() as place:
        values = open_checksummed_json(made.files[path])
        assert values is not None and values["target"]
        place.storage.put(path, made.files[path].replace(values["target"].encode(), made.live.encode()))
        with pytest.raises(CorruptTable, match="slot 16 of the commit log is damaged"):
            place_log = manager_of(place.storage, place.system).context.log
            place_log.events_after(0, place_log.tail())


def test_content_beside_the_log_is_not_shown_if_it_is_damaged(made: Made) -> None:
    path = _path(made, "/content/")
    with made.place() as place:
        for data in (b"", made.files[path][:-1], made.files[path].replace(b"lakelatch-crc32", b"lakelatch-crc33")):
            place.storage.put(path, data)
            before = Snapshot.load(place.storage)
            with pytest.raises(CorruptTable, match="slot 21 of the commit log says"):
                manager_of(place.storage, place.system).recover()
            assert Snapshot.load(place.storage) == before


def test_a_damaged_entry_of_the_batch_register_ends_no_other_write(made: Made) -> None:
    path = _path(made, "/batches/")
    with made.place() as place:
        values = open_checksummed_json(made.files[path])
        assert values is not None
        damaged = made.files[path].replace(values["instant"].encode(), made.live.encode())
        for data in (damaged, checksummed_json({**values, "application": "another"})):
            place.storage.put(path, data)
            with pytest.raises(CorruptTable, match="which instant has tried the batch"):
                _table(place).write_batch(row(40, 1, "batch"))
        assert place.storage.exists(f".hoodie/timeline/{made.live}.deltacommit.inflight")


def test_a_rollback_removes_no_file_of_another_instant(made: Made) -> None:
    """A digit of a line in a MARKERS file has changed, so that it names a file that was committed."""
    path = f"{MARKERS_FOLDER}/{made.live}/MARKERS0"
    with made.place() as place:
        place.storage.put(path, made.files[path] + f"{FIRST_LOG}.marker.CREATE\n".encode())
        place.system.advance(3600)  # the writer is dead now
        assert made.live in manager_of(place.storage, place.system).recover()
        assert place.storage.read(FIRST_LOG) == made.files[FIRST_LOG]


@pytest.mark.parametrize("more", [b"p/half", b"\xff.marker.CREATE\n", f"{FIRST_LOG}.marker.CREATE\n".encode()])
def test_a_commit_whose_markers_are_damaged_is_rolled_back(made: Made, more: bytes) -> None:
    with made.place() as place:
        manager = manager_of(place.storage, place.system)
        manager.recover()
        before = plain(place)
        manager = _table(place).manager(marker_server=MarkerServerSettings())
        writing = _table(place).begin(manager=manager)
        writing.put_rows(row(30, 1, "lost"))
        place.storage.put(f"{MARKERS_FOLDER}/{writing.instant}/MARKERS0", more)
        with pytest.raises(CorruptTable, match="MARKERS0 is no list of markers"):
            writing.commit()
        assert plain(place) == before
        assert all(writing.instant != one.requested for one in Snapshot.load(place.storage).pending)


def test_rows_of_another_writer_without_a_key_are_corrupt(made: Made) -> None:
    rows = pa.Table.from_pylist([{"id": 1, "ts": 1, "v": "x"}], schema=with_meta_columns(PLAIN))
    with Made(unchecksummed(made.files), made.now_ms).place() as place:
        place.storage.put(FIRST_LOG, encode_log_file("20260921151320000", _table(place).opened.avro_schema, rows, None))
        options = {"as.of.instant": "20260921151320001"}
        with pytest.raises(CorruptTable, match="rows without a record key"):
            plan = plan_read(place.storage.uri, options)
            list(plan.read(plan.slices[0]))


@pytest.mark.parametrize("until", [10**400, -(10**400), 10**30])
def test_the_time_of_a_lock_of_hudi_may_be_any_number(until: int) -> None:
    with Made({}, 1_790_000_000_000).place() as place:
        text = f'{{"expired": false, "validUntil": {until}, "owner": "a"}}'
        place.storage.put(".hoodie/.locks/table_lock.json", text.encode())
        provider = HudiStorageLockProvider(LockScope(place.storage.uri, {}))
        held = [holder.owner for holder in provider.holders()]
        provider.close()
        assert held == ([] if until < 0 else ["a"])
