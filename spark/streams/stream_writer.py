"""`df.writeStream.format("lakelatch")`: each micro-batch is one commit, once.

Spark makes the writer anew in each process. The one that is shipped to the tasks begins a transaction; the one that
commits knows nothing of it but what the tasks' messages say: the transaction, and the query, which names the batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from lakelatch.engine.distributed_write import BegunWrite, TaskWrite, begin_write
from lakelatch.engine.options.batch import BATCH_APPLICATION, BATCH_NUMBER, Batch
from lakelatch.engine.options.calls.registry import Call
from lakelatch.engine.run.file_report import FileReport
from lakelatch.engine.writing import parse_write
from lakelatch.errors import InvalidRequest
from lakelatch.spark.session.executor import write_token
from lakelatch.spark.session.shown_errors import shown_plainly
from lakelatch.spark.session.spark_types import to_arrow
from lakelatch.spark.streams.sink import ensure_nothing_beside

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


_QUERY_ID = "sql.streaming.queryId"  # Spark keeps it in the query's checkpoint, and tells it to the tasks
_WHERE = "the sink's processes end with each batch"


@dataclass
class BatchMessage(WriterCommitMessage):
    """The files that one task has written. The first one also names the query and the transaction."""

    reports: list[FileReport]
    query: str | None = None
    begun: BegunWrite | None = None


class LakelatchStreamWriter(DataSourceStreamArrowWriter):
    """Writes the micro-batches of a query. Making one has no effect; shipping it to tasks begins a transaction."""

    def __init__(self, path: str, options: Mapping[str, object], schema: StructType) -> None:
        values: dict[str, object] = dict(Call(options))
        if BATCH_NUMBER in values:
            raise InvalidRequest(
                f"{BATCH_NUMBER}={values[BATCH_NUMBER]}: Spark numbers the batches of a query, remove it",
                option=BATCH_NUMBER,
            )
        self._application = str(values.pop(BATCH_APPLICATION, "")).strip()
        ensure_nothing_beside({key: str(value) for key, value in values.items()}, _WHERE)
        self._path, self._schema = path, schema
        self._options, self._services = parse_write(values)
        self._begun: tuple[BegunWrite, TaskWrite] | None = None

    @shown_plainly
    def __getstate__(self) -> dict[str, Any]:
        if self._begun is None:
            self._begun = begin_write(self._path, self._options, self._services, to_arrow(self._schema))
        return dict(self.__dict__)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        if self._begun is None:
            raise InvalidRequest("a stream writer writes where Spark has shipped it to: call lakelatch.write instead")
        begun, task = self._begun
        reports = task.write(iterator, write_token())
        context = TaskContext.get()
        if context is not None and context.partitionId() > 0:
            return BatchMessage(reports)
        query = None if context is None else context.getLocalProperty(_QUERY_ID)
        return BatchMessage(reports, self._application or query, begun)

    @shown_plainly
    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        found = [message for message in messages if isinstance(message, BatchMessage)]
        for message in found:
            if message.begun is not None:
                if not message.query:
                    raise InvalidRequest(
                        f"{BATCH_APPLICATION} is not set, and Spark does not tell the query's id: set it",
                        option=BATCH_APPLICATION,
                    )
                options = replace(message.begun.options, batch=Batch(message.query, batchId))
                begun = replace(message.begun, options=options)
                begun.commit([report for one in found for report in one.reports])
                return

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Where no message says which transaction it was, the next writer rolls it back."""
        for message in messages:
            if isinstance(message, BatchMessage) and message.begun is not None:
                message.begun.abort()
