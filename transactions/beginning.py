"""How a transaction gets its time: one claim, which was made ahead or is made now, and a tail that it begins at."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial
from typing import NamedTuple

from lakelatch.errors import InvariantBroken, Unavailable
from lakelatch.failpoints import failpoint
from lakelatch.heartbeat.beat import stopped_on_error
from lakelatch.timeline.log.lock_names import agree
from lakelatch.timeline.log.log_reader import Tail
from lakelatch.transactions.ahead import Ahead
from lakelatch.transactions.attempts.claims import Claim, claim_time, give_back
from lakelatch.transactions.base.after_claim import came_in_time, ensure_same_log
from lakelatch.transactions.base.context import TransactionContext

_BEGINS_MAX = 1000


class Begun(NamedTuple):
    """A claimed time, and the tail at which its transaction begins. `listed` lacks no file of a commit known then.

    If it `looks_later`, that tail was read before the claim was there.
    """

    claim: Claim
    tail: Tail
    listed: Mapping[str, Collection[str]]
    looks_later: bool = False


def claimed(
    context: TransactionContext, ahead: Ahead | None, tail: Tail, folders: Collection[str], looks_later: bool
) -> Begun:
    """A claimed time for a transaction that begins after this tail, or after the one that is read then.

    If it `looks_later` and nobody has committed since the claim `ahead`, no other tail is read. Errors: those of
    `CommitLog.ensure_same_locks`; `Unavailable` for a table that has gone, and where others are always faster.
    """
    context.log.ensure_same_locks(tail)
    if ahead is None:
        return _begun_after_look(context, None, None, tail, folders)
    claim = ahead.take(_floor(context, tail), tail)
    if claim is not None and looks_later and ahead.is_current(tail):
        failpoint("begin.after_claim")
        return Begun(claim, tail, ahead.listed, looks_later=True)
    return _begun_after_look(context, ahead, claim, tail, folders)


def _begun_after_look(
    context: TransactionContext, ahead: Ahead | None, claim: Claim | None, tail: Tail, folders: Collection[str]
) -> Begun:
    """The same at a tail that is read when the claim is there, this one or a new one; what is left `ahead` goes."""
    look = _LookAhead(context, folders)
    for _ in range(_BEGINS_MAX):
        claim = claim or claim_time(context, _floor(context, tail), tail.number)
        failpoint("begin.after_claim")
        # The claim keeps the slots after `tail` from being removed, if it came before they could be. And if another
        # instant of this time has ended since we read `tail`, its heartbeat is gone, and its slot has a later time.
        with stopped_on_error(claim.heartbeat):
            before, tail = tail, look.tail()
            if ahead is not None:
                ahead.give_up(tail)
            try:
                ensure_same_log(context.log, before.number, tail)
            except Unavailable:
                give_back(context, claim, withdrawn=True)  # there is no log any more that gives its time again
                raise
            in_time = came_in_time(context.log, claim.start_slot, tail)
            if in_time and claim.instant > tail.time and agree(before.lock_domain, tail.lock_domain):
                return Begun(claim, tail, look.listed if tail.number == before.number else {})
        give_back(context, claim, tail)
        context.log.ensure_same_locks(tail)
        claim = None
    raise Unavailable(f"other writers committed faster than a transaction could begin, {_BEGINS_MAX} times")


def _floor(context: TransactionContext, tail: Tail) -> str:
    """What a requested time has to be above."""
    return max(tail.time, context.snapshot.latest_time)


class _LookAhead:
    """Reads the log's tail, and lists folders at the same time.

    A file of a commit that the tail has may be missing in such a listing, but none of a commit that was known before.
    """

    def __init__(self, context: TransactionContext, folders: Collection[str]) -> None:
        self._context, self._folders = context, folders
        self._tail: Tail | None = None
        self.listed: dict[str, Collection[str]] = {}

    def tail(self) -> Tail:
        """The tail as it is now; the folders are listed anew."""
        self._context.storage.together(self._read, *(partial(self._list, folder) for folder in self._folders))
        if self._tail is None:
            raise InvariantBroken("the tail was not read")
        return self._tail

    def _read(self) -> None:
        self._tail = self._context.log.tail()

    def _list(self, folder: str) -> None:
        self.listed[folder] = self._context.storage.names(folder)
