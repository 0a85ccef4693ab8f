"""Decisions: whether the prepared events of a transaction over several tables count.

A decision is one create-only object in the first of the tables, its *home*: commit or abort, whoever comes first. The
owner puts a commit once each table's log has its prepared event; anybody may put an abort before that. Nobody adds a
slot behind a prepared event before he knows the decision, and the slot that follows an aborted one says so. So a log
speaks for itself again as soon as it has gone on, and a decision is needed only while a prepared event is the last one.

When the completed files of all parts have been made, a second object says that nobody needs a commit any more. Both are
removed with the slots of the home that are as old. Where a table's log does not say by itself what was decided, because
the part has no file (of a table that was only read, or of what was aborted), that object names its slot, and both stay
until there is one behind it. An abort whose owner has not read it stays: it may be asleep before its own put.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from threading import Lock
from typing import Protocol

from lakelatch.errors import CorruptTable, Unavailable
from lakelatch.retry import tries
from lakelatch.storage.checksums import checksummed_json, open_checksummed_json
from lakelatch.storage.conditional_puts import BACKOFF, TRIES_MAX
from lakelatch.storage.contract import NotFound, PutUnknown, Storage
from lakelatch.storage.uris import open_storage, without_secrets
from lakelatch.system import REAL_SYSTEM, System
from lakelatch.timeline.history.history import History
from lakelatch.timeline.log.events import Event
from lakelatch.timeline.properties_file import PROPERTIES_PATH

DECISIONS_FOLDER = ".hoodie/.lakelatch/decisions"
_DONE = ".done"
_ENDED = ".ended"  # the same, for slots that others have to come behind first
_DIGITS = 20
_REMEMBERED_MAX = 1024


class Undecided(Unavailable):
    """The last slot has a prepared event, and nobody has decided yet whether it counts, as far as can be told."""

    @classmethod
    def of(cls, event: Event, reason: str = "") -> Undecided:
        """`reason` says why the decision cannot be asked for."""
        why = f", which cannot be asked ({reason})" if reason else ""
        return cls(
            f"slot {event.number} is a part of a transaction over several tables that is not decided yet: its first "
            f"table is {without_secrets(event.home)}{why}",
            event=event,
            reason=reason,
        )

    @property
    def reason(self) -> str:
        """Why the decision cannot be asked for, "" if it is not there."""
        return str(self.details.get("reason", ""))

    @property
    def event(self) -> Event:
        """The prepared event."""
        found = self.details["event"]
        assert isinstance(found, Event)
        return found


@dataclass(frozen=True)
class PreparedPart:
    """One table's part of a decision: where its prepared event lies."""

    table: str
    slot: int
    instant: str
    completion: str


@dataclass(frozen=True)
class LastSlot:
    """A prepared event of which a table's log says what was decided as soon as there is a slot behind it."""

    table: str
    slot: int


@dataclass(frozen=True)
class Decision:
    """What has been decided; a commit says of which parts."""

    commits: bool
    parts: tuple[PreparedPart, ...] = ()

    def to_bytes(self) -> bytes:
        return checksummed_json({"format": 1, "commits": self.commits, "parts": [asdict(part) for part in self.parts]})

    @classmethod
    def from_bytes(cls, data: bytes, path: str) -> Decision:
        """Errors: `CorruptTable`."""
        try:
            values = open_checksummed_json(data)
            if values is None or values["format"] != 1:
                raise ValueError("its checksum is wrong, or it is of another version")
            return cls(bool(values["commits"]), tuple(PreparedPart(**part) for part in values["parts"]))
        except (ValueError, KeyError, TypeError) as error:
            raise CorruptTable(
                f"the decision {path} is damaged ({error}): restore it from a copy; nothing was changed", path=path
            ) from error


ABORT = Decision(False)


def decision_name(home_slot: int, operation_id: str) -> str:
    """The name of the decision of a try whose first part has this slot."""
    return f"{home_slot:0{_DIGITS}d}-{operation_id}"


def operation_of(decision: str) -> str:
    """The transaction over several tables of which this is a decision: each of its tries has one."""
    return decision[_DIGITS + 1 :]


class Prepared(Protocol):
    """A table's part of a transaction over several, as it is told of its events; the first one is asked for."""

    def put(self, events: Sequence[Event]) -> None:
        """Called once all events have their slot, of which it is still to be seen whether it is part of the log."""
        ...

    def decided(self, event: Event) -> bool:
        """Called when it is; waits until it is known whether the event counts."""
        ...


