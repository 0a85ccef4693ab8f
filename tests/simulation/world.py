"""Many processes in one thread, on one clock that only this module moves: what runs next is drawn from a seed.

A *fiber* runs the product's own code until it waits, for a call's latency, a sleep, a lock; then the world goes on with
whoever is due next. A process that is paused is not resumed for a while, and one that is killed never again: whatever
its code still does on its way out reaches nobody.
"""

from __future__ import annotations

import random  # noqa: TID251  (seeded, so that a run can be repeated)
from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

import greenlet

SECOND_NS = 1_000_000_000
current_fiber = greenlet.getcurrent
START_MS = 1_795_262_400_000  # 2026-11-21T12:00:00Z
_STEPS_MOST = 2_000_000


class Hang(AssertionError):
    """Nothing can go on any more, or nothing comes to an end."""


class World:
    """Time, chance, and everything that is under way."""

    def __init__(self, seed: int, keep_lines: bool = False) -> None:
        self.random = random.Random(seed)
        self.now_ns = 0
        self.steps = 0
        self.lines: list[str] | None = [] if keep_lines else None  # the run's record, which takes a third of its time
        self.draw = self.random.random
        # When, in which order, and what: a fiber that waits and the number of that wait, or None and an action.
        self.due: list[tuple[int, int, Fiber | None, Any]] = []
        self.order = 0
        self._hub = greenlet.getcurrent()
        self._stopped = False
        self.processes: list[Process] = []

    def note(self, line: str) -> None:
        """One line of the run's record, if it is kept: the same whenever the seed is."""
        if self.lines is not None:
            self.lines.append(f"{self.now_ns / 1e9:.6f} {line}")

    def at(self, time_ns: int, action: Callable[[], None]) -> None:
        """Does something at a time, outside of all fibers."""
        self.order += 1
        heappush(self.due, (max(time_ns, self.now_ns), self.order, None, action))

    def resume_at(self, time_ns: int, fiber: Fiber, wait: int) -> None:
        """Goes on with a fiber at a time, unless it has gone on from that wait before."""
        self.order += 1
        heappush(self.due, (time_ns if time_ns > self.now_ns else self.now_ns, self.order, fiber, wait))

    def next_waiting(self) -> Fiber | None:
        """The fiber whose turn it is now, as `run` would find it; None for whatever has to be done outside of fibers.

        So one that waits hands over to it directly. A fiber that has not begun is left to `run`, too: it would have its
        stack on top of this one's.
        """
        due = self.due
        while due and not self._stopped and self.steps < _STEPS_MOST:
            time_ns, _, fiber, wait = due[0]
            if fiber is None or not wait:
                return None
            heappop(due)
            self.steps += 1
            self.now_ns = time_ns
            if wait == fiber.parked and not fiber.ended:
                process = fiber.process
                if process.dead:
                    continue
                if process.paused_until_ns <= time_ns:
                    return fiber
                self.resume_at(process.paused_until_ns, fiber, wait)
        return None

    def after(self, delay_s: float, action: Callable[[], None]) -> None:
        self.at(self.now_ns + int(delay_s * SECOND_NS), action)

    def run(self) -> None:
        """Goes on until `stop` is called. Raises what a fiber has raised, and `Hang` if nothing is left to do."""
        self._stopped = False
        try:
            self._run()
        finally:
            self._stopped = True

    def _run(self) -> None:
        while not self._stopped:
            if not self.due:
                raise Hang(f"nothing is left to do at {self.now_ns / 1e9:.3f} s")
            self.steps += 1
            if self.steps > _STEPS_MOST:
                raise Hang(f"no end after {_STEPS_MOST} steps")
            self.now_ns, _, fiber, what = heappop(self.due)
            if fiber is None:
                what()
            elif what == fiber.parked and not fiber.ended and not fiber.process.dead:
                if fiber.process.paused_until_ns > self.now_ns:
                    self.resume_at(fiber.process.paused_until_ns, fiber, what)
                else:
                    fiber.switch()

    def run_to(self, time_ns: int) -> None:
        """Goes on until a time has come."""
        self.at(time_ns, self.stop)
        self.run()

    def stop(self) -> None:
        """Ends `run` after the step that is under way."""
        self._stopped = True

    def start(self, process: Process, run: Callable[[], None], name: str) -> Fiber:
        fiber = Fiber(process, run, name, self._hub)
        process.fibers.append(fiber)
        self.resume_at(self.now_ns, fiber, 0)
        return fiber

    def between_s(self, least_s: float, most_s: float) -> float:
        return self.random.uniform(least_s, most_s)


