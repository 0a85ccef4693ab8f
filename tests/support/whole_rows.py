"""The rows of a base file, or of a file slice, as one table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from lakelatch.format.base_files import open_base_file
from lakelatch.format.file_slices import FileSlice
from lakelatch.format.merge.outcome import Merged
from lakelatch.format.merge.rows import RowMerging
from lakelatch.format.merge.stream import whole
from lakelatch.storage.contract import Storage


def read_base_file(storage: Storage, path: str, columns: Sequence[str]) -> tuple[pa.Table, Mapping[bytes, bytes]]:
    """The rows, and the texts of the footer. Of `columns` those that the file has."""
    file = open_base_file(storage, path, columns)
    parts = list(file.parts())
    return pa.concat_tables(parts) if parts else file.schema.empty_table(), file.footer


def merge_rows(
    storage: Storage, file_slice: FileSlice, schema: pa.Schema, ordering_field: str | None, columns: Sequence[str]
) -> Merged:
    """The merged rows of a slice; `ordering_field` is None under commit-time ordering."""
    merged = whole(RowMerging.of(storage, file_slice, schema, ordering_field, columns))
    return replace(merged, rows=merged.rows.select(list(columns)))
