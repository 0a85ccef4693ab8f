"""The columns that a write must have and may have: those of the table, or of some of its column groups."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from lakelatch.engine.options.write import (
    LOAD_SORT_COLUMNS,
    MERGE_SCHEMA,
    NULL_FOR_MISSING,
    NUMBERS_TO_TEXT,
    WriteOptions,
)
from lakelatch.engine.table.making import check_unique
from lakelatch.engine.table.table import OpenedTable
from lakelatch.errors import InvalidRequest
from lakelatch.format.avro import IS_DELETED_COLUMN, arrow_to_avro, avro_to_arrow, shown_type
from lakelatch.format.evolution import Comparison, Mismatch
from lakelatch.format.merge.column_groups import groups_of
from lakelatch.format.sorting.row_order import check_columns
from lakelatch.timeline.actions import DELETE, UPSERT
from lakelatch.timeline.column_groups import COLUMN_GROUPS, ColumnGroup
from lakelatch.timeline.table_config import EVENT_TIME, TableConfig

_MERGE = f"{MERGE_SCHEMA}=true"
_NO_GROUPS = (
    f", or set {NULL_FOR_MISSING}=true for null, or write to a table that was made with {COLUMN_GROUPS}, of which a "
    "write may fill some columns only"
)


def fitted(
    table: OpenedTable, data_schema: pa.Schema, options: WriteOptions, known: Collection[str] | None = None
) -> OpenedTable:
    """The table as a write of these columns leaves it. Errors: `InvalidRequest`, naming columns and the way out.

    The columns must be the table's (a delete needs only those that identify the row); order does not matter. With
    `mergeSchema` there may be others, and wider types, which become the table's; turning numbers into text needs
    `lakelatch.write.numbers.to.text` as well. An upsert may also have `_hoodie_is_deleted`. Columns that are not among
    the `known` ones, if these are given, may be missing.
    """
    deleting = options.operation == DELETE
    flagged = IS_DELETED_COLUMN in data_schema.names and IS_DELETED_COLUMN not in table.schema.names
    if flagged and options.operation == UPSERT:
        _check_flag(table, data_schema)
        data_schema = data_schema.remove(data_schema.get_field_index(IS_DELETED_COLUMN))
    check_unique(data_schema)
    compared = Comparison.of(table.schema, data_schema)
    _check_missing(table, data_schema, compared, options, known)
    for name, other in compared.alike:
        raise InvalidRequest(
            f"the column {name!r} differs from {other!r} only in the case of its letters, and most engines take them "
            f"for one: rename it to {other!r}"
        )
    changes = options.merge_schema and not deleting and not table.config.column_groups
    if compared.added and not changes:
        way_out = "" if deleting or table.config.column_groups else f", or add them with {_MERGE}"
        raise InvalidRequest(
            f"the column(s) {', '.join(compared.added)} are not in the table {table.config.name!r} "
            f"({', '.join(table.schema.names)}): drop or rename them{way_out}"
        )
    for one in (*compared.unfit, *compared.widened):
        widens = one in compared.widened
        allowed = changes and (options.numbers_to_text or not one.makes_text)
        _check_type(table.config, one, widens and allowed, widens and not (deleting or table.config.column_groups))
    if compared.added or compared.widened:
        avro = arrow_to_avro(compared.schema, table.config.name)
        table = replace(table, schema=avro_to_arrow(avro), changes_schema=True)
    check_columns(table.schema, options.sort_columns, LOAD_SORT_COLUMNS)
    return table.with_base_files(options.base_files)


def _check_missing(
    table: OpenedTable,
    data_schema: pa.Schema,
    compared: Comparison,
    options: WriteOptions,
    known: Collection[str] | None,
) -> None:
    config = table.config
    naming = {*config.record_key_fields, *config.partition_fields}
    required = {*compared.missing, *naming, *([config.ordering_field] if config.ordering_field else [])}
    if config.column_groups:
        parts = {name for name in compared.missing if name not in table.schema.names}
        required = {*parts, *required_columns(config, table.schema.names, data_schema.names, options)}
    elif options.operation == DELETE:
        required = naming
        if options.non_blocking and config.ordering_field:  # without an ordering value it would win by chance
            required = {*naming, config.ordering_field}
    elif options.null_for_missing:
        required = {name for name in required if name not in compared.missing or name in _ordering_and_keys(config)}
    missing = sorted(name for name in required.intersection(compared.missing) if known is None or name in known)
    if not missing:
        return
    strangers = [name for name in compared.added if name not in missing]
    way_out = _NO_GROUPS
    if config.column_groups:
        way_out = "; a write fills a column group whole or not at all"
    elif options.operation == DELETE or _ordering_and_keys(config).issuperset(missing):
        way_out = ""
    elif strangers:
        way_out = f" ({', '.join(strangers)} are not in it: a column keeps its name){_NO_GROUPS}"
    raise InvalidRequest(
        f"the data lacks the column(s) {', '.join(missing)} of the table {config.name!r}: add them{way_out}"
    )


def _check_type(config: TableConfig, one: Mismatch, allowed: bool, widens: bool) -> None:
    """`InvalidRequest` unless the column may have, or change to, the given type."""
    given, stored = shown_type(one.given), shown_type(one.stored)
    what = f"the column {one.column!r} is {given}, and in the table {config.name!r} it is {stored}: "
    orderings = {config.ordering_field, *(group.ordering for group in config.column_groups)}
    if widens and one.column in orderings:
        raise InvalidRequest(f"{what}cast it; an ordering field keeps its type, since it decides which row is newer")
    naming = {*config.record_key_fields, *config.partition_fields}
    if widens and one.column in naming and not (pa.types.is_int32(one.stored) and pa.types.is_int64(one.given)):
        raise InvalidRequest(f"{what}cast it; a field that identifies rows may only become bigint, from int")
    if not allowed and widens and one.makes_text:
        raise InvalidRequest(
            f"{what}cast it, or look what the data has there that is no number. {_MERGE} together with "
            f"{NUMBERS_TO_TEXT}=true would make the column a text, for every reader and for good: '10' comes before "
            "'9' then, and later numbers are refused",
            option=NUMBERS_TO_TEXT,
        )
    if not allowed:
        raise InvalidRequest(f"{what}cast it" + (f", or let the table have it with {_MERGE}" if widens else ""))


def _ordering_and_keys(config: TableConfig) -> set[str]:
    """The fields that each row needs."""
    ordering = [config.ordering_field] if config.ordering_field and config.merge_mode == EVENT_TIME else []
    return {*config.record_key_fields, *config.partition_fields, *ordering}


def _check_flag(table: OpenedTable, data_schema: pa.Schema) -> None:
    """Checks the flag of an upsert by which rows delete, in a table without that column."""
    kind = data_schema.field(IS_DELETED_COLUMN).type
    if not pa.types.is_boolean(kind):
        raise InvalidRequest(
            f"the column {IS_DELETED_COLUMN} is {shown_type(kind)}: it is true for a row that deletes, so cast it"
        )
    if table.config.column_groups:
        raise InvalidRequest(
            f"the column {IS_DELETED_COLUMN} deletes whole rows, and in the table {table.config.name!r} each column "
            "group is deleted by itself: drop it, and use hoodie.datasource.write.operation=delete"
        )


def required_columns(
    config: TableConfig, names: Collection[str], given: Collection[str], options: WriteOptions
) -> set[str]:
    """Those of the table's columns `names` that a write with the columns `given` must have.

    Errors: `InvalidRequest` for a write that fills no group, or deletes none under non-blocking control.
    """
    required = {*config.record_key_fields, *config.partition_fields}
    groups = groups_of(config, names)
    orderings = [group.ordering for group in groups if group.ordering is not None]
    if options.operation == DELETE:
        if options.non_blocking and not set(orderings) & set(given):  # it would win by chance
            raise InvalidRequest(
                f"a non-blocking delete in the table {config.name!r} needs the ordering column of each group that it "
                f"deletes, and the data has none of {', '.join(orderings)}: add those of the groups to delete"
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
    """`InvalidRequest` unless each row has a value in the ordering column of a group, which says that it fills it."""
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
            "it is unknown which row is newer. Fill it, or remove those rows"
        )


def delete_rows(rows: pa.Table, config: TableConfig, names: Collection[str]) -> pa.Table | None:
    """The rows as deletes of the groups whose ordering columns they have; None if they have none."""
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
    """`InvalidRequest` for values of a group in rows without its ordering value: they would be lost."""
    for group in groups:
        silent = pc.is_null(rows[group.ordering])
        for name in group.columns:
            count = pc.sum(pc.and_(silent, pc.is_valid(rows[name]))).as_py() or 0
            if count:
                raise InvalidRequest(
                    f"{count} rows have a value in {name!r} and none in {group.ordering!r}, which orders its group: "
                    "without one it is unknown which row is newer. Fill it, or clear the group's columns"
                )


def _shown(groups: Collection[ColumnGroup]) -> str:
    return " or ".join(", ".join(group.names) for group in groups)
