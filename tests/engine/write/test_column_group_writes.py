"""Column groups are checked when a table is made, and each write for what it fills of them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from grouped_table import GROUPS, SCHEMA, A, D, GroupedTable, V

from lakelatch.engine.options.calls.registry import Call
from lakelatch.engine.table.columns import fitted
from lakelatch.engine.table.making import open_for_write
from lakelatch.engine.table.opening import open_table
from lakelatch.engine.table.table import OpenedTable
from lakelatch.errors import CorruptTable, InvalidRequest
from lakelatch.storage.memory import MemoryStorage
from lakelatch.timeline.column_groups import ColumnGroup, parse_column_groups, show_column_groups
from lakelatch.timeline.properties_file import PROPERTIES_PATH
from lakelatch.timeline.table_config import load_table_config
from lakelatch.transactions.base.settings import NON_BLOCKING, OPTIMISTIC

KEY = {"hoodie.datasource.write.recordkey.field": "id", "hoodie.write.lock.provider": "in_process"}
ORDERING = {"hoodie.datasource.write.precombine.field": "ts"}
ALL = "dt: d, e; at: a; ts: v"
DELETE = {"hoodie.datasource.write.operation": "delete"}
NUMBERS = count()


def made(groups: str = GROUPS, mode: str = NON_BLOCKING, schema: pa.Schema = SCHEMA, **more: str) -> OpenedTable:
    named = {name.replace("__", "."): value for name, value in more.items()}
    options = {**KEY, "hoodie.write.concurrency.mode": mode, "lakelatch.table.column.groups": groups, **named}
    storage = MemoryStorage(f"groups-{next(NUMBERS)}")
    return open_for_write(storage, Call(options).write(), schema)


def test_groups_are_kept_in_the_table_s_properties() -> None:
    table = made(" dt :d,e;at: a ; ", **_under(ORDERING))
    groups = (ColumnGroup("dt", ("d", "e")), ColumnGroup("at", ("a",)))
    assert table.config.column_groups == groups == load_table_config(table.storage).column_groups
    assert parse_column_groups(show_column_groups(groups)) == groups and groups[0].names == D
    same = Call({**KEY, "lakelatch.table.column.groups": "dt: d, e; at: a"}).write()
    assert open_for_write(table.storage, same, SCHEMA.empty_table().schema).config == table.config
    assert open_for_write(table.storage, Call(KEY).write(), SCHEMA).config == table.config


@pytest.mark.parametrize("groups", ["dt: d; at: a", "at: a; dt: d, e", ""])
def test_groups_cannot_change_later(groups: str) -> None:
    table = made(**_under(ORDERING))
    with pytest.raises(InvalidRequest, match=r"lakelatch\.table\.column\.groups=.*cannot change later"):
        open_for_write(table.storage, Call({"lakelatch.table.column.groups": groups}).write(), SCHEMA)


@pytest.mark.parametrize(
    ("groups", "said"),
    [
        ("dt d", "'dt d' is no group"),
        (": d", "is no group"),
        ("dt:", "is no group"),
        ("dt: d,", "is no group"),
        ("dt: d; at: d", "column(s) d more than once"),
        ("dt: d, dt", "column(s) dt more than once"),
        ("dt: nowhere", "'nowhere', which is no column of the data"),
        ("nowhere: d", "it may have no rows"),
        ("dt: id", "'id', which identifies the row"),
        ("dt: d, ts", "'ts', which orders the columns outside"),
        ("list: d", "cannot be compared"),
    ],
)
def test_wrong_groups_are_refused(groups: str, said: str) -> None:
    schema = SCHEMA.append(pa.field("list", pa.list_(pa.int64())))
    with pytest.raises(InvalidRequest) as caught:
        made(groups, schema=schema, **_under(ORDERING))
    assert said in caught.value.message


def test_what_does_not_go_with_groups() -> None:
    with pytest.raises(InvalidRequest, match="_hoodie_is_deleted deletes whole rows"):
        made(schema=SCHEMA.append(pa.field("_hoodie_is_deleted", pa.bool_())), **_under(ORDERING))
    with pytest.raises(InvalidRequest, match="the ordering field 'id' identifies the row"):
        made(hoodie__datasource__write__precombine__field="id")


def test_non_blocking_writers_need_an_order_for_every_column() -> None:
    assert made(ALL).config.ordering_field is None
    assert made(**_under(ORDERING)).config.ordering_field == "ts"
    with pytest.raises(InvalidRequest, match=r"columns in lakelatch\.table\.column\.groups have their own"):
        made()
    assert made(mode=OPTIMISTIC).config.column_groups


def test_damaged_groups_are_a_damaged_table() -> None:
    table = made(ALL)
    text = table.storage.read(PROPERTIES_PATH).decode()
    table.storage.put(PROPERTIES_PATH, "\n".join(_cut(line) for line in text.splitlines()).encode())
    with pytest.raises(CorruptTable, match=r"hoodie\.properties.*is no group"):
        open_table(table.storage)


@pytest.mark.parametrize(
    ("columns", "more", "said"),
    [
        (("id", *D), {}, None),
        (("id", *A, *V), {}, None),
        (("id", "at", "dt"), DELETE, None),
        (("id", "dt", "d"), {}, "lacks the column(s) e of the table"),
        (("id", "d", "e"), {}, "whole or not at all"),
        (("id", "v"), {}, "lacks the column(s) ts"),
        (D, {}, "lacks the column(s) id"),
        (("id",), {}, "fills no column of the table"),
        (("id", "d"), DELETE, "none of dt, at, ts"),
    ],
)
def test_a_frame_has_whole_groups(columns: Sequence[str], more: dict[str, str], said: str | None) -> None:
    table = made(**_under(ORDERING))
    options = Call({"hoodie.write.concurrency.mode": NON_BLOCKING, **more}).write()
    schema = pa.schema([SCHEMA.field(name) for name in columns])
    if said is None:
        fitted(table, schema, options)
        assert set(columns) <= set(table.schema.names)
        return
    with pytest.raises(InvalidRequest) as caught:
        fitted(table, schema, options)
    assert said in caught.value.message


def test_a_partial_frame_for_a_table_without_groups_is_told_of_them() -> None:
    table = open_for_write(MemoryStorage("without"), Call({**KEY, **ORDERING}).write(), SCHEMA)
    with pytest.raises(InvalidRequest, match=r"lacks the column.*add them, or .*lakelatch\.table\.column\.groups"):
        fitted(table, pa.schema([SCHEMA.field(name) for name in ("id", *D)]), Call({}).write())


@pytest.mark.parametrize(
    ("columns", "row", "operation", "said"),
    [
        (D, {"id": 1, "d": "value"}, "upsert", "1 rows have a value in 'd' and none in 'dt'"),
        (D, {"id": 1}, "upsert", "1 rows have no value in 'dt'"),
        (D + A, {"id": 1}, "insert", "no value in 'dt' nor in 'at'"),
        (("dt", "at"), {"id": 1}, "delete", "no value in 'dt' nor in 'at'"),
    ],
)
def test_rows_that_speak_for_no_group_are_refused(
    tmp_path: Path, columns: Sequence[str], row: dict[str, Any], operation: str, said: str
) -> None:
    table = GroupedTable(tmp_path / "t")
    writing = table.begin(operation)
    with pytest.raises(InvalidRequest) as caught:
        writing.put_table(table.frame(columns, [row]))
    writing.transaction.abort()
    assert said in caught.value.message


def _under(options: dict[str, str]) -> dict[str, str]:
    return {name.replace(".", "__"): value for name, value in options.items()}


def _cut(line: str) -> str:
    return line.replace(" v", "") if line.startswith("lakelatch.table") else line
