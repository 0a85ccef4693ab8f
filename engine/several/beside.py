"""Whether a change of a table may be staged beside what its transaction does next, before it is known to succeed.

What is wrong with a change is to be raised where it is called. So this is for changes with which nothing can be wrong
but what others do meanwhile, or a storage: few rows, which are here, fit the table, and need not be compared with it.
"""

from __future__ import annotations

import pyarrow as pa

from lakelatch.engine.options.calls.arguments import Options
from lakelatch.engine.options.write import UPDATE
from lakelatch.engine.table.columns import fitted
from lakelatch.engine.table.opening import agreeing, table_at
from lakelatch.engine.write.tasks.task import WriteTask
from lakelatch.engine.writing import parse_write
from lakelatch.errors import LakelatchError
from lakelatch.format.log.blocks import data_block_format
from lakelatch.format.names import NO_TASK
from lakelatch.storage.contract import Storage
from lakelatch.timeline.snapshot import Snapshot
from lakelatch.timeline.table_config import TableConfig

_ROWS_MOST = 10_000  # of which keys are made, and values cast, once more by the write


def may_be_staged_beside(
    storage: Storage, config: TableConfig, timeline: Snapshot, rows: pa.Table, options: Options
) -> bool:
    """Whether this is so of a write of rows, to the table as it was when its transaction began."""
    if rows.num_rows > _ROWS_MOST or config.appends_only:
        return False
    try:
        parsed, _ = parse_write(options)
        if parsed.known_keys != UPDATE:
            return False
        table = fitted(agreeing(table_at(storage, config, timeline), parsed), rows.schema, parsed.on(config))
        form = data_block_format(config, table.schema)
        task = WriteTask(storage, config, table.schema, table.avro_schema, "", parsed.operation, form)
        for batch in rows.to_batches():
            if batch.num_rows:
                task.contents(pa.Table.from_batches([task.tag(batch)]), "", NO_TASK, 0)
    except (LakelatchError, pa.ArrowException):  # which the write itself raises, where it is called
        return False
    return True
