"""`df.write` of an enabled session."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakelatch.errors import InvalidRequest
from lakelatch.spark.enabled.said import Said, WithOptions
from lakelatch.spark.enabled.saving import insert_into, save, save_as_table
from lakelatch.spark.session.catalog import find_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameWriter

    _Writer = DataFrameWriter
else:
    _Writer = object


class EnabledWriter(WithOptions, _Writer):
    """Spark's writer; what it is to write in our format is written as by `lakelatch.write` and `Table`."""

    def begin(self, frame: DataFrame) -> None:
        self._lakelatch_frame = frame
        self._lakelatch_said = Said()

    def mode(self, saveMode: str | None) -> Any:
        made = super().mode(saveMode)  # which refuses what is no mode
        if saveMode is not None:
            self._lakelatch_said.mode = saveMode.lower()
        return made

    def format(self, source: str) -> Any:
        self._lakelatch_said.format = source
        return super().format(source)

    def partitionBy(self, *cols: Any) -> Any:
        self._lakelatch_said.partitioned(cols)
        return super().partitionBy(*cols)

    def bucketBy(self, numBuckets: int, col: Any, *cols: Any) -> Any:
        self._lakelatch_said.refused.append("bucketBy")
        return super().bucketBy(numBuckets, col, *cols)

    def sortBy(self, col: Any, *cols: Any) -> Any:
        self._lakelatch_said.refused.append("sortBy")
        return super().sortBy(col, *cols)

    def clusterBy(self, *cols: Any) -> Any:
        self._lakelatch_said.refused.append("clusterBy")
        return super().clusterBy(*cols)

    def save(
        self,
        path: str | None = None,
        format: str | None = None,
        mode: str | None = None,
        partitionBy: Any = None,
        **options: Any,
    ) -> None:
        said = self._lakelatch_told(format, mode, partitionBy, options)
        if not said.is_ours(self._lakelatch_frame.sparkSession):
            super().save(path)
            return
        save(self._lakelatch_frame, said, path)

    def saveAsTable(
        self, name: str, format: str | None = None, mode: str | None = None, partitionBy: Any = None, **options: Any
    ) -> None:
        said = self._lakelatch_told(format, mode, partitionBy, options)
        spark = self._lakelatch_frame.sparkSession
        ours = said.is_ours(spark) or (said.format is None and find_table(spark, name) is not None)
        if not ours:
            super().saveAsTable(name)
            return
        save_as_table(self._lakelatch_frame, said, name)

    def insertInto(self, tableName: str, overwrite: bool | None = None) -> None:
        found = find_table(self._lakelatch_frame.sparkSession, tableName)
        if found is None:
            super().insertInto(tableName, overwrite)
            return
        if overwrite is not None:
            self.mode("overwrite" if overwrite else "append")
        if self._lakelatch_said.partition_by:
            raise InvalidRequest(
                "insertInto() goes without partitionBy(): the table knows its partitions", option="partitionBy"
            )
        insert_into(self._lakelatch_frame, self._lakelatch_said, found)

    def _lakelatch_told(self, format: str | None, mode: str | None, partition_by: Any, options: dict[str, Any]) -> Said:
        self.mode(mode).options(**options)
        if partition_by is not None:
            self.partitionBy(partition_by)
        if format is not None:
            self.format(format)
        return self._lakelatch_said
