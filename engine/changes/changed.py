"""The rows of an upsert that changes or removes rows of the table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from lakelatch.engine.changes.identity import Identity, Reader
from lakelatch.engine.sql.expressions import Expression, evaluated, held_by, holding, stored_as
from lakelatch.errors import InvalidRequest
from lakelatch.format.avro import IS_DELETED_COLUMN
from lakelatch.timeline.table_config import TableConfig

#: What is said of a row, before and after the words that name it.
TAKEN = (
    "two rows would be the one with ",
    " by a change of the partition, and one of them would be lost: leave out one of them, or delete it first",
)


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


class Changes:
    """The rows of an upsert that changes rows of the table, which are found part by part."""

    def __init__(self, schema: pa.Schema, config: TableConfig, read: Reader) -> None:
        self._made, self._moved = [flagged(schema).empty_table()], [schema.empty_table()]
        self._identity, self._read = Identity(config), read

    def add(self, rows: pa.Table, deletes: bool) -> None:
        """Rows that are written, or that go."""
        self._made.append(with_flag(rows, deletes).select(self._made[0].column_names))

    def change(self, old: pa.Table, new: pa.Table) -> None:
        """Rows `new` made from `old` ones. Where the partition changes, the old row is deleted where it was."""
        self.add(new, False)
        if self._identity.partitions and old.num_rows:
            moved = pc.not_equal(self._identity.folders(old), self._identity.folders(new))
            self._moved.append(new.filter(moved))
            self.add(old.filter(moved), True)

    def rows(self) -> pa.Table:
        """All of them. Errors: `InvalidRequest` for two rows that would be one by a change of the partition."""
        made, moved = pa.concat_tables(self._made), pa.concat_tables(self._moved)
        if moved.num_rows:
            written = made.filter(pc.invert(made[IS_DELETED_COLUMN]))
            taken = pc.or_(self._identity.twice(moved, written), self._identity.known(moved, self._read))
            if pc.any(taken).as_py():
                before, after = TAKEN
                raise InvalidRequest(f"{before}{self._identity.shown(moved, pc.index(taken, True).as_py())}{after}")
        return made


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
