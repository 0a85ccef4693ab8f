"""Requests to cancel plans, as their files in `.hoodie/.cancel` show them.

Each is the projection of a slot of the log (`transactions/attempts/cancellation.py`): it exists before any later slot
does, and until the plan has ended.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import lru_cache

from lakelatch.errors import CorruptTable
from lakelatch.storage.checksums import open_checksummed_json
from lakelatch.storage.contract import NotFound, Storage
from lakelatch.timeline.instant import Instant, parse_file_name, requested_time
from lakelatch.timeline.log.events import CANCEL_FOLDER
from lakelatch.timeline.metadata import FileGroup
from lakelatch.timeline.plans.service_plan import ServicePlan, read_service_plan


@dataclass(frozen=True)
class CancelRequest:
    """A request to cancel one plan. `groups` is the part that is cancelled, empty for the whole plan."""

    instant: str
    action: str
    groups: frozenset[FileGroup] = frozenset()

    @property
    def whole(self) -> bool:
        """Whether the whole plan is cancelled."""
        return not self.groups

    def covers(self, groups: Collection[FileGroup]) -> bool:
        """Whether the plan will replace none of these file groups."""
        return self.whole or self.groups.issuperset(groups)


def cancel_requests(storage: Storage) -> list[CancelRequest]:
    """The requests whose files are there, by the plans' requested times. One listing where there is none.

    Some may be of plans that have ended, and are still to be removed.
    """
    names: dict[str, list[str]] = {}
    for name in storage.names(CANCEL_FOLDER):
        names.setdefault(requested_time(name), []).append(name)
    found = (_read(storage, instant, inside) for instant, inside in sorted(names.items()))
    return [one for one in found if one is not None]


def request_of(storage: Storage, instant: str, action: str) -> CancelRequest | None:
    """The request to cancel a plan, None if there is none.

    Once the tail's projection is complete, it has all that was requested up to the tail.
    """
    names = _names_of(storage, instant)
    if instant in names:
        return CancelRequest(instant, action)
    return _read(storage, instant, names)


def is_cancelled(storage: Storage, instant: str) -> bool:
    """Whether the whole of a plan was cancelled; cheap, for its executor. True stays true."""
    return storage.exists(f"{CANCEL_FOLDER}/{instant}")


def forget_requests(storage: Storage, instant: str) -> None:
    """Removes the requests' files once the plan has ended; that for the whole plan last, since it stops executors."""
    for name in sorted(_names_of(storage, instant), reverse=True):
        storage.delete(f"{CANCEL_FOLDER}/{name}")


@lru_cache(maxsize=1024)  # a plan never changes, and each concurrent commit reads it
def _cached_plan(storage: Storage, instant: str, action: str) -> ServicePlan:
    return read_service_plan(storage, instant, action)


def plan_of(storage: Storage, pending: Instant) -> ServicePlan | None:
    """The plan of a pending instant; None if it has gone since."""
    try:
        return _cached_plan(storage, pending.requested, pending.action)
    except NotFound:
        return None


def _names_of(storage: Storage, instant: str) -> list[str]:
    return [name for name in storage.names(CANCEL_FOLDER) if requested_time(name) == instant]


def _read(storage: Storage, instant: str, names: Collection[str]) -> CancelRequest | None:
    if not names or parse_file_name(f"{instant}.inflight") is None:
        return None
    action, groups, whole = "", frozenset[FileGroup](), False
    for name in names:
        path = f"{CANCEL_FOLDER}/{name}"
        try:
            values = open_checksummed_json(storage.read(path), path)
        except NotFound:
            continue
        if values is None:
            raise CorruptTable(f"{path} is no request to cancel a plan: remove it, and ask again", path=path)
        action = str(values["action"])
        whole = whole or name == instant
        groups |= {(str(partition), str(file_id)) for partition, file_id in values["file_groups"]}
    return CancelRequest(instant, action, frozenset() if whole else groups) if action else None
