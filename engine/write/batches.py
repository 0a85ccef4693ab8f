"""A register of the transactions that tried to write a batch, so that a repeated one is found without a search.

A write registers its instant under the batch's name before it can commit: put-if-absent, one file for each try.
A writer of the batch resolves the registered tries: one that has committed *is* the batch, and any other is aborted in
the commit log, so that its own commit fails however late it comes. A try registered later resolves this one in the same
way. So at most one try of a batch commits, whether their processes live or not.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Callable
from dataclasses import dataclass

from lakelatch.engine.options.batch import BATCH_APPLICATION, BATCH_NUMBER, Batch
from lakelatch.engine.run.result import CommitResult
from lakelatch.errors import CommitUnknown, CorruptTable, InvalidRequest, LakelatchError, Unavailable
from lakelatch.failpoints import failpoint
from lakelatch.storage.checksums import checksummed_json, open_checksummed_json
from lakelatch.storage.conditional_puts import create_own
from lakelatch.storage.contract import NotFound
from lakelatch.timeline.actions import WRITE_ACTIONS
from lakelatch.timeline.instant import Instant
from lakelatch.timeline.log.whole_timeline import WholeTimeline, find_archived, read_commit
from lakelatch.timeline.metadata import CommitMetadata
from lakelatch.transactions.manager import TransactionManager
from lakelatch.transactions.transaction import Transaction
from lakelatch.transactions.undo.rollback import roll_back

BATCHES_FOLDER = ".hoodie/.lakelatch/batches"
_NAME = re.compile(r"([0-9]{20})-([0-9]{6})\.json")
_log = logging.getLogger("lakelatch.engine")


def written_once(
    manager: TransactionManager, batch: Batch | None, work: Callable[[BatchRegister | None], CommitResult]
) -> CommitResult:
    """Does the work of a write; for a batch that was committed before, returns that commit's result instead.

    The work registers each transaction that it begins.
    """
    if batch is None:
        return work(None)
    register = BatchRegister(manager, batch)
    try:
        register.resolve()
        result = work(register)
    except BatchCommitted as found:
        _log.info("%s: it is not written again", found.message)
        earlier: CommitResult = found.details["result"]
        return earlier
    register.tidy()
    return result


@dataclass(frozen=True)
class _Try:
    """One registered try, by its file's name."""

    name: str
    batch: int
    number: int


