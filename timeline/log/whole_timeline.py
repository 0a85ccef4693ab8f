"""The active timeline and the history as one: which instants count as committed, since when, and what they say.

Hudi's readers count the files of every instant that is older than the first write on the active timeline, because
archivers begin at the oldest one. The history says more: when such an instant completed, which cuts file slices. So an
instant that is on neither counts only if it is older than the first write and no rollback names it, and then as
completed when it was requested.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial

from lakelatch.errors import WriteConflict
from lakelatch.storage.contract import NotFound, Storage
from lakelatch.storage.uris import without_secrets
from lakelatch.timeline.actions import PENDING_WRITE_ACTIONS, RESTORE, ROLLBACK, SAVEPOINT, WRITE_ACTIONS
from lakelatch.timeline.history.history import History
from lakelatch.timeline.history.level_file import ArchivedInstant
from lakelatch.timeline.history.named_files import Named, expected_of, recall, remember
from lakelatch.timeline.history.same_table import ensure_same_table
from lakelatch.timeline.instant import (
    ABORTED,
    CLAIMS_FOLDER,
    HISTORY_NAME,
    REQUESTED,
    TIMELINE_FOLDER,
    Instant,
    is_seen,
    parse_file_name,
    requested_time,
)
from lakelatch.timeline.log.rollbacks import Rollbacks
from lakelatch.timeline.metadata import CommitMetadata, RollbackPlan
from lakelatch.timeline.plans.restore_plan import RestorePlan
from lakelatch.timeline.service_metadata import read_rolled_back
from lakelatch.timeline.snapshot import Snapshot
from lakelatch.timeline.staged import StagedStorage


@dataclass(frozen=True)
class WholeTimeline:
    """All that was committed when the active timeline was listed. `history` was loaded after it.

    Files of undone instants are not in `active`: they have come back, or are about to go.

    An instant that completed after that moment, and was archived before the history was loaded, does not count: another
    one that completed before it might be missing.
    """

    storage: Storage
    active: Snapshot
    history: History
    rollbacks: Rollbacks = field(repr=False, compare=False)

    @classmethod
    def load(
        cls, storage: Storage, active: Snapshot | None = None, rollbacks: Rollbacks | None = None
    ) -> WholeTimeline:
        """The table's timeline now. A table that has archived nothing costs what its active timeline costs.

        `active` is for a caller that has just listed it, and `rollbacks` for one that has read them. Errors:
        `WriteConflict` if others have undone something that a transaction over several tables has seen.
        """
        active = active or Snapshot.load(storage)
        rollbacks = rollbacks or Rollbacks(storage)
        active = active.without(rollbacks.late(active))
        history = History.load(storage) if active.has_history else History.empty(storage)
        if isinstance(storage, StagedStorage):
            _ensure_all_there(storage, active, history)
        return cls(storage, active, history, rollbacks)

    def names_now(self) -> frozenset[str]:
        """The names that count on the active timeline now: files may have gone and come back since it was listed."""
        listing = Snapshot.take(self.storage, self.active)
        return listing.listed - self.rollbacks.late(listing)

    @cached_property
    def start(self) -> str:
        """The requested time of the first write on the active timeline, whatever its state; "" if there is none.

        Commits that a savepoint keeps do not count: archivers may pass over them.
        """
        return next(filter(self._is_write, sorted(self.active.by_requested)), "")

    def completion_times(self, requested: Iterable[str]) -> dict[str, str]:
        """Completion time by requested time, of those that count as committed writes."""
        found, strangers = self._split(requested)
        archived = self.history.find_all(strangers)
        found.update({one: one for one in self._old_enough(set(strangers).difference(archived))})
        for one, past in archived.items():
            if past.action in WRITE_ACTIONS and self._is_seen(past.completion):
                found[one] = past.completion
        return found

    def find(self, requested: str) -> Instant | None:
        """The completed instant of a requested time, on either timeline."""
        for instant in self.active.of(requested):
            if instant.completion is not None and instant.action != SAVEPOINT:  # which has the time of its commit
                return instant
        archived = self.history.find(requested)
        return None if archived is None else archived.instant

    def has_undone(self, requested: str) -> bool:
        """Whether a rollback or restore has undone the instant of this requested time, or is about to."""
        return requested in self._rolled_back

    def unrecorded(self, requested: Iterable[str]) -> list[str]:
        """The requested times that count although neither timeline has their completion; oldest first."""
        strangers = self._split(requested)[1]
        archived = self.history.find_all(strangers)
        return sorted(self._old_enough(set(strangers).difference(archived)))

    def all_completion_times(self) -> dict[str, str]:
        """Completion time by requested time of every write on either timeline. Reads the whole history's times."""
        return {instant.requested: instant.completion or "" for instant in self.completed(WRITE_ACTIONS)}

    def completed(self, actions: Collection[str], after: str = "", until: str | None = None) -> list[Instant]:
        """Instants of these actions that completed after a time and until another, by completion."""
        found = {archived.requested: archived.instant for archived in self.archived(actions, after, until)}
        for instant in self.active.by_completion:
            completion = instant.completion or ""
            if instant.action in actions and completion > after and is_seen(completion, until):
                found[instant.requested] = instant
        return sorted(found.values(), key=lambda instant: (instant.completion or "", instant.requested))

    def archived(
        self, actions: Collection[str], after: str = "", until: str | None = None, planned_only: bool = False
    ) -> list[ArchivedInstant]:
        """As `completed`, of the history alone; some may be on the active timeline as well."""
        found = self.history.instants(actions, after, until, planned_only)
        return [archived for archived in found if self._is_seen(archived.completion)]

    def content(self, instant: Instant) -> bytes:
        """The bytes of a completed instant's file. Errors: those of `read_completed`."""
        if not self.active.has(instant):
            archived = self.history.find(instant.requested)
            if archived is not None:
                return self.history.metadata(archived)
        return read_completed(self.storage, instant)

    def metadata(self, instant: Instant) -> CommitMetadata:
        """The metadata of a completed write. Errors: `CorruptTable`, with its path."""
        found = CommitMetadata.from_avro(self.content(instant), instant.path)
        remember(self.storage, instant, found)
        return found

    def metadata_of(self, instants: Iterable[Instant]) -> Sequence[CommitMetadata]:
        """The metadata of completed writes, in their order, read side by side."""
        return self.storage.together(*(partial(self.metadata, instant) for instant in instants))

    def named_files(self, instant: Instant) -> Named:
        """The names of the files with bytes that a completed write names. Cached, unless they are many."""
        known = recall(self.storage, instant)
        return expected_of(self.metadata(instant)) if known is None else known

    @property
    def latest(self) -> str:
        """The greatest completion time on the active timeline: the moment that is shown; "" if there is none."""
        return self.active.latest_completion

    def _is_write(self, requested: str) -> bool:
        """Whether the active timeline has a write of this requested time, not aborted, and no savepoint of it."""
        files = self.active.of(requested)
        begun = any(one.action in PENDING_WRITE_ACTIONS and one.state != ABORTED for one in files)
        return begun and all(one.action != SAVEPOINT for one in files)

    @cached_property
    def _rolled_back(self) -> frozenset[str]:
        """Requested times that rollbacks and restores have undone, or are undoing."""
        found: set[str] = set()
        for instant in self.completed((ROLLBACK, RESTORE)):
            found.update(read_rolled_back(self.content(instant), instant.path))
        names = self.active.undoers - self.active.late
        for instant in sorted(one for one in map(parse_file_name, names) if one is not None):
            if instant.state != REQUESTED or self.active.has_completed(instant.requested):
                continue
            if self.rollbacks.is_unreadable(instant.requested, names):
                continue
            if instant.action == ROLLBACK:
                found.add(RollbackPlan.read(self.storage, instant.path).instant)
            else:
                found.update(RestorePlan.read(self.storage, instant.path).requested_times)
        return frozenset(found)

    def _split(self, requested: Iterable[str]) -> tuple[dict[str, str], list[str]]:
        """Completion times of those on the active timeline, and the times that it lacks in any state."""
        wanted = set(requested)
        found = {one: self._times[one] for one in wanted if one in self._times}
        return found, sorted(one for one in wanted.difference(found) if not self._is_open(one))

    def _is_open(self, requested: str) -> bool:
        """Whether an instant is on the active timeline and has not completed, or was cancelled."""
        files = self.active.of(requested)
        return bool(files) and (not self.active.has_completed(requested) or any(one.state == ABORTED for one in files))

    @cached_property
    def _times(self) -> dict[str, str]:
        return self.active.completion_times()

    def _old_enough(self, strangers: Iterable[str]) -> set[str]:
        """The strangers, which are on neither timeline, that count by their age alone.

        A writer that has claimed an old time may put its requested file, and write, after this timeline was listed. So
        times that are claimed now, or on the timeline now, do not count; listed in this order, since a commit releases
        its claim.
        """
        old = {one for one in strangers if one < self.start and one not in self._rolled_back}
        if old:
            old.difference_update(self.storage.names(CLAIMS_FOLDER))
            old.difference_update(map(requested_time, self.storage.names(TIMELINE_FOLDER)))
        return old

    def _is_seen(self, completion: str) -> bool:
        return not self.latest or completion <= self.latest


