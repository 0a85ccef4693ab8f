"""Who writes the table: live and dead writers, how they prove that they live, and other engines."""

from __future__ import annotations

from collections.abc import Iterator

from lakelatch.engine.doctor.finding import OF_ONE_MACHINE, Finding, Patient
from lakelatch.heartbeat.contract import (
    HEARTBEAT_INTERVAL_OPTION,
    HEARTBEAT_MISSES_OPTION,
    STORAGE,
    Beat,
    heartbeat_path,
    least_age_ms,
)
from lakelatch.heartbeat.observer import Observer
from lakelatch.locks.options import DEFAULT_LEASE_S, LEASE, PREFIX
from lakelatch.storage.contract import NotFound
from lakelatch.system import own_version
from lakelatch.timeline.actions import WRITE_ACTIONS
from lakelatch.timeline.metadata import WRITER_KEY, CommitMetadata
from lakelatch.timeline.snapshot import Snapshot

_LOOKED_AT = 50  # of the last writes
_LATE = 1.5  # intervals
_SHOWN = 3
_LOCK_KEYS = (f"{PREFIX}zookeeper.lock_key", f"{PREFIX}dynamodb.partition_key")


def heartbeats(patient: Patient) -> Iterator[Finding]:
    """Dead writers, late ones, settings that differ, and a heartbeat that ends before the lease."""
    observer = Observer(patient.storage, patient.options.manager.transactions.heartbeat, patient.provider)
    instants = observer.instants()
    dead = set(observer.dead(instants))
    beats = {instant: observer.beat_of(instant) for instant in instants}
    if dead:
        yield Finding(
            "dead-writers",
            f"{len(dead)} writers have died in the middle of a write: {_named(beats, dead)}",
            "their files take space, and what they claim keeps slots of the commit log from being removed",
            f"the next writer rolls them back; or now: lakelatch service run --once {patient.name}",
        )
    alive = {instant: beat for instant, beat in beats.items() if instant not in dead}
    yield from _late(patient, observer, alive)
    kinds = sorted(
        {(one.settings.interval_ms, one.settings.tolerable_misses, one.proof) for one in alive.values() if one}
    )
    if len(kinds) > 1:
        said = "; ".join(f"every {interval} ms, {misses} misses, by {proof}" for interval, misses, proof in kinds)
        yield Finding(
            "heartbeats-differ",
            f"live writers beat differently: {said} ({_named(beats, set(alive))})",
            "each is taken for dead by its own settings, so nothing is wrong; but one that beats more often bears "
            "shorter pauses",
            f"give all of them the same {HEARTBEAT_INTERVAL_OPTION} and {HEARTBEAT_MISSES_OPTION}",
        )
    yield from _versions(alive)
    settings = patient.options.manager.transactions.heartbeat
    lease_s = patient.provider.scope.lock_options.lease_s or DEFAULT_LEASE_S
    if patient.provider.domain not in OF_ONE_MACHINE and settings.expiry_ms < lease_s * 1000:
        yield Finding(
            "short-heartbeat",
            f"a writer with these options counts as dead after {settings.expiry_ms / 1000:g} s without a beat "
            f"({HEARTBEAT_INTERVAL_OPTION}={settings.interval_ms}, {settings.tolerable_misses} misses), and its lock "
            f"is held for {lease_s:g} s ({LEASE})",
            "after a pause in between its write is rolled back, while its lock still keeps the others waiting",
            f"let it beat for longer than the lease: {HEARTBEAT_INTERVAL_OPTION} times misses + 1, or lower {LEASE}",
        )


