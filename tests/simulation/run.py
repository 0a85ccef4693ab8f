"""One run: writers, compactors and readers under faults, then without any, then the checker."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from typing import TypeAlias

import crowd
from actors import Actor
from batched import write_batch
from course import Outcome, Setting, Told
from foreign import archive, broken_beside, roll_back
from loads import load
from restoring import give_all_up, keep, undo
from seams import LOCKS, STORAGE, Place
from shelf import but_of_late_requests, enter, lost_entries, overwrite, put
from statement_checks import OF_SIMULATION, OF_STATEMENTS, plans_list_what_completed, readers_saw_everything
from stock import archive as archive_ours
from stock import browse, cancel, clean, deposit, finish, plan, serve
from watch import Watch
from world import SECOND_NS, Hang, Process, World

from lakelatch import failpoints
from lakelatch.errors import LakelatchError
from lakelatch.timeline.instant import TIMELINE_FOLDER
from lakelatch.torture.check.checker import OF_CALLERS, OF_READERS, OF_TABLE, find_problems
from lakelatch.torture.check.evidence import Evidence
from lakelatch.torture.check.table import nothing_is_left_behind, nothing_is_pending
from lakelatch.torture.check.table_files import TableFiles
from lakelatch.torture.history.reading import History
from lakelatch.transactions.base.elision import AUTO, OFF
from lakelatch.transactions.base.settings import OPTIMISTIC, EarlySettings

_LATEST_ARRIVAL_S = 8.0
_ZOMBIES_END_S = 6.0  # the latest step of an attempt that nobody waits for
_CONVERGE_S = 60.0
_TOMBSTONES_END_S = 26 * 3600.0
_VIRTUAL_MOST_S = 900.0
_OF_SERVICES = (
    *("archive", "cancel", "clean", "cluster", "compact", "execute", "relocate"),
    *("restore", "savepoint", "undo"),
)
# Where something may happen: the others are of data that only Spark writes.
_STEPS = tuple(
    name
    for name in failpoints.NAMES
    if name.split(".")[0] not in ("create", "group", "rebase", "several", "write", *_OF_SERVICES)
)
_SERVICE_STEPS = tuple(name for name in failpoints.NAMES if name.split(".")[0] in _OF_SERVICES)
_OF_THE_REST = tuple(check for check in OF_SIMULATION if check is not readers_saw_everything)
_STRATEGIES = ("simple_direct", "transactional_direct")


Check: TypeAlias = Callable[[Evidence], Iterable[str]]


@dataclass
class Job:
    """What somebody has to get done, however often its process is killed on the way."""

    name: str
    work: Callable[[Actor, int], None]
    left: int
    incarnation: int = 0
    actor: Actor | None = None


@dataclass
class Run:
    """One run on its way."""

    seed: int
    keep_lines: bool = False
    with_stock: bool = False
    with_loads: bool = False  # bulk loads into the stock
    with_ledger: bool = False  # a copy-on-write table's, and nothing else but transfers
    history: Told = field(default_factory=Told)
    jobs: list[Job] = field(default_factory=list)
    over: bool = False

    def __post_init__(self) -> None:
        self.world = World(self.seed, self.keep_lines)
        self.place = Place(self.world)
        draw = self.world.random
        early = EarlySettings(draw.choice(_STRATEGIES), check_commits=draw.random() < 0.3)
        self.setting = Setting(
            draw.random() < 0.3,
            draw.random() < 0.4,
            draw.choice((1, 1, 2, 32)),
            early if draw.random() < 0.4 else None,
            OFF if self.seed % 4 == 3 else AUTO,
            own_files=self.seed % 2 == 0,
            remembers=self.seed % 3 == 1,
            crowded=self.seed % 8 in (1, 6),
        )
        self.leaves = draw.random() < 0.5  # whoever is done, and with it what it still renews
        # Whether there is a stock, and table services work on it.
        self.stocked = (draw.random() < 0.3 or self.with_stock or self.with_loads) and not self.with_ledger
        steps = _SERVICE_STEPS if self.stocked and draw.random() < 0.6 else _STEPS
        self.setting.meets = self.setting.crowded and not (self.stocked or self.with_ledger)
        steps = crowd.STEPS if self.setting.meets else steps
        self.favourite = draw.choice(steps) if draw.random() < 0.6 else ""  # where most go wrong
        if self.stocked:
            self.place.memory.watch = Watch(self.place, self.place.memory)
        self.faults_end_ns = int(self.world.between_s(3, 10) * SECOND_NS)
        self._readers: list[Actor] = []
        self._killed = self._recovered_ns = 0

    def outcome(self) -> Outcome:
        problems, recovered_s = self.history.problems, 0.0
        try:
            self._run_under_faults()
            recovered_s = self._converge()
            crowd.count_groups(self.place)
            found = self._find_problems()
            if self.with_ledger or self.with_loads:
                found = but_of_late_requests(found, self.place.memory.list(TIMELINE_FOLDER).files)
            if self.with_ledger:
                found += lost_entries(self.place.memory)
            if self.stocked:
                self._age()
                found += [f"a day later: {problem}" for problem in self._find_problems(()) if problem not in found]
                problems[:] = self.place.watch.but_of_undone([*problems, *found])
                found = self.place.watch.problems
            problems[:] = broken_beside(self.place, [*problems, *found], self.history)
        except Hang as hang:
            problems.append(str(hang))
        except (LakelatchError, AssertionError, KeyError, ValueError, TypeError, AttributeError) as error:
            problems.append(f"{type(error).__name__}: {error}")
        return self._outcome(recovered_s)

    def _outcome(self, recovered_s: float) -> Outcome:
        return Outcome(
            self.seed,
            tuple(self.history.problems),
            self._fingerprint(),
            self.world.now_ns / SECOND_NS,
            Counter(self.place.counts),
            recovered_s,
            tuple(self.world.lines or ()),
        )

    def _find_problems(self, of_readers: Sequence[Check] = (*OF_READERS, readers_saw_everything)) -> list[str]:
        files = TableFiles({**self.place.archived_files, **self._files()})
        if self.stocked:
            files = TableFiles(self.place.watch.as_if_never_cleaned(files.files))
        # The plans of simulated compactions are lists, and those for the stock are Hudi's.
        statements = [check for check in OF_STATEMENTS if not self.stocked or check is not plans_list_what_completed]
        return find_problems(
            Evidence(files, History(self.history.lines), {"killed": self._killed}),
            (*OF_TABLE, *statements),
            (*OF_CALLERS, *of_readers, *_OF_THE_REST),
        )

    def _fingerprint(self) -> str:
        """Of all that is there afterwards, what everybody was told, and where time and chance have come to."""
        digest = blake2b(digest_size=16)
        for path, (data, modified_ms) in sorted(self.place.memory._objects.items()):
            digest.update(f"{path} {modified_ms} {len(data)} ".encode() + data)
        rest = (self.history.lines, self.world.now_ns, self.world.steps, self.place.counts)
        digest.update(json.dumps([*rest, [process.random.random() for process in self.world.processes]]).encode())
        return digest.hexdigest()

    # -- under faults ------------------------------------------------------------------------------------------------

    def _run_under_faults(self) -> None:
        draw, faults = self.world.random, self.place.faults
        self._hire()
        self._open_readers()
        if draw.random() < 0.9:
            faults.slow = draw.choice((0, 0.02, 0.1))
            faults.unavailable = draw.choice((0, 0.003, 0.01))
            faults.lost_before = draw.choice((0, 0.005, 0.015))
            faults.lost_after = draw.choice((0, 0.005, 0.03))
            faults.late = draw.choice((0, 0.005, 0.03))
            faults.repeated = draw.choice((0, 0.02, 0.1))
            faults.at_step = self._at_step
            self.place.ever_late = faults.late > 0
        for job in self.jobs:
            self._begin(job)
        for _ in range(draw.randrange(0, 9)):
            self.world.at(draw.randrange(self.faults_end_ns), draw.choice(self._mischief))
        self.world.at(self.faults_end_ns, self._calm)
        self.world.at(self.faults_end_ns + int(_VIRTUAL_MOST_S * SECOND_NS), self.world.stop)
        self.world.run()
        if self._late():
            raise Hang(f"not done after {_VIRTUAL_MOST_S} s: {[job.name for job in self.jobs if job.left]}")

    def _open_readers(self) -> None:
        for number in range(2):
            reader = Actor(self.place, self.setting, self.history, f"reader{number}")
            self._readers.append(reader)
            reader.start(partial(reader.tail, self._how_far), self._stop_if_read)

    def _hire(self) -> None:
        """Who works in this run: always transfers, and some of the others."""
        draw = self.world.random

        def add(name: str, count: int, work: Callable[[Actor, int], None], least: int = 2, most: int = 3) -> None:
            for number in range(count):
                self.jobs.append(Job(f"{name}{number}", work, draw.randint(least, most)))

        add("transfers", 1 if self.stocked else draw.choice((2, 2, 3)), lambda actor, _: actor.transfer(), 1, 3)
        kinds = draw.sample(("appends", "compactions", "shelf", "stream"), draw.choice((1, 1, 2)))
        if self.with_ledger:
            add("entries", draw.choice((2, 3)), lambda actor, _: enter(actor), 2, 4)
            return
        if self.stocked:
            self._hire_for_stock(add)
            return
        if self.setting.crowded:
            kinds += crowd.hire(add, draw)
        if "appends" in kinds:
            add("appends", draw.choice((1, 2)), lambda actor, _: actor.append())
        if "compactions" in kinds:
            add("compactions", 1, lambda actor, _: actor.compact(), 1, 3)
        if "shelf" in kinds:
            add("puts", draw.choice((1, 2)), lambda actor, _: put(actor), 1, 3)
            add("overwrites", draw.choice((1, 2)), lambda actor, _: overwrite(actor), 1, 2)
        if "shelf" not in kinds and draw.random() < 0.4:  # a shelf is read from the timeline alone
            add("archives", 1, lambda actor, _: archive(actor, self.place), 1, 2)
        if not (self.setting.lying or self.setting.crowded) and draw.random() < 0.3:  # they have nothing but their lock
            self.setting.lock_elision = OFF  # as beside Hudi's lock classes
            add("rollbacks", 1, lambda actor, _: roll_back(actor, self.place), 1, 2)
        if "stream" in kinds:
            batches = draw.randint(1, 2)
            add("batches", 2, lambda actor, left: write_batch(actor, batches + 1 - left), batches, batches)

    def _hire_for_stock(self, add: Callable[..., None]) -> None:
        """Writers, and services of all kinds: each is there most often, so that they meet."""
        draw = self.world.random
        add("deposits", draw.choice((1, 2)), lambda actor, _: deposit(actor), 3, 5)
        if self.with_loads:
            add("loads", 3, lambda actor, _: load(actor), 2, 4)
        add("plans", 1, lambda actor, _: plan(actor), 1, 3)
        add("serves", draw.choice((1, 2, 2)), lambda actor, _: serve(actor), 2, 4)
        add("browses", 1, lambda actor, _: browse(actor, self.place), 2, 4)
        if draw.random() < 0.7:
            add("cancels", draw.choice((1, 1, 2)), lambda actor, _: cancel(actor, self.place), 2, 4)
        if draw.random() < 0.8:
            add("cleans", draw.choice((1, 1, 2)), lambda actor, _: clean(actor), 2, 4)
        if draw.random() < 0.7:
            add("our-archives", draw.choice((1, 1, 2)), lambda actor, _: archive_ours(actor, self.place), 2, 4)
        if draw.random() < 0.4:
            add("savepoints", 1, lambda actor, _: keep(actor, self.place), 1, 3)
        if draw.random() < 0.5:
            add("undoings", draw.choice((1, 1, 2)), lambda actor, _: undo(actor, self.place), 1, 3)

    def _begin(self, job: Job) -> None:
        actor = job.actor = self._actor(f"{job.name}.{job.incarnation}")
        job.incarnation += 1

        def run() -> None:
            while job.left:
                actor.patiently(partial(job.work, actor, job.left), f"{job.name} {job.left}")
                job.left -= 1
            self._stop_if_done()
            if self.leaves:
                self.world.after(_ZOMBIES_END_S, actor.process.kill)

        actor.start(run)

    def _actor(self, name: str) -> Actor:
        return Actor(self.place, self.setting, self.history, name)

    def _stop_if_done(self) -> None:
        if self.world.now_ns >= self.faults_end_ns and not any(job.left for job in self.jobs):
            self.world.stop()

    def _how_far(self) -> int:
        return 0 if self.world.now_ns < self.faults_end_ns or any(job.left for job in self.jobs) else 1 + self.over

    def _stop_if_read(self) -> None:
        if all(reader.name in self.history.finished for reader in self._readers):
            self.world.stop()

    def _late(self) -> bool:
        return self.world.now_ns >= self.faults_end_ns + _VIRTUAL_MOST_S * SECOND_NS

    def _calm(self) -> None:
        self.world.note("calm")
        self.place.faults.end()
        self.place.cut_off.clear()
        for process in self.world.processes:
            process.paused_until_ns = min(process.paused_until_ns, self.world.now_ns)
        self._stop_if_done()

    def _at_step(self, process: Process, name: str) -> None:
        if name in crowd.STEPS_OF_GROUPS and not self.setting.meets:
            return
        draw = self.world.random.random()
        if draw < (0.3 if name == self.favourite else 0.012):
            self.place.count("paused at a step")
            process.pause(self._pause_s())
            process.sleep(0)
        elif draw > 0.993 and (job := self._job_of(process)) is not None:
            self.place.count("killed at a step")
            self.world.after(0, lambda: self._restart(job, process))
            process.sleep(1)

    @property
    def _mischief(self) -> tuple[Callable[[], None], ...]:
        return self._pause, self._pause, self._kill, self._cut_off, self._cut_off, self._step_clock, self._forget

    def _pause(self) -> None:
        self.place.count("paused")
        self._victim().pause(self._pause_s())

    def _pause_s(self) -> float:
        """Mostly short, so that much goes on meanwhile; and some outlast heartbeats, leases and waiting for locks."""
        return 0.05 + 8 * self.world.draw() ** (2 if self.setting.meets else 3)

    def _kill(self) -> None:
        process = self._victim()
        job = self._job_of(process)
        if job is not None:
            self.place.count("killed")
            self._restart(job, process)

    def _cut_off(self) -> None:
        self.place.count("cut off")
        process, until_ns = self._victim(), self.world.now_ns + int(self.world.between_s(0.1, 4) * SECOND_NS)
        services = self.world.random.choice(((STORAGE,), (LOCKS,), (STORAGE, LOCKS)))
        self.world.note(f"{process.name} is cut off from {' and '.join(services)}")
        for service in services:
            self.place.cut_off[process.name, service] = until_ns

    def _step_clock(self) -> None:
        self.place.count("clock stepped")
        process, step_s = self._victim(), self.world.random.choice((-3600, -30, -1, 1, 30, 500, 3600))
        self.world.note(f"the clock of {process.name} steps by {step_s} s")
        process.wall_off_ns += step_s * SECOND_NS
        if process.wall_off_ns > 550 * SECOND_NS:  # too far ahead to be believed; somebody sets it right again
            self.world.after(3, lambda: self._set_back(process, step_s))

    def _set_back(self, process: Process, step_s: int) -> None:
        process.wall_off_ns -= step_s * SECOND_NS

    def _forget(self) -> None:
        self.place.count("locks forgotten")
        self.world.note("the lock service forgets everything")
        for name in self.place.records.names(""):
            self.place.records.delete(name)

    def _victim(self) -> Process:
        actors = [job.actor for job in self.jobs if job.actor is not None] + self._readers
        return self.world.random.choice(actors).process

    def _job_of(self, process: Process) -> Job | None:
        return next((job for job in self.jobs if job.left and job.actor and job.actor.process is process), None)

    def _restart(self, job: Job, process: Process) -> None:
        if job.actor is not None and job.actor.process is process and not process.dead:
            process.kill()
            self._killed += 1
            self.world.after(self.world.between_s(0, 2), lambda: self._begin(job))

    # -- afterwards -------------------------------------------------------------------------------------------------

    def _converge(self) -> float:
        """One more writer puts everything in order; seconds since the last late call can have arrived."""
        begins_ns = max(self.world.now_ns, self.faults_end_ns + int(_LATEST_ARRIVAL_S * SECOND_NS))
        self.world.run_to(begins_ns)
        recoverer = Actor(self.place, self.setting, self.history, "recoverer")

        def recover() -> None:
            manager = recoverer.manager(OPTIMISTIC)
            recoverer.transfer()
            recoverer.system.sleep(_ZOMBIES_END_S)
            if self.stocked:  # at least once: a clean takes what has come late to a plan that was cancelled
                recoverer.patiently(partial(finish, recoverer), "to carry out what waits")
            while self._left() and self.world.now_ns < begins_ns + _CONVERGE_S * SECOND_NS:
                if self.stocked:
                    recoverer.patiently(partial(finish, recoverer), "to carry out what waits")
                manager.recover()
                recoverer.system.sleep(0.2)
            self.over, self._recovered_ns = True, self.world.now_ns

        recoverer.start(recover)
        self.world.run()  # until the readers have seen it
        return (self._recovered_ns - begins_ns) / SECOND_NS

    def _age(self) -> None:
        """A day goes by, in which nobody is at work; then somebody cleans and archives all that may go."""
        for process in self.world.processes:
            process.kill()
        until_ns = self.world.now_ns + int(_TOMBSTONES_END_S * SECOND_NS)
        while self.world.now_ns < until_ns:
            self.world.run_to(until_ns)
        self.place.watch.aged = True
        keeper = Actor(self.place, self.setting, self.history, "keeper")

        def look_after() -> None:
            give_all_up(keeper)
            for _ in range(3):
                before = self._files()
                finish(keeper)
                keeper.system.sleep(2)
                archive_ours(keeper, self.place)
                if self._files() == before:
                    break

        keeper.start(look_after, self.world.stop)
        while keeper.name not in self.history.finished:
            self.world.run()
        self.place.watch.look("a day later")
        self.place.watch.ensure_tidy()

    def _left(self) -> bool:
        table = TableFiles(self._files())
        checks = (nothing_is_left_behind(table), nothing_is_pending(Evidence(table, History([]), {})))
        return any(problem for found in checks for problem in found)

    def _files(self) -> dict[str, bytes]:
        return {path: data for path, (data, _) in self.place.memory._objects.items()}
