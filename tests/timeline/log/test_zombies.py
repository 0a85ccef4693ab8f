"""Slots that are put into numbers that were removed, and those who find them there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from added_events import Times, add, event, shown, slots

from lakelatch.errors import CommitUnknown
from lakelatch.storage import Storage
from lakelatch.testing.clock import ManualSystem
from lakelatch.testing.faults.storage import LOST_AFTER, Fault, FaultyStorage
from lakelatch.timeline.instant import completed
from lakelatch.timeline.log.commit_log import CommitLog
from lakelatch.timeline.log.events import LOG_FOLDER, Event, slot_bytes, slot_path
from lakelatch.timeline.log.log_reader import LogMoved


def a_zombie(storage: Storage, times: Times, meanwhile: Callable[[CommitLog], None]) -> Callable[[], Event]:
    """An append that is paused before its slot, while the log moves on by some events."""
    paused = [True]

    def before(operation: str, path: str) -> None:
        if operation == "put_if_absent" and path == slot_path(2) and paused.pop():
            paused.append(False)
            meanwhile(CommitLog(storage, slots_kept=1))

    log = CommitLog(FaultyStorage(storage, before=before), slots_kept=1)
    return lambda: add(log, times, 99)


def test_a_zombie_that_creates_a_removed_number_is_told_that_it_did_not_commit_there(
    storage: Storage, times: Times
) -> None:
    add(CommitLog(storage), times, 1)

    def meanwhile(log: CommitLog) -> None:
        for name in range(2, 12):
            add(log, times, name)
        assert 2 not in slots(storage)

    zombie = a_zombie(storage, times, meanwhile)()
    assert zombie.number == 12  # it asked again, and committed at the log's end
    assert 2 not in slots(storage)
    assert shown(storage)[-1] == zombie.instant and shown(storage).count(zombie.instant) == 1


def test_a_zombie_whose_slot_was_shown_before_its_removal_is_told_that_it_committed(
    storage: Storage, times: Times
) -> None:
    add(CommitLog(storage), times, 1)
    others = CommitLog(storage, slots_kept=1)
    paused = [False]

    class Answerless(FaultyStorage):
        """The zombie's slot is created; before it hears so, others show it and remove the slot."""

        def put_if_absent(self, path: str, data: bytes) -> bool:
            created = super().put_if_absent(path, data)
            if path == slot_path(2) and not paused[0]:
                paused[0] = True
                for name in range(2, 12):
                    add(others, times, name)
                assert 2 not in slots(storage)
            return created

    zombie = add(CommitLog(Answerless(storage), slots_kept=1), times, 99)
    assert zombie.number == 2
    assert shown(storage).count(zombie.instant) == 1 and shown(storage)[1] == zombie.instant


@pytest.mark.parametrize("concludes", [False, True])
def test_a_zombies_slot_in_a_removed_number_is_shown_by_nobody_who_was_paused_before_reading_it(
    storage: Storage, times: Times, concludes: bool
) -> None:
    """It was put after checks of long ago, and counts for nobody: neither as a tail, nor for who finds itself in it."""
    add(CommitLog(storage), times, 1)
    second = add(CommitLog(storage), times, 2)
    others, zombie = CommitLog(storage, slots_kept=1), event(99)
    file = completed(zombie.instant, "deltacommit", second.time).file_name
    put = replace(second, instant=zombie.instant, operation_id=zombie.operation_id, file=file)

    def before(operation: str, path: str) -> None:
        if operation == "read" and path == slot_path(2) and not paused:
            paused.append(True)
            for name in range(3, 12):
                add(others, times, name)
            assert 2 not in slots(storage) and storage.put_if_absent(slot_path(2), slot_bytes((put,)))

    paused: list[bool] = []
    log = CommitLog(FaultyStorage(storage, before=before), ManualSystem())
    tail = log.tail()
    assert tail.events == (put,)
    if concludes:
        with pytest.raises(CommitUnknown, match="had been removed"):
            log.conclude(put, tail)
    else:
        log.look(tail)
    assert zombie.instant not in shown(storage)
    assert add(log, times, 12).number == 12


def test_a_removed_slot_before_one_that_nobody_has_decided_is_not_the_beginning_of_the_log(
    storage: Storage, times: Times
) -> None:
    third = [add(CommitLog(storage), times, name) for name in range(1, 4)][-1]
    assert CommitLog(storage).before(third).number == 2
    storage.delete(slot_path(2))
    with pytest.raises(LogMoved, match="slot 2"):
        CommitLog(storage).before(third)


def test_the_same_if_the_answer_was_lost_as_well(storage: Storage, times: Times) -> None:
    add(CommitLog(storage), times, 1)
    others = CommitLog(storage, slots_kept=1)
    looked = [False]

    def before(operation: str, path: str) -> None:
        if operation == "read" and path == slot_path(2) and not looked[0]:
            looked[0] = True
            for name in range(2, 12):
                add(others, times, name)

    faulty = FaultyStorage(storage, [Fault(LOST_AFTER, "put_if_absent", LOG_FOLDER, times=1)], before=before)
    zombie = add(CommitLog(faulty, ManualSystem(), slots_kept=1), times, 99)
    assert looked[0] and zombie.number == 2 and shown(storage).count(zombie.instant) == 1
