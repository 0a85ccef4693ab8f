"""The executors' side of a write: batches of rows become one log file for each bucket that they touch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakelatch.errors import InvalidRequest
from lakelatch.pipeline.bucket_index import bucket_file_id, bucket_ids
from lakelatch.pipeline.file_names import LogFile, check_own_file
from lakelatch.pipeline.log_blocks import Deletes, encode_log_file
from lakelatch.pipeline.options import DELETE, UPSERT
from lakelatch.pipeline.record_keys import partition_paths, record_keys
from lakelatch.pipeline.schemas import META_COLUMNS, with_meta_columns
from lakelatch.storage.contract import Storage
from lakelatch.timeline.metadata import WriteStat
from lakelatch.timeline.table_config import EVENT_TIME, TableConfig
from lakelatch.transactions.markers import Markers

PARTITION_COLUMN = "_lakelatch_partition"
BUCKET_COLUMN = "_lakelatch_bucket"
_FLUSH_BYTES = 256 * 1024 * 1024
_PARTITION_METADATA = ".hoodie_partition_metadata"


@dataclass(frozen=True)
class WriteTask:
    """What every task of one write needs. Pickles; holds no connection.

    `schema` is the table's, without meta columns, and what rows are cast to; a delete needs only the key columns.
    """

    storage: Storage
    config: TableConfig
    schema: pa.Schema
    avro_schema: str
    instant: str
    operation: str
    block_format: str

    def tag(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Adds the partition path and the bucket of each row, after checking its key."""
        table = pa.Table.from_batches([batch])
        keys = record_keys(table, self.config.record_key_fields)
        self._check_ordering(table)
        paths = partition_paths(
            table,
            self.config.partition_fields,
            self.config.hive_style_partitioning,
            self.config.url_encode_partitioning,
        )
        hash_fields = self.config.hash_fields or self.config.record_key_fields
        buckets = bucket_ids(table, hash_fields, self.config.bucket_count or 1)
        return pa.RecordBatch.from_arrays(
            [*batch.columns, keys, paths, buckets],
            names=[*batch.schema.names, META_COLUMNS[2], PARTITION_COLUMN, BUCKET_COLUMN],
        )

    def write(self, batches: Iterator[pa.RecordBatch], write_token: str) -> Iterator[FileReport]:
        """Writes tagged rows, a log file for each partition and bucket; several versions if they do not fit memory."""
        version, held, size, written = 1, [], 0, 0
        for batch in batches:
            if batch.num_rows:
                held.append(batch)
                size += batch.nbytes
            if size > _FLUSH_BYTES:
                rows = pa.Table.from_batches(held)
                yield from self._flush(rows, write_token, version, written)
                version, held, size, written = version + 1, [], 0, written + rows.num_rows
        if held:
            yield from self._flush(pa.Table.from_batches(held), write_token, version, written)

    def _flush(self, rows: pa.Table, write_token: str, version: int, first_row: int) -> Iterator[FileReport]:
        rows = rows.combine_chunks().sort_by([(PARTITION_COLUMN, "ascending"), (BUCKET_COLUMN, "ascending")])
        partitions = pc.rank(rows[PARTITION_COLUMN], sort_keys="ascending", tiebreaker="dense").to_numpy()
        group = partitions.astype(np.int64) * (self.config.bucket_count or 1) + rows[BUCKET_COLUMN].to_numpy()
        starts = np.flatnonzero(np.r_[True, group[1:] != group[:-1]])
        for start, stop in zip(starts, np.r_[starts[1:], len(group)], strict=True):
            group_rows = rows.slice(int(start), int(stop - start))
            yield self._write_group(group_rows, write_token, version, first_row + int(start))

    def _write_group(self, rows: pa.Table, write_token: str, version: int, first_row: int) -> FileReport:
        partition = rows[PARTITION_COLUMN][0].as_py()
        file_id = bucket_file_id(rows[BUCKET_COLUMN][0].as_py())
        if self.operation == UPSERT:
            rows = self._combine(rows)
        file = LogFile(file_id, self.instant, version, write_token)
        check_own_file(file)
        name = file.name
        deletes = self._deletes(rows) if self.operation == DELETE else None
        records = None if deletes else self._records(rows, partition, file_id, write_token, first_row)
        data = encode_log_file(self.instant, self.avro_schema, records, deletes, self.block_format)
        self._ensure_partition(partition)
        Markers(self.storage, self.instant).create_data_file(partition, name, data)
        return FileReport(
            partition=partition,
            file_id=file_id,
            file_name=name,
            records=0 if records is None else records.num_rows,
            deletes=rows.num_rows if deletes else 0,
            size_bytes=len(data),
            version=version,
        )

    def _combine(self, rows: pa.Table) -> pa.Table:
        """One row for each key: that with the greatest ordering value, the later one of equals."""
        order = [(META_COLUMNS[2], "ascending")]
        if self.config.merge_mode == EVENT_TIME and self.config.ordering_field:
            order.append((self.config.ordering_field, "ascending"))
        arrival = pa.array(np.arange(rows.num_rows))
        rows = rows.append_column("_lakelatch_arrival", arrival).sort_by([*order, ("_lakelatch_arrival", "ascending")])
        keys = rows[META_COLUMNS[2]].combine_chunks()
        last = pc.not_equal(keys.slice(0, len(keys) - 1), keys.slice(1))
        keep = pa.concat_arrays([_boolean(last), pa.array([True])])
        return rows.filter(keep)

    def _records(self, rows: pa.Table, partition: str, file_id: str, write_token: str, first_row: int) -> pa.Table:
        count = rows.num_rows
        task = write_token.partition("-")[0]
        sequence = [f"{self.instant}_{task}_{first_row + index}" for index in range(count)]
        meta = [
            pa.repeat(self.instant, count),
            pa.array(sequence, pa.string()),
            rows[META_COLUMNS[2]],
            pa.repeat(partition, count),
            pa.repeat(file_id, count),
        ]
        data = [
            rows[name].cast(field_type) for name, field_type in zip(self.schema.names, self.schema.types, strict=True)
        ]
        return pa.table([*meta, *data], schema=with_meta_columns(self.schema))

    def _deletes(self, rows: pa.Table) -> Deletes:
        ordering = None
        field = self.config.ordering_field
        if self.config.merge_mode == EVENT_TIME and field in rows.column_names:
            ordering = rows[field].cast(self.schema.field(field).type)
        return Deletes(keys=rows[META_COLUMNS[2]], partition=rows[PARTITION_COLUMN][0].as_py(), ordering=ordering)

    def _check_ordering(self, table: pa.Table) -> None:
        field = self.config.ordering_field
        if self.config.merge_mode == EVENT_TIME and field in table.column_names and table[field].null_count:
            raise InvalidRequest(
                f"{table[field].null_count} rows have no value in the ordering field {field!r}: without one nobody can "
                "say which row is newer. Fill it, or remove those rows"
            )

    def _ensure_partition(self, partition: str) -> None:
        """Java's readers find a partition by this file."""
        path = f"{partition}/{_PARTITION_METADATA}" if partition else _PARTITION_METADATA
        depth = len(partition.split("/")) if partition else 0
        text = f"#partition metadata\ncommitTime={self.instant}\npartitionDepth={depth}\n"
        self.storage.put_if_absent(path, text.encode("ascii"))


@dataclass(frozen=True)
class FileReport:
    """What a task tells the driver of one file: a small row, never data."""

    partition: str
    file_id: str
    file_name: str
    records: int
    deletes: int
    size_bytes: int
    version: int

    def to_stat(self, instant: str) -> WriteStat:
        """The file as the commit's metadata names it."""
        return WriteStat(
            partition=self.partition,
            file_id=self.file_id,
            path=f"{self.partition}/{self.file_name}" if self.partition else self.file_name,
            previous_commit=instant,
            num_writes=self.records,
            num_deletes=self.deletes,
            num_update_writes=self.records,
            total_write_bytes=self.size_bytes,
            file_size_bytes=self.size_bytes,
            log_version=self.version,
            base_file="",
            log_files=(self.file_name,),
        )


REPORT_SCHEMA = pa.schema(
    [(field.name, pa.string() if field.type == "str" else pa.int64()) for field in fields(FileReport)]
)


def reports_to_batch(reports: list[FileReport]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([asdict(report) for report in reports], schema=REPORT_SCHEMA)


def _boolean(values: pa.ChunkedArray | pa.Array) -> pa.Array:
    return values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
