"""One transaction: from its requested instant to its end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakelatch.errors import TransactionEnded
from lakelatch.heartbeat.beat import Heartbeat
from lakelatch.timeline.metadata import CommitMetadata
from lakelatch.transactions.markers import Markers

if TYPE_CHECKING:
    from lakelatch.transactions.manager import TransactionManager

OPEN = "open"
COMMITTED = "committed"
ABORTED = "aborted"
HAND_OVER_PATIENCE = 20


@dataclass(frozen=True)
class TransactionState:
    """What another process needs in order to go on with a transaction. Pickles."""

    instant: str
    action: str
    operation_id: str
    start_slot: int
    began_ms: int
    known_files: frozenset[str]


@dataclass(frozen=True)
class Committed:
    """The proof of a commit: it is visible under this completion time, which is above every earlier one."""

    instant: str
    completion: str
    slot: int
    token: int


class Transaction:
    """Made by `TransactionManager`; ends by `commit` or `abort`, and refuses to be used afterwards."""

    def __init__(self, manager: TransactionManager, state: TransactionState, heartbeat: Heartbeat) -> None:
        self._manager = manager
        self._heartbeat = heartbeat
        self.state = state
        self.status = OPEN
        self.committed: Committed | None = None

    @property
    def instant(self) -> str:
        """The requested time: the name of this transaction on the timeline."""
        return self.state.instant

    @property
    def markers(self) -> Markers:
        """What executors announce their files with."""
        return Markers(self._manager.storage, self.instant)

    def mark(self, partition: str, data_file_name: str) -> None:
        """Announces a data file; must come before the file is made (`Markers.create_data_file` does both)."""
        self.ensure_open()
        self.markers.announce(partition, data_file_name)

    def commit(self, metadata: CommitMetadata) -> Committed:
        """Makes exactly the files in the metadata visible, all at once.

        Files that were announced and are not in the metadata are removed first. Errors: `WriteConflict` (everything was
        rolled back), `TransactionEnded` (somebody rolled it back before), `LockTimeout` (still open: commit again or
        abort), `CommitUnknown` (neither commit nor abort it again: look).
        """
        self.ensure_open()
        return self._manager.commit(self, metadata)

    def abort(self) -> None:
        """Rolls back: the files are removed, and the timeline says so. Does nothing if it has ended already."""
        if self.status == OPEN:
            self._manager.abort(self)

    def hand_over(self) -> None:
        """Stops beating here: another process goes on with `state`.

        Nobody beats until tasks do, and between their stages nobody does either, so the claim says that its writer is
        to be given `HAND_OVER_PATIENCE` times as long.
        """
        self.status = "handed over"
        self._heartbeat.stop()
        self._heartbeat.take_over(HAND_OVER_PATIENCE)

    def ensure_open(self) -> None:
        """Raises `TransactionEnded` if it has ended, or if others may count its writer as dead."""
        if self.status != OPEN:
            raise TransactionEnded(
                f"transaction {self.instant} is {self.status}: begin a new one", instant=self.instant
            )

    def end(self, status: str) -> None:
        """For the manager: no further use; the heartbeat stops beating."""
        self.status = status
        self._heartbeat.stop()
