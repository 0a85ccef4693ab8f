"""A write as an intent of the attempt loop: as many tries as its options allow, each with an instant of its own.

A try that loses to another write leaves its files to the next one, which reuses them instead of writing them again.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import replace

from lakelatch.engine.options.write import WriteOptions
from lakelatch.engine.run.executor import HERE, Executor
from lakelatch.engine.run.file_report import FileReport
from lakelatch.engine.run.result import CommitResult
from lakelatch.engine.table.schema import learn_schema
from lakelatch.engine.table.table import OpenedTable
from lakelatch.engine.write.batches import BatchRegister
from lakelatch.engine.write.commit import StagedFiles
from lakelatch.engine.write.rebase import LostFiles
from lakelatch.engine.write.replace import Choice
from lakelatch.errors import InvalidRequest, InvariantBroken, LakelatchError, WriteConflict, from_text
from lakelatch.retry import Backoff, tries
from lakelatch.storage.contract import Storage
from lakelatch.telemetry import INSTANT, WRITER, operation
from lakelatch.timeline.log.events import Event
from lakelatch.timeline.snapshot import Mark
from lakelatch.timeline.staged import StagedCommit, StagedStorage, by_now, with_staged
from lakelatch.transactions.attempts.attempt import run
from lakelatch.transactions.attempts.commit import Commit
from lakelatch.transactions.attempts.intent import Look, Place
from lakelatch.transactions.base.context import TransactionContext, TransactionState
from lakelatch.transactions.base.outcome import (
    Added,
    Committed,
    Conflicted,
    Ended,
    GivenUp,
    Outcome,
    Verdict,
    committed_or_raise,
)
from lakelatch.transactions.conflicts.report import shown_loss
from lakelatch.transactions.markers.own_files import NotBegun
from lakelatch.transactions.next_write import NotConfirmed
from lakelatch.transactions.several.part import Part, ensure_may_take_part, gives_way
from lakelatch.transactions.transaction import OPEN, Transaction
from lakelatch.transactions.winner import wait_for_winner

_BACKOFF = Backoff(first_s=0.05, longest_s=5.0, jitter=1.0)
_log = logging.getLogger("lakelatch.engine")
_next_part: ContextVar[Part[Write] | None] = ContextVar("lakelatch_next_part", default=None)
_part: ContextVar[Part[Write] | None] = ContextVar("lakelatch_part_of_writes", default=None)


@contextmanager
def next_write_is(part: Part[Write]) -> Iterator[None]:
    """Makes the next write of this thread a part, for which it gives way to others until the block's end."""
    _next_part.set(part)
    _part.set(part)
    try:
        with gives_way(part):
            yield
    finally:
        _next_part.set(None)
        _part.set(None)


def part_of_thread() -> Part[Write] | None:
    """The part that this thread works for, if it does."""
    return _part.get()


def _take_next_part() -> Part[Write] | None:
    """The part that the next write of this thread is, if it is one; it is given once."""
    part = _next_part.get()
    _next_part.set(None)
    return part


