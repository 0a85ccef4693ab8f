"""One run over several tables: a bank whose accounts lie in three of them, under faults, then without any."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import blake2b
from itertools import islice, pairwise

from actors import ACCOUNTS, Actor
from course import PROBLEMS_MOST, Enough, Outcome, Setting, Told
from histories import observed_of, orders_of
from run import Job, Run
from seams import LOCKS, STORAGE, Place
from statement_checks import (
    conflicts_name_their_winners,
    readers_saw_everything,
    statements_of,
    works_are_done_once_if_known,
    writes_saw_all_before,
)
from stock import CONFIG, archive
from tellers import Ledger, Move, Seen, Teller
from world import SECOND_NS, Hang, Process, World

from lakelatch.errors import LakelatchError
from lakelatch.timeline.log.commit_log import CommitLog
from lakelatch.timeline.log.decisions import Undecided
from lakelatch.timeline.properties_file import PROPERTIES_PATH
from lakelatch.timeline.recorded_options import LATEST_LOG_VERSION
from lakelatch.torture.check.checker import OF_CALLERS, OF_READERS, OF_TABLE, find_problems
from lakelatch.torture.check.evidence import Evidence, decisions_in
from lakelatch.torture.check.isolation import isolation_holds
from lakelatch.torture.check.table import nothing_is_left_behind, nothing_is_pending
from lakelatch.torture.check.table_files import TableFiles
from lakelatch.torture.history.reading import History
from lakelatch.transactions.base.elision import AUTO, OFF
from lakelatch.transactions.base.settings import OPTIMISTIC, EarlySettings

TABLES = ("bank0", "bank1", "bank2")
_STEPS = (
    *("several.before_decision", "several.after_decision"),
    *("commit.after_check", "commit.before_slot", "commit.after_slot", "commit.after_projection"),
    *("begin.after_claim", "close.after", "lock.after_release", "rollback.after_slot", "log.after_removal"),
)
_LATEST_ARRIVAL_S = 8.0
_ZOMBIES_END_S = 6.0
_CONVERGE_S = 90.0
_LOSES_TOUCH = 0.1
_OF_SIMULATION = (readers_saw_everything, works_are_done_once_if_known, conflicts_name_their_winners)


@dataclass
class SeveralRun(Run):
    """One run on its way, over three tables that have nothing in common but the processes that write them."""

    ledger: Ledger = field(default_factory=Ledger)

    def __post_init__(self) -> None:
        self.world = World(self.seed, self.keep_lines)
        self.place = Place(self.world, name=TABLES[0])
        self.places = [self.place, *(Place(self.world, self.place.faults, name) for name in TABLES[1:])]
        for place in self.places:
            place.counts = self.place.counts
            properties = replace(CONFIG, log_version=LATEST_LOG_VERSION).to_properties()
            place.memory.put(PROPERTIES_PATH, properties)
        self.told = [self.history, *(Told() for _ in TABLES[1:])]
        draw = self.world.random
        early = EarlySettings(draw.choice(("simple_direct", "transactional_direct")), draw.random() < 0.3)
        self.setting = Setting(
            draw.random() < 0.25,
            draw.random() < 0.3,
            draw.choice((1, 1, 2, 32)),
            early if draw.random() < 0.2 else None,
            draw.choice((OFF, AUTO, AUTO)),
            own_files=draw.random() < 0.5,
            remembers=draw.random() < 0.4,
            crowded=draw.random() < 0.15,
        )
        self.leaves = draw.random() < 0.5
        self.stocked = False
        self.favourite = draw.choice(_STEPS) if draw.random() < 0.7 else ""
        self.faults_end_ns = int(self.world.between_s(3, 10) * SECOND_NS)
        self._readers = []
        self._killed = self._recovered_ns = 0

    def outcome(self) -> Outcome:
        problems, recovered_s = self.history.problems, 0.0
        try:
            self._run_under_faults()
            recovered_s = self._converge()
            for told in self.told[1:]:
                problems += told.problems
            problems += islice(self._find_all_problems(), PROBLEMS_MOST)
        except (Hang, Enough) as ended:
            problems.append(str(ended))
        except (LakelatchError, AssertionError, KeyError, ValueError, TypeError, AttributeError) as error:
            problems.append(f"{type(error).__name__}: {error}")
        return replace(self._outcome(recovered_s), several=True)

    def _find_all_problems(self) -> Iterator[str]:
        commits: list[TableFiles] = []
        files = [files_of(place) for place in self.places]
        decisions = decisions_in(files)
        for place, told, own in zip(self.places, self.told, files, strict=True):
            table = TableFiles(own, decisions=decisions)
            commits.append(table)
            evidence = Evidence(table, History(told.lines), {"killed": self._killed})
            of_table = (*OF_TABLE, writes_saw_all_before)
            for problem in find_problems(evidence, of_table, (*OF_CALLERS, *OF_READERS, *_OF_SIMULATION)):
                yield f"{place.name}: {problem}"
        yield from moves_are_whole(commits, self.ledger.moves)
        yield from moments_are_of_one_order(self.ledger.seen)
        yield from moments_hold_whole_moves(self.ledger)
        yield from money_is_kept(commits)
        named = {place.uri: table for place, table in zip(self.places, commits, strict=True)}
        yield from isolation_holds(observed_of(named, self.ledger), orders_of(named))
        for place in self.places:
            try:
                CommitLog(place.memory, self.places[0].memory._system).decided_tail()
            except Undecided as error:
                yield f"{place.name} still waits: {error.message}"

    def _fingerprint(self) -> str:
        digest = blake2b(digest_size=16)
        for place in self.places:
            for path, (data, modified_ms) in sorted(place.memory._objects.items()):
                digest.update(f"{place.name} {path} {modified_ms} {len(data)} ".encode() + data)
        lines = [told.lines for told in self.told]
        rest = (lines, self.world.now_ns, self.world.steps, self.place.counts)
        digest.update(json.dumps([*rest, [process.random.random() for process in self.world.processes]]).encode())
        return digest.hexdigest()

    # -- under faults ------------------------------------------------------------------------------------------------

    def _actor(self, name: str) -> Teller:
        return Teller(self.places, self.setting, self.told, self.ledger, name)

    def _open_readers(self) -> None:
        for number in range(2):
            looker = self._actor(f"looker{number}")
            for place in self.places if number else ():  # so that others do much between two of its requests
                place.far_from.add(looker.name)
            self._readers.append(looker)
            looker.start(partial(looker.look_on, self._how_far), self._stop_if_read)
        for place, told in zip(self.places, self.told, strict=True):
            reader = Actor(place, self.setting, told, f"reader of {place.name}")
            self._readers.append(reader)
            reader.start(partial(reader.tail, self._how_far), self._stop_if_read)

    def _stop_if_read(self) -> None:
        finished = {name for told in self.told for name in told.finished}
        if all(reader.name in finished for reader in self._readers):
            self.world.stop()

    def _hire(self) -> None:
        draw = self.world.random

        def add(name: str, count: int, work: str, least: int, most: int) -> None:
            for number in range(count):
                done = partial(_do, work, self.places)
                self.jobs.append(Job(f"{name}{number}", done, draw.randint(least, most)))

        add("moves", draw.choice((2, 3, 3, 4)), "move", 1, 3)
        add("transfers", draw.choice((0, 1, 2)), "transfer", 1, 3)
        add("appends", draw.choice((0, 1)), "append", 1, 3)
        if draw.random() < 0.5:
            add("keeps", 1, "keep", 2, 4)
        if draw.random() < 0.4:
            add("archives", 1, "archive", 1, 3)
        if draw.random() < 0.3:
            add("asks", 1, "ask", 1, 3)

    def _at_step(self, process: Process, name: str) -> None:
        if name.startswith("several.") and self.world.draw() < _LOSES_TOUCH:
            place, until_ns = self.world.random.choice(self.places), self.world.now_ns + 3 * SECOND_NS
            lose = partial(place.cut_off.__setitem__, (process.name, STORAGE), until_ns)
            self.world.after(self.world.between_s(0, 0.015), lose)  # perhaps between a request and its answer
        super()._at_step(process, name)

    def _cut_off(self) -> None:
        """From one table, from its locks, or from all."""
        self.place.count("cut off")
        draw = self.world.random
        process, until_ns = self._victim(), self.world.now_ns + int(self.world.between_s(0.1, 8) * SECOND_NS)
        services = draw.choice(((STORAGE,), (LOCKS,), (STORAGE, LOCKS)))
        places = self.places if draw.random() < 0.2 else [draw.choice(self.places)]
        for place in places:
            self.world.note(f"{process.name} is cut off from {' and '.join(services)} of {place.name}")
            for service in services:
                place.cut_off[process.name, service] = until_ns

    def _forget(self) -> None:
        self.place.count("locks forgotten")
        place = self.world.random.choice(self.places)
        for name in place.records.names(""):
            place.records.delete(name)

    def _calm(self) -> None:
        for place in self.places:
            place.cut_off.clear()
            place.far_from.clear()
        super()._calm()

    # -- afterwards -------------------------------------------------------------------------------------------------

    def _converge(self) -> float:
        """One more process writes each table; seconds until nothing is left of anybody."""
        begins_ns = max(self.world.now_ns, self.faults_end_ns + int(_LATEST_ARRIVAL_S * SECOND_NS))
        self.world.run_to(begins_ns)
        recoverer = self._actor("recoverer")

        def recover() -> None:
            recoverer.patiently(recoverer.move, "to move once more")
            for desk in recoverer.desks.values():
                desk.patiently(desk.transfer, f"to transfer once more at {desk.place.name}")
            recoverer.system.sleep(_ZOMBIES_END_S)
            while self._left() and self.world.now_ns < begins_ns + _CONVERGE_S * SECOND_NS:
                for desk in recoverer.desks.values():
                    desk.manager(OPTIMISTIC).recover()
                recoverer.system.sleep(0.2)
            self.over, self._recovered_ns = True, self.world.now_ns

        recoverer.start(recover)
        self.world.run()  # until the readers have seen it
        return (self._recovered_ns - begins_ns) / SECOND_NS

    def _left(self) -> bool:
        for place in self.places:
            table = TableFiles(files_of(place))
            checks = (nothing_is_left_behind(table), nothing_is_pending(Evidence(table, History([]), {})))
            if any(problem for found in checks for problem in found):
                return True
        return False


def _do(work: str, places: Sequence[Place], actor: Actor, left: int) -> None:
    """One piece of a job."""
    assert isinstance(actor, Teller)
    if work == "move":
        actor.move()
    elif work == "transfer":
        actor.at_one(Actor.transfer)
    elif work == "append":
        actor.at_one(Actor.append)
    elif work == "archive":
        actor.at_one(lambda desk: archive(desk, desk.place))
    elif work == "ask":
        actor.system.sleep(actor.random.random() * 2)
        actor.resolve_one()
    else:
        for desk in actor.desks.values():
            desk.manager(OPTIMISTIC).recover()
        actor.system.sleep(actor.random.random())


# -- the evidence -----------------------------------------------------------------------------------------------------


def files_of(place: Place) -> dict[str, bytes]:
    return {path: data for path, (data, _) in place.memory._objects.items()}


def moves_are_whole(tables: Sequence[TableFiles], moves: Iterable[Move]) -> Iterator[str]:
    """Each transaction is in all its tables or in none, as its caller was told."""
    there = {
        (f"memory://{name}", found) for name, table in zip(TABLES, tables, strict=True) for found in table.by_instant
    }
    for move in moves:
        done = [instant for instant in move.written if instant in there]
        whole = len(done) == move.count
        shown = f"{move.process}'s {move.written} over {move.tables}"
        if done and not whole:
            yield f"torn: {shown} is in {done} only"
        if move.outcome == "committed" and not whole:
            yield f"lost: {shown} was told committed"
        if move.outcome == "refused" and done:
            yield f"{shown} was told refused, and is committed"
        if move.resolved is not None and move.resolved != whole:
            yield f"{shown} was resolved as {move.resolved}, and it is not so"


def moments_are_of_one_order(seen: Iterable[Seen]) -> Iterator[str]:
    """Of two moments one is before the other in every table, and one that was taken later is not before."""
    ordered = sorted(seen, key=lambda one: one.slots)
    for one, other in pairwise(ordered):
        if not all(before <= after for before, after in zip(one.slots, other.slots, strict=True)):
            yield f"{one.process} saw the slots {one.slots}, and {other.process} {other.slots}: neither is before"
    by_end = sorted(ordered, key=lambda one: one.ended_ns)
    for late in by_end:
        for early in by_end:
            if early.ended_ns >= late.began_ns:
                break
            if any(before > after for before, after in zip(early.slots, late.slots, strict=True)):
                yield f"{late.process} saw {late.slots} after {early.process} had seen {early.slots}"


def moments_hold_whole_moves(ledger: Ledger) -> Iterator[str]:
    """A moment has all of a transaction or nothing, and all that was acknowledged before it was asked for."""
    for seen in ledger.seen:
        for move in ledger.moves:
            done = [instant for instant in move.written if instant in seen.instants]
            if done and len(done) < move.count:
                yield f"{seen.process} saw {done} of {move.instants}"
            if move.outcome == "committed" and move.told_ns < seen.began_ns and not done:
                yield f"{seen.process} did not see {move.instants}, which was acknowledged before"


def money_is_kept(tables: Sequence[TableFiles]) -> Iterator[str]:
    """The sum of all accounts is 0 at the end."""
    balances: dict[tuple[int, str], int] = {}
    for number, table in enumerate(tables):
        for commit in table.commits:
            for one in statements_of(table, commit):
                if one["group"] in ACCOUNTS:
                    balances[number, one["group"]] = one["balance"]
    if sum(balances.values()):
        yield f"money was made or lost: {balances}"
