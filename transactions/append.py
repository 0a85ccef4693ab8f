"""How a table's events get into its log: under the table's lock, and with times that are fresh and, where they name an
instant, claimed."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

from lakelatch.errors import CommitUnknown, LakelatchError
from lakelatch.failpoints import failpoint
from lakelatch.heartbeat.beat import Heartbeat
from lakelatch.heartbeat.contract import heartbeat_path
from lakelatch.locks.contract import TABLE_KEY
from lakelatch.locks.lease import Lease
from lakelatch.timeline.commit_log import GivenUp, Tail
from lakelatch.timeline.events import Event
from lakelatch.transactions.claims import beat_of
from lakelatch.transactions.context import TransactionContext

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
            lease.release()
            failpoint("lock.after_release")
        except LakelatchError as error:
            _log.warning("the table's lock was not released, and ends with its lease: %s", error)


def append_claimed(
    context: TransactionContext,
    decide: Callable[[Tail], Event | GivenUp[T]],
    operation_id: str,
    lease: Lease,
    above: str = "",
) -> Event | GivenUp[T]:
    """Adds an event whose slot time is also a requested time, above `above`, claiming each time that is tried."""
    claims: list[str] = []

    def take_time(tail_time: str) -> str:
        floor = max(tail_time, above, context.folder.latest_time)
        beat = beat_of(context, operation_id, context.log.tail_number())
        make = partial(Heartbeat, context.storage, system=context.system)
        instant, _ = context.clock.claim(floor, beat, lease, make)
        claims.append(instant)
        return instant

    def release(kept: str = "") -> None:
        for instant in claims:
            if instant != kept:
                context.storage.delete(heartbeat_path(instant))

    try:
        event = context.log.append(decide, take_time, partial(_oldest_needed, context))
    except CommitUnknown:
        raise
    except LakelatchError:
        release()
        raise
    release(event.instant if isinstance(event, Event) else "")
    return event


def append_completion(
    context: TransactionContext, decide: Callable[[Tail], Event | GivenUp[T]], instant: str, lease: Lease
) -> Event | GivenUp[T]:
    """Adds the event that completes an instant."""

    def take_time(above: str) -> str:
        return context.clock.next(max(above, instant, context.folder.latest_time), lease)

    return context.log.append(decide, take_time, partial(_oldest_needed, context))


def _oldest_needed(context: TransactionContext) -> int:
    return context.observer.oldest_start_slot(default=2**62)