class Decisions:
    """Finds and makes the decisions of one table's prepared events. Threads may share it.

    `open_table` opens the storage of another table by its URI, with the rights of this process.
    """

    def __init__(
        self,
        storage: Storage,
        system: System = REAL_SYSTEM,
        open_table: Callable[[str], Storage] = open_storage,
    ) -> None:
        self._storage, self._system, self._open_table = storage, system, open_table
        self._guard = Lock()
        self._known: dict[str, Decision] = {}

    def counts(self, event: Event, following: Sequence[Event]) -> bool:
        """Whether a prepared event counts; `following` are the events of the slot after it, if there is one.

        What its own table says comes first. Errors: `Undecided`, also if its home cannot be asked.
        """
        if following:
            return not following[0].after_aborted
        if self._was_shown(event):
            return True
        found, reason = None, ""
        try:
            found = self.find(event.home, event.decision)
        except Unavailable as error:
            reason = error.message or "it does not answer"
        if found is None and event.home != self._storage.uri and event.number == int(event.decision[:_DIGITS]):
            found = self._in_own_folder(event.decision)  # of a home that was moved, or is a copy
        if found is not None and found.commits:
            return True
        # It may have been removed since, because nobody needed it, and an abort may have followed: the file is there.
        if self._was_shown(event):
            return True
        if found is None:
            raise Undecided.of(event, reason)
        return False

    def find(self, home: str, name: str) -> Decision | None:
        """The decision, None if there is none yet. Errors: `Unavailable`, `CorruptTable`."""
        with self._guard:
            known = self._known.get(name)
        if known is not None:
            return known
        path = f"{DECISIONS_FOLDER}/{name}"
        try:
            return self._keep(name, Decision.from_bytes(self._home(home).read(path), path))
        except NotFound:
            return None

    def decide(self, home: str, name: str, wanted: Decision) -> Decision:
        """Decides, unless others have; the decision that stands.

        Errors: `PutUnknown` if it cannot be told what stands, `Unavailable` if nothing can have been put.
        """
        storage, path, sent = self._home(home), f"{DECISIONS_FOLDER}/{name}", False
        for _ in tries(self._system, BACKOFF, TRIES_MAX):
            try:
                if storage.put_if_absent(path, wanted.to_bytes()):
                    return self._keep(name, wanted)
                sent = True  # what is there may be what a request of ours has put, sent twice
                return self._keep(name, Decision.from_bytes(storage.read(path), path))
            except PutUnknown:
                sent = True
            except NotFound as error:
                raise self._gone(home) from error
            except Unavailable:
                if not sent:
                    raise
        raise PutUnknown(f"the storage of {without_secrets(home)} did not confirm the decision {name}", path=path)

    def ensure_home(self, home: str) -> None:
        """Errors: `Unavailable` if there is no table any more where the decision has to lie."""
        if not self._home(home).exists(PROPERTIES_PATH):
            raise self._gone(home)

    def end(self, home: str, name: str, first: Sequence[LastSlot] = ()) -> None:
        """Says that nobody needs the decision any more, once there is a slot behind these.

        For its owner, who has told its caller what was decided, and puts nothing any more.
        """
        path = f"{DECISIONS_FOLDER}/{name}"
        if first:
            content = checksummed_json({"format": 1, "slots": [asdict(one) for one in first]})
            self._home(home).put(f"{path}{_ENDED}", content)
        else:
            self._home(home).put(f"{path}{_DONE}", b"")

    def remove_below(self, watermark: int, tail_of: Callable[[Storage], int]) -> None:
        """Removes this table's decisions that nobody needs any more, of slots below a watermark.

        `tail_of` is the number of the last slot of a table.
        """
        for mark in sorted(self._storage.names(DECISIONS_FOLDER)):
            name = mark.removesuffix(_DONE).removesuffix(_ENDED)
            if name == mark or not name[:_DIGITS].isdigit() or int(name[:_DIGITS]) >= watermark:
                continue
            path = f"{DECISIONS_FOLDER}/{mark}"
            if mark.endswith(_DONE) or self._is_followed(path, tail_of):
                self._storage.delete(f"{DECISIONS_FOLDER}/{name}")
                self._storage.delete(path)

    def _is_followed(self, path: str, tail_of: Callable[[Storage], int]) -> bool:
        """Whether there is a slot behind each of those that a decision waits for; False where that cannot be told."""
        try:
            values = open_checksummed_json(self._storage.read(path))
            slots = [LastSlot(**one) for one in values["slots"]] if values is not None else None
            return slots is not None and all(tail_of(self._home(one.table)) > one.slot for one in slots)
        except (Unavailable, ValueError, KeyError, TypeError):
            return False

    def _home(self, home: str) -> Storage:
        return self._storage if home == self._storage.uri else self._open_table(home)

    def _in_own_folder(self, name: str) -> Decision | None:
        path = f"{DECISIONS_FOLDER}/{name}"
        try:
            return Decision.from_bytes(self._storage.read(path), path)
        except NotFound:
            return None

    def _was_shown(self, event: Event) -> bool:
        if not event.file:  # of a table that was only read
            return False
        if self._storage.exists(event.path):
            return True
        archived = History.load(self._storage).find(event.instant)
        return archived is not None and archived.completion == event.time

    def _gone(self, home: str) -> Unavailable:
        return Unavailable(
            f"the table at {without_secrets(home)} is gone, with the decision of a transaction over several tables of "
            f"which the last slot of {without_secrets(self._storage.uri)} is a part: bring it back, or abort that part "
            "with lakelatch.resolve(table, give_up=True)",
            home=home,
        )

    def _keep(self, name: str, decision: Decision) -> Decision:
        with self._guard:
            self._known[name] = decision
            while len(self._known) > _REMEMBERED_MAX:
                del self._known[next(iter(self._known))]
        return decision
