"""`df.writeTo(name)` of an enabled session."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from lakelatch.errors import InvalidRequest
from lakelatch.spark.enabled.said import Said, WithOptions
from lakelatch.spark.enabled.saving import OVERWRITE, create_table, write_into
from lakelatch.spark.session.catalog import CatalogTable, find_table, look_up, path_of, permanent
from lakelatch.spark.session.refusals import TABLE_EXISTS, TABLE_MISSING, RefusedByAnalysis
from lakelatch.spark.table import Table
from lakelatch.timeline.actions import INSERT_OVERWRITE, INSERT_OVERWRITE_TABLE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameWriterV2

    _Writer = DataFrameWriterV2
else:
    _Writer = object

_COLUMN = re.compile(r"Column<'(?P<name>\w+)'>")


class EnabledTableWriter(WithOptions, _Writer):
    """Spark's writer into a table of a catalog; one of ours is written as by `lakelatch.write` and `Table`."""

    def begin(self, frame: DataFrame, name: str) -> None:
        self._lakelatch_frame = frame
        self._lakelatch_name = name
        self._lakelatch_said = Said()

    def using(self, provider: str) -> Any:
        self._lakelatch_said.format = provider
        return super().using(provider)

    def tableProperty(self, property: str, value: str) -> Any:
        self._lakelatch_said.option(property, value)
        return super().tableProperty(property, value)

    def partitionedBy(self, col: Any, *cols: Any) -> Any:
        self._lakelatch_said.partitioned(map(_name_of, (col, *cols)))
        return super().partitionedBy(col, *cols)

    def clusterBy(self, col: str, *cols: str) -> Any:
        self._lakelatch_said.refused.append("clusterBy")
        return super().clusterBy(col, *cols)

    def create(self) -> None:
        if not self._lakelatch_is_ours():
            super().create()
            return
        if self._lakelatch_existing() is not None:
            raise RefusedByAnalysis.of(
                TABLE_EXISTS, f"there is a table {self._lakelatch_name} already: use append() or createOrReplace()"
            )
        create_table(self._lakelatch_frame, self._lakelatch_said, self._lakelatch_name)

    def replace(self) -> None:
        if not self._lakelatch_is_ours():
            super().replace()
            return
        found = self._lakelatch_existing()
        if found is None:
            raise RefusedByAnalysis.of(
                TABLE_MISSING, f"there is no table {self._lakelatch_name}: use create() or createOrReplace()"
            )
        self._lakelatch_replace(found)

    def createOrReplace(self) -> None:
        if not self._lakelatch_is_ours():
            super().createOrReplace()
            return
        found = self._lakelatch_existing()
        if found is None:
            create_table(self._lakelatch_frame, self._lakelatch_said, self._lakelatch_name)
        else:
            self._lakelatch_replace(found)

    def append(self) -> None:
        found = self._lakelatch_target()
        if found is None:
            super().append()
            return
        write_into(self._lakelatch_frame, self._lakelatch_said, found)

    def overwrite(self, condition: Any) -> None:
        found = self._lakelatch_target()
        if found is None:
            super().overwrite(condition)
            return
        options = {**found.options, **self._lakelatch_said.options}
        Table(self._lakelatch_frame.sparkSession, found.path, options).overwrite(self._lakelatch_frame, condition)

    def overwritePartitions(self) -> None:
        found = self._lakelatch_target()
        if found is None:
            super().overwritePartitions()
            return
        write_into(self._lakelatch_frame, self._lakelatch_said, found, INSERT_OVERWRITE)

    def _lakelatch_is_ours(self) -> bool:
        """Whether the table is to be made in our format, which a path or the table that is there may say as well."""
        said, spark = self._lakelatch_said, self._lakelatch_frame.sparkSession
        return said.is_ours(spark) or (said.format is None and find_table(spark, self._lakelatch_name) is not None)

    def _lakelatch_target(self) -> CatalogTable | None:
        return find_table(self._lakelatch_frame.sparkSession, self._lakelatch_name)

    def _lakelatch_existing(self) -> CatalogTable | None:
        spark = self._lakelatch_frame.sparkSession
        path = path_of(self._lakelatch_name)
        if path is None:
            return look_up(spark, permanent(spark, self._lakelatch_name))
        return self._lakelatch_target() if Table.is_table(path, self._lakelatch_said.options) else None

    def _lakelatch_replace(self, found: CatalogTable) -> None:
        self._lakelatch_said.mode = OVERWRITE
        write_into(self._lakelatch_frame, self._lakelatch_said, found, INSERT_OVERWRITE_TABLE)


def _name_of(column: Any) -> str:
    """The name of a column that rows are partitioned by. Errors: `InvalidRequest` for a function of one."""
    if isinstance(column, str):
        return column
    found = _COLUMN.fullmatch(str(column))
    if found is None:
        raise InvalidRequest(
            f"partitionedBy({column}): name columns; options of hoodie.keygen.timebased make folders of times",
            option="partitionedBy",
        )
    return found["name"]
