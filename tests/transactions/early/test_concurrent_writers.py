"""Which writes early detection takes for concurrent, in corners that few tables have."""

from __future__ import annotations

import pytest
from bare_table import commit, write
from early_writes import GROUP, Writer, early_manager
from one_table import Table

from lakelatch.errors import WriteConflict
from lakelatch.heartbeat.contract import heartbeat_key, heartbeat_path
from lakelatch.locks.in_process import InProcessLockProvider
from lakelatch.testing.faults.storage import FaultyStorage
from lakelatch.timeline.instant import TIMELINE_FOLDER
from lakelatch.timeline.log.events import LOG_FOLDER
from lakelatch.transactions.base.settings import EarlySettings
from lakelatch.transactions.markers.direct import Markers

SECOND = "20990101120000"  # an instant of early Hudi's, and the beginning of others


def place_pending(table: Table, instant: str, group: str = GROUP) -> None:
    """A write under way in another engine, with a marker in the partition `p`."""
    for suffix in ("requested", "inflight"):
        table.storage.put(f"{TIMELINE_FOLDER}/{instant}.deltacommit.{suffix}", b"")
    place_marker(table, instant, group)


def place_marker(table: Table, instant: str, group: str = GROUP) -> None:
    table.storage.put(heartbeat_path(instant), b"")
    table.storage.put(Markers(table.storage, instant).path_of("p", f".{group}_{instant}.log.1_0-0-0"), b"")


@pytest.mark.parametrize(("instant", "is_earlier"), [("20200101120000", True), (SECOND, False)])
def test_an_instant_of_early_hudi_is_the_end_of_its_second(table: Table, instant: str, is_earlier: bool) -> None:
    place_pending(table, f"{SECOND}500", "00000009-other")
    writer = Writer.begin(table)  # in the same second as the later one, because the timeline is there already
    assert writer.instant.startswith(SECOND)
    place_pending(table, instant)
    if is_earlier:
        with pytest.raises(WriteConflict, match=instant):
            writer.write()
    else:
        assert writer.commit(writer.write()).instant == writer.instant


def test_files_of_another_instant_in_the_same_second_are_not_its_own(table: Table) -> None:
    """The short one has vanished from the timeline; a longer one begins with the same digits."""
    place_pending(table, f"{SECOND}500", "00000009-other")
    place_marker(table, "20200101120000")
    table.storage.put(f"{TIMELINE_FOLDER}/20200101120000123.deltacommit.requested", b"")
    writer = Writer.begin(table)
    assert writer.commit(writer.write()).instant == writer.instant


def test_a_compaction_that_has_completed_is_not_concurrent_though_its_markers_are_left(table: Table) -> None:
    manager = early_manager(table)
    plan = manager.schedule(lambda folder: b"plan", "compaction")
    assert plan is not None
    execution = manager.execute(plan, "compaction")
    writer = Writer.begin(table)
    commit(execution)
    place_marker(table, plan)
    assert writer.commit(writer.write()).instant == writer.instant


def test_a_look_at_a_log_that_has_moved_on_is_left_to_the_commit(table: Table) -> None:
    """A slot is removed between the look at the tail and the reading."""
    writer = Writer.begin(table, check_commits=True)
    slots = set(table.storage.walk(LOG_FOLDER))
    for _ in range(3):
        write(table.manager(), "elsewhere")
    removed: list[str] = []

    def before(operation: str, path: str) -> None:
        if operation == "read" and path.startswith(LOG_FOLDER) and path not in slots and not removed:
            removed.append(min(set(table.storage.walk(LOG_FOLDER)) - slots))
            table.storage.delete(removed[0])

    assert writer.write(storage=FaultyStorage(table.storage, before=before)).file_id == GROUP
    assert removed


@pytest.mark.parametrize("holds", [True, False])
def test_a_concurrent_writer_whose_heartbeat_is_a_lease_lives_as_long_as_that(table: Table, holds: bool) -> None:
    """However old its file is. Tasks are other processes, whom locks of one process tell nothing: there it lives."""
    provider = table.provider()
    manager = table.manager(provider=provider, early=EarlySettings(), heartbeat_type="lease")
    early = Writer(table, manager.begin())
    early.write()
    table.expire(early.instant)
    late = Writer.begin(table)
    if not holds:
        assert provider.break_(heartbeat_key(early.instant))
    if holds or isinstance(provider, InProcessLockProvider):
        with pytest.raises(WriteConflict, match=early.instant):
            late.write()
    else:
        late.write()


def test_an_aborted_write_names_the_first_winner_that_was_noted(table: Table) -> None:
    first, second, late = (Writer.begin(table) for _ in range(3))
    late.write("00000001-x")
    late.write("00000002-x")
    second.write("00000002-x")
    first.write("00000001-x")
    conflict = late.transaction.found_early()
    assert conflict is not None and conflict.winner == second.instant


def test_a_file_that_was_announced_before_is_not_made_after_the_loss_is_known(table: Table) -> None:
    early, late = Writer.begin(table), Writer.begin(table)
    with pytest.raises(WriteConflict), late.attempt() as files:
        files.announce("p", late.name())
        early.write()
        table.system.advance(1)
        files.create("p", late.name(), b"rows", 1)
    assert not any(late.instant in path for path in table.data_files())