class Fiber(greenlet.greenlet):
    """One thread of a simulated process."""

    def __init__(self, process: Process, run: Callable[[], None], name: str, hub: Any) -> None:
        super().__init__(self._body, hub)
        self._hub = hub
        self.process, self.name = process, name
        self._world = process.world
        self.ended = self.is_asking = False
        self._work = run
        self.parked = 0  # counts waits, so that a wake-up that comes late wakes nobody
        self._woken = False
        self._joining: list[Fiber] = []

    def _body(self) -> None:
        try:
            self._work()
        finally:
            self.ended = True
            for fiber in self._joining:
                fiber.wake()

    def park(self, until_ns: int | None) -> bool:
        """Waits to be woken, or for a time; True if it was woken."""
        self.parked += 1
        self._woken = False
        world, process = self._world, self.process
        if until_ns is not None:
            world.order += 1
            heappush(world.due, (until_ns if until_ns > world.now_ns else world.now_ns, world.order, self, self.parked))
        # One that is killed returns to whoever kills it.
        following = None if process.dead else world.next_waiting()
        if following is None:
            self._hub.switch()
        elif following is not self:
            following.switch()
        return self._woken

    def wake(self) -> None:
        self._woken = True
        self._world.resume_at(self._world.now_ns, self, self.parked)

    def join(self, timeout: float | None = None) -> None:
        current = here()
        if current is self or self.ended:
            return
        self._joining.append(current)
        current.park(None if timeout is None else self.process.world.now_ns + int(timeout * SECOND_NS))


class Process:
    """A machine of its own: clocks that are off, chance of its own, and the `System` of whatever runs on it."""

    def __init__(self, world: World, name: str) -> None:
        self.world, self.name = world, name
        self.random = random.Random(world.random.getrandbits(64))
        self.fibers: list[Fiber] = []
        self.dead = False
        self.paused_until_ns = 0
        self.wall_off_ns = int(world.between_s(-0.2, 0.2) * SECOND_NS)
        self._rate = 1 + world.between_s(-1e-4, 1e-4)
        self._booted_ns = world.random.randrange(10**12)
        world.processes.append(self)

    def ensure_alive(self) -> None:
        if self.dead:
            raise greenlet.GreenletExit

    def pause(self, duration_s: float) -> None:
        self.world.note(f"{self.name} is paused for {duration_s:.3f} s")
        self.paused_until_ns = self.world.now_ns + int(duration_s * SECOND_NS)

    def kill(self) -> None:
        """To be called outside of fibers."""
        self.world.note(f"{self.name} is killed")
        self.dead = True
        for fiber in self.fibers:
            if not fiber.dead:
                fiber.throw(greenlet.GreenletExit)

    # -- System -----------------------------------------------------------------------------------------------------

    def monotonic_ns(self) -> int:
        return self._booted_ns + int(self.world.now_ns * self._rate)

    def realtime_ms(self) -> int:
        return START_MS + (self.world.now_ns + self.wall_off_ns) // 1_000_000

    def sleep(self, duration_s: float) -> None:
        if self.dead:
            raise greenlet.GreenletExit
        world = self.world
        until_ns, due = world.now_ns + (int(duration_s * SECOND_NS) if duration_s > 0 else 0), world.due
        is_next = not due or due[0][0] > until_ns  # then it need not wait for its turn
        if is_next and self.paused_until_ns <= until_ns and world.steps < _STEPS_MOST:
            world.steps += 1
            world.now_ns = until_ns
        else:
            fiber = current_fiber()
            assert type(fiber) is Fiber, "this waits, and no fiber runs"
            fiber.park(until_ns)
            if self.dead:
                raise greenlet.GreenletExit

    def random_number(self) -> float:
        return self.random.random()

    def new_id(self) -> str:
        return f"{self.random.getrandbits(128):032x}"


