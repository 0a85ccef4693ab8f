"""The tasks of a write: batches of rows become one log file for each bucket that they touch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakelatch.engine.run.file_report import FileReport
from lakelatch.engine.table.columns import check_rows, delete_rows
from lakelatch.errors import InvalidRequest
from lakelatch.format.avro import IS_DELETED_COLUMN, META_COLUMNS, with_meta_columns
from lakelatch.format.bucket_index import bucket_ids, bucket_ids_of_texts
from lakelatch.format.evolution import conform
from lakelatch.format.file_groups import FileIds
from lakelatch.format.keygen.paths import partition_paths
from lakelatch.format.log.blocks import Deletes, encode_log_file
from lakelatch.format.merge.ordering import in_java_s_order
from lakelatch.format.names import NO_TASK, LogFile, check_own_file, token_within
from lakelatch.format.record_keys import record_keys
from lakelatch.format.slices.live_groups import LiveGroups
from lakelatch.format.slices.partitions import PARTITION_METADATA
from lakelatch.storage.contract import Storage, path_below
from lakelatch.timeline.actions import DELETE, UPSERT
from lakelatch.timeline.table_config import EVENT_TIME, TableConfig
from lakelatch.transactions.early.detection import EarlyDetection
from lakelatch.transactions.early.server_client import ServerAddress
from lakelatch.transactions.early.task_files import TaskFiles
from lakelatch.transactions.markers.own_files import OwnFiles

PARTITION_COLUMN = "_lakelatch_partition"
BUCKET_COLUMN = "_lakelatch_bucket"
_FEW_ROWS, _FEW_PARTITIONS = 10_000, 8  # of writes whose partitions are looked at before they begin
_FLUSH_BYTES = 256 * 1024 * 1024


@dataclass(frozen=True)
class WriteTask:
    """The task of a write. Pickles; holds no connection.

    `schema` is the table's, without meta columns, to which rows are cast; a delete needs only the key columns.
    """

    #: Whether `write` needs rows grouped by bucket, and all rows of a bucket in one task.
    by_bucket: ClassVar[bool] = False
    #: Whether it needs the rows of a bucket sorted by key.
    by_key: ClassVar[bool] = False
    #: Whether it takes rows in any task, those of a task in the order of its partition fields.
    as_they_come: ClassVar[bool] = False

    storage: Storage
    config: TableConfig
    schema: pa.Schema
    avro_schema: str
    instant: str
    operation: str
    block_format: str
    file_ids: FileIds = field(default_factory=FileIds)
    early: EarlyDetection | None = None
    server: ServerAddress | None = None
    own: OwnFiles | None = None  # only where this process writes; never pickled

    def attempt(self, name: str) -> TaskFiles:
        """The files of one attempt at a task; they also end the task if its write has lost."""
        return TaskFiles(self.storage, self.instant, name, self.early, server=self.server, own=self.own)

    def tag(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Adds the partition path and the bucket of each row, after checking its key."""
        table = pa.Table.from_batches([batch])
        prefixed = bool(self.config.prefixed_keys)
        keys = record_keys(table, self.config.record_key_fields, prefixed, self.config.commas_in_keys)
        if self.config.column_groups:
            check_rows(table, self.config, self.schema.names, self.operation == DELETE)
        else:
            self._check_ordering(table)
        paths = partition_paths(table, self.config)
        hash_fields = self.config.hash_fields or self.config.record_key_fields
        count = self.config.bucket_count or 1
        # Java hashes a key of one field whole, whatever it begins with.
        of_keys = prefixed or (len(hash_fields) == 1 and hash_fields == self.config.record_key_fields)
        buckets = bucket_ids_of_texts([keys], count) if of_keys else bucket_ids(table, hash_fields, count)
        return pa.RecordBatch.from_arrays(
            [*batch.columns, keys, paths, buckets],
            names=[*batch.schema.names, META_COLUMNS[2], PARTITION_COLUMN, BUCKET_COLUMN],
        )

    def write(self, batches: Iterator[pa.RecordBatch], write_token: str) -> Iterator[FileReport]:
        """Writes a log file of tagged rows for each bucket; several versions if they do not fit into memory."""
        with self.attempt(write_token) as files:
            names = LogNames(self.instant, write_token, self.live_groups())
            yield from self.write_logs(files.watched(batches), names, files)

    def write_logs(
        self, batches: Iterator[pa.RecordBatch], names: LogNames, files: TaskFiles, first_row: int = 0
    ) -> Iterator[FileReport]:
        """As `write`, within an attempt, for buckets that it has not written; `first_row` counts its rows so far."""
        version, held, size, written = 1, [], 0, first_row
        for batch in batches:
            if batch.num_rows:
                if files.early:
                    self._announce(batch, names, version, files)
                held.append(batch)
                size += sum(map(buffer_bytes, batch.columns))
            if size > _FLUSH_BYTES:
                rows = pa.Table.from_batches(held)
                yield from self._flush(rows, names, version, written, files)
                version, held, size, written = version + 1, [], 0, written + rows.num_rows
        if held:
            yield from self._flush(pa.Table.from_batches(held), names, version, written, files)

    def write_here(self, batches: Iterable[pa.RecordBatch]) -> list[FileReport]:
        """Writes rows in this process, after tagging them."""
        return list(self.write((self.tag(batch) for batch in batches if batch.num_rows), NO_TASK))

    def live_groups(self) -> LiveGroups:
        """The file groups of one attempt's rows; all of its files of a bucket are in the same one."""
        return LiveGroups(self.storage, self.config, self.file_ids, self.own.listed if self.own is not None else {})

    def _announce(self, batch: pa.RecordBatch, names: LogNames, version: int, files: TaskFiles) -> None:
        """Announces each file at its first row, so that conflicts are found before the other rows have come."""
        columns = [PARTITION_COLUMN, BUCKET_COLUMN]
        groups = pa.Table.from_batches([batch.select(columns)]).group_by(columns, use_threads=False).aggregate([])
        files.announce_all(
            (row[PARTITION_COLUMN], names.file(row[PARTITION_COLUMN], row[BUCKET_COLUMN], version).name)
            for row in groups.to_pylist()
        )

    def _flush(
        self, rows: pa.Table, names: LogNames, version: int, first_row: int, files: TaskFiles
    ) -> Iterator[FileReport]:
        rows = rows.combine_chunks()
        partitions = pc.rank(rows[PARTITION_COLUMN], sort_keys="ascending", tiebreaker="dense").to_numpy()
        group = partitions.astype(np.int64) * (self.config.bucket_count or 1) + rows[BUCKET_COLUMN].to_numpy()
        if (group[1:] < group[:-1]).any():
            order = np.argsort(group, kind="stable")
            rows, group = rows.take(pa.array(order)), group[order]
        starts = np.flatnonzero(group[1:] != group[:-1]) + 1
        for start, stop in pairwise((0, *starts.tolist(), len(group))):
            yield self._write_group(rows.slice(start, stop - start), names, version, first_row + start, files)

    def _write_group(
        self, rows: pa.Table, names: LogNames, version: int, first_row: int, files: TaskFiles
    ) -> FileReport:
        partition = rows[PARTITION_COLUMN][0].as_py()
        file = names.file(partition, rows[BUCKET_COLUMN][0].as_py(), version)
        file_id, name = file.file_id, file.name
        rows = self.combined(rows)
        records, deletes, cleared = self.contents(rows, file_id, file.write_token, first_row)
        data = encode_log_file(
            self.instant, self.avro_schema, records, deletes, self.block_format, group_deletes=cleared
        )
        if not names.groups.is_marked(partition):
            self.ensure_partition(partition)
        task_ms = files.create(partition, name, data, rows.num_rows)
        return FileReport(
            partition=partition,
            file_id=file_id,
            file_name=name,
            records=0 if records is None else records.num_rows,
            deletes=rows.num_rows - (0 if records is None else records.num_rows),
            size_bytes=len(data),
            version=version,
            task_ms=task_ms,
        )

    def contents(
        self, rows: pa.Table, file_id: str, write_token: str, first_row: int
    ) -> tuple[pa.Table | None, Deletes | None, pa.Table | None]:
        """The rows of one bucket as records, deletes, and rows that delete column groups."""
        place = (rows[PARTITION_COLUMN][0].as_py(), file_id, write_token, first_row)
        if self.operation == DELETE:
            cleared = delete_rows(rows, self.config, self.schema.names) if self.config.column_groups else None
            if cleared is None:
                return None, self._deletes(rows), None
            return None, None, self._records(cleared, *place)
        kept, gone = self._by_flag(rows)
        return (
            self._records(kept, *place) if kept.num_rows else None,
            self._deletes(gone) if gone.num_rows else None,
            None,
        )

    def _by_flag(self, rows: pa.Table) -> tuple[pa.Table, pa.Table]:
        """The rows that stay and those that delete; in a table with that column, readers separate them."""
        if IS_DELETED_COLUMN not in rows.column_names or IS_DELETED_COLUMN in self.schema.names:
            return rows, rows.slice(0, 0)
        gone = pc.fill_null(rows[IS_DELETED_COLUMN], False)
        return rows.filter(pc.invert(gone)), rows.filter(gone)

    def combined(self, rows: pa.Table) -> pa.Table:
        """The rows; of an upsert, the newest of each key."""
        if self.operation != UPSERT or self.config.column_groups:  # each group would have a winner of its own
            return rows
        return self.newest_of_each_key(rows)

    def newest_of_each_key(self, rows: pa.Table) -> pa.Table:
        """One row for each key, sorted by key: the one with the greatest ordering value, and the last of equal ones."""
        order = {"key": rows[META_COLUMNS[2]]}
        if self.config.merge_mode == EVENT_TIME and self.config.ordering_field:
            order["ordering"] = in_java_s_order(rows[self.config.ordering_field])
        # Equal rows keep their order.
        rows = rows.take(pc.sort_indices(pa.table(order), sort_keys=[(name, "ascending") for name in order]))
        keys = rows[META_COLUMNS[2]].combine_chunks()
        last = pc.not_equal(keys.slice(0, len(keys) - 1), keys.slice(1))
        keep = pa.concat_arrays([_boolean(last), pa.array([True])])
        return rows.filter(keep) if keep.false_count else rows

    def _records(self, rows: pa.Table, partition: str, file_id: str, write_token: str, first_row: int) -> pa.Table:
        count = rows.num_rows
        task = write_token.partition("-")[0]
        numbers = pa.array(np.arange(first_row, first_row + count)).cast(pa.string())
        meta = [
            pa.repeat(self.instant, count),
            pc.binary_join_element_wise(f"{self.instant}_{task}_", numbers, ""),
            rows[META_COLUMNS[2]],
            pa.repeat(partition, count),
            pa.repeat(file_id, count),
        ]
        schema = self.schema
        if self.config.column_groups:
            schema = pa.schema([field for field in schema if field.name in rows.column_names])
        return pa.table([*meta, *(_column(rows, field) for field in schema)], schema=with_meta_columns(schema))

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
                f"{table[field].null_count} rows have no value in the ordering field {field!r}: without one it is "
                "unknown which row is newer. Fill it, or remove those rows"
            )

    def ensure_partition(self, partition: str) -> None:
        """Puts the file by which Java's readers find a partition."""
        path = path_below(partition, PARTITION_METADATA)
        depth = len(partition.split("/")) if partition else 0
        text = f"#partition metadata\ncommitTime={self.instant}\npartitionDepth={depth}\n"
        self.storage.put_if_absent(path, text.encode("ascii"))
        if self.own is not None and partition in self.own.listed:
            self.own.listed[partition] = {*self.own.listed[partition], PARTITION_METADATA}


