"""The first requests of a write, made beside the check of what its process remembers of the table.

The write claims its requested time and lists the folders of its partitions while it is asked whether the table is still
the one that is remembered. The claim is given up if it is not, if the write does not fit the table, or if there is
nothing to write.

If nobody has committed since, the write begins at the remembered tail, with the timeline that the check has listed, and
asks nothing more. The look at the log that has to come after the claim is then made by its `OwnFiles`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from functools import partial

from lakelatch.errors import InvalidRequest, Unavailable
from lakelatch.heartbeat.beat import Heartbeat
from lakelatch.heartbeat.contract import heartbeat_path
from lakelatch.timeline.instant import is_completed
from lakelatch.timeline.log.log_reader import Tail
from lakelatch.transactions.attempts.claims import beat_of, make_heartbeat
from lakelatch.transactions.base.after_claim import came_in_time
from lakelatch.transactions.base.context import MemoryCheck, TransactionContext

_log = logging.getLogger("lakelatch.transactions")


class Ahead:
    """What a write has asked before it is known that it will be one. `listed` has the names in the folders."""

    def __init__(
        self, context: TransactionContext, check: MemoryCheck, remembered: Tail, folders: Collection[str]
    ) -> None:
        self.operation_id = context.system.new_id()
        self.listed: dict[str, Collection[str]] = {}
        self._context, self._check, self._remembered, self._folders = context, check, remembered, folders
        self._known = context.snapshots.listing.listed
        self._tail_number = 0
        self._claimed: tuple[str, Heartbeat] | None = None

    @property
    def requests(self) -> Sequence[Callable[[], None]]:
        """What is to be asked, side by side with the check."""
        return (self._look_at_tail, *(partial(self._list, folder) for folder in self._folders), self._claim)

    @property
    def instant(self) -> str | None:
        """The requested time that is claimed, until that is taken or given up."""
        return None if self._claimed is None else self._claimed[0]

    def is_current(self, tail: Tail) -> bool:
        """Whether there was no commit after this tail, the remembered one, nor any foreign one, before the claim.

        Then no file of a commit that the timeline shows is missing in what was listed beside it.
        """
        snapshots = self._context.snapshots
        if self._claimed is None or not tail.number == self._remembered.number == self._tail_number == snapshots.slot:
            return False
        return not any(map(is_completed, snapshots.listing.listed - self._known))

    def take(self, floor: str, tail: Tail) -> tuple[str, Heartbeat] | None:
        """The claim, once, if its time is above this one, which the log has; else it is removed.

        Not if its beat names a slot of which recoverers cannot tell any more whether it has ended since.
        """
        if not came_in_time(self._context.log, self._remembered.number, tail):
            self.give_up()
        claimed, self._claimed = self._claimed, None
        if claimed is None or claimed[0] > floor:
            return claimed
        instant, heartbeat = claimed
        heartbeat.stop()
        try:
            self._context.storage.delete(heartbeat_path(instant))
        except (Unavailable, InvalidRequest) as error:
            _log.warning("could not give the time %s back, which the next recovery does: %s", instant, error)
        return None

    def give_up(self) -> None:
        """Leaves the claim as that of a writer that has died, unless it was taken: nothing was written under it.

        A recovery removes it when its time is long past. Nobody may be given it before that: a removal that arrives
        twice would take away the claim of whoever has it then.
        """
        claimed, self._claimed = self._claimed, None
        if claimed is not None:
            claimed[1].stop()

    def _look_at_tail(self) -> None:
        self._tail_number = self._context.log.tail_number()

    def _list(self, folder: str) -> None:
        self.listed[folder] = self._context.storage.names(folder)

    def _claim(self) -> None:
        context = self._context
        if self._check.has_slot is False:  # another table, as far as that is known by now
            return
        self._claimed = context.clock.claim(
            max(self._remembered.time, context.snapshot.latest_time),
            beat_of(context, self.operation_id, self._remembered.number),
            None,
            partial(make_heartbeat, context),
            by_own_clock=True,
        )
