"""Hudi's storage-based lock: one JSON object in the table, which Java writers of Hudi take too."""

from __future__ import annotations

import json
from dataclasses import dataclass
from uuid import UUID

from lakelatch.errors import CorruptTable
from lakelatch.locks.hudi.java_lock import JavaLock, JavaLockState
from lakelatch.locks.object_store.records import put_version
from lakelatch.storage.checksums import json_object
from lakelatch.storage.contract import NotFound
from lakelatch.storage.object_store import ObjectStore
from lakelatch.system import System

PATH = ".hoodie/.locks/table_lock.json"
SKEW_MS = 500  # of Hudi: so far may the wall clocks of two writers differ
_LEFT_MOST_MS = 10**12  # of damaged ones, which would be too much for a float


@dataclass(frozen=True)
class _State(JavaLockState):
    valid_until_ms: int = 0


class HudiTableObject(JavaLock):
    """`.hoodie/.locks/table_lock.json`, with `expired`, `validUntil` (wall clock, in ms) and `owner` (a UUID).

    Its rule compares wall clocks, which we do nowhere else: a lock is free to take if it is expired, or if the taker's
    clock is more than 500 ms beyond `validUntil`. So it is safe only while the clocks of all writers agree that far.
    Our own leases still end by the monotonic clock, a tenth of the time before `validUntil`.

    A release puts `expired`; the object is never removed.
    """

    expires_by_silence = False

    def __init__(self, objects: ObjectStore, lease_s: float, system: System) -> None:
        self._objects = objects
        self._lease_s = lease_s
        self._system = system

    def owner_of(self, request: str) -> str:
        return str(UUID(request))

    def read(self) -> _State | None:
        try:
            found = self._objects.get(PATH)
        except NotFound:
            return None
        value = json_object(found.data) or {}
        expired, until_ms, owner = value.get("expired"), value.get("validUntil"), value.get("owner")
        if not isinstance(expired, bool) or type(until_ms) is not int or not isinstance(owner, str):
            raise CorruptTable(
                f"{PATH!r} in {self._objects.where} is no lock of Hudi's: stop all writers, and remove it", path=PATH
            )
        left_ms = until_ms + SKEW_MS - self._system.realtime_ms()
        return _State(
            owner, found.version, min(max(left_ms, 0), _LEFT_MOST_MS) / 1000, expired or left_ms < 0, until_ms
        )

    def write(self, owner: str, expected: JavaLockState | None) -> _State | None:
        until_ms = self._system.realtime_ms() + int(self._lease_s * 1000)
        return self._put(_State(owner, "", self._lease_s, False, until_ms), expected)

    def release(self, state: JavaLockState) -> tuple[bool, JavaLockState | None]:
        until_ms = state.valid_until_ms if isinstance(state, _State) else self._system.realtime_ms()
        left = self._put(_State(state.owner, "", 0.0, True, until_ms), state)
        return left is not None, left

    def _put(self, wanted: _State, expected: JavaLockState | None) -> _State | None:
        value = {"expired": wanted.lapsed, "validUntil": wanted.valid_until_ms, "owner": wanted.owner}
        data, version_before = json.dumps(value).encode(), expected.version if expected else None
        version = put_version(self._objects, PATH, data, version_before)
        if version is not None:
            return _State(wanted.owner, version, wanted.lease_s, wanted.lapsed, wanted.valid_until_ms)
        found = self.read()  # a refusal may be the second answer to a put that has happened
        same = found is not None and (found.owner, found.valid_until_ms) == (wanted.owner, wanted.valid_until_ms)
        return found if same and found is not None and (found.lapsed or not wanted.lapsed) else None
