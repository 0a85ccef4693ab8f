"""Store assignment: what a column takes of values of other types.

The rule is that of spark.sql.storeAssignmentPolicy=ANSI, Spark's default, whatever spark.sql.ansi.enabled says: a plain
cast in a session without ANSI would store a number that has wrapped around, or NULL for a text that is no number.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from lakelatch.errors import InvalidRequest
from lakelatch.spark.session.columns import Expression, analysed
from lakelatch.spark.sql.errors import InvalidStatement

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructField, StructType

_DIGITS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 20}


def all_stored(rows: DataFrame, values: Mapping[str, str], schema: StructType, what: str) -> dict[str, Expression]:
    """Values, as text about `rows`, as the columns of a table store them. Errors: as for `stored`.

    One that needs no look at its value is the text as it stands, whose type a change makes the column's.
    """
    from pyspark.sql import functions

    columns = {name: functions.expr(text) for name, text in values.items()}
    given = analysed(lambda: rows.select(*columns.values()), what).schema
    pairs = zip(columns.items(), given, strict=True)
    return {
        name: values[name]
        if _is_stored_as_it_is(one.dataType, schema[name].dataType)
        else stored(column, one.dataType, schema[name])
        for (name, column), one in pairs
    }


def _is_stored_as_it_is(given: DataType, wanted: DataType) -> bool:
    """Whether values that are not equal before are not equal either as values of the column."""
    from pyspark.sql.types import IntegralType

    if isinstance(given, IntegralType) and isinstance(wanted, IntegralType):
        return _always_fits(given, wanted)
    return given == wanted


def stored(value: Column, given: DataType, field: StructField) -> Column:
    """The value as the column stores it; one that does not fit ends the job with `InvalidRequest`.

    Errors: `InvalidStatement` for a type that Spark would not store in a column of the other one either.
    """
    if not _can_store(given, field.dataType):
        raise InvalidStatement(
            f"the column {field.name!r} is {field.dataType.simpleString()}, and is given "
            f"{given.simpleString()}: cast it",
            "INCOMPATIBLE_DATA_FOR_TABLE.CANNOT_SAFELY_CAST",
        )
    return _converted(value, given, field.dataType, field.name)


def fitting(value: Column, wanted: DataType, name: str) -> Column:
    """The value as another type, also of text; where it has none, its evaluation ends the job with `InvalidRequest`."""
    from pyspark.sql import functions

    found = value.try_cast(wanted)
    said = functions.concat(
        functions.lit(f"[{InvalidRequest.code}] the value "),
        value.cast("string"),
        functions.lit(f" does not fit into the column {name!r}, which is {wanted.simpleString()}: cast it\n"),
    )
    return functions.when(value.isNotNull() & found.isNull(), functions.raise_error(said)).otherwise(found)


def _can_store(given: DataType, wanted: DataType) -> bool:
    from pyspark.sql.types import ArrayType, MapType, NullType, NumericType, StringType, StructType

    if isinstance(given, NullType):
        return True
    if isinstance(given, ArrayType) and isinstance(wanted, ArrayType):
        return _can_store(given.elementType, wanted.elementType)
    if isinstance(given, MapType) and isinstance(wanted, MapType):
        return _can_store(given.keyType, wanted.keyType) and _can_store(given.valueType, wanted.valueType)
    if isinstance(given, StructType) and isinstance(wanted, StructType):
        pairs = zip(given, wanted, strict=False)
        return len(given) == len(wanted) and all(_can_store(one.dataType, other.dataType) for one, other in pairs)
    if isinstance(given, (ArrayType, MapType, StructType)):
        return False
    if isinstance(given, NumericType) and isinstance(wanted, NumericType):
        return True
    if isinstance(wanted, StringType) or (_is_time(given) and _is_time(wanted)):
        return True
    return given.typeName() == wanted.typeName()


def _is_time(kind: DataType) -> bool:
    return kind.typeName() in ("date", "timestamp", "timestamp_ntz")


def _converted(value: Column, given: DataType, wanted: DataType, name: str) -> Column:
    from pyspark.sql import functions
    from pyspark.sql.types import ArrayType, MapType, StructType

    if _always_fits(given, wanted):
        return value.cast(wanted)
    if isinstance(given, ArrayType) and isinstance(wanted, ArrayType):
        element, of_table = given.elementType, wanted.elementType
        return functions.transform(value, lambda one: _converted(one, element, of_table, name)).cast(wanted)
    if isinstance(given, MapType) and isinstance(wanted, MapType):
        keys, values = (given.keyType, wanted.keyType), (given.valueType, wanted.valueType)
        found = functions.transform_keys(value, lambda key, _: _converted(key, *keys, name))
        return functions.transform_values(found, lambda _, one: _converted(one, *values, name)).cast(wanted)
    if isinstance(given, StructType) and isinstance(wanted, StructType):
        cells = [
            _converted(value.getField(one.name), one.dataType, other.dataType, f"{name}.{other.name}").alias(other.name)
            for one, other in zip(given, wanted, strict=True)
        ]
        return functions.when(value.isNotNull(), functions.struct(*cells)).cast(wanted)
    return fitting(value, wanted, name)


def _always_fits(given: DataType, wanted: DataType) -> bool:
    """Whether each value of one type has its like in the other one, so that no cast of it fails."""
    from pyspark.sql.types import ArrayType, DecimalType, IntegralType, MapType, NullType, NumericType, StructType

    if given == wanted or isinstance(given, NullType):
        return True
    if isinstance(given, ArrayType) and isinstance(wanted, ArrayType):
        return _always_fits(given.elementType, wanted.elementType)
    if isinstance(given, MapType) and isinstance(wanted, MapType):
        return _always_fits(given.keyType, wanted.keyType) and _always_fits(given.valueType, wanted.valueType)
    if isinstance(given, StructType) and isinstance(wanted, StructType):
        return all(_always_fits(one.dataType, other.dataType) for one, other in zip(given, wanted, strict=True))
    if not isinstance(given, NumericType) or not isinstance(wanted, (DecimalType, IntegralType)):
        return True
    digits = _DIGITS.get(given.simpleString())
    if isinstance(wanted, DecimalType):
        if isinstance(given, DecimalType):  # 9.9 may be rounded to 10
            digits = given.precision - given.scale + (given.scale > wanted.scale)
        return digits is not None and wanted.precision - wanted.scale >= digits
    return digits is not None and digits <= _DIGITS[wanted.simpleString()]
