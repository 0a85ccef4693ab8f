"""Two writers announce files of one file group at once: whoever is paused wherever, exactly the later one learns it."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest
from early_writes import GROUP, Writer
from one_table import Table

from lakelatch.errors import LockTimeout, WriteConflict
from lakelatch.locks.contract import file_group_key
from lakelatch.testing.faults.storage import FaultyStorage
from lakelatch.transactions.markers.files import MARKERS_FOLDER

SAME_BUCKET = "00000003-5a1c-44b5-93a1-4fa8f12f3d2b-0"
STRATEGIES = ["simple_direct", "transactional_direct"]
CALLS = 14  # more than either makes, so that it also runs after the other one has ended


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("paused", ["early", "late"])
@pytest.mark.parametrize("call", range(CALLS))
def test_whoever_is_paused_wherever_exactly_the_later_one_learns(
    table: Table, strategy: str, paused: str, call: int
) -> None:
    """One writes its file while the other stands before one of its calls to the storage; a lease may make it wait."""
    early, late = Writer.begin(table, strategy), Writer.begin(table, strategy)
    one, other = (early, late) if paused == "early" else (late, early)
    ended: dict[str, WriteConflict] = {}
    calls: list[str] = []

    def write(writer: Writer, storage: FaultyStorage | None = None) -> None:
        try:
            writer.write(storage=storage)
        except WriteConflict as conflict:
            ended[writer.instant] = conflict

    thread = threading.Thread(target=write, args=(other,))

    def before(operation: str, path: str) -> None:
        calls.append(path)
        if len(calls) == call + 1:
            thread.start()
            if strategy == "simple_direct":
                thread.join(60)

    write(one, FaultyStorage(table.storage, before=before))
    if not calls[call:]:
        thread.start()
    thread.join(60)
    assert not thread.is_alive() and len(calls) > 5
    assert late.told and not early.told and early.instant not in ended
    assert all(conflict.winner == early.instant for conflict in ended.values())
    with pytest.raises(WriteConflict):
        late.write("00000009-other")


@pytest.mark.parametrize("paused", ["early", "late"])
@pytest.mark.parametrize("group", [GROUP, SAME_BUCKET], ids=["the file group", "its bucket"])
def test_nobody_looks_at_a_bucket_between_the_look_and_the_marker_of_another(
    table: Table, paused: str, group: str
) -> None:
    """The lease is of what conflicts compare: two writers may have different file ids for one bucket."""
    early, late = Writer.begin(table, "transactional_direct"), Writer.begin(table, "transactional_direct")
    one, other = (early, late) if paused == "early" else (late, early)
    refused: list[str] = []

    def before(operation: str, path: str) -> None:
        if operation == "put_if_absent" and path.startswith(f"{MARKERS_FOLDER}/{one.instant}/p/"):
            detection = other.transaction.early_detection()
            assert detection is not None
            with replace(detection, lock_timeout_s=0.05).open() as strategy, pytest.raises(LockTimeout):
                strategy.announce("p", other.name(group))
            refused.append(path)

    one.write(storage=FaultyStorage(table.storage, before=before))
    assert len(refused) == 1 and not any(writer.told for writer in (early, late))
    if other is late:
        with pytest.raises(WriteConflict):
            other.write(group)
    else:
        other.write(group)
    assert late.told and not early.told


@pytest.mark.parametrize("second", ["early", "late"])
def test_a_lease_that_was_lost_is_made_up_for_by_a_second_look(table: Table, second: str) -> None:
    """The first one has looked and not announced when its lease is taken from it, and the other one does both."""
    early, late = Writer.begin(table, "transactional_direct"), Writer.begin(table, "transactional_direct")
    one, other = (late, early) if second == "early" else (early, late)
    provider = table.provider()

    def before(operation: str, path: str) -> None:
        if operation == "put_if_absent" and path.startswith(f"{MARKERS_FOLDER}/{one.instant}/p/"):
            assert provider.break_(file_group_key("p", "00000003"))
            other.write()

    storage = FaultyStorage(table.storage, before=before)
    if one is late:
        with pytest.raises(WriteConflict):
            one.write(storage=storage)
    else:
        one.write(storage=storage)
    assert late.told and not early.told
