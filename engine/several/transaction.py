"""A transaction over several tables: what it writes is seen in all of them or in none.

Each change of a table is one part: a write of its own, which stages its files at once, in a thread, and waits for the
end of the block. Changes of different tables are staged side by side where nothing is left to be said of them when they
are called (`engine/several/beside.py`). Reads in the block, and the parts after it, see what is staged as if it had
completed (`timeline/staged.py`). At the end all parts are prepared in their tables' logs, those of one table in one
slot, and one decision makes them count (`transactions/several/parts.py`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from contextvars import ContextVar, copy_context
from functools import partial
from types import TracebackType
from typing import Any, TypeVar

import pyarrow as pa

from lakelatch.engine.arrow import ArrowTable
from lakelatch.engine.changes.rows import table_of
from lakelatch.engine.options.calls.arguments import Options, merged
from lakelatch.engine.options.calls.registry import Call
from lakelatch.engine.run.result import CommitResult
from lakelatch.engine.several.arrow_inside import ArrowTableInside
from lakelatch.engine.several.beside import may_be_staged_beside
from lakelatch.engine.several.cut import TableMoment, open_places, opening, place_of, take_cut
from lakelatch.engine.several.found_tables import FoundTables
from lakelatch.engine.table.manager import open_manager
from lakelatch.engine.write.attempt import Write, next_write_is, part_of_thread
from lakelatch.errors import (
    CommitUnknown,
    CorruptTable,
    InvalidRequest,
    InvariantBroken,
    LakelatchError,
    TransactionEnded,
    Unavailable,
    WriteConflict,
)
from lakelatch.storage.contract import Storage
from lakelatch.storage.uris import without_secrets
from lakelatch.system import REAL_SYSTEM, System
from lakelatch.timeline.log.decisions import Decisions
from lakelatch.timeline.snapshot import Mark
from lakelatch.timeline.staged import StagedStorage, as_of
from lakelatch.timeline.table_config import load_table_config
from lakelatch.transactions.manager import TransactionManager
from lakelatch.transactions.reading import hold_read
from lakelatch.transactions.several.part import Part
from lakelatch.transactions.several.parts import Parts

S = TypeVar("S", bound="TablesTransaction")

SNAPSHOT, SERIALIZABLE = "snapshot", "serializable"
_NEW, _OPEN, _COMMITTED, _ENDED = "not begun", "open", "committed", "ended"
_log = logging.getLogger("lakelatch.engine")
_last: ContextVar[TablesTransaction | None] = ContextVar("lakelatch_transaction", default=None)


class TablesTransaction:
    """One transaction over some tables, as a block. At its end it is committed in all of them, or in none.

    What it reads is one moment of all tables, that of its first read, and what it has written itself. Under optimistic
    control every write is held against what others have committed since; under non-blocking control nothing is. A
    table can be changed several times, in order: others see all of it at once. An error in the block, or of any part,
    ends it with all tables as they were. Inside the block nothing of it is visible to others. What is wrong with a
    change is raised where it is called; what comes in its way while its files are staged, by the next call for its
    table, by the first read of any, or at the end of the block, and then by all later ones: the block cannot go on.

    With `isolation="snapshot"` two transactions may each read what the other one writes, and both commit. With
    "serializable" one of them ends: whatever has changed a table since it was read is in the way.
    """

    def __init__(
        self,
        tables: Sequence[object],
        options: Options | None = None,
        isolation: str = SNAPSHOT,
        system: System = REAL_SYSTEM,
        open_table: Callable[[str], Storage] | None = None,
    ) -> None:
        if isolation not in (SNAPSHOT, SERIALIZABLE):
            raise InvalidRequest(f"isolation={isolation!r}: it is {SNAPSHOT!r} or {SERIALIZABLE!r}", option="isolation")
        self._isolation = isolation
        self._options, self._system = merged(options), system
        self._handles = {place_of(table): table for table in tables} if not isinstance(tables, str) else {}
        self._open_table = open_table or opening(self._options)
        self._storages = open_places(tables, options, open_table)
        self._found = FoundTables(self._storages, system)
        self._parts = Parts[Write](system.new_id(), system)
        self._written: dict[str, list[Part[Write]]] = {}  # what is staged
        self._beside: dict[str, Part[Write]] = {}  # what is being staged beside what the block does
        self._missing: BaseException | None = None  # why a change is not staged whose call had returned
        self._moments: dict[str, TableMoment] | None = None
        self._looking = system.new_lock()  # a block's threads read one moment, and wait for the same changes
        self._read: set[str] = set()
        self._at_work: set[str] = set()  # those that are written just now
        self._state = _NEW
        #: What was committed in each table by its last change, by its path, once the block has ended.
        self.results: dict[str, CommitResult] = {}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(without_secrets, self._storages))}; {self._state})"

    def __enter__(self: S) -> S:
        last = _last.get()
        if last is not None and last._state == _OPEN:
            raise InvalidRequest(
                f"{last!r} is open in this thread: name all tables in one transaction, or end that one first"
            )
        if self._state != _NEW:
            raise InvalidRequest(f"this transaction is {self._state}: make another one")
        self._state = _OPEN
        _last.set(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if raised is not None:
                self._state = _ENDED
                self._end()
            else:
                self._commit()
        finally:
            self._state = _ENDED if self._state == _OPEN else self._state
            self._parts.give_up()  # whatever an error in between has left

    def arrow_table(self, table: object) -> ArrowTable:
        """One of the tables, without Spark, as this transaction reads and writes it."""
        path = self._known(table)
        return ArrowTableInside(self, path, merged(getattr(table, "_options", None), self._options), self._system)

    def upsert(self, table: object, data: Any, options: Options | None = None) -> None:
        """Writes rows to one of the tables; see `ArrowTable.upsert`."""
        self.arrow_table(table).upsert(data, options)

    def insert(self, table: object, data: Any, if_exists: str = "error", options: Options | None = None) -> None:
        """Writes rows whose keys are new; see `ArrowTable.insert`."""
        self.arrow_table(table).insert(data, if_exists, options)

    def delete(self, table: object, rows: Any, options: Options | None = None) -> None:
        """Deletes rows by a condition or by their keys; see `ArrowTable.delete`."""
        self.arrow_table(table).delete(rows, options)

    def to_arrow(self, table: object, columns: Sequence[str] | None = None) -> pa.Table:
        """The rows of one of the tables at the transaction's moment, and as the transaction has changed them since."""
        return self.arrow_table(table).to_arrow(columns=columns)

    def moment_of(self, path: str) -> str:
        """The completion time as of which this transaction reads a table. Errors: those of a cut."""
        return self._moment_of(path).time

    def mark_of(self, path: str) -> Mark:
        """The same as the timeline that it sees, without what it has written. Errors: those of a cut."""
        mark = self._moment_of(path).mark
        if mark is None:
            raise InvariantBroken(f"the moment of {without_secrets(path)} does not say what was there")
        return mark

    def _moment_of(self, path: str) -> TableMoment:
        self._ensure_open()
        with self._looking:
            if self._moments is None:
                self.await_staged()  # so that no write begins later than what is read
                self._moments = self._take_moments()
            self._read.add(path)
            return self._moments[path]

    def _take_moments(self) -> dict[str, TableMoment]:
        with self._parts.fixing_moment() as moment:
            cut = take_cut(self._storages, self._options, self._system, self._open_table)
            self._found.ensure_same(cut)
            for one in cut:
                if one.mark is not None:
                    storage = self._storages[one.path]
                    moment[storage.uri] = one.mark, as_of(storage, one.mark)
        return {one.path: one for one in cut}

    def staged_in(self, path: str) -> StagedStorage | None:
        """A table's storage at the moment, with what this transaction has written; None if that is still to come."""
        self._await(path)
        return self._seen(path)

    def _seen(self, path: str) -> StagedStorage | None:
        """The table as it was at its moment, with what is staged; None if it has neither been read nor changed yet.

        Errors: `WriteConflict` if what was staged before the first read lies where the table has no rows any more.
        """
        writes = [part.write for part in self._written.get(path, ()) if part.write is not None]
        mark = self._mark_of(path)
        if mark is None:
            return None
        # Rows that are only added lie in file groups of their own, which nobody can have replaced.
        if writes and not self._found[path][0].appends_only and mark.moved_since(writes[0].mark):
            raise WriteConflict(
                f"others have replaced file groups of {without_secrets(path)} between the first change of it in this "
                "transaction and its first read, which would not see that change: run the block again, or read first"
            )
        found = as_of(self._storages[path], mark)
        for write in writes:
            found = write.shown_in(found)
        return found

    def _mark_of(self, path: str) -> Mark | None:
        """The table at its moment: that of all tables, or that of its first change."""
        if self._moments is not None:
            return self._moments[path].mark
        first = next(iter(self._written.get(path, ())), None)
        return None if first is None or first.write is None else first.write.mark

    def run(self, path: str, write: Callable[[], CommitResult | None]) -> None:
        """Carries out one write of a table up to its commit; `results` has what comes of it. Errors: the write's."""
        with self._changing(path):
            self._await(path)
            self._staged(path, self._begin(path, write))

    def start(self, path: str, write: Callable[[], CommitResult | None]) -> None:
        """The same beside what the caller does next, whose next call for this table raises what the write raises."""
        with self._changing(path):
            self._await(path)
            self._beside[path] = self._begin(path, write)

    def change(self, path: str, data: Any, options: Options, write: Callable[[pa.Table], CommitResult]) -> None:
        """Writes rows, beside what the caller does next if that can raise nothing for which the rows are to blame."""
        self._ensure_open()
        rows = table_of(data)
        is_first = path not in self._written and path not in self._beside
        is_beside = is_first and may_be_staged_beside(self._storages[path], *self._found[path], rows, options)
        (self.start if is_beside else self.run)(path, partial(write, rows))

    @contextmanager
    def _changing(self, path: str) -> Iterator[None]:
        self._ensure_open()
        if path in self._at_work:
            raise InvalidRequest(
                f"{without_secrets(path)} is being changed by this transaction in another thread: make the changes of "
                "one table one after the other",
                option="table",
            )
        self._at_work.add(path)
        try:
            yield
        finally:
            self._at_work.discard(path)

    def _begin(self, path: str, write: Callable[[], CommitResult | None]) -> Part[Write]:
        part = self._parts.add(
            self._storages[path].uri, self._mark_of(path), self._found.names_of(path), self._seen(path)
        )
        done = partial(copy_context().run, self._write, path, part, write)
        self._system.start_thread(done, f"lakelatch part {part.table}")
        return part

    def _await(self, path: str) -> None:
        """Returns once what is staged beside the block in a table is staged. Errors: the write's."""
        with self._looking:
            part = self._beside.pop(path, None)
            if part is not None:
                try:
                    self._staged(path, part)
                except BaseException as error:
                    self._missing = error
                    raise

    def await_staged(self) -> None:
        """Returns once all changes so far are staged. Errors: those of changes that were staged beside others."""
        for path in list(self._beside):
            self._await(path)
        if self._missing is not None:
            raise self._missing

    def _staged(self, path: str, part: Part[Write]) -> None:
        """Keeps a part once it is staged. Errors: its own, if it has ended before."""
        self._parts.await_staged(part)
        if not part.has_ended:
            self._written.setdefault(path, []).append(part)
            return
        self._parts.remove(part)
        self._raise_loss_behind(part.error)
        if isinstance(part.error, CommitUnknown):  # of a slot that it has put for others, who have died
            raise Unavailable(
                f"nothing of this transaction was committed, since its change of {without_secrets(path)} failed: "
                f"{part.error.message}. Try again"
            ) from part.error
        if part.error is not None:
            raise part.error

    def _write(self, path: str, part: Part[Write], write: Callable[[], CommitResult | None]) -> None:
        error: BaseException | None = None
        try:
            with next_write_is(part):
                result = write()
                if result is not None and part.is_last:
                    self.results[path] = result
        except BaseException as raised:
            error = raised
        self._parts.ended(part, error)

    def _known(self, table: object) -> str:
        path = place_of(table)
        if path not in self._storages:
            shown = ", ".join(map(without_secrets, self._storages))
            raise InvalidRequest(
                f"{without_secrets(path)} is no table of this transaction ({shown}): name it when it begins",
                option="table",
            )
        return path

    def _ensure_open(self) -> None:
        if self._state != _OPEN:
            raise InvalidRequest(f"this transaction is {self._state}: read and write inside its block")
        if self._missing is not None:
            raise self._missing

    def _end(self) -> None:
        """Ends all parts, with nothing committed that was not before."""
        self._parts.give_up()
        self._parts.await_ended()

    def _commit(self) -> None:
        try:
            self.await_staged()
            if self._isolation == SERIALIZABLE and self._written:
                self._hold_what_was_read()
        except BaseException:
            self._end()
            raise
        if not any(self._written.values()):
            self._state = _COMMITTED
            return
        home = next(one for one in self._storages.values() if one.uri == self._parts.home.table)
        decisions = Decisions(home, self._system, self._open_table)
        try:
            committed = self._parts.commit(decisions)
        except BaseException as error:
            with suppress(LakelatchError):
                self._parts.abort(decisions)
            committed = self._parts.is_committed
            if not committed or not isinstance(error, LakelatchError):
                self._end()
                raise
            _log.warning("what followed a decision failed, and it commits all the same: %s", error.message)
        has_ended = self._parts.await_ended(partial(self._forget, decisions, home) if committed else None)
        if committed is False and has_ended:
            self._forget(decisions, home)
        errors = self._parts.errors
        if committed and has_ended and not errors:
            self._state = _COMMITTED
            return
        self._raise(committed, errors)

    def _forget(self, decisions: Decisions, home: Storage) -> None:
        try:
            self._parts.forget_decision(decisions)
        except LakelatchError as error:
            _log.info("decisions stay in %s: %s", without_secrets(home.uri), error.message)

    def _raise(self, committed: bool | None, errors: Sequence[BaseException]) -> None:
        """The error of the whole, from those of its parts."""
        first, shown = errors[0] if errors else None, ", ".join(map(without_secrets, self._written))
        if committed is False:
            self._raise_loss_behind(first)
            if first is not None and not isinstance(first, CommitUnknown | TransactionEnded):
                raise first
            why = first.message if isinstance(first, LakelatchError) else "a storage or a lock did not answer in time"
            raise Unavailable(f"nothing was committed in any of {shown}: {why}. Try again") from first
        if committed:
            why = first.message if isinstance(first, LakelatchError) else f"{first or 'a storage does not answer'}"
            raise CommitUnknown(
                f"the transaction over {shown} is committed, and it may be that readers do not see it yet in each "
                f"table, until the next writer of that table shows it: {why}",
                **self._parts.doubt,
            ) from first
        if first is None or (isinstance(first, CommitUnknown) and "decision" not in first.details):
            why = f"nobody can say whether the transaction over {shown} is committed: ask lakelatch.resolve"
            raise CommitUnknown(why, **self._parts.doubt) from first
        raise first

    def _raise_loss_behind(self, error: BaseException | None) -> None:
        """Errors: the loss of a table by which another error is explained, if it may be."""
        if isinstance(error, Unavailable | TransactionEnded | CorruptTable):
            loss = self._found.loss()
            if loss is not None:
                raise loss from error

    def _hold_what_was_read(self) -> None:
        """Makes every table that was read a part, which ends the transaction if others have changed the table since."""
        moments = self._moments or {}
        for path in sorted(self._read):
            if path in self._written:
                self._written[path][0].has_read = moments[path].mark
            else:
                self.run(path, partial(self._hold_read, path))

    def _hold_read(self, path: str) -> None:
        part = part_of_thread()
        if part is None:
            raise InvariantBroken(f"the read of {without_secrets(path)} is no part of its transaction")
        with self._manager_of(path) as manager:
            manager.recover_before_write()
            hold_read(manager, part, self.mark_of(path))

    def _manager_of(self, path: str) -> AbstractContextManager[TransactionManager]:
        """The manager of a table that was only read."""
        own = merged(getattr(self._handles.get(path), "_options", None), self._options)
        storage = self._storages[path]
        return open_manager(storage, Call(own).services().manager, self._system, config=load_table_config(storage))
