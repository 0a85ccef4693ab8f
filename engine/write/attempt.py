"""Tries of a write: each ends as a result or as lost, and what has lost is tried again as often as the options say."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TypeAlias

from lakelatch.engine.run.result import CommitResult
from lakelatch.engine.write.rebase import LostFiles
from lakelatch.errors import CommitUnknown, InvariantBroken, LakelatchError, WriteConflict, from_text
from lakelatch.retry import Backoff, tries
from lakelatch.transactions.manager import TransactionManager
from lakelatch.transactions.transaction import OPEN, Transaction
from lakelatch.transactions.winner import wait_for_winner

_BACKOFF = Backoff(first_s=0.05, longest_s=5.0, jitter=1.0)
_log = logging.getLogger("lakelatch.engine")


@dataclass(frozen=True)
class Lost:
    """A try that lost to another write. `files` are what it has written, if they were kept for the next one.

    `as_logs`: it would not have lost with log files in the place of base files, so it need not end.
    """

    conflict: WriteConflict
    files: LostFiles | None = None
    as_logs: bool = False


#: One try. It is given the files of the one before, if they were kept, and whether another one would follow.
Try: TypeAlias = Callable[[LostFiles | None, bool], CommitResult | Lost]


def attempted(transaction: Transaction, work: Callable[[], CommitResult | Lost]) -> CommitResult | Lost:
    """Does the work of one try. If it fails the transaction is rolled back, and Spark's errors get their types back."""
    try:
        return work()
    except CommitUnknown:
        raise
    except BaseException as error:
        failure = abort_after(transaction, error)
        if isinstance(failure, WriteConflict):
            return Lost(failure)
        if failure is error:
            raise
        raise failure from error


def retried(manager: TransactionManager, attempt: Try) -> CommitResult:
    """Tries anew after each conflict, as often as the options say, with what is left of the try before.

    Errors: `WriteConflict` of the last try, and what a try raises.
    """
    context = manager.context
    retries = context.settings.conflict_retries
    files: LostFiles | None = None
    try:
        for tried in tries(context.system, _BACKOFF, retries + 1):
            outcome = attempt(files, tried <= retries)
            if isinstance(outcome, CommitResult):
                return replace(outcome, conflicts_retried=tried - 1)
            if outcome.files is not None:  # else those that are there do for the next try as well
                if files is not None:
                    files.drop()
                files = outcome.files
            if tried > retries:
                raise outcome.conflict
            _log.info("try %d of %d: %s", tried, retries + 1, outcome.conflict)
            wait_for_winner(context.observer, outcome.conflict, context.settings.lock_timeout_s, context.system)
    finally:
        if files is not None:
            files.drop()
    raise InvariantBroken("the tries of a write ended without a result")


def result_or_raise(outcome: CommitResult | Lost) -> CommitResult:
    """The result of a try that is the only one. Errors: `WriteConflict`."""
    if isinstance(outcome, Lost):
        raise outcome.conflict
    return outcome


def abort_after(transaction: Transaction, error: BaseException) -> BaseException:
    """Rolls a write back after an error, and returns the one that says what was wrong: itself, or what is behind it.

    Spark hands over no more than a text of what a task has raised. Of a conflict that a task has found the storage
    knows all.
    """
    typed = error if isinstance(error, LakelatchError) else from_text(str(error))
    conflict: WriteConflict | None = None
    if transaction.status == OPEN and isinstance(error, Exception) and isinstance(typed, WriteConflict | None):
        with suppress(LakelatchError):
            conflict = transaction.found_early()
    transaction.abort_quietly(conflict)
    return conflict or typed or error
