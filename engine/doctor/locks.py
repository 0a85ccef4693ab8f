"""Whether the locks of these options are the table's, answer, and exclude a second process."""

from __future__ import annotations

from collections.abc import Iterator

from lakelatch.engine.doctor.finding import OF_ONE_MACHINE, Finding, Patient
from lakelatch.engine.doctor.second_writer import SCRATCH_KEY, is_let_in
from lakelatch.engine.table.lock_state import look_at_locks
from lakelatch.errors import LakelatchError, LockTimeout, Unavailable
from lakelatch.locks.contract import TABLE_KEY
from lakelatch.locks.options import PROVIDER
from lakelatch.storage.uris import scheme_of
from lakelatch.timeline.log.commit_log import CommitLog
from lakelatch.transactions.base.lock_check import LockCheck

_MANY_WAIT, _NAMED = 3, 5


def answering(patient: Patient) -> Iterator[Finding]:
    """Asks the lock service one question; the other checks of locks come after it, if it answers."""
    provider = patient.provider
    try:
        provider.ask()
        for holder in look_at_locks(provider, "").held:
            if holder.key == TABLE_KEY and (holder.waiting or 0) >= _MANY_WAIT:
                named = f": {', '.join(holder.waiters[:_NAMED])}" if holder.waiters else ""
                yield Finding(
                    "crowded-lock",
                    f"{holder.waiting} wait for the table's lock, which {holder.owner} holds{named}",
                    "each of them commits when those before it have",
                    f"look who holds it: lakelatch locks {patient.name}; fewer and larger commits need it less often",
                )
    except LakelatchError as error:
        yield Finding(
            "locks-unreachable",
            error.message,
            "a commit that meets another writer, and every table service, waits for this lock in vain",
            "start the lock service, or correct the option that the fact names",
        )


def same_locks(patient: Patient) -> Iterator[Finding]:
    """Whether these locks are those of the table's other writers, by kind and id."""
    provider, tail = patient.provider, CommitLog(patient.storage).tail()
    state = look_at_locks(provider, tail.lock_domain)
    if not state.are_the_tables:
        differ = LockCheck(provider, patient.config.lock_options).hint()
        yield Finding(
            "other-locks",
            f"the table's writers take their locks from {state.of_table!r}, and these options name {state.name!r}"
            f"{differ}",
            "a writer with these options is refused; beside Java writers, who are not, nothing would keep them apart",
            "give the options that the others have (what the table records is taken where none are given), or move "
            f"the table: lakelatch locks migrate {patient.name} --to ...",
        )
    elif not patient.config.locks and PROVIDER in patient.given:
        said = ", ".join(f"{key}={value}" for key, value in provider.record().items())
        yield Finding(
            "locks-not-recorded",
            f"the table does not record its locks, and these options say {said}",
            "whoever leaves these options out takes other locks, and is refused when it commits",
            f"lakelatch locks record {patient.name} -o ...",
        )
    if provider.domain in OF_ONE_MACHINE and scheme_of(patient.storage.uri) not in ("", "file", "memory"):
        yield Finding(
            "locks-of-one-machine",
            f"the table is at {patient.storage.uri}, and its locks ({provider.domain}) are those of one machine",
            "writers on two machines do not keep each other away: they conflict more often, and lose time",
            "use a lock service that all machines reach, or the storage itself (hoodie.write.lock.provider=storage)",
        )


def two_processes(patient: Patient) -> Iterator[Finding]:
    """Holds a scratch lock here, and has a second process try to take it by the same options."""
    provider = patient.provider
    try:
        lease = provider.acquire(SCRATCH_KEY, patient.lock_s)
    except LockTimeout as error:
        raise Unavailable(
            f"the scratch lock {SCRATCH_KEY!r} is held, perhaps by another doctor: {error.message}"
        ) from error
    try:
        let_in = is_let_in(provider.scope.table_uri, provider.scope.options, patient.child_s)
        held = lease.valid()
    finally:
        lease.release()
    if not held:
        raise Unavailable("the scratch lock was lost while a second process tried to take it")
    if let_in:
        yield Finding(
            "no-exclusion",
            f"a second process was granted the lock {SCRATCH_KEY!r} while this one held it (locks: {provider.domain})",
            "writers with these options do not keep each other away. Conditional puts keep the rows, but not beside "
            "Java writers, and every meeting is a conflict that costs a write",
            "use a provider that reaches all processes: hoodie.write.lock.provider=filesystem on one machine, else "
            "redis, zookeeper, etcd, dynamodb or storage (docs/locks.md)",
        )