def _versions(alive: dict[str, Beat | None]) -> Iterator[Finding]:
    """Whether live writers have the version that is installed here; it is in their heartbeats."""
    others = {instant: one for instant, one in alive.items() if one is not None and one.version != own_version()}
    if others:
        versions = ", ".join(sorted({one.version or "one that does not say it" for one in others.values()}))
        yield Finding(
            "versions-differ",
            f"live writers have another version of lakelatch ({versions}) than this machine, which has "
            f"{own_version()}: {_named(dict(others), set(others))}",
            "each version reads what the others write, or refuses it by name; but what is new in one is not done by "
            "the other, and an upgrade of the table is refused while old ones write it",
            "the same version for all: pip install --upgrade lakelatch",
        )


def _late(patient: Patient, observer: Observer, alive: dict[str, Beat | None]) -> Iterator[Finding]:
    by_file = {instant: beat for instant, beat in alive.items() if beat is not None and beat.proof == STORAGE}
    now_ms = observer.storage_time_ms() if by_file else 0
    for instant, beat in by_file.items():
        try:
            age_ms = least_age_ms(now_ms, patient.storage.stat(heartbeat_path(instant)).modified_ms)
        except NotFound:  # it has ended since
            continue
        interval_ms = beat.settings.interval_ms
        if age_ms > _LATE * interval_ms:
            yield Finding(
                "late-heartbeat",
                f"{beat.writer} (instant {instant}) has not beaten for {age_ms / 1000:,.1f} s, and is to beat every "
                f"{interval_ms / 1000:g} s",
                f"after {beat.settings.expiry_ms / 1000:g} s it counts as dead, and its write is rolled back",
                f"look at its machine: memory, C code that keeps the interpreter, a paused container; or raise "
                f"{HEARTBEAT_INTERVAL_OPTION}",
            )


def other_engines(patient: Patient) -> Iterator[Finding]:
    """Writes of other engines between ours, whose writers know nothing but the lock."""
    storage, writes = patient.storage, Snapshot.look(patient.storage).writes[-_LOOKED_AT:]
    ours, theirs = list[str](), list[str]()
    for instant in writes:
        if instant.action not in WRITE_ACTIONS:
            continue
        try:
            metadata = CommitMetadata.from_avro(storage.read(instant.path), instant.path)
        except NotFound:  # archived since
            continue
        (ours if WRITER_KEY in metadata.extra else theirs).append(instant.requested)
    if theirs and ours and max(theirs) > min(ours) and not patient.provider.taken_by_hudi:
        yield Finding(
            "other-engines",
            f"{len(theirs)} of the last {len(writes)} writes are of another engine ({', '.join(theirs[-_SHOWN:])}), "
            f"and these locks ({patient.provider.domain}) are not such as it takes",
            "its writers take no slots of the commit log, so nothing keeps them from committing between a check of "
            "ours and its commit: an update of one of the two may be lost",
            "give both sides one of Hudi's lock provider classes with the same lock key (docs/guide.md, beside Java "
            "Hudi), or let one engine write",
        )
    yield from _lock_key(patient, theirs) if theirs else ()


def _lock_key(patient: Patient, theirs: list[str]) -> Iterator[Finding]:
    """Whether Hudi's writers may take a lock of another name: that of the table, where they give none."""
    provider, name = patient.provider, patient.config.name
    key = next((key for key in _LOCK_KEYS if key in provider.not_secret), "")
    ours = str(provider.scope.options.get(key, "")).strip()
    if provider.taken_by_hudi and ours and ours != name and patient.config.lock_options.get(key) != ours:
        yield Finding(
            "java-lock-key",
            f"{key}={ours}, and {len(theirs)} of the last writes are of another engine, whose writers take the lock "
            f"{name!r}, as the table is called, if they give no key",
            "two locks of two names keep nobody apart: an update of one of the two may be lost",
            f"the same {key} for all of them; if they have it, say so in the table, which ends this finding: "
            f"lakelatch locks record {patient.name} -o {key}={ours} -o ...",
        )


def _named(beats: dict[str, Beat | None], instants: set[str]) -> str:
    names = [
        f"{instant} of {one.writer if (one := beats[instant]) else 'another engine'}" for instant in sorted(instants)
    ]
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
