"""How a transaction manager behaves: frozen, validated once, from Hudi's option keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from lakelatch.errors import InvalidRequest
from lakelatch.heartbeat.contract import LEASE, STORAGE, HeartbeatSettings
from lakelatch.option_values import flag, one_of, whole_number
from lakelatch.system import process_name
from lakelatch.transactions.base.elision import AUTO, ELISION_OPTION, OFF
from lakelatch.transactions.base.instant_clock import DEFAULT_MAX_DRIFT_MS, MAX_DRIFT_OPTION
from lakelatch.transactions.conflicts.strategies import BUCKET_STRATEGY, SIMPLE_STRATEGY, STRATEGY_OPTION

OPTIMISTIC = "OPTIMISTIC_CONCURRENCY_CONTROL"
NON_BLOCKING = "NON_BLOCKING_CONCURRENCY_CONTROL"
SINGLE_WRITER = "SINGLE_WRITER"

MODE_OPTION = "hoodie.write.concurrency.mode"
RETRIES_OPTION = "hoodie.write.num.retries.on.conflict.failures"
HEARTBEAT_INTERVAL_OPTION = "hoodie.client.heartbeat.interval_in_ms"
HEARTBEAT_MISSES_OPTION = "hoodie.client.heartbeat.tolerable.misses"
HEARTBEAT_TYPE_OPTION = "lakelatch.heartbeat.type"
FAILED_WRITES_OPTION = "hoodie.clean.failed.writes.policy"
WRITER_NAME_OPTION = "lakelatch.writer.name"
_INDEX_OPTION = "hoodie.index.type"

EARLY_OPTION = "hoodie.write.concurrency.early.conflict.detection.enable"
EARLY_STRATEGY_OPTION = "hoodie.write.concurrency.early.conflict.detection.strategy"
EARLY_COMMITS_OPTION = "hoodie.write.concurrency.early.conflict.check.commit.conflict"
EARLY_DELAY_OPTION = "hoodie.write.concurrency.async.conflict.detector.initial_delay_ms"
EARLY_PERIOD_OPTION = "hoodie.write.concurrency.async.conflict.detector.period_ms"
MARKER_TYPE_OPTION = "hoodie.write.markers.type"
MARKER_HOST_OPTION = "lakelatch.marker.server.host"
MARKER_PORT_OPTION = "hoodie.embed.timeline.server.port"
MARKER_THREADS_OPTION = "hoodie.markers.timeline_server_based.batch.num_threads"
MARKER_INTERVAL_OPTION = "hoodie.markers.timeline_server_based.batch.interval_ms"
DIRECT_MARKERS = "DIRECT"
SERVER_MARKERS = "TIMELINE_SERVER_BASED"
_DEFAULT_PERIOD_MS = 1000
_DAY_MS = 86_400_000
KNOWN_TRANSACTION_KEYS = frozenset(
    {
        MODE_OPTION,
        RETRIES_OPTION,
        HEARTBEAT_INTERVAL_OPTION,
        HEARTBEAT_MISSES_OPTION,
        HEARTBEAT_TYPE_OPTION,
        FAILED_WRITES_OPTION,
        WRITER_NAME_OPTION,
        MAX_DRIFT_OPTION,
        ELISION_OPTION,
        STRATEGY_OPTION,
        EARLY_OPTION,
        EARLY_STRATEGY_OPTION,
        EARLY_COMMITS_OPTION,
        EARLY_DELAY_OPTION,
        EARLY_PERIOD_OPTION,
        MARKER_TYPE_OPTION,
        MARKER_HOST_OPTION,
        MARKER_PORT_OPTION,
        MARKER_THREADS_OPTION,
        MARKER_INTERVAL_OPTION,
    }
)


@dataclass(frozen=True)
class EarlySettings:
    """How conflicts are looked for while a write is still at work.

    `strategy` None is the default one of the marker type. `check_commits` also looks at writers that have committed
    and whose markers are gone. Tasks that are at work look every `period_ms` whether their write has lost, first after
    `delay_ms`.
    """

    strategy: str | None = None
    check_commits: bool = False
    delay_ms: int = 0
    period_ms: int = _DEFAULT_PERIOD_MS
    marker_type: str = DIRECT_MARKERS

    @classmethod
    def from_options(cls, options: Mapping[str, str], mode: str) -> EarlySettings | None:
        """None if early detection is off, which is the default. It is checked all the same."""
        found = cls(
            strategy=options.get(EARLY_STRATEGY_OPTION, "").strip() or None,
            check_commits=flag(options, EARLY_COMMITS_OPTION),
            delay_ms=whole_number(options, EARLY_DELAY_OPTION, 0, 0, _DAY_MS),
            period_ms=whole_number(options, EARLY_PERIOD_OPTION, _DEFAULT_PERIOD_MS, 10, _DAY_MS),
            marker_type=_marker_type(options),
        )
        if not flag(options, EARLY_OPTION):
            return None
        if mode != OPTIMISTIC:
            raise InvalidRequest(
                f"{EARLY_OPTION}=true needs {MODE_OPTION}={OPTIMISTIC}, and it is {mode}: under it there is no "
                "conflict that could be detected early. Remove one of the two",
                option=EARLY_OPTION,
            )
        return found


@dataclass(frozen=True)
class MarkerServerSettings:
    """How the driver's marker server listens and writes; `host` None is the driver's own address, `port` 0 a free one.

    Hudi waits 50 ms for a batch and writes 20 files at once. Here all that comes while a file is being written is the
    next batch, so a short wait and few files do.
    """

    host: str | None = None
    port: int = 0
    files_at_once: int = 4
    interval_ms: int = 2

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> MarkerServerSettings | None:
        """None if markers are direct. It is checked all the same."""
        default = cls()
        found = cls(
            host=options.get(MARKER_HOST_OPTION, "").strip() or None,
            port=whole_number(options, MARKER_PORT_OPTION, default.port, 0, 65_535),
            files_at_once=whole_number(options, MARKER_THREADS_OPTION, default.files_at_once, 1, 1000),
            interval_ms=whole_number(options, MARKER_INTERVAL_OPTION, default.interval_ms, 0, 60_000),
        )
        return found if _marker_type(options) == SERVER_MARKERS else None


@dataclass(frozen=True)
class TransactionSettings:
    """`mode` is Hudi's; SINGLE_WRITER is checked like optimistic control, so that a second writer loses no row.

    `writer` is the name that people see: in heartbeats, in the log, in conflicts. Host and process id by default.
    `heartbeat_type` is `storage` (files, as Hudi's) or `lease` (of the lock provider). `max_drift_ms` bounds how far
    this machine's clock may be ahead of the storage's. `conflict_strategy` is the name of an installed one; under
    non-blocking control it has no effect. `early` is None if conflicts are looked for at the commit only,
    `marker_server` if markers are direct. `lock_elision` is `auto`, where a commit asks for the lock only after it has
    lost a race (never beside Hudi's own locks), or `off`.
    """

    mode: str = OPTIMISTIC
    lock_timeout_s: float = 60.0
    conflict_retries: int = 0
    heartbeat: HeartbeatSettings = field(default_factory=HeartbeatSettings)
    writer: str = field(default_factory=process_name)
    heartbeat_type: str = STORAGE
    max_drift_ms: int = DEFAULT_MAX_DRIFT_MS
    conflict_strategy: str = BUCKET_STRATEGY
    early: EarlySettings | None = None
    marker_server: MarkerServerSettings | None = None
    lock_elision: str = AUTO

    @classmethod
    def from_options(cls, options: Mapping[str, str], lock_timeout_s: float = 60.0) -> TransactionSettings:
        mode = options.get(MODE_OPTION, OPTIMISTIC).upper()
        if mode not in (OPTIMISTIC, NON_BLOCKING, SINGLE_WRITER):
            raise InvalidRequest(
                f"{MODE_OPTION}={options[MODE_OPTION]!r} is no concurrency mode: use {OPTIMISTIC} or {NON_BLOCKING}"
            )
        policy = options.get(FAILED_WRITES_OPTION, "LAZY").upper()
        if policy != "LAZY":
            raise InvalidRequest(
                f"{FAILED_WRITES_OPTION}={policy}: several writers need LAZY, because EAGER rolls back the live ones"
            )
        bucketed = options.get(_INDEX_OPTION, "BUCKET").upper() == "BUCKET"
        return cls(
            mode=mode,
            lock_timeout_s=lock_timeout_s,
            conflict_retries=whole_number(options, RETRIES_OPTION, 0, 0, 1000),
            heartbeat=HeartbeatSettings(
                interval_ms=whole_number(options, HEARTBEAT_INTERVAL_OPTION, 60_000, 100, 86_400_000),
                tolerable_misses=whole_number(options, HEARTBEAT_MISSES_OPTION, 2, 1, 1000),
            ),
            writer=options.get(WRITER_NAME_OPTION) or process_name(),
            heartbeat_type=one_of(options, HEARTBEAT_TYPE_OPTION, (STORAGE, LEASE), STORAGE),
            max_drift_ms=whole_number(options, MAX_DRIFT_OPTION, DEFAULT_MAX_DRIFT_MS, 1000, 10**14),
            conflict_strategy=options.get(STRATEGY_OPTION, "").strip()
            or (BUCKET_STRATEGY if bucketed else SIMPLE_STRATEGY),
            early=EarlySettings.from_options(options, mode),
            marker_server=MarkerServerSettings.from_options(options),
            lock_elision=one_of(options, ELISION_OPTION, (AUTO, OFF), AUTO),
        )


def _marker_type(options: Mapping[str, str]) -> str:
    return one_of(options, MARKER_TYPE_OPTION, (DIRECT_MARKERS, SERVER_MARKERS), DIRECT_MARKERS)
