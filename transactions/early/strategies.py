"""The strategies by which a task announces its data files and learns early of concurrent writers.

Of two live writes on one file group the one that was *requested earlier* goes on, so two never abort each other. Both
announce before they check, or check and announce under one lease. So the second one sees the first: if the first was
requested earlier, the second one aborts, and otherwise it marks the first one aborted, by a file that all tasks of that
write look for.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from lakelatch.errors import InvalidRequest
from lakelatch.locks.contract import file_group_key
from lakelatch.plugins import find_component
from lakelatch.transactions.base.settings import DIRECT_MARKERS, EARLY_STRATEGY_OPTION, SERVER_MARKERS
from lakelatch.transactions.conflicts.contract import Conflict, Contender, OtherWrite
from lakelatch.transactions.conflicts.report import Work, write_conflict
from lakelatch.transactions.early.concurrent_writers import file_id_of, order_of
from lakelatch.transactions.early.context import Detection
from lakelatch.transactions.early.notes import aborted_by, mark_aborted
from lakelatch.transactions.early.server_client import Answer, ServerLost
from lakelatch.transactions.markers.files import marker_of

MARKER_STRATEGIES = "lakelatch.marker_strategies"
DEFAULT_STRATEGIES = {DIRECT_MARKERS: "simple_direct", SERVER_MARKERS: "timeline_server"}
_log = logging.getLogger("lakelatch.transactions")


class MarkerStrategy(ABC):
    """One task attempt's way to announce files. Constructed with the write's `Detection`; used by one thread."""

    marker_type: ClassVar[str] = DIRECT_MARKERS
    needs_locks: ClassVar[bool] = False

    def __init__(self, detection: Detection) -> None:
        self.detection = detection
        self._marked: set[str] = set()  # later writers that are marked aborted

    @abstractmethod
    def announce(self, partition: str, name: str) -> None:
        """Makes the marker of a data file; the file itself comes after it.

        Errors: `WriteConflict` if another write has the file group, `TransactionEnded` if the instant takes no files.
        """

    def announce_all(self, files: Sequence[tuple[str, str]]) -> None:
        """Announces the data files of one step, each a partition and a name; as `announce`."""
        for partition, name in files:
            self.announce(partition, name)

    def ensure_not_lost(self) -> None:
        """Raises `WriteConflict` if this write was marked aborted, by whichever task or writer."""
        conflict = aborted_by(self.detection.storage, self.detection.instant)
        if conflict is not None:
            raise write_conflict(self.detection.instant, conflict, self.detection.elapsed_s(), Work(), early=True)

    def lose(self, conflict: Conflict) -> None:
        """Marks this write aborted, for all of its tasks, and raises `WriteConflict`."""
        mark_aborted(self.detection.storage, self.detection.instant, conflict)
        raise write_conflict(self.detection.instant, conflict, self.detection.elapsed_s(), Work(), early=True)


class SimpleDirectStrategy(MarkerStrategy):
    """Announces, then checks. Two that do so at once see each other; no lock is needed."""

    def announce(self, partition: str, name: str) -> None:
        self.ensure_not_lost()
        self.detection.markers.announce(partition, name)
        self.mark_later_writers(self.look(partition, name), partition, name)

    def look(self, partition: str, name: str) -> list[OtherWrite]:
        """The later concurrent writers on a data file's file group; aborts this write if there is an earlier one."""
        detection = self.detection
        group = (partition, file_id_of(name))
        concurrent_writers = detection.concurrent_writers.on([group])
        for other in concurrent_writers:
            if not other.inflight or order_of(other.instant) < order_of(detection.instant):
                self.lose(Conflict(other, other.file_groups))
        if detection.settings.check_commits:
            contender = Contender(detection.instant, detection.action, frozenset([group]))
            conflict = detection.conflicts.find(contender, detection.completed())
            if conflict is not None:
                self.lose(conflict)
        return concurrent_writers

    def mark_later_writers(self, concurrent_writers: list[OtherWrite], partition: str, name: str) -> None:
        """Marks later writers aborted that checked before this write's marker was there."""
        detection = self.detection
        for other in concurrent_writers:
            if other.instant not in self._marked:
                self._marked.add(other.instant)
                this = OtherWrite(
                    detection.instant,
                    detection.action,
                    "",
                    frozenset([(partition, file_id_of(name))]),
                    detection.writer,
                    time=detection.announced_at(partition, name),
                    inflight=True,
                )
                mark_aborted(detection.storage, other.instant, Conflict(this, other.file_groups))


class TransactionalDirectStrategy(SimpleDirectStrategy):
    """Checks, then announces, both under one lease: a write that loses leaves no marker there.

    The lease is on what the conflict strategy compares, such as the bucket: two writers may have different file ids for
    one bucket. Waiting for it is bounded by hoodie.write.lock.wait_time_ms.
    """

    needs_locks = True

    def announce(self, partition: str, name: str) -> None:
        self.ensure_not_lost()
        detection = self.detection
        key = file_group_key(partition, detection.conflicts.group_part(file_id_of(name)))
        with detection.locks.acquire(key, detection.lock_timeout_s) as lease:
            later = self.look(partition, name)
            detection.markers.announce(partition, name)
            if not lease.valid():  # another writer may have checked before the marker was there
                later = self.look(partition, name)
            self.mark_later_writers(later, partition, name)


class TimelineServerStrategy(SimpleDirectStrategy):
    """Announces through the driver's marker server, which looks for both. Directly if it cannot be reached."""

    marker_type = SERVER_MARKERS

    def announce(self, partition: str, name: str) -> None:
        self.announce_all([(partition, name)])

    def announce_all(self, files: Sequence[tuple[str, str]]) -> None:
        client = self.detection.client
        if client is not None:
            try:
                self._ensure_counts(client.ask([marker_of(partition, name) for partition, name in files]))
                return
            except ServerLost:
                pass  # it has been logged
        self.announce_directly(files)

    def announce_directly(self, files: Sequence[tuple[str, str]]) -> None:
        """Announces without the server."""
        for partition, name in files:
            super().announce(partition, name)

    def ensure_not_lost(self) -> None:
        client = self.detection.client
        if client is not None:
            try:
                self._ensure_counts(client.ask([]))
                return
            except ServerLost:
                pass
        super().ensure_not_lost()

    def _ensure_counts(self, answer: Answer) -> None:
        if answer.ended is not None:
            raise answer.ended
        if answer.lost is not None:
            self.lose(answer.lost)


def find_marker_strategy(name: str | None, marker_type: str = DIRECT_MARKERS) -> type[MarkerStrategy]:
    """The strategy of this name, a short one or Hudi's class name; the marker type's default for None.

    One that belongs to another type of markers is not taken, but the default one, with a warning: as Hudi does.

    Errors: `InvalidRequest`, with the nearest known name and what is installed.
    """
    default = DEFAULT_STRATEGIES[marker_type]
    kind = find_component(MARKER_STRATEGIES, name or default, "strategy of early detection", EARLY_STRATEGY_OPTION)
    if not (isinstance(kind, type) and issubclass(kind, MarkerStrategy)):
        raise InvalidRequest(
            f"{EARLY_STRATEGY_OPTION}={name!r} is {kind!r}, which is no MarkerStrategy: choose another one",
            option=EARLY_STRATEGY_OPTION,
        )
    if kind.marker_type == marker_type:
        return kind
    _log.warning(
        "%s=%r needs markers of type %s, and they are %s here: %s is used instead",
        EARLY_STRATEGY_OPTION,
        name,
        kind.marker_type,
        marker_type,
        default,
    )
    return find_marker_strategy(None, marker_type)
