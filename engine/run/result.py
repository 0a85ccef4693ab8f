"""The result of a write."""

from __future__ import annotations

from dataclasses import dataclass

from lakelatch.engine.run.report import ServiceRun
from lakelatch.format.names import LogFile, is_kept_deletes, is_placeholder, parse_data_file
from lakelatch.notebook import Shown
from lakelatch.timegen.instant_time import readable
from lakelatch.timeline.actions import CLUSTER, SERVICE_OPERATIONS
from lakelatch.timeline.metadata import CommitMetadata, WriteStat


@dataclass(frozen=True, repr=False)
class CommitResult(Shown):
    """A commit, visible to every reader from `completion` on. Counts are rows of this write.

    A key that several tasks of a write have counts as a row in each of them; readers see one.

    `deletes_written` counts the requested deletes, whether or not the table had their keys: a delete does not read the
    table, so it cannot count the rows that it removed. `file_groups_replaced` counts the file groups that an overwrite
    or a deletion of partitions removed. `repeated` says that the batch was committed before: this is the result of that
    commit, and nothing was written now. `services` are the table services that ran afterwards; their failures do not
    affect the commit. `rows_skipped` counts the rows that an insert left out, because the table, or another row of the
    frame, had their keys.
    """

    instant: str
    completion: str
    operation: str
    rows_written: int
    deletes_written: int
    files: tuple[str, ...]
    bytes_written: int
    conflicts_retried: int = 0
    file_groups_replaced: int = 0
    repeated: bool = False
    services: tuple[ServiceRun, ...] = ()
    rows_skipped: int = 0

    @classmethod
    def of(cls, instant: str, completion: str, metadata: CommitMetadata, repeated: bool = False) -> CommitResult:
        """Reads a commit's metadata. A service counts no deletes, though it may repeat some."""
        stats = [stat for stat in metadata.stats if not _holds_no_rows(stat.path.rpartition("/")[2])]
        is_service = metadata.operation_type in SERVICE_OPERATIONS
        replaced = metadata.file_groups() if metadata.operation_type == CLUSTER else metadata.replaced_file_groups()
        return cls(
            instant=instant,
            completion=completion,
            operation=metadata.called.lower(),
            rows_written=sum(map(_rows_of, stats)),
            deletes_written=0 if is_service else sum(stat.num_deletes for stat in stats),
            files=tuple(sorted(stat.path.rpartition("/")[2] for stat in stats)),
            bytes_written=sum(stat.total_write_bytes for stat in stats),
            file_groups_replaced=len(replaced),
            repeated=repeated,
        )

    def __repr__(self) -> str:
        """One line, without the names of files, which are in `files`."""
        parts = [f"{self.rows_written:,} rows"]
        if self.rows_skipped:
            parts.append(f"{self.rows_skipped:,} skipped")
        if self.deletes_written:
            parts.append(f"{self.deletes_written:,} deletes")
        parts += [f"{len(self.files):,} files", f"{self.bytes_written:,} bytes"]
        if self.file_groups_replaced:
            parts.append(f"{self.file_groups_replaced:,} file groups replaced")
        if self.conflicts_retried:
            parts.append(f"{self.conflicts_retried:,} conflict{'s' if self.conflicts_retried > 1 else ''} retried")
        if self.repeated:
            parts.append("committed before")
        if self.services:
            parts.append("then " + ", ".join(f"{run.service} {run.outcome}" for run in self.services))
        times = f"instant={self.instant!r}, completion={self.completion!r}"
        return f"CommitResult({self.operation}: {', '.join(parts)}; {times})"

    def _lines(self) -> dict[str, str]:
        return {
            "operation": self.operation,
            "completed": f"{readable(self.completion)} ({self.completion})",
            "began": f"{readable(self.instant)} ({self.instant})",
            "rows": f"{self.rows_written:,}",
            "rows skipped": f"{self.rows_skipped:,}" if self.rows_skipped else "",
            "deletes": f"{self.deletes_written:,}",
            "files": f"{len(self.files):,}",
            "bytes": f"{self.bytes_written:,}",
            "file groups replaced": f"{self.file_groups_replaced:,}",
            "conflicts retried": f"{self.conflicts_retried:,}",
            "services": ", ".join(f"{run.service} {run.outcome}" for run in self.services),
        }


def _holds_no_rows(name: str) -> bool:
    """Whether the file is a placeholder of a file group, or only holds kept deletes."""
    file = parse_data_file(name)
    return is_placeholder(name) or (isinstance(file, LogFile) and is_kept_deletes(file))


def _rows_of(stat: WriteStat) -> int:
    """The rows that the commit wrote: a base file made from another one has that one's rows as well."""
    return stat.num_update_writes if stat.previous_base_file else stat.num_writes
