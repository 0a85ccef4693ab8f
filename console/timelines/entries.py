"""A table's timeline as rows that a person or a program can read."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from lakelatch.storage.contract import Storage
from lakelatch.timegen.instant_time import to_ms
from lakelatch.timeline.actions import RESTORE, ROLLBACK, WRITE_ACTIONS
from lakelatch.timeline.instant import ABORTED, COMPLETED, Instant
from lakelatch.timeline.log.whole_timeline import WholeTimeline, read_completed
from lakelatch.timeline.metadata import WRITER_KEY, CommitMetadata
from lakelatch.timeline.plans.service_plan import REWRITING_SERVICES, read_aborted_plan, read_service_plan
from lakelatch.timeline.service_metadata import read_undone
from lakelatch.transactions.base.cancel_requests import cancel_requests


@dataclass(frozen=True)
class Entry:
    """One instant. Times are 17-digit UTC instants; `writer` is the name that its writer gave itself.

    `replaced` counts the file groups that it took away, and `cancelled` says that it was called off, "whole" or "part".
    `undone` are the requested times of what a rollback or restore took away.
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

    @property
    def duration_ms(self) -> int | None:
        """From requested to completed, None while it is pending."""
        return to_ms(self.completion) - to_ms(self.requested) if self.completion else None

    @property
    def shown_state(self) -> str:
        """Its state in words, with what was called off."""
        if self.state == ABORTED or not self.cancelled:
            return self.state
        return f"{self.state}, cancelled" + (" in part" if self.cancelled == "part" else "")

    def to_json(self) -> dict[str, object]:
        return {**asdict(self), "duration_ms": self.duration_ms}


def timeline_entries(storage: Storage) -> list[Entry]:
    """Every instant of the active timeline that counts, in the order in which they were requested."""
    timeline = WholeTimeline.load(storage).active
    entries = [_completed(storage, instant) for instant in timeline.completed]
    asked = {one.instant: "whole" if one.whole else "part" for one in cancel_requests(storage)}
    entries += [_pending(storage, instant, asked.get(instant.requested, "")) for instant in timeline.pending]
    entries += [_aborted(storage, instant) for instant in timeline.aborted]
    return sorted(entries, key=lambda entry: entry.requested)


def _completed(storage: Storage, instant: Instant) -> Entry:
    if instant.action in (ROLLBACK, RESTORE):
        undone = tuple(time for time, _ in read_undone(read_completed(storage, instant), instant.path))
        return Entry(instant.requested, instant.completion, instant.action, COMPLETED, undone=undone)
    if instant.action not in WRITE_ACTIONS:
        return Entry(instant.requested, instant.completion, instant.action, COMPLETED)
    metadata = CommitMetadata.read(storage, instant.path)
    return Entry(
        instant.requested,
        instant.completion,
        instant.action,
        COMPLETED,
        operation=metadata.called.lower(),
        writer=metadata.extra.get(WRITER_KEY, ""),
        files=len(metadata.stats),
        rows=sum(stat.num_writes + stat.num_deletes for stat in metadata.stats),
        file_groups=len(metadata.file_groups()),
        replaced=len(metadata.replaced_file_groups()),
    )


def _pending(storage: Storage, instant: Instant, cancelled: str) -> Entry:
    groups = 0
    if instant.action in REWRITING_SERVICES:
        groups = len(read_service_plan(storage, instant.requested, instant.action).groups)
    return Entry(instant.requested, None, instant.action, instant.state, file_groups=groups, cancelled=cancelled)


def _aborted(storage: Storage, instant: Instant) -> Entry:
    groups = len(read_aborted_plan(storage, instant).groups)
    return Entry(instant.requested, None, instant.action, ABORTED, file_groups=groups, cancelled="whole")
