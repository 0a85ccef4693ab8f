"""Checks the file groups of a write's files against those that are live at its slot in the log.

A write finds the file group of a bucket when it begins, or when its tasks list the partition. Writes completed since
may have replaced that one, or made the bucket's first one under another file id.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from lakelatch.engine.run.file_report import FileReport
from lakelatch.engine.table.table import OpenedTable
from lakelatch.engine.write.first_bases import base_file_conflict, first_bases
from lakelatch.format.bucket_index import bucket_file_id, bucket_of_file_id, successor_file_id
from lakelatch.format.file_groups import FileIds, ReplaceCommit, cancelled_plans, replace_commits, undone_replaces
from lakelatch.format.names import parse_data_file
from lakelatch.format.slices.live_groups import LiveGroups
from lakelatch.timeline.actions import REPLACE_COMMIT, RESTORE, ROLLBACK, SERVICES_THAT_ADD_A_SLICE
from lakelatch.timeline.history.history import History
from lakelatch.timeline.instant import parse_file_name
from lakelatch.timeline.metadata import FileGroup
from lakelatch.timeline.snapshot import Mark, Snapshot
from lakelatch.transactions.attempts.checks import At
from lakelatch.transactions.base.outcome import Changed, Displaced
from lakelatch.transactions.conflicts.contract import Conflict, OtherWrite

Bucket = tuple[str, int]  # partition, number


@dataclass(frozen=True)
class Placement:
    """The file groups of one try of a write."""

    table: OpenedTable
    instant: str
    reports: list[FileReport]
    non_blocking: bool
    mark: Mark  # of the timeline when the write began

    def check(self, snapshot: Snapshot, at: At) -> Changed | Conflict | Displaced | None:
        """Costs nothing unless writes completed since this one began replaced file groups or gave them other ids.

        A file group that another engine made for one of the write's buckets is a conflict, even under non-blocking
        control: copied files leave tombstones under their old file id, which would be a second file group for Java's
        writers. So is a rollback of the replace commit that made the file group: the groups that it replaced are live
        again.
        """
        groups = {(report.partition, report.file_id) for report in self.reports}
        first, completed = first_bases(self.table.config, self.reports), at.since
        found = base_file_conflict(self.table.storage, self.instant, first, snapshot, completed)
        found = found or self._undone_below(snapshot)
        if found is not None:
            return found
        others = list(self._named_by_others(groups, completed))
        undoing = self._undoing(snapshot)
        if not others and undoing is None and all(write.action != REPLACE_COMMIT for write in completed):
            return None
        moving = snapshot.moving
        replaces = replace_commits(self.table.storage, moving)
        names = FileIds.after(replaces, cancelled_plans(moving))
        live = LiveGroups(self.table.storage, self.table.config, names)
        successors = {group: now for group in groups if (now := live.successor_of(*group)) != group[1]}
        gone = {group for one in replaces for group in one.replaced_file_groups()}
        if undoing is not None:
            lost = frozenset(group for group in successors.keys() - gone if not _is_named_after(group, replaces))
            if lost:
                return Conflict(undoing, lost)
        if not self.non_blocking:
            return self._optimistic(groups, at, others, successors, replaces)
        for group, now in successors.items():
            if group not in gone and now != names.successor_of(*group):
                by_name = (write for write in completed if (group[0], now) in write.file_groups)
                winner = next(by_name, None) or undoing or completed[-1]
                return Conflict(winner, frozenset([group]))
        for write, group in others:
            if group in groups and self._has_strays(group, gone):
                return Conflict(write, frozenset([group]))
        if first & successors.keys():  # a copy of log files is no copy of base files
            return Conflict(undoing or completed[-1], first & successors.keys())
        if successors:
            return Displaced(successors)
        return Changed(replace(at.staged, possible=[one for one in completed if one.action != REPLACE_COMMIT]))

    def _undone_below(self, snapshot: Snapshot) -> Conflict | None:
        """The conflict with another engine's rollback of a write whose rows were merged into this one's base files.

        Our own rollbacks are found in the log.
        """
        bases = {report: base.instant for report in self.reports if (base := parse_data_file(report.merged_base))}
        if not bases:
            return None
        before = {one.requested for one in map(parse_file_name, self.mark.names) if one is not None and one.completion}
        there = {one.requested for one in snapshot.by_completion}
        gone = before.intersection(bases.values()) - there
        gone.difference_update(History.load(self.table.storage).find_all(gone) if gone else ())
        if not gone:
            return None
        undoing = self._undoing(snapshot) or OtherWrite(min(gone), ROLLBACK, "", frozenset())
        lost = ((report.partition, report.file_id) for report, instant in bases.items() if instant in gone)
        return Conflict(undoing, frozenset(lost))

    def _undoing(self, snapshot: Snapshot) -> OtherWrite | None:
        """The rollback or restore since the write began that may have undone a replace commit, if there is one.

        If it left no trace, the replace commit. Tasks may have used one that was not there when the write began.
        """
        fresh, gone = snapshot.since(self.mark)
        found = [one for one in map(parse_file_name, fresh) if one is not None and one.action in (ROLLBACK, RESTORE)]
        found = found or undone_replaces(self.table.storage, gone, snapshot.names)
        if not found:
            return None
        last = max(found, key=lambda one: (one.requested, one.completion or ""))
        return OtherWrite(last.requested, last.action, "", frozenset(), time=last.completion or "")

    def _optimistic(
        self,
        groups: set[FileGroup],
        at: At,
        others: list[tuple[OtherWrite, FileGroup]],
        successors: dict[FileGroup, str],
        replaces: tuple[ReplaceCommit, ...],
    ) -> Changed | Conflict:
        for write, (partition, file_id) in others:
            bucket = partition, bucket_of_file_id(file_id)
            return Conflict(write, frozenset(group for group in groups if _bucket(group) == bucket))
        by_partition = {
            one.instant.requested: frozenset(group for group in successors if group[0] in one.partitions)
            for one in replaces
        }
        # A bucket without files is not named in a replace commit, but has another file id from then on.
        possible = [
            replace(write, file_groups=write.file_groups | by_partition.get(write.instant, frozenset()))
            for write in at.since
        ]
        return Changed(replace(at.staged, possible=possible))

    def _named_by_others(
        self, groups: set[FileGroup], completed: list[OtherWrite]
    ) -> Iterator[tuple[OtherWrite, FileGroup]]:
        """Completed writes to this one's buckets in file groups with other file ids, or with random ones."""
        buckets = {_bucket(group) for group in groups}
        for write in completed:
            if write.action == REPLACE_COMMIT or write.operation_type in SERVICES_THAT_ADD_A_SLICE.values():
                continue
            for group in sorted(write.file_groups):
                bucket = bucket_of_file_id(group[1])
                if bucket is None or (group[0], bucket) not in buckets:
                    continue
                if group not in groups or (not write.slot and group[1] != bucket_file_id(bucket)):
                    yield write, group

    def _has_strays(self, group: FileGroup, gone: set[FileGroup]) -> bool:
        """Whether a failed attempt of this write left tombstones in another file group of the bucket."""
        found = map(parse_data_file, self.table.storage.list(group[0]).files)
        mine = {(group[0], file.file_id) for file in found if file is not None and file.instant == self.instant}
        return any(other != group and _bucket(other) == _bucket(group) and other not in gone for other in mine)


def _is_named_after(group: FileGroup, replaces: tuple[ReplaceCommit, ...]) -> bool:
    """Whether the file id is the one that we give its bucket, after one of these replace commits or before them all."""
    bucket = bucket_of_file_id(group[1])
    if bucket is None or group[1] == bucket_file_id(bucket):
        return True
    return any(group[1] == successor_file_id(bucket, one.instant.requested) for one in replaces)


def _bucket(group: FileGroup) -> tuple[str, int | None]:
    return group[0], bucket_of_file_id(group[1])
