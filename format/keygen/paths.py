"""The folder of each row of a table, whichever of Hudi's key generators made it."""

from __future__ import annotations

import pyarrow as pa

from lakelatch.errors import InvalidRequest
from lakelatch.format.keygen.time_partitions import TimePartitions
from lakelatch.format.record_keys import folder_paths, value_texts
from lakelatch.timeline.table_config import TableConfig


def partition_paths(table: pa.Table, config: TableConfig) -> pa.Array:
    """The folder of each row below the table, "" for a table without partitions.

    Errors: `InvalidRequest` for missing columns, for values that are no times where times are needed, and for values
    that are no safe folder names unless the table encodes them.
    """
    fields = config.partition_fields
    if not fields:
        return pa.repeat("", table.num_rows)
    times = TimePartitions.of(dict(config.time_options)) if config.time_fields else None
    texts = [
        times.texts(_column(table, field), field)
        if times is not None and field in config.time_fields
        else value_texts(table, field)
        for field in fields
    ]
    # With several fields, values with slashes of different rows could make one folder; times have as many each.
    split = fields if len(fields) == 1 else config.time_fields
    return folder_paths(texts, fields, config.hive_style_partitioning, config.url_encode_partitioning, split)


def _column(table: pa.Table, field: str) -> pa.ChunkedArray:
    if field not in table.column_names:
        raise InvalidRequest(f"the column {field!r} is missing from the data ({', '.join(table.column_names)})")
    return table.column(field)
