"""Deleting whole partitions, without reading or writing a row."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence

from lakelatch.errors import InvalidRequest
from lakelatch.format.table_view import TableView
from lakelatch.spark.open_manager import open_manager
from lakelatch.spark.open_table import open_existing
from lakelatch.spark.options import OPERATION, PARTITIONS_TO_DELETE, WriteOptions
from lakelatch.spark.service_options import ServiceOptions
from lakelatch.spark.services.keeping.inline import after_commit
from lakelatch.spark.table import OpenedTable
from lakelatch.spark.write.attempt import Lost, attempted, retried
from lakelatch.spark.write.commit import commit_files
from lakelatch.spark.write.rebase import LostFiles
from lakelatch.spark.write.replace import matching
from lakelatch.spark.write.result import CommitResult
from lakelatch.spark.write.streaming.batch import refuse_batch
from lakelatch.storage.uris import open_storage
from lakelatch.system import REAL_SYSTEM, System
from lakelatch.timeline.actions import DELETE_PARTITION


def delete_partitions(
    path: str,
    partitions: str | Sequence[str] | None = None,
    options: Mapping[str, object] | None = None,
    system: System = REAL_SYSTEM,
) -> CommitResult:
    """Takes away all rows of partitions, at once and without a Spark job; what others commit later is read.

    `partitions` are folders below the table (`2026/11`, `day=2026-11-21`), in which `*` stands for any text. If it is
    None, hoodie.datasource.write.partitions.to.delete names them, separated by commas. The files stay until they are
    cleaned, and time travel reads them. Errors: `InvalidRequest` if there is no such partition, and those of `write`.
    """
    write_options = WriteOptions.parse({**(options or {}), OPERATION: DELETE_PARTITION})
    service_options = ServiceOptions.parse(options)
    refuse_batch(write_options.batch, "a deletion of partitions")
    names = _names(write_options, partitions)
    table = open_existing(open_storage(path, write_options.manager.storage), write_options)
    _check_names(table, names)
    with open_manager(table.storage, write_options.manager, system, config=table.config) as manager:
        manager.recover()

        def attempt(_: LostFiles | None, __: bool) -> CommitResult | Lost:
            transaction = manager.begin(write_options.action_on(table.config.table_type))
            choose = matching(names)
            return attempted(transaction, lambda: commit_files(transaction, table, write_options, [], choose=choose))

        return after_commit(retried(manager, attempt), table, manager, service_options, None)


def _names(options: WriteOptions, partitions: str | Sequence[str] | None) -> tuple[str, ...]:
    if partitions is None:
        partitions = options.partitions_to_delete or ()
    elif options.partitions_to_delete is not None:
        raise InvalidRequest(f"the partitions are given twice: as an argument and as {PARTITIONS_TO_DELETE}")
    given = [partitions] if isinstance(partitions, str) else partitions
    names = tuple(dict.fromkeys(name for part in given if (name := part.strip().strip("/"))))
    if not names:
        raise InvalidRequest(f"no partition is named: give some, or set {PARTITIONS_TO_DELETE}")
    return names


def _check_names(table: OpenedTable, names: tuple[str, ...]) -> None:
    """A slip of the pen must not pass for a deletion."""
    if not table.config.partition_fields:
        raise InvalidRequest(
            f"the table {table.config.name!r} has no partitions: write an empty frame with "
            f"{OPERATION}=insert_overwrite_table to empty it"
        )
    existing = TableView.load(table.storage, table.config).partitions()
    for name in names:
        if not matching([name])(existing) & set(existing):
            near = difflib.get_close_matches(name, existing, n=3, cutoff=0)
            hint = f": the nearest are {', '.join(near)}" if near else ": it is empty"
            raise InvalidRequest(f"the table {table.config.name!r} has no partition {name!r}{hint}")
