"""What others have done between the moment that a transaction over several tables reads and the beginning of a change.

A block may stay open for as long as it likes before it changes a table, and nothing of it keeps the slots of that time.
What they said is on the timeline, or was archived from there: which writes have completed, and which were undone.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from lakelatch.errors import WriteConflict
from lakelatch.storage.uris import without_secrets
from lakelatch.timeline.actions import WRITE_ACTIONS
from lakelatch.timeline.history.history import History
from lakelatch.timeline.history.same_table import ensure_same_table
from lakelatch.timeline.instant import HISTORY_NAME, Instant, parse_file_name
from lakelatch.timeline.log.events import COMPLETE, Event
from lakelatch.timeline.log.log_reader import LogMoved, Tail
from lakelatch.timeline.snapshot import Mark
from lakelatch.transactions.base.context import EarlierRead, TransactionContext
from lakelatch.transactions.conflicts.contract import completed_writes


def earlier_read(context: TransactionContext, mark: Mark, begun: Mark) -> EarlierRead:
    """What was read at a mark by a transaction that has begun at a later one, and what has completed in between.

    Slots are asked where they are left, since they say who has written. Errors: `WriteConflict` if something has been
    undone that was there when it was read.
    """
    events, lacks_slots = _events_between(context, mark, begun)
    gone = _writes(mark.names - begun.names)
    if gone:
        ensure_same_table(context.storage, mark.names, begun.names)
    history = History.empty(context.storage)
    # A write that was requested early is archived first, whatever was there when it completed.
    has_left = any(event.kind == COMPLETE and event.file not in begun.names for event in events)
    if HISTORY_NAME in begun.names and (gone or lacks_slots or has_left):
        history = History.load(context.storage)
    _ensure_not_undone(context, gone, history)
    archived = history.instants(WRITE_ACTIONS, after=mark.moment, until=begun.moment) if not history.is_empty else []
    there = {one.file_name: one for one in (*(past.instant for past in archived), *_writes(begun.names - mark.names))}
    standing = [event for event in events if event.kind != COMPLETE or event.file in there]
    slots = {event.file for event in standing}
    others = [one for name, one in there.items() if name not in slots and name not in mark.names]
    return EarlierRead(mark, tuple(completed_writes(context.storage, standing, others)))


def ensure_still_there(context: TransactionContext, mark: Mark, begun: Mark) -> None:
    """Whether all that was there at a mark is there at a later one, or in the history; free if all names are.

    Errors: `WriteConflict`, as of `earlier_read`.
    """
    gone = _writes(mark.names - begun.names)
    if gone:
        _ensure_not_undone(context, gone, History.load(context.storage))


def _events_between(context: TransactionContext, mark: Mark, begun: Mark) -> tuple[list[Event], bool]:
    """The events of the slots that are left, and whether some are not."""
    last = context.log.last or Tail(0)
    try:
        found = context.log.events_after(mark.slot, replace(last, number=begun.slot))
    except LogMoved:
        return [], True
    return found, mark.slot + 1 < last.watermark


def _ensure_not_undone(context: TransactionContext, gone: Collection[Instant], history: History) -> None:
    archived = history.find_all([one.requested for one in gone]) if gone else {}
    for one in gone:
        if one.requested not in archived:
            raise WriteConflict(
                f"others have taken back {one.action} {one.requested} of {without_secrets(context.storage.uri)}, which "
                "this transaction has seen: run the block again",
                instant=one.requested,
            )


def _writes(names: Collection[str]) -> list[Instant]:
    """The completed writes among the names of the timeline's files, by completion."""
    found = (one for one in map(parse_file_name, names) if one is not None and one.completion is not None)
    return sorted((one for one in found if one.action in WRITE_ACTIONS), key=lambda one: one.completion or "")
