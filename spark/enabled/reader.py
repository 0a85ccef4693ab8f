"""`spark.read` of an enabled session."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakelatch.engine.options.calls.registry import Call
from lakelatch.engine.options.read import COLUMNS, READ_META
from lakelatch.errors import InvalidRequest
from lakelatch.spark.enabled.said import Said, WithOptions
from lakelatch.spark.read.frames_out import read
from lakelatch.spark.read.wanted import Wanted
from lakelatch.spark.session.catalog import find_table
from lakelatch.spark.session.columns import schema_of
from lakelatch.spark.session.refusals import PATH_MISSING, RefusedByAnalysis
from lakelatch.spark.session.spark_types import to_arrow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession
    from pyspark.sql.types import StructType

    _Reader = DataFrameReader
else:
    _Reader = object


class EnabledReader(WithOptions, _Reader):
    """Spark's reader; a table of ours becomes the frame that `lakelatch.read` gives."""

    def begin(self, spark: SparkSession) -> None:
        self._lakelatch_session = spark
        self._lakelatch_said = Said()
        self._lakelatch_schema: StructType | str | None = None

    def format(self, source: str) -> Any:
        self._lakelatch_said.format = source
        return super().format(source)

    def schema(self, schema: StructType | str) -> Any:
        self._lakelatch_schema = schema
        return super().schema(schema)

    def load(self, path: Any = None, format: str | None = None, schema: Any = None, **options: Any) -> Any:
        if format is not None:
            self.format(format)
        if schema is not None:
            self.schema(schema)
        self.options(**options)
        if not self._lakelatch_said.is_ours(self._lakelatch_session):
            return super().load(path)
        given = dict(self._lakelatch_said.options)
        return self._lakelatch_frame(_one_path(path, given), given)

    def table(self, tableName: str) -> Any:
        found = find_table(self._lakelatch_session, tableName)
        if found is None:
            return super().table(tableName)
        return self._lakelatch_frame(found.path, {**found.options, **self._lakelatch_said.options})

    def _lakelatch_frame(self, path: str, options: dict[str, object]) -> DataFrame:
        spark, schema = self._lakelatch_session, self._lakelatch_schema
        try:
            if schema is None:
                return read(spark, path, options)
            wanted = schema_of(schema)
            frame = read(spark, path, {**options, COLUMNS: ",".join(wanted.names), READ_META: False})
        except InvalidRequest as error:
            if error.details.get("no_table"):
                raise RefusedByAnalysis.of(PATH_MISSING, error.message, **error.details) from None
            raise
        Wanted.of(wanted, to_arrow(frame.schema))
        return frame.select(*wanted.names)


def _one_path(path: Any, options: dict[str, object]) -> str:
    """The path that was given, as an argument or as an option, which is taken out. Errors: `InvalidRequest`."""
    said = options.pop("path", None)
    if isinstance(path, (list, tuple)):
        if len(path) != 1:
            Call({"paths": str(path)})
        path = path[0]
    path = said if path is None else path
    if not path:
        raise InvalidRequest(
            "the option 'path' is missing: name the table's folder, load('/data/trips')", option="path"
        )
    return str(path)
