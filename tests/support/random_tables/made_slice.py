"""A file slice that is made in memory, of a few rows with ordering values of any type; and what a merge holds of it."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakelatch.format.avro import arrow_to_avro, with_meta_columns
from lakelatch.format.file_slices import FileSlice
from lakelatch.format.log.blocks import Deletes, encode_log_file
from lakelatch.format.log.framing import COMMAND_BLOCK, INSTANT_TIME, TARGET_INSTANT_TIME, encode_block
from lakelatch.format.merge import logs
from lakelatch.format.merge.spilled_logs import LogBounds
from lakelatch.format.names import BaseFile, LogFile
from lakelatch.storage.memory import MemoryStorage
from lakelatch.timeline.table_config import EVENT_TIME, TableConfig

NUMBER = pa.int64()
Row = tuple[str, int, "int | None"]  # key, value, ordering value
Delete = tuple[str, "int | None"]


def time(number: int) -> str:
    return f"20260101{number:09d}"


class MadeSlice:
    """A base file with row groups of two rows, and logs."""

    def __init__(self, base: list[Row], kind: pa.DataType = NUMBER, mode: str = EVENT_TIME) -> None:
        schema = pa.schema([("v", pa.int64()), ("ts", kind), ("_hoodie_is_deleted", pa.bool_())])
        self.schema, self.avro = with_meta_columns(schema), arrow_to_avro(schema, "made")
        self.kind = kind
        self.storage = MemoryStorage("made-slice")
        self.base = BaseFile("f-0", "0-0-0", time(0)).name if base else None
        self.logs: list[str] = []
        self.config = TableConfig(name="t", record_key_fields=("id",), ordering_field="ts", merge_mode=mode)
        if self.base:
            sink = io.BytesIO()
            pq.write_table(self.rows_of(base), sink, row_group_size=2)
            self.storage.put(f"p/{self.base}", sink.getvalue())

    def rows_of(self, rows: Sequence[Row], gone: bool = False) -> pa.Table:
        values = [{"_hoodie_record_key": key, "v": v, "_hoodie_is_deleted": gone} for key, v, _ in rows]
        found = pa.Table.from_pylist(values, schema=self.schema)
        ordering = self.ordering_values([at for *_, at in rows])
        return found.set_column(found.column_names.index("ts"), "ts", ordering)

    def ordering_values(self, numbers: list[int | None]) -> pa.Array:
        is_day = pa.types.is_date32(self.kind)
        return pa.array(numbers, pa.int32() if is_day else pa.int64()).cast(self.kind)

    def log(self, rows: Sequence[Row], deletes: Sequence[Delete] = (), gone: Sequence[Row] = ()) -> None:
        instant = time(len(self.logs) + 1)
        removed = None
        if deletes:
            values = self.ordering_values([at for _, at in deletes])
            removed = Deletes(pa.array([key for key, _ in deletes]), "p", values)
        data = b""
        if rows or deletes:
            data = encode_log_file(instant, self.avro, self.rows_of(rows) if rows else None, removed)
        data += encode_log_file(instant, self.avro, self.rows_of(gone, True), None) if gone else b""
        self.put_log(data)

    def take_back(self, number: int) -> None:
        """A log file that rolls back the blocks of an earlier one, which is numbered from 1."""
        headers = {INSTANT_TIME: time(len(self.logs) + 1), TARGET_INSTANT_TIME: time(number)}
        self.put_log(encode_block(COMMAND_BLOCK, headers, b""))

    def put_log(self, data: bytes) -> None:
        """A further log file, whatever is in it."""
        self.logs.append(LogFile("f-0", time(len(self.logs) + 1), 1, "0-0-0").name)
        self.storage.put(f"p/{self.logs[-1]}", data)

    @property
    def slice(self) -> FileSlice:
        return FileSlice("p", "f-0", time(0), self.base, tuple(self.logs))


@contextmanager
def holding(bounds: LogBounds) -> Iterator[None]:
    """What merges hold of logs, as long as the context lasts."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(logs, "BOUNDS", bounds)
        yield
