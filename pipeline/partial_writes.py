"""Writes that fill some column groups of their rows: what they must hold, and how they delete."""

from __future__ import annotations

from collections.abc import Collection

import pyarrow as pa
import pyarrow.compute as pc

from lakelatch.errors import InvalidRequest
from lakelatch.pipeline.column_groups import groups_of
from lakelatch.pipeline.merge import sortable_type
from lakelatch.pipeline.options import DELETE, WriteOptions
from lakelatch.pipeline.schemas import IS_DELETED_COLUMN
from lakelatch.timeline.column_groups import COLUMN_GROUPS, ColumnGroup
from lakelatch.timeline.table_config import EVENT_TIME, TableConfig


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
    config: TableConfig, names: Collection[str], given: Collection[str], asked: WriteOptions
) -> set[str]:
    """Of the table's columns `names`, those that a write with the columns `given` must have.

    Errors: `InvalidRequest` for a write that fills no group, or deletes none under non-blocking control.
    """
    required = {*config.record_key_fields, *config.partition_fields}
    groups = groups_of(config, names)
    orderings = [group.ordering for group in groups if group.ordering is not None]
    if asked.operation == DELETE:
        if asked.non_blocking and not set(orderings) & set(given):  # it would win by chance
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
