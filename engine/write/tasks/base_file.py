"""Making a base file: rows in parts become one file, put once, with statistics of the rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from os import SEEK_END

import pyarrow as pa
import pyarrow.compute as pc

from lakelatch.format.avro import FILE_NAME_COLUMN, RECORD_KEY_COLUMN
from lakelatch.format.base_file_options import BaseFileOptions
from lakelatch.format.merge.outcome import Merged
from lakelatch.format.parquet import IN_MEMORY_ROWS_BYTES, encode_parquet, parquet_file_of
from lakelatch.storage.checksums import add_checksum
from lakelatch.storage.contract import Storage

#: The most rows of a row group where rows are not in the order of their keys, so that readers have something to skip,
#: and row groups still compress.
SORTED_GROUP_ROWS = 64 * 1024


@dataclass
class GatheredRows:
    """Statistics of rows that have passed. `parts` keep only their deletes."""

    records: int = 0
    least: str | None = None
    greatest: str | None = None
    parts: list[Merged] = field(default_factory=list)

    def noting(self, parts: Iterable[Merged], name: str) -> Iterator[pa.Table]:
        """Passes the rows on, with the name of their file in Hudi's meta column, and gathers their statistics."""
        for part in parts:
            if part.deletes is not None or part.group_deletes is not None:
                self.parts.append(part.without_rows())
            if part.rows.num_rows:
                self.records += part.rows.num_rows
                found = pc.min_max(part.rows[RECORD_KEY_COLUMN])
                least, greatest = found["min"].as_py(), found["max"].as_py()
                self.least = least if self.least is None else min(self.least, least)
                self.greatest = greatest if self.greatest is None else max(self.greatest, greatest)
                yield _with_file_name(part.rows, name)

    def key_bounds(self) -> Mapping[str, str]:
        """The least and the greatest record key, under the names of Hudi's footers."""
        if self.least is None or self.greatest is None:
            return {}
        return {"hoodie_min_record_key": self.least, "hoodie_max_record_key": self.greatest}


def put_base_file(
    storage: Storage,
    path: str,
    schema: pa.Schema,
    parts: Iterator[pa.Table],
    footer: Callable[[], Mapping[str, str]],
    ensure_wanted: Callable[[], None],
    options: BaseFileOptions,
    group_rows: int | None = None,
) -> int:
    """Puts rows as a file, unless it exists; returns its bytes.

    A large one goes through a temporary file, so that memory holds one row group. `footer` is called after the last
    row, and `ensure_wanted` before the file is put.
    """
    first: list[pa.Table] = []
    size_bytes = 0
    for part in parts:
        first.append(part)
        size_bytes += part.nbytes
        if size_bytes > IN_MEMORY_ROWS_BYTES:
            break
    else:
        data = encode_parquet(pa.concat_tables([schema.empty_table(), *first]), footer(), group_rows, options)
        ensure_wanted()
        made = storage.put_if_absent(path, add_checksum(data, path))
        return len(data) if made else storage.stat(path).size_bytes
    with parquet_file_of(schema, _drained(first, parts), footer, path, group_rows, options) as file:
        ensure_wanted()
        made = storage.create_from_file(path, file)
        return file.seek(0, SEEK_END) if made else storage.stat(path).size_bytes


def _drained(first: list[pa.Table], more: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """Yields the first parts, each released once it was yielded, and then the others."""
    while first:
        yield first.pop(0)
    yield from more


def _with_file_name(rows: pa.Table, name: str) -> pa.Table:
    column = rows.schema.get_field_index(FILE_NAME_COLUMN)
    return rows.set_column(column, FILE_NAME_COLUMN, pa.repeat(name, rows.num_rows))
