"""Writers that take no slots (Java Hudi's), and their commits while this one holds the table's lock.

Only the lock fences them, so a lock that only one side takes is detected where possible: a completed file of theirs
that is younger than our lease shows that they do not take it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field

from lakelatch.errors import InvalidRequest, LakelatchError, WriteConflict
from lakelatch.locks.lease import Lease
from lakelatch.storage.contract import NotFound
from lakelatch.timeline.actions import WRITE_ACTIONS
from lakelatch.timeline.instant import COMPLETED, Instant, parse_file_name
from lakelatch.timeline.log.log_reader import Tail
from lakelatch.transactions.base.context import TransactionContext
from lakelatch.transactions.base.outcome import Conflicted

_SECOND_MS = 1000
_TICK_MS = 10  # of a kernel that stamps files by its own ticks
_log = logging.getLogger("lakelatch.transactions")


class OneSidedLock(InvalidRequest):
    """A foreign writer committed while this one held the table's lock. Nothing of this call was committed."""


@dataclass
class LockWatch:
    """Detects foreign commits while a lease is held; made right after it was granted.

    It compares the age of their files by the storage's clock with the time for which the lease has been held, so no two
    clocks are compared. Storages round their times, so commits within one tick are left out: some are missed, but none
    is reported wrongly.
    """

    context: TransactionContext
    lease: Lease
    _since_ns: int = field(init=False)

    def __post_init__(self) -> None:
        self._since_ns = self.context.system.monotonic_ns()

    def first_under_lease(self, foreign: Iterable[Instant]) -> Instant | None:
        """The first of these completed instants that appeared under the lease, if that is still held."""
        held_ms = (self.context.system.monotonic_ns() - self._since_ns) // 1_000_000
        now_ms = 0
        for instant in foreign:
            now_ms = now_ms or self.context.observer.storage_time_ms()
            try:
                modified_ms = self.context.storage.stat(instant.path).modified_ms
            except NotFound:
                continue
            tick_ms = _SECOND_MS if now_ms % _SECOND_MS == modified_ms % _SECOND_MS == 0 else _TICK_MS
            if now_ms - modified_ms + tick_ms < held_ms and self.lease.valid():
                return instant
        return None

    def ensure_both_take_it(self, foreign: Iterable[Instant], tail: Tail) -> None:
        """Errors: `OneSidedLock` if one of these, named by no slot up to the tail, appeared while the lease was held.

        If the log has gone on, it may be one of ours: then this slot is lost, and the next one is checked anew.
        """
        found = self.first_under_lease(foreign)
        if found is not None and self.context.log.tail_number() == tail.number:
            raise OneSidedLock(f"{self.story(found)}. Nothing of this write was committed", instant=found.requested)

    def explain(self, outcome: Conflicted, foreign: Iterable[Instant]) -> Conflicted:
        """The same conflict, whose text says so if a lock that only one side takes is the reason."""
        found = self.first_under_lease(foreign)
        if found is None:
            return outcome
        conflict = outcome.conflict
        explained = WriteConflict(f"{conflict.message}. {self.story(found)}", **conflict.details)
        return Conflicted(explained, outcome.files_kept)

    def tell_afterwards(self, known: Iterable[str], slot: int) -> None:
        """Warns of foreign commits that appeared between the check and the commit, which is too late to refuse."""
        context = self.context
        try:
            fresh = context.snapshots.listing.listed.difference(known)
            found = [one for one in map(parse_file_name, sorted(fresh)) if one is not None and _is_write(one)]
            if not found:
                return
            ours = {event.instant for event in context.log.events_after(slot - 1, context.log.tail())}
            fault = self.first_under_lease([one for one in found if one.requested not in ours])
        except LakelatchError as error:
            _log.warning("could not look for commits of writers that take no slots: %s", error)
            return
        if fault is not None:
            _log.warning(
                "%s. It completed after slot %d was checked: an update of one of the two may be lost where both wrote "
                "the same keys",
                self.story(fault),
                slot,
            )

    def story(self, fault: Instant) -> str:
        """The text that says what happened, and what to set on both sides."""
        lock = self.context.provider.domain or "its own"
        return (
            f"{fault.action} {fault.requested} of another engine completed while this writer held the table's "
            f"lock ({lock}), so only one side takes it: give both the same hoodie.write.lock.provider with the same "
            "address and lock key (here: those options of this write; in Java Hudi: the provider's class name, and "
            "hoodie.write.concurrency.mode=OPTIMISTIC_CONCURRENCY_CONTROL or NON_BLOCKING_CONCURRENCY_CONTROL, without "
            "which it takes no lock at all)"
        )


def _is_write(instant: Instant) -> bool:
    return instant.state == COMPLETED and instant.action in WRITE_ACTIONS