class SimulatedSystem:
    """A process's `System`."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.monotonic_ns = process.monotonic_ns
        self.realtime_ms = process.realtime_ms
        self.sleep = process.sleep
        self.random = process.random_number
        self.new_id = process.new_id

    def new_lock(self) -> SimulatedCondition:
        return SimulatedCondition(self.process)

    def new_condition(self) -> SimulatedCondition:
        return SimulatedCondition(self.process)

    def new_event(self) -> SimulatedEvent:
        return SimulatedEvent(self.process)

    def start_thread(self, run: Callable[[], None], name: str, after_s: float = 0.0) -> Fiber | LateFiber:
        if after_s:
            return LateFiber(self.process, run, name, after_s)
        return self.process.world.start(self.process, run, name)


class SimulatedCondition:
    """A re-entrant lock on which its holder can wait."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._owner: Fiber | None = None
        self._depth = 0
        self._queue: deque[Fiber] = deque()
        self._waiting: list[Fiber] = []

    def __enter__(self) -> bool:
        me = here()
        while self._owner is not None and self._owner is not me:
            self._process.ensure_alive()
            self._queue.append(me)
            me.park(None)
        self._owner = me
        self._depth += 1
        return True

    def __exit__(self, *error: object) -> None:
        self._depth -= 1
        if self._depth == 0:
            self._free()

    def wait(self, timeout: float | None = None) -> bool:
        self._process.ensure_alive()
        me, depth = here(), self._depth
        self._depth = 0
        self._waiting.append(me)
        self._free()
        woken = me.park(None if timeout is None else self._process.world.now_ns + int(timeout * SECOND_NS))
        if me in self._waiting:
            self._waiting.remove(me)
        self._process.ensure_alive()
        self.__enter__()
        self._depth = depth
        return woken

    def notify_all(self) -> None:
        waiting, self._waiting = self._waiting, []
        for fiber in waiting:
            fiber.wake()

    def _free(self) -> None:
        self._owner = None
        if self._queue:
            self._queue.popleft().wake()


class SimulatedEvent:
    def __init__(self, process: Process) -> None:
        self._process = process
        self._set = False
        self._waiting: list[Fiber] = []

    def set(self) -> None:
        self._set = True
        waiting, self._waiting = self._waiting, []
        for fiber in waiting:
            fiber.wake()

    def is_set(self) -> bool:
        return self._set

    def wait(self, timeout: float | None = None) -> bool:
        self._process.ensure_alive()
        if not self._set:
            me = here()
            self._waiting.append(me)
            me.park(None if timeout is None else self._process.world.now_ns + int(timeout * SECOND_NS))
            if me in self._waiting:
                self._waiting.remove(me)
            self._process.ensure_alive()
        return self._set


class LateFiber:
    """A thread that begins later, unless it is joined before."""

    def __init__(self, process: Process, run: Callable[[], None], name: str, after_s: float) -> None:
        self._joined = SimulatedEvent(process)
        self._fiber = process.world.start(process, lambda: None if self._joined.wait(after_s) else run(), name)

    def join(self, timeout: float | None = None) -> None:
        self._joined.set()
        self._fiber.join(timeout)


def here() -> Fiber:
    """The fiber that runs now."""
    current = current_fiber()
    assert type(current) is Fiber, "this waits, and no fiber runs"
    return current
