"""How a transaction manager behaves: frozen, validated once, from Hudi's option keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from lakelatch.errors import InvalidRequest
from lakelatch.heartbeat.contract import LEASE, STORAGE, HeartbeatSettings
from lakelatch.option_values import Option, ParsedOptions, flag, one_of, option, stripped_or_none, whole
from lakelatch.system import process_name
from lakelatch.transactions.base.elision import AUTO, ELISION_OPTION, OFF
from lakelatch.transactions.base.instant_clock import DEFAULT_MAX_DRIFT_MS, MAX_DRIFT_OPTION
from lakelatch.transactions.conflicts.strategies import BUCKET_STRATEGY, SIMPLE_STRATEGY, STRATEGY_OPTION

OPTIMISTIC = "OPTIMISTIC_CONCURRENCY_CONTROL"
NON_BLOCKING = "NON_BLOCKING_CONCURRENCY_CONTROL"
SINGLE_WRITER = "SINGLE_WRITER"

MODE_OPTION = "hoodie.write.concurrency.mode"
RETRIES_OPTION = "hoodie.write.num.retries.on.conflict.failures"
HEARTBEAT_TYPE_OPTION = "lakelatch.heartbeat.type"
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
_DAY_MS = 86_400_000
_EARLY = Option(EARLY_OPTION, flag, False)


def _mode(key: str, text: str) -> str:
    if text.upper() not in (OPTIMISTIC, NON_BLOCKING, SINGLE_WRITER):
        raise InvalidRequest(f"{key}={text!r} is no concurrency mode: use {OPTIMISTIC} or {NON_BLOCKING}")
    return text.upper()


def _lazy(key: str, text: str) -> None:
    if text.upper() != "LAZY":
        raise InvalidRequest(f"{key}={text.upper()}: several writers need LAZY, because EAGER rolls back the live ones")


def _name(key: str, text: str) -> str:
    return text or process_name()


@dataclass(frozen=True)
class EarlySettings(ParsedOptions):
    """How conflicts are looked for while a write is still at work.

    `strategy` None is the default one of the marker type. `check_commits` also checks writers that have committed and
    whose markers are gone. Running tasks check every `period_ms` whether their write has lost, first after `delay_ms`.
    """

    strategy: str | None = option(EARLY_STRATEGY_OPTION, stripped_or_none)
    check_commits: bool = option(EARLY_COMMITS_OPTION, flag, False)
    delay_ms: int = option(EARLY_DELAY_OPTION, whole(0, _DAY_MS), 0)
    period_ms: int = option(EARLY_PERIOD_OPTION, whole(10, _DAY_MS), 1000)
    marker_type: str = option(MARKER_TYPE_OPTION, one_of(DIRECT_MARKERS, SERVER_MARKERS), DIRECT_MARKERS)


@dataclass(frozen=True)
class MarkerServerSettings(ParsedOptions):
    """How the driver's marker server listens and writes; `host` None is the driver's own address, `port` 0 a free one.

    Hudi waits 50 ms for a batch and writes 20 files at once. Here the markers that arrive while a file is written are
    the next batch, so a short wait and few files suffice.
    """

    host: str | None = option(MARKER_HOST_OPTION, stripped_or_none)
    port: int = option(MARKER_PORT_OPTION, whole(0, 65_535), 0)
    files_at_once: int = option(MARKER_THREADS_OPTION, whole(1, 1000), 4)
    interval_ms: int = option(MARKER_INTERVAL_OPTION, whole(0, 60_000), 2)


@dataclass(frozen=True)
class TransactionSettings(ParsedOptions):
    """`mode` is Hudi's; SINGLE_WRITER is checked like optimistic control, so that a second writer loses no row.

    `writer` is the name that people see: in heartbeats, in the log, in conflicts. Host and process id by default.
    `heartbeat_type` is `storage` (files, as Hudi's) or `lease` (of the lock provider). `max_drift_ms` bounds how far
    this machine's clock may be ahead of the storage's. `conflict_strategy` is the name of an installed one; under
    non-blocking control it has no effect. `early` is None if conflicts are looked for at the commit only,
    `marker_server` if markers are direct. `lock_elision` is `auto`, where a commit asks for the lock only after it has
    lost a race (never with Hudi's own locks), or `off`. With `group_commit`, which the table says, those that have
    lost a slot are put into the log by one of them, and with `side_by_side`, which it says as well, shown all at once.
    """

    also = (_EARLY, Option("hoodie.clean.failed.writes.policy", _lazy, None, ("hoodie.cleaner.policy.failed.writes",)))
    mode: str = option(MODE_OPTION, _mode, OPTIMISTIC)
    lock_timeout_s: float = 60.0
    conflict_retries: int = option(RETRIES_OPTION, whole(0, 1000), 0)
    heartbeat: HeartbeatSettings = field(default_factory=HeartbeatSettings)
    writer: str = option(WRITER_NAME_OPTION, _name, process_name)
    heartbeat_type: str = option(HEARTBEAT_TYPE_OPTION, one_of(STORAGE, LEASE), STORAGE)
    max_drift_ms: int = option(MAX_DRIFT_OPTION, whole(1000, 10**14), DEFAULT_MAX_DRIFT_MS)
    conflict_strategy: str = option(STRATEGY_OPTION, stripped_or_none, BUCKET_STRATEGY)
    early: EarlySettings | None = field(default=None, metadata={"of": EarlySettings})
    marker_server: MarkerServerSettings | None = field(default=None, metadata={"of": MarkerServerSettings})
    lock_elision: str = option(ELISION_OPTION, one_of(AUTO, OFF), AUTO)
    group_commit: bool = True
    side_by_side: bool = False

    def completed(self, values: Mapping[str, str]) -> TransactionSettings:
        """Early detection and the marker server are checked, and None if they are off."""
        detects = _EARLY.of(values)
        if detects and self.mode != OPTIMISTIC:
            raise InvalidRequest(
                f"{EARLY_OPTION}=true needs {MODE_OPTION}={OPTIMISTIC}, and it is {self.mode}: under it there is no "
                "conflict that could be detected early. Remove one of the two",
                option=EARLY_OPTION,
            )
        has_server = self.early is not None and self.early.marker_type == SERVER_MARKERS
        bucketed = values.get(_INDEX_OPTION, "BUCKET").upper() == "BUCKET"
        default = BUCKET_STRATEGY if bucketed else SIMPLE_STRATEGY
        return replace(
            self,
            conflict_strategy=values.get(STRATEGY_OPTION, "").strip() or default,
            early=self.early if detects else None,
            marker_server=self.marker_server if has_server else None,
        )
