"""Rows of a change as an upsert takes them: those that stay, and those that delete."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from lakelatch.engine.changes.changed import TAKEN
from lakelatch.engine.changes.clauses import INSERTED_TWICE, WRITTEN_OVER
from lakelatch.format.avro import IS_DELETED_COLUMN
from lakelatch.spark.session.columns import Expression, all_same, checked, column_of, folder_value

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

    from lakelatch.spark.write.merge import MergedTable

_ROWS, _KNOWN, _SPREAD, _TOGETHER = (f"_lakelatch_{name}" for name in ("rows", "known", "spread", "together"))


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
        moved = there & ~deletes & changes_partition(schema, old, new, partition_fields)
        before = row(old, functions.lit(True))
        rows = functions.when(moved, functions.array(now, before)).otherwise(functions.array(now))
    exploded = frame.select(functions.explode(rows).alias(_ROWS))
    return exploded.select(f"{_ROWS}.*")


def changes_partition(
    schema: StructType, old: Mapping[str, Column], new: Mapping[str, Column], partition_fields: Sequence[str]
) -> Column:
    """Whether the new values of a row mean another folder than the old ones."""
    kinds = {field.name: field.dataType for field in schema}
    return ~all_same(
        (folder_value(old[name], kinds[name]), folder_value(new[name].cast(kinds[name]), kinds[name]))
        for name in partition_fields
    )


def kept_apart(
    frame: DataFrame,
    new: Mapping[str, Column],
    target: MergedTable,
    known: DataFrame,
    inserts: Column | None = None,
    moved: Column | None = None,
    once: bool = False,
) -> tuple[DataFrame, dict[str, Column]]:
    """The frame and its new values, of which none is written over another row of the table, or of the frame.

    `inserts` are new rows, and `moved` those that change their partition; the job ends with `InvalidRequest` for one
    that has the key and partition of a row that is `known`, and for one that is moved to where another one goes. With
    `once` it does so for two new rows that would be one.
    """
    from pyspark.sql import Window, functions

    kinds = {field.name: field.dataType for field in target.schema}
    identity, first = target.identity, target.keys[0]
    place = {name: new[name].cast(kinds[name]) for name in identity}
    goes = [one for one in (inserts, moved) if one is not None]
    written = goes[0] if len(goes) == 1 else goes[0] | goes[1]
    there = known.select(*[known[name].alias(f"{_KNOWN}_{name}") for name in identity])
    there = there.withColumn(_KNOWN, functions.lit(True))
    same = target.same(lambda name: place[name], lambda name: functions.col(f"{_KNOWN}_{name}"))
    frame, found = frame.join(there, written & same, "left"), dict(new)
    if inserts is not None:
        found[first] = checked(found[first], inserts & functions.col(_KNOWN), WRITTEN_OVER, identity, new)
    if moved is not None or once:
        # Rows that stay where they are would all come to one task.
        frame = frame.withColumn(_SPREAD, functions.when(~written, functions.monotonically_increasing_id()))
        of_folder = [
            place[name] if name in target.keys else folder_value(place[name], kinds[name]) for name in identity
        ]
        window = Window.partitionBy(*of_folder, functions.col(_SPREAD))
        frame = frame.withColumn(_TOGETHER, functions.count(functions.lit(1)).over(window))
    if once and inserts is not None:
        found[first] = checked(found[first], inserts & (functions.col(_TOGETHER) > 1), INSERTED_TWICE, identity, new)
    if moved is not None:
        taken = functions.coalesce(functions.col(_KNOWN), functions.col(_TOGETHER) > 1)
        found[first] = checked(found[first], moved & taken, TAKEN, identity, new)
    return frame, found


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
