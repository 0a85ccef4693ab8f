"""The parts of a transaction over several tables, and the decision that is made once for all of them.

Each part is an ordinary write of its table, at work in a thread of its own: it begins, stages its files and waits. A
table's first part *leads* those that come after it, whose events share its slot. When all are staged, a *try* begins:

1. the part of the first table, the *home*, puts its event into the log, prepared;
2. then all others do, side by side. Each is checked at its place as any commit is, and from then on nobody adds a slot
   behind it;
3. the decision is put into the home, if nobody else has put one;
4. each part makes its completed file.

A try is given up, and another one begins, when others have decided to abort it, or when one part waits for an older
transaction over several tables: of two that wait for each other only one gives way, and always the same one. It begins
again when the older one is decided. Whatever else ends a part ends them all, with nothing visible of any.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from enum import Enum
from operator import attrgetter
from typing import Generic, TypeVar
from zlib import crc32

from lakelatch.errors import CommitUnknown, InvalidRequest, InvariantBroken, Unavailable
from lakelatch.failpoints import failpoint
from lakelatch.storage.contract import PutUnknown
from lakelatch.storage.uris import without_secrets
from lakelatch.system import System
from lakelatch.timeline.log.decisions import (
    ABORT,
    DECISIONS_FOLDER,
    Decision,
    Decisions,
    LastSlot,
    PreparedPart,
    decision_name,
    operation_of,
)
from lakelatch.timeline.log.events import Event
from lakelatch.timeline.log.log_reader import LogReader
from lakelatch.timeline.snapshot import Mark
from lakelatch.timeline.staged import StagedStorage
from lakelatch.transactions.base.outcome import Added, Verdict
from lakelatch.transactions.several.part import Part, PartGivenUp

W = TypeVar("W")

_PREPARED_FOR_S = 60.0  # so long all other writers of the tables may be kept waiting
_TRIES_FOR_S = 600.0
_REMOVED_EVERY = 16  # slots of the home, on average


def _removes_old(slot: int) -> bool:
    """Whether the transaction with this slot of the home removes what nobody needs.

    Which slots transactions get may follow any rhythm, where commits of that table alone, or services, come in between.
    """
    return crc32(b"%d" % slot) % _REMOVED_EVERY == 0


def _last_slots(parts: Iterable[Part[W]]) -> list[LastSlot]:
    return [LastSlot(part.table, part.events[0].number) for part in parts if part.leads and part.events]


class _Outcome(Enum):
    COMMIT = "all parts count"
    AGAIN = "none counts, and all try again"
    ABORT = "none counts, and all end"
    UNKNOWN = "nobody can say"


class Parts(Generic[W]):
    """All parts of one transaction, and their decision. The home is the table whose URI is the first of all."""

    def __init__(self, operation_id: str, system: System) -> None:
        self.operation_id = operation_id
        self._system = system
        self._changed = system.new_condition()
        self._parts: list[Part[W]] = []
        self._try = 0  # 0 until they are to be committed
        self._decision = ""  # its name in this try
        self._home_slot = self._watermark = 0  # as its event says
        self._begins_again = False  # whether this try is in vain
        self.is_committed = False  # whether a decision is known that commits them
        self._outcomes: dict[int, _Outcome] = {}
        self._fixes_moment = False
        self._moment: dict[str, tuple[Mark, StagedStorage]] = {}  # of all tables, by their URIs, once it is fixed
        self._aborted: list[tuple[str, list[LastSlot]]] = []  # the decisions of tries in vain, with the slots they had

    @property
    def home(self) -> Part[W]:
        """The part of the table in which the decision lies."""
        return self._parts[0]

    def add(
        self, table: str, mark: Mark | None, found_first: frozenset[str], sees: StagedStorage | None = None
    ) -> Part[W]:
        """A part of the table with this URI, for a write in a thread of its own, after those that it has already.

        `sees` is the table's storage at the transaction's moment, with what these have staged.
        """
        with self._changed:
            leader = next((one for one in self._parts if one.table == table), None)
            part: Part[W] = Part(self, table, mark, found_first, leader, sees)
            if leader is not None:
                leader.followers.append(part)
            self._parts.append(part)
            self._parts.sort(key=attrgetter("table"))
        return part

    def remove(self, part: Part[W]) -> None:
        """Forgets a part that has ended without anything to commit."""
        with self._changed:
            self._parts.remove(part)
            if not part.leads:
                part.leader.followers.remove(part)

    @contextmanager
    def fixing_moment(self) -> Iterator[dict[str, tuple[Mark, StagedStorage]]]:
        """The block that puts into this the moment of all tables; parts that begin meanwhile wait for its end."""
        with self._changed:
            self._fixes_moment = True
        try:
            yield self._moment
        finally:
            with self._changed:
                self._fixes_moment = False
                self._changed.notify_all()

    # -- what the parts' threads call ---------------------------------------------------------------------------------

    def began(self, part: Part[object]) -> None:
        with self._changed:
            self._wait(lambda: not self._fixes_moment)
            if part.mark is None and part.table in self._moment:
                part.mark, part.sees = self._moment[part.table]

    def stage(self, part: Part[object]) -> None:
        with self._changed:
            part.is_staged = True
            self._changed.notify_all()
            self._wait(lambda: self._try > 0 or self._is_over)
            self._ensure_goes_on()

    def follow(self, part: Part[object]) -> Added | Verdict:
        with self._changed:
            part.is_staged = part.is_ready = True
            self._changed.notify_all()
            self._wait(lambda: part.found is not None or part.leader.has_ended)
            found, part.found, part.is_ready = part.found, None, False
        if found is None:
            raise part.as_its_leader()
        return found

    def pass_on(self, part: Part[object], found: Added | Verdict) -> None:
        with self._changed:
            part.found, part.is_ready = found, False
            self._changed.notify_all()

    def await_turn(self, part: Part[object], release: Callable[[], object]) -> None:
        with self._changed:
            if self._follow_ready(part):
                part.gives_way = False  # whom it has waited for is decided
            self._changed.notify_all()
            has_to_wait = not self._may_put(part)
        if has_to_wait:
            release()
        with self._changed:
            self._wait(lambda: self._is_over or self._may_put(part))
            self._ensure_goes_on()
            part.tried = self._try

    def prepared(self, part: Part[object], event: Event, after_slot: int) -> Event | None:
        with self._changed:
            if part.leader.tried != self._try or self._try in self._outcomes:
                return None
            if part is self.home and self.home.is_put:  # in a slot that is not part of the log after all
                self._begins_again = True
                self._changed.notify_all()
                return None
            if part is self.home:
                self._decision = decision_name(after_slot + 1, self.operation_id)
            return replace(event, decision=self._decision, home=self.home.table)

    def put(self, part: Part[object], events: Sequence[Event]) -> None:
        with self._changed:
            part.is_put, part.events = part.tried == self._try, tuple(events)
            self._changed.notify_all()

    def decided(self, part: Part[object], event: Event) -> bool:
        with self._changed:
            if part is self.home:
                self._home_slot, self._watermark = event.number, event.watermark
            if part.tried not in self._outcomes:
                part.event = event
                self._changed.notify_all()
                self._wait(lambda: part.tried in self._outcomes)
            outcome = self._outcomes[part.tried]
        if outcome is _Outcome.ABORT:
            raise PartGivenUp("another part of the transaction has failed")
        if outcome is _Outcome.UNKNOWN:
            raise self._in_doubt(event)
        return outcome is _Outcome.COMMIT

    def give_way_to(self, part: Part[object], event: Event) -> None:
        with self._changed:
            if event.decision == self._decision:
                raise InvalidRequest(
                    f"the table {without_secrets(part.table)} is in one transaction twice, by another name as well: "
                    "name it once",
                    option="tables",
                )
            if self._try and operation_of(event.decision) < self.operation_id:
                part.leader.gives_way = True
                self._changed.notify_all()

    def note(self, part: Part[object], **flags: bool) -> None:
        with self._changed:
            vars(part).update(flags)
            self._changed.notify_all()

    def ended(self, part: Part[object], error: BaseException | None = None) -> None:
        """Called at the end of a part's thread, with the error that has ended it."""
        with self._changed:
            part.end(error)
            self._changed.notify_all()

    def _may_put(self, part: Part[object]) -> bool:
        if not self._try or self._try in self._outcomes or self._begins_again or not self._follow_ready(part):
            return False
        if part is self.home:
            return part.tried == self._try or not any(other.gives_way for other in self._parts)
        return self.home.is_put

    def _follow_ready(self, part: Part[object]) -> bool:
        """Whether all that follow a part wait for it."""
        return all(one.is_ready for one in part.followers)

    @property
    def _is_over(self) -> bool:
        return self._outcomes.get(self._try, _Outcome.AGAIN) is not _Outcome.AGAIN

    def _ensure_goes_on(self) -> None:
        if self._is_over:
            raise PartGivenUp("another part of the transaction has failed, or its block has")

    # -- what its owner calls -----------------------------------------------------------------------------------------

    def await_staged(self, part: Part[object]) -> None:
        """Returns once the part is staged or has ended."""
        with self._changed:
            self._wait(lambda: part.is_staged or part.has_ended)

    def commit(self, decisions: Decisions) -> bool | None:
        """Decides, as often as it takes; whether all parts are committed, None if nobody can say.

        `decisions` are those of the home. The errors of parts are theirs: see `Part.error`.
        """
        until_ns = self._system.monotonic_ns() + round(_TRIES_FOR_S * 1e9)
        while True:
            with self._changed:
                self._try, self._decision, self._begins_again = self._try + 1, "", False
                self._changed.notify_all()
            outcome = self._decide(decisions)
            if outcome is _Outcome.AGAIN and self._system.monotonic_ns() > until_ns:
                outcome = _Outcome.ABORT
            self._end_try(outcome)
            if outcome is not _Outcome.AGAIN:
                return None if outcome is _Outcome.UNKNOWN else outcome is _Outcome.COMMIT

    def forget_decision(self, decisions: Decisions) -> None:
        """Says that nobody needs the decisions of its tries any more, as soon as logs say the same by themselves.

        Called once the files of all parts have been made, or all have been rolled back.
        """
        home, is_committed = self.home.table, self._outcomes.get(self._try) is _Outcome.COMMIT
        for name, slots in self._aborted:
            decisions.end(home, name, () if is_committed else slots)  # else the next try's slots are behind them
        if is_committed:
            decisions.end(home, self._decision, _last_slots(part for part in self._parts if part.write is None))
        if self._home_slot and _removes_old(self._home_slot):
            decisions.remove_below(self._watermark, lambda table: LogReader(table).tail_number())

    def abort(self, decisions: Decisions) -> None:
        """Decides what an error has left undecided, as others would do much later. Errors: those of the storage."""
        if self._decision:
            if not self.is_committed:
                self.is_committed = decisions.decide(self.home.table, self._decision, ABORT).commits
            self._end_try(_Outcome.COMMIT if self.is_committed else _Outcome.ABORT)

    def give_up(self) -> None:
        """Ends all parts that are still at work, because the block has failed or was interrupted."""
        self._end_try(_Outcome.UNKNOWN if self._decision else _Outcome.ABORT)

    def await_ended(self, forgets: Callable[[], object] | None = None) -> bool:
        """Waits until all parts have ended; False if one has not even been shown after a while: its storage hangs.

        What follows a commit that is shown, as table services, takes the time that it takes. `forgets` is called beside
        that, once all are committed and shown, or have ended without an error.
        """
        until_ns = self._system.monotonic_ns() + round(_PREPARED_FOR_S * 1e9)
        if not self._wait_until(lambda: all(part.has_ended or part.is_shown for part in self._parts), until_ns):
            return False
        are_shown = all(part.is_shown for part in self._parts)
        if are_shown and forgets is not None:
            forgets()
        has_ended = self._wait_until(lambda: all(part.has_ended for part in self._parts))
        if not are_shown and forgets is not None and all(part.error is None for part in self._parts):
            forgets()
        return has_ended

    def _decide(self, decisions: Decisions) -> _Outcome:
        """Waits until all are prepared, and puts the decision."""
        self._wait_until(lambda: self.home.is_put or self._has_failed)
        is_there = self._has_home(decisions)  # while the others are prepared
        until_ns = self._system.monotonic_ns() + round(_PREPARED_FOR_S * 1e9)
        in_time = self._wait_until(lambda: self._is_prepared or self._has_failed or self._is_in_vain, until_ns)
        with self._changed:
            events = [(part.table, part.event) for part in self._parts if part.event is not None]
            wanted = ABORT
            if self._is_prepared and is_there:
                if any(one.decision != self._decision for _, one in events):
                    raise InvariantBroken(f"a part of {self._decision} was prepared for another decision")
                wanted = Decision(
                    True, tuple(PreparedPart(table, one.number, one.instant, one.time) for table, one in events)
                )
            if not self._decision:  # nothing has been prepared, nor can be from now on
                self._outcomes.setdefault(self._try, _Outcome.ABORT)
                return _Outcome.ABORT
        failpoint("several.before_decision")
        try:
            found = decisions.decide(self.home.table, self._decision, wanted)
        except PutUnknown:
            return _Outcome.UNKNOWN
        except Unavailable as error:
            raise Unavailable(
                f"nothing was committed in any table: the decision could not be put into {DECISIONS_FOLDER} of "
                f"{without_secrets(self.home.table)}, the first of them ({error.message}). Give this writer the right "
                "to write there, or bring that storage back; until then other writers of these tables wait",
                **self.doubt,
            ) from error
        self.is_committed = found.commits
        failpoint("several.after_decision")
        if found.commits:
            return _Outcome.COMMIT
        return _Outcome.ABORT if self._has_failed or not in_time or not is_there else _Outcome.AGAIN

    def _has_home(self, decisions: Decisions) -> bool:
        try:
            decisions.ensure_home(self.home.table)
        except Unavailable:
            return False
        return True

    def _end_try(self, outcome: _Outcome) -> None:
        with self._changed:
            is_in_vain = outcome in (_Outcome.AGAIN, _Outcome.ABORT) and self._try not in self._outcomes
            if is_in_vain and self._decision:
                self._aborted.append((self._decision, _last_slots(part for part in self._parts if part.is_put)))
            self._outcomes.setdefault(self._try, outcome)
            for part in self._parts:
                part.event, part.is_put = None, False
            self._changed.notify_all()

    def _wait_until(self, is_so: Callable[[], bool], until_ns: int | None = None) -> bool:
        with self._changed:
            return self._wait(is_so, until_ns)

    def _wait(self, is_so: Callable[[], bool], until_ns: int | None = None) -> bool:
        """Waits, with the condition held, until something is so; False if it is not at a time."""
        while not is_so():
            left_s = None if until_ns is None else (until_ns - self._system.monotonic_ns()) / 1e9
            if left_s is not None and left_s <= 0:
                return False
            self._changed.wait(left_s)
        return True

    @property
    def _is_prepared(self) -> bool:
        return all(part.event is not None for part in self._parts if part.leads)

    @property
    def _has_failed(self) -> bool:
        return any(part.has_ended or part.has_failed for part in self._parts)

    @property
    def _is_in_vain(self) -> bool:
        return self._begins_again or any(part.gives_way for part in self._parts)

    @property
    def errors(self) -> list[BaseException]:
        """What has ended parts, but for those that only followed others."""
        found = [part.error for part in self._parts if part.error is not None]
        return [error for error in found if not isinstance(error, PartGivenUp)]

    @property
    def doubt(self) -> dict[str, str]:
        """The details by which `resolve` finds the decision."""
        return {"decision": self._decision, "home": self.home.table}

    def _in_doubt(self, event: Event) -> CommitUnknown:
        return CommitUnknown(
            f"the storage of {without_secrets(self.home.table)} did not tell whether the transaction over several "
            f"tables is committed whose part here is {event.instant}: lakelatch.resolve says so as soon as it answers, "
            "and so does the next writer of any of the tables",
            instant=event.instant,
            slot=event.number,
            **self.doubt,
        )
