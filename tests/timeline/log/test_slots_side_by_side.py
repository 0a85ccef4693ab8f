"""How often the log waits for its storage where it asks for many slots."""

from __future__ import annotations

from slots import append
from storages.counting import CountingStorage

from lakelatch.timeline.instant import inflight
from lakelatch.timeline.log.commit_log import CommitLog
from lakelatch.timeline.log.events import COMPLETE, LOG_FOLDER, Event


def commit(storage: CountingStorage, log: CommitLog, number: int) -> Event:
    """Adds a write that has begun."""
    event = Event(COMPLETE, "deltacommit", f"{20261121120000000 + number}", f"op-{number}", "me", content=b"x")
    storage.put(inflight(event.instant, event.action).path, b"")
    storage.forget()
    return append(log, lambda tail: event, lambda above: f"{20261121130000000 + number}")


def test_slots_that_are_not_known_yet_are_read_side_by_side() -> None:
    """As by a writer that was away while others have committed."""
    storage = CountingStorage("away")
    added = [commit(storage, CommitLog(storage), number) for number in range(10)]
    log = CommitLog(storage)
    tail = log.tail()
    storage.forget()
    assert log.events_after(0, tail) == added
    assert (len(storage.calls), storage.steps) == (9, 1), storage.story()


def test_old_slots_are_removed_side_by_side() -> None:
    """Whoever moves the watermark commits, and who waits for it would wait for each."""
    storage = CountingStorage("removals")
    log, longest = CommitLog(storage, slots_kept=8), 0
    for number in range(40):
        commit(storage, log, number)
        longest = max(longest, storage.steps)
    assert len(storage.list(LOG_FOLDER).files) < 20 and longest <= 9, storage.story()
