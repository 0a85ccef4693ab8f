"""Whether the storage decides between two writers, what clocks say, and whether the table can be written."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from lakelatch.engine.doctor.finding import Finding, Patient
from lakelatch.engine.table.table import check_writable
from lakelatch.errors import InvalidRequest
from lakelatch.heartbeat.observer import Observer
from lakelatch.storage.conditional_puts import CHECKS_FOLDER
from lakelatch.storage.contract import PutUnknown, Storage
from lakelatch.timegen.instant_time import to_ms
from lakelatch.timeline.log.commit_log import CommitLog
from lakelatch.timeline.recorded_options import GROUPING_LOG_VERSION, LOG_VERSION
from lakelatch.transactions.base.instant_clock import MAX_DRIFT_OPTION

_SECOND_MS = 1000


def second_put(patient: Patient) -> Iterator[Finding]:
    """Puts a scratch object twice, on condition that there is none, also where that was tried before."""
    storage, path = patient.storage, f"{CHECKS_FOLDER}/{patient.system.new_id()}"
    try:
        first, second = (_puts(storage, path, data) for data in (b"first", b"second"))
        kept = storage.read(path)
    finally:
        storage.delete(path)
    if first and (second or kept != b"first"):
        yield Finding(
            "second-put",
            f"{storage.uri} took an object a second time that was to be put only if it is absent",
            "commits are decided by such puts: two writers can both win, and the rows of one of them are lost",
            "keep the table where conditional puts (If-None-Match: *) are refused if the object is there; see "
            "docs/stores.md",
        )


def _puts(storage: Storage, path: str, data: bytes) -> bool:
    """Whether this put took place, also if its answer was lost."""
    try:
        return storage.put_if_absent(path, data)
    except PutUnknown:
        return storage.exists(path) and storage.read(path) == data


def storage_clock(patient: Patient) -> Iterator[Finding]:
    """Compares the storage's clock and the table's last time with this machine's clock, for people."""
    yield from _skew(patient, "storage", Observer(patient.storage).storage_time_ms)
    tail = CommitLog(patient.storage).tail()
    ahead_ms = to_ms(tail.time) - patient.system.realtime_ms() if tail.time else 0
    if ahead_ms > patient.limits.skew_s * _SECOND_MS:
        yield Finding(
            "times-ahead",
            f"the table's last time, {tail.time}, is {ahead_ms / 1000:,.1f} s ahead of this machine's clock",
            "a writer whose clock is ahead has taken it, and all later times come after it, until the clocks catch up",
            f"set the clock of the machine of {tail.event.writer if tail.event else 'its writer'}; nothing in the "
            "table needs to be changed",
        )


def lock_clock(patient: Patient) -> Iterator[Finding]:
    """Compares the lock service's clock with this machine's, if it tells it."""
    yield from _skew(patient, "lock service", patient.provider.time_ms)


def _skew(patient: Patient, whose: str, ask: Callable[[], int | None]) -> Iterator[Finding]:
    system = patient.system
    before_ms, began_ns = system.realtime_ms(), system.monotonic_ns()
    theirs_ms = ask()
    took_ms = (system.monotonic_ns() - began_ns) / 1e6
    if theirs_ms is None:
        return
    rounding_ms = _SECOND_MS if theirs_ms % _SECOND_MS == 0 else 0
    ahead_ms = before_ms + took_ms / 2 - theirs_ms
    if abs(ahead_ms) > patient.limits.skew_s * _SECOND_MS + took_ms / 2 + rounding_ms:
        yield Finding(
            "clock-skew",
            f"this machine's clock is {abs(ahead_ms) / 1000:,.1f} s {'ahead of' if ahead_ms > 0 else 'behind'} the "
            f"{whose}'s",
            "no row is at risk, since times of commits never go back; but times that people read are wrong by so much, "
            "and a writer is refused whose clock is ahead of the storage's by more than "
            f"{patient.options.manager.transactions.max_drift_ms / 1000:,.0f} s ({MAX_DRIFT_OPTION})",
            "have the machine's clock set by NTP (chronyc tracking)",
        )


def table(patient: Patient) -> Iterator[Finding]:
    """Whether the table can be written here, and records what its writers have to agree on."""
    config, name = patient.config, patient.name
    try:
        check_writable(config)
    except InvalidRequest as error:
        yield Finding(
            "metadata-table" if config.metadata_partitions else "read-only",
            error.message,
            "lakelatch reads this table and refuses each write",
            "do what the fact says, with the engine that made the table",
        )
    if config.log_version < GROUPING_LOG_VERSION:
        yield Finding(
            "old-log",
            f"the table has {LOG_VERSION}={config.log_version}",
            "its writers do not commit for each other, and are not told apart by the id of their locks",
            f"lakelatch upgrade {name}, once no writer has a version of lakelatch before that",
        )
