"""How a task announces its data files, and learns early that another write will have their file groups.

Of two live writes that meet in a file group the one that was *requested earlier* goes on, so two never end each other.
Both announce before they look, or look and announce under one lease. So whoever comes second sees the first: if that
one is earlier, it ends itself, and if it is later, it tells it, by a file that all tasks of the other one look for.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, ClassVar

from lakelatch.errors import InvalidRequest
from lakelatch.locks.contract import file_group_key
from lakelatch.locks.registry import find_component
from lakelatch.timeline.commit_log import LogMoved
from lakelatch.transactions.bloom import BloomReader, bloom_key, hashes_of, write_bloom
from lakelatch.transactions.conflicts import Conflict, Contender, FileGroup, Others, OtherWrite, completed_writes
from lakelatch.transactions.doom import condemn, doom_of
from lakelatch.transactions.losses import Work, write_conflict
from lakelatch.transactions.marker_client import Answer, ServerLost
from lakelatch.transactions.marker_files import START_LENGTH, marker_of
from lakelatch.transactions.rivals import file_id_of, order_of
from lakelatch.transactions.settings import DIRECT_MARKERS, EARLY_STRATEGY_OPTION, SERVER_MARKERS

if TYPE_CHECKING:
    from lakelatch.transactions.early_detection import Detection

MARKER_STRATEGIES = "lakelatch.marker_strategies"
DEFAULT_STRATEGIES = {DIRECT_MARKERS: "simple_direct", SERVER_MARKERS: "timeline_server"}
_log = logging.getLogger("lakelatch.transactions")


class MarkerStrategy(ABC):
    """One task attempt's way to announce files. Constructed with the write's `Detection`; used by one thread."""

    marker_type: ClassVar[str] = DIRECT_MARKERS
    needs_locks: ClassVar[bool] = False
    blooms: ClassVar[bool] = False

    def __init__(self, detection: Detection) -> None:
        self.detection = detection

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
        """Raises `WriteConflict` if this write is known to have lost, through whichever task."""
        conflict = doom_of(self.detection.storage, self.detection.instant)
        if conflict is not None:
            raise write_conflict(self.detection.instant, conflict, self.detection.elapsed_s(), Work(), early=True)

    def lose(self, conflict: Conflict) -> None:
        """Says for all tasks that this write has lost, and raises `WriteConflict`."""
        condemn(self.detection.storage, self.detection.instant, conflict)
        raise write_conflict(self.detection.instant, conflict, self.detection.elapsed_s(), Work(), early=True)


class SimpleDirectStrategy(MarkerStrategy):
    """Announces, then looks. Two that do so at once see each other; no lock is needed."""

    def announce(self, partition: str, name: str) -> None:
        self.ensure_not_lost()
        self.detection.markers.announce(partition, name)
        self.tell(self.look(partition, name), partition, name)

    def look(self, partition: str, name: str) -> list[OtherWrite]:
        """Ends this write if another one comes before it on the file group of this data file; else the later ones."""
        detection = self.detection
        group = (partition, file_id_of(name))
        rivals = self.rivals_on(group)
        for rival in rivals:
            if not rival.inflight or order_of(rival.instant) < order_of(detection.instant):
                self.lose(Conflict(rival, rival.file_groups))
        if detection.settings.check_commits:
            contender = Contender(detection.instant, detection.action, frozenset([group]))
            conflict = detection.conflicts.find(contender, detection.completed())
            if conflict is not None:
                self.lose(conflict)
        return rivals

    def rivals_on(self, group: FileGroup) -> list[OtherWrite]:
        """The write's rivals on one of its file groups."""
        return self.detection.rivals.on([group])

    def tell(self, rivals: list[OtherWrite], partition: str, name: str) -> None:
        """Later ones that looked before our marker was there are told what they would have seen."""
        detection = self.detection
        for rival in rivals:
            if rival.instant not in detection.told:
                detection.told.add(rival.instant)
                this = OtherWrite(
                    detection.instant,
                    detection.action,
                    "",
                    frozenset([(partition, file_id_of(name))]),
                    detection.writer,
                    time=detection.announced_at(partition, name),
                    inflight=True,
                )
                condemn(detection.storage, rival.instant, Conflict(this, rival.file_groups))


