"""Proof that a writer is alive, and the judgement that it is not.

A beat is a file that its writer replaces at a fixed interval (`.hoodie/.heartbeat/<instant>`, where Java Hudi looks
for it as well). It is also the claim of its instant time: whoever creates it first owns that time.

Death is judged by the storage's own clock on both sides, never by comparing two machines' clocks. A wrong judgement
costs a live writer its transaction; it cannot cost data, because the rollback is an event of the commit log.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from lakelatch.errors import InvalidRequest

HEARTBEAT_FOLDER = ".hoodie/.heartbeat"
TASK_BEATS_FOLDER = ".hoodie/.lakelatch/beats"


def heartbeat_path(instant: str) -> str:
    return f"{HEARTBEAT_FOLDER}/{instant}"


def task_beats_folder(instant: str) -> str:
    """Where tasks beat that work for a transaction whose driver cannot. The claim itself is not theirs to write."""
    return f"{TASK_BEATS_FOLDER}/{instant}"


@dataclass(frozen=True)
class HeartbeatSettings:
    """Hudi's two options: the interval, and how many beats may be missed before a writer counts as dead."""

    interval_ms: int = 60_000
    tolerable_misses: int = 2

    def __post_init__(self) -> None:
        if self.interval_ms < 100:
            raise InvalidRequest(
                f"hoodie.client.heartbeat.interval_in_ms={self.interval_ms} is below 100: a busy writer would look dead"
            )
        if self.tolerable_misses < 1:
            raise InvalidRequest(
                f"hoodie.client.heartbeat.tolerable.misses={self.tolerable_misses}: allow for at least 1"
            )

    @property
    def expiry_ms(self) -> int:
        """A writer whose last beat is older than this counts as dead."""
        return self.interval_ms * (self.tolerable_misses + 1)


@dataclass(frozen=True)
class Beat:
    """What a beat says: whose it is, and the slot of the commit log after which its transaction must still read all.

    The settings are the writer's own, so that an observer never judges it by another's.
    """

    writer: str
    operation_id: str
    start_slot: int
    settings: HeartbeatSettings

    def to_bytes(self, count: int) -> bytes:
        return json.dumps({**asdict(self), "count": count}, sort_keys=True).encode("utf-8")

    @classmethod
    def from_bytes(cls, data: bytes) -> Beat | None:
        """None for what other writers leave: Java's beats are empty."""
        try:
            values = json.loads(data)
            return cls(
                writer=values["writer"],
                operation_id=values["operation_id"],
                start_slot=int(values["start_slot"]),
                settings=HeartbeatSettings(**values["settings"]),
            )
        except (ValueError, KeyError, TypeError, InvalidRequest):
            return None
