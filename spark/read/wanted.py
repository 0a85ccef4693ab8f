"""The columns that a reader of Spark's is asked for, and batches that have exactly them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from lakelatch.errors import InvalidRequest
from lakelatch.format.evolution import Comparison, conform
from lakelatch.spark.session.spark_types import to_arrow, to_spark

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

    def at(self, table: pa.Schema) -> tuple[list[str], frozenset[str]]:
        """Which of these columns a table had at another moment, and which of them with types that hold less.

        Errors: `InvalidRequest` for one whose type holds more.
        """
        mine = {field.name: field.dataType for field in to_spark(self.schema)}
        then = {field.name: field.dataType for field in to_spark(table)}
        names = [name for name in self.names if name in then]
        older = [name for name in names if then[name] != mine[name]]
        for name in older:
            wanted, had = pa.schema([self.schema.field(name)]), pa.schema([table.field(name)])
            narrower, wider = Comparison.of(wanted, had), Comparison.of(had, wanted)
            if (narrower.unfit or narrower.widened) and (wider.unfit or not wider.widened):
                raise InvalidRequest(
                    f"the column {name!r} is {then[name].simpleString()} by now, and what reads it takes it for "
                    f"{mine[name].simpleString()}: start the query again"
                )
        return names, frozenset(older)

    def batch(self, batch: pa.RecordBatch, older: Collection[str] = ()) -> pa.RecordBatch:
        """The batch as the schema has it; columns that it lacks are null, those named `older` become of its types.

        Errors: `InvalidRequest` for a null where the caller wants none.
        """
        columns = []
        for field in self.schema:
            there = field.name in batch.schema.names
            column = batch.column(field.name) if there else pa.nulls(batch.num_rows, field.type)
            if column.null_count and not field.nullable:
                raise InvalidRequest(f"the schema says that {field.name!r} is not null, and a row has null there")
            if field.name in older:
                column = conform(pa.chunked_array([column]), field.type).combine_chunks()
            columns.append(column)
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)
