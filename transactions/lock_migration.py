"""Moves a live table from one lock service to another.

The change is an event of the commit log, so it is ordered among the commits: a writer that still takes the old locks is
refused at its next slot, even if it was paused since before. Until then the old table lock is held, so that no commit
is under way.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from lakelatch.errors import InvalidRequest
from lakelatch.heartbeat.observer import Observer
from lakelatch.locks.contract import TABLE_KEY, LockProvider
from lakelatch.locks.lease import Lease
from lakelatch.storage.contract import Storage
from lakelatch.system import REAL_SYSTEM, System
from lakelatch.timegen.hybrid import HybridTimeGenerator
from lakelatch.timegen.instant_time import to_instant, to_ms
from lakelatch.timeline.log.commit_log import CommitLog
from lakelatch.timeline.log.events import LOCKS, Event
from lakelatch.timeline.log.lock_names import WrongLocks, agree, named_locks, split_locks
from lakelatch.timeline.log.log_reader import Tail
from lakelatch.timeline.properties_update import record_lock_options
from lakelatch.timeline.recorded_options import groups_commits
from lakelatch.timeline.snapshot import Snapshot
from lakelatch.timeline.table_config import recorded_lock_options
from lakelatch.transactions.attempts.attempt import Race
from lakelatch.transactions.base.lock_check import new_lock_id


def change_locks(
    storage: Storage,
    old: LockProvider,
    new: LockProvider,
    writer: str,
    timeout_s: float,
    old_is_gone: bool = False,
    system: System = REAL_SYSTEM,
) -> Event | None:
    """Makes `new` the locks of the table, for all writers; None if they are that already, whatever `old` is.

    New locks of the same kind are another service, or another place at it: they have another id, or none, which is
    what a service has that has lost its data. `old_is_gone` is for a service that does not come back, or for such ones:
    its lock is not taken, and its times are not asked for.

    Safe at any moment, also with writers at work: those that began with the old locks are refused when they commit.

    Errors: `InvalidRequest` if the table's locks are not `old`; `LockTimeout` if the old table lock stays held.
    """
    log, observer = CommitLog(storage, system), Observer(storage)
    if new.domain == old.domain and not old_is_gone:
        if log.tail().lock_domain == named_locks(new.domain, new.lock_id() or ""):
            return None
        raise InvalidRequest(
            f"the old and the new locks are the same ({new.domain!r}): name another provider, or say --from-is-gone if "
            "it is another service of that kind, or has lost its data"
        )
    before = old.domain if old_is_gone else named_locks(old.domain, old.lock_id() or "")
    new.holders(TABLE_KEY)  # so that a service that cannot be reached is found before anything has changed
    tail, name = log.tail(), _named(new, _has_ids(storage))
    if tail.lock_domain == name:
        return None
    _refuse_others(tail, before)
    held: AbstractContextManager[Lease | None] = nullcontext() if old_is_gone else old.acquire(TABLE_KEY, timeout_s)
    operation_id = system.new_id()
    with held as lease:
        latest_time = Snapshot.look(storage).latest_time
        latest_ms = to_ms(latest_time) if latest_time else 0
        if not old_is_gone:
            latest_ms = max(latest_ms, HybridTimeGenerator(old, system).next(latest_ms))
        generator = HybridTimeGenerator(new, system)

        def take_time(above: str) -> str:
            return to_instant(generator.next(max(latest_ms, to_ms(above) if above else 0)))

        token, race = lease.token if lease is not None else 0, Race(log, system)
        draft = Event(LOCKS, "locks", "", operation_id, writer, token=token, lock_domain=name)
        while True:
            tail = log.look(log.tail())
            _refuse_others(tail, before)
            event = log.create(draft, tail, take_time, lambda: observer.oldest_start_slot(default=2**62))
            if event is not None:
                return event
            race.lose()
            race.ask_if_lost_often(with_lock=True)


def record_locks(storage: Storage, locks: LockProvider, timeout_s: float) -> dict[str, str]:
    """Records the lock options in the table, for writers that name none; returns what it has recorded.

    It does not change which locks are accepted, which the log decides, and may be repeated. It takes the table's lock.
    Errors: `WrongLocks` if the table's locks are others; `LockTimeout`, and then nothing is recorded.
    """
    said = locks.record()
    with locks.acquire(TABLE_KEY, timeout_s):
        tail, name = CommitLog(storage).tail(), named_locks(locks.domain, locks.lock_id() or "")
        if not agree(tail.lock_domain, name) or (split_locks(tail.lock_domain)[1] and not split_locks(name)[1]):
            raise WrongLocks(
                f"the table's locks are {tail.lock_domain!r}, and not {name!r}: move it to those with `lakelatch locks "
                "migrate`, and --from-is-gone if they are of the same kind",
                option="--from",
            )
        record_lock_options(storage, said)
    return said


def _named(provider: LockProvider, has_ids: bool) -> str:
    """The name of these locks, with their id, which they are given if they have none. Errors: those of the service."""
    lock_id = provider.lock_id(new_lock_id(provider)) if has_ids and provider.domain else None
    return named_locks(provider.domain, lock_id or "")


def _has_ids(storage: Storage) -> bool:
    """Whether slots may name ids of locks: writers of the first version of the log know none."""
    recorded = recorded_lock_options(storage)
    return recorded is not None and groups_commits(recorded)


def _refuse_others(tail: Tail, old: str) -> None:
    if not agree(tail.lock_domain, old):
        raise WrongLocks(
            f"the table's locks are {tail.lock_domain!r}, and not {old!r}: name those as the old ones (--from)",
            option="--from",
        )


def lock_domain(storage: Storage) -> str:
    """The locks that the table's writers use, "" if no slot names them yet."""
    return CommitLog(storage).tail().lock_domain
