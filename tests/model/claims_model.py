"""Beginnings, data files and rollbacks: who owns a requested time, and which files may ever be under a committed one.

The log is one step here, because `commit_log_model` shows that an append comes after exactly what it was checked
against. Each driver has a file that it commits, an attempt that it gave up and that goes on all the same, and a beat
that is under way. Or drivers make their files themselves (`in_driver`), and ask the log instead of an opening.
Recoverers take anybody for dead at any time, and several may carry out one rollback.
"""

from __future__ import annotations

from collections.abc import Iterator

from claims_state import (
    ClaimRules,
    File,
    Part,
    Removal,
    State,
    Stored,
    appended,
    claimed,
    cleared,
    created,
    known,
    last_time,
    marked,
    nobody_at,
    of_time,
    owner,
    stored_in,
    unclaimed,
    without,
)

GOOD, GIVEN_UP = "kept", "given up"
OVER = ("committed", "gave up", "recovered")
_OWN_FILE = ("show", "announce last", "announce", "ask", "write")
_BESIDE = ("announce, look", "announce after the look", "look after the announcement", "announce in vain")
_SHOWN_BESIDE = ("show, ask", "show after asking", "ask after showing", "show in vain")
_GIVE_BACK = ("take back", "give back", "give back the claim", "give back the markers")
AT_WORK = (*_OWN_FILE, *_BESIDE, *_SHOWN_BESIDE, "close", "list", "sweep", "check", "append")
_FORGET_BOTH = ("forget both", "unmark last", "unbeat last")
CARRY_OUT = ("unbeat", "close", "list", "sweep", "unpend", "finish", "unbeat again", "unopen", "unmark", "recovered")
FORGET = ("unbeat", "unopen", "unmark")


Step = tuple[str, State]


