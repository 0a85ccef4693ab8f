"""The first requests of a write, made beside the check of what its process remembers of the table.

The write claims its requested time and lists the folders of its partitions while it is asked whether the table is still
the one that is remembered. The claim is given up if it is not, if the write does not fit the table, or if there is
nothing to write.

If nobody has committed since, the write begins at the remembered tail, with the timeline that the check has listed, and
asks nothing more. The look at the log that has to come after the claim is then made by its `OwnFiles`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial

from lakelatch.timeline.instant import is_completed
from lakelatch.timeline.log.log_reader import Tail
from lakelatch.transactions.attempts.claims import Claim, claim_time, give_back
from lakelatch.transactions.base.after_claim import came_in_time
from lakelatch.transactions.base.context import MemoryCheck, TransactionContext
from lakelatch.transactions.next_write import NextWrite


class Ahead:
    """What a write has asked before it is known that it will be one. `listed` has the names in the folders.

    If the last write has claimed a time for the `next` one, it is that.
    """

    def __init__(
        self,
        context: TransactionContext,
        check: MemoryCheck,
        remembered: Tail,
        folders: Collection[str],
        next_write: NextWrite | None = None,
    ) -> None:
        self.listed: dict[str, Collection[str]] = {}
        self._next = next_write
        self._context, self._check, self._remembered, self._folders = context, check, remembered, folders
        self._known = context.snapshots.listing.listed
        self._tail_number = 0
        #: What says later whether all that is believed still holds, if the write goes by what is remembered.
        self.unchanged: Callable[[], bool] | None = None
        self._claim = None if next_write is None else next_write.take()

    @property
    def requests(self) -> Sequence[Callable[[], None]]:
        """What is to be asked, side by side with the check."""
        lists = [partial(self._list, folder) for folder in self._folders]
        return (self._look_at_tail, *lists, *([self._claim_time] if self._claim is None else []))

    @property
    def instant(self) -> str | None:
        """The requested time that is claimed, until that is taken or given up."""
        return None if self._claim is None else self._claim.instant

    def is_current(self, tail: Tail) -> bool:
        """Whether there was no commit after this tail, the remembered one, nor any foreign one, before the claim.

        Then no file of a commit that the timeline shows is missing in what was listed beside it. What is believed is
        asked later.
        """
        if self.unchanged is not None:
            return True
        snapshots = self._context.snapshots
        if not tail.number == self._remembered.number == self._tail_number == snapshots.slot:
            return False
        return not any(map(is_completed, snapshots.listing.listed - self._known))

    def believe(self, unchanged: Callable[[], bool]) -> bool:
        """Has the transaction begin after the remembered tail with nothing asked, if the last write saw to that."""
        claim, ready, tail = self._claim, self._next, self._remembered
        if claim is None or ready is None or not ready.is_ready(claim, tail.number):
            return False
        if claim.instant <= max(tail.time, self._context.snapshot.latest_time):
            return False
        self.unchanged, self.listed = unchanged, dict(ready.listed)
        return True

    def take(self, floor: str, tail: Tail) -> Claim | None:
        """The claim, once, if its time is above this one; else it is to be given up.

        Not if its beat names a slot of which recoverers cannot tell any more whether it has ended since.
        """
        claim = self._claim
        if claim is None or claim.instant <= floor or not came_in_time(self._context.log, claim.start_slot, tail):
            return None
        self._claim = None
        return claim

    def give_up(self, tail: Tail | None = None) -> None:
        """Gives the claim back, unless it was taken; with the log's `tail`, if that was read. Raises nothing."""
        claim, self._claim = self._claim, None
        if claim is not None:
            give_back(self._context, claim, tail)

    def _look_at_tail(self) -> None:
        self._tail_number = self._context.log.tail_number()

    def _list(self, folder: str) -> None:
        self.listed[folder] = self._context.storage.names(folder)

    def _claim_time(self) -> None:
        if self._check.has_slot is False:  # another table, as far as that is known by now
            return
        floor = max(self._remembered.time, self._context.snapshot.latest_time)
        self._claim = claim_time(self._context, floor, self._remembered.number)
