"""Plans cleans: chooses files that no reader within retention, no savepoint and no waiting plan needs.

A reader that began at some moment reads, of each file group, the version that was the latest one then. So a clean keeps
the versions that were the latest at the moment to which the retention reaches, or later. A waiting plan needs the
versions that were the latest when it was made: for its file groups the kept moments begin there.

A version that is not kept never becomes the latest again, as completed writes have superseded it. So the files in a
plan are dead for good, even if the clean is executed late, twice, or by a process that was paused. Only a rollback or
restore of a completed instant can revive one, and has to check the cleans first, the waiting ones included.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from lakelatch.engine.options.table_services import cleaning
from lakelatch.engine.options.table_services.cleaning import CleaningOptions
from lakelatch.engine.read.forgotten_deletes import is_carried_out_by_others, may_forget, note_of, planned_with_deletes
from lakelatch.engine.services.removals.commits_of_clean import KnownCommits
from lakelatch.engine.services.removals.file_versions import Version, needed_at, versions
from lakelatch.errors import CorruptTable
from lakelatch.format.file_groups import replace_commit, two_of_one_bucket
from lakelatch.format.names import BaseFile, LogFile, parse_data_file
from lakelatch.format.slices.partitions import partition_files
from lakelatch.format.slices.table_view import TableView
from lakelatch.heartbeat.observer import Observer
from lakelatch.storage.contract import FileStatus, NotFound, Storage, path_below
from lakelatch.timegen.instant_time import to_instant, to_ms
from lakelatch.timeline.actions import (
    CLEAN,
    PENDING_WRITE_ACTIONS,
    REPLACE_COMMIT,
    RESTORE,
    ROLLBACK,
    SAVEPOINT,
    WRITE_ACTIONS,
)
from lakelatch.timeline.instant import COMPLETED, Instant
from lakelatch.timeline.log.whole_timeline import WholeTimeline
from lakelatch.timeline.metadata import WRITER_KEY, FileGroup
from lakelatch.timeline.plans.clean_plan import CleanPlan
from lakelatch.timeline.plans.service_plan import REWRITING_SERVICES
from lakelatch.timeline.service_metadata import read_clean_extra, read_savepointed, read_undone_partitions
from lakelatch.timeline.table_config import TableConfig
from lakelatch.transactions.base.cancel_requests import plan_of

UNTIL = "lakelatch.clean.until"  # all that was superseded by then is cleaned, or held
HELD = "lakelatch.clean.held"  # partitions to check again, by what holds files in them
KEPT = "lakelatch.clean.kept"  # the policy, and how much it kept
_SAVEPOINTS = "savepointed_timestamps"  # Hudi's own, for the same purpose
_HOUR_MS = 3_600_000
_CLEANS_LOOKED_AT_MAX = 10
_COMMITS_WITHOUT_RECORD = 100


@dataclass(frozen=True)
class LastClean:
    """Metadata that our last clean left for the next one."""

    until: str
    held: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class Found:
    """Files that may be removed, and partitions that have to be checked again."""

    files: dict[str, tuple[str, ...]] = field(default_factory=dict)
    held: dict[str, set[str]] = field(default_factory=dict)

    def hold(self, why: str, partition: str) -> None:
        self.held.setdefault(why, set()).add(partition)


@dataclass(frozen=True)
class CleanPlanner:
    """Plans one clean, as of its slot in the log. `known` is older than the timeline, so that no file seems too old."""

    storage: Storage
    config: TableConfig
    options: CleaningOptions
    writer: str
    known: KnownCommits
    whole: WholeTimeline
    _forgotten: dict[str, Collection[FileGroup]] = field(default_factory=dict, init=False)

    @property
    def now_ms(self) -> int:
        return self.known.began_ms

    def is_due(self) -> bool:
        """Whether enough has been committed since the last clean."""
        last = max((one.requested for one in self.whole.active.instants if one.action == CLEAN), default="")
        return sum((one.completion or "") > last for one in self._writes) >= self.options.trigger_commits

    def plan(self) -> CleanPlan | None:
        """The plan; None if there is nothing to do, or a clean is waiting to be executed.

        Errors: `CorruptTable` if a file is missing in a partition from which files are to be removed.
        """
        if any(one.action == CLEAN for one in self.whole.active.pending):
            return None
        last = self._last_clean if self.options.incremental else None
        if not self._may_find(last):
            return None
        found, looked_at = Found(), 0
        if last is None:
            partitions = partition_files(self.storage, self.config)
            self._undone_in(self._undoing, found)
        else:
            changed, looked_at = self._changed_since(last, found)
            partitions = ((one, self.storage.list(one).files) for one in sorted(changed) if self.options.takes(one))
        for partition, names in partitions:
            gone = self._look(partition, names, found) if self.options.takes(partition) else []
            if gone:
                found.files[partition] = tuple(sorted(gone))
        if not found.files and not self._is_worth_recording(last, looked_at):
            return None
        if found.files:
            TableView(self.storage, self.config, self.whole).ensure_whole(found.files)
        # A clean of some partitions says nothing about the others: the next one starts from the clean before it.
        earliest = None if self.options.is_filtered else self._earliest
        return CleanPlan(found.files, self.options.policy, earliest, self._writes[-1].requested, self._extra(found))

    def _may_find(self, last: LastClean | None) -> bool:
        """Whether a version, or a file of an instant undone a day ago, can have become superfluous."""
        looked_at, held = ("", ()) if last is None else (last.until, last.held)
        day_ago = to_instant(max(0, self.now_ms - int(self.options.tombstone_hours * _HOUR_MS)))
        stale = any(looked_at < (one.completion or "") <= day_ago for one in self._undoing)
        stale = stale or any(map(self._is_released, held))
        return any(stale or (one.completion or "") <= self.moment for one in self._writes)

    def _is_worth_recording(self, last: LastClean | None, looked_at: int) -> bool:
        """Whether a clean that removes nothing saves the next one a full listing, or the reading of many commits."""
        if self.options.is_filtered:
            return False
        return looked_at >= _COMMITS_WITHOUT_RECORD or (last is None and self.options.incremental)

    # -- which moments count ------------------------------------------------------------------------------------------

    @cached_property
    def moment(self) -> str:
        """Readers that began at this time or later keep the files that they need; "" if all files have to stay.

        As in Hudi, the state before the earliest commit that is kept can still be read.
        """
        if self.options.policy == cleaning.KEEP_LATEST_BY_HOURS:
            moment = to_instant(max(0, self.now_ms - self.options.hours * _HOUR_MS))
        else:
            by_versions = self.options.policy == cleaning.KEEP_LATEST_FILE_VERSIONS
            kept = self.options.versions if by_versions else self.options.commits
            moment = (self._writes[-kept - 1].completion or "") if len(self._writes) > kept else ""
        return min([moment, *self.whole.completion_times(self._begun_savepoints).values()])

    @property
    def _kept_now(self) -> str:
        options = self.options
        by_versions = options.policy == cleaning.KEEP_LATEST_FILE_VERSIONS
        number = options.hours if options.policy == cleaning.KEEP_LATEST_BY_HOURS else options.commits
        return f"{options.policy} {options.versions if by_versions else number}"

    @cached_property
    def _writes(self) -> list[Instant]:
        """Completed writes on the active timeline, by completion."""
        return list(self.whole.active.writes)

    @property
    def _undoing(self) -> list[Instant]:
        """Completed rollbacks and restores on the active timeline."""
        return [one for one in self.whole.active.completed if one.action in (ROLLBACK, RESTORE)]

    @cached_property
    def _earliest(self) -> Instant:
        """For other engines: the write with the least requested time among those that are kept or in progress."""
        later = [one for one in self._writes if (one.completion or "") > self.moment]
        under_way = [one for one in self.whole.active.pending if one.action in PENDING_WRITE_ACTIONS]
        return min([*later, *under_way, self._writes[-1]], key=lambda one: one.requested)

    @cached_property
    def _needed_since(self) -> Mapping[FileGroup, str]:
        """For each file group in a waiting plan, when the oldest such plan was made."""
        found: dict[FileGroup, str] = {}
        waiting = [one for one in self.whole.active.pending if one.action in REWRITING_SERVICES]
        for plan in filter(None, (plan_of(self.storage, one) for one in waiting)):  # None: nothing is needed for it now
            for group in plan.groups:
                found[group] = min(found.get(group, plan.instant), plan.instant)
        return found

    @cached_property
    def _savepoints(self) -> Mapping[str, Mapping[str, frozenset[str]]]:
        """The files that each completed savepoint keeps, by partition."""
        return {
            one.requested: read_savepointed(self.whole.content(one), one.path)
            for one in self.whole.active.completed
            if one.action == SAVEPOINT
        }

    @property
    def _begun_savepoints(self) -> set[str]:
        """Requested times of writes whose savepoint is not complete, so that its files are not known yet."""
        begun = {one.requested for one in self.whole.active.instants if one.action == SAVEPOINT}
        return begun.difference(self._savepoints)

    @cached_property
    def _replaced(self) -> Mapping[FileGroup, str]:
        return {
            group: one.completion or ""
            for one in self.whole.completed((REPLACE_COMMIT,))
            for group in replace_commit(self.storage, one, self.whole.content).replaced_file_groups()
        }

    # -- where to look ------------------------------------------------------------------------------------------------

    @cached_property
    def _last_clean(self) -> LastClean | None:
        """Our last clean; None if all partitions have to be checked."""
        cleans = sorted((one for one in self.whole.active.completed if one.action == CLEAN), reverse=True)
        for clean in cleans[:_CLEANS_LOOKED_AT_MAX]:
            extra = read_clean_extra(self.whole.content(clean), clean.path)
            if UNTIL in extra:
                before = extra.get(KEPT, "").rpartition(" ")[0]
                if before == cleaning.KEEP_LATEST_FILE_VERSIONS and extra[KEPT] != self._kept_now:
                    return None  # files that it kept may be superfluous now, however long ago they were superseded
                try:
                    held = {why: tuple(found) for why, found in json.loads(extra.get(HELD, "{}")).items()}
                except (ValueError, TypeError, AttributeError) as error:
                    raise CorruptTable(f"{clean.path} says {extra[HELD]!r} of what it held", path=clean.path) from error
                return LastClean(extra[UNTIL], held)
        return None

    def _changed_since(self, last: LastClean, found: Found) -> tuple[set[str], int]:
        """Partitions in which files may have become superfluous since, and the number of commits read to find out."""
        until = None if self.options.policy == cleaning.KEEP_LATEST_FILE_VERSIONS else self.moment
        writes = self.whole.completed(WRITE_ACTIONS, last.until, until)
        changed = self.known.partitions(self.whole, writes)
        changed.update(self._undone_in(self.whole.completed((ROLLBACK, RESTORE), last.until), found))
        for why, partitions in last.held.items():
            if self._is_released(why):
                changed.update(partitions)
            else:
                found.held.setdefault(why, set()).update(partitions)
        return changed, len(writes)

    def _undone_in(self, instants: Iterable[Instant], found: Found) -> set[str]:
        """Partitions in which these rollbacks and restores found files.

        They are checked once more after a day: a base file of an undone instant has no tombstone, and may come late.
        """
        undone: set[str] = set()
        for one in instants:
            partitions = read_undone_partitions(self.whole.content(one), one.path)
            status = self._status("", one.path)  # of the storage's clock, as the time of a late request is
            now_ms = max(self.now_ms, to_ms(one.completion or one.requested))
            for partition in partitions:
                self._is_old(now_ms if status is None else status.modified_ms, partition, found)
            undone.update(partitions)
        return undone

    def _is_released(self, why: str) -> bool:
        kind, _, name = why.partition(" ")
        if kind == "until":
            return name <= to_instant(self.now_ms)
        if kind == "plan":
            return all(one.requested != name for one in self.whole.active.pending)
        if kind == "deletes":
            return not self._forgotten_by(name)
        return name not in self._savepoints

    def _extra(self, found: Found) -> dict[str, str]:
        if self.options.is_filtered:
            return {WRITER_KEY: self.writer}
        held = {why: sorted(partitions) for why, partitions in sorted(found.held.items())}
        extra = {UNTIL: self.moment, HELD: json.dumps(held), WRITER_KEY: self.writer, KEPT: self._kept_now}
        return {**extra, _SAVEPOINTS: ",".join(sorted(self._savepoints))} if self._savepoints else extra

    # -- one partition ------------------------------------------------------------------------------------------------

    def _look(self, partition: str, names: Collection[str], found: Found) -> list[str]:
        """Names of the files in a partition that may be removed."""
        instants = {file.instant for file in map(parse_data_file, names) if file is not None}
        completions = self.whole.completion_times(instants)
        groups = versions(names, completions)
        superfluous: list[str] = []
        for file_id, group in groups.items():
            for version in group[self._kept(partition, file_id, group, found) :]:
                holders = [
                    one for one, kept in self._savepoints.items() if kept.get(partition, set()) & set(version.files)
                ]
                for one in holders:
                    found.hold(f"savepoint {one}", partition)
                if not holders:
                    superfluous.extend(version.files)
        self.known.read_writers(self.whole, superfluous)
        gone = [name for name in superfluous if not self._is_needed_tombstone(partition, name, found)]
        return gone + self._tombstones(partition, groups, found) + self._leftovers(partition, names, completions, found)

    def _kept(self, partition: str, file_id: str, group: list[Version], found: Found) -> int:
        """How many versions of a file group have to stay."""
        replaced = self._replaced.get((partition, file_id))
        if replaced is not None and replaced <= self.moment:
            kept = 0
            found.hold(self._after_tombstones(max(self.now_ms, to_ms(replaced))), partition)  # for its late files
        elif self.options.policy == cleaning.KEEP_LATEST_FILE_VERSIONS and replaced is None:
            kept = min(self.options.versions, len(group))
        else:
            kept = needed_at(group, self.moment)
        pending = self._needed_since.get((partition, file_id))
        for why, since in (("plan", pending), ("deletes", self._forgotten_since(partition, file_id, group[0]))):
            if since is not None and kept < needed_at(group, since):
                found.hold(f"{why} {since}", partition)
                kept = needed_at(group, since)
        return kept

    def _forgotten_since(self, partition: str, file_id: str, latest: Version) -> str | None:
        """The compaction of another engine that made the latest version, if readers still need its inputs."""
        for base in map(parse_data_file, latest.files):
            is_others = isinstance(base, BaseFile) and may_forget(self.config, partition, base)
            if is_others and base is not None and (partition, file_id) in self._forgotten_by(base.instant):
                return base.instant
        return None

    def _forgotten_by(self, compaction: str) -> Collection[FileGroup]:
        """The file groups of another engine's compaction whose deletes are not kept elsewhere, or only since lately.

        A read that was planned before they were kept has as much time as a late request.
        """
        if compaction not in self._forgotten:
            is_needed = is_carried_out_by_others(self.whole, compaction) and not self._was_kept_before(compaction)
            self._forgotten[compaction] = planned_with_deletes(self.storage, compaction) if is_needed else ()
        return self._forgotten[compaction]

    def _was_kept_before(self, compaction: str) -> bool:
        note = self._status("", note_of(compaction))
        return note is not None and note.modified_ms + self.options.tombstone_hours * _HOUR_MS <= self.now_ms

    def _is_needed_tombstone(self, partition: str, name: str, found: Found) -> bool:
        """Whether the file is the tombstone of a failed attempt whose late request may still arrive.

        hudi-rs would read a late file of a replaced file group once the replace commit was archived. Until then the
        tombstone holds archiving up, as every file of a replaced file group does.
        """
        file = parse_data_file(name)
        if not isinstance(file, LogFile) or self.known.is_written(partition, name, file.instant):
            return False
        status = self._status(partition, name)
        return status is not None and not status.size_bytes and not self._is_old(status.modified_ms, partition, found)

    def _tombstones(self, partition: str, groups: Mapping[str, list[Version]], found: Found) -> list[str]:
        """Old tombstones that form a file group of their own, besides the live one of their bucket."""
        live = {one: group for one, group in groups.items() if (partition, one) not in self._replaced}
        if two_of_one_bucket(list(live), self.config.bucket_count) is None:
            return []
        gone: list[str] = []
        for group in live.values():
            names = [name for version in group for name in version.files]
            if any(isinstance(parse_data_file(name), BaseFile) for name in names):
                continue
            status = [self._status(partition, name) for name in names]
            there = [one for one in status if one is not None]
            if not there or any(one.size_bytes for one in there):
                continue
            if self._is_old(max(one.modified_ms for one in there), partition, found):
                gone.extend(names)
        return gone

    def _leftovers(
        self, partition: str, names: Collection[str], completions: Mapping[str, str], found: Found
    ) -> list[str]:
        """Old files of instants that ended without a commit, mostly tombstones.

        They are old by the storage's clock: no request that makes such a file is in flight any more, and its instant,
        which is neither on the timeline nor claimed, cannot complete.
        """
        gone = []
        for name in names:
            file = parse_data_file(name)
            if file is None or file.instant in completions or file.instant in self._at_work:
                continue
            status = self._status(partition, name)
            if status is not None and self._is_old(status.modified_ms, partition, found):
                gone.append(name)
        return gone

    def _status(self, partition: str, name: str) -> FileStatus | None:
        try:
            return self.storage.stat(path_below(partition, name))
        except NotFound:
            return None

    @cached_property
    def _at_work(self) -> frozenset[str]:
        # Files of a cancelled plan stay until the plan is archived.
        pending = {one.requested for one in self.whole.active.instants if one.state != COMPLETED}
        return frozenset(pending.union(Observer(self.storage).instants()))

    def _is_old(self, modified_ms: int, partition: str, found: Found) -> bool:
        if modified_ms + self.options.tombstone_hours * _HOUR_MS <= self.now_ms:
            return True
        found.hold(self._after_tombstones(modified_ms), partition)
        return False

    def _after_tombstones(self, modified_ms: int) -> str:
        """The time until which tombstones stay, rounded up to an hour, so that there are few such times."""
        hours = -(-modified_ms // _HOUR_MS) + self.options.tombstone_hours
        return f"until {to_instant(int(hours * _HOUR_MS))}"
