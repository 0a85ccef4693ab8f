"""The rows of a write of Arrow: given ones, and those that each try finds anew in the table."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from lakelatch.engine.options.calls.arguments import is_pandas, with_named_index, without_index
from lakelatch.engine.options.write import WriteOptions
from lakelatch.engine.run.executor import HERE, Executor
from lakelatch.engine.run.file_report import FileReport
from lakelatch.engine.write.tasks.task import WriteTask, few_partitions
from lakelatch.errors import InvalidRequest
from lakelatch.format.avro import META_COLUMNS, comment_of, with_comment
from lakelatch.progress import counted
from lakelatch.timeline.table_config import TableConfig
from lakelatch.transactions.transaction import Transaction


def table_of(data: object) -> pa.Table:
    """Rows as a table of Arrow, in the types that tables store; a stream is read to its end.

    `data` is whatever speaks Arrow: it has `__arrow_c_stream__` or `__arrow_c_array__`, as tables, batches and readers
    of Arrow have, frames of pandas and Polars, and relations of DuckDB. Errors: `InvalidRequest` if it has neither, or
    a type that is not stored.
    """
    table = without_index(_arrow_table(data))
    table = table.drop_columns([name for name in table.column_names if name in META_COLUMNS])
    stored = pa.schema(_stored_fields(table.schema))
    if table.schema.equals(stored, check_metadata=True):
        return table
    try:
        columns = [_known(column).cast(field.type) for column, field in zip(table.columns, stored, strict=True)]
        return pa.table(columns, schema=stored)
    except pa.ArrowException as error:
        raise InvalidRequest(f"a value cannot be stored: {error}") from error


def _arrow_table(data: Any) -> pa.Table:
    if isinstance(data, pa.Table):
        return data
    try:
        if is_pandas(data):
            return pa.Table.from_pandas(with_named_index(data), preserve_index=False)
        if hasattr(data, "__arrow_c_stream__"):
            return pa.RecordBatchReader.from_stream(data).read_all()
        if hasattr(data, "__arrow_c_array__"):
            return pa.Table.from_batches([pa.record_batch(data)])
    except pa.ArrowException as error:
        raise InvalidRequest(f"a column of the data cannot be stored: {error}") from error
    raise InvalidRequest(
        f"a {type(data).__module__}.{type(data).__qualname__} does not speak Arrow: give a table, batch or reader of "
        "pyarrow, a frame of pandas or Polars (of a lazy one what collect() gives), or a relation of DuckDB (rows of "
        "Python: pyarrow.Table.from_pylist)"
    )


@dataclass(frozen=True)
class ArrowRows:
    """Rows that are written in this process."""

    data: pa.Table
    read_anew: bool = False
    skipped: int = 0

    @classmethod
    def of(cls, data: object) -> ArrowRows:
        """Errors: those of `table_of`."""
        return cls(table_of(data))

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
        return _written(self.data, task, transaction)

    @property
    def executor(self) -> Executor:
        return HERE


class ChangedRows:
    """Rows that follow from what the table holds: `make` finds them inside each try, and how many it left out.

    `schema` has their columns until then.
    """

    read_anew = True
    executor: Executor = HERE

    def __init__(self, schema: pa.Schema, make: Callable[[], tuple[pa.Table, int]]) -> None:
        self.schema, self._make = schema, make
        self._rows, self.skipped = self.schema.empty_table(), 0

    def use_names_of(self, table: pa.Schema) -> None:
        """Arrow's names have their case."""

    def are_here(self, options: WriteOptions) -> bool:
        return True

    def partitions(self, config: TableConfig) -> Collection[str]:
        return ()

    def begin(self) -> None:
        self._rows, self.skipped = self._make()
        self.schema = self._rows.schema

    def write(self, task: WriteTask, options: WriteOptions, transaction: Transaction) -> list[FileReport]:
        return _written(self._rows, task, transaction)


def _written(rows: pa.Table, task: WriteTask, transaction: Transaction) -> list[FileReport]:
    with counted(f"lakelatch: {task.operation} into {task.config.name!r} ({task.instant})"):
        return replace(task, own=transaction.own_files).write_here(rows.to_batches())


def _known(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The column with texts that Arrow can look up in a dictionary: it cannot in Polars' views of them."""
    kind = column.type
    if not pa.types.is_dictionary(kind) or _stored(kind.value_type) == kind.value_type:
        return column
    values = _stored(kind.value_type)
    chunks = [pa.DictionaryArray.from_arrays(one.indices, one.dictionary.cast(values)) for one in column.chunks]
    return pa.chunked_array(chunks, pa.dictionary(kind.index_type, values, kind.ordered))


def _stored_fields(fields: Iterable[pa.Field]) -> list[pa.Field]:
    return [with_comment(one.name, _stored(one.type), comment_of(one)) for one in fields]


def _stored(kind: pa.DataType) -> pa.DataType:
    """The type that tables store for this one: other libraries use 64-bit offsets, dictionaries and nanoseconds."""
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
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
        return pa.struct(_stored_fields(kind))
    return kind
