"""How a table's events get into its log: under the table's lock, and with times that are fresh and, where they name an
instant, claimed."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

from lakelatch.errors import CommitUnknown, LakelatchError
from lakelatch.failpoints import failpoint
from lakelatch.heartbeat.beat import Heartbeat
from lakelatch.heartbeat.contract import heartbeat_path
from lakelatch.locks.contract import TABLE_KEY
from lakelatch.locks.lease import Lease
from lakelatch.timeline.log.commit_log import GivenUp, RaceLost
from lakelatch.timeline.log.events import Event
from lakelatch.timeline.log.log_reader import Tail
from lakelatch.timeline.snapshot import Snapshot
from lakelatch.transactions.base.context import TransactionContext
from lakelatch.transactions.claims import beat_of, owns_claim

T = TypeVar("T")
_log = logging.getLogger("lakelatch.transactions")


@contextmanager
def table_lock(context: TransactionContext) -> Iterator[Lease]:
    """The table's lease for a block, whose outcome stands also if the lease cannot be given back."""
    lease = context.provider.acquire(TABLE_KEY, context.settings.lock_timeout_s)
    try:
        yield lease
    finally:
        try:
            context.log.stop_waiting()
        except LakelatchError as error:
            _log.warning("others go on queueing at the table's lock until the next commit: %s", error)
        try:
            lease.release()
            failpoint("lock.after_release")
        except LakelatchError as error:
            _log.warning("the table's lock was not released, and ends with its lease: %s", error)


def in_turn(context: TransactionContext, append: Callable[[Lease | None], T]) -> T:
    """What `append` does with the table's lease, or does without one (`RaceLost`: not) where nobody seems to wait."""
    if context.elision.tries_first(context.log.others_wait):
        try:
            return append(None)
        except RaceLost:
            context.elision.lost()
    with table_lock(context) as lease:
        done = append(lease)
    context.elision.queued()
    return done


def token_of(lease: Lease | None, tail: Tail) -> int:
    """The token of an event: its writer's, or without a lease that of the event before it."""
    return lease.token if lease is not None else tail.event.token if tail.event is not None else 0


def append_claimed(
    context: TransactionContext,
    decide: Callable[[Tail], Event | GivenUp[T]],
    operation_id: str,
    lease: Lease,
    above: str = "",
) -> Event | GivenUp[T]:
    """Adds an event whose slot time is also a requested time, above `above`, claiming each time that is tried."""
    claims: list[str] = []

    def release(kept: str = "") -> None:
        for instant in claims:
            if instant != kept:
                context.storage.delete(heartbeat_path(instant))
        claims.clear()

    def take_time(tail_time: str) -> str:
        release()  # of a slot that was lost; kept until the end, all of them would soon look like dead writers
        floor = max(tail_time, above, context.snapshot.latest_time)
        beat = beat_of(context, operation_id, context.log.last.number if context.log.last else 0)
        make = partial(Heartbeat, context.storage, system=context.system)
        instant, _ = context.clock.claim(floor, beat, lease, make)
        claims.append(instant)
        return instant

    try:
        event = context.log.append(decide, take_time, partial(_oldest_needed, context))
    except CommitUnknown:
        raise
    except LakelatchError:
        release()
        raise
    release(event.instant if isinstance(event, Event) else "")
    return event


class FirstLook:
    """What a commit without the lock is checked against first: the timeline, and its claim.

    Neither needs the other, nor the list of markers, so the caller makes all these requests side by side. The timeline
    is listed after the tail was read, and if that is the tail no more, the slot is refused. Without `asks_claim` the
    log alone has to say whether the instant has ended: that is enough where no task was given the instant.
    """

    def __init__(self, context: TransactionContext, instant: str, operation_id: str, asks_claim: bool = True) -> None:
        self._log = context.log
        self._recent = context.log.recent_tail() if context.elision.tries_first(context.log.others_wait) else None
        self._listing: Snapshot | None = None
        self._owned: bool | None = None if asks_claim else True
        self._asks_claim = asks_claim
        self._owns = partial(owns_claim, context, instant, operation_id)
        self._tail: Tail | None = None

    @property
    def requests(self) -> Sequence[Callable[[], None]]:
        """What is to be asked; nothing if the lock, or the log, has to be asked first."""
        if self._recent is None:
            return ()
        return (self._list, self._ask) if self._asks_claim else (self._list,)

    def tail(self) -> Tail | None:
        """The tail with the timeline; None if nothing was asked."""
        if self._recent is not None:
            self._tail = self._log.look(self._recent, self._listing)
        return self._tail

    def owned(self, tail: Tail) -> bool | None:
        """Whether the claim was there, if this very tail is that of this look."""
        return self._owned if tail is self._tail else None

    def _list(self) -> None:
        self._listing = self._log.snapshots.list()

    def _ask(self) -> None:
        self._owned = self._owns()


def append_completion(
    context: TransactionContext,
    decide: Callable[[Tail], Event | GivenUp[T]],
    instant: str,
    lease: Lease | None,
    first: Tail | None = None,
    shown: Callable[[], None] | None = None,
) -> Event | GivenUp[T]:
    """Adds the event that completes an instant; `RaceLost` without a lease, if others were faster.

    `first`: the tail that is tried first without a lease, as a `FirstLook` has it. `shown`: as of `CommitLog.append`.
    """

    def take_time(above: str) -> str:
        floor = max(above, instant, context.snapshot.latest_time)
        return context.clock.now(floor) if lease is None else context.clock.next(floor, lease)

    return context.log.append(decide, take_time, partial(_oldest_needed, context), lease is not None, first, shown)


def _oldest_needed(context: TransactionContext) -> int:
    return context.observer.oldest_start_slot(default=2**62)
