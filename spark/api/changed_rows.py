"""Rows of a change as an upsert takes them: those that stay, and those that delete."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from lakelatch.format.avro import IS_DELETED_COLUMN
from lakelatch.spark.api.arguments import all_same, folder_value

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

_ROWS = "_lakelatch_rows"


def changed_rows(
    frame: DataFrame,
    schema: StructType,
    old: Mapping[str, Column],
    new: Mapping[str, Column],
    deletes: Column,
    there: Column,
    partition_fields: Sequence[str],
) -> DataFrame:
    """One row of the table's columns for each of the frame, with the flag that says whether it deletes.

    A row whose partition changes becomes two: the new one, and the deletion of the old one where it was. Values that
    share a folder are one partition: the deletion would take the new row away. `there` says whether there was an old
    one.
    """
    from pyspark.sql import functions

    def row(values: Mapping[str, Column], flag: Column) -> Column:
        cells = [values[field.name].cast(field.dataType).alias(field.name) for field in schema]
        return functions.struct(*cells, flag.alias(IS_DELETED_COLUMN))

    now = row(new, deletes)
    if not partition_fields:
        rows = functions.array(now)
    else:
        kinds = {field.name: field.dataType for field in schema}
        same = all_same(
            (folder_value(old[name], kinds[name]), folder_value(new[name].cast(kinds[name]), kinds[name]))
            for name in partition_fields
        )
        before = row(old, functions.lit(True))
        rows = functions.when(there & ~same & ~deletes, functions.array(now, before)).otherwise(functions.array(now))
    exploded = frame.select(functions.explode(rows).alias(_ROWS))
    return exploded.select(f"{_ROWS}.*")
