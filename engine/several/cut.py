"""One consistent moment of several tables: of a transaction over some of them, all is in it or nothing.

All logs are listed, and listed again. If none has gone on, every moment between the two is the same one, and it is the
cut; what the last slots say is read beside the second listing, or behind it, since it does not change. If one of them
is a part of a transaction that is decided by now, that may be later than this moment, so the logs are listed once more
behind it, unless its completed file was there beside the first listing already. Comparing the transactions that were
seen would not do: what two writers commit to one table each could be seen by two readers in either order.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from os import PathLike, fspath
from pathlib import Path
from typing import TypeVar

import pyarrow as pa

from lakelatch.engine.arrow import ArrowTable
from lakelatch.engine.options.calls.arguments import Options, instant_of, merged
from lakelatch.engine.options.calls.registry import Call
from lakelatch.engine.table.opening import load_config, look_at
from lakelatch.errors import InvalidRequest, Unavailable
from lakelatch.retry import Backoff, tries
from lakelatch.storage.contract import Storage
from lakelatch.storage.local import LocalStorage
from lakelatch.storage.uris import open_storage, without_secrets
from lakelatch.system import REAL_SYSTEM, System
from lakelatch.timeline.history.history import History
from lakelatch.timeline.instant import TIMELINE_FOLDER, parse_file_name
from lakelatch.timeline.log.commit_log import CommitLog
from lakelatch.timeline.log.decisions import Undecided
from lakelatch.timeline.log.events import COMPLETE, PLAN, WITHDRAW, Event
from lakelatch.timeline.log.log_reader import LogMoved, Tail
from lakelatch.timeline.snapshot import Mark, Snapshot
from lakelatch.timeline.table_config import TableConfig

T = TypeVar("T")
C = TypeVar("C", bound="Cut")

_THREADS_MAX = 32
_BACKOFF = Backoff(first_s=0.002, longest_s=0.1, jitter=1.0)
_TRIES_FOR_S = 30.0
_FORMAT = 1
_BEFORE_ALL = "19700101000000001"  # a time before all others


@dataclass(frozen=True)
class TableMoment:
    """One table at the cut: `time` is the last completion time (or another time of the log) that it shows.

    `last` is the completed file of the last write then, "" if there is none, or if that is not known.
    """

    path: str
    time: str
    last: str = ""
    mark: Mark | None = field(default=None, repr=False, compare=False)


def place_of(table: object) -> str:
    """The path of a table that is named by it, or held as `Table` or `ArrowTable`. Errors: `InvalidRequest`."""
    path = getattr(table, "path", table)
    if not isinstance(path, str | PathLike):
        raise InvalidRequest(f"{table!r} is no table: give a path, a Table or an ArrowTable", option="tables")
    return fspath(path)


def open_places(
    tables: Sequence[object], options: Options | None, open_table: Callable[[str], Storage] | None = None
) -> dict[str, Storage]:
    """The storages of tables, by their paths. Errors: `InvalidRequest` for one that is named twice."""
    if isinstance(tables, str | PathLike) or not tables:
        raise InvalidRequest("tables: give a list of paths or tables, at least one", option="tables")
    found: dict[str, Storage] = {}
    for table in tables:
        path = place_of(table)
        own = merged(getattr(table, "_options", None), options)
        storage = (open_table or opening(own))(path)
        twice = next((other for other, known in found.items() if identity_of(known) == identity_of(storage)), None)
        if twice is not None:
            raise InvalidRequest(
                f"the table {without_secrets(path)} is named twice (as {without_secrets(twice)}): name each once",
                option="tables",
            )
        found[path] = storage
    return found


def looks_at(storages: Mapping[str, Storage], system: System) -> dict[str, tuple[TableConfig, Snapshot]]:
    """The configuration and the timeline of each table. Errors: `InvalidRequest` for one that is not there."""
    return _together({path: partial(look_at, storage) for path, storage in storages.items()}, storages, system)


def opening(options: Options | None) -> Callable[[str], Storage]:
    """What opens the storage of a table by its path, with the credentials of these options."""
    return partial(open_storage, options=Call(options).services().manager.storage)


def identity_of(storage: Storage) -> str:
    """The place of a table, whichever of its names it is called by."""
    return (
        os.path.realpath(storage.root) if isinstance(storage, LocalStorage) else storage.uri.replace("s3a://", "s3://")
    )


@dataclass(frozen=True)
class _First:
    """The number of a log's last slot, 0 for an empty one, and names that were on the timeline by the same round."""

    number: int
    there: frozenset[str]


@dataclass(frozen=True)
class _Look:
    """What a log and its timeline say up to the slot that was the last one in two listings, as far as it is decided.

    `undecided` is the event of that slot if it is not; `is_decided` says that it is a part which was decided, perhaps
    later than the first listing.
    """

    tail: Tail
    snapshot: Snapshot
    undecided: Event | None = None
    is_decided: bool = False