class BatchRegister:
    """The tries of one batch, as one process sees them."""

    def __init__(self, manager: TransactionManager, batch: Batch) -> None:
        self._manager = manager
        self._storage = manager.storage
        self._batch = batch
        digest = hashlib.sha256(batch.application.encode("utf-8")).hexdigest()
        self._folder = f"{BATCHES_FOLDER}/{digest[:32]}"
        # Tries that cannot commit, and those of this writer, which ends them itself.
        self._resolved: dict[str, None] = {}

    def resolve(self) -> int:
        """Ensures that no registered try commits from now on; returns the number of the last one.

        Errors: `BatchCommitted` if one has committed, `InvalidRequest` if a later batch has begun and this one was
        never committed.
        """
        tries = self._tries()
        own = [one for one in tries if one.batch == self._batch.number]
        for one in own:
            if one.name not in self._resolved and not self._resolve(one):
                return self.resolve()  # it was removed since: by a later batch, which the next listing shows
        self._ensure_not_passed(tries)
        return max((one.number for one in own), default=0)

    def register(self, transaction: Transaction) -> None:
        """Registers a transaction, which must not commit before that.

        Errors: those of `resolve`, and of `OwnFiles.ensure_begun`: what is registered must be no other's instant.
        """
        if transaction.own_files is not None:
            transaction.own_files.ensure_begun()
        values = {
            "application": self._batch.application,
            "batch": self._batch.number,
            "instant": transaction.instant,
            "action": transaction.state.action,
        }
        content = checksummed_json(values)
        while True:
            name = f"{self._batch.number:020d}-{self.resolve() + 1:06d}.json"
            self._resolved[name] = None
            if create_own(self._storage, f"{self._folder}/{name}", content, self._manager.context.system):
                self._ensure_not_passed(self._tries())  # a later batch removes this one's tries, and frees their names
                failpoint("batch.after_register")
                return
            del self._resolved[name]  # another process was faster

    def tidy(self) -> None:
        """Removes the tries of earlier batches, which are not repeated once this one has begun."""
        try:
            for one in self._tries():
                if one.batch < self._batch.number:
                    self._storage.delete(f"{self._folder}/{one.name}")
        except Unavailable as error:
            _log.warning("old tries of %r stay until its next batch: %s", self._batch.application, error)

    def _tries(self) -> list[_Try]:
        found = ((name, _NAME.fullmatch(name)) for name in self._storage.list(self._folder).files)
        return [_Try(name, int(parts[1]), int(parts[2])) for name, parts in found if parts is not None]

    def _resolve(self, one: _Try) -> bool:
        """Ensures that the try does not commit; False if it is not registered any more."""
        path = f"{self._folder}/{one.name}"
        try:
            values = open_checksummed_json(self._storage.read(path)) or {}
        except NotFound:
            return False
        if (values.get("application"), values.get("batch")) != (self._batch.application, self._batch.number):
            raise CorruptTable(
                f"{path} does not say which instant has tried the batch (it is damaged, or another one's): restore it "
                "from a copy",
                path=path,
            )
        requested, action = str(values["instant"]), str(values["action"])
        try:
            aborted = roll_back(self._manager.context, requested, action)
        except CommitUnknown as error:  # of that rollback: nothing is unknown of the caller's own transaction
            raise Unavailable(
                f"it is unknown whether {requested}, an earlier try of batch {self._batch.number} of "
                f"{self._batch.application!r}, was rolled back: write the batch again"
            ) from error
        if not aborted:  # it has ended, or another rollback of it is in the log
            folder = self._manager.snapshot
            archived = find_archived(self._storage, folder.names, requested)
            past = [] if archived is None else [archived.instant]
            for instant in [*folder.by_completion, *past]:
                if instant.requested == requested and instant.action in WRITE_ACTIONS:
                    raise self._committed(instant, self._read(instant))
        self._resolved[one.name] = None
        return True

    def _ensure_not_passed(self, tries: list[_Try]) -> None:
        """Raises the errors of `resolve` for a batch that is not the last one."""
        latest = max((one.batch for one in tries), default=0)
        if latest > self._batch.number:
            self._find_earlier(latest)

    def _find_earlier(self, latest: int) -> None:
        """Searches the timeline and its history, newest first, for the commit of a batch whose tries are gone."""
        tail = self._manager.context.log.tail()
        self._manager.context.log.project(tail)
        for instant in reversed(WholeTimeline.load(self._storage).completed(WRITE_ACTIONS)):
            metadata = self._read(instant)
            if self._batch.is_named_in(metadata.extra):
                raise self._committed(instant, metadata)
        raise InvalidRequest(
            f"{BATCH_NUMBER}={self._batch.number} was never written, and {BATCH_APPLICATION}="
            f"{self._batch.application!r} has gone on to {latest}: an application numbers its batches upwards. If it "
            "began anew, with a new checkpoint, give it a new name",
            option=BATCH_NUMBER,
        )

    def _committed(self, instant: Instant, metadata: CommitMetadata) -> BatchCommitted:
        text = f"batch {self._batch.number} of {self._batch.application!r} was committed by {instant.requested}"
        result = CommitResult.of(instant.requested, instant.completion or "", metadata, repeated=True)
        return BatchCommitted(text, result=result)

    def _read(self, instant: Instant) -> CommitMetadata:
        return read_commit(self._storage, instant)


class BatchCommitted(LakelatchError):
    """A try has committed; the detail `result` is its result."""
