"""The part of a serializable transaction over several tables that has only read a table.

Its event in that table's log changes nothing. It says that at this place everything is as it was read, and nobody adds
a slot behind it before the transaction is decided: so all that was read and written is so at one moment, that of the
decision.
"""

from __future__ import annotations

from dataclasses import replace

from lakelatch.errors import InvariantBroken, TransactionEnded
from lakelatch.storage.uris import without_secrets
from lakelatch.timeline.log.events import WITHDRAW, Event
from lakelatch.timeline.metadata import CommitMetadata
from lakelatch.timeline.snapshot import Mark
from lakelatch.transactions.attempts.attempt import run
from lakelatch.transactions.attempts.checks import At, written_since
from lakelatch.transactions.attempts.earlier_reads import earlier_read
from lakelatch.transactions.attempts.intent import Intent, Look, Place
from lakelatch.transactions.base.outcome import Added, Conflicted, Ended, Retry, Staged, Verdict
from lakelatch.transactions.conflicts.report import Work, write_conflict
from lakelatch.transactions.manager import TransactionManager
from lakelatch.transactions.several.part import Part, ensure_may_take_part
from lakelatch.transactions.transaction import Transaction


def hold_read(manager: TransactionManager, part: Part[object], mark: Mark) -> None:
    """Is one part until the transaction has ended: nothing has been written since this mark, nor is before the end.

    Errors: `WriteConflict` if something has; `TransactionEnded` if nobody can know any more.
    """
    ensure_may_take_part(manager.context.provider, manager.storage.uri)
    transaction = manager.begin(for_tasks=False)
    try:
        run(manager.context, _Read(transaction, part, mark))
    finally:
        if transaction.own_files is None:  # it is on the timeline
            transaction.abort_quietly()
        else:
            transaction.release()


class _Read(Intent[bool]):
    tries_first = True

    def __init__(self, transaction: Transaction, part: Part[object], mark: Mark) -> None:
        self._context, self._part = transaction.context, part
        read = earlier_read(transaction.context, mark, transaction.state.mark)
        self._state = replace(transaction.state, read=read)
        self._staged = False
        self.above = transaction.instant

    def part(self) -> Part[object]:
        return self._part

    def prepare(self, look: Look) -> Verdict | None:
        if not self._staged:
            self._staged = True
            self._part.stage()
        return None

    def decide(self, place: Place) -> Event | Verdict:
        state, context = self._state, self._context
        if state.mark.slot + 1 < place.tail.watermark:  # its claim would have kept that slot
            return Ended(
                TransactionEnded(
                    f"the read of {without_secrets(context.storage.uri)} was taken for that of a dead writer, and so "
                    "much was committed since that nobody can say whether the table has changed: run the block again. "
                    "If this writer was paused, raise hoodie.client.heartbeat.interval_in_ms",
                    instant=state.instant,
                )
            )
        found = written_since(At(context, state, place, Staged(CommitMetadata((), "UPSERT", {}))))
        if found is not None:
            lost_s = (context.system.realtime_ms() - state.began_ms) / 1000
            return Conflicted(write_conflict(state.instant, found, lost_s, Work(), early=False))
        event = Event(WITHDRAW, state.action, state.instant, state.operation_id, context.writer)
        return self._part.prepared(event, place.tail.number) or Retry("another part of the transaction tries again")

    def follow(self, found: Added | Verdict) -> bool:
        if isinstance(found, Conflicted):
            raise found.conflict
        if isinstance(found, Ended):
            raise found.error
        if not isinstance(found, Event):
            raise InvariantBroken(f"{found} is not what comes of a part that has only read")
        return True
