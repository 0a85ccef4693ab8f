"""A table's instants as rows that a person or a program can read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from lakelatch.storage.contract import Storage
from lakelatch.timegen.instant_time import to_ms
from lakelatch.timeline.actions import RESTORE, ROLLBACK, SAVEPOINT, WRITE_ACTIONS
from lakelatch.timeline.instant import ABORTED, COMPLETED, INFLIGHT, Instant
from lakelatch.timeline.log.whole_timeline import read_completed
from lakelatch.timeline.metadata import WRITER_KEY, CommitMetadata
from lakelatch.timeline.plans.service_plan import REWRITING_SERVICES, read_aborted_plan, read_service_plan
from lakelatch.timeline.service_metadata import read_undone

LOST = "lost"  # the state of a write that was aborted since another one was first
ROLLED_BACK = "rolled back"  # and of one that was aborted, or undone, for another reason


class Entry(NamedTuple):
    """One instant. Times are 17-digit UTC instants; `writer` is the name that its writer gave itself.

    `service` is the action of the plan that it carries out, "" for a write. `replaced` counts the file groups that it
    replaced; `cancelled` is "whole" or "part" if it was cancelled. `undone` are the requested times of the instants
    that a rollback or restore undid. `ended` is when a write was aborted that has left the timeline; `winner` is the
    write that it lost to, and `undone_by` the rollback or restore that took it away.
    """

    requested: str
    completion: str | None
    action: str
    state: str
    operation: str = ""
    writer: str = ""
    files: int = 0
    rows: int = 0
    file_groups: int = 0
    replaced: int = 0
    cancelled: str = ""
    undone: tuple[str, ...] = ()
    size_bytes: int = 0
    service: str = ""
    ended: str = ""
    winner: str = ""
    winner_writer: str = ""
    undone_by: str = ""
    seconds_lost: float = 0.0
    archived: bool = False

    @property
    def duration_ms(self) -> int | None:
        """From requested to completed, None while it is pending."""
        return to_ms(self.completion) - to_ms(self.requested) if self.completion else None

    @property
    def shown_state(self) -> str:
        """Its state in words, with its cancellation."""
        if self.state == ABORTED or not self.cancelled:
            return self.state
        return f"{self.state}, cancelled" + (" in part" if self.cancelled == "part" else "")

    @property
    def key(self) -> str:
        """What tells it from all others of its table: a savepoint has the requested time of its commit."""
        return key_of(self.requested, self.action)

    def to_json(self) -> dict[str, object]:
        return {**self._asdict(), "duration_ms": self.duration_ms}

    def brief(self) -> dict[str, object]:
        """Its fields by name, without those that say nothing."""
        said = zip(self._fields, self, _DEFAULTS, strict=True)
        return {name: value for name, value, default in said if value != default}


_DEFAULTS = tuple(Entry._field_defaults.get(name) for name in Entry._fields)


def key_of(requested: str, action: str) -> str:
    """The key of an instant: see `Entry.key`."""
    return f"{requested}.{action}" if action == SAVEPOINT else requested


def service_of(files: Iterable[Instant]) -> str:
    """The action of the plan among the files of one instant; "" if there is none."""
    return next((one.action for one in files if one.action in REWRITING_SERVICES), "")


def furthest(files: Iterable[Instant]) -> Instant:
    """The file, of those of one instant, that says how far it has come."""
    rank = {COMPLETED: 0, ABORTED: 1, INFLIGHT: 2}
    return min(files, key=lambda one: rank.get(one.state, 3))


def named(instant: Instant, service: str = "", writer: str = "", cancelled: str = "") -> Entry:
    """What the names of an instant's files say of it; `read_entry` knows more."""
    over = "whole" if instant.state == ABORTED else cancelled
    return Entry(
        instant.requested,
        instant.completion,
        instant.action,
        instant.state,
        service=service,
        cancelled=over,
        writer=writer,
    )


def read_entry(storage: Storage, instant: Instant, service: str = "", writer: str = "", cancelled: str = "") -> Entry:
    """One instant with what its file says; one request at most.

    Errors: `NotFound` if it is gone, `CorruptTable` for a file that cannot be read.
    """
    if instant.completion is not None:
        return completed_entry(instant, _content(storage, instant), service)
    groups = 0
    if instant.state == ABORTED:
        groups = len(read_aborted_plan(storage, instant).groups)
    elif instant.action in REWRITING_SERVICES:
        groups = len(read_service_plan(storage, instant.requested, instant.action).groups)
    return named(instant, service, writer, cancelled)._replace(file_groups=groups)


def _content(storage: Storage, instant: Instant) -> bytes:
    return read_completed(storage, instant) if instant.action in (*WRITE_ACTIONS, ROLLBACK, RESTORE) else b""


def completed_entry(instant: Instant, content: bytes, service: str = "", archived: bool = False) -> Entry:
    """A completed instant from the bytes of its file. Errors: `CorruptTable`."""
    times = (instant.requested, instant.completion, instant.action, COMPLETED)
    if instant.action in (ROLLBACK, RESTORE):
        undone = tuple(time for time, _ in read_undone(content, instant.path))
        return Entry(*times, undone=undone, archived=archived)
    if instant.action not in WRITE_ACTIONS:
        return Entry(*times, archived=archived)
    metadata = CommitMetadata.from_avro(content, instant.path)
    return Entry(
        *times,
        operation=metadata.called.lower(),
        writer=metadata.extra.get(WRITER_KEY, ""),
        files=len(metadata.stats),
        rows=sum(stat.num_writes + stat.num_deletes for stat in metadata.stats),
        file_groups=len(metadata.file_groups()),
        replaced=len(metadata.replaced_file_groups()),
        size_bytes=sum(stat.total_write_bytes for stat in metadata.stats),
        service=service,
        archived=archived,
    )
