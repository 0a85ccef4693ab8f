"""A table's timeline as rows that a person or a program can read."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from lakelatch.storage.contract import Storage
from lakelatch.timegen.instant_time import to_ms
from lakelatch.timeline.actions import WRITE_ACTIONS
from lakelatch.timeline.metadata import WRITER_KEY, CommitMetadata, CompactionPlan
from lakelatch.timeline.timeline import COMPLETED, Instant, Timeline


@dataclass(frozen=True)
class Entry:
    """One instant. Times are 17-digit UTC instants; `writer` is the name that its writer gave itself."""

    requested: str
    completion: str | None
    action: str
    state: str
    operation: str = ""
    writer: str = ""
    files: int = 0
    rows: int = 0
    file_groups: int = 0

    @property
    def duration_ms(self) -> int | None:
        """From requested to completed, None while it is pending."""
        return to_ms(self.completion) - to_ms(self.requested) if self.completion else None

    def to_json(self) -> dict[str, object]:
        return {**asdict(self), "duration_ms": self.duration_ms}


def timeline_entries(storage: Storage) -> list[Entry]:
    """Every instant of the active timeline, in the order in which they were requested."""
    timeline = Timeline.load(storage)
    entries = [_completed(storage, instant) for instant in timeline.completed]
    entries += [_pending(storage, instant) for instant in timeline.pending]
    return sorted(entries, key=lambda entry: entry.requested)


def _completed(storage: Storage, instant: Instant) -> Entry:
    if instant.action not in WRITE_ACTIONS:
        return Entry(instant.requested, instant.completion, instant.action, COMPLETED)
    metadata = CommitMetadata.read(storage, instant.path)
    return Entry(
        instant.requested,
        instant.completion,
        instant.action,
        COMPLETED,
        operation=metadata.operation_type.lower(),
        writer=metadata.extra.get(WRITER_KEY, ""),
        files=len(metadata.stats),
        rows=sum(stat.num_writes + stat.num_deletes for stat in metadata.stats),
        file_groups=len(metadata.file_groups()),
    )


def _pending(storage: Storage, instant: Instant) -> Entry:
    groups = 0
    if instant.action in ("compaction", "logcompaction"):
        plan_path = Instant(instant.requested, instant.action, "requested").path
        groups = len(CompactionPlan.read(storage, plan_path).operations)
    return Entry(instant.requested, None, instant.action, instant.state, file_groups=groups)