def few_partitions(rows: pa.Table, config: TableConfig) -> frozenset[str]:
    """The partitions of rows, if they are few; none of rows that a write is going to refuse."""
    if rows.num_rows > _FEW_ROWS:
        return frozenset()
    try:
        found = frozenset(partition_paths(rows, config).to_pylist())
    except InvalidRequest:
        return frozenset()
    return found if len(found) <= _FEW_PARTITIONS else frozenset()


@dataclass(frozen=True)
class LogNames:
    """The names of one attempt's files."""

    instant: str
    token: str
    groups: LiveGroups

    def file(self, partition: str, bucket: int, version: int) -> LogFile:
        """The log file of a bucket."""
        token = token_within(partition, self.token)
        file = LogFile(self.groups.of(partition, bucket), self.instant, version, token)
        check_own_file(file)
        return file


def buffer_bytes(values: pa.Array) -> int:
    """The bytes of an array. Spark 4.0 omits offsets of empty nested arrays, on which `nbytes` crashes the process."""
    return int(values.get_total_buffer_size() if pa.types.is_nested(values.type) else values.nbytes)


def _boolean(values: pa.ChunkedArray | pa.Array) -> pa.Array:
    return values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values


def _column(rows: pa.Table, field: pa.Field) -> pa.ChunkedArray | pa.Array:
    """A column cast to the table's type, null if the rows lack it. Errors: `InvalidRequest`."""
    if field.name not in rows.column_names:
        return pa.nulls(rows.num_rows, field.type)
    try:
        return conform(rows[field.name], field.type)
    except pa.ArrowException as error:
        raise InvalidRequest(
            f"a value of the column {field.name!r} cannot be stored as {field.type}: {error}"
        ) from error
