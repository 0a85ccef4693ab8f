"""How a transaction manager behaves: frozen, validated once, from Hudi's option keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from lakelatch.errors import InvalidRequest
from lakelatch.heartbeat.contract import HeartbeatSettings
from lakelatch.system import process_name

OPTIMISTIC = "OPTIMISTIC_CONCURRENCY_CONTROL"
NON_BLOCKING = "NON_BLOCKING_CONCURRENCY_CONTROL"
SINGLE_WRITER = "SINGLE_WRITER"

MODE_OPTION = "hoodie.write.concurrency.mode"
RETRIES_OPTION = "hoodie.write.num.retries.on.conflict.failures"
HEARTBEAT_INTERVAL_OPTION = "hoodie.client.heartbeat.interval_in_ms"
HEARTBEAT_MISSES_OPTION = "hoodie.client.heartbeat.tolerable.misses"
FAILED_WRITES_OPTION = "hoodie.clean.failed.writes.policy"
WRITER_NAME_OPTION = "lakelatch.writer.name"
KNOWN_TRANSACTION_KEYS = frozenset(
    {
        MODE_OPTION,
        RETRIES_OPTION,
        HEARTBEAT_INTERVAL_OPTION,
        HEARTBEAT_MISSES_OPTION,
        FAILED_WRITES_OPTION,
        WRITER_NAME_OPTION,
    }
)


@dataclass(frozen=True)
class TransactionSettings:
    """`mode` is Hudi's; SINGLE_WRITER is checked like optimistic control, so that a second writer loses no row.

    `writer` is the name that people see: in heartbeats, in the log, in conflicts. Host and process id by default.
    """

    mode: str = OPTIMISTIC
    lock_timeout_s: float = 60.0
    conflict_retries: int = 0
    heartbeat: HeartbeatSettings = field(default_factory=HeartbeatSettings)
    writer: str = field(default_factory=process_name)

    @classmethod
    def from_options(cls, options: Mapping[str, str], lock_timeout_s: float) -> TransactionSettings:
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
        return cls(
            mode=mode,
            lock_timeout_s=lock_timeout_s,
            conflict_retries=whole_number(options, RETRIES_OPTION, 0, 0, 1000),
            heartbeat=HeartbeatSettings(
                interval_ms=whole_number(options, HEARTBEAT_INTERVAL_OPTION, 60_000, 100, 86_400_000),
                tolerable_misses=whole_number(options, HEARTBEAT_MISSES_OPTION, 2, 1, 1000),
            ),
            writer=options.get(WRITER_NAME_OPTION) or process_name(),
        )


def whole_number(options: Mapping[str, str], key: str, default: int, least: int, most: int) -> int:
    """An option's value as an integer within bounds; `InvalidRequest` names the option, the value and the bounds."""
    text = str(options.get(key, default)).strip()
    try:
        value = int(text)
    except ValueError:
        raise InvalidRequest(f"{key}={text!r} is no whole number") from None
    if not least <= value <= most:
        raise InvalidRequest(f"{key}={value} is out of range: use {least} to {most}")
    return value
