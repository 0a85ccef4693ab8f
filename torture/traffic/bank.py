"""The table of a round, and the clients' writes: transfers between accounts, entries in a journal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from lakelatch.engine.options.calls.registry import Call
from lakelatch.engine.options.write import WriteOptions
from lakelatch.engine.read.plan import ReadPlan
from lakelatch.engine.run.file_report import FileReport
from lakelatch.engine.run.result import CommitResult
from lakelatch.engine.table.making import open_for_write
from lakelatch.engine.table.table import OpenedTable
from lakelatch.engine.write.attempt import commit_files
from lakelatch.engine.write.commit import write_task
from lakelatch.format.avro import with_meta_columns
from lakelatch.format.bucket_index import bucket_ids_of_texts, bucket_of_file_id
from lakelatch.format.slices.table_view import TableView
from lakelatch.storage.contract import Storage
from lakelatch.transactions.base.settings import MODE_OPTION
from lakelatch.transactions.transaction import Transaction

BANK, JOURNAL = "bank", "journal"
PURSES = "purses"  # accounts of which several tables of a round have some, and amounts move between those
ACCOUNTS = tuple(f"account-{number}" for number in range(8))
_BUCKETS = 4
SCHEMA = pa.schema(
    [
        ("key", pa.string()),
        ("version", pa.int64()),
        ("balance", pa.int64()),
        ("work", pa.string()),
        ("kind", pa.string()),
    ]
)
OPTIONS: Mapping[str, object] = {
    "hoodie.datasource.write.recordkey.field": "key",
    "hoodie.datasource.write.precombine.field": "version",
    "hoodie.datasource.write.partitionpath.field": "kind",
    "hoodie.bucket.index.num.buckets": str(_BUCKETS),
    "hoodie.logfile.data.block.format": "avro",  # for few rows at a time
}
Row = tuple[str, int, int, str, str]  # as SCHEMA has them


def open_bank(storage: Storage, mode: str) -> tuple[OpenedTable, WriteOptions]:
    """The table, made if there is none yet."""
    options = Call({**OPTIONS, MODE_OPTION: mode}).write()
    return open_for_write(storage, options, SCHEMA), options


def read_accounts(table: OpenedTable, wanted: Sequence[str]) -> dict[str, tuple[int, int]]:
    """Version and balance of these accounts as they are now; those that were never written to are left out."""
    buckets = set(bucket_ids_of_texts([pa.array(wanted)], _BUCKETS).to_pylist())
    rows = _read(table, [BANK], buckets, ["key", "version", "balance"])
    return {row["key"]: (row["version"], row["balance"]) for row in rows if row["key"] in wanted}


def count_everything(table: OpenedTable) -> tuple[dict[str, tuple[int, int]], int]:
    """All accounts and the number of entries, of one moment."""
    rows = _read(table, [BANK, JOURNAL], set(range(_BUCKETS)), ["key", "version", "balance", "kind"])
    accounts = {row["key"]: (row["version"], row["balance"]) for row in rows if row["kind"] == BANK}
    return accounts, sum(row["kind"] == JOURNAL for row in rows)


def _read(
    table: OpenedTable, partitions: list[str], buckets: set[int], columns: list[str], as_of: str | None = None
) -> list[dict[str, Any]]:
    view, full = TableView.load(table.storage, table.config, as_of), with_meta_columns(table.schema)
    slices = [found for found in view.slices(partitions) if bucket_of_file_id(found.file_id) in buckets]
    plan = ReadPlan(table, tuple(slices), pa.schema([full.field(name) for name in columns]))
    return [row for found in slices for batch in plan.read(found) for row in batch.to_pylist()]


def read_purses(table: OpenedTable, as_of: str, wanted: Sequence[str] = ()) -> dict[str, tuple[int, int, str]]:
    """Version, balance and last work of these purses, or of all, as of a completion time."""
    buckets = set(bucket_ids_of_texts([pa.array(wanted)], _BUCKETS).to_pylist()) if wanted else set(range(_BUCKETS))
    rows = _read(table, [PURSES], buckets, ["key", "version", "balance", "work"], as_of)
    found = {row["key"]: (row["version"], row["balance"], row["work"]) for row in rows}
    return {key: found[key] for key in wanted if key in found} if wanted else found


def put(transaction: Transaction, table: OpenedTable, options: WriteOptions, rows: Sequence[Row]) -> CommitResult:
    """Writes rows as a task does, and commits them. Errors: those of tasks and of `Transaction.commit`."""
    return commit_files(transaction, table, options, write_files(transaction, table, options, rows))


def write_files(
    transaction: Transaction, table: OpenedTable, options: WriteOptions, rows: Sequence[Row]
) -> list[FileReport]:
    """Writes rows as a task does, without a commit."""
    task = write_task(table, options, transaction)
    data = pa.Table.from_arrays([list(column) for column in zip(*rows, strict=True)], schema=SCHEMA)
    return [
        report for batch in data.to_batches() for report in task.write(iter([task.tag(batch)]), write_token="0-0-0")
    ]


def transferred(
    before: Mapping[str, tuple[int, int]], giver: str, taker: str, amount: int, work: str
) -> tuple[Row, Row]:
    """Both accounts after an amount went from one to the other."""

    def after(account: str, change: int) -> Row:
        version, balance = before.get(account, (0, 0))
        return account, version + 1, balance + change, work, BANK

    return after(giver, -amount), after(taker, amount)


def entries(work: str, count: int) -> list[Row]:
    """The rows of a work in the journal."""
    return [(f"{work}/{number}", 1, 0, work, JOURNAL) for number in range(count)]
