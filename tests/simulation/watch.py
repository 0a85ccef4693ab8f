"""Looks at the stock whenever something happens to it, in no time: what readers of that moment would find.

It sees the storage itself, without a network, so nobody can do anything between two of its looks at files.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from random_tables.index_checks import IndexChecks
from stock import CONFIG, STOCK, is_stock, rows_of

from lakelatch.engine.services.removals.clean_planning import UNTIL
from lakelatch.errors import LakelatchError
from lakelatch.format.bucket_index import bucket_of_file_id
from lakelatch.format.file_slices import file_slices
from lakelatch.format.names import BaseFile, is_placeholder, parse_data_file
from lakelatch.format.slices.table_view import TableView
from lakelatch.storage import MemoryStorage
from lakelatch.storage.contract import path_below
from lakelatch.timeline.actions import (
    BULK_INSERT,
    CLEAN,
    CLUSTERING,
    COMPACTION,
    DELTA_COMMIT,
    INSERT_OVERWRITE,
    PENDING_WRITE_ACTIONS,
    REPLACE_COMMIT,
    RESTORE,
    ROLLBACK,
    SAVEPOINT,
    UPSERT,
    WRITE_ACTIONS,
)
from lakelatch.timeline.history.history import History
from lakelatch.timeline.instant import (
    ABORTED,
    COMPLETED,
    REQUESTED,
    TIMELINE_FOLDER,
    Instant,
    parse_file_name,
    requested,
)
from lakelatch.timeline.log.events import CANCEL_FOLDER
from lakelatch.timeline.log.whole_timeline import WholeTimeline
from lakelatch.timeline.metadata import CommitMetadata, CompactionPlan, FileGroup, RollbackPlan
from lakelatch.timeline.plans.clean_plan import CleanPlan
from lakelatch.timeline.plans.clustering_plan import ClusteringPlan
from lakelatch.timeline.plans.restore_plan import RestorePlan
from lakelatch.timeline.plans.savepoint import SavepointMetadata
from lakelatch.timeline.plans.service_plan import ServicePlan
from lakelatch.timeline.snapshot import Snapshot

if TYPE_CHECKING:
    from seams import Place

_PROBLEMS_MOST = 5
_KEPT_MOST = 2  # commits that a clean keeps (`clean` in stock.py)
_INDEXES_EVERY = 3  # of the times at which something completes, or leaves the timeline
_DEPOSITS = (UPSERT.upper(), BULK_INSERT.upper(), INSERT_OVERWRITE.upper())


@dataclass(frozen=True)
class _Deposit:
    completion: str
    rows: frozenset[str]
    overwrites: bool


class Watch:
    """What was ever committed to the stock, called off, cleaned, archived and taken back, and what is wrong with it."""

    def __init__(self, place: Place, storage: MemoryStorage) -> None:
        self._place, self._storage = place, storage
        self.problems: list[str] = []
        self._indexes = IndexChecks(storage, CONFIG, kept_most=4)
        self._looks = 0
        self.aged = False  # whether a day has passed, so that tombstones may go
        self._named: set[str] = set()  # data files that commits name
        self._cleaned: dict[str, bytes] = {}  # those of them that are gone
        self._deposits: dict[str, _Deposit] = {}  # by requested time
        self._cancelled: dict[str, frozenset[FileGroup] | None] = {}  # None for the whole
        self._cleans: dict[str, CleanPlan] = {}
        self._begun: set[str] = set()  # requested times of writes, whose base files may come after they have ended
        self._restores: set[str] = set()
        self._undone: set[str] = set()  # requested times of what restores and rollbacks take back, or have
        self._gone: set[str] = set()  # those of them whose completed files have gone: other readers see them no more
        self._kept: dict[str, frozenset[str]] = {}  # paths, by savepoint
        self._given_up: set[str] = set()  # savepoints
        self._listing: Snapshot | None = None  # of the timeline as it is now; None since it has changed
        self._whole: WholeTimeline | None = None

    def tell(self, problem: str) -> None:
        """Notes a problem, the first ones of many."""
        self._place.world.note(f"WRONG: {problem}")
        if len(self.problems) < _PROBLEMS_MOST:
            self.problems.append(problem)

    def cancelled(self, plan: ServicePlan, part: frozenset[FileGroup] | None) -> None:
        """Somebody was told that a plan is called off, or its part on some file groups."""
        before = self._cancelled.get(plan.instant, frozenset())
        self._cancelled[plan.instant] = None if part is None or before is None else before | part

    def cleaned_until(self) -> str:
        """Readers that have begun at this time or later find their files."""
        return max((plan.extra.get(UNTIL, "") for plan in self._cleans.values()), default="")

    def as_if_never_cleaned(self, files: Mapping[str, bytes]) -> dict[str, bytes]:
        """The files for the checker, which knows of no cleaning.

        Without those that have come late: a clean takes tombstones with the version that they are in, and what comes
        then is in a version that nobody reads. It has to be gone a day later (`ensure_tidy`).
        """
        late = {path for plan in self._cleans.values() for path in plan.paths} - self._named
        return {**{path: data for path, data in files.items() if path not in late}, **self._cleaned}

    def is_undone(self, path: str) -> bool:
        """Whether a data file is of an instant that was taken back, or is about to be."""
        file = parse_data_file(path.rpartition("/")[2])
        return file is not None and file.instant in self._undone

    def but_of_undone(self, problems: Iterable[str]) -> list[str]:
        """Those of the checker's problems that are not about what was taken back, of which it does not know."""
        return [problem for problem in problems if not any(instant in problem for instant in self._undone)]

    def told_undone(self, instants: Iterable[str]) -> None:
        """Somebody was told that this was taken back."""
        for instant in sorted(set(instants) - self._undone):
            self.tell(f"{instant} was said to be taken back, and no restore and no rollback names it")

    def compare(self, who: str, rows: Iterable[str], instants: Iterable[str], spared: Collection[str] = ()) -> None:
        """Whether somebody has read what these writes have brought, each row once; `spared` may be missing."""
        there = [self._deposits[instant] for instant in instants if instant in self._deposits]
        last = max((one.completion for one in there if one.overwrites), default="")
        wanted = {row for one in there if one.completion >= last for row in one.rows}
        found = Counter(rows)
        lost = sorted(wanted.difference(found, spared))
        strange = sorted(found.keys() - wanted)
        twice = sorted(row for row, count in found.items() if count > 1)
        for what, which in (("misses", lost), ("reads too much", strange), ("reads twice", twice)):
            if which:
                self.tell(f"{who} {what}: {which[:3]}")

    def _rows_between(self) -> set[str]:
        """What other readers miss while a restore goes back past a clean.

        It has undone what superseded a file, not yet what wrote it, and a clean has removed that file.
        """
        going = self._undone - self._gone
        files = ((parse_data_file(path.rpartition("/")[2]), data) for path, data in self._cleaned.items())
        return {row for file, data in files if file is not None and file.instant in going for row in rows_of(data)}

    # -- what happens to files ----------------------------------------------------------------------------------------

    def put(self, path: str, before: bytes | None, data: bytes) -> None:
        """After a file was put."""
        self._note_change(path)
        if is_stock(path) and data != before:
            file = parse_data_file(path.rpartition("/")[2])
            if data and not self.aged and file is not None and self._is_aborted(file.instant, path):
                self.tell(f"{path} was put after its plan had ended as cancelled")
            self.look(f"after the put of {path}")
            if before and not data:
                self._ensure_not_kept(path)
        instant = _instant_of(path)
        if instant is None:
            return
        if instant.action in (RESTORE, ROLLBACK, SAVEPOINT):
            known = len(self._undone)
            self._note_taken_back(instant, data)
            if len(self._undone) > known:
                self.look(f"after {instant.file_name}")
        elif instant.state == COMPLETED and data != before:
            if instant.action in (DELTA_COMMIT, REPLACE_COMMIT):
                self._note_deposit(CommitMetadata.from_avro(data, path), instant)
            if instant.action in WRITE_ACTIONS:
                self._ensure_not_restored(instant, CommitMetadata.from_avro(data, path))
                self._named.update(stat.path for stat in CommitMetadata.from_avro(data, path).stats)
                self._ensure_not_cancelled(instant, data)
                self.look(f"after {instant.file_name}")
                self._look_at_indexes(f"after {instant.file_name}")
        elif instant.state == REQUESTED and instant.action == DELTA_COMMIT:
            self._begun.add(instant.requested)
        elif instant.state == REQUESTED and instant.action == CLEAN:
            self._cleans[instant.requested] = CleanPlan.from_avro(data, path)

    def delete(self, path: str, before: bytes) -> None:
        """After a file was deleted."""
        self._note_change(path)
        instant = _instant_of(path)
        if is_stock(path):
            if before and path in self._named and not self.is_undone(path):
                self._cleaned[path] = before
            if before:
                self._ensure_not_kept(path)
            for waiting in self._timeline().pending:
                if waiting.requested not in self._undone and path in self._inputs(waiting):
                    self.tell(f"{path} was deleted, and {waiting.action} {waiting.requested} is to read it")
            self.look(f"after the deletion of {path}")
        elif instant is not None:
            if History.load(self._storage).find(instant.requested) is not None or instant.state == ABORTED:
                self._place.archived_files[path] = before
            elif instant.state == COMPLETED and instant.action != SAVEPOINT and instant.requested not in self._undone:
                self.tell(f"{instant.file_name} has left the timeline, and is not in the history")
            if instant.state == COMPLETED and instant.action in WRITE_ACTIONS:
                self._gone |= self._undone & {instant.requested}
            if instant.action == SAVEPOINT and self._kept.pop(instant.requested, None) is not None:
                self._given_up.add(instant.requested)
            if instant.state in (COMPLETED, ABORTED):
                self.look(f"after {instant.file_name} has left")
                self._look_at_indexes(f"after {instant.file_name} has left")

    def _note_change(self, path: str) -> None:
        """Until the timeline or its history changes, a reader who begins anew would find both as the last one did."""
        if path.startswith(f"{TIMELINE_FOLDER}/"):
            self._listing = self._whole = None

    def _timeline(self) -> Snapshot:
        """The timeline now: nobody does anything meanwhile, so one listing is all there is."""
        if self._listing is None:
            self._listing = Snapshot.look(self._storage)
        return self._listing

    def _whole_timeline(self) -> WholeTimeline:
        if self._whole is None:
            self._whole = WholeTimeline.load(self._storage, self._timeline())
        return self._whole

    def _is_aborted(self, instant: str, path: str) -> bool:
        aborted = {one.requested for one in self._timeline().aborted}
        # A compaction's names lie among files that are read, and stay free: what comes late is swept.
        return instant in aborted and self._storage.exists(f"{TIMELINE_FOLDER}/{instant}.{CLUSTERING}.aborted")

    def _note_deposit(self, metadata: CommitMetadata, instant: Instant) -> None:
        stats = [one for one in metadata.stats if one.partition == STOCK and not is_placeholder(one.path)]
        if stats and metadata.operation_type in _DEPOSITS:
            rows = frozenset(f"{instant.requested}:{bucket_of_file_id(one.file_id)}" for one in stats)
            overwrites = metadata.operation_type == INSERT_OVERWRITE.upper()
            self._deposits[instant.requested] = _Deposit(instant.completion or "", rows, overwrites)

    def _note_taken_back(self, instant: Instant, data: bytes) -> None:
        """After a file of a restore, a rollback or a savepoint was put."""
        if instant.action == RESTORE and instant.state == REQUESTED:
            self._restores.add(instant.requested)
            self._undone |= RestorePlan.read(self._storage, instant.path).requested_times
        elif instant.action == ROLLBACK and instant.state == REQUESTED:
            victim = RollbackPlan.read(self._storage, instant.path).instant
            self._undone |= {victim} & self._timeline().completion_times().keys()
        elif instant.action == SAVEPOINT and instant.state == COMPLETED and instant.requested not in self._given_up:
            files = SavepointMetadata.read(self._storage, instant.path).files
            self._kept[instant.requested] = frozenset(
                path_below(partition, name) for partition, names in files.items() for name in names
            )

    def _ensure_not_kept(self, path: str) -> None:
        """When a file with rows has gone."""
        for instant, kept in self._kept.items():
            if path in kept:
                self.tell(f"{path} is gone, and the savepoint of {instant} keeps it")

    def _ensure_not_restored(self, instant: Instant, metadata: CommitMetadata) -> None:
        """A write that began before a restore does not complete after it; services carry older plans out again."""
        for restored in self._restores:
            if metadata.operation_type in _DEPOSITS and instant.requested < restored < (instant.completion or ""):
                self.tell(f"{instant.file_name} has completed, and the restore {restored} came in between")

    def _ensure_not_cancelled(self, instant: Instant, data: bytes) -> None:
        if instant.requested not in self._cancelled:
            return
        part = self._cancelled[instant.requested]
        replaced = CommitMetadata.from_avro(data, instant.path).replaced_file_groups()
        if part is None or part & replaced:
            self.tell(f"{instant.file_name} has committed what was called off: {sorted(part or ())}")

    def _is_late_base(self, name: str) -> bool:
        file = parse_data_file(name)
        return (
            isinstance(file, BaseFile)
            and file.instant in self._begun
            and path_below(STOCK, name) not in self._named
            and not self._timeline().of(file.instant)
        )

    def _inputs(self, waiting: Instant) -> set[str]:
        path = requested(waiting.requested, waiting.action).path
        if waiting.action == CLUSTERING:
            groups = ClusteringPlan.read(self._storage, path).groups
            return {
                path_below(one.partition, name) for one in groups for name in (one.base_file, *one.delta_files) if name
            }
        if waiting.action == COMPACTION:
            operations = CompactionPlan.read(self._storage, path).operations
            return {
                path_below(one.partition, name)
                for one in operations
                for name in (one.base_file, *one.delta_files)
                if name
            }
        return set()

    def ensure_tidy(self) -> None:
        """A day later: whether all is gone that no commit names, that was asked for, and that was taken back."""
        whole = WholeTimeline.load(self._storage)
        for one in whole.completed(WRITE_ACTIONS):
            if one.requested in self._undone:
                self.tell(f"{one.file_name} was taken back, and is there a day later")
        writes = sorted(whole.completed(WRITE_ACTIONS), key=lambda one: one.completion or "")
        named = {stat.path for one in writes for stat in whole.metadata(one).stats}
        # Where a clustering leaves a group out, a clean takes the successor's file as that of any replaced file group:
        # when no kept commit is older than its commit.
        kept = {group for one in writes[-_KEPT_MOST:] for group in whole.metadata(one).replaced_file_groups()}
        for name in self._storage.list(STOCK).files:
            path, file = path_below(STOCK, name), parse_data_file(name)
            if file is None or (STOCK, file.file_id) in kept:
                continue
            if self._storage.stat(path).size_bytes and path not in named:
                self.tell(f"{path} is there a day later, and no commit names it")
        for name in self._storage.list(CANCEL_FOLDER).files:
            self.tell(f"{CANCEL_FOLDER}/{name} is there a day later")

    # -- what readers find --------------------------------------------------------------------------------------------

    def look(self, when: str) -> None:
        """What our readers and hudi-rs find now: all that was ever committed and not taken back, once.

        For our readers it is taken back when the rollback or restore is on the timeline, for hudi-rs when the completed
        file goes. That file may come back, by a request that was late; until it goes once more only our readers know
        that it does not count.
        """
        came_back = not self._gone.isdisjoint(self._timeline().completion_times())
        if came_back:
            self._place.count("came back")
        for who, read, uncounted, spared in (
            ("a reader", self._rows, self._undone, set[str]()),
            ("hudi-rs", self._rows_of_hudi_rs, self._gone, self._rows_between()),
        ):
            if came_back and who == "hudi-rs":
                continue
            try:
                self.compare(f"{who} {when}", read(), self._deposits.keys() - uncounted, spared)
            except LakelatchError as error:
                self.tell(f"{who} {when} cannot read: {error.message}")

    def _look_at_indexes(self, when: str) -> None:
        """Now and then, whether file indexes of earlier moments say what listing says, or nothing."""
        self._looks += 1
        if self._looks % _INDEXES_EVERY:
            return
        for problem in self._indexes.look():
            self.tell(f"{when}: {problem}")
        for what, count in self._indexes.counts.items():
            self._place.counts[f"index {what}"] = count

    def _rows(self) -> list[str]:
        view = TableView(self._storage, CONFIG, self._whole_timeline(), single_listing=True)
        return [
            row
            for found in view.slices([STOCK])
            for name in found.names
            for row in rows_of(self._storage.read(found.path_of(name)))
        ]

    def _rows_of_hudi_rs(self) -> list[str]:
        """It knows the active timeline alone, and takes all that is older than the first write there for committed.

        It knows no savepoints, so the first write is one that a savepoint keeps as well. A load's base file that a
        request has made once more below that, after the load was rolled back, is left out: nothing bars its name.
        """
        names = [name for name in self._storage.list(STOCK).files if not self._is_late_base(name)]
        active, whole = self._timeline(), self._whole_timeline()
        completed = {one.requested: one for one in active.completed if one.action in WRITE_ACTIONS}
        writes = (one for one in active.instants if one.action in PENDING_WRITE_ACTIONS)
        first = min((one.requested for one in writes if one.state != ABORTED), default="")
        instants = {file.instant for file in map(parse_data_file, names) if file is not None}
        times = {one: one for one in instants if one < first}
        times.update({one.requested: one.completion or "" for one in completed.values()})
        replaced = {
            file_id
            for one in completed.values()
            if one.action == REPLACE_COMMIT
            for partition, file_id in whole.metadata(one).replaced_file_groups()
            if partition == STOCK
        }
        groups = file_slices(STOCK, names, times)
        return [
            row
            for group in groups
            if group[0].file_id not in replaced
            for name in group[0].names
            for row in rows_of(self._storage.read(group[0].path_of(name)))
        ]


def _instant_of(path: str) -> Instant | None:
    folder, _, name = path.rpartition("/")
    return parse_file_name(name) if folder == TIMELINE_FOLDER else None
