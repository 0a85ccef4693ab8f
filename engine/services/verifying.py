"""Verification (`lakelatch verify`): checks that all files exist that have to. Nothing is changed.

Every file that is named has to exist: the completed files of slots of the commit log, and the data files of completed
writes of both timelines, of plans and of savepoints. Files that cleans removed, that were rolled back or restored, and
those of failed attempts may be gone; replaced files stay until a clean removes them. A live table changes during a
check, so a finding counts only if a second check, of a timeline that was listed later, makes it as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from lakelatch.errors import CorruptTable
from lakelatch.format.base_files import open_base_file
from lakelatch.format.expected.cleaned import cleaned_after
from lakelatch.format.expected.missing import Expectation
from lakelatch.format.index.file_index import INDEX_FOLDER, FileIndex, index_moment
from lakelatch.format.merge.column_groups import KEPT_DELETES_FOOTER
from lakelatch.format.names import BaseFile, LogFile, is_compacted_log, is_kept_deletes, parse_data_file
from lakelatch.format.slices.partitions import partition_files
from lakelatch.format.slices.table_view import TableView
from lakelatch.notebook import Shown
from lakelatch.storage.checksums import verify_checksum
from lakelatch.storage.contract import NotFound, Storage, path_below
from lakelatch.timeline.actions import CLEAN, CLUSTERING, RESTORE, ROLLBACK, SAVEPOINT, WRITE_ACTIONS
from lakelatch.timeline.history.named_files import expected_of
from lakelatch.timeline.instant import TIMELINE_FOLDER, Instant, requested
from lakelatch.timeline.log.commit_log import CommitLog
from lakelatch.timeline.log.events import LOCKS, LOG_FOLDER, WITHDRAW, Event, slot_events, slot_number, slot_path
from lakelatch.timeline.log.lost_completions import lost_file
from lakelatch.timeline.log.whole_timeline import WholeTimeline
from lakelatch.timeline.metadata import WRITER_KEY, CommitMetadata, CompactionPlan, FileGroup
from lakelatch.timeline.plans.clean_plan import CleanPlan
from lakelatch.timeline.plans.clustering_plan import ClusteringPlan
from lakelatch.timeline.plans.service_plan import REWRITING_SERVICES
from lakelatch.timeline.service_metadata import read_cleaned, read_rolled_back, read_savepointed
from lakelatch.timeline.table_config import TableConfig

MISSING, DAMAGED, SUPERFLUOUS = "missing", "damaged", "superfluous"
_CHECKS_MAX = 5
_SHOWN_MAX = 20  # findings in a notebook
_AT_ONCE = 8  # files that are read at the same time


@dataclass(frozen=True, order=True)
class Finding:
    """One file that is `missing`, `damaged`, or `superfluous`, as no write names it."""

    kind: str
    path: str
    why: str = field(compare=False)


@dataclass(frozen=True)
class Verification(Shown):
    """The result of a verification. `files` is the number of data files that it looked for, and `deep` says whether it
    read them; `unchecked` of these have no checksum, as those of other engines."""

    findings: tuple[Finding, ...]
    files: int
    deep: bool
    unchecked: int = 0

    @property
    def whole(self) -> bool:
        """Whether nothing is missing or damaged."""
        return all(one.kind == SUPERFLUOUS for one in self.findings)

    def _lines(self) -> dict[str, str]:
        looked = f"{self.files:,} files, {'read' if self.deep else 'looked for'}"
        found = {f"{one.kind} {one.path}": one.why for one in self.findings[:_SHOWN_MAX]}
        more = len(self.findings) - len(found)
        return {
            "whole": "yes" if self.whole else "no",
            "looked at": looked + (f"; {self.unchecked:,} have no checksum" if self.unchecked else ""),
            **found,
            "more": f"{more:,} findings" if more else "",
        }


def verify(storage: Storage, config: TableConfig, deep: bool = False) -> Verification:
    """Finds everything that is missing, damaged or superfluous.

    Costs a request for each slot, each completed instant of the active timeline and each archived write, and a listing
    of each partition; twice, if anything is found. `deep` reads all data files as well, and compares checksums. Errors:
    those of the storage.
    """
    check = _Check(storage, config)
    for _ in range(_CHECKS_MAX if check.findings else 0):
        before, check = check, _Check(storage, config)
        if check.findings == before.findings:
            break
        # Files may have come or gone meanwhile: only findings of two checks in a row count.
        check.findings = check.findings & before.findings
    check.findings = {one for one in check.findings if one.kind != MISSING or not storage.exists(one.path)}
    unchecked = check.check_bytes() if deep else 0
    return Verification(tuple(sorted(check.findings)), check.count, deep, unchecked)


class _Check:
    """One check of the whole table."""

    def __init__(self, storage: Storage, config: TableConfig) -> None:
        self.storage = storage
        self.findings: set[Finding] = set()
        self.count = 0
        self._there: list[str] = []  # expected data files that exist
        self._slots()
        with self._noting(TIMELINE_FOLDER):
            self._whole = WholeTimeline.load(storage)
            self._writes = self._read_timeline()
            self._data_files(TableView(storage, config, self._whole))
        self._index()

    def check_bytes(self) -> int:
        """Reads the existing files and notes damaged ones; returns how many files have no checksum."""
        unchecked = 0
        for start in range(0, len(self._there), _AT_ONCE):
            part = self._there[start : start + _AT_ONCE]
            unchecked += sum(self.storage.together(*(partial(self._check, path) for path in part)))
        return unchecked

    def _check(self, path: str) -> bool:
        unchecked = False
        with self._noting(path):
            data = self.storage.read(path)
            if data:
                unchecked = not verify_checksum(data, path)
            else:
                self._note(DAMAGED, path, "it is empty, and a write says that it is not")
        return unchecked

    # -- the commit log -----------------------------------------------------------------------------------------------

    def _slots(self) -> None:
        """Checks slots, their content, and their completed files, except the tail's, which the next writer makes.

        Slots below the watermark of the last one are not part of the log: an unfinished removal left them, or a writer
        that was paused put them there.
        """
        log, numbers = CommitLog(self.storage), map(slot_number, self.storage.names(LOG_FOLDER))
        found: list[Event] = []
        for number in sorted((one for one in numbers if one is not None), reverse=True):
            if found and number < found[0].watermark:
                self._note(SUPERFLUOUS, slot_path(number), f"the commit log begins with slot {found[0].watermark}")
                continue
            with self._noting(slot_path(number)):
                events = slot_events(self.storage.read(slot_path(number)), number)
                found += reversed(events)
                for event in events:
                    if event.content_path:
                        log.content(event)
        found.reverse()
        listing = log.snapshots.list()
        with self._noting(TIMELINE_FOLDER):
            instants = [event for event in found if event.kind not in (LOCKS, WITHDRAW)]
            if instants and not listing.by_requested:
                self._note(MISSING, TIMELINE_FOLDER, f"the commit log has slots up to {instants[-1].number}")
            finished = [event for event in found if event.number < found[-1].number]
            for event in log.projections.lost(finished, listing):
                self._note(MISSING, event.path, lost_file(event).message)

    # -- both timelines -----------------------------------------------------------------------------------------------

    def _read_timeline(self) -> list[tuple[Instant, CommitMetadata]]:
        """Reads all completed instants of both timelines; returns the writes with their metadata."""
        whole, found = self._whole, list[tuple[Instant, CommitMetadata]]()
        readers: dict[str, Callable[[bytes, str], object]] = {
            CLEAN: read_cleaned,
            ROLLBACK: read_rolled_back,
            RESTORE: read_rolled_back,
            SAVEPOINT: read_savepointed,
        }

        def read(instant: Instant) -> None:
            with self._noting(instant.path):
                if instant.action in WRITE_ACTIONS:
                    found.append((instant, CommitMetadata.from_avro(whole.content(instant), instant.path)))
                elif instant.action in readers:
                    readers[instant.action](whole.content(instant), instant.path)

        asked = [*whole.completed(WRITE_ACTIONS)]
        asked += [one for one in whole.active.completed if one.action not in WRITE_ACTIONS]
        self.storage.together(*(partial(read, one) for one in asked))
        return found

    # -- data files ---------------------------------------------------------------------------------------------------

    def _data_files(self, view: TableView) -> None:
        named = [(instant, expected_of(metadata)) for instant, metadata in self._writes]
        expectation = Expectation(named)
        view = TableView(view.storage, view.config, view.whole, expects=lambda _: expectation)
        listed = dict(partition_files(self.storage, view.config))
        listed.update((one, self.storage.list(one).files) for one in expectation.partitions if one not in listed)
        replaced = view.replaced()
        for missing in view.suspects(listed):
            self._note(MISSING, missing.path, f"{missing.instant.path} names it: its rows are left out")
        self._past(listed, expectation)
        self._savepoints(listed)
        self._plans(listed, replaced)
        self._superfluous(listed)
        for _, by_partition in named:
            for partition, names in by_partition.items():
                self.count += len(names)
                there = frozenset(listed.get(partition, ()))
                self._there += [path_below(partition, name) for name in names if name in there]
        if view.config.column_groups:
            self._kept_deletes(listed, replaced)

    def _past(self, listed: Mapping[str, Iterable[str]], expectation: Expectation) -> None:
        """Checks files of older slices and replaced file groups that no clean has removed: time travel reads need them,
        and so does the table after a restore."""
        cleaned = cleaned_after(self._whole, "")
        known = {one.path for one in self.findings}
        for partition, names in listed.items():
            for name, instant in expectation.lacking(partition, frozenset(names)).items():
                path = path_below(partition, name)
                if name not in cleaned.get(partition, ()) and path not in known:
                    self._note(
                        MISSING, path, f"{instant.path} names it: readers of the past need it, and no clean took it"
                    )

    def _savepoints(self, listed: Mapping[str, Iterable[str]]) -> None:
        for one in (found for found in self._whole.active.completed if found.action == SAVEPOINT):
            with self._noting(one.path):
                for partition, names in read_savepointed(self._whole.content(one), one.path).items():
                    for name in names.difference(listed.get(partition, ())):
                        self._note(MISSING, path_below(partition, name), f"the savepoint {one.path} keeps it")

    def _plans(self, listed: Mapping[str, Iterable[str]], replaced: Mapping[FileGroup, str]) -> None:
        """Checks the inputs of waiting plans, except for file groups that were replaced since."""
        for one in self._whole.active.pending:
            plan = requested(one.requested, one.action)
            with self._noting(plan.path):
                if one.action == CLEAN:
                    CleanPlan.read(self.storage, plan.path)
                if one.action not in REWRITING_SERVICES:
                    continue
                kind: Any = ClusteringPlan if one.action == CLUSTERING else CompactionPlan
                read = kind.read(self.storage, plan.path)
                for group in read.groups if one.action == CLUSTERING else read.operations:
                    names = {*group.delta_files, *([group.base_file] if group.base_file else ())}
                    if (group.partition, group.file_id) not in replaced:
                        for name in names.difference(listed.get(group.partition, ())):
                            self._note(MISSING, path_below(group.partition, name), f"{plan.path} is to rewrite it")

    def _superfluous(self, listed: Mapping[str, Iterable[str]]) -> None:
        """Finds files with bytes under our instants that do not name them: readers show every file of an instant.

        File groups that the instant itself replaces are none: a clustering that left a bucket out, as it was written to
        meanwhile, leaves the new file group there to a clean.
        """
        given_up = {
            (instant.requested, *group)
            for instant, metadata in self._writes
            for group in metadata.replaced_file_groups()
        }
        ours = {instant.requested for instant, metadata in self._writes if WRITER_KEY in metadata.extra}
        named = {stat.path for _, metadata in self._writes for stat in metadata.stats}
        for partition, names in listed.items():
            for name in names:
                file, path = parse_data_file(name), path_below(partition, name)
                if file is None or file.instant not in ours or path in named:
                    continue
                if (file.instant, partition, file.file_id) in given_up:
                    continue
                if isinstance(file, LogFile) and (is_compacted_log(file) or is_kept_deletes(file)):
                    continue  # of a cancelled plan, or of another engine's compaction
                with self._noting(path):
                    if self.storage.stat(path).size_bytes:
                        self._note(SUPERFLUOUS, path, f"the write {file.instant} does not name it")

    def _kept_deletes(self, listed: Mapping[str, Iterable[str]], replaced: Mapping[FileGroup, str]) -> None:
        """Checks files of kept deletes of column groups, which only footers of the newest base files name."""
        newest: dict[FileGroup, BaseFile] = {}
        for path in self._there:
            partition, _, name = path.rpartition("/")
            file = parse_data_file(name)
            if isinstance(file, BaseFile) and (partition, file.file_id) not in replaced:
                found = newest.setdefault((partition, file.file_id), file)
                newest[partition, file.file_id] = max(found, file, key=lambda one: one.instant)

        def check(partition: str, path: str) -> None:
            with self._noting(path):
                kept = open_base_file(self.storage, path, []).footer.get(KEPT_DELETES_FOOTER.encode(), b"").decode()
                if kept and kept not in listed.get(partition, ()):
                    self._note(MISSING, path_below(partition, kept), f"{path} has kept deletes in it")

        bases = ((partition, path_below(partition, file.name)) for (partition, _), file in newest.items())
        self.storage.together(*(partial(check, *one) for one in bases))

    def _index(self) -> None:
        """Finds damaged indexes, which are superfluous: they are not used, and hold nothing else."""
        for name in self.storage.names(INDEX_FOLDER):
            path = f"{INDEX_FOLDER}/{name}"
            try:
                if index_moment(name):
                    FileIndex.from_bytes(self.storage.read(path), path)
            except CorruptTable as error:
                self._note(SUPERFLUOUS, path, error.message)
            except NotFound:
                continue

    # -- findings -----------------------------------------------------------------------------------------------------

    def _note(self, kind: str, path: str, why: str) -> None:
        self.findings.add(Finding(kind, path, why))

    @contextmanager
    def _noting(self, path: str) -> Iterator[None]:
        """Notes files that turn out to be damaged or missing in this block; an error may name its file."""
        try:
            yield
        except NotFound as error:
            self._note(MISSING, path, error.message)
        except CorruptTable as error:
            found = Finding(DAMAGED, str(error.details.get("path") or path), error.message)
            if replace(found, kind=MISSING) not in self.findings:  # found by the slots already
                self.findings.add(found)
