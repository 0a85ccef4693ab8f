"""A restore beside writers: what it takes back is gone for everybody who commits after its slot.

Its slot names the commits that go, the last one first, and whoever adds the next slot has taken their files off the
timeline before. What follows (each one's data, then its other files) is done by two processes, or twice. The log is one
step, as in `claims_model`; a request that made a data file may arrive once more, and so may one that made a completed
file, be it its writer's or that of somebody who was late in showing the slot. That file lies on the timeline until a
recovery meets it: readers and writers look at what the restore names, from when its own file is there, which is before
any of these has gone. A rollback of what has completed is a restore with one victim.

A reader looks at the timeline, lists data, and looks once more: a commit that does not count any more is an error.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from own_steps import OwnSteps

_OVER = ("committed", "ended")
RESTORE = -1  # in the log, in the place of a writer


@dataclass(frozen=True)
class RestoreRules:
    """The bounds, and then the protocol: each of its flags that is turned off plants a mistake."""

    writers: int = 3
    executors: int = 2
    repeated_files: int = 1
    repeated_commits: int = 1
    reads: bool = False  # a reader is there as well
    ends_writers: bool = True  # who began before the restore's slot does not commit after it
    shows_first: bool = True  # the files of the restore's commits have gone before the next slot
    last_first: bool = True  # the last completed one goes first
    decided_in_log: bool = True  # what goes is chosen at the restore's place in the log
    leaves_tombstones: bool = True  # data is not only deleted
    commits_go_first: bool = True  # all completed files, before any data
    names_what_is_gone: bool = True  # a completed file that comes back counts for nobody
    from_its_request: bool = True  # and it may come before the restore's inflight file is there
    clears_last_first: bool = True  # so does a recovery, which may meet those that are still to go
    reads_what_is_named: bool = True  # a reader's second look knows what does not count, too; not the names alone


class Writer(NamedTuple):
    step: str = "begin"
    start: int = 0
    read: frozenset[int] = frozenset()
    seen: int = 0


class State(NamedTuple):
    writers: tuple[Writer, ...]
    log: tuple[int, ...] = ()  # who has committed, and where the restore is
    shown: frozenset[int] = frozenset()  # whose completed files are there
    data: frozenset[int] = frozenset()
    tombstones: frozenset[int] = frozenset()
    air: frozenset[int] = frozenset()  # whose data will be made once more
    repeated: int = 0
    late: frozenset[int] = frozenset()  # whose completed files will be made once more
    repeated_commits: int = 0
    projected: bool = False  # whether all completed files of the restore's commits have gone once
    look: tuple[int, int] | None = None  # of who plans the restore: the length of the log, and the commit to go back to
    victims: tuple[int, ...] | None = None
    requested: bool = False  # whether the restore's own file is there, which names the victims
    inflight: bool = False  # and the file that says that they have gone once
    unseen: frozenset[int] = frozenset()  # victims that some reader has not found any more
    came_back: bool = False  # whether a late request has come
    clearing: tuple[int, ...] = ()  # what a recovery is about to take off the timeline
    executors: tuple[int, ...] = ()  # how many victims each has seen to
    reader: tuple[frozenset[int], ...] = ()  # what its looks have found: commits, their data, commits that are left


Step = tuple[str, State]


class RestoreModel:
    """All steps that are possible in a state, under some rules."""

    def __init__(self, rules: RestoreRules) -> None:
        self.rules = rules
        self._own_steps: OwnSteps[State] = OwnSteps(State)

    def forget(self) -> None:
        self._own_steps.forget()

    def first(self) -> State:
        return State((Writer(),) * self.rules.writers, executors=(0,) * self.rules.executors)

    def steps(self, state: State) -> Iterator[Step]:
        yield from self._own_steps.around(state, lambda alone: self._seen(self._around(alone)))
        for who, mine in enumerate(state.writers):
            if mine.step not in _OVER and not (who and state.writers[who - 1].step == "begin"):
                yield from self._own_steps.steps(state, 0, who, self._by_writer)

    def _seen(self, steps: Iterable[Step]) -> Iterator[Step]:
        """The steps with what some reader finds after each, or does not."""
        for done, after in steps:
            gone = frozenset(after.victims or ()) - self._counts(after)
            yield done, after if gone <= after.unseen else after._replace(unseen=after.unseen | gone)

    def _by_writer(self, state: State, who: int, mine: Writer) -> Iterator[Step]:
        return self._seen((f"w{who} {done}", after) for done, after in self._write(state, who, mine))

    def _around(self, state: State) -> Iterator[Step]:
        for who in state.air:
            yield f"the data of w{who} is made once more", _make(state._replace(air=state.air - {who}), who)
        for who in state.late:
            arrived = state._replace(late=state.late - {who}, shown=state.shown | {who}, came_back=True)
            yield f"the completed file of w{who} is made once more", arrived
        if self.rules.reads:
            yield from self._read(state)
        if state.victims is None:
            yield from self._plan(state)
        else:
            yield from self._project(state)
            yield from self._tidy(state)
            yield from self._clear(state)

    # -- writers ------------------------------------------------------------------------------------------------------

    def _write(self, state: State, who: int, mine: Writer) -> Iterator[Step]:
        ready = self._is_shown(state) or not self.rules.shows_first
        if mine.step == "begin":
            if ready:
                yield "begins", _writes(state, who, Writer("make", len(state.log), self._counts(state)))
        elif mine.step == "make":
            made = _writes(_make(state, who), who, mine._replace(step="check"))
            yield "makes its data", made
            if state.repeated < self.rules.repeated_files:
                made = made._replace(air=made.air | {who}, repeated=made.repeated + 1)
                yield "makes its data, and the request will be repeated", made
        elif mine.step == "check":
            if self.rules.ends_writers and RESTORE in state.log[mine.start :]:
                yield (
                    "finds that it may not commit",
                    _writes(
                        state._replace(data=state.data - {who}, tombstones=state.tombstones | {who}),
                        who,
                        Writer("ended"),
                    ),
                )
            elif ready:
                yield "finds that it may commit", _writes(state, who, mine._replace(step="append", seen=len(state.log)))
        elif len(state.log) != mine.seen:
            yield "finds the slot taken", _writes(state, who, mine._replace(step="check", seen=0))
        else:
            committed = state._replace(log=(*state.log, who), shown=state.shown | {who})
            committed = _writes(committed, who, Writer("committed", read=mine.read))
            yield "commits", committed
            if state.repeated_commits < self.rules.repeated_commits:
                twice = committed._replace(late=state.late | {who}, repeated_commits=state.repeated_commits + 1)
                yield "commits, and the request will be repeated", twice

    # -- a reader -----------------------------------------------------------------------------------------------------

    def _read(self, state: State) -> Iterator[Step]:
        if not state.reader and state.shown:
            yield "a reader looks", state._replace(reader=(self._counts(state),))
        elif len(state.reader) == 1:
            yield "a reader lists data", state._replace(reader=(*state.reader, state.data))
        elif len(state.reader) == 2:
            left = self._counts(state) if self.rules.reads_what_is_named else state.shown
            yield "a reader looks once more", state._replace(reader=(*state.reader, left))

    # -- the restore --------------------------------------------------------------------------------------------------

    def _plan(self, state: State) -> Iterator[Step]:
        if state.look is None:
            for target in sorted(state.shown):
                yield f"a restore to w{target} looks", state._replace(look=(len(state.log), target))
            return
        length, target = state.look
        if self.rules.decided_in_log and length != len(state.log):
            yield "the restore finds the slot taken", state._replace(look=None)
            return
        victims = state.log[state.log.index(target) + 1 : length]
        if self.rules.last_first:
            victims = victims[::-1]
        yield (
            f"the restore takes its slot, of {victims}",
            state._replace(log=(*state.log, RESTORE), victims=victims, look=None),
        )

    def _is_shown(self, state: State) -> bool:
        return state.victims is None or state.projected or state.shown.isdisjoint(state.victims)

    def _counts(self, state: State) -> frozenset[int]:
        """The commits that are there for readers and writers."""
        return state.shown.difference(self._named(state))

    def _named(self, state: State) -> tuple[int, ...]:
        """The victims, by what lies on the timeline."""
        told = state.requested if self.rules.from_its_request else state.inflight
        return state.victims or () if told and self.rules.names_what_is_gone else ()

    def _project(self, state: State) -> Iterator[Step]:
        if not state.requested:
            yield "the restore's file is there", state._replace(requested=True)
            return
        gone = next((one for one in state.victims or () if one in state.shown), None)
        if gone is not None:
            after = state._replace(shown=state.shown - {gone})
            yield f"the completed file of w{gone} goes", after._replace(projected=self._is_shown(after))

    def _tidy(self, state: State) -> Iterator[Step]:
        victims = state.victims or ()
        if not state.requested or (self.rules.commits_go_first and not self._is_shown(state)):
            return
        if not state.inflight:
            yield "the restore's inflight file is there", state._replace(inflight=True)
            return
        for who, done in enumerate(state.executors):
            if done < len(victims):
                victim = victims[done]
                after = state._replace(
                    data=state.data - {victim}, executors=tuple(sorted(_changed(state.executors, who, done + 1)))
                )
                if self.rules.leaves_tombstones:
                    after = after._replace(tombstones=after.tombstones | {victim})
                yield f"the data of w{victim} goes", after

    def _clear(self, state: State) -> Iterator[Step]:
        if state.clearing:
            first, *rest = state.clearing
            after = state._replace(shown=state.shown - {first}, clearing=tuple(rest))
            yield f"a recovery removes the completed file of w{first}", after._replace(projected=self._is_shown(after))
            return
        found = tuple(one for one in self._named(state) if one in state.shown)
        if found:
            clearing = found if self.rules.clears_last_first else found[::-1]
            yield f"a recovery finds {clearing}", state._replace(clearing=clearing)

    # -- promises -----------------------------------------------------------------------------------------------------

    def broken_promise(self, state: State) -> str | None:
        """The first promise that does not hold in a state."""
        counts = self._counts(state)
        if not counts.isdisjoint(state.unseen):
            return "readers see once more what was taken back"
        if not counts <= state.data:
            return "readers see a commit whose data is gone"
        for who, writer in enumerate(state.writers):
            if writer.step == "committed" and who in counts and not writer.read <= counts:
                return "a commit stands on what was taken back"
        slot = state.log.index(RESTORE) if RESTORE in state.log else len(state.log)
        if len(state.reader) == 3:
            found, data, left = state.reader
            if found <= left and not found <= data:
                return "a reader does not know that data was gone"
        if not _is_a_moment(state.log[:slot], counts):
            return "readers see what never was"
        if not state.came_back and not _is_a_moment(state.log[:slot], state.shown):
            return "other engines see what never was"
        if not state.came_back and not state.shown <= state.data:
            return "other engines see a commit whose data is gone"
        over = state.victims is not None and min(state.executors, default=0) == len(state.victims)
        if over and not state.air and not state.data.isdisjoint(state.victims or ()):
            return "data of what was taken back is left"
        return None


def _is_a_moment(log: tuple[int, ...], shown: frozenset[int]) -> bool:
    """Whether commits are the first ones of a log."""
    return {*log[: len(shown.intersection(log))]} <= shown


def _make(state: State, who: int) -> State:
    return state if who in state.tombstones else state._replace(data=state.data | {who})


def _writes(state: State, who: int, writer: Writer) -> State:
    return state._replace(writers=(*state.writers[:who], writer, *state.writers[who + 1 :]))


def _changed(values: tuple[int, ...], place: int, value: int) -> tuple[int, ...]:
    return (*values[:place], value, *values[place + 1 :])
