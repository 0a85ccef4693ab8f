"""Rows as Spark takes them from tasks."""

from __future__ import annotations

import pyarrow as pa


def for_spark(table: pa.Table, schema: pa.Schema) -> list[pa.RecordBatch]:
    """Batches whose types are exactly those that Spark has for the schema's, as `mapInArrow` demands."""
    fields = [pa.field(field.name, _for_spark(field.type)) for field in schema]
    batches: list[pa.RecordBatch] = table.cast(pa.schema(fields)).combine_chunks().to_batches(max_chunksize=64 * 1024)
    return batches


def _for_spark(kind: pa.DataType) -> pa.DataType:
    """Other writers store times in milliseconds as well; Spark takes microseconds only."""
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz)
    if pa.types.is_list(kind):
        return pa.list_(pa.field(kind.value_field.name, _for_spark(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(_for_spark(kind.key_type), _for_spark(kind.item_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _for_spark(field.type)) for field in kind])
    return kind
