"""Data files that a transaction's process makes itself, without tasks: announced, checked, created.

No other process makes files then, so there is no opening, and nothing to close: all that was announced is known here.
But others may take the process for dead and roll its instant back, while it goes on. So the order is that of tasks,
with the log instead of the opening: a file is **announced** by its marker, then the **log** is checked for the
instant's end, and only then is the file **created**, put-if-absent. The first announcement also puts the instant on
the timeline: whoever finds one of them without the others has the claim, and rolls back what there is.

Who has claimed its instant beside the check of what is remembered has not asked the log since. It announces its first
files and asks the log at the same time whether the claim came in time, and only then is the instant shown, beside the
check for its end: both come after the marker, as above, and before any file. Where the log was read after the claim,
and the files were announced, before the write began (`next_write.py`), all of this is asked at once.

A rollback has its slot before it lists the markers. So if the log has none after the marker was there, every rollback
will find the marker, and sweep the file. The claim does not suffice: a beat that was under way brings it back after it
was removed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Protocol

from lakelatch.errors import TransactionEnded
from lakelatch.failpoints import failpoint
from lakelatch.storage.checksums import add_checksum
from lakelatch.storage.conditional_puts import create_own, ensure_created
from lakelatch.storage.contract import path_below
from lakelatch.timeline.instant import inflight, requested
from lakelatch.transactions.base.after_claim import came_in_time, ensure_same_log
from lakelatch.transactions.base.context import TransactionContext, TransactionState
from lakelatch.transactions.markers.direct import Markers, sweep_file

_HELD_BYTES = 16 * 1024 * 1024


class Question(Protocol):
    """What has to be answered before an instant's name may be used."""

    @property
    def has_looked(self) -> bool:
        """Whether the log was read after the claim was there; then the instant may be shown beside the question."""
        ...

    def ask(self, beside: Iterable[Callable[[], None]]) -> None:
        """Asks, and makes other requests at the same time.

        If it `has_looked`, the answer is also that the instant has not ended. Errors: `NotBegun`; `Unavailable` for a
        table that has gone; `WrongLocks`.
        """
        ...


class LaterLook:
    """Asks the log whether the claim came in time; until then it names nothing."""

    has_looked = False

    def __init__(self, context: TransactionContext, state: TransactionState) -> None:
        self._context, self._state = context, state

    def ask(self, beside: Iterable[Callable[[], None]]) -> None:
        self._context.storage.together(self._look, *beside)

    def _look(self) -> None:
        log, instant, start = self._context.log, self._state.instant, self._state.mark.slot
        tail = log.tail()
        ensure_same_log(log, start, tail)
        log.ensure_same_locks(tail)
        if tail.time >= instant or not came_in_time(log, start, tail):
            raise NotBegun(
                f"instant {instant} could not begin, because others have committed at a later time meanwhile, or too "
                "much: begin a new one",
                instant=instant,
            )


class Shown:
    """The files that put a claimed instant on the timeline."""

    def __init__(self, context: TransactionContext, instant: str, action: str) -> None:
        self._context = context
        self._files = (requested(instant, action), inflight(instant, action))

    @property
    def requests(self) -> Sequence[Callable[[], None]]:
        steps = ("begin.after_requested", "begin.after_inflight")
        return [partial(self._put, file.path, step) for file, step in zip(self._files, steps, strict=True)]

    def take_back(self) -> None:
        """Removes them, before anything was written under them."""
        storage = self._context.storage
        storage.together(*(partial(storage.delete, file.path) for file in self._files))

    def _put(self, path: str, step: str) -> None:
        ensure_created(self._context.storage, path, b"", self._context.system)
        failpoint(step)


