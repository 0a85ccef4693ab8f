"""The columns that a write must hold and may fill: those of the table, or of some of its column groups."""

from __future__ import annotations

from collections.abc import Collection

import pyarrow as pa
import pyarrow.compute as pc

from lakelatch.errors import InvalidRequest
from lakelatch.format.avro import IS_DELETED_COLUMN
from lakelatch.format.merge.column_groups import groups_of
from lakelatch.format.merge.ordering import sortable_type
from lakelatch.spark.options import WriteOptions
from lakelatch.spark.table import OpenedTable
from lakelatch.timeline.actions import DELETE, UPSERT
from lakelatch.timeline.column_groups import COLUMN_GROUPS, ColumnGroup
from lakelatch.timeline.table_config import EVENT_TIME, TableConfig

_NO_GROUPS = f", or write to a table that was made with {COLUMN_GROUPS}, of which a write may fill some columns only"


def check_columns(table: OpenedTable, data_schema: pa.Schema, options: WriteOptions) -> None:
    """The frame's columns must be the table's (a delete needs only those that name the row); order does not matter.

    An upsert may have `_hoodie_is_deleted` besides, which the table need not have.
    """
    config = table.config
    required = set(table.schema.names)
    if config.column_groups:
        required = required_columns(config, table.schema.names, data_schema.names, options)
    elif options.operation == DELETE:
        required = {*config.record_key_fields, *config.partition_fields}
        if options.non_blocking and config.ordering_field:  # without a time of its own it would win by chance
            required.add(config.ordering_field)
    missing = sorted(required - set(data_schema.names))
    if missing:
        raise InvalidRequest(
            f"the data lacks the column(s) {', '.join(missing)} of the table {config.name!r}: add them"
            + ("; a write fills a column group whole or not at all" if config.column_groups else _NO_GROUPS)
        )
    strangers = sorted(set(data_schema.names) - set(table.schema.names))
    if IS_DELETED_COLUMN in strangers and options.operation == UPSERT:
        _check_flag(table, data_schema)
        strangers.remove(IS_DELETED_COLUMN)
        data_schema = data_schema.remove(data_schema.get_field_index(IS_DELETED_COLUMN))
    if strangers:
        raise InvalidRequest(
            f"the column(s) {', '.join(strangers)} are not in the table {config.name!r} "
            f"({', '.join(table.schema.names)}): drop or rename them"
        )
    for field in data_schema:
        stored = table.schema.field(field.name).type
        if not _fits(field.type, stored):
            raise InvalidRequest(
                f"the column {field.name!r} is {field.type}, and in the table {config.name!r} it is {stored}: cast it"
            )


def _check_flag(table: OpenedTable, data_schema: pa.Schema) -> None:
    """For a frame that says of each row whether it deletes, in a table whose rows do not say it."""
    kind = data_schema.field(IS_DELETED_COLUMN).type
    if not pa.types.is_boolean(kind):
        raise InvalidRequest(f"the column {IS_DELETED_COLUMN} is {kind}: it is true for a row that deletes, so cast it")
    if table.config.column_groups:
        raise InvalidRequest(
            f"the column {IS_DELETED_COLUMN} deletes whole rows, and in the table {table.config.name!r} each column "
            "group is deleted by itself: drop it, and use hoodie.datasource.write.operation=delete"
        )


def _fits(given: pa.DataType, stored: pa.DataType) -> bool:
    """Equal but for what a cast cannot lose: integer and float widths, time zones of one instant, large strings."""
    if given == stored:
        return True
    if pa.types.is_timestamp(given) and pa.types.is_timestamp(stored):
        return (given.tz is None) == (stored.tz is None)
    widening = {"int8": 1, "int16": 2, "int32": 3, "int64": 4}
    if str(given) in widening and str(stored) in widening:
        return widening[str(given)] <= widening[str(stored)]
    if pa.types.is_floating(given) and pa.types.is_floating(stored):
        return bool(given.bit_width <= stored.bit_width)
    text = (pa.types.is_string, pa.types.is_large_string)
    if any(is_kind(given) for is_kind in text) and any(is_kind(stored) for is_kind in text):
        return True
    nested = (pa.types.is_list, pa.types.is_map, pa.types.is_struct)
    same_kind = any(bool(is_kind(given)) and bool(is_kind(stored)) for is_kind in nested)
    return same_kind and _same_shape(given, stored)


def _same_shape(given: pa.DataType, stored: pa.DataType) -> bool:
    if given.num_fields != stored.num_fields:
        return False
    inner = [(given.field(index), stored.field(index)) for index in range(given.num_fields)]
    by_name = pa.types.is_struct(given)
    return all((not by_name or a.name == b.name) and _fits(a.type, b.type) for a, b in inner)


