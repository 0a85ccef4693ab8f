"""The rows of an upsert that changes or removes rows of the table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from lakelatch.engine.changes.identity import Identity
from lakelatch.engine.sql.expressions import Expression, evaluated, held_by, holding, stored_as
from lakelatch.errors import InvalidRequest
from lakelatch.format.avro import IS_DELETED_COLUMN
from lakelatch.timeline.table_config import TableConfig


def flagged(schema: pa.Schema) -> pa.Schema:
    """The columns with the flag of rows that delete theirs."""
    if IS_DELETED_COLUMN in schema.names:
        return schema
    return schema.append(pa.field(IS_DELETED_COLUMN, pa.bool_()))


def with_flag(rows: pa.Table, deletes: bool) -> pa.Table:
    """The rows, all of which delete theirs or none."""
    flag, place = pa.repeat(deletes, rows.num_rows), rows.schema.get_field_index(IS_DELETED_COLUMN)
    if place < 0:
        return rows.append_column(IS_DELETED_COLUMN, flag)
    return rows.set_column(place, IS_DELETED_COLUMN, flag)


def with_values(old: pa.Table, values: Mapping[str, Expression], seen: pa.Table) -> pa.Table:
    """The rows with other values in some columns, which are evaluated on the rows `seen`. Errors: `InvalidRequest`."""

    def column(field: pa.Field) -> pa.ChunkedArray:
        given = values.get(field.name)
        return old[field.name] if given is None else stored_as(evaluated(given, seen), field)

    return pa.table([column(field) for field in old.schema], schema=old.schema)


def changed(old: pa.Table, new: pa.Table, config: TableConfig) -> Iterator[pa.Table]:
    """The rows of an upsert that makes rows `new` from `old` ones, with the flag.

    A row whose partition changes becomes two: the new one, and the deletion of the old one where it was.
    """
    yield with_flag(new, False)
    if config.partition_fields and old.num_rows:
        identity = Identity(config)
        moved = pc.not_equal(identity.folders(old), identity.folders(new))
        yield with_flag(old.filter(moved), True)


def replacing(
    new: pa.Table, there: Iterable[pa.Table], condition: Expression, config: TableConfig, schema: pa.Schema
) -> pa.Table:
    """The new rows, and those that go because the condition holds and no new one takes their place.

    Errors: `InvalidRequest` for a new row for which it does not hold.
    """
    identity = Identity(config)
    held = held_by(condition, new)
    if not pc.all(held, min_count=0).as_py():
        row = identity.shown(new, pc.index(held, False).as_py())
        raise InvalidRequest(
            f"the condition of the overwrite does not hold for the new row with {row}: leave it out, or use another "
            "condition"
        )
    taken, gone = identity.texts(new), []
    for part in there:
        found = holding(condition, part)
        gone.append(with_flag(found.filter(pc.invert(pc.is_in(identity.texts(found), value_set=taken))), True))
    return pa.concat_tables([with_flag(new, False).select(flagged(schema).names), *gone])
