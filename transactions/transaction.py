"""One transaction: from its requested instant to its end."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from lakelatch.errors import TransactionEnded, WriteConflict
from lakelatch.heartbeat.beat import Heartbeat, ensure_beating
from lakelatch.timeline.folder import TimelineFolder
from lakelatch.timeline.metadata import CommitMetadata
from lakelatch.transactions.conflicts import OtherWrite
from lakelatch.transactions.doom import forget_notes
from lakelatch.transactions.early_detection import EarlyDetection, early_detection, found_early
from lakelatch.transactions.losses import Work
from lakelatch.transactions.marker_client import ServerAddress
from lakelatch.transactions.marker_service import serve_markers
from lakelatch.transactions.markers import Markers

if TYPE_CHECKING:
    from lakelatch.transactions.manager import TransactionManager

OPEN = "open"
COMMITTED = "committed"
ABORTED = "aborted"
LOST = "lost, and its files are kept for another try"
HAND_OVER_PATIENCE = 20

# Called at the transaction's place in the log, perhaps several times: what is committed there, and which of the writes
# that completed since it began its strategy has to look at. It sees the timeline as it is before that place.
Settle: TypeAlias = Callable[[TimelineFolder, list[OtherWrite]], tuple[CommitMetadata, list[OtherWrite]]]


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
        self._opening = 0
        self.committed: Committed | None = None
        self.keeps_lost_files = False  # after a conflict at its commit: the caller wants them, and then aborts
        self.work: Work | None = None  # what it has cost, for the error of a loser; else the commit's own numbers say

    @property
    def instant(self) -> str:
        """The requested time: the name of this transaction on the timeline."""
        return self.state.instant

    @property
    def markers(self) -> Markers:
        """What executors announce their files with."""
        return Markers(self._manager.storage, self.instant, self._opening)

    def mark(self, partition: str, data_file_name: str) -> None:
        """Announces a data file; must come before the file is made (`Markers.create_data_file` does both)."""
        self.ensure_open()
        self.markers.announce(partition, data_file_name)

    def commit(self, metadata: CommitMetadata, settle: Settle | None = None) -> Committed:
        """Makes exactly the files in the metadata visible, all at once.

        Files that were announced and are not in the metadata are removed first. `settle` may change the metadata at
        the commit's place in the log, but not its files; what it raises leaves the transaction open. Errors:
        `WriteConflict` (everything was rolled back, unless `keeps_lost_files` is set), `TransactionEnded` (somebody
        rolled it back before), `LockTimeout` (still open: commit again or abort), `CommitUnknown` (neither commit nor
        abort it again: look).
        """
        self.ensure_open()
        return self._manager.commit(self, metadata, settle)

    def reopen(self) -> None:
        """Lets tasks that are given `markers` from now on announce files, after a `commit` that its `settle` gave up.

        The next commit closes again, and lists the markers after that, so it sweeps what came in between and is not
        part of it. Errors: `TransactionEnded` if it was rolled back meanwhile.
        """
        self.ensure_open()
        self._opening += 1
        self.markers.open()
        try:
            ensure_beating(self._manager.storage, self.instant)  # a rollback removes the claim before it closes
        except TransactionEnded:
            self.markers.close()
            raise

    def abort(self, conflict: WriteConflict | None = None) -> None:
        """Rolls back: the files are removed, and the timeline says so. Does nothing if it has ended already.

        The conflict that is the reason is added to the table's list of recent ones.
        """
        lost = self.status == LOST
        if lost or self.status == OPEN:
            self._manager.abort(self, conflict)
        if lost:
            forget_notes(self._manager.storage, self.instant)

    def early_detection(self) -> EarlyDetection | None:
        """What tasks look for conflicts with while they are at work (`TaskFiles`); None if that is off."""
        return early_detection(self._manager, self.state)

    def found_early(self) -> WriteConflict | None:
        """The conflict that one of its tasks has lost, with all that was thrown away; None if there is none."""
        return found_early(self._manager, self.state)

    @property
    def asks_for_marker_server(self) -> bool:
        return self._manager.settings.marker_server is not None

    def serve_markers(
        self, host: str, bind_host: str | None = None, when_lost: Callable[[], None] | None = None
    ) -> AbstractContextManager[ServerAddress | None]:
        """A marker server for this transaction's tasks, inside a block; see `marker_service.serve_markers`."""
        return serve_markers(self._manager, self.state, host, bind_host, when_lost)

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
