"""Empty log files: tombstones of failed attempts, unless a commit names one with rows."""

from __future__ import annotations

from lakelatch.errors import CorruptTable, Unavailable
from lakelatch.format.names import LogFile, is_compacted_log, is_kept_deletes, parse_data_file
from lakelatch.timeline.actions import WRITE_ACTIONS
from lakelatch.timeline.log.whole_timeline import WholeTimeline


class TakenBack(Unavailable):
    """A write that the reader used was rolled back meanwhile."""


def taken_back(what: str) -> TakenBack:
    """The error of that reader."""
    return TakenBack(f"{what} was rolled back, or the table restored, while it was read: read again")


def ensure_tombstone(whole: WholeTimeline, path: str) -> None:
    """`CorruptTable` if an empty log file held rows once: reading on would hide their loss.

    `Unavailable` if its write was rolled back since the reader chose it.
    """
    file = parse_data_file(path.rpartition("/")[2])
    if isinstance(file, LogFile) and (is_compacted_log(file) or is_kept_deletes(file)):  # no such name has a tombstone
        raise CorruptTable(f"the log file {path!r} is empty, which a compaction has filled: restore it", path=path)
    instant = None if file is None else whole.find(file.instant)
    if instant is None and file is not None and whole.has_undone(file.instant):
        raise taken_back(f"the write {file.instant}")
    if instant is None or instant.action not in WRITE_ACTIONS:
        return
    if any(stat.path == path for stat in whole.metadata(instant).stats):
        raise CorruptTable(
            f"the log file {path!r} is empty, and {instant.path} says that it is not: restore it", path=path
        )