class TransactionalDirectStrategy(SimpleDirectStrategy):
    """Looks, then announces, both under the lease of the file group: a write that loses leaves no marker there.

    Waiting for the lease is bounded by hoodie.write.lock.wait_time_ms.
    """

    needs_locks = True

    def announce(self, partition: str, name: str) -> None:
        self.ensure_not_lost()
        detection = self.detection
        key = file_group_key(partition, file_id_of(name))
        with detection.locks.acquire(key, detection.lock_timeout_s) as lease:
            later = self.look(partition, name)
            detection.markers.announce(partition, name)
            if not lease.valid():  # somebody else may have looked before the marker was there
                later = self.look(partition, name)
            self.tell(later, partition, name)


class SimpleDirectBloomStrategy(SimpleDirectStrategy):
    """As `simple_direct`, and passes over writers whose Bloom files say that they have none of its file groups.

    Each step of a task adds a Bloom file before its markers, and reads those of others once.
    """

    blooms = True

    def __init__(self, detection: Detection) -> None:
        super().__init__(detection)
        self._near = detection.conflicts.equal_start_length >= START_LENGTH
        self._reader = BloomReader(detection.storage)
        self._added: set[bytes] = set()

    def announce(self, partition: str, name: str) -> None:
        self.announce_all([(partition, name)])

    def announce_all(self, files: Sequence[tuple[str, str]]) -> None:
        self.ensure_not_lost()
        detection = self.detection
        new = {bloom_key(partition, file_id_of(name)) for partition, name in files} - self._added
        if new:
            write_bloom(detection.storage, detection.instant, detection.system.new_id(), sorted(new))
            self._added |= new
        for partition, name in files:
            detection.markers.announce(partition, name)
            self.tell(self.look(partition, name), partition, name)

    def rivals_on(self, group: FileGroup) -> list[OtherWrite]:
        rivals = self.detection.rivals
        if not self._near:
            return rivals.on([group])
        hashes = hashes_of([bloom_key(*group)])
        return rivals.on([group], [one for one in rivals.instants() if self._reader.may_mark(one, hashes)])


class TimelineServerStrategy(SimpleDirectStrategy):
    """Announces through the driver's marker server, which looks for both. Directly if it cannot be reached."""

    marker_type = SERVER_MARKERS

    def announce(self, partition: str, name: str) -> None:
        self.announce_all([(partition, name)])

    def announce_all(self, files: Sequence[tuple[str, str]]) -> None:
        client = self.detection.client
        if client is not None:
            try:
                self._heed(client.ask([marker_of(partition, name) for partition, name in files]))
                return
            except ServerLost:
                pass  # it has been said
        self.announce_directly(files)

    def announce_directly(self, files: Sequence[tuple[str, str]]) -> None:
        """What is done without the server."""
        for partition, name in files:
            super().announce(partition, name)

    def ensure_not_lost(self) -> None:
        client = self.detection.client
        if client is not None:
            try:
                self._heed(client.ask([]))
                return
            except ServerLost:
                pass
        super().ensure_not_lost()

    def _heed(self, answer: Answer) -> None:
        if answer.ended is not None:
            raise answer.ended
        if answer.lost is not None:
            self.lose(answer.lost)


class TimelineServerBloomStrategy(TimelineServerStrategy):
    """As `timeline_server`; the server adds a Bloom file before each batch, and reads those of others first."""

    blooms = True

    def __init__(self, detection: Detection) -> None:
        super().__init__(detection)
        self._direct = SimpleDirectBloomStrategy(detection)

    def announce_directly(self, files: Sequence[tuple[str, str]]) -> None:
        self._direct.announce_all(files)


class CompletedSince(Others):
    """What the commit log says has completed since a write began, as a task sees it."""

    def __init__(self, detection: Detection) -> None:
        self._detection = detection

    def completed(self) -> list[OtherWrite]:
        detection = self._detection
        try:
            events = detection.log.events_after(detection.start_slot, detection.log.tail())
        except LogMoved:  # the commit looks at all of them
            return []
        return completed_writes(detection.storage, events, [])

    def inflight(self, groups: Collection[FileGroup]) -> list[OtherWrite]:
        return self._detection.rivals.on(groups)


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
