"""A table as Spark users hold it: reads, changes and table services."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any

from lakelatch.engine import calls as engine_calls
from lakelatch.engine.calls import verify
from lakelatch.engine.changes.clauses import check_set, chooses_by_order, operation_of_overwrite, refuse_times
from lakelatch.engine.changes.inserts import policy_of
from lakelatch.engine.create import create
from lakelatch.engine.options.calls.arguments import Options, Time, instant_of, merged, moment, reading, window
from lakelatch.engine.options.calls.registry import Call
from lakelatch.engine.options.write import OPERATION, ensure_has_key
from lakelatch.engine.read.explanation import ReadExplanation, explain
from lakelatch.engine.table.history import TableDetail, detail_of, last_commit_until, shown_table
from lakelatch.engine.table.opening import open_existing_storage, open_table
from lakelatch.engine.table.table import OpenedTable
from lakelatch.errors import InvalidRequest
from lakelatch.spark import calls
from lakelatch.spark.history import conflicts_of, history_of
from lakelatch.spark.read.frames_out import read, read_images
from lakelatch.spark.read.view import create_view
from lakelatch.spark.session.columns import Expression, analysed, column_of, frame_of, schema_of
from lakelatch.spark.session.spark_types import to_arrow, to_spark
from lakelatch.spark.write.changed_rows import changed_rows, changes_partition, kept_apart, replacing_rows
from lakelatch.spark.write.frames_in import write_as
from lakelatch.spark.write.merge import Merge, MergedTable, named_as
from lakelatch.storage.uris import open_storage, without_secrets
from lakelatch.timeline.actions import DELETE, INSERT, UPSERT
from lakelatch.timeline.properties_file import is_table
from lakelatch.transactions.base.settings import MODE_OPTION, OPTIMISTIC, RETRIES_OPTION

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from lakelatch.engine.run.report import MaintenanceReport
    from lakelatch.engine.run.result import CommitResult
    from lakelatch.engine.services.removals.cleaning import CleanResult
    from lakelatch.engine.services.restoring import Undone
    from lakelatch.engine.services.verifying import Verification


_RETRIES = "10"


class Table:
    """One table, held by a Spark session. It keeps nothing but its place and its options: all else is read when asked.

    Every change is one commit. `upsert` and `overwrite` of a frame go under the concurrency mode of the options. What
    reads before it writes (`insert`, `update`, `delete`, `merge`, `overwrite` of a condition) is an optimistic
    transaction, which reads again after a conflict, ten times unless the options say otherwise. In a table with an
    ordering field a change counts if its ordering value is not less than that of the row that is there.

    `options` are those of `write` and `read` (lock provider, storage, services, ...); each method takes more.
    """

    def __init__(self, spark: SparkSession, path: str | PathLike[str], options: Options | None = None) -> None:
        self.spark = spark
        self.path = fspath(path)
        self._options = merged(options)

    def __repr__(self) -> str:
        return f"Table({without_secrets(self.path)!r})"

    def _repr_html_(self) -> str:
        return shown_table(self.path, self._open)

    @classmethod
    def for_path(cls, spark: SparkSession, path: str | PathLike[str], options: Options | None = None) -> Table:
        """The table at a path. Errors: `InvalidRequest` if there is none."""
        table = cls(spark, path, options)
        table._open()
        return table

    @classmethod
    def is_table(cls, path: str | PathLike[str], options: Options | None = None) -> bool:
        """Whether there is a table at a path."""
        return is_table(open_storage(fspath(path), Call(options).read().storage))

    @classmethod
    def create(
        cls,
        spark: SparkSession,
        path: str | PathLike[str],
        schema: StructType | pa.Schema | str,
        *,
        key: str | Iterable[str] | None,
        ordering: str | None = None,
        partition_by: str | Iterable[str] = (),
        buckets: int | None = None,
        if_exists: str = "error",
        options: Options | None = None,
    ) -> Table:
        """Makes an empty table; what is fixed for good is said by name.

        `key` names the columns that identify a row within its partition, and `ordering` the one whose greater value
        wins. `if_exists` is `error` or `ignore`; a table that is there must agree with what is said here. Errors:
        `InvalidRequest`, with nothing made.
        """
        table = cls(spark, path, options)
        create(
            table.path,
            lambda: to_arrow(schema_of(schema)),
            table._options,
            key=key,
            ordering=ordering,
            partition_by=partition_by,
            buckets=buckets,
            if_exists=if_exists,
        )
        return table

    # -- reading ------------------------------------------------------------------------------------------------------

    def to_df(
        self,
        as_of: Time | None = None,
        columns: Iterable[str] | None = None,
        meta_columns: bool | None = None,
        where: Expression | None = None,
    ) -> DataFrame:
        """The rows of one moment, fixed when this is called: now, or as of a completion time.

        `meta_columns` adds Hudi's five, as the option `lakelatch.read.meta.columns` does for all reads. With `where`,
        those that fulfil a condition: as SQL text it says as well which partitions, buckets and parts of files need not
        be read (see `lakelatch.read`). Errors: `InvalidRequest` for a time that is still to come, and for columns that
        are not there.
        """
        return self._read(moment(as_of), columns, meta_columns, where)

    def explain(
        self, where: Expression | None = None, as_of: Time | None = None, columns: Iterable[str] | None = None
    ) -> ReadExplanation:
        """How `to_df` with these arguments would read: the slices it reads, skips and merges. Opens no data file.

        Errors: as for `to_df`.
        """
        return explain(self.path, self._reading(moment(as_of), columns, None), where)

    def create_view(
        self,
        name: str,
        as_of: Time | None = None,
        columns: Iterable[str] | None = None,
        meta_columns: bool | None = None,
        tasks: int | None = None,
    ) -> None:
        """Makes or replaces the temporary view `name` (or `global_temp.name`), which follows the table.

        Each query has the rows of one moment for each place where it names the view: that at which Spark analyses it,
        or `as_of`. It is read by `tasks` tasks, by default one for each file slice that there is now. Its columns stay
        as they are. Errors: `InvalidRequest`.
        """
        options = self._reading(moment(as_of), columns, meta_columns)
        create_view(self.spark, name, self.path, options, tasks)

    def changes(
        self,
        after: Time,
        until: Time | None = None,
        columns: Iterable[str] | None = None,
        meta_columns: bool | None = None,
        images: bool = False,
    ) -> DataFrame:
        """The rows that were written by what completed after a time and until another, as they are at its end.

        With `images` one row for each commit and key that it changed: `op` is `i`, `u` or `d`, `ts_ms` the commit's
        requested time as Hudi has it, and `before` and `after` are structs of the table's columns as they are at the
        window's end. No property of the table is needed. Errors: `InvalidRequest` for a window that needs files which
        a clean has removed.
        """
        if images:
            if columns is not None or meta_columns:
                raise InvalidRequest("images=True goes without columns and meta_columns: select from the images")
            return read_images(
                self.spark, self.path, Call({**self._options, **self._window(after, until)}).read(), True
            )
        return self._read(self._window(after, until), columns, meta_columns)

    @property
    def schema(self) -> StructType:
        """The table's columns, without meta columns, as Spark reads them."""
        return to_spark(self._open().schema)

    def history(self, limit: int | None = 100) -> DataFrame:
        """The completed instants of the active timeline, newest first, `limit` at most: one row each.

        `operation` is what was done (UPSERT, UPDATE, MERGE, OVERWRITE of a condition, ...). A rollback or restore says
        which instants it has `undone`, and those of a restore follow it, with no completion and `undone_by`.
        """
        return history_of(self.spark, self._open(), limit)

    def conflicts(self, limit: int | None = 100) -> DataFrame:
        """The writes that lost to others lately, newest first: to whom, and what was thrown away."""
        return conflicts_of(self.spark, self._open(), limit)

    def detail(self) -> TableDetail:
        """The settings that were fixed when the table was made."""
        return detail_of(self._open())

    # -- changes ------------------------------------------------------------------------------------------------------

    def upsert(self, data: Any, options: Options | None = None) -> CommitResult:
        """Writes rows; those whose keys are there take their place.

        Rows in which `_hoodie_is_deleted` is true delete theirs. Errors: those of `write`.
        """
        return self._write(frame_of(self.spark, data), UPSERT, options)

    def insert(self, data: Any, if_exists: str = "error", options: Options | None = None) -> CommitResult:
        """Writes rows whose keys are new: not in the table, and once in the frame. Of others `if_exists` says what
        happens.

        `error` refuses all of the rows (`InvalidRequest`, with a key), `skip` leaves out those that are there, and
        counts them in the result (`rows_skipped`). Of several rows with one new key it keeps the one with the greatest
        ordering value, and of several such rows the one whose other columns, in the frame's order, are the greatest.
        """
        policy = policy_of(if_exists)
        frame, _ = frame_of(self.spark, data), self._target("an insert")
        return self._change(lambda: frame, INSERT, {**merged(options), **policy})

    def update(
        self, condition: Expression | None, set: Mapping[str, Expression], options: Options | None = None
    ) -> CommitResult:
        """Gives columns other values in the rows where a condition holds, or in all of them for None.

        Values are SQL text or columns, and speak of the row as it was. Errors: `InvalidRequest` for a column that is
        not there or of the record key.
        """
        known = self._target(by_key="an update")
        check_set(set, known.names, known.keys)
        if not set.keys().isdisjoint(known.partition_fields):
            self._target("an update of a partition field")

        def rows() -> DataFrame:
            from pyspark.sql import functions

            target = self._target()  # a column that others have added by this try keeps its values
            frame = self._where(condition)
            old = {field.name: frame[field.name] for field in target.schema}
            new = {**old, **{name: column_of(value) for name, value in set.items()}}
            if set.keys().isdisjoint(target.partition_fields):
                return frame.select(*[new[one.name].cast(one.dataType).alias(one.name) for one in target.schema])
            never = functions.lit(False)
            moved = changes_partition(target.schema, old, new, target.partition_fields)
            frame, new = kept_apart(frame, new, target, self.to_df(meta_columns=False), moved=moved)
            return changed_rows(frame, target.schema, old, new, never, ~never, target.partition_fields)

        return self._change(lambda: analysed(rows, "the update"), UPSERT, options, "update")

    def delete(self, condition: Expression, options: Options | None = None) -> CommitResult:
        """Deletes the rows where a condition holds; `"true"` means all of them."""
        target = self._target(by_key="a deletion of rows")
        ordering = self._open().config.ordering_field
        names = [*target.identity, *([ordering] if ordering and ordering not in target.identity else [])]
        return self._change(
            lambda: analysed(lambda: self._where(condition).select(*names), "the deletion"), DELETE, options
        )

    def merge(self, source: Any, condition: Expression | None = None, options: Options | None = None) -> Merge:
        """Begins a merge, which `execute()` ends: see `Merge`.

        Rows belong together that have the same record key and partition, or for which the condition holds.
        """
        target = self._target("a merge", by_key="a merge")
        return Merge(
            target,
            named_as(frame_of(self.spark, source), target.names),
            condition,
            self._target,
            lambda: self.to_df(meta_columns=False),
            lambda rows: self._change(rows, UPSERT, options, "merge"),
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
        frame = frame_of(self.spark, data)
        if condition is None:
            return self._write(frame, operation, options)
        return self._overwrite_where(lambda: frame, condition, options)

    def _overwrite_where(
        self, rows: Callable[[], DataFrame], condition: Expression, options: Options | None
    ) -> CommitResult:
        self._target(by_key="the overwrite of a condition")

        def replacing() -> DataFrame:
            target, there = self._target("the overwrite of a condition"), self.to_df(meta_columns=False)
            return replacing_rows(rows(), there, condition, target)

        return self._change(lambda: analysed(replacing, "the overwrite"), UPSERT, options, "overwrite")

    def restore(self, as_of: Time, options: Options | None = None) -> Undone:
        """Takes the table back to the last write that had completed by then; see `lakelatch.restore`."""
        to = last_commit_until(self._open(), instant_of(as_of))
        return engine_calls.restore(self.path, to, self._with(options))

    # -- services -----------------------------------------------------------------------------------------------------

    def compact(self, options: Options | None = None) -> list[CommitResult]:
        """See `lakelatch.compact`."""
        return calls.compact(self.spark, self.path, self._with(options))

    def cluster(self, options: Options | None = None) -> list[CommitResult]:
        """See `lakelatch.cluster`."""
        return calls.cluster(self.spark, self.path, self._with(options))

    def clean(self, options: Options | None = None) -> list[CleanResult]:
        """See `lakelatch.clean`."""
        return calls.clean(self.path, self._with(options), spark=self.spark)

    def verify(self, deep: bool = False) -> Verification:
        """Looks for files that are missing, damaged or superfluous; see `lakelatch.verify`."""
        return verify(self.path, self._options, deep)

    def maintain(self, options: Options | None = None) -> MaintenanceReport:
        """Does what is due; see `lakelatch.maintain`."""
        return calls.maintain(self.spark, self.path, self._with(options))

    # -- what these are made of ---------------------------------------------------------------------------------------

    def _with(self, options: Options | None) -> dict[str, object]:
        return merged(self._options, options)

    def _open(self) -> OpenedTable:
        return open_table(open_existing_storage(self.path, self._options))

    def _target(self, what: str = "", by_key: str = "") -> MergedTable:
        """The table as a change sees it.

        Errors: `InvalidRequest` for `what` compares values of times with folders', and what finds rows `by_key` in a
        table without one.
        """
        opened = self._open()
        config = opened.config
        if by_key:
            ensure_has_key(config, by_key)
        if what:
            refuse_times(config, what)
        return MergedTable(
            to_spark(opened.schema), config.record_key_fields, config.partition_fields, chooses_by_order(config)
        )

    def _read(
        self, more: Options, columns: Iterable[str] | None, meta_columns: bool | None, where: Expression | None = None
    ) -> DataFrame:
        return read(self.spark, self.path, self._reading(more, columns, meta_columns), where)

    def _window(self, after: Time, until: Time | None) -> Options:
        return window(after, until)

    def _reading(self, more: Options, columns: Iterable[str] | None, meta_columns: bool | None) -> dict[str, object]:
        return reading({**self._options, **more}, columns, meta_columns)

    def _where(self, condition: Expression | None) -> DataFrame:
        return self.to_df(meta_columns=False, where=condition)

    def _write(
        self, frame: DataFrame | Callable[[], DataFrame], operation: str, options: Options | None, called: str = ""
    ) -> CommitResult:
        return write_as(called, frame, self.path, {**self._with(options), OPERATION: operation})

    def _change(
        self, rows: Callable[[], DataFrame], operation: str, options: Options | None, called: str = ""
    ) -> CommitResult:
        """One that reads first: `rows` is called inside each try. `called` is its name, if Hudi has none."""
        own: dict[str, object] = {RETRIES_OPTION: _RETRIES, **self._options, MODE_OPTION: OPTIMISTIC}
        return self._write(rows, operation, {**own, **(options or {})}, called)