class Write(Commit, ABC):
    """A write from its beginning to its commit. Subclasses begin a try and stage its files."""

    def __init__(self, context: TransactionContext) -> None:
        super().__init__(context)
        self._register: BatchRegister | None = None
        self._part = _take_next_part()
        if self._part is not None:
            self._part.write = self
        # What a transaction over several tables has read is of one moment, so all of it begins again or nothing.
        self._retries = 0 if self._part is not None else context.settings.conflict_retries
        self._tries = tries(context.system, _BACKOFF, self._retries + 1)
        self._tried = next(self._tries)
        self._transaction: Transaction | None = None
        self._files: StagedFiles | None = None  # of this try, once they are staged
        self._kept: LostFiles | None = None  # of the tries before
        self._became_logs = False  # whether this try writes log files after its base files lost
        self.instants = 0  # number of instants so far, one for each try

    @abstractmethod
    def begin(self, kept: LostFiles | None) -> Transaction:
        """Begins a try; `kept` are the files of those before it."""

    @abstractmethod
    def stage(self, transaction: Transaction, kept: LostFiles | None) -> StagedFiles:
        """Writes the rows, or reuses the kept files."""

    def keeps(self, files: StagedFiles, again: bool) -> bool:
        """Whether a next try reuses these files, if this one loses; `again` says whether the options allow another."""
        return False

    def gives_up(self) -> bool:
        """Whether another try is impossible, whatever the options say."""
        return False

    def write_logs(self, kept: bool) -> None:
        """Makes the next try write fewer base files, as others conflicted with them; `kept`: this try's files stay."""
        return

    def explain(self, error: InvalidRequest) -> WriteConflict | None:
        """The conflict that made the write not fit the table, if there is one."""
        return None

    def committed(self, register: BatchRegister | None = None) -> CommitResult:
        """Writes and commits; in a batch's register each try is registered before it writes anything.

        Errors: `WriteConflict` of the last try, and other errors of a try, which is rolled back.
        """
        with operation("write", self._context.labels) as measured:
            measured.note({WRITER: self._context.writer})
            return self._committed(register)

    def _committed(self, register: BatchRegister | None) -> CommitResult:
        self._register = register
        if self._part is not None:
            ensure_may_take_part(self._context.provider, self._context.storage.uri)
        try:
            done = committed_or_raise(run(self._context, self))
        except BaseException as error:
            if self._transaction is None or self._transaction.status != OPEN:
                raise
            raise self._lost_by(self._transaction, error).conflict from error
        finally:
            if self._kept is not None:
                self._kept.drop()
        return replace(_result(self._owner.state, self._context.storage, done), conflicts_retried=self._tried - 1)

    @property
    def mark(self) -> Mark:
        """The table as this try has seen it, once it is staged."""
        return self._staged_files.transaction.state.seen

    def storage_for(self, transaction: Transaction) -> Storage | None:
        """Its table as a try of it sees it, if it is a part of a transaction over several tables that has read."""
        if self._part is None or self._part.mark is None or self._part.sees is None:
            return None
        began_then = transaction.state.seen.slot <= self._part.mark.slot
        return self._part.sees if began_then else by_now(self._part.sees)

    def shown_in(self, storage: StagedStorage) -> StagedStorage:
        """A storage of its table that shows this write as well, once it is staged."""
        files = self._staged_files
        state, number = files.transaction.state, len(storage.commits)
        return with_staged(storage, StagedCommit.of(number, state.instant, state.action, files.seen_in(storage)))

    @property
    def _staged_files(self) -> StagedFiles:
        if self._files is None:
            raise InvariantBroken(f"a write of {self._context.storage.uri} has staged nothing")
        return self._files

    def prepare(self, look: Look) -> Added | Verdict | None:
        """Begins and stages a try, if the last one is over; then closes it to tasks.

        What follows another change of the same transaction then waits for what is found for it.
        """
        if self._files is None:
            self._transaction = transaction = self.begin(self._kept)
            self.instants += 1
            if self._part is not None:
                _begin_part(self._part, transaction)
            try:
                if self._register is not None:
                    self._register.register(transaction)
                with operation("rows", self._context.labels) as measured:
                    measured.note({INSTANT: transaction.instant})
                    files = self.stage(transaction, self._kept)
                files.start(self, self.keeps(files, self._tried <= self._retries), self._part)
            except NotBegun as error:
                return Ended(error)
            except BaseException as error:
                return self._lost_by(transaction, error)
            self._files = files
            if self._part is not None and self._part.leads:
                self._part.stage()
        found = super().prepare(look)
        if found is not None or self._part is None or self._part.leads:
            return found
        return self._part.follow()

    def decide(self, place: Place) -> Event | Verdict:
        try:
            return super().decide(place)
        except (WriteConflict, InvalidRequest) as error:
            return GivenUp(error)  # its rollback takes the lock, which is held here

    def follow(self, found: Added | Verdict) -> Outcome | None:
        """The outcome; None after a verdict that was followed, or for another try."""
        outcome: Outcome | None
        if isinstance(found, GivenUp) and self._transaction is not None:
            self._files = None
            outcome = self._lost_by(self._transaction, found.why)
        elif isinstance(found, Conflicted) and self._files is None:
            outcome = found
        elif isinstance(found, Ended) and isinstance(found.error, NotBegun) and self._transaction is not None:
            self._files = None
            self._transaction.end(found, (), keep=False)
            if isinstance(found.error, NotConfirmed):
                raise found.error
            return None
        else:
            outcome = super().follow(found)
        if isinstance(outcome, Conflicted):
            with operation("conflict", self._context.conflict_labels) as measured:
                measured.note(shown_loss(outcome.conflict))
                self._lose(outcome)
            return None
        return outcome

    def _lose(self, outcome: Conflicted) -> None:
        """Prepares the next try. Errors: `WriteConflict` if there is none."""
        files, conflict, self._files = self._files, outcome.conflict, None
        if outcome.files_kept and files is not None:
            if self._kept is not None:
                self._kept.drop()
            self._kept = LostFiles(files.transaction, conflict, files.reports)
        if self.gives_up() or self._part is not None:
            raise conflict
        if files is not None and files.may_become_logs:
            _log.info("the rows of its base files become files of another instant: %s", conflict)
            # First log files only in file groups that exist by now, then everywhere; at once if rows are recomputed.
            self.write_logs(outcome.files_kept and not self._became_logs)
            self._became_logs = True
            return
        self._became_logs = False
        if self._tried > self._retries:
            raise conflict
        _log.info("try %d of %d: %s", self._tried, self._retries + 1, conflict)
        wait_for_winner(self._context.observer, conflict, self._context.settings.lock_timeout_s, self._context.system)
        self._tried = next(self._tries)

    def _lost_by(self, transaction: Transaction, error: BaseException) -> Conflicted:
        """Rolls this try back after an error; returns the conflict behind it, or raises any other error."""
        if self._part is not None:
            self._part.fail()
        failure = abort_after(transaction, error)
        conflict = failure if isinstance(failure, WriteConflict) else None
        if isinstance(failure, InvalidRequest):
            conflict = self.explain(failure)
        if conflict is not None:
            return Conflicted(conflict)
        if failure is error:
            raise error
        raise failure from error


