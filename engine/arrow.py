"""A table without Spark: rows are read, changed and written as Arrow, by the same protocol as all other writers.

For services that ingest small batches, and for DuckDB, Polars and pandas, which speak Arrow. All work is done in this
process, which holds the rows of a write in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from os import PathLike, fspath
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakelatch.engine import calls
from lakelatch.engine.changes.changed import Changes, flagged, replacing, with_values
from lakelatch.engine.changes.clauses import check_set, operation_of_overwrite, refuse_times
from lakelatch.engine.changes.identity import Identity
from lakelatch.engine.changes.inserts import config_of_new, policy_of, with_new_keys
from lakelatch.engine.changes.inserts import refuse_times as refuse_inserts_by_time
from lakelatch.engine.changes.merge import Merge, MergedTable
from lakelatch.engine.changes.rows import ArrowRows as ArrowRows
from lakelatch.engine.changes.rows import ChangedRows, table_of
from lakelatch.engine.create import create
from lakelatch.engine.options.calls.arguments import Options, Time, instant_of, merged, moment, reading, window
from lakelatch.engine.options.calls.registry import Call
from lakelatch.engine.options.write import OPERATION, UPDATE, WriteOptions, ensure_has_key
from lakelatch.engine.read.explanation import ReadExplanation, explain
from lakelatch.engine.read.filtered import FilteredRead
from lakelatch.engine.read.rows.images import plan_images
from lakelatch.engine.run.executor import HERE
from lakelatch.engine.run.listing import Listing
from lakelatch.engine.run.report import MaintenanceReport
from lakelatch.engine.run.result import CommitResult
from lakelatch.engine.services.removals.cleaning import CleanResult
from lakelatch.engine.services.restoring import Undone
from lakelatch.engine.services.verifying import Verification
from lakelatch.engine.sql.expressions import Expression, check_condition
from lakelatch.engine.sql.types import schema_of
from lakelatch.engine.staying_open import StaysOpen
from lakelatch.engine.table.history import (
    TableDetail,
    conflict_listing,
    detail_of,
    history_listing,
    last_commit_until,
    shown_table,
)
from lakelatch.engine.table.opening import open_place, open_table
from lakelatch.engine.table.table import OpenedTable
from lakelatch.engine.writing import Rows, write_rows
from lakelatch.errors import InvalidRequest
from lakelatch.format.merge.conditions import Condition
from lakelatch.storage.uris import open_storage, without_secrets
from lakelatch.system import REAL_SYSTEM, System
from lakelatch.timeline.actions import DELETE, INSERT, UPSERT
from lakelatch.timeline.properties_file import is_table
from lakelatch.timeline.staged import StagedStorage
from lakelatch.transactions.base.settings import MODE_OPTION, OPTIMISTIC, RETRIES_OPTION

_RETRIES = "10"


def open(path: str | PathLike[str], options: Options | None = None) -> ArrowTable:
    """Opens the table at a path. Errors: `InvalidRequest` if there is none."""
    table = ArrowTable(path, options)
    _ = table.schema
    return table


class ArrowTable(StaysOpen):
    """One table, without Spark; its methods are those of `Table`, and each change is one commit.

    Rows come as whatever speaks Arrow (`__arrow_c_stream__`, `__arrow_c_array__`): frames of pandas and Polars, tables
    and readers of pyarrow, relations of DuckDB. The table itself is read by all of these. Conditions and values are SQL
    text, or expressions of `pyarrow.compute`.

    `upsert`, `delete` of keys and `overwrite` of rows go under the concurrency mode of the options. What reads before
    it writes (`insert`, `update`, `merge`, and `delete` and `overwrite` of a condition) is an optimistic transaction,
    which reads again after a conflict, ten times unless the options say otherwise. In a table with an ordering field a
    change counts if its ordering value is not less than that of the row that is there.
    """

    def __init__(self, path: str | PathLike[str], options: Options | None = None, system: System = REAL_SYSTEM) -> None:
        self.path = fspath(path)
        self._options = merged(options)
        self._system = system

    def __repr__(self) -> str:
        return f"ArrowTable({without_secrets(self.path)!r})"

    def _repr_html_(self) -> str:
        return shown_table(self.path, self._open)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """The rows of now, as `to_batches` has them: so other libraries take the table itself."""
        return self.to_batches().__arrow_c_stream__(requested_schema)

    @classmethod
    def is_table(cls, path: str | PathLike[str], options: Options | None = None) -> bool:
        """Whether there is a table at a path."""
        return is_table(open_storage(fspath(path), Call(options).read().storage))

    @classmethod
    def create(
        cls,
        path: str | PathLike[str],
        schema: pa.Schema | str,
        *,
        key: str | Iterable[str] | None,
        ordering: str | None = None,
        partition_by: str | Iterable[str] = (),
        buckets: int | None = None,
        if_exists: str = "error",
        options: Options | None = None,
    ) -> ArrowTable:
        """Makes an empty table; what is fixed for good is said by name.

        `schema` is one of Arrow, or text such as `id long, v string`. `key` names the columns that identify a row
        within its partition, and `ordering` the one whose greater value wins. `if_exists` is `error` or `ignore`; a
        table that is there must agree with what is said here. Errors: `InvalidRequest`, with nothing made.
        """
        table = cls(path, options)
        create(
            table.path,
            lambda: table_of(schema_of(schema).empty_table()).schema,
            table._options,
            key=key,
            ordering=ordering,
            partition_by=partition_by,
            buckets=buckets,
            if_exists=if_exists,
        )
        return table

    # -- reading ------------------------------------------------------------------------------------------------------

    @property
    def schema(self) -> pa.Schema:
        """The table's columns, without meta columns."""
        return self._open().schema

    def to_arrow(
        self,
        as_of: Time | None = None,
        columns: Iterable[str] | None = None,
        meta_columns: bool | None = None,
        where: Expression | None = None,
    ) -> pa.Table:
        """The rows of one moment, in memory: now, or as of a completion time. See `to_batches`."""
        return self.to_batches(as_of, columns, meta_columns, where).read_all()

    def to_batches(
        self,
        as_of: Time | None = None,
        columns: Iterable[str] | None = None,
        meta_columns: bool | None = None,
        where: Expression | None = None,
    ) -> pa.RecordBatchReader:
        """The same as a stream, which holds one file slice at a time in memory. Its moment is fixed by this call.

        With `where`, the rows that fulfil a condition: as SQL text it says as well which partitions, buckets and parts
        of files need not be read. Errors: `InvalidRequest` for a time that is still to come, for columns that are not
        there, and for a condition that is not understood.
        """
        return self._read(moment(as_of), columns, meta_columns, where)

    def explain(
        self, where: Expression | None = None, as_of: Time | None = None, columns: Iterable[str] | None = None
    ) -> ReadExplanation:
        """How `to_arrow` with these arguments would read: the slices it reads, skips and merges. Opens no data file."""
        return explain(self.path, reading({**self._options, **moment(as_of)}, columns, None), where)

    def changes(
        self,
        after: Time,
        until: Time | None = None,
        columns: Iterable[str] | None = None,
        meta_columns: bool | None = None,
        images: bool = False,
    ) -> pa.RecordBatchReader:
        """The rows written by commits that completed after one time and until another, as they are at its end.

        With `images` one row for each commit and key that it changed: `op` is `i`, `u` or `d`, `ts_ms` the commit's
        requested time as Hudi has it, and `before` and `after` are structs of the columns as they are at the window's
        end. Both are streams, one file slice at a time. Errors: `InvalidRequest` if a clean has removed files of it.
        """
        if not images:
            return self._read(self._window(after, until), columns, meta_columns)
        if columns is not None or meta_columns:
            raise InvalidRequest("images=True goes without columns and meta_columns: select from the images")
        asked = Call({**self._options, **self._window(after, until)}).read()
        storage = open_storage(self.path, asked.storage)
        plan = plan_images(storage, asked, self._system, of_any_table=True).with_structs()
        batches = (batch for change in plan.slices for batch in plan.read(change))
        return pa.RecordBatchReader.from_batches(plan.schema, (batch.cast(plan.schema) for batch in batches))

    def history(self, limit: int | None = 100) -> Listing:
        """The completed instants of the active timeline, newest first, `limit` at most: one row each.

        `operation` is what was done (UPSERT, UPDATE, MERGE, OVERWRITE of a condition, ...). A rollback or restore says
        which instants it has `undone`, and those of a restore follow it, with no completion and `undone_by`.
        """
        return history_listing(self._open(), limit)

    def conflicts(self, limit: int | None = 100) -> Listing:
        """The writes that lost to others lately, newest first: to whom, and what was thrown away."""
        return conflict_listing(self._open(), limit)

    def detail(self) -> TableDetail:
        """The settings that were fixed when the table was made."""
        return detail_of(self._open())

    # -- changes ------------------------------------------------------------------------------------------------------

    def upsert(self, data: Any, options: Options | None = None) -> CommitResult:
        """Writes rows; they replace rows with the same keys. The first write makes the table.

        Of a pandas frame named levels of its index become columns, and an index without a name is dropped. Rows in
        which `_hoodie_is_deleted` is true delete the rows with their keys. Errors: those of `write`.
        """
        return self._write(data, UPSERT, options)

    def insert(self, data: Any, if_exists: str = "error", options: Options | None = None) -> CommitResult:
        """Writes rows whose keys are new: not in the table, and once in the data. Of others `if_exists` says what
        happens.

        `error` refuses all of the rows (`InvalidRequest`, with a key), `skip` leaves out those that are there, and
        counts them in the result (`rows_skipped`). Of several rows with one new key it keeps the one with the greatest
        ordering value, and of several such rows the one whose other columns, in their order, are the greatest.
        """
        return self._write(data, INSERT, self._optimistic({**merged(options), **policy_of(if_exists)}))

    def update(
        self, condition: Expression | None, set: Mapping[str, Expression], options: Options | None = None
    ) -> CommitResult:
        """Gives columns other values in the rows where a condition holds, or in all of them for None.

        Values speak of the row as it was. Errors: `InvalidRequest` for a column that is not there or of the record key.
        """
        opened = self._open()
        ensure_has_key(opened.config, "an update")
        check_set(set, opened.schema.names, opened.config.record_key_fields)
        if not set.keys().isdisjoint(opened.config.partition_fields):
            refuse_times(opened.config, "an update of a partition field")
        check_condition(condition, opened.schema)
        with_values(opened.schema.empty_table(), set, opened.schema.empty_table())

        def rows() -> pa.Table:
            known = self._open()  # a column that others have added by this try keeps its values
            made = Changes(known.schema, known.config, self._parts_that_may_fulfil)
            for old in self._parts(known.schema.names, condition):
                made.change(old, with_values(old, set, old))
            return made.rows()

        return self._change(flagged(opened.schema), rows, UPSERT, options, "update")

    def delete(self, condition: Any, options: Options | None = None) -> CommitResult:
        """Deletes the rows where a condition holds, or those with the keys of other rows; `"true"` means all of them.

        Rows with keys have the columns of the key, the partition and, in a table that has one, the ordering; whether
        the table has them is not looked up.
        """
        if not isinstance(condition, str | pc.Expression):
            return self._write(condition, DELETE, options)
        opened = self._open()
        ensure_has_key(opened.config, "a deletion of rows")
        check_condition(condition, opened.schema)
        ordering = opened.config.ordering_field
        names = list(dict.fromkeys([*Identity(opened.config).names, *([ordering] if ordering else [])]))
        schema = pa.schema([opened.schema.field(name) for name in names])

        def rows() -> pa.Table:
            return pa.concat_tables([schema.empty_table(), *self._parts(names, condition)])

        return self._change(schema, rows, DELETE, options)

    def merge(self, source: Any, condition: str | None = None, options: Options | None = None) -> Merge:
        """Begins a merge, which `execute()` ends: see `Merge`.

        Rows belong together that have the same record key and partition, or for which the condition holds.
        """
        if condition is not None and not isinstance(condition, str):
            raise InvalidRequest(
                f"condition={condition}: give SQL text, as in 'target.id = source.id'", option="condition"
            )
        given = table_of(source)
        opened = self._open()
        ensure_has_key(opened.config, "a merge")
        refuse_times(opened.config, "a merge")

        def look() -> MergedTable:
            known = self._open()
            return MergedTable(known.schema, known.config)

        return Merge(
            MergedTable(opened.schema, opened.config),
            given,
            condition,
            look,
            self._parts_that_may_fulfil,
            lambda schema, rows: self._change(schema, rows, UPSERT, options, "merge"),
        )

    def overwrite(
        self,
        data: Any,
        condition: Expression | None = None,
        partitions: str = "all",
        options: Options | None = None,
    ) -> CommitResult:
        """Puts rows in the place of what is there: in the whole table, in the partitions that they touch, or in the
        rows where a condition holds, which it then has to do for all new ones as well.

        `partitions` is `all` or `touched`.
        """
        operation = operation_of_overwrite(partitions, condition)
        if condition is None:
            return self._write(data, operation, options)
        given = table_of(data)

        def rows() -> pa.Table:
            known = self._open()
            return replacing(given, self._parts(known.schema.names, condition), condition, known.config, known.schema)

        opened = self._open()
        ensure_has_key(opened.config, "the overwrite of a condition")
        refuse_times(opened.config, "the overwrite of a condition")
        check_condition(condition, opened.schema)
        return self._change(flagged(given.schema), rows, UPSERT, options, "overwrite")

    def restore(self, as_of: Time, options: Options | None = None) -> Undone:
        """Takes the table back to the last write that had completed by then; see `lakelatch.restore`."""
        to = last_commit_until(self._open(), instant_of(as_of))
        return calls.restore(self.path, to, merged(self._options, options), self._system)

    # -- services -----------------------------------------------------------------------------------------------------

    def compact(self, options: Options | None = None) -> list[CommitResult]:
        """See `lakelatch.compact`."""
        return calls.compact_on(HERE, self.path, merged(self._options, options), self._system)

    def cluster(self, options: Options | None = None) -> list[CommitResult]:
        """See `lakelatch.cluster`."""
        return calls.cluster_on(HERE, self.path, merged(self._options, options), self._system)

    def clean(self, options: Options | None = None) -> list[CleanResult]:
        """See `lakelatch.clean`."""
        return calls.clean_on(HERE, self.path, merged(self._options, options), self._system)

    def verify(self, deep: bool = False) -> Verification:
        """Looks for files that are missing, damaged or superfluous; see `lakelatch.verify`."""
        return calls.verify(self.path, self._options, deep)

    def maintain(self, options: Options | None = None) -> MaintenanceReport:
        """Does what is due; see `lakelatch.maintain`."""
        return calls.maintain_on(HERE, self.path, merged(self._options, options), self._system)

    # -- what these are made of ---------------------------------------------------------------------------------------

    def _open(self) -> OpenedTable:
        return open_table(open_place(self.path, self._options))

    def _window(self, after: Time, until: Time | None) -> Options:
        return window(after, until)

    def _now(self) -> Options:
        """The options of a read of now; a transaction over several tables reads its own moment."""
        return {}

    def _staged(self) -> StagedStorage | None:
        """What a transaction over several tables has written before it reads; None outside of one."""
        return None

    def _read(
        self, more: Options, columns: Iterable[str] | None, meta_columns: bool | None, where: Expression | None = None
    ) -> pa.RecordBatchReader:
        options = reading({**self._options, **(more or self._now())}, columns, meta_columns)
        staged = None if more else self._staged()
        return FilteredRead.of(self.path, options, where, system=self._system, staged=staged).reader()

    def _parts(
        self, names: Iterable[str], where: Expression | None, conditions: tuple[Condition, ...] = ()
    ) -> Iterator[pa.Table]:
        """Columns of the rows of now that fulfil a condition, part by part; some may not fulfil `conditions`."""
        options = reading({**self._options, **self._now()}, names, False)
        return FilteredRead.of(self.path, options, where, conditions, self._system, self._staged()).parts()

    def _parts_that_may_fulfil(self, names: Iterable[str], conditions: tuple[Condition, ...]) -> Iterator[pa.Table]:
        return self._parts(names, None, conditions)

    def _write(self, data: Any, operation: str, options: Options | None) -> CommitResult:
        def rows(parsed: WriteOptions) -> Rows:
            given = table_of(data)
            if parsed.known_keys == UPDATE:
                return ArrowRows(given)
            return ChangedRows(given.schema, lambda: self._with_new_keys(given, parsed))

        own = {**merged(self._options, options), OPERATION: operation}
        return write_rows(rows, self.path, own, self._system, stays_open=self._stays_open)

    def _with_new_keys(self, rows: pa.Table, options: WriteOptions) -> tuple[pa.Table, int]:
        storage = open_storage(self.path, options.manager.storage)
        if not is_table(storage):
            return with_new_keys(rows, config_of_new(options, self.path), None, options.known_keys)
        config = open_table(storage).config
        refuse_inserts_by_time(options, config.name, () if config.appends_only else config.time_fields)
        return with_new_keys(rows, config, self._parts_that_may_fulfil, options.known_keys)

    def _change(
        self, schema: pa.Schema, rows: Callable[[], pa.Table], operation: str, options: Options | None, called: str = ""
    ) -> CommitResult:
        """One that reads first: `rows` is called inside each try. `called` is its name, if Hudi has none."""
        made = ChangedRows(schema, lambda: (rows(), 0))
        own = {**merged(self._optimistic(options)), OPERATION: operation}
        return write_rows(lambda _: made, self.path, own, self._system, called)

    def _optimistic(self, options: Options | None) -> dict[str, object]:
        return merged({RETRIES_OPTION: _RETRIES, **self._options, MODE_OPTION: OPTIMISTIC}, options)
