"""A table at one moment: the file slices that a reader of that moment must read."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

from lakelatch.errors import CorruptTable, InvalidRequest
from lakelatch.format.expected.cleaned import cleaned_after
from lakelatch.format.expected.missing import Expectation, Expects, Missing, active, ensure_none, known, suspects
from lakelatch.format.file_groups import ReplaceCommit, replace_commit, two_live_groups, two_of_one_bucket
from lakelatch.format.file_slices import FileSlice, file_slices
from lakelatch.format.index.file_index import FileIndex
from lakelatch.format.log.compactions import (
    Completed,
    LogCompactions,
    completed_log_compactions,
    read_log_compactions,
)
from lakelatch.format.names import COMPACTED_MARK, LogFile, is_compacted_log, parse_data_file
from lakelatch.format.slices.index_reading import current_index
from lakelatch.format.slices.partitions import FirstAnswer, Indexed, Selection, first_answer, partition_files
from lakelatch.format.tombstones import ensure_tombstone, taken_back
from lakelatch.storage.contract import NotFound, Storage
from lakelatch.storage.uris import without_secrets
from lakelatch.timeline.actions import CLEAN, REPLACE_COMMIT, WRITE_ACTIONS
from lakelatch.timeline.history.history import History
from lakelatch.timeline.instant import Instant, parse_file_name
from lakelatch.timeline.log.lost_completions import ensure_none_lost_to_readers
from lakelatch.timeline.log.whole_timeline import WholeTimeline
from lakelatch.timeline.metadata import CommitMetadata, FileGroup
from lakelatch.timeline.snapshot import Snapshot
from lakelatch.timeline.staged import StagedStorage, no_longer_readable
from lakelatch.timeline.table_config import TableConfig

_log = logging.getLogger("lakelatch.format")


@dataclass(frozen=True)
class TableView:
    """The slices of one moment, by a snapshot of the timeline taken before the data files are listed.

    A file that appears in between belongs to an instant that is not in the snapshot, so it is not seen. Files of
    archived instants count as `WholeTimeline` says. A view with a `single_listing` of the timeline, which may have
    lacked something, is valid only if `was_overtaken` is false after its slices were found.
    """

    storage: Storage
    config: TableConfig
    whole: WholeTimeline
    as_of: str | None = None
    single_listing: bool = False
    expects: Expects = known
    _suspects: list[Missing] = field(default_factory=list, init=False, repr=False, compare=False)
    _names_since: list[Collection[str]] = field(default_factory=list, init=False, repr=False, compare=False)
    _ahead: list[FirstAnswer] = field(default_factory=list, init=False, repr=False, compare=False)
    _used: list[FileIndex] = field(default_factory=list, init=False, repr=False, compare=False)

    @classmethod
    def load(cls, storage: Storage, config: TableConfig, as_of: str | None = None) -> TableView:
        """The table now, or as of a completion time."""
        return cls(storage, config, WholeTimeline.load(storage), as_of)

    @classmethod
    def of_look(cls, storage: Storage, config: TableConfig, look: Snapshot, as_of: str | None = None) -> TableView:
        """The view of a single listing of the timeline, for a caller that checks `was_overtaken` in the end."""
        return cls(storage, config, WholeTimeline.load(storage, look), as_of, single_listing=True)

    @property
    def timeline(self) -> Snapshot:
        """The active timeline."""
        return self.whole.active

    @property
    def index(self) -> FileIndex | None:
        """The file index by which the last `latest` found its slices; None if it listed them."""
        return self._used[0] if self._used else None

    def slices(self, partitions: list[str] | None = None) -> list[FileSlice]:
        """The latest slice of every file group, of all partitions or of those named."""
        return [group[0] for group in self.groups(partitions)]

    def latest(self, selection: Selection | None = None, by_index: bool = True) -> tuple[FileSlice, ...]:
        """The latest slice of every file group of a selection, for a reader; from the file index where that pays.

        By the index, these are the same slices as by listings, except for empty files of failed attempts. If the index
        makes the table seem damaged, folders are listed.
        """
        self._forget()
        used = self._used

        def ask(names: Collection[str] | None) -> Mapping[str, tuple[str, ...]] | None:
            index = current_index(self.whole, names)
            if index is not None:
                used.append(index)
            return None if index is None else index.files

        files = self._files(None, selection, ask if by_index and self.as_of is None else None)
        try:
            found = [
                group[0]
                for partition, names in files
                for group in self._groups_of(partition, names, used[0].completions if used else None)
            ]
        except CorruptTable:
            if not used:
                raise
            return self.latest(selection, by_index=False)
        self._ensure_all_there(selection, {one.partition for one in found})
        return tuple(found)

    def replaced(self) -> dict[FileGroup, str]:
        """When each replaced file group was replaced: the completion time of the last replace commit that names it."""
        return {
            group: replace.instant.completion or ""
            for replace in self._replaces
            for group in replace.replaced_file_groups()
        }

    def look_ahead(self) -> None:
        """Makes the first request of the next `latest` or `groups` of all partitions now, concurrently with others."""
        self._ahead[:] = [first_answer(self.storage, self.config)]

    def groups(self, partitions: list[str] | None = None, selection: Selection | None = None) -> list[list[FileSlice]]:
        """Every file group's slices, latest first; groups without a visible file are left out.

        Of all partitions, of those named, or of a selection.

        As of a time, slices may name files that a clean has removed since: `ensure_there` refuses those.
        """
        self._forget()
        files = self._files(partitions, selection)
        found = [group for partition, names in files for group in self._groups_of(partition, names)]
        if partitions is None:
            self._ensure_all_there(selection, {group[0].partition for group in found})
        else:
            self._ensure_all_there(selection, self._expectation.partitions)
        return found

    def slices_at(self, times: Collection[str], partitions: list[str]) -> dict[str, list[FileSlice]]:
        """The latest slices of these partitions at several times, none before the view's own, from one listing.

        A slice may name files that a clean has removed since: `ensure_there` refuses those.
        """
        files = list(self._files(partitions))
        found = {}
        for time in times:
            view = replace(self, as_of=time)
            found[time] = [group[0] for inside, names in files for group in view._groups_of(inside, names)]
            ensure_none(view, view._suspects)
        replace(self, as_of=max(times, default=self.as_of))._ensure_still_there(self._names_now())
        return found

    def _groups_of(
        self, partition: str, names: Collection[str], completions: Mapping[str, str] | None = None
    ) -> list[list[FileSlice]]:
        """The file groups of one partition, made of existing and removed files.

        `completions` are those of the files' instants, for a caller who knows them.
        """
        gone = self._replaced_in.get(partition, {})

        def cut(names: Collection[str]) -> list[list[FileSlice]]:
            instants = {file.instant for file in map(parse_data_file, names) if file is not None}
            return file_slices(
                partition,
                names,
                self.whole.completion_times(instants) if completions is None else completions,
                as_of=self.as_of,
                replaced=gone,
                absorbed_logs=self._absorbed(partition, names, instants),
                committed_by=self.files_of,
            )

        groups = cut(names)
        if completions is None:  # otherwise the folder was not listed
            self._suspects.extend(suspects(self._expectation, partition, names, groups, cut, gone))
        return self._live(partition, groups, gone)

    def _forget(self) -> None:
        for found in (self._names_since, self._used, self._suspects):
            found.clear()

    def _names_now(self) -> Collection[str]:
        self._names_since.append(self.whole.names_now())
        return self._names_since[-1]

    def _ensure_all_there(self, selection: Selection | None, found: Collection[str]) -> None:
        self._ensure_still_there(self._names_now())
        if self.expects is not known:  # also in partitions that no listing has shown
            for partition in set(self._expectation.partitions).difference(found):
                if selection is None or selection.holds(partition):
                    self._groups_of(partition, ())
        ensure_none(self, self._suspects)

    def _ensure_still_there(self, names: Collection[str]) -> None:
        """`Unavailable` if a commit that counts here was rolled back since: its files may have gone before the listing.

        Completed files are removed before data files, so commits that still count now were complete when listed.
        """
        lost = filter(None, map(parse_file_name, sorted(self.timeline.names.difference(names))))
        gone = [
            one
            for one in lost
            if one.action in WRITE_ACTIONS and one.completion and (self.as_of is None or one.completion <= self.as_of)
        ]
        if gone:
            archived = History.load(self.storage).find_all([instant.requested for instant in gone])
            for instant in (one for one in gone if one.requested not in archived):
                raise taken_back(f"{instant.action} {instant.requested}")

    def _live(self, partition: str, groups: list[list[FileSlice]], gone: Mapping[str, str]) -> list[list[FileSlice]]:
        """The file groups that Hudi's readers see, too: they hide a replaced one, whenever its files were written.

        Errors: `CorruptTable` for two of one bucket that both hold something.
        """
        live = []
        for group in groups:
            if group[0].file_id not in gone:
                live.append(group)
            elif self._holds_rows(group):
                _log.warning(
                    "in the partition %r another writer wrote to the file group %s (%s) after it was replaced at %s: "
                    "no reader of the table sees these rows, so write them again",
                    *(partition, group[0].file_id, group[0].base_instant, gone[group[0].file_id]),
                )
        if two_of_one_bucket([group[0].file_id for group in live], self.config.bucket_count) is None:
            return live
        empty = [group for group in live if not self._holds_rows(group)]
        for path in (path for group in empty for found in group for path in found.log_paths):
            ensure_tombstone(self.whole, path)
        live = [group for group in live if group not in empty]
        pair = two_of_one_bucket([group[0].file_id for group in live], self.config.bucket_count)
        if pair is not None:
            ensure_none_lost_to_readers(self.storage)  # that of a clustering has said which of them it replaced
            raise two_live_groups(self.storage, partition, pair)
        return live

    def ensure_there(self, slices: Iterable[FileSlice]) -> None:
        """`InvalidRequest`, in a transaction `WriteConflict`, if a clean has removed files of a slice of the past."""
        if not self._cleaned:
            return
        named = (
            (found.path_of(name), self._cleaned.get(found.partition, {}).get(name))
            for found in slices
            for name in found.names
        )
        doubtful = [(path, clean) for path, clean in named if clean is not None]
        there = self.storage.together(*(partial(self.storage.exists, path) for path, _ in doubtful))
        for path, clean in (one for one, is_there in zip(doubtful, there, strict=True) if not is_there):
            if isinstance(self.storage, StagedStorage):
                raise no_longer_readable(self.storage, path, clean)
            raise InvalidRequest(
                f"the table {without_secrets(self.storage.uri)} as of {self.as_of} needs {path}, which the clean "
                f"{clean} has removed: read it as of a later time, or let the cleaner keep more",
                path=path,
                clean=clean,
            )

    def ensure_recorded(self, slices: Iterable[FileSlice], after: str) -> None:
        """`InvalidRequest` if it is unknown whether files were committed after a time: rows would be missing."""
        if self.whole.start <= after:
            return
        for found in slices:
            by_instant = {file.instant: name for name in found.names if (file := parse_data_file(name)) is not None}
            for instant in self.whole.unrecorded(by_instant):
                raise InvalidRequest(
                    f"{found.path_of(by_instant[instant])} was written by {instant}, which is neither on the active "
                    f"timeline nor in its history, so what was written after {after or 'the beginning'} is unknown"
                    f": begin at {self.whole.start} or later, or read a snapshot",
                    path=found.path_of(by_instant[instant]),
                    instant=instant,
                )

    def _holds_rows(self, group: list[FileSlice]) -> bool:
        """False for a file group in which a write that was relocated has left tombstones only."""
        if any(found.base_file is not None for found in group):
            return True
        logs = ((found.path_of(name), name) for found in group for name in found.log_files)
        return any(self._is_filled(path, name) for path, name in logs)

    def _is_filled(self, path: str, name: str) -> bool:
        """False for a tombstone, even one that a clean has removed; `ensure_there` checks the files of commits."""
        try:
            return self.storage.stat(path).size_bytes > 0
        except NotFound:
            file = parse_data_file(name)
            if isinstance(file, LogFile) and is_compacted_log(file):  # it has the instant of another commit's file
                return True
            return file is not None and path in self.files_of(file.instant)

    def partitions(self) -> list[str]:
        """The paths of all partitions, in order."""
        return sorted(partition for partition, _ in self._files(None))

    def _files(
        self, partitions: list[str] | None, selection: Selection | None = None, indexed: Indexed | None = None
    ) -> Iterator[tuple[str, tuple[str, ...]]]:
        """The names of the files in each partition, with those that a clean has removed since the view's time."""
        if partitions is None:
            ahead = self._ahead.pop if self._ahead else None
            there = partition_files(self.storage, self.config, selection, indexed, ahead)
        else:
            listings = self.storage.together(*(partial(self.storage.list, partition) for partition in partitions))
            there = ((found, listing.files) for found, listing in zip(partitions, listings, strict=True))
        seen = set()
        for partition, names in there:
            seen.add(partition)
            yield partition, tuple(dict.fromkeys((*names, *self._cleaned.get(partition, ()))))
        for partition, cleaned in self._cleaned.items() if partitions is None else ():
            if partition not in seen and (
                selection is None or selection.holds(partition)
            ):  # a clean has removed all of its files
                yield partition, tuple(cleaned)

    def completed_between(self, begin: str, end: str | None) -> list[Instant]:
        """Writes completed after `begin` and not after `end`, by completion time."""
        return self.whole.completed(WRITE_ACTIONS, begin, end)

    def metadata(self, instant: Instant) -> CommitMetadata:
        """The metadata of a completed write."""
        return self.whole.metadata(instant)

    def file_groups_of(self, instants: Iterable[Instant]) -> frozenset[FileGroup]:
        """The file groups that any of these completed writes has written to, by partition and file id."""
        found = self.whole.metadata_of(instants)
        return frozenset(group for metadata in found for group in metadata.file_groups())

    def files_of(self, instant: str) -> frozenset[str]:
        """Paths of the files that the completed write of this requested time names."""
        found = self.whole.find(instant)
        return frozenset(stat.path for stat in self.metadata(found).stats) if found is not None else frozenset()

    @cached_property
    def _replaced_in(self) -> Mapping[str, Mapping[str, str]]:
        """When each replaced file group was replaced, by partition."""
        found: dict[str, dict[str, str]] = {}
        for (partition, file_id), time in self.replaced().items():
            found.setdefault(partition, {})[file_id] = time
        return found

    @cached_property
    def _replaces(self) -> list[ReplaceCommit]:
        found = self.whole.completed((REPLACE_COMMIT,), until=self.as_of)
        looks = (partial(replace_commit, self.storage, instant, self.whole.content) for instant in found)
        return list(self.storage.together(*looks))

    @cached_property
    def _cleaned(self) -> Mapping[str, Mapping[str, str]]:
        """Names of files that were removed after the view's time, by partition, each with the clean that did it."""
        return {} if self.as_of is None else cleaned_after(self.whole, self.as_of)

    def was_cleaned(self) -> bool:
        """Whether a clean was planned between the listings of the timeline and of the data files.

        Slices listed meanwhile may silently lack files that it removed: load the view again.
        """
        return self._shows_a_clean(self._later_names())

    def was_overtaken(self) -> bool:
        """Whether the view has to be loaded again: for a clean, or as its single listing may have lacked something."""
        names = self._later_names()
        return self._shows_a_clean(names) or (
            self.single_listing and not self.timeline.lacks_nothing(names, until=self.as_of or "")
        )

    def _shows_a_clean(self, names: Collection[str]) -> bool:
        fresh = map(parse_file_name, frozenset(names).difference(self.timeline.names))
        cleans = (one for one in fresh if one is not None and one.action == CLEAN)
        return any(all(known.action != CLEAN for known in self.timeline.of(one.requested)) for one in cleans)

    def _later_names(self) -> Collection[str]:
        """The timeline after the data files were listed, or now if they were not."""
        return self._names_since[-1] if self._names_since else self.whole.names_now()

    def _absorbed(self, partition: str, names: Collection[str], instants: Collection[str]) -> frozenset[str]:
        """See `LogCompactions.hidden`. No plan is read for a partition without a compacted log.

        Ours have a mark in their names, and those of other engines the log compaction's instant.
        """
        if any(COMPACTED_MARK in name for name in names) or not self._log_compacted.keys().isdisjoint(instants):
            return self._log_compactions.hidden(partition, names)
        return frozenset()

    @cached_property
    def _log_compacted(self) -> Completed:
        """Log compactions completed by the view's time."""
        return completed_log_compactions(self.whole, self.as_of)

    @cached_property
    def _log_compactions(self) -> LogCompactions:
        """The log files that these have rewritten."""
        return read_log_compactions(self.whole, self._log_compacted)

    def again(self) -> TableView:
        """A view of the same moment, loaded now."""
        return replace(self, whole=WholeTimeline.load(self.storage), single_listing=False)

    def suspects(self, partitions: Iterable[str]) -> list[Missing]:
        """Expected files that the folders of these partitions lack, by one listing."""
        self._forget()
        for partition, names in self._files(list(partitions)):
            self._groups_of(partition, names)
        self._ensure_still_there(self._names_now())
        return self._suspects[:]

    def ensure_whole(self, partitions: Iterable[str], expects: Expects = active) -> None:
        """Raises `CorruptTable` if a latest slice of these partitions lacks a file that a write names.

        Services call it before they would make a loss permanent. Costs a listing of each partition, and a request for
        each write of the active timeline that this process has not cached.
        """
        view = replace(self, expects=expects)
        ensure_none(view, view.suspects(partitions))

    @cached_property
    def _expectation(self) -> Expectation:
        return self.expects(self.whole)
