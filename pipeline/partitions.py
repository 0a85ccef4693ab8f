"""Deleting whole partitions, without reading or writing a row."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence

from lakelatch.errors import InvalidRequest
from lakelatch.pipeline.batches import refuse_batch
from lakelatch.pipeline.committing import CommitResult, aborting, commit_files, retried
from lakelatch.pipeline.coordination import open_manager
from lakelatch.pipeline.options import DELETE_PARTITION, OPERATION, PARTITIONS_TO_DELETE, WriteOptions
from lakelatch.pipeline.replacing import matching
from lakelatch.pipeline.salvage import Salvage
from lakelatch.pipeline.tables import Table, open_existing
from lakelatch.pipeline.views import TableView
from lakelatch.storage.uris import open_storage
from lakelatch.system import REAL_SYSTEM, System


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
    asked = WriteOptions.parse({**(options or {}), OPERATION: DELETE_PARTITION})
    refuse_batch(asked.raw, "a deletion of partitions")
    names = _names(asked, partitions)
    with open_manager(open_storage(path), asked.raw, system) as manager:
        table = open_existing(manager.storage, asked)
        _check_names(table, names)
        manager.heal()

        def work(_: Salvage) -> CommitResult:
            transaction = manager.begin(asked.action)
            with aborting(transaction):
                return commit_files(transaction, table, asked, [], manager.writer, choose=matching(names))

        return retried(manager, system, work)


def _names(asked: WriteOptions, partitions: str | Sequence[str] | None) -> tuple[str, ...]:
    if partitions is None:
        partitions = asked.raw.get(PARTITIONS_TO_DELETE, "").split(",")
    elif PARTITIONS_TO_DELETE in asked.raw:
        raise InvalidRequest(f"the partitions are given twice: as an argument and as {PARTITIONS_TO_DELETE}")
    given = [partitions] if isinstance(partitions, str) else partitions
    names = tuple(dict.fromkeys(name for part in given if (name := part.strip().strip("/"))))
    if not names:
        raise InvalidRequest(f"no partition is named: give some, or set {PARTITIONS_TO_DELETE}")
    return names


def _check_names(table: Table, names: tuple[str, ...]) -> None:
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
