"""One table's timeline as one listing of its folder shows it.

A snapshot is frozen. The next one is made from the last one and the names that have come and gone since, so that it
costs what has changed, and not what is there: sets and mappings are compared and copied whole, and only new names are
parsed. `Snapshot.of_names` makes the same one from the names alone.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from itertools import chain, count
from operator import attrgetter
from typing import Any

from lakelatch.errors import Unavailable
from lakelatch.storage.contract import Storage
from lakelatch.timeline.actions import COMMIT, REPLACE_COMMIT, WRITE_ACTIONS
from lakelatch.timeline.instant import (
    ABORTED,
    COMPLETED,
    HISTORY_NAME,
    INFLIGHT,
    TIMELINE_FOLDER,
    Instant,
    is_staged_time,
    parse_file_name,
    undoes,
)

_LISTINGS_MAX = 200
_CHANGES_MAX = 64  # beyond which it is cheaper to sort anew
_numbers = count(1)
_by_name = attrgetter("file_name")
_by_completion = attrgetter("completion", "requested", "action")
_by_requested = attrgetter("requested", "completion")


@dataclass(frozen=True)
class Mark:
    """The timeline as a transaction found it when it began: nothing in it conflicts with the transaction. Pickles.

    `slot` is the last slot at that moment and `time` its time, "" for a plan, which began before its executor did. A
    file that is neither among the `names` nor in a later slot is a foreign writer's.
    """

    slot: int
    time: str = ""
    names: frozenset[str] = frozenset()
    moving: frozenset[str] = frozenset()  # the names that say where file groups are, and perhaps some more

    @property
    def moment(self) -> str:
        """The completion time of the last that it shows, or that of its slot if it is later; "" for an empty table."""
        return max(self.time, self.snapshot().latest_completion)

    def moved_since(self, earlier: Mark) -> bool:
        """Whether something has completed since an earlier one that says where file groups are by now."""
        says = (f".{REPLACE_COMMIT}", f".{ABORTED}")
        return any(name.endswith(says) for name in self.moving - earlier.names)

    def with_files(self, files: frozenset[str]) -> Mark:
        """The same, if these completed files had been there."""
        moving = (file for file in files if file.endswith(f".{REPLACE_COMMIT}"))
        return replace(self, names=self.names | files, moving=self.moving.union(moving))

    def snapshot(self) -> Snapshot:
        """The snapshot that these names show."""
        return Snapshot.of_names(self.names)


@dataclass(frozen=True)
class Snapshot:
    """The active timeline at one moment. Files appear in slot order, so it ends at some slot and lacks none before.

    Archived instants are not in it (`WholeTimeline` has both); `has_history` says whether there may be any. `late` are
    names that are ignored (`Rollbacks.late`): only `listed` and `undoers` have them. Of two listings of one process,
    the one that was begun later has the greater number.
    """

    listed: frozenset[str] = frozenset()
    late: frozenset[str] = frozenset()
    #: Every name that counts.
    names: frozenset[str] = field(default=frozenset(), compare=False, repr=False)
    #: The files of each instant, in the order of their names.
    by_requested: Mapping[str, tuple[Instant, ...]] = field(default_factory=dict, compare=False, repr=False)
    #: Completed instants, by completion time.
    by_completion: tuple[Instant, ...] = field(default=(), compare=False, repr=False)
    #: The same, for each action.
    by_action: Mapping[str, tuple[Instant, ...]] = field(default_factory=dict, compare=False, repr=False)
    #: Completed writes, and the services that rewrite, by completion time.
    writes: tuple[Instant, ...] = field(default=(), compare=False, repr=False)
    #: One instant for each requested time that has not ended, by requested time: the furthest state of it.
    pending: tuple[Instant, ...] = field(default=(), compare=False, repr=False)
    #: Plans that were cancelled, by requested time. None of them has completed, nor ever will.
    aborted: tuple[Instant, ...] = field(default=(), compare=False, repr=False)
    #: Names of rollbacks and restores, in any state.
    undoers: frozenset[str] = field(default=frozenset(), compare=False, repr=False)
    #: The greatest time that any file was ever seen to name, "" if there was none: new times must exceed it.
    latest_time: str = field(default="", compare=False, repr=False)
    number: int = field(default=0, compare=False, repr=False)

    @classmethod
    def load(cls, storage: Storage, before: Snapshot | None = None) -> Snapshot:
        """Lists the folder until two listings agree, of which `before` may be the first.

        One listing alone may show a file and lack an earlier one, if both appeared while it was read; an incremental
        reader would then go past a commit that it never saw. Errors: `Unavailable` on a table that never rests.
        """
        before = before or cls.look(storage)
        for _ in range(_LISTINGS_MAX):
            found = cls.take(storage, before)
            if found.listed == before.listed:
                return found
            before = found
        raise Unavailable(f"{TIMELINE_FOLDER} changed during each of {_LISTINGS_MAX} listings: try again")

    @classmethod
    def look(cls, storage: Storage) -> Snapshot:
        """Lists the folder once, for a caller who lists it again later and asks `lacks_nothing` then."""
        return cls.take(storage, _NOTHING)

    @classmethod
    def of_names(cls, names: Iterable[str]) -> Snapshot:
        """The snapshot of a listing, perhaps an older one, from its names alone."""
        return snapshot_of(frozenset(names))

    def following(self, names: Collection[str], late: frozenset[str] = frozenset(), number: int = 0) -> Snapshot:
        """The snapshot of another listing of the same folder, at the cost of what has changed since this one."""
        listed = names if isinstance(names, frozenset) else frozenset(names)
        if not self.listed:
            found = Snapshot.of_names(listed)
            if self.latest_time > found.latest_time:
                found = replace(found, latest_time=self.latest_time)
            found = found._listed_as(number)
            return found.following(listed, late, number) if late else found
        if listed == self.listed and late == self.late:
            return self._listed_as(number)
        came, gone = _difference(listed, self.listed)
        counted = listed.difference(late) if late else listed
        fresh, lost = (came, gone) if not late and not self.late else _difference(counted, self.names)
        if not came and not gone and not fresh and not lost:
            return self._listed_as(number)
        undoers, added = self.undoers, frozenset(filter(undoes, came))
        if added or not undoers.isdisjoint(gone):  # else it stays the same object, by which others know it
            undoers = undoers.difference(gone) | added
        return self._changed(
            [one for name in fresh if (one := parse_file_name(name)) is not None],
            [one for name in lost if (one := parse_file_name(name)) is not None and not _is_named(one, counted)],
            listed=listed,
            late=late,
            names=counted,
            undoers=undoers,
            number=number,
        )

    def _listed_as(self, number: int) -> Snapshot:
        """The same as another listing showed it; what was found out about it stays known."""
        if number == self.number:
            return self
        found = object.__new__(Snapshot)
        vars(found).update(vars(self), number=number)
        return found

    def _changed(self, fresh: list[Instant], lost: list[Instant], **others: Any) -> Snapshot:
        """A copy with the instants `fresh`, without those `lost`, and with these `others` of its fields."""
        by_requested = dict(self.by_requested)
        for one in lost:
            kept = tuple(other for other in by_requested.pop(one.requested, ()) if other != one)
            if kept:
                by_requested[one.requested] = kept
        added: list[Instant] = []
        for one in fresh:
            group = by_requested.get(one.requested, ())
            if one not in group:
                by_requested[one.requested] = _in_order((*group, one))
                added.append(one)
        touched = {one.requested: by_requested.get(one.requested, ()) for one in (*added, *lost)}
        changes = [[one for one in some if one.completion is not None] for some in (added, lost)]
        by_action = dict(self.by_action)
        for action in {one.action for one in chain(*changes)}:
            more, less = ([one for one in some if one.action == action] for some in changes)
            by_action[action] = _merged(by_action.get(action, ()), more, less)
            if not by_action[action]:
                del by_action[action]
        begun = filter(None, map(_pending, touched.values()))
        over = (one for group in touched.values() for one in group if one.state == ABORTED)
        times = (max(one.requested, one.completion or "") for one in added)
        own = vars(self)
        found = object.__new__(Snapshot)  # `replace` would look at each field, of which most are others
        vars(found).update(
            {name: own[name] for name in _FIELDS},
            by_requested=by_requested,
            by_completion=_merged(self.by_completion, *changes),
            by_action=by_action,
            writes=_merged(self.writes, *([one for one in some if one.action in WRITE_ACTIONS] for some in changes)),
            pending=tuple(sorted(chain((one for one in self.pending if one.requested not in touched), begun))),
            aborted=tuple(sorted(chain((one for one in self.aborted if one.requested not in touched), over))),
            latest_time=max(self.latest_time, *times, ""),
            **others,
        )
        return found

    def with_files(self, files: frozenset[str]) -> Snapshot:
        """A copy that has these files as well, which its reader alone sees."""
        return self.following(self.listed | files, self.late, self.number)

    def completed_with(self, done: Iterable[Instant]) -> Snapshot:
        """A copy in which these instants have completed as well; `listed` and `names` stay as they are."""
        return self._changed([one for one in done if not self.has(one)], [])

    @classmethod
    def take(cls, storage: Storage, before: Snapshot) -> Snapshot:
        """Lists the folder once, and makes the snapshot from an earlier one of it."""
        number = next(_numbers)
        return before.following(storage.names(TIMELINE_FOLDER), number=number)

    def without(self, late: frozenset[str]) -> Snapshot:
        """A copy in which these names are ignored."""
        return self.following(self.listed, late, self.number)

    def lacks_nothing(self, later: Collection[str], until: str = "") -> bool:
        """Whether this, if it is one listing, shows everything up to its latest completion and up to `until`.

        `later` are the names of a listing that began after this one had ended. It shows all that this one missed,
        unless that was removed meanwhile; and files of slots appear in the order of their times. So nothing is missing
        if no name has gone and none has come that is as old as what was there. The files with which a write begins
        appear in no order, and say nothing about completions.
        """
        come, gone = _difference(frozenset(later), self.names)
        if HISTORY_NAME in (*come, *gone) or any(parse_file_name(name) is not None for name in gone):
            return False
        moment = max(self.latest_completion, until)
        return not any(one is not None and one.is_as_old_as(moment) for one in map(parse_file_name, come))

    def since(self, mark: Mark) -> tuple[frozenset[str], frozenset[str]]:
        """The names that are new since the mark, and those of the mark that are gone; compared once."""
        if mark.names not in self._compared:
            self._compared[mark.names] = _difference(self.names, mark.names)
        return self._compared[mark.names]

    @cached_property
    def _compared(self) -> dict[frozenset[str], tuple[frozenset[str], frozenset[str]]]:
        return {}

    def completed_since(self, mark: Mark) -> tuple[Instant, ...]:
        """Completed instants whose files are new since the mark, by completion time."""
        fresh = map(parse_file_name, self.since(mark)[0])
        done = (one for one in fresh if one is not None and one.completion is not None)
        return tuple(sorted(done, key=_by_completion))

    def of(self, requested: str) -> tuple[Instant, ...]:
        """Every file that counts of the instants of this requested time."""
        return self.by_requested.get(requested, ())

    def has_completed(self, requested: str) -> bool:
        """Whether a completed file of this requested time is there, and counts."""
        return any(one.completion is not None for one in self.of(requested))

    def has(self, instant: Instant) -> bool:
        """Whether this very file is there, and counts."""
        return instant.file_name in self.names

    @property
    def has_history(self) -> bool:
        """Whether anything may have been archived."""
        return HISTORY_NAME in self.names

    def mark(self, slot: int, time: str = "") -> Mark:
        """The mark of a transaction that begins after this slot, of this time."""
        return Mark(slot, time, self.names, self.moving)

    @property
    def moving(self) -> frozenset[str]:
        """Names that say where file groups are: completed replace commits, cancelled plans, and that of the history."""
        found = chain(self.by_action.get(REPLACE_COMMIT, ()), self.aborted)
        return self.names.intersection(chain((one.file_name for one in found), (HISTORY_NAME,)))

    @property
    def latest_completion(self) -> str:
        """The greatest completion time of what is there, "" for nothing: what a plan is planned against."""
        times = (one.completion or "" for one in reversed(self.by_completion))
        return next((time for time in times if not is_staged_time(time)), "")

    @cached_property
    def instants(self) -> tuple[Instant, ...]:
        """Every file, in the order of their names."""
        found = map(parse_file_name, sorted(self.names))
        return tuple(one for one in found if one is not None)

    @cached_property
    def completed(self) -> tuple[Instant, ...]:
        """Completed instants, by requested time."""
        return tuple(sorted(self.by_completion, key=_by_requested))

    def completion_times(self) -> dict[str, str]:
        """Completion time by requested time, of every completed write (commit, deltacommit, replacecommit)."""
        return {one.requested: one.completion or "" for one in self.writes}


_FIELDS = tuple(one.name for one in fields(Snapshot))
_NOTHING = Snapshot()


def snapshot_of(listed: frozenset[str]) -> Snapshot:
    """What `Snapshot.of_names` says."""
    found = [one for one in map(parse_file_name, sorted(listed)) if one is not None]
    groups: dict[str, list[Instant]] = {}
    for one in found:
        groups.setdefault(one.requested, []).append(one)
    by_requested = {time: tuple(group) for time, group in groups.items()}
    for time in {one.requested for one in found if one.action == COMMIT and one.state == INFLIGHT}:
        by_requested[time] = _in_order({*groups[time]})  # its name has two spellings
    by_completion = tuple(sorted((one for one in found if one.completion is not None), key=_by_completion))
    over = tuple(one for one in found if one.state == ABORTED)
    by_action: dict[str, list[Instant]] = {}
    for one in by_completion:
        by_action.setdefault(one.action, []).append(one)
    open_times = sorted(by_requested.keys() - {one.requested for one in chain(by_completion, over)})
    begun = filter(None, (_pending(by_requested[time]) for time in open_times))
    return Snapshot(
        listed,
        names=listed,
        by_requested=by_requested,
        by_completion=by_completion,
        by_action={action: tuple(instants) for action, instants in by_action.items()},
        writes=tuple(one for one in by_completion if one.action in WRITE_ACTIONS),
        pending=tuple(begun),
        aborted=over,
        undoers=frozenset(filter(undoes, listed)) if undoes("\n".join(listed)) else frozenset(),
        latest_time=max((*by_requested, by_completion[-1].completion or "" if by_completion else ""), default=""),
    )


def _difference(names: frozenset[str], before: frozenset[str]) -> tuple[frozenset[str], frozenset[str]]:
    """The names that have come, and those that have gone. Mostly none has gone, which counting shows."""
    came = names.difference(before)
    return came, before.difference(names) if len(names) != len(before) + len(came) else frozenset()


def _is_named(instant: Instant, names: frozenset[str]) -> bool:
    """Whether one of the names of an instant's file is there: that of a commit in progress has two spellings."""
    spelled = f"{instant.requested}.{instant.action}.{instant.state}"
    return instant.file_name in names or (instant.state == INFLIGHT and spelled in names)


def _in_order(group: Collection[Instant]) -> tuple[Instant, ...]:
    return tuple(sorted(group, key=_by_name))


def _pending(group: tuple[Instant, ...]) -> Instant | None:
    """The furthest state of an instant that has not ended."""
    if not group or any(one.state in (COMPLETED, ABORTED) for one in group):
        return None
    return next((one for one in group if one.action == group[0].action and one.state == INFLIGHT), group[0])


def _merged(instants: tuple[Instant, ...], fresh: list[Instant], lost: list[Instant]) -> tuple[Instant, ...]:
    """Instants in the order of completion with some more, and without others."""
    if not fresh and not lost:
        return instants
    if len(fresh) + len(lost) > _CHANGES_MAX:
        return tuple(sorted({*instants}.difference(lost).union(fresh), key=_by_completion))
    found = list(instants)
    for one in lost:
        del found[bisect_left(found, _by_completion(one), key=_by_completion)]
    for one in fresh:
        insort(found, one, key=_by_completion)
    return tuple(found)
