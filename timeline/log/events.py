"""Events of the commit log: what one slot says."""

from __future__ import annotations

import base64
from dataclasses import dataclass, replace
from functools import lru_cache

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

LOCK_CHANGES_FOLDER = ".hoodie/.lakelatch/lock_changes"
CANCEL_FOLDER = ".hoodie/.cancel"  # RFC-79's name
_FOLDERS = {LOCKS: LOCK_CHANGES_FOLDER, CANCEL: CANCEL_FOLDER}  # where other projections lie
_FORMAT = 1


@dataclass(frozen=True)
class Event:
    """One timeline event, as its slot stores it.

    `time` is the slot's own time (the completion time, or the requested time of a plan or rollback); it is greater than
    the predecessor's. `instant` is the requested time of the instant that the event is about, and `target` that of
    the instant which a rollback aborts, or the plan that a cancellation ends (then `file_groups` is the part that it
    ends, and empty for the whole). `file` is the name of the projection in the timeline folder, `content` its
    bytes, unless they lie at `content_path`, with `content_digest` as their SHA-256. `watermark`: slots below it may
    have been removed. `undoes`: names of the completed files that this rollback or restore takes off the timeline, the
    last completed one first. `lock_domain` names the locks that the table's writers use after this event; each slot
    carries it on, "" as long as nobody has said.
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

    @property
    def path(self) -> str:
        return f"{_FOLDERS.get(self.kind, TIMELINE_FOLDER)}/{self.file}"

    def ends(self, instant: str) -> bool:
        """Whether the instant can complete no more after this event, because it has, or was aborted."""
        if self.kind == COMPLETE:
            return self.instant == instant
        return self.kind in (ROLLBACK, ABORT) and self.target == instant

    def to_bytes(self) -> bytes:
        values = dict(vars(self))
        values["file_groups"] = sorted(self.file_groups)
        values["content"] = base64.b64encode(self.content).decode("ascii")
        return checksummed_json({"format": _FORMAT, **values})

    @classmethod
    @lru_cache(maxsize=64)  # each commit reads the last slot several times
    def from_bytes(cls, data: bytes, number: int) -> Event:
        """Errors: `CorruptTable` for bytes that no writer of this format wrote as this slot."""
        try:
            values = open_checksummed_json(data)
            if values is None:
                raise ValueError("its checksum is wrong, or missing")
            if values.pop("format") != _FORMAT or values["number"] != number:
                raise ValueError("another format or number")
            values["file_groups"] = frozenset((p, f) for p, f in values["file_groups"])
            values["undoes"] = tuple(values.get("undoes", ()))  # slots of older versions have none
            values["content"] = base64.b64decode(values["content"], validate=True)
            return cls(**values)
        except (ValueError, KeyError, TypeError) as error:
            raise CorruptTable(
                f"slot {number} of the commit log is damaged ({error}): restore {slot_path(number)} from a copy; "
                "nothing was changed",
                slot=number,
            ) from error

    def placed(self, number: int, time: str, file: str, watermark: int) -> Event:
        """The same event, for a certain slot."""
        return replace(self, number=number, time=time, file=file, watermark=watermark)


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
