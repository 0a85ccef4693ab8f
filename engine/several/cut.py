"""One consistent moment of several tables: of a transaction over some of them, all is in it or nothing.

The tails of all logs are read, and then all logs are listed once more. If none has gone on, and what was not decided
still is not, then every moment between the two passes is the same one, and it is the cut. Comparing the transactions
that were seen would not do: what two writers commit to one table each could be seen by two readers in either order.
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
from lakelatch.engine.options.arguments import Options, instant_of, merged
from lakelatch.engine.options.registry import Call
from lakelatch.engine.table.opening import load_config
from lakelatch.errors import InvalidRequest, Unavailable
from lakelatch.retry import Backoff, tries
from lakelatch.storage.contract import Storage
from lakelatch.storage.local import LocalStorage
from lakelatch.storage.uris import open_storage, without_secrets
from lakelatch.system import REAL_SYSTEM, System
from lakelatch.timeline.log.commit_log import CommitLog
from lakelatch.timeline.log.decisions import Undecided
from lakelatch.timeline.log.log_reader import Tail
from lakelatch.timeline.snapshot import Mark, Snapshot
from lakelatch.timeline.table_config import TableConfig

T = TypeVar("T")
C = TypeVar("C", bound="Cut")

_THREADS_MAX = 32
_BACKOFF = Backoff(first_s=0.002, longest_s=0.1, jitter=1.0)
_TRIES_FOR_S = 30.0
_FORMAT = 1
_FIRST = "19700101000000001"  # a time before all others


@dataclass(frozen=True)
class TableMoment:
    """One table at the cut: `time` is the last completion time (or another time of the log) that it shows."""

    path: str
    time: str
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
        twice = next((other for other, known in found.items() if _identity(known) == _identity(storage)), None)
        if twice is not None:
            raise InvalidRequest(
                f"the table {without_secrets(path)} is named twice (as {without_secrets(twice)}): name each once",
                option="tables",
            )
        found[path] = storage
    return found


def configs_of(storages: Mapping[str, Storage], system: System) -> dict[str, TableConfig]:
    """The configurations of these tables. Errors: `InvalidRequest` for one that is not there."""
    return _together({path: partial(load_config, storage) for path, storage in storages.items()}, storages, system)


def opening(options: Options | None) -> Callable[[str], Storage]:
    """What opens the storage of a table by its path, with the credentials of these options."""
    return partial(open_storage, options=Call(options).services().manager.storage)


def _identity(storage: Storage) -> str:
    """The place of a table, whichever of its names it is called by."""
    return (
        os.path.realpath(storage.root) if isinstance(storage, LocalStorage) else storage.uri.replace("s3a://", "s3://")
    )


def take_cut(
    storages: Mapping[str, Storage],
    options: Options | None,
    system: System,
    open_table: Callable[[str], Storage] | None = None,
) -> tuple[TableMoment, ...]:
    """One moment of these tables. Errors: `Unavailable` if they never rest, or a decision cannot be read."""
    open_other = open_table or opening(options)
    logs = {path: CommitLog(storage, system, open_table=open_other) for path, storage in storages.items()}
    for _ in tries(system, _BACKOFF, limit_s=_TRIES_FOR_S):
        before = _together({path: partial(_last_decided, log) for path, log in logs.items()}, storages, system)
        looks = _together({path: partial(_look_again, logs[path], before[path]) for path in logs}, storages, system)
        found = {path: snapshot for path, snapshot in looks.items() if snapshot is not None}
        if len(found) == len(logs) and not any(_has_more(logs[path], before[path], found[path]) for path in logs):
            return tuple(_moment(path, before[path], found[path]) for path in logs)
    raise Unavailable(
        f"the {len(logs)} tables have not been at rest together for {_TRIES_FOR_S:g} s: try again when they are less "
        "busy, or take the moments of fewer tables at once"
    )


def _last_decided(log: CommitLog) -> Tail:
    """The tail as far as it is decided. Errors: `Unavailable` if its decision cannot be read."""
    try:
        return log.decided_tail()
    except Undecided as error:
        if error.reason:
            raise Unavailable(error.message) from error
        return log.before(error.event)


def _look_again(log: CommitLog, tail: Tail) -> Snapshot | None:
    """The timeline, with the files of all slots; None if the log ends elsewhere, or something was decided meanwhile."""
    found: list[Tail] = []
    numbers: list[int] = []

    def again() -> None:
        numbers.append(log.tail_number())

    def look() -> None:
        found.append(log.look(tail))

    if tail.number:
        log.storage.together(again, look)
    else:  # then the timeline alone says which moment it is
        look()
        again()
    if numbers[0] == tail.number or (numbers[0] == tail.number + 1 and _last_decided(log).number == tail.number):
        return log.snapshots.take(found[0])
    return None


def _has_more(log: CommitLog, tail: Tail, snapshot: Snapshot) -> bool:
    """Whether the listing of the timeline may show files of later slots.

    What has completed later, and is in no slot, is another engine's: it was there when the listing was made.
    """
    return bool(tail.number) and snapshot.latest_completion > tail.time and log.tail_number() != tail.number


def _moment(path: str, tail: Tail, snapshot: Snapshot) -> TableMoment:
    time = max(tail.time, snapshot.latest_completion) or _FIRST
    return TableMoment(path, time, snapshot.mark(tail.number, tail.time))


def _together(requests: Mapping[str, Callable[[], T]], storages: Mapping[str, Storage], system: System) -> dict[str, T]:
    """The answers of all tables, side by side where they are far away. Errors: those of the first in order."""
    if len(requests) < 2 or all(isinstance(storage, LocalStorage) for storage in storages.values()):
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
        configs_of(storages, system)
        self._moments = {one.path: one for one in take_cut(storages, options, system)}

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
        options = merged(getattr(table, "_options", None), self._options)
        return ArrowTable(self.moment_of(table).path, options).to_arrow(self.moment_of(table).time, columns)

    def save(self, path: str | PathLike[str]) -> None:
        """Writes the times into a local file, from which `load` reads them."""
        values = {"format": _FORMAT, "tables": [{"path": path, "time": time} for path, time in self.times.items()]}
        Path(fspath(path)).write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")

    @classmethod
    def load(cls: type[C], path: str | PathLike[str], options: Options | None = None) -> C:
        """The cut that was saved. Errors: `InvalidRequest` for a file that is none."""
        try:
            values = json.loads(Path(fspath(path)).read_text(encoding="utf-8"))
            if values["format"] != _FORMAT:
                raise ValueError("it is of another version")
            moments = [TableMoment(str(one["path"]), instant_of(one["time"])) for one in values["tables"]]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InvalidRequest(
                f"{fspath(path)} is no saved moment of several tables: {error}", option="path"
            ) from error
        found = cls.__new__(cls)
        found._options, found._moments = merged(options), {one.path: one for one in moments}
        return found
