"""Rows of a change as an upsert takes them: those that stay, and those that delete."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from lakelatch.format.avro import IS_DELETED_COLUMN
from lakelatch.spark.session.columns import Expression, all_same, checked, column_of, folder_value

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

    from lakelatch.spark.write.merge import MergedTable

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


def replacing_rows(frame: DataFrame, there: DataFrame, condition: Expression, target: MergedTable) -> DataFrame:
    """The new rows, and those that go because the condition holds and no new one takes their place.

    A new row for which it does not hold ends the job with `InvalidRequest`.
    """
    from pyspark.sql import functions

    names = target.schema.fieldNames()
    holds = functions.coalesce(column_of(condition), functions.lit(False))
    row = {name: frame[name] for name in target.identity}
    words = (
        "the condition of the overwrite does not hold for the new row with ",
        ": leave it out, or use another condition",
    )
    first = checked(row[target.keys[0]], ~holds, words, target.identity, row)
    added = frame.select(*[first.alias(name) if name == target.keys[0] else frame[name] for name in names])
    old = there.where(holds)
    same = target.same(lambda name: old[name], lambda name: frame[name])
    gone = old.join(frame, same, "left_anti").select(*names)
    return added.withColumn(IS_DELETED_COLUMN, functions.lit(False)).unionByName(
        gone.withColumn(IS_DELETED_COLUMN, functions.lit(True))
    )
