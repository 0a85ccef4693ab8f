"""A table without Spark: rows are read and written as Arrow, by the same protocol as all other writers.

For services that ingest small batches, and for DuckDB, Polars and pandas, which speak Arrow. All work is done in this
process, which holds the rows of a write in memory.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from os import PathLike, fspath
from typing import Any

import pyarrow as pa

from lakelatch.engine.options.arguments import (
    Options,
    Time,
    is_pandas,
    merged,
    moment,
    reading,
    window,
    with_named_index,
    without_index,
)
from lakelatch.engine.options.registry import Call
from lakelatch.engine.options.write import OPERATION, WriteOptions, refuse_known_keys
from lakelatch.engine.read.plan import plan_read_of
from lakelatch.engine.run.executor import HERE, Executor
from lakelatch.engine.run.file_report import FileReport
from lakelatch.engine.run.result import CommitResult
from lakelatch.engine.table.history import shown_table
from lakelatch.engine.table.opening import open_place, open_table
from lakelatch.engine.write.task import WriteTask, few_partitions
from lakelatch.engine.writing import write_rows
from lakelatch.errors import InvalidRequest
from lakelatch.format.avro import META_COLUMNS
from lakelatch.storage.uris import without_secrets
from lakelatch.system import REAL_SYSTEM, System
from lakelatch.timeline.actions import DELETE, UPSERT
from lakelatch.timeline.table_config import TableConfig
from lakelatch.transactions.transaction import Transaction


def open(path: str | PathLike[str], options: Options | None = None) -> ArrowTable:
    """Opens the table at a path. Errors: `InvalidRequest` if there is none."""
    table = ArrowTable(path, options)
    _ = table.schema
    return table


class ArrowTable:
    """One table, without Spark; its methods are those of `Table`, and each change is one commit."""

    def __init__(self, path: str | PathLike[str], options: Options | None = None, system: System = REAL_SYSTEM) -> None:
        self.path = fspath(path)
        self._options = merged(options)
        self._system = system

    def __repr__(self) -> str:
        return f"ArrowTable({without_secrets(self.path)!r})"

    def _repr_html_(self) -> str:
        return shown_table(self.path, lambda: open_table(open_place(self.path, self._options)))

    @property
    def schema(self) -> pa.Schema:
        """The table's columns, without meta columns."""
        return open_table(open_place(self.path, self._options)).schema

    def to_arrow(
        self, as_of: Time | None = None, columns: Iterable[str] | None = None, meta_columns: bool | None = None
    ) -> pa.Table:
        """The rows of one moment: now, or as of a completion time."""
        return self.to_batches(as_of, columns, meta_columns).read_all()

    def to_batches(
        self, as_of: Time | None = None, columns: Iterable[str] | None = None, meta_columns: bool | None = None
    ) -> pa.RecordBatchReader:
        """The same as a stream, which holds one file slice at a time in memory."""
        return self._read(moment(as_of), columns, meta_columns)

    def changes(
        self,
        after: Time,
        until: Time | None = None,
        columns: Iterable[str] | None = None,
        meta_columns: bool | None = None,
    ) -> pa.RecordBatchReader:
        """The rows written by commits that completed after one time and until another, as they are at its end."""
        return self._read(window(after, until), columns, meta_columns)

    def upsert(self, data: Any, options: Options | None = None) -> CommitResult:
        """Writes rows; they replace rows with the same keys. The first write makes the table.

        `data` may be a pandas frame; named levels of its index become columns, and an index without a name is dropped.
        Rows in which `_hoodie_is_deleted` is true delete the rows with their keys. Errors: those of `write`.
        """
        return self._write(data, UPSERT, options)

    def delete(self, keys: Any, options: Options | None = None) -> CommitResult:
        """Deletes the rows with these keys; `keys` has the columns of the key, the partition and the ordering."""
        return self._write(keys, DELETE, options)

    def _read(self, more: Options, columns: Iterable[str] | None, meta_columns: bool | None) -> pa.RecordBatchReader:
        call = Call(reading({**self._options, **more}, columns, meta_columns))
        plan = plan_read_of(open_table(open_place(self.path, call)), call.read(), self._system)

        def batches() -> Iterator[pa.RecordBatch]:
            for file_slice in plan.slices:
                for batch in plan.read(file_slice):
                    yield batch.cast(plan.schema)

        return pa.RecordBatchReader.from_batches(plan.schema, batches())

    def _write(self, data: Any, operation: str, options: Options | None) -> CommitResult:
        own = {**merged(self._options, options), OPERATION: operation}

        def rows(parsed: WriteOptions) -> ArrowRows:
            refuse_known_keys(parsed, "an Arrow table")
            return ArrowRows.of(data)

        return write_rows(rows, self.path, own, self._system)


@dataclass(frozen=True)
class ArrowRows:
    """Rows that are written in this process."""

    data: pa.Table
    read_anew: bool = False
    skipped: int = 0

    @classmethod
    def of(cls, data: object) -> ArrowRows:
        """Errors: `InvalidRequest` if `data` is no table, batch or frame, or has a type that is not stored."""
        table = pa.Table.from_batches([data]) if isinstance(data, pa.RecordBatch) else data
        if is_pandas(table):
            table = _of_pandas(table)
        if not isinstance(table, pa.Table):
            raise InvalidRequest(
                f"a {type(data).__module__}.{type(data).__qualname__} is no table of Arrow, nor a frame of "
                "pandas: one is made by frame.to_arrow() of Polars, relation.to_arrow_table() of DuckDB"
            )
        table = without_index(table)
        table = table.drop_columns([name for name in table.column_names if name in META_COLUMNS])
        stored = pa.schema([pa.field(field.name, _stored(field.type)) for field in table.schema])
        try:
            return cls(table if table.schema.equals(stored, check_metadata=True) else table.cast(stored))
        except pa.ArrowException as error:
            raise InvalidRequest(f"a value cannot be stored: {error}") from error

    @property
    def schema(self) -> pa.Schema:
        return self.data.schema

    def use_names_of(self, table: pa.Schema) -> None:
        """Arrow's names have their case."""

    def are_here(self, options: WriteOptions) -> bool:
        return True

    def partitions(self, config: TableConfig) -> Collection[str]:
        return few_partitions(self.data, config)

    def begin(self) -> None:
        """Nothing to read."""

    def write(self, task: WriteTask, options: WriteOptions, transaction: Transaction) -> list[FileReport]:
        return replace(task, own=transaction.own_files).write_here(self.data.to_batches())

    @property
    def executor(self) -> Executor:
        return HERE


def _of_pandas(frame: Any) -> pa.Table:
    try:
        return pa.Table.from_pandas(with_named_index(frame), preserve_index=False)
    except pa.ArrowException as error:
        raise InvalidRequest(f"a column of the frame cannot be stored: {error}") from error


def _stored(kind: pa.DataType) -> pa.DataType:
    """The type that tables store for this one: other libraries use 64-bit offsets, dictionaries and nanoseconds."""
    if pa.types.is_dictionary(kind):
        return _stored(kind.value_type)
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return pa.binary()
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz and "UTC")
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(_stored(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(_stored(kind.key_type), _stored(kind.item_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _stored(field.type)) for field in kind])
    return kind