def _begin_part(part: Part[Commit], transaction: Transaction) -> None:
    part.began(transaction.context.storage, transaction.state.seen)
    if part.mark is not None:
        transaction.reads_since(part.mark, part.sees.files if part.sees is not None else frozenset())


def commit_files(
    transaction: Transaction,
    table: OpenedTable,
    options: WriteOptions,
    reports: list[FileReport],
    executor: Executor = HERE,
    choose: Choice | None = None,
) -> CommitResult:
    """Commits the files that tasks wrote for a transaction; after an error it is rolled back.

    `choose` selects the partitions of a deletion of partitions. Errors: those of `Transaction.commit`.
    """
    context = transaction.context
    try:
        files = StagedFiles(transaction, table, options, reports, executor, choose)
        done = committed_or_raise(run(context, files.start(Commit(context))))
    except BaseException as error:
        failure = abort_after(transaction, error)
        if failure is error:
            raise
        raise failure from error
    return _result(transaction.state, context.storage, done)


def _result(state: TransactionState, storage: Storage, done: Committed) -> CommitResult:
    learn_schema(storage, state.action, done)
    return CommitResult.of(done.instant, done.completion, done.metadata)


def abort_after(transaction: Transaction, error: BaseException) -> BaseException:
    """Rolls a write back after an error, and returns the error to raise: the given one, or its cause.

    Spark only passes on the text of a task's error. The details of a conflict found by a task are in the storage.
    """
    transaction.fail(error)
    typed = error if isinstance(error, LakelatchError) else from_text(str(error))
    conflict: WriteConflict | None = None
    if transaction.status == OPEN and isinstance(error, Exception) and isinstance(typed, WriteConflict | None):
        with suppress(LakelatchError):
            conflict = transaction.found_early()
    transaction.abort_quietly(conflict)
    return conflict or typed or error
