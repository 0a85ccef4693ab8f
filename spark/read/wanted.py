"""The columns that a reader of Spark's is asked for, and batches that have exactly them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from lakelatch.errors import InvalidRequest
from lakelatch.spark.spark_types import to_arrow, to_spark

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


@dataclass(frozen=True)
class Wanted:
    """Columns of a table in the caller's order, as Spark types them."""

    schema: pa.Schema

    @classmethod
    def of(cls, wanted: StructType, table: pa.Schema) -> Wanted:
        """Errors: `InvalidRequest` for a column that the table has not, or has with another type."""
        there = {field.name: field for field in to_spark(table)}
        for field in wanted:
            if field.name not in there:
                raise InvalidRequest(
                    f"the schema names {field.name!r}, which is no column of the table ({', '.join(there)}): leave the "
                    "schema out, or name columns that are there"
                )
            if field.dataType != there[field.name].dataType:
                raise InvalidRequest(
                    f"the schema gives {field.name!r} the type {field.dataType.simpleString()}, and the table has "
                    f"{there[field.name].dataType.simpleString()}: read it as it is, and cast it then"
                )
        nullable = [field.nullable for field in wanted]
        return cls(pa.schema([field.with_nullable(yes) for field, yes in zip(to_arrow(wanted), nullable, strict=True)]))

    @property
    def names(self) -> list[str]:
        return list(self.schema.names)

    def batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch as the schema has it. Errors: `InvalidRequest` for a null where the caller wants none."""
        for column, field in zip(batch.columns, self.schema, strict=True):
            if column.null_count and not field.nullable:
                raise InvalidRequest(f"the schema says that {field.name!r} is not null, and a row has null there")
        return pa.RecordBatch.from_arrays(batch.columns, schema=self.schema)