class ClaimModel:
    """All steps that are possible in a state, under some rules."""

    def __init__(self, rules: ClaimRules) -> None:
        self.rules = rules
        self._told: dict[Stored, str | None] = {}  # what a recovery leaves, by all that a recoverer looks at

    def forget(self) -> None:
        """Forgets what recoveries leave."""
        self._told.clear()

    def first(self) -> State:
        rules = self.rules
        return State(
            (Part("begin"),) * rules.drivers,
            ("announce" if rules.announces_first else "check",) * rules.attempts,
            ("look",) * rules.beats,
            (Part("look"),) * rules.recoverers,
        )

    def steps(self, state: State) -> Iterator[Step]:
        for who, mine in enumerate(state.drivers):
            if mine.step not in OVER:
                for done, after in self._drive(state, who, mine):
                    yield f"w{who} {done}", after
        for who, step in enumerate(state.attempts):
            yield from self._attempt(state, who, step)
        for who, step in enumerate(state.beats):
            yield from self._beat(state, who, step)
        for who, mine in enumerate(state.recoverers):
            if mine.step != "recovered" and not (who and state.recoverers[who - 1].step == "look"):
                for done, after in self._recover(state, who, mine):
                    yield f"h{who} {done}", after
        if state.others < self.rules.others_commit:
            yield "others commit", appended(state, "end", 0, -1)._replace(others=state.others + 1)
        for late in state.air:
            rest = state._replace(air=state.air - {late})
            if isinstance(late, Removal):
                yield f"the removal of the {late.what} of {late.time} is repeated", without(rest, late)
            elif isinstance(late, int):
                yield f"the opening of {late} arrives late", rest._replace(open=state.open | {late})
            else:
                yield f"the request for the {late.kind} file of w{late.driver} is repeated", created(rest, late)

    # -- a driver ---------------------------------------------------------------------------------------------------

    def _drive(self, state: State, who: int, mine: Part) -> Iterator[Step]:
        if mine.step in ("begin", "take", "claim", "look again", "open", "pend"):
            yield from self._begin(state, who, mine)
            return
        if mine.step in (*_BESIDE, *_SHOWN_BESIDE):
            yield from self._beside(state, who, mine)
            return
        if mine.step in _GIVE_BACK:
            yield from self._give_back(state, who, mine)
            return
        if self.rules.in_driver and mine.step in (*_OWN_FILE, *_FORGET_BOTH):
            yield from self._make_own(state, who, mine)
            return
        file = File(mine.time, who, GOOD)
        if mine.step == "write":
            made = self._let_in(state, mine.time) and file not in state.tombstones
            if made:
                state = state._replace(markers=state.markers | {file}, files=state.files | {file})
            closing = ("close", "list") if self.rules.closes_first else ("list", "close")
            yield (
                "makes its file" if made else "is refused by a tombstone",
                _drives(state, who, closing[0] if made else "gave up"),
            )
        elif mine.step == "close":
            then = "list" if self.rules.closes_first else "sweep"
            yield "closes", _drives(state._replace(open=state.open - {mine.time}), who, then)
        elif mine.step == "list":
            listed = of_time(state.markers, mine.time)
            then = "sweep" if self.rules.closes_first else "close"
            if owner(state, mine.time) == who:  # asked side by side with the list, and not again
                yield "lists its markers", _drives(state, who, then, listed=listed)
            else:
                yield "lists its markers and finds its claim gone", _drives(state, who, "gave up")
        elif mine.step == "sweep":
            yield "sweeps", _drives(self._sweep(state, mine.listed - {file}), who, "check", listed=frozenset())
        elif mine.step == "check":
            yield from self._check(state, who, mine)
        elif mine.step == "append":
            if len(state.log) == mine.seen:
                forget = _FORGET_BOTH[0] if self.rules.in_driver else FORGET[0]
                yield "commits", _drives(appended(state, "commit", mine.time, who), who, forget)
            else:
                yield "finds the slot taken", _drives(state, who, "check", seen=0)
        else:
            after = _next(mine.step, (*FORGET, "committed"))
            ended = any(by == who for _, _, by, _ in state.log)
            yield mine.step, _drives(cleared(state, mine), who, after if ended or after in FORGET else "gave up")

    def _begin(self, state: State, who: int, mine: Part) -> Iterator[Step]:
        rules, (repeated, failed, data) = self.rules, state.faults
        if mine.step == "begin":
            alike = {rules.attempts, rules.beats} <= {0, rules.drivers}  # until they begin, which is then in this order
            if not (alike and who and state.drivers[who - 1].step == "begin"):
                yield "reads the tail", _drives(state, who, "take", seen=last_time(state))
        elif mine.step == "take":
            new = state.clock + 1
            yield f"is given time {new}", _drives(state._replace(clock=new), who, "claim", time=new)
            if repeated < rules.repeated_times:
                again = state._replace(faults=(repeated + 1, failed, data))
                for old in sorted({other.time for other in state.drivers} - {0}):
                    if old > mine.seen:
                        yield f"is given time {old} once more", _drives(again, who, "claim", time=old)
        elif mine.step == "claim":
            if owner(state, mine.time) is not None:
                yield "finds its time claimed", _drives(state, who, "gave up", seen=0)
            else:
                then = self._beside_in_order()[0][0] if rules.looks_beside else "look again"
                yield "claims it", _drives(claimed(state, mine.time, who), who, then, seen=0)
        elif mine.step == "look again":
            late = rules.fresh_tail and mine.time <= last_time(state)
            begun = ("show" if rules.announces_first else "pend") if rules.in_driver else "open"
            yield "reads the tail again", _drives(state, who, "give back the claim" if late else begun)
        elif mine.step == "open":
            opened = state._replace(open=state.open | {mine.time})
            yield "opens", _drives(opened, who, "pend")
            if failed < rules.failed_begins:
                unheard = state._replace(air=state.air | {mine.time}, faults=(repeated, failed + 1, data))
                yield "opens, and hears nothing", _drives(unheard, who, self._failed() if rules.opens_once else "open")
        else:
            then = "ask" if rules.in_driver else "write"
            yield "is on the timeline", _drives(state._replace(pending=state.pending | {mine.time}), who, then)
            if failed < rules.failed_begins:
                fails = state._replace(faults=(repeated, failed + 1, data))
                yield "cannot begin", _drives(fails, who, self._failed())

    def _make_own(self, state: State, who: int, mine: Part) -> Iterator[Step]:
        """Shows the instant and announces its file, in any order; asks; makes it; removes claim and marker likewise."""
        file, rules = File(mine.time, who, GOOD), self.rules
        order = ("announce", "ask", "write") if rules.announces_first else ("ask", "announce", "write")
        if mine.step == "show":
            shown = state._replace(pending=state.pending | {mine.time})
            yield "is on the timeline", _drives(shown, who, "announce last")
            yield "announces its file", _drives(marked(state, file), who, "pend")
        elif mine.step in ("announce", "announce last"):
            yield "announces its file", _drives(marked(state, file), who, _next("announce", order))
        elif mine.step == "ask":
            ended = any(instant == mine.time for _, instant, _, _ in state.log)
            gone = owner(state, mine.time) is None
            may = {"log": not ended, "claim": not gone, "": True}[rules.driver_asks]
            yield (
                "asks, and may go on" if may else "asks, and has ended",
                _drives(state, who, _next(mine.step, order) if may else "gave up"),
            )
        elif mine.step == "write":
            made = file not in state.tombstones
            after = _drives(created(state, file), who, "check" if made else "gave up")
            yield "makes its file" if made else "is refused by a tombstone", after
            if made and state.faults[2] < rules.repeated_data:
                repeated, failed, data = state.faults
                after = after._replace(air=state.air | {file}, faults=(repeated, failed, data + 1))
                yield "makes its file, and the request will be repeated", after
        elif mine.step == _FORGET_BOTH[0]:
            for done, then in (("unbeat", "unmark last"), ("unmark", "unbeat last")):
                yield done, _drives(cleared(state, mine._replace(step=done)), who, then)
        else:
            yield mine.step, _drives(cleared(state, mine._replace(step=mine.step.split()[0])), who, "committed")

    def _beside_in_order(self) -> tuple[tuple[str, ...], ...]:
        return (_BESIDE, _SHOWN_BESIDE) if self.rules.looks_before_showing else (_SHOWN_BESIDE, _BESIDE)

    def _beside(self, state: State, who: int, mine: Part) -> Iterator[Step]:
        """Announces its file beside the look at the tail, and then shows the instant beside the look at the log.

        Each look says whether the instant has ended; if so, the request beside it may still arrive. Any time may lie
        between the two: a table that stays open has the first one behind the commit before.
        """
        one, other = self._beside_in_order()
        both, look_first, request_first, in_vain = one if mine.step in one else other
        then = other[0] if mine.step in one else "write"
        announces = mine.step in _BESIDE
        done = "announces its file" if announces else "is on the timeline"
        if mine.step != request_first:
            file = File(mine.time, who, GOOD)
            after = marked(state, file) if announces else state._replace(pending=state.pending | {mine.time})
            yield done, _drives(after, who, {both: request_first, look_first: then, in_vain: "gave up"}[mine.step])
        used = any(instant == mine.time for _, instant, _, _ in state.log)
        if mine.step in (both, request_first):
            late = announces and self.rules.later_is_refused and mine.time <= last_time(state)
            if late or (used and (announces or self.rules.driver_asks)):
                yield "asks, and has ended", _drives(state, who, in_vain if mine.step == both else "gave up")
            else:
                yield "asks, and may go on", _drives(state, who, look_first if mine.step == both else then)
        if self.rules.gives_back and mine.step == self._beside_in_order()[0][0] and mine.time <= last_time(state):
            yield "finds the log later, with nothing announced", _drives(state, who, "give back the claim")
        may_go = mine.time <= last_time(state) and not (used and self.rules.keeps_used)
        if self.rules.gives_back and mine.step != in_vain and may_go:
            yield "finds the log later", _drives(state, who, "take back")

    def _give_back(self, state: State, who: int, mine: Part) -> Iterator[Step]:
        """Takes itself off the timeline, and then removes claim and markers in any order."""
        claim, markers = Removal(mine.time, "claim"), Removal(mine.time, "markers")
        if mine.step == "take back":
            yield "is taken off the timeline", _drives(cleared(state, mine._replace(step="unpend")), who, "give back")
            return
        removals = {
            "give back": ((claim, "give back the markers"), (markers, "give back the claim")),
            "give back the claim": ((claim, "gave up"),),
            "give back the markers": ((markers, "gave up"),),
        }[mine.step]
        for removal, then in removals:
            after = _drives(without(state, removal), who, then)
            yield f"removes its {removal.what}", after
            if state.removals < self.rules.repeated_removals:
                again = after._replace(air=after.air | {removal}, removals=state.removals + 1)
                yield f"removes its {removal.what}, and the request will be repeated", again

    def _failed(self) -> str:
        return "gave up" if self.rules.forgets_only_ended else FORGET[0]

    def _check(self, state: State, who: int, mine: Part) -> Iterator[Step]:
        ended = any(instant == mine.time and event in ("commit", "rollback") for event, instant, _, _ in state.log)
        if ended or mine.time not in state.pending:
            yield "finds that it was ended", _drives(state, who, "gave up", seen=0)
        else:
            yield "finds that it may commit", _drives(state, who, "append", seen=len(state.log))

    # -- its attempt and its beat -----------------------------------------------------------------------------------

    def _attempt(self, state: State, who: int, step: str) -> Iterator[Step]:
        driver, label = state.drivers[who], f"an attempt of w{who}"
        file = File(driver.time, who, GIVEN_UP)
        order = ("announce", "check", "create") if self.rules.announces_first else ("check", "announce", "create")
        if step == order[0] and driver.step not in AT_WORK:
            return
        if step == "announce":
            yield f"{label} announces its file", _attempts(marked(state, file), who, _next(step, order))
        elif step == "check":
            then = _next(step, order) if self._let_in(state, driver.time) else "over"
            yield f"{label} asks whether it may go on", _attempts(state, who, then)
        elif step == "create":
            made = _attempts(created(state, file), who, "over")
            yield f"{label} makes its file", made
            if state.faults[2] < self.rules.repeated_data:
                repeated, failed, data = state.faults
                made = made._replace(air=state.air | {file}, faults=(repeated, failed, data + 1))
                yield f"{label} makes its file, and the request will be repeated", made

    def _let_in(self, state: State, time: int) -> bool:
        return owner(state, time) is not None and (time in state.open or not self.rules.checks_open)

    def _beat(self, state: State, who: int, step: str) -> Iterator[Step]:
        time = state.drivers[who].time
        if step == "look" and state.drivers[who].step in AT_WORK and owner(state, time) == who:
            yield f"a beat of w{who} finds its claim", _beats(state, who, "put")
        elif step == "put":
            yield f"the beat of w{who} arrives", _beats(claimed(unclaimed(state, time), time, who), who, "over")

    # -- a recoverer ---------------------------------------------------------------------------------------------------

    def _recover(self, state: State, who: int, mine: Part) -> Iterator[Step]:
        ended = {instant: event for event, instant, _, _ in state.log}
        if mine.step == "look":
            for time in sorted(known(state)):
                yield f"takes {time} for dead", _recovers(state, who, self._duty(state, time, ended), time=time)
        elif mine.step == "mark_aborted":
            if mine.time in ended:
                yield "finds that it has ended", _recovers(state, who, "recovered", time=0)
            else:
                yield f"aborts {mine.time}", _recovers(appended(state, "rollback", mine.time, -1), who, "unbeat")
        elif mine.step == "list":
            yield "lists the markers", _recovers(state, who, "sweep", listed=of_time(state.markers, mine.time))
        elif mine.step == "sweep":
            yield "sweeps", _recovers(self._sweep(state, mine.listed), who, "unpend", listed=frozenset())
        elif mine.step == "forget":
            yield "forgets its claim", _recovers(unclaimed(state, mine.time), who, "unopen")
        else:
            then = _next(mine.step, CARRY_OUT)
            yield mine.step, _recovers(cleared(state, mine), who, then, time=0 if then == "recovered" else mine.time)

    def _duty(self, state: State, time: int, ended: dict[int, str]) -> str:
        if not self.rules.rollback_in_log:
            return "unbeat"
        done = ended.get(time) in ("commit", "finish") or not self.rules.forgets_only_ended
        if done and time not in state.pending:
            return "forget"
        return "unbeat" if time in ended else "mark_aborted"

    def _sweep(self, state: State, files: frozenset[File]) -> State:
        there, missing = state.files & files, files - state.files
        tombstones = there if self.rules.leaves_tombstones else frozenset()
        tombstones |= missing if self.rules.bars else frozenset()
        return state._replace(files=state.files - there, tombstones=state.tombstones | tombstones)

    # -- promises ---------------------------------------------------------------------------------------------------

    def broken_promise(self, state: State) -> str | None:
        """The first promise that does not hold in a state."""
        ends = [instant for event, instant, _, _ in state.log if event in ("commit", "rollback")]
        if len(ends) > len(set(ends)):
            return "an instant ended twice"
        for event, instant, driver, _ in state.log:
            if event == "commit":
                kept = File(instant, driver, GOOD)
                if kept not in state.files:
                    return "a committed file is gone"
                if of_time(state.files, instant) != {kept}:
                    return "a row of an attempt that was given up is read"
                if state.drivers[driver].step == "gave up":
                    return "a caller was told 'not committed', and it is in the log"
        return self._unrecovered(state) if self.rules.recovers else None

    def _unrecovered(self, state: State) -> str | None:
        """Another recoverer begins anew, so how far those before it have come is nothing to it, nor who else is."""
        stored = stored_in(state)
        if stored not in self._told:
            self._told[stored] = self._unrecovered_by_one(nobody_at(stored))
        return self._told[stored]

    def _unrecovered_by_one(self, state: State) -> str | None:
        once = self._left_alone(state)
        committed = {instant for event, instant, _, _ in once.log if event == "commit"}
        if known(once) or any(file.time not in committed for file in once.files):
            return "a recovery leaves something behind"
        return None if self._left_alone(once) == once else "a second recovery does more"

    def _left_alone(self, state: State) -> State:
        """A new recoverer that nobody disturbs."""
        state = state._replace(recoverers=(Part("look"),))
        while True:
            step = next(self._recover(state, 0, state.recoverers[0]), None)
            if step is None:
                return state._replace(recoverers=())
            state = step[1]
            if state.recoverers[0].step == "recovered":
                state = state._replace(recoverers=(Part("look"),))


def _next(step: str, order: tuple[str, ...]) -> str:
    place = order.index(step) + 1
    return order[place] if place < len(order) else "over"


def _drives(state: State, who: int, step: str, **values: object) -> State:
    changed = state.drivers[who]._replace(step=step, **values)  # type: ignore[arg-type]
    return state._replace(drivers=(*state.drivers[:who], changed, *state.drivers[who + 1 :]))


def _recovers(state: State, who: int, step: str, **values: object) -> State:
    changed = state.recoverers[who]._replace(step=step, **values)  # type: ignore[arg-type]
    return state._replace(recoverers=(*state.recoverers[:who], changed, *state.recoverers[who + 1 :]))


def _attempts(state: State, who: int, step: str) -> State:
    return state._replace(attempts=(*state.attempts[:who], step, *state.attempts[who + 1 :]))


def _beats(state: State, who: int, step: str) -> State:
    return state._replace(beats=(*state.beats[:who], step, *state.beats[who + 1 :]))