def find_archived(storage: Storage, names: Collection[str], requested: str) -> ArchivedInstant | None:
    """The archived instant of a requested time, for a caller that has listed the timeline's folder (`names`).

    Free for a table that has archived nothing.
    """
    return History.load(storage).find(requested) if HISTORY_NAME in names else None


def read_completed(storage: Storage, instant: Instant) -> bytes:
    """The bytes of a completed instant's file, on whichever timeline it is by now. Errors: `NotFound`, `CorruptTable`.

    The file may have been archived since the active timeline was listed.
    """
    return _read(storage, instant, History.metadata)


def read_commit(storage: Storage, instant: Instant) -> CommitMetadata:
    """The metadata of a completed write, on whichever timeline it is by now. Errors: as above."""
    found = CommitMetadata.from_avro(read_completed(storage, instant), instant.path)
    remember(storage, instant, found)
    return found


def read_plan(storage: Storage, requested: Instant) -> bytes:
    """The bytes of a requested file, on whichever timeline it is by now. Errors: as above."""
    return _read(storage, requested, History.plan)


def _read(storage: Storage, instant: Instant, read: Callable[[History, ArchivedInstant], bytes | None]) -> bytes:
    try:
        return storage.read(instant.path)
    except NotFound:
        history = History.load(storage)
        archived = history.find(instant.requested)
        data = None if archived is None else read(history, archived)
        if data is None:
            raise
        return data


def _ensure_all_there(storage: StagedStorage, active: Snapshot, history: History) -> None:
    """Errors: `WriteConflict` if what was there at the storage's moment neither counts any more nor was archived."""
    gone = {requested_time(name) for name in storage.there.difference(active.names)}
    if gone:
        ensure_same_table(storage, storage.there, active.names)
    undone = gone.difference(history.find_all(gone)) if gone else gone
    if undone:
        raise WriteConflict(
            f"others have taken {without_secrets(storage.uri)} back to before {min(undone)}, which this transaction "
            "has seen: run the block again",
            instant=min(undone),
        )
