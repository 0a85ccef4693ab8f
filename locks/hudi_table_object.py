"""Hudi's storage-based lock: one JSON object in the table, which Java writers of Hudi take too."""

from __future__ import annotations

import json
from dataclasses import dataclass
from uuid import UUID

from lakelatch.errors import CorruptTable
from lakelatch.locks.blobs import Blobs, read_json
from lakelatch.locks.foreign_names import ForeignHold, ForeignLock
from lakelatch.system import System

PATH = ".hoodie/.locks/table_lock.json"
SKEW_MS = 500  # of Hudi: so far may the wall clocks of two writers differ
_LEFT_MOST_MS = 10**12  # of damaged ones, which would be too much for a float


@dataclass(frozen=True)
class _Object(ForeignHold):
    valid_until_ms: int = 0


class HudiTableObject(ForeignLock):
    """`.hoodie/.locks/table_lock.json`, with `expired`, `validUntil` (wall clock, in ms) and `owner` (a UUID).

    Its rule compares wall clocks, which we do nowhere else: a lock is free to take if it is expired, or if the taker's
    clock is more than 500 ms beyond `validUntil`. So it is safe only while the clocks of all writers agree that far.
    Our own leases still end by the monotonic clock, a tenth of the time before `validUntil`.

    Giving it up puts `expired`; the object is never removed.
    """

    by_silence = False

    def __init__(self, blobs: Blobs, lease_s: float, system: System) -> None:
        self._blobs = blobs
        self._lease_s = lease_s
        self._system = system

    def owner_of(self, request: str) -> str:
        return str(UUID(request))

    def read(self) -> _Object | None:
        found = self._blobs.get(PATH)
        if found is None:
            return None
        value = read_json(found[0], PATH, self._blobs.where)
        expired, until_ms, owner = value.get("expired"), value.get("validUntil"), value.get("owner")
        if not isinstance(expired, bool) or type(until_ms) is not int or not isinstance(owner, str):
            raise CorruptTable(
                f"{PATH!r} in {self._blobs.where} is no lock of Hudi's: stop all writers, and remove it", path=PATH
            )
        left_ms = until_ms + SKEW_MS - self._system.realtime_ms()
        return _Object(owner, found[1], min(max(left_ms, 0), _LEFT_MOST_MS) / 1000, expired or left_ms < 0, until_ms)

    def write(self, owner: str, expected: ForeignHold | None) -> _Object | None:
        until_ms = self._system.realtime_ms() + int(self._lease_s * 1000)
        return self._put(_Object(owner, "", self._lease_s, False, until_ms), expected)

    def free(self, held: ForeignHold) -> tuple[bool, ForeignHold | None]:
        until_ms = held.valid_until_ms if isinstance(held, _Object) else self._system.realtime_ms()
        left = self._put(_Object(held.owner, "", 0.0, True, until_ms), held)
        return left is not None, left

    def _put(self, wanted: _Object, expected: ForeignHold | None) -> _Object | None:
        value = {"expired": wanted.lapsed, "validUntil": wanted.valid_until_ms, "owner": wanted.owner}
        version = self._blobs.put(PATH, json.dumps(value).encode(), expected.version if expected else None)
        if version is not None:
            return _Object(wanted.owner, version, wanted.lease_s, wanted.lapsed, wanted.valid_until_ms)
        found = self.read()  # a refusal may be the second answer to a put that has happened
        same = found is not None and (found.owner, found.valid_until_ms) == (wanted.owner, wanted.valid_until_ms)
        return found if same and found is not None and (found.lapsed or not wanted.lapsed) else None
