"""The outcomes of merging: the rows of a slice, or the entries of a run of logs without what lies below them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pyarrow as pa

from lakelatch.format.log.blocks import PARQUET_FORMAT, Deletes, encode_log_file


@dataclass(frozen=True)
class Merged:
    """A merged slice, sorted by record key.

    `deletes` are those that won, with their ordering values: a row that comes later may still be older than they are.
    `group_deletes` are the same for tables with column groups, as rows.
    """

    rows: pa.Table
    deletes: Deletes | None = None
    group_deletes: pa.Table | None = None

    def without_rows(self) -> Merged:
        """Its deletes alone."""
        return replace(self, rows=self.rows.schema.empty_table())


@dataclass(frozen=True)
class CompactedLogs:
    """The entries of a run of logs without what lies below them: first `wiped`, then `rows`, then the other deletes.

    `wiped` are the keys for which a delete in the run removed everything before it, whatever its ordering value. In a
    table with column groups, each table of `rows` and of `group_deletes` has only the columns of the groups that all
    its rows speak for.
    """

    wiped: Deletes | None = None
    rows: tuple[pa.Table, ...] = ()
    deletes: Deletes | None = None
    group_deletes: tuple[pa.Table, ...] = ()

    @property
    def row_count(self) -> int:
        """How many rows there are."""
        return int(sum(rows.num_rows for rows in self.rows))

    @property
    def delete_count(self) -> int:
        """How many deletes there are, of whole rows and of column groups."""
        keys = sum(len(deletes.keys) for deletes in (self.wiped, self.deletes) if deletes is not None)
        return int(keys + sum(rows.num_rows for rows in self.group_deletes))

    def encode(self, instant: str, avro_schema: str, data_block_format: str = PARQUET_FORMAT) -> bytes:
        """The blocks of a log file of that instant; none if there are no entries."""
        kind = data_block_format
        blocks = [] if self.wiped is None else [encode_log_file(instant, avro_schema, None, self.wiped)]
        blocks += [encode_log_file(instant, avro_schema, rows, None, kind) for rows in self.rows if rows.num_rows]
        blocks += [encode_log_file(instant, avro_schema, None, None, group_deletes=rows) for rows in self.group_deletes]
        blocks += [] if self.deletes is None else [encode_log_file(instant, avro_schema, None, self.deletes)]
        return b"".join(blocks)