def take_cut(
    storages: Mapping[str, Storage],
    options: Options | None,
    system: System,
    open_table: Callable[[str], Storage] | None = None,
    of_any_place: bool = False,
) -> tuple[TableMoment, ...]:
    """One moment of these tables. Errors: `Unavailable` if they never rest, or a decision cannot be read.

    `of_any_place`: whether it is still to be seen that there are tables; `InvalidRequest` if not.
    """
    open_other = open_table or opening(options)
    logs = {path: CommitLog(storage, system, open_table=open_other) for path, storage in storages.items()}
    are_here = _are_here(storages)
    for turn, _ in enumerate(tries(system, _BACKOFF, limit_s=_TRIES_FOR_S)):
        first = partial(_first, with_config=of_any_place and not turn, with_timeline=not are_here)
        firsts = _together({path: partial(first, log) for path, log in logs.items()}, storages, system)
        numbers = {path: one.number for path, one in firsts.items()}
        # Where requests take no time, those of all logs follow each other as fast as they can.
        if are_here and any(log.tail_number() != numbers[path] for path, log in logs.items()):
            continue
        look = partial(_look, lists_again=not are_here)
        found = _together({path: partial(look, log, firsts[path]) for path, log in logs.items()}, storages, system)
        looks = {path: one for path, one in found.items() if one is not None}
        if len(looks) < len(logs):
            continue
        if any(one.is_decided for one in looks.values()):
            asks = {path: partial(_is_so_still, log, numbers[path], looks[path]) for path, log in logs.items()}
            if not all(_together(asks, storages, system).values()):
                continue
        shown = {path: _without_later(log, looks[path].tail, looks[path].snapshot) for path, log in logs.items()}
        moments = [_moment(path, looks[path].tail, one) for path, one in shown.items() if one is not None]
        if len(moments) == len(logs):
            return tuple(moments)
    raise Unavailable(
        f"the {len(logs)} tables have not been at rest together for {_TRIES_FOR_S:g} s: try again when they are less "
        "busy, or take the moments of fewer tables at once"
    )


def _first(log: CommitLog, with_config: bool, with_timeline: bool) -> _First:
    """The first listing of a log. Errors: `InvalidRequest` if there is to be a table."""
    numbers, there = list[int](), set[str]()

    def list_timeline() -> None:
        there.update(log.storage.names(TIMELINE_FOLDER))

    asked: list[Callable[[], object]] = [lambda: numbers.append(log.tail_number())]
    if with_config:
        asked.append(partial(load_config, log.storage))
    if with_timeline:
        asked.append(list_timeline)
    log.storage.together(*asked)
    return _First(numbers[0], frozenset(there))


def _look(log: CommitLog, first: _First, lists_again: bool) -> _Look | None:
    """What is there up to a slot; None if the log has gone on. Errors: `Unavailable` if a decision cannot be read."""
    number = first.number
    if not number:  # then the timeline alone says which moment it is
        tail = log.look(Tail(0))
        return None if log.tail_number() else _Look(tail, log.snapshots.take(tail))
    numbers, slots, listings = [number], [], []

    def again() -> None:
        numbers.append(log.tail_number())

    def read() -> None:
        slots.append(log.stored(number))

    def list_timeline() -> None:
        listings.append(log.snapshots.list())

    log.storage.together(*([again] if lists_again else []), read, list_timeline)
    (events,), (listing,) = slots, listings
    if numbers[-1] != number or not events:
        return None
    tail, is_part = Tail(number, events), events[0].decision != ""
    if is_part and events[0].file not in listing.listed:
        try:
            tail = Tail(number, log.decided(events))
        except Undecided as error:
            _ensure_undecided(log, error)
            try:
                tail = log.before(events[0])
            except LogMoved:
                return None
    undecided = events[0] if tail.number < number else None
    is_decided = is_part and undecided is None and events[0].file not in first.there
    tail = log.look(tail, listing)  # made since the slot was there
    return _Look(tail, log.snapshots.take(tail), undecided, is_decided)


def _is_so_still(log: CommitLog, number: int, look: _Look) -> bool:
    """Whether the log ends where it did, and what was undecided is: so it was when another one's decision was read."""
    if log.tail_number() != number:
        return False
    if look.undecided is None:
        return True
    try:
        log.counts(look.undecided)
    except Undecided as error:
        _ensure_undecided(log, error)
        return True
    return False


def _ensure_undecided(log: CommitLog, error: Undecided) -> None:
    """Errors: `Unavailable` if nobody can say, as the decision may have gone with the table in which it lay."""
    if error.reason:
        raise Unavailable(error.message) from error
    log.decisions.ensure_home(error.event.home)


def _without_later(log: CommitLog, tail: Tail, snapshot: Snapshot) -> Snapshot | None:
    """The snapshot without the files of slots behind the tail, which came while the timeline was listed.

    What has completed later, and is in no slot, is another engine's: it was there when the listing was made. None if
    the later slots have taken something away, or are not all there any more.
    """
    if not tail.number or snapshot.latest_completion <= tail.time:
        return snapshot
    try:
        last = log.last_decided()
        later = log.events_after(tail.number, last)
    except LogMoved:
        return None
    if tail.number + 1 < last.watermark or any(
        event.undoes or event.kind not in (COMPLETE, PLAN, WITHDRAW) for event in later
    ):
        return None
    return Snapshot.of_names(snapshot.names - {event.file for event in later}) if later else snapshot