def check_groups(config: TableConfig, schema: pa.Schema) -> None:
    """The groups of a table that is about to be made. Errors: `InvalidRequest`, naming the group and the column."""
    keys = {*config.record_key_fields, *config.partition_fields}
    ordering = config.ordering_field if config.merge_mode == EVENT_TIME else None
    for group in config.column_groups:
        what = f"{COLUMN_GROUPS}: the group of {group.ordering!r}"
        for name in group.names:
            if name not in schema.names:
                raise InvalidRequest(
                    f"{what} names {name!r}, which is no column of the data ({', '.join(schema.names)}): make the "
                    "table with a frame that has all its columns; it may have no rows",
                    option=COLUMN_GROUPS,
                )
            if name in keys:
                raise InvalidRequest(f"{what} names {name!r}, which identifies the row: leave it out")
            if name == ordering:
                raise InvalidRequest(
                    f"{what} names {name!r}, which orders the columns outside of all groups: give the group an "
                    "ordering column of its own"
                )
        sortable_type(schema.field(group.ordering).type)
    if config.column_groups and ordering in keys:
        raise InvalidRequest(
            f"the ordering field {ordering!r} identifies the row, and with {COLUMN_GROUPS} it has to tell which writes "
            "fill the columns outside of all groups: choose another one"
        )
    if config.column_groups and IS_DELETED_COLUMN in schema.names:
        raise InvalidRequest(
            f"the column {IS_DELETED_COLUMN} deletes whole rows, and with {COLUMN_GROUPS} each group is deleted by "
            "itself: drop it, and use hoodie.datasource.write.operation=delete"
        )


def required_columns(
    config: TableConfig, names: Collection[str], given: Collection[str], options: WriteOptions
) -> set[str]:
    """Of the table's columns `names`, those that a write with the columns `given` must have.

    Errors: `InvalidRequest` for a write that fills no group, or deletes none under non-blocking control.
    """
    required = {*config.record_key_fields, *config.partition_fields}
    groups = groups_of(config, names)
    orderings = [group.ordering for group in groups if group.ordering is not None]
    if options.operation == DELETE:
        if options.non_blocking and not set(orderings) & set(given):  # it would win by chance
            raise InvalidRequest(
                f"a non-blocking delete in the table {config.name!r} needs the ordering column of each group that it "
                f"deletes, and the data has none of {', '.join(orderings)}: add those that it speaks of"
            )
        return required
    spoken = [group for group in groups if set(group.names) & set(given)]
    if not spoken:
        raise InvalidRequest(
            f"the data fills no column of the table {config.name!r} but those that identify the row: add the columns "
            f"of one group ({_shown(groups)})"
        )
    for group in spoken:
        required.update(group.names)
    return required


def check_rows(rows: pa.Table, config: TableConfig, names: Collection[str], deleting: bool) -> None:
    """Each row must say, by its ordering columns, which groups it speaks for. Errors: `InvalidRequest`."""
    groups = [group for group in groups_of(config, names) if set(group.names) & set(rows.column_names)]
    given = [group for group in groups if group.ordering in rows.column_names]
    if not deleting:
        _check_silence(rows, given)
    ordered_by_commit = len(given) < len(groups) and not deleting  # such columns need no value to speak
    if not given or ordered_by_commit:
        return
    silent = pc.is_null(rows[given[0].ordering])
    for group in given[1:]:
        silent = pc.and_(silent, pc.is_null(rows[group.ordering]))
    count = pc.sum(silent).as_py() or 0
    if count:
        raise InvalidRequest(
            f"{count} rows have no value in {' nor in '.join(repr(group.ordering) for group in given)}: without one "
            "nobody can say which row is newer. Fill it, or remove those rows"
        )


def delete_rows(rows: pa.Table, config: TableConfig, names: Collection[str]) -> pa.Table | None:
    """The rows as they delete groups: those whose ordering columns they have. None if they have none of them."""
    given = [group for group in groups_of(config, names) if group.ordering in rows.column_names]
    if not given:
        return None
    cleared = [name for group in given for name in group.columns]
    rows = rows.drop_columns([name for name in cleared if name in rows.column_names])
    for name in cleared:
        rows = rows.append_column(name, pa.nulls(rows.num_rows))
    spoken = {*config.record_key_fields, *config.partition_fields, *(name for group in given for name in group.names)}
    return rows.drop_columns([name for name in names if name in rows.column_names and name not in spoken])


def _check_silence(rows: pa.Table, groups: Collection[ColumnGroup]) -> None:
    """A value in a group (with an ordering column) that has none to be ordered by would be lost."""
    for group in groups:
        silent = pc.is_null(rows[group.ordering])
        for name in group.columns:
            count = pc.sum(pc.and_(silent, pc.is_valid(rows[name]))).as_py() or 0
            if count:
                raise InvalidRequest(
                    f"{count} rows have a value in {name!r} and none in {group.ordering!r}, which orders its group: "
                    "without one nobody can say which row is newer. Fill it, or clear the group's columns"
                )


def _shown(groups: Collection[ColumnGroup]) -> str:
    return " or ".join(", ".join(group.names) for group in groups)
