"""Table services during a streaming query: a thread that each of its batches wakes, and that ends with the query.

It runs the services that are due and then waits, so it is idle while the query is. What fails is left to the round of a
later batch, or to maintenance.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from lakelatch.engine.options.table_services.services import ServiceOptions
from lakelatch.engine.run.executor import Executor
from lakelatch.engine.run.report import MaintenanceReport
from lakelatch.engine.services.keeping.maintenance import maintain_with
from lakelatch.engine.services.keeping.steps import Steps
from lakelatch.system import REAL_SYSTEM, System

_LOOK_AGAIN_S = 1.0
_log = logging.getLogger("lakelatch.engine")


class BackgroundServices:
    """One table's services during one query. `is_active` says whether the query still runs; `rounds` counts rounds."""

    def __init__(
        self,
        path: str,
        options: ServiceOptions,
        executor: Executor,
        is_active: Callable[[], bool],
        system: System = REAL_SYSTEM,
        look_again_s: float = _LOOK_AGAIN_S,
    ) -> None:
        self.path = path
        self.options = options
        self.rounds = 0
        self.ended = False
        self._executor = executor
        self._is_active = is_active
        self._system = system
        self._look_again_s = look_again_s
        self._stopped = False
        self._woken = False
        self._changed = system.new_condition()
        self._thread = system.start_thread(self._run, f"lakelatch-services-{path.rstrip('/').rpartition('/')[2]}")

    def wake(self) -> bool:
        """Wakes the thread, as services may be due; False if it has ended."""
        with self._changed:
            self._woken = not self.ended
            self._changed.notify_all()
            return self._woken

    def stop(self, patience_s: float | None = None) -> None:
        """Ends the thread after the service that it is running, and waits for that."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        self._thread.join(patience_s)

    def _run(self) -> None:
        try:
            while self._next_round():
                self._round()
                self.rounds += 1
        finally:
            with self._changed:
                self.ended = True

    def _next_round(self) -> bool:
        """Waits to be woken; False once the query or this process ends."""
        while self._goes_on():
            with self._changed:
                if self._woken:
                    self._woken = False
                    return True
                self._changed.wait(self._look_again_s)
        return False

    def _goes_on(self) -> bool:
        return not self._stopped and self._is_active()

    def _round(self) -> MaintenanceReport | None:
        try:
            steps = Steps(self.options).in_background()
            return maintain_with(
                self._executor, self.path, self.options, self._system, go_on=self._goes_on, steps=steps
            )
        except Exception as error:  # as of the locks; the next batch wakes it again
            _log.warning("the services of the query that writes %s wait for its next batch: %s", self.path, error)
            return None
