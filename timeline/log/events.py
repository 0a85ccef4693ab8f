"""Events of the commit log: one slot has one, or several that were committed together."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from lakelatch.errors import CorruptTable
from lakelatch.storage.checksums import checksummed_json, open_checksummed_json
from lakelatch.timeline.instant import TIMELINE_FOLDER
from lakelatch.timeline.metadata import FileGroup

COMPLETE = "complete"  # an instant completed; its file is the completed one
PLAN = "plan"  # a table service was scheduled; its file is the requested one
ROLLBACK = "rollback"  # an instant was aborted; its file is the rollback's requested one
LOCKS = "locks"  # the table's writers use other locks from here on; its file is one of our own
CANCEL = "cancel"  # a plan is called off, or its part on some file groups; its file asks for that until it is done
ABORT = "abort"  # a plan that was called off has ended; its file is its terminal state
WITHDRAW = "withdraw"  # the record of a commit that others might take into a slot counts no more; it has no file

LOCK_CHANGES_FOLDER = ".hoodie/.lakelatch/lock_changes"
CANCEL_FOLDER = ".hoodie/.cancel"  # RFC-79's name
_FOLDERS = {LOCKS: LOCK_CHANGES_FOLDER, CANCEL: CANCEL_FOLDER}  # where other projections lie
_FORMAT = 1
_OF_DECISIONS = ("decision", "home", "after_aborted")
_GROUP_FORMAT = 2  # of several events in one slot
_PREPARED_FORMAT = 3  # of one event that a decision makes count, or that follows one that does not
_AT_ONCE_FORMAT = 4  # of several events whose files are made at once


@dataclass(frozen=True)
class Event:
    """One timeline event, as its slot stores it.

    `number` is its slot's. `time` is its own (the completion time, or the requested time of a plan or rollback); it is
    greater than that of every event before it. `instant` is the requested time of the instant that the event is about,
    and `target` that of the instant which a rollback aborts, or the plan that a cancellation ends (then `file_groups`
    is the part that it ends, and empty for the whole). `file` is the name of the projection in the timeline folder,
    `content` its bytes, unless they lie at `content_path`, with `content_digest` as their SHA-256. `watermark`: slots
    below it may have been removed. `undoes`: names of the completed files that this rollback or restore takes off the
    timeline, the last completed one first. `lock_domain` names the locks that the table's writers use after this
    event; each slot carries it on, "" if no writer has named any.

    An event with a `decision` is *prepared*: a part of a transaction over several tables. It counts once the decision
    of that name, which lies in the table at `home`, says so, and no slot follows it before. `after_aborted`: the slot
    before this one has a prepared event that does not count. `at_once`: the files of its slot may appear in any order,
    and each says which ones come before it (`BEFORE_KEY`).
    """

    kind: str
    action: str
    instant: str
    operation_id: str
    writer: str
    file_groups: frozenset[FileGroup] = frozenset()
    target: str | None = None
    content: bytes = b""
    content_path: str | None = None
    content_digest: str = ""
    token: int = 0
    number: int = 0
    time: str = ""
    file: str = ""
    watermark: int = 0
    lock_domain: str = ""
    undoes: tuple[str, ...] = ()
    decision: str = ""
    home: str = ""
    after_aborted: bool = False
    at_once: bool = False

    @property
    def path(self) -> str:
        return path_of(self.kind, self.file)

    def ends(self, instant: str) -> bool:
        """Whether the instant can complete no more after this event, because it has, or was aborted."""
        if self.kind == COMPLETE:
            return self.instant == instant
        return self.kind in (ROLLBACK, ABORT) and self.target == instant

    def values(self) -> dict[str, Any]:
        """The event as plain JSON values; `of_values` reads them."""
        values = dict(vars(self))
        del values["at_once"]  # which the slot's format says
        if not self.has_decision:  # as older versions write it
            for name in _OF_DECISIONS:
                del values[name]
        values["file_groups"] = sorted(self.file_groups)
        values["content"] = base64.b64encode(self.content).decode("ascii")
        return values

    @classmethod
    def of_values(cls, values: Mapping[str, Any], at_once: bool = False) -> Event:
        """Errors: `ValueError`, `KeyError`, `TypeError` for values that are no event's."""
        groups = frozenset((partition, file_id) for partition, file_id in values["file_groups"])
        undoes = tuple(values.get("undoes", ()))  # slots of older versions have none
        content = base64.b64decode(values["content"], validate=True)
        return cls(**{**values, "file_groups": groups, "undoes": undoes, "content": content, "at_once": at_once})

    @property
    def has_decision(self) -> bool:
        """Whether it has to do with a decision: its own, or that of the slot before."""
        return bool(self.decision) or self.after_aborted

    def aborted(self) -> Event:
        """What a prepared event is once it is decided that it does not count: nothing that anybody has to heed."""
        return replace(self, kind=WITHDRAW, target=None, file="", content=b"", content_path=None, content_digest="")

    def placed(self, number: int, time: str, file: str, watermark: int, **others: Any) -> Event:
        """The same event, for a certain slot, with `others` of its values."""
        return replace(self, number=number, time=time, file=file, watermark=watermark, **others)


def path_of(kind: str, file: str) -> str:
    """Where the file of an event of that kind lies."""
    return f"{_FOLDERS.get(kind, TIMELINE_FOLDER)}/{file}"


def slot_bytes(events: Sequence[Event]) -> bytes:
    """The content of the slot that all these events share, in the order of their times."""
    if len(events) == 1:
        version = _PREPARED_FORMAT if events[0].has_decision else _FORMAT
        return checksummed_json({"format": version, **events[0].values()})
    version = _AT_ONCE_FORMAT if events[0].at_once else _GROUP_FORMAT
    values = {"format": version, "number": events[0].number, "events": [event.values() for event in events]}
    return checksummed_json(values)


@lru_cache(maxsize=64)  # each commit reads the last slot several times
def slot_events(data: bytes, number: int) -> tuple[Event, ...]:
    """The events of a slot, one or several. Errors: `CorruptTable` for bytes that no writer wrote as this slot."""
    try:
        values = open_checksummed_json(data)
        if values is None:
            raise ValueError("its checksum is wrong, or missing")
        version = values.pop("format")
        if version not in (_FORMAT, _GROUP_FORMAT, _PREPARED_FORMAT, _AT_ONCE_FORMAT) or values["number"] != number:
            raise ValueError("another format or number")
        several = version in (_GROUP_FORMAT, _AT_ONCE_FORMAT)
        stored, at_once = values["events"] if several else [values], version == _AT_ONCE_FORMAT
        events = tuple(Event.of_values(one, at_once) for one in stored)
        times = [event.time for event in events]
        if not events or times != sorted(set(times)) or any(event.number != number for event in events):
            raise ValueError("its events are in no order")
        return events
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptTable(
            f"slot {number} of the commit log is damaged ({error}): restore {slot_path(number)} from a copy; "
            "nothing was changed",
            slot=number,
        ) from error


LOG_FOLDER = ".hoodie/.lakelatch/log"
_DIGITS = 20
_SUFFIX = ".json"


def slot_name(number: int) -> str:
    return f"{number:0{_DIGITS}d}{_SUFFIX}"


def slot_path(number: int) -> str:
    return f"{LOG_FOLDER}/{slot_name(number)}"


def slot_number(name: str) -> int | None:
    """The number of a slot's file name, or None for a file that is no slot."""
    if len(name) != _DIGITS + len(_SUFFIX) or not name.endswith(_SUFFIX):
        return None
    digits = name[:_DIGITS]
    return int(digits) if digits.isascii() and digits.isdigit() else None