class OwnFiles:
    """The files of one transaction, for its own process and one thread of it.

    Files are held until `place`, which makes them in parallel; when many bytes are held, they are made at once.
    `shown` puts the instant on the timeline, before its first file. `listed` has the names in folders that were listed
    after the last commit that the transaction knows, so that no later one is missing there. `announced_before` are the
    paths of files whose markers are there. The `question` is still open; None if the claim is known to be good.
    """

    def __init__(
        self,
        context: TransactionContext,
        state: TransactionState,
        listed: Mapping[str, Collection[str]] | None = None,
        announced_before: Collection[str] = (),
        question: Question | None = None,
    ) -> None:
        self.listed: dict[str, Collection[str]] = dict(listed or {})
        self._context = context
        self._state = state
        self._question, self._before = question, frozenset(announced_before)
        self._shown: Shown | None = Shown(context, state.instant, state.action)
        self._markers = Markers(context.storage, state.instant)
        self._announced: dict[str, None] = {}
        self._marked = set(announced_before)
        self._held: dict[str, bytes] = {}
        self._held_bytes = 0

    def announce_all(self, files: Iterable[tuple[str, str]]) -> None:
        """Announces data files, each a partition and a name, which may be made from then on.

        Errors: `TransactionEnded` if the instant has ended, `NotBegun` if its time is not to be used; then they must
        not be made.
        """
        asked = [file for file in files if path_below(*file) not in self._announced]
        if not asked and self._shown is None:
            return
        new = [file for file in asked if path_below(*file) not in self._before]
        self._marked.update(path_below(*file) for file in new)
        announcing = [partial(self._announce, self._markers.path_of(*file)) for file in new]
        storage, showing = self._context.storage, () if self._shown is None else self._shown.requests
        if self._question is None:
            storage.together(*showing, *announcing)
            ensure_not_ended(self._context, self._state)
        elif announcing or not self._question.has_looked:
            self._ask(self._question, announcing)
            storage.together(partial(ensure_not_ended, self._context, self._state), *showing)
        else:
            self._ask_and_show(self._question)
        self._shown = None
        self._announced.update((path_below(*file), None) for file in asked)

    def ensure_begun(self) -> None:
        """Has the open question answered, if there is one. Errors: those of `Question.ask`."""
        if self._question is not None:
            self._ask(self._question, ())

    def _ask(self, question: Question, beside: Iterable[Callable[[], None]]) -> None:
        question.ask(beside)
        self._question = None

    def _ask_and_show(self, question: Question) -> None:
        shown = Shown(self._context, self._state.instant, self._state.action)
        try:
            self._ask(question, shown.requests)
        except NotBegun:
            shown.take_back()
            raise

    def _announce(self, marker: str) -> None:
        ensure_created(self._context.storage, marker, b"", self._context.system)
        failpoint("mark.after")

    def create(self, partition: str, name: str, data: bytes) -> None:
        """Makes a data file, with its checksum, at `place` or before; its name is no other file's.

        Errors: those of `place`.
        """
        path = path_below(partition, name)
        self._held[path] = data
        self._held_bytes += len(data)
        if self._held_bytes > _HELD_BYTES:
            self.place()

    @property
    def not_made(self) -> list[str]:
        """The paths of files that were announced before, and are none of this write: nobody has begun to make them."""
        return [path for path in self._before if path not in self._announced]

    @property
    def marked(self) -> list[str]:
        """The paths of all files whose markers were asked for, also in vain."""
        return sorted(self._marked)

    @property
    def announced(self) -> list[str]:
        """The paths of all files that were announced."""
        return list(self._announced)

    def announce_held(self) -> None:
        """Announces the files that `place` is going to make. Errors: `TransactionEnded`, as of `announce_all`."""
        self.announce_all(path.rpartition("/")[::2] for path in self._held)

    def place(self, meanwhile: Iterable[Callable[[], None]] = ()) -> None:
        """Makes the held files, and `meanwhile` requests that need not wait for them.

        Errors: `TransactionEnded` if the instant has ended, `Unavailable`; then some of them may be there. Called
        again, it makes the rest.
        """
        self.announce_held()
        self._context.storage.together(*(partial(self._create, *file) for file in self._held.items()), *meanwhile)
        self._held.clear()
        self._held_bytes = 0

    def sweep(self, keep: Iterable[str]) -> list[str]:
        """Puts a tombstone in the place of every announced file that is not kept, and returns their paths."""
        kept = set(keep)
        swept = [path for path in self._announced if path not in kept]
        for path in swept:
            sweep_file(self._context.storage, path)
        return swept

    def _create(self, path: str, data: bytes) -> None:
        context = self._context
        if not create_own(context.storage, path, add_checksum(data, path), context.system):
            raise TransactionEnded(
                f"the name {path!r} is taken: others took the writer of instant {self._state.instant} for dead, and "
                "rolled it back. Begin a new one",
                instant=self._state.instant,
            )
        failpoint("data.after")


class NotBegun(TransactionEnded):
    """The log was later than the claimed time, or too much was committed meanwhile: nothing was written."""


def ensure_not_ended(context: TransactionContext, state: TransactionState) -> None:
    """Checks the log as it is now, and no claim. Errors: `TransactionEnded`; `Unavailable` if the table has gone."""
    tail = context.log.tail()
    ensure_same_log(context.log, state.mark.slot, tail)
    if context.log.may_have_ended(state.instant, state.mark.slot, tail):
        raise TransactionEnded(
            f"instant {state.instant} has ended elsewhere, so nothing more is written for it: begin a new one. If this "
            "writer was paused, raise hoodie.client.heartbeat.interval_in_ms",
            instant=state.instant,
        )
