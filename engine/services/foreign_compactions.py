"""What is left to do where another engine has carried out a compaction plan: base files too many, deletes forgotten.

An engine that does not look at our heartbeats (Java Hudi below 1.2, and any version as a single writer) takes a plan
over from a live executor of ours; any engine does so from a dead one. Both then leave their base files under one
instant, which hudi-rs refuses to read. And no other engine keeps the deletes of a plan that asks for it.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from lakelatch.engine.options.compaction import KEEP_DELETES
from lakelatch.engine.read.forgotten_deletes import carried_out_by_others, note_of, put_note
from lakelatch.engine.run.executor import Executor
from lakelatch.engine.run.file_report import FileReport
from lakelatch.engine.services.compaction_task import CompactTask, slice_of
from lakelatch.engine.services.rewriting import Operations, remove_left_over_bases
from lakelatch.engine.table.table import OpenedTable
from lakelatch.format.log.blocks import encode_log_file
from lakelatch.format.merge.slice import merge_slice
from lakelatch.format.names import keeps_deletes_of, kept_deletes_file
from lakelatch.format.slices.table_view import TableView
from lakelatch.storage.checksums import add_checksum
from lakelatch.storage.contract import NotFound, path_below
from lakelatch.timeline.metadata import CompactionOperation

_log = logging.getLogger("lakelatch.engine")


@dataclass(frozen=True)
class KeepDeletes(CompactTask):
    """Keeps the deletes of a compaction that another engine has carried out, as ours would have kept them."""

    def run(self, operation: CompactionOperation) -> FileReport | None:
        """See `RewriteTask`; there is never a base file to report. The plan has ended, so no claim is looked at."""
        table = self.table
        name = kept_deletes_file(operation.partition, operation.file_id, self.instant).name
        try:
            merged = merge_slice(table.storage, slice_of(operation), table.full_schema, table.config, self.completions)
        except NotFound as error:
            _log.warning("deletes of compaction %s are lost, their files were cleaned: %s", self.instant, error)
            return None
        if merged.deletes is not None:
            data = encode_log_file(self.instant, table.full_avro_schema, None, merged.deletes)
            path = path_below(operation.partition, name)
            table.storage.put_if_absent(path, add_checksum(data, path))
        return None


def finish_foreign_compactions(executor: Executor, table: OpenedTable) -> None:
    """Removes base files that no commit names, and keeps the deletes that the plans asked for.

    It looks at compactions on the active timeline that others completed, and is safe to repeat and to do at once.
    """
    view = TableView.load(table.storage, table.config)
    for instant, plan in carried_out_by_others(view):
        remove_left_over_bases(table, instant, plan.file_groups)
        if plan.extra.get(KEEP_DELETES) != "true" or table.config.column_groups:
            continue
        if not table.storage.exists(note_of(instant)):
            missing = _without_kept_deletes(view, instant, plan.operations)
            KeepDeletes(table, instant, {}, True).run_all(executor, missing)
            put_note(table.storage, instant, (one.partition for one in plan.operations))


def _without_kept_deletes(view: TableView, instant: str, operations: Operations) -> Operations:
    """Those whose base file is still the newest of its group: behind a later one nothing could be kept any more."""
    newest = {
        (found.partition, found.file_id): found
        for found in view.slices(sorted({one.partition for one in operations}))
        if found.base_instant == instant
    }
    kept = {
        group for group, found in newest.items() if any(keeps_deletes_of(name, instant) for name in found.log_files)
    }
    return tuple(one for one in operations if (one.partition, one.file_id) in newest.keys() - kept)
