"""File slices, as RFC-66 cuts them: by the *completion* time of log files.

The barriers of a file group are the instant times of its base files. A log file belongs to the slice of the greatest
barrier below the log's completion time; without any base file, the first log's instant is the barrier. Within a slice
logs are ordered by instant, version and write token.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from lakelatch.format.names import (
    BaseFile,
    LogFile,
    is_kept_deletes,
    is_placeholder,
    keeps_deletes_of,
    parse_data_file,
)
from lakelatch.storage.contract import path_below
from lakelatch.timeline.instant import is_seen


@dataclass(frozen=True)
class FileSlice:
    """One version of a file group: a base file (or none yet) and the log files that came after it. Names, no folder."""

    partition: str
    file_id: str
    base_instant: str
    base_file: str | None
    log_files: tuple[str, ...]

    @property
    def base_path(self) -> str | None:
        """The base file's path in the table."""
        return None if self.base_file is None else self.path_of(self.base_file)

    @property
    def log_paths(self) -> tuple[str, ...]:
        """The log files' paths in the table, in the order in which they are merged."""
        return tuple(self.path_of(name) for name in self.log_files)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all its files."""
        return self.log_files if self.base_file is None else (*self.log_files, self.base_file)

    def path_of(self, name: str) -> str:
        """The path in the table of a file in the same folder."""
        return path_below(self.partition, name)

    @property
    def fresh_logs(self) -> tuple[str, ...]:
        """The logs that readers merge: neither placeholders, nor deletes that are applied to the base file already."""
        kept_by = None if self.base_file is None else self.base_instant
        return tuple(
            name
            for name in self.log_files
            if not is_placeholder(name) and (kept_by is None or not keeps_deletes_of(name, kept_by))
        )

    @property
    def is_empty(self) -> bool:
        """Whether it has no rows to read: it only marks its file group."""
        return self.base_file is None and not self.fresh_logs

    def with_log(self, name: str) -> FileSlice:
        """The slice with one more log file, in its place among them."""
        files = [file for file in map(parse_data_file, (*self.log_files, name)) if isinstance(file, LogFile)]
        ordered = sorted(files, key=lambda file: file.order)
        return replace(self, log_files=tuple(file.name for file in ordered))

    def without_logs(self) -> FileSlice:
        """The base file alone, as a read-optimized reader takes it."""
        return replace(self, log_files=())


def file_slices(
    partition: str,
    names: Iterable[str],
    completions: Mapping[str, str],
    as_of: str | None = None,
    replaced: Mapping[str, str] | None = None,
    absorbed_logs: Collection[str] = (),
    committed_by: Callable[[str], Collection[str]] = lambda _: (),
) -> list[list[FileSlice]]:
    """The file groups of one partition, each as its slices, latest first.

    `names` are the files of the partition's folder and `completions` the completion time of each completed instant: a
    file of any other instant does not exist for readers, nor does one that completed after `as_of`. `replaced` gives
    the time at which a file group was replaced; rows that had completed by then are left out. `absorbed_logs` are
    names of logs that a log compaction has rewritten. `committed_by` returns the paths named in an instant's commit; it
    is called only if one instant has several base files of one group, as after two engines have executed one plan: only
    the committed one counts, as the other may be incomplete.
    """
    bases: dict[str, list[BaseFile]] = {}
    logs: dict[str, list[LogFile]] = {}
    for name in names:
        file = parse_data_file(name)
        if file is None or name in absorbed_logs:
            continue
        completion = completions.get(file.instant)
        if completion is None or (as_of is not None and not is_seen(completion, as_of)):
            continue
        # A compaction that was planned before the replace may complete after it, with rows and deletes from before.
        is_planned = isinstance(file, BaseFile) or is_kept_deletes(file)
        content_time = file.instant if is_planned else completion
        if replaced and content_time <= replaced.get(file.file_id, ""):
            continue
        if isinstance(file, BaseFile):
            bases.setdefault(file.file_id, []).append(file)
        else:
            logs.setdefault(file.file_id, []).append(file)
    return [
        _slices_of_group(partition, file_id, bases.get(file_id, []), logs.get(file_id, []), completions, committed_by)
        for file_id in sorted(bases.keys() | logs.keys())
    ]


def _slices_of_group(
    partition: str,
    file_id: str,
    bases: list[BaseFile],
    logs: list[LogFile],
    completions: Mapping[str, str],
    committed_by: Callable[[str], Collection[str]],
) -> list[FileSlice]:
    barriers = sorted({base.instant for base in bases}, reverse=True)
    by_barrier: dict[str, list[LogFile]] = {barrier: [] for barrier in barriers}
    older: list[LogFile] = []  # completed before every base file: a slice of their own
    for log in logs:
        barrier = next((barrier for barrier in barriers if barrier < completions[log.instant]), None)
        (older if barrier is None else by_barrier[barrier]).append(log)
    slices = []
    for barrier in barriers:
        made = [base for base in bases if base.instant == barrier]
        committed = committed_by(barrier) if len(made) > 1 else ()
        base = max(made, key=lambda base: (path_below(partition, base.name) in committed, base.write_token))
        slices.append(_slice(partition, file_id, barrier, base.name, by_barrier[barrier]))
    if older:
        slices.append(_slice(partition, file_id, min(log.instant for log in older), None, older))
    return slices


def _slice(partition: str, file_id: str, instant: str, base_file: str | None, logs: list[LogFile]) -> FileSlice:
    ordered = tuple(log.name for log in sorted(logs, key=lambda log: log.order))
    return FileSlice(partition, file_id, instant, base_file, ordered)
