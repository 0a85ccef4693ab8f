"""Empty log files: they bar the name of a failed attempt, unless a commit says that there were rows in one."""

from __future__ import annotations

from lakelatch.errors import CorruptTable
from lakelatch.format.names import LogFile, is_compacted_log, is_kept_deletes, parse_data_file
from lakelatch.storage.contract import Storage
from lakelatch.timeline.actions import WRITE_ACTIONS
from lakelatch.timeline.metadata import CommitMetadata
from lakelatch.timeline.timeline import Timeline


def ensure_tombstone(storage: Storage, timeline: Timeline, path: str) -> None:
    """`CorruptTable` if an empty log file is one that held rows: reading on would hide them."""
    file = parse_data_file(path.rpartition("/")[2])
    if isinstance(file, LogFile) and (is_compacted_log(file) or is_kept_deletes(file)):  # no such name has a tombstone
        raise CorruptTable(f"the log file {path!r} is empty, which a compaction has filled: restore it", path=path)
    for instant in timeline.completed:
        is_its = file is not None and instant.requested == file.instant and instant.action in WRITE_ACTIONS
        if is_its and any(stat.path == path for stat in CommitMetadata.read(storage, instant.path).stats):
            raise CorruptTable(
                f"the log file {path!r} is empty, and {instant.path} says that it is not: restore it", path=path
            )
