"""Proof that a writer is alive, and the decision that it is not.

A beat is a file that its writer replaces at a fixed interval (`.hoodie/.heartbeat/<instant>`, where Java Hudi looks
for it as well). It is also the claim of its instant time: the writer that creates it first owns that time.

Instead of being replaced, the file may say that its writer holds a lease of the lock provider for as long as it lives
(an ephemeral node, an etcd lease, a Redis session, a DynamoDB item): one claim, and then no more writes to the storage.

Death is decided by the storage's own clock on both sides, or by the lock service, which knows its sessions; never by
comparing two machines' clocks. A wrong decision costs a live writer its transaction; it cannot cost data, because the
rollback is an event of the commit log.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from lakelatch.errors import InvalidRequest
from lakelatch.option_values import ParsedOptions, option, whole
from lakelatch.storage.checksums import checksummed_json, open_checksummed_json

HEARTBEAT_INTERVAL_OPTION = "hoodie.client.heartbeat.interval_in_ms"
HEARTBEAT_MISSES_OPTION = "hoodie.client.heartbeat.tolerable.misses"
STORAGE = "storage"  # beats are files that are replaced
LEASE = "lease"  # beats are the renewals of a lease of the lock provider
HEARTBEAT_FOLDER = ".hoodie/.heartbeat"
HEARTBEAT_KEYS = "heartbeat/"
TASK_BEATS_FOLDER = ".hoodie/.lakelatch/beats"
_SECOND_MS = 1000


def least_age_ms(now_ms: int, modified_ms: int) -> int:
    """How old a file is at least, by two stamps of its storage's clock.

    Object stores tell whole seconds and cut off the rest, so that a file of a moment ago may look a second old.
    """
    in_seconds = now_ms % _SECOND_MS == modified_ms % _SECOND_MS == 0
    return now_ms - modified_ms - (_SECOND_MS if in_seconds else 0)


def heartbeat_path(instant: str) -> str:
    """The file that is claim and heartbeat of an instant."""
    return f"{HEARTBEAT_FOLDER}/{instant}"


def heartbeat_key(instant: str) -> str:
    """The lock key that a writer holds while it lives, if its proof is a lease."""
    return f"{HEARTBEAT_KEYS}{instant}"


def task_beats_folder(instant: str) -> str:
    """Where tasks beat that work for a transaction whose driver cannot. The claim itself is not theirs to write."""
    return f"{TASK_BEATS_FOLDER}/{instant}"


_INTERVAL_LEAST_MS = 100
SHORTEST_EXPIRY_MS = 2 * _INTERVAL_LEAST_MS


@dataclass(frozen=True)
class HeartbeatSettings(ParsedOptions):
    """Hudi's two options: the interval, and how many beats may be missed before a writer counts as dead."""

    interval_ms: int = option(HEARTBEAT_INTERVAL_OPTION, whole(_INTERVAL_LEAST_MS, 86_400_000), 60_000)
    tolerable_misses: int = option(HEARTBEAT_MISSES_OPTION, whole(1, 1000), 2)

    def __post_init__(self) -> None:
        if self.interval_ms < _INTERVAL_LEAST_MS:
            raise InvalidRequest(
                f"{HEARTBEAT_INTERVAL_OPTION}={self.interval_ms} is below {_INTERVAL_LEAST_MS}: "
                "a busy writer would look dead"
            )
        if self.tolerable_misses < 1:
            raise InvalidRequest(f"{HEARTBEAT_MISSES_OPTION}={self.tolerable_misses}: allow for at least 1")

    @property
    def expiry_ms(self) -> int:
        """A writer whose last beat is older than this counts as dead."""
        return self.interval_ms * (self.tolerable_misses + 1)


@dataclass(frozen=True)
class Beat:
    """The content of a beat: its writer, and the slot of the commit log after which its transaction must read all.

    The settings are the writer's own, so that an observer never measures it by another's; `proof` says where to
    look for its life, `STORAGE` or `LEASE`. `version` is lakelatch's there, "" for one that does not say it.
    """

    writer: str
    operation_id: str
    start_slot: int
    settings: HeartbeatSettings
    proof: str = STORAGE
    version: str = ""

    def to_bytes(self, count: int) -> bytes:
        return checksummed_json({**vars(self), "settings": vars(self.settings), "count": count})

    @classmethod
    def from_bytes(cls, data: bytes) -> Beat | None:
        """None for what other writers leave (Java's beats are empty), and for a beat that was damaged."""
        return parse_beat(data)


@lru_cache(maxsize=256)  # everybody who looks for dead writers reads the claims of leases again, which do not change
def parse_beat(data: bytes) -> Beat | None:
    """What `Beat.from_bytes` says."""
    values = open_checksummed_json(data)
    if values is None:
        return None
    try:
        return Beat(
            writer=values["writer"],
            operation_id=values["operation_id"],
            start_slot=values["start_slot"],
            settings=HeartbeatSettings(**values["settings"]),
            proof=values["proof"],
            version=str(values.get("version", "")),
        )
    except (KeyError, TypeError, InvalidRequest):
        return None
