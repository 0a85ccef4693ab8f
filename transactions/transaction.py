"""One transaction: from its requested instant to its end."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial

from lakelatch.errors import CommitUnknown, LakelatchError, TransactionEnded, Unavailable, WriteConflict
from lakelatch.heartbeat.beat import Heartbeat, ensure_beating
from lakelatch.heartbeat.contract import heartbeat_path
from lakelatch.telemetry import ACTION, COMMITS, record
from lakelatch.timeline.actions import SERVICES_THAT_REPLACE, WRITE_ACTIONS
from lakelatch.timeline.log.events import Event
from lakelatch.timeline.log.lock_names import WrongLocks
from lakelatch.timeline.metadata import CommitMetadata, FileGroup
from lakelatch.timeline.snapshot import Mark, Snapshot
from lakelatch.transactions.attempts.attempt import run
from lakelatch.transactions.attempts.checks import Check, cancelled_groups, in_order
from lakelatch.transactions.attempts.claims import clean_up, is_over, release_claim
from lakelatch.transactions.attempts.commit import Commit, append_service_completion
from lakelatch.transactions.attempts.earlier_reads import earlier_read, ensure_still_there
from lakelatch.transactions.attempts.fate import find_ended
from lakelatch.transactions.attempts.foreign import OneSidedLock
from lakelatch.transactions.attempts.intent import Look
from lakelatch.transactions.attempts.ready_commit import GroupMember
from lakelatch.transactions.base.cancel_requests import is_cancelled
from lakelatch.transactions.base.context import TransactionContext, TransactionState
from lakelatch.transactions.base.outcome import (
    Committed,
    Conflicted,
    Ended,
    Outcome,
    PlanCancelled,
    Staged,
    committed_or_raise,
)
from lakelatch.transactions.base.settings import NON_BLOCKING
from lakelatch.transactions.conflicts.report import Work, record_loss
from lakelatch.transactions.early.detection import EarlyDetection, early_detection, found_early
from lakelatch.transactions.early.notes import forget_notes, note_lost
from lakelatch.transactions.early.server_client import ServerAddress
from lakelatch.transactions.marker_server.service import serve_markers
from lakelatch.transactions.markers.direct import Markers, is_base_file
from lakelatch.transactions.markers.own_files import NotBegun, OwnFiles, ensure_not_ended
from lakelatch.transactions.next_write import NextWrite
from lakelatch.transactions.undo.recovery import bar_unless_completed
from lakelatch.transactions.undo.rollback import roll_back

OPEN = "open"
COMMITTED = "committed"
ABORTED = "aborted"
LOST = "lost, and its files are kept for another try"
UNKNOWN = "in an unknown state"
HANDED_OVER = "handed over"
HAND_OVER_PATIENCE = 20
_log = logging.getLogger("lakelatch.transactions")


class Transaction:
    """Made by `TransactionManager`; ends by a commit or `abort`, and refuses to be used afterwards."""

    def __init__(
        self,
        context: TransactionContext,
        state: TransactionState,
        heartbeat: Heartbeat,
        begun_here: bool = False,
        own_files: OwnFiles | None = None,
        next_write: NextWrite | None = None,
    ) -> None:
        self._context, self._next = context, next_write
        self._begun_here = begun_here  # so no task of it beats for itself
        #: What makes data files, in this process alone, of a transaction that is not open for tasks; else None.
        self.own_files = own_files
        self._heartbeat = heartbeat
        self.state = state
        self.status = OPEN
        self._opening = 0
        self._detects = True
        self._swept: list[str] = []
        self._cleaned_up = False
        self.committed: Committed | None = None
        self.record: str | None = None

    @property
    def context(self) -> TransactionContext:
        """What it shares with others of its table."""
        return self._context

    @property
    def instant(self) -> str:
        """The requested time: the name of this transaction on the timeline."""
        return self.state.instant

    @property
    def writer(self) -> str:
        """The name under which others see it."""
        return self._context.writer

    @property
    def markers(self) -> Markers:
        """What executors announce their files with."""
        return Markers(self._context.storage, self.instant, self._opening)

    def reads_since(self, mark: Mark, own: frozenset[str] = frozenset()) -> None:
        """Makes an earlier moment the one that it has seen, because that is when its rows were read.

        So what has completed since may be in its way, and file groups that were replaced since are those to which it
        writes. Under non-blocking control nothing is in its way, so it is only done where some were replaced; what was
        taken back since is refused there as well. `own` are completed files that were there as well, and that others do
        not see yet. Its tasks look for no conflicts then, since they would find those. Errors: those of `earlier_read`.
        """
        begun = self.state.mark.with_files(own)
        is_earlier = self._context.settings.mode != NON_BLOCKING or begun.moved_since(mark)
        read = None
        if is_earlier and mark.slot <= begun.slot:
            read = replace(earlier_read(self._context, mark, self.state.mark), mark=mark.with_files(own))
        elif mark.slot <= begun.slot:
            ensure_still_there(self._context, mark, self.state.mark)
        self.state = replace(self.state, mark=begun, read=read)
        if own:
            self._detects = False

    def commit(
        self,
        metadata: CommitMetadata,
        own: Sequence[Check] = (),
        work: Work | None = None,
        last: Sequence[Check] = (),
        member: GroupMember | None = None,
    ) -> Committed:
        """Makes exactly the files in the metadata visible, all at once.

        Files that were announced and are not in the metadata are removed first. `own` checks may change the metadata at
        the commit's place in the log, but not its files; the `last` ones act where nothing refuses it any more
        (`in_order`). `work` is what the transaction has cost, if its metadata does not say so. With a `member` others
        may put the commit into the log: then nothing else may be committed after an error, and it has to be aborted.

        Errors: `WriteConflict`, and everything was rolled back, but for the plan of a service that replaces file
        groups: it stays open, and its executor cancels it, so that its names get tombstones. `TransactionEnded`;
        `CommitUnknown`. `LockTimeout` and `Unavailable`, which leave the transaction open: commit again, or abort.
        `WrongLocks` and `OneSidedLock` for locks that not all writers of the table take; everything was rolled back,
        but for such a plan after the latter, which stays open.
        """
        staged = Staged(metadata, Work.of(metadata) if work is None else work)
        try:
            commit = Commit(self._context).start(self, staged, in_order(own, last), member=member)
            return committed_or_raise(run(self._context, commit))
        except (CommitUnknown, WrongLocks, OneSidedLock) as error:
            self.fail(error)
            raise

    def fail(self, error: BaseException) -> None:
        """What an error of the commit means for the transaction; after most it stays open."""
        if isinstance(error, CommitUnknown):
            _log.info("%s is in doubt: %s", self._name, error)
            self._end(UNKNOWN)
        elif isinstance(error, WrongLocks):  # its own rollback would be refused too: without a beat, others see to it
            self._end(ABORTED)
            self._context.storage.delete(heartbeat_path(self.instant))
        elif isinstance(error, OneSidedLock) and self.state.action not in SERVICES_THAT_REPLACE:
            self.abort_quietly()  # a replacing plan would have its names free for late files

    def end(self, outcome: Outcome, made: Iterable[str], keep: bool) -> Outcome:
        """See `Owner`. Of a conflict everything is rolled back, unless its files are to be kept.

        The plan of a service that replaces file groups stays open.
        """
        if isinstance(outcome, Committed):
            _log.info("%s is committed: completed at %s, in slot %d", self._name, outcome.completion, outcome.slot)
            self._end(COMMITTED)
            self._count_commit()
            self.committed = outcome
            self.tidy(made)
        elif isinstance(outcome, Conflicted):
            _log.info("%s is not committed: %s", self._name, outcome.conflict)
            return self._lose(outcome, keep)
        elif isinstance(outcome, Ended):
            _log.info("%s is not committed: %s", self._name, outcome.error)
            self._end_elsewhere(outcome)
        return outcome

    def _end_elsewhere(self, outcome: Ended) -> None:
        self._end(ABORTED)
        try:
            if isinstance(outcome.error, PlanCancelled):
                release_claim(self._context, self.instant, self.state.operation_id)  # for who carries that out
            elif isinstance(outcome.error, NotBegun) and self.own_files is not None:
                self._give_back(self.own_files)
            elif self.own_files is not None:  # Java's rollback may have looked for them before they were there
                bar_unless_completed(self._context, self.instant, self.own_files.announced)
        except Unavailable as error:
            _log.warning("files of instant %s are left to the next recovery: %s", self.instant, error)

    def _give_back(self, own_files: OwnFiles) -> None:
        """Removes claim and markers of a time that is over; else the next recovery does."""
        last = self._context.log.last
        if last is not None and is_over(self._context, self.instant, self.state.mark.slot, last):
            clean_up(self._context, self.instant, announced=own_files.marked)

    def close(self, keep: Iterable[str], look: Look) -> Conflicted | Ended | None:
        """See `Owner`. A plan's files have fixed names: no attempt leaves others. Errors: `TransactionEnded`."""
        self.ensure_open()
        if self.state.action in WRITE_ACTIONS:
            if self._context.settings.marker_server is not None:
                self.markers.ensure_whole()
            try:
                self._swept = self._sweep(keep, look)
            except TransactionEnded as error:
                if self.own_files is None:
                    raise
                return Ended(error)
            if self._swept:
                look.forget()
            _ensure_no_base_file(self._swept, self.instant)
        early = found_early(self._context, self.instant, self.state.began_ms, still=True)
        return None if early is None else Conflicted(early)

    def _sweep(self, keep: Iterable[str], look: Look) -> list[str]:
        ask = partial(look.requests, self.instant, self.state.operation_id, asks_claim=self.own_files is None)
        if self.own_files is None:
            return self.markers.close_and_sweep(keep, ask())
        self.own_files.announce_held()  # which reads the tail that is tried first
        self.own_files.place(ask())
        return self.own_files.sweep(keep)

    @property
    def _name(self) -> str:
        return f"{self.state.action} {self.instant}"

    def complete(self, content: bytes | Callable[[Snapshot], bytes]) -> Event:
        """Completes an instant that writes no rows (a clean, a savepoint, a restore); returns the log's event of it.

        `content` is that of the completed file, or what makes it from the timeline as it is before the instant's place
        in the log. Errors: `TransactionEnded` if others have ended it, `CommitUnknown`; those of the lock, of the
        storage and of `content` leave the transaction open: complete it again, or release it.
        """
        self.ensure_open()
        build = content if callable(content) else lambda _: content
        try:
            event = append_service_completion(self._context, self.state, build)
        except (TransactionEnded, CommitUnknown) as error:
            self._end(UNKNOWN if isinstance(error, CommitUnknown) else ABORTED)
            raise
        self._end(COMMITTED)
        self._count_commit()
        self.tidy(())
        return event

    def reopen(self) -> None:
        """Lets tasks that are given `markers` from now on announce files, after a commit that found it displaced.

        The next commit closes again, and lists the markers after that, so it sweeps what came in between and is not
        part of it. Errors: `TransactionEnded` if it was rolled back meanwhile.
        """
        self.ensure_open()
        self.own_files = None
        self._opening += 1
        self.markers.open()
        try:
            ensure_not_ended(self._context, self.state)  # a beat that is late may have brought the claim back
            ensure_beating(self._context.storage, self.instant)  # a foreign rollback is in no log
        except TransactionEnded:
            self.markers.close()
            raise

    def abort(self, conflict: WriteConflict | None = None) -> None:
        """Rolls back: the files are removed, and the timeline says so. Does nothing if it has ended already.

        The conflict that is the reason is added to the table's list of recent ones.
        """
        if self.status not in (OPEN, LOST):
            return
        lost = self.status == LOST
        self._end(ABORTED)
        if conflict is not None:
            record_loss(self._context.storage, self._context.writer, conflict, self._context.conflict_labels)
        rolled_back = roll_back(self._context, self.instant, self.state.action)
        if self.record is not None and not rolled_back:
            self._ensure_not_committed()
        if lost:
            forget_notes(self._context.storage, self.instant)

    def _ensure_not_committed(self) -> None:
        """Errors: `CommitUnknown` if others have committed it by its record."""
        found = find_ended(self._context, self.instant)
        if found is not None and found.completion is not None:
            self.status = UNKNOWN
            raise CommitUnknown(
                f"{self._name} was given up, and another writer had already committed it: it is visible since "
                f"{found.completion}",
                instant=self.instant,
            )

    def abort_quietly(self, conflict: WriteConflict | None = None) -> None:
        """As `abort`; what cannot be rolled back now is rolled back by the next writer.

        Errors: `CommitUnknown` if others may still find the commit's record, and commit it before that.
        """
        try:
            self.abort(conflict)
        except LakelatchError as error:
            if self.status == UNKNOWN:  # others have committed it
                raise
            if self.record is not None:
                self.status = UNKNOWN
                raise CommitUnknown(
                    f"{self._name} could not be rolled back ({error.message}), and others may commit it until it is: "
                    "it is committed if and only if its completed file appears on the timeline",
                    instant=self.instant,
                ) from error
            _log.warning("instant %s is left to the next writer's rollback: %s", self.instant, error)

    def release(self) -> None:
        """Leaves a plan that could not be carried out to the next executor, at once."""
        if self.status == OPEN:
            self._end(ABORTED)
            release_claim(self._context, self.instant, self.state.operation_id)

    def is_cancelled(self) -> bool:
        """Whether the plan that is carried out was called off; one look, for those who are at work on it."""
        return is_cancelled(self._context.storage, self.instant)

    def cancelled_groups(self) -> frozenset[FileGroup]:
        """The file groups that the plan must leave alone by now; at a commit's place in the log, all of them."""
        return cancelled_groups(self._context, self.state)

    def early_detection(self) -> EarlyDetection | None:
        """What tasks look for conflicts with while they are at work (`TaskFiles`); None if that is off."""
        if not self._detects:
            return None
        return early_detection(self._context, self.instant, self.state.action, self.state.seen.slot)

    def found_early(self) -> WriteConflict | None:
        """The conflict that one of its tasks has lost, with all that was thrown away; None if there is none."""
        return found_early(self._context, self.instant, self.state.began_ms)

    @property
    def asks_for_marker_server(self) -> bool:
        """Whether the options want its tasks to announce files through a marker server."""
        return self._context.settings.marker_server is not None

    def serve_markers(
        self, host: str, bind_host: str | None = None, when_lost: Callable[[], None] | None = None
    ) -> AbstractContextManager[ServerAddress | None]:
        """A marker server for this transaction's tasks, inside a block; see `serve_markers` of the server's package."""
        return serve_markers(self._context, self.instant, self.early_detection(), host, bind_host, when_lost)

    def hand_over(self) -> None:
        """Stops beating here: another process goes on with `state`.

        Nobody beats until tasks do, and between their stages nobody does either, so the claim says that its writer is
        to be given `HAND_OVER_PATIENCE` times as long.
        """
        self._end(HANDED_OVER)
        self._heartbeat.take_over(HAND_OVER_PATIENCE)

    def ensure_open(self) -> None:
        """Raises `TransactionEnded` if it has ended."""
        if self.status != OPEN:
            raise TransactionEnded(
                f"transaction {self.instant} is {self.status}: begin a new one", instant=self.instant
            )

    def _lose(self, outcome: Conflicted, keep_files: bool) -> Conflicted:
        if self.state.action in SERVICES_THAT_REPLACE:
            return outcome
        if self.status == OPEN and keep_files and note_lost(self._context.storage, self.instant):
            self.status = LOST  # and its heartbeat goes on, for the sake of the files
            return Conflicted(outcome.conflict, files_kept=True)
        self.abort_quietly(outcome.conflict)
        return outcome

    def tidy(self, made: Iterable[str]) -> None:
        """Removes claim and markers, once. No beat may be under way, or the claim would come back."""
        if self._cleaned_up:
            return
        self._cleaned_up = True
        self._heartbeat.stop()
        is_known = self._begun_here and self._context.settings.marker_server is None
        unused = self.own_files.not_made if self.own_files is not None else []
        announced = [*made, *self._swept, *unused] if is_known else None
        clean_up(self._context, self.instant, announced=announced, record=self.record)

    def claim_next(self, event: Event) -> Sequence[Callable[[], None]]:
        """See `Owner`. Only own files are announced by who begins."""
        if self._next is None or self.own_files is None:
            return ()
        return self._next.claim_after(self._context, event, self.state.mark.slot)

    def announce_next(self, made: Sequence[str]) -> Sequence[Callable[[], None]]:
        """See `Owner`."""
        if self._next is None or self.own_files is None:
            return ()
        return self._next.announce(self._context, self.instant, made, self.own_files.listed)

    def _count_commit(self) -> None:
        record(COMMITS, 1, {**self._context.labels, ACTION: self.state.action})

    def _end(self, status: str) -> None:
        self.status = status
        self._heartbeat.stop()


def _ensure_no_base_file(swept: Iterable[str], instant: str) -> None:
    """Of a write's base files all attempts make the same ones: another one is of rows that have not come again.

    Its name cannot have a tombstone, which readers would take for damage, so it might be made after the commit.
    """
    for path in filter(is_base_file, swept):
        raise Unavailable(
            f"a task of {instant} has begun to write {path!r}, and another attempt at it had no rows for that file: "
            "the rows were not the same when they were computed again. Nothing of it is visible: write again, and take "
            "care that keys and partitions are computed alike each time",
            instant=instant,
            path=path,
        )