def _moment(path: str, tail: Tail, snapshot: Snapshot) -> TableMoment:
    mark = snapshot.mark(tail.number, tail.time)
    last = snapshot.writes[-1].file_name if snapshot.writes else ""
    return TableMoment(path, mark.moment or _BEFORE_ALL, last, mark)


def _are_here(storages: Mapping[str, Storage]) -> bool:
    """Whether no request takes long."""
    return all(isinstance(storage, LocalStorage) for storage in storages.values())


def _together(requests: Mapping[str, Callable[[], T]], storages: Mapping[str, Storage], system: System) -> dict[str, T]:
    """The answers of all tables, side by side where they are far away. Errors: those of the first in order."""
    if len(requests) < 2 or _are_here(storages):
        return {path: request() for path, request in requests.items()}
    answers: dict[str, T] = {}
    errors: dict[str, Exception] = {}
    left = iter(requests)

    def ask() -> None:
        for path in left:
            try:
                answers[path] = requests[path]()
            except Exception as error:
                errors[path] = error

    threads = [system.start_thread(ask, "lakelatch cut") for _ in range(min(len(requests), _THREADS_MAX))]
    for thread in threads:
        thread.join()
    for path in requests:
        if path in errors:
            raise errors[path]
    return {path: answers[path] for path in requests}


class Cut:
    """One consistent moment of several tables, which every read of them then has.

    What a transaction over several of them has committed is in all of them or in none. The moment stays readable for as
    long as each table keeps the files of it: see the retention of its cleaner.
    """

    def __init__(self, tables: Sequence[object], options: Options | None = None, system: System = REAL_SYSTEM) -> None:
        self._options = merged(options)
        storages = open_places(tables, options)
        self._moments = {one.path: one for one in take_cut(storages, options, system, of_any_place=True)}

    def __repr__(self) -> str:
        shown = ", ".join(f"{without_secrets(path)} at {one.time}" for path, one in self._moments.items())
        return f"{type(self).__name__}({shown})"

    @property
    def times(self) -> dict[str, str]:
        """The completion time of each table up to which its commits are seen, by its path.

        Another engine that is asked for each table as of its time reads the same moment.
        """
        return {path: one.time for path, one in self._moments.items()}

    def moment_of(self, table: object) -> TableMoment:
        """The moment of one of the tables. Errors: `InvalidRequest` for another one."""
        path = place_of(table)
        if path not in self._moments:
            shown = ", ".join(map(without_secrets, self._moments))
            raise InvalidRequest(f"{without_secrets(path)} is none of these tables: {shown}", option="table")
        return self._moments[path]

    def to_arrow(self, table: object, columns: Sequence[str] | None = None) -> pa.Table:
        """The rows of one table at this moment, without Spark."""
        found, options = self.moment_of(table), merged(getattr(table, "_options", None), self._options)
        rows = ArrowTable(found.path, options).to_arrow(found.time, columns)
        self.ensure_still_there(found, options)
        return rows

    def ensure_still_there(self, moment: TableMoment, options: Options) -> None:
        """Called behind a read of a table, which shows less if its commits up to then were taken back meanwhile.

        Errors: `InvalidRequest` for that, and for another table in its place.
        """
        last = parse_file_name(moment.last)
        storage = opening(options)(moment.path)
        if last is None or last.file_name in storage.names(TIMELINE_FOLDER):
            return
        archived = History.load(storage).find(last.requested)
        if archived is None or archived.completion != last.completion:
            raise InvalidRequest(
                f"the table {without_secrets(moment.path)} as of {moment.time} is not there any more: its last write "
                f"then, {last.requested}, was taken back by a restore or a rollback, or another table is in its place. "
                "Take the moment of these tables anew: lakelatch.snapshot(tables)",
                option="table",
            )

    def save(self, path: str | PathLike[str]) -> None:
        """Writes the moment into a local file, from which `load` reads it. Errors: `InvalidRequest` if it cannot be."""
        tables = [{"path": one.path, "time": one.time, "last": one.last} for one in self._moments.values()]
        values = {"format": _FORMAT, "tables": tables}
        try:
            Path(fspath(path)).write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")
        except OSError as error:
            raise InvalidRequest(
                f"the moment of these tables cannot be saved as {fspath(path)}: {error.strerror}; name a file in a "
                "local folder that is there",
                option="path",
            ) from error

    @classmethod
    def load(cls: type[C], path: str | PathLike[str], options: Options | None = None) -> C:
        """The cut that was saved. Errors: `InvalidRequest` for a file that is none."""
        try:
            values = json.loads(Path(fspath(path)).read_text(encoding="utf-8"))
            if values["format"] != _FORMAT:
                raise ValueError("it is of another version")
            moments = [
                TableMoment(str(one["path"]), instant_of(one["time"]), str(one.get("last", "")))
                for one in values["tables"]
            ]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InvalidRequest(
                f"{fspath(path)} is no saved moment of several tables: {error}", option="path"
            ) from error
        found = cls.__new__(cls)
        found._options, found._moments = merged(options), {one.path: one for one in moments}
        return found
