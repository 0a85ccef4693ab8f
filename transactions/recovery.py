"""Rollback: of aborted transactions by their owner, of dead ones by whoever comes next, each once.

A rollback is condemned first and carried out afterwards. Its place in the commit log decides against the victim's own
commit: whichever slot comes first wins. What follows can be done again by anybody, any number of times: remove the
victim's files, remove its timeline files, complete the rollback.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakelatch.errors import CorruptTable, LakelatchError
from lakelatch.failpoints import failpoint
from lakelatch.heartbeat.contract import heartbeat_path
from lakelatch.storage.contract import NotFound
from lakelatch.timeline.commit_log import Tail
from lakelatch.timeline.events import COMPLETE, ROLLBACK, Event
from lakelatch.timeline.instants import WRITE_ACTIONS, Instant, inflight, requested
from lakelatch.timeline.metadata import RollbackMetadata, RollbackPlan
from lakelatch.transactions.doom import noted_instants
from lakelatch.transactions.markers import Markers, marked_instants

if TYPE_CHECKING:
    from lakelatch.transactions.manager import TransactionManager

_STAGED_FOR_S = 86_400.0  # far above any put
_SERVICES = ("compaction", "logcompaction", "clustering", "clean")  # plans stay until somebody carries them out


class Recovery:
    """The rollbacks of one manager's table."""

    def __init__(self, manager: TransactionManager) -> None:
        self._manager = manager
        self._storage = manager.storage

    def heal(self) -> list[str]:
        """Finishes rollbacks whose executor died, rolls back dead writes, and removes what ended ones left behind."""
        manager = self._manager
        tail = manager.log.tail()
        manager.log.project(tail)
        manager.folder.refresh(tail.number)
        pending = manager.folder.pending()
        beating = set(manager.observer.instants())
        plans = {instant.requested for instant in pending if instant.action in _SERVICES}
        suspects = {instant.requested for instant in pending} - plans
        noted = noted_instants(self._storage)
        suspects |= self._left_behind(pending, beating | noted) | (plans & beating)
        dead = set(manager.observer.dead(sorted(suspects)))
        rolled_back = []
        for instant in pending:
            if instant.requested in dead and instant.action == "rollback":
                rolled_back.append(self._finish(instant.requested))
        for instant in pending:
            condemnable = instant.requested in dead and instant.action in WRITE_ACTIONS
            if condemnable and self.roll_back(instant.requested, instant.action):
                rolled_back.append(instant.requested)
        for left in self._ended(dead.difference(instant.requested for instant in pending)):
            manager.forget(left, left in noted)
        for plan in manager.observer.dead(sorted(dead & plans)):  # judged again: it may have been taken over meanwhile
            self._storage.delete(heartbeat_path(plan))
        self._storage.sweep(_STAGED_FOR_S)
        return rolled_back

    def roll_back(self, victim: str, action: str) -> bool:
        """Rolls one instant back; False if it has completed, or somebody else's rollback has seen to it."""
        with self._manager.lock() as lease:
            operation_id = self._manager.new_operation_id()

            def decide(tail: Tail) -> Event:
                self._manager.folder.refresh(tail.number)
                self._refuse_unless_condemnable(victim, action)
                plan = RollbackPlan(victim, action, tuple(Markers(self._storage, victim).announced()))
                return Event(
                    ROLLBACK,
                    "rollback",
                    "",
                    operation_id,
                    self._manager.writer,
                    target=victim,
                    content=plan.to_avro(),
                    token=lease.token,
                )

            try:
                event = self._manager.append_claimed(decide, operation_id, lease)
            except _NotNeeded:
                return False
        failpoint("rollback.after_slot")
        self._carry_out(event.instant, victim, action)
        return True

    def _refuse_unless_condemnable(self, victim: str, action: str) -> None:
        """Under the log: not completed, still there, and not condemned by another rollback."""
        folder = self._manager.folder
        pending = {instant.requested: instant for instant in folder.pending()}
        if victim not in pending:
            raise _NotNeeded(f"{victim} has ended")
        for instant in pending.values():
            if instant.action == "rollback" and self._plan(instant.requested).instant == victim:
                raise _NotNeeded(f"{victim} is being rolled back by {instant.requested}")

    def _finish(self, rollback: str) -> str:
        plan = self._plan(rollback)
        self._carry_out(rollback, plan.instant, plan.action)
        return plan.instant

    def _carry_out(self, rollback: str, victim: str, action: str) -> None:
        manager = self._manager
        manager.ensure_file(inflight(rollback, "rollback").path)
        failpoint("rollback.after_plan")
        self._storage.delete(heartbeat_path(victim))  # bars the victim's tasks
        markers = Markers(self._storage, victim)
        markers.close_all()
        removed = markers.close_and_sweep()
        failpoint("rollback.after_files")
        self._storage.delete(inflight(victim, action).path)
        self._storage.delete(requested(victim, action).path)
        self._complete(rollback, RollbackMetadata(rollback, victim, action, tuple(removed)))
        failpoint("rollback.after_completed")
        manager.forget(victim)
        manager.forget(rollback)

    def _complete(self, rollback: str, metadata: RollbackMetadata) -> None:
        manager = self._manager
        operation_id = manager.new_operation_id()
        with manager.lock() as lease:

            def decide(tail: Tail) -> Event:
                manager.folder.refresh(tail.number)
                if all(instant.requested != rollback for instant in manager.folder.pending()):
                    raise _NotNeeded(f"{rollback} has completed")
                return Event(
                    COMPLETE,
                    "rollback",
                    rollback,
                    operation_id,
                    manager.writer,
                    content=metadata.to_avro(),
                    token=lease.token,
                )

            try:
                manager.append_completion(decide, rollback, lease)
            except _NotNeeded:
                return

    def _plan(self, rollback: str) -> RollbackPlan:
        path = requested(rollback, "rollback").path
        try:
            return RollbackPlan.read(self._storage, path)
        except NotFound:
            raise CorruptTable(f"rollback {rollback} is pending and its plan {path} is missing") from None

    def _ended(self, dead: set[str]) -> list[str]:
        """Those that are not pending now either: one that began after our listing may be in the middle of a rollback.

        Its markers are what that rollback finds its files by.
        """
        if not dead:
            return []
        tail = self._manager.log.tail()
        self._manager.folder.refresh(tail.number)
        return sorted(dead.difference(instant.requested for instant in self._manager.folder.pending()))

    def _left_behind(self, pending: list[Instant], known: set[str]) -> set[str]:
        """Instants that are not pending and still have a heartbeat, markers, or whatever else made them known."""
        left = known | marked_instants(self._storage)
        return left.difference(instant.requested for instant in pending)


class _NotNeeded(LakelatchError):
    """Somebody else has ended the instant."""
