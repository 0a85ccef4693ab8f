"""What a table that stays open has ready for its next write: a claimed time, and announced files.

A write of own files is followed by another one, most often, and that goes to the same file groups. So whoever keeps a
table open claims the next time beside the completed file of a commit; and beside its last look it reads the log's tail,
which comes after that claim, and announces the files that the next write would have if it touched the same file groups.

If nobody else has committed since, the next write begins with what is remembered, and asks all at once: whether this is
still so, whether the log has ended its instant since the markers were there, and that the instant be shown. The order
is that of all own files (`markers/own_files.py`): claim, tail, inflight file, data file; and marker, log, data file.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial

from lakelatch.errors import LakelatchError
from lakelatch.storage.conditional_puts import ensure_created
from lakelatch.timeline.actions import DELTA_COMMIT
from lakelatch.timeline.instant import is_completed
from lakelatch.timeline.log.events import WITHDRAW, Event
from lakelatch.transactions.attempts.attempt import run
from lakelatch.transactions.attempts.claims import Claim, claim_time, give_back
from lakelatch.transactions.attempts.intent import Deciding, Place
from lakelatch.transactions.base.context import MemoryCheck, TransactionContext, TransactionState
from lakelatch.transactions.base.outcome import GivenUp
from lakelatch.transactions.markers.direct import Markers, is_base_file
from lakelatch.transactions.markers.own_files import NotBegun

_FILES_MAX = 16  # announced for a write that may not touch them
_log = logging.getLogger("lakelatch.transactions")


class NextWrite:
    """What is ready for the next write of a table that stays open. Nothing of it is under way between two calls.

    Nothing is made ready where others commit in between: it would be in vain. `listed` has the names in folders.
    """

    def __init__(self) -> None:
        self.listed: Mapping[str, Collection[str]] = {}
        self._slot: int | None = None  # of the last write
        self._claim: Claim | None = None
        self._has_looked = False
        self._announced: list[str] = []

    def take(self) -> Claim | None:
        """The claim, once, with the files that are announced."""
        claim, self._claim = self._claim, None
        return None if claim is None else claim._replace(announced=tuple(self._announced))

    def is_ready(self, claim: Claim, slot: int) -> bool:
        """Whether the log's tail was read after this claim, its own, and was this slot."""
        return self._has_looked and self._slot == slot == claim.start_slot

    def claim_after(self, context: TransactionContext, event: Event, mark_slot: int) -> Sequence[Callable[[], None]]:
        """Requests beside the file of a write that began after this slot."""
        alone, self._slot = self._slot == mark_slot == event.number - 1, event.number
        self._has_looked, self._announced = False, []
        return (partial(self._claim_time, context, event),) if alone else ()

    def announce(
        self, context: TransactionContext, instant: str, made: Sequence[str], listed: Mapping[str, Collection[str]]
    ) -> Sequence[Callable[[], None]]:
        """Requests beside the last look of a write that has made these files; `listed` are folders, as it knew them."""
        self.listed = {folder: {*names, *_names_in(folder, made)} for folder, names in listed.items()}
        claim, logs = self._claim, [path for path in made if not is_base_file(path)]
        if claim is None:
            return ()
        names = [path.replace(f"_{instant}.", f"_{claim.instant}.") for path in logs]
        wanted = names if len(names) <= _FILES_MAX else []
        return (partial(self._look, context), *(partial(self._mark, context, claim, path) for path in wanted))

    def _claim_time(self, context: TransactionContext, event: Event) -> None:
        try:
            self._claim = claim_time(context, max(event.time, context.snapshot.latest_time), event.number)
        except LakelatchError as error:
            _log.info("no time was claimed for the next write: %s", error)

    def _look(self, context: TransactionContext) -> None:
        try:
            self._has_looked = context.log.tail_number() == self._slot
        except LakelatchError as error:
            _log.info("the next write looks at the log itself: %s", error)

    def _mark(self, context: TransactionContext, claim: Claim, path: str) -> None:
        partition, _, name = path.rpartition("/")
        try:
            marker = Markers(context.storage, claim.instant).path_of(partition, name)
            ensure_created(context.storage, marker, b"", context.system)
        except LakelatchError as error:
            _log.info("%s is announced by the next write itself: %s", path, error)
        else:
            self._announced.append(path)


def withdraw(context: TransactionContext, claim: Claim) -> None:
    """Gives back a claim for which no write has come, with what was announced under it. Raises nothing.

    The log says so, in a slot whose time is later: so nobody is given that time any more, and it may go at once.
    """

    def decide(place: Place) -> Event | GivenUp[None]:
        if place.tail.time >= claim.instant:
            return GivenUp(None)
        return Event(WITHDRAW, DELTA_COMMIT, "", context.system.new_id(), context.writer, target=claim.instant)

    tail, withdrawn = None, False
    try:
        if context.settings.group_commit:
            withdrawn = not isinstance(run(context, Deciding(decide, claim.instant)), GivenUp)
            tail = None if withdrawn else context.log.tail()
    except LakelatchError as error:
        _log.info("the time %s that nobody needs is left to the next recovery: %s", claim.instant, error)
    give_back(context, claim, tail, withdrawn)


class PutOffCheck:
    """The check of what is remembered of a table, which a write makes beside its first requests.

    Its answers are good if nothing at all has changed since the last commit of this process, nor anything that its
    caller remembers, which `unchanged` asks.
    """

    has_looked = True

    def __init__(
        self, context: TransactionContext, state: TransactionState, check: MemoryCheck, unchanged: Callable[[], bool]
    ) -> None:
        self._context, self._state, self._check, self._unchanged = context, state, check, unchanged
        self._is_unchanged = False
        self._tail_number = 0

    def ask(self, beside: Iterable[Callable[[], None]]) -> None:
        """Errors: `NotConfirmed`."""
        self._context.storage.together(self._ask_caller, self._look, *self._check.requests, *beside)
        mark, listing = self._state.mark, self._check.listing
        same = self._is_unchanged and self._tail_number == mark.slot and self._check.is_same()
        if not same or set(filter(is_completed, listing.listed)) != set(filter(is_completed, mark.names)):
            raise NotConfirmed(
                f"instant {self._state.instant} could not begin, because the table is not as it was after the last "
                "write of this process: begin a new one",
                instant=self._state.instant,
            )
        self._check.holds = True

    def _ask_caller(self) -> None:
        self._is_unchanged = self._unchanged()

    def _look(self) -> None:
        self._tail_number = self._context.log.tail().number


class NotConfirmed(NotBegun):
    """The table is not as it was remembered: nothing was written."""


def _names_in(folder: str, paths: Sequence[str]) -> set[str]:
    parts = (path.rpartition("/") for path in paths)
    return {name for parent, _, name in parts if parent == folder}
