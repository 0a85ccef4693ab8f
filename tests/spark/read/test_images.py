"""What commits changed: rows with their images before and after."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import lakelatch
from lakelatch.errors import InvalidRequest

pytestmark = pytest.mark.spark
MakeTable = Callable[..., Any]
Change = tuple[str, str, Any, Any]

QUERY_TYPE = "hoodie.datasource.query.type"
BEGIN = "hoodie.datasource.read.begin.instanttime"
END = "hoodie.datasource.read.end.instanttime"
FORMAT = "hoodie.datasource.query.incremental.format"
CDC = {"hoodie__table__cdc__enabled": "true"}
START = "00000000000000000"


def images(table: Any, after: str = START, until: str | None = None) -> list[Change]:
    """(operation, instant, image before, image after), by instant and key; images are tuples of the columns."""
    frame = lakelatch.Table(table.spark, table.path).changes(after, until, images=True)
    found = [
        (row.op, row.ts_ms, row.before and tuple(row.before), row.after and tuple(row.after)) for row in frame.collect()
    ]
    return sorted(found, key=lambda one: (one[1], one[2] or one[3]))


def hudi_options(after: str = START, until: str | None = None) -> dict[str, str]:
    return {QUERY_TYPE: "incremental", BEGIN: after, FORMAT: "cdc", **({END: until} if until else {})}


def test_each_commit_says_what_it_did_to_each_key(make_table: MakeTable) -> None:
    table = make_table()
    first = table.write([(1, 1, "a"), (2, 1, "b")])
    second = table.write([(1, 2, "A"), (3, 2, "c"), (2, 0, "older, so it loses")])
    third = table.operate("delete", [(2, 9), (7, 9)], "id long, ts long")
    whole = [
        ("i", first.instant, None, (1, 1, "a")),
        ("i", first.instant, None, (2, 1, "b")),
        ("u", second.instant, (1, 1, "a"), (1, 2, "A")),
        ("i", second.instant, None, (3, 2, "c")),
        ("d", third.instant, (2, 1, "b"), None),
    ]
    assert images(table) == whole
    assert images(table, first.completion, second.completion) == whole[2:4]
    assert images(table, third.completion) == []
    assert table.compact()
    assert images(table) == whole
    last = table.write([(3, 3, "C")])
    assert images(table, second.completion) == [*whole[4:], ("u", last.instant, (3, 2, "c"), (3, 3, "C"))]


def applied(state: dict[Any, Any], changes: list[Change]) -> dict[Any, Any]:
    """The rows after changes, by key and partition; each change is of what is there."""
    for operation, _, before, after in changes:
        key = (before or after)[:2]
        assert (
            state.get(key) == before
            and (operation == "i") == (before is None)
            and (operation == "d") == (after is None)
        )
        state = {**{known: row for known, row in state.items() if known != key}, **({key: after} if after else {})}
    return state


def rows_at(table: Any, time: str) -> dict[Any, Any]:
    return {row[:2]: row for row in table.read({"as.of.instant": time})}


@pytest.mark.parametrize("table_type", ["MERGE_ON_READ", pytest.param("COPY_ON_WRITE", marks=pytest.mark.long)])
def test_changes_of_every_kind_lead_from_one_moment_to_the_next(make_table: MakeTable, table_type: str) -> None:
    typed = {"hoodie__datasource__write__table__type": table_type}
    table = make_table("id long, day string, ts long, v string", partition="day", **typed)
    one = lakelatch.Table(table.spark, table.path, {"hoodie.compact.inline.max.delta.commits": 1})
    moments = [table.write([(key, day, 1, "a") for key in range(4) for day in "xyz"]).completion]

    def happened(result: Any) -> None:
        moments.append(result.completion)

    happened(table.write([(1, "x", 2, "b"), (9, "x", 2, "b")]))
    if table_type == "MERGE_ON_READ":
        one.compact()
    happened(one.delete("id = 2 AND day = 'x'"))
    happened(table.operate("insert_overwrite", [(1, "x", 1, "o"), (5, "x", 1, "o")]))
    happened(table.write([(0, "x", 3, "n"), (5, "x", 3, "n"), (0, "y", 3, "n")]))
    if table_type == "MERGE_ON_READ":
        one.compact()
    one.cluster({"hoodie.clustering.plan.strategy.sort.columns": "v"})
    happened(table.write([(0, "x", 4, "m"), (3, "z", 4, "m")]))
    happened(lakelatch.delete_partitions(table.path, "y", table.options))
    happened(table.write([(0, "y", 1, "again")]))
    happened(table.operate("insert_overwrite_table", [(3, "z", 1, "last")]))
    state: dict[Any, Any] = {}
    for before, after in zip([START, *moments], moments, strict=False):
        state = applied(state, images(table, before, after))
        assert state == rows_at(table, after)
    assert applied({}, images(table)) == state == {(3, "z"): (3, "z", 1, "last")}


def test_hudis_options_give_json_of_a_table_that_was_made_for_it(make_table: MakeTable) -> None:
    table = make_table(**CDC)
    first = table.write([(1, 1, 'a "quoted" ü')])
    second = table.write([(1, 2, None)])
    frame = lakelatch.read(table.spark, table.path, hudi_options(first.instant))
    assert frame.columns == ["op", "ts_ms", "before", "after"]
    found = sorted((row.op, row.ts_ms, row.before, row.after) for row in frame.collect())
    old, new = '{"id":1,"ts":1,"v":"a \\"quoted\\" ü"}', '{"id":1,"ts":2,"v":null}'
    assert found == [("i", first.instant, None, old), ("u", second.instant, old, new)]
    source = table.spark.read.format("lakelatch").options(**hudi_options(first.completion)).load(table.path)
    assert [(row.op, json.loads(row.after)["ts"]) for row in source.select("op", "after").collect()] == [("u", 2)]
    properties = Path(table.path, ".hoodie/hoodie.properties").read_text()
    assert "hoodie.table.cdc.enabled=true" in properties
    assert "hoodie.table.cdc.supplemental.logging.mode=DATA_BEFORE_AFTER" in properties


def test_what_cannot_be_told_is_refused(make_table: MakeTable) -> None:
    table = make_table()
    first = table.write([(1, 1, "a")])
    with pytest.raises(InvalidRequest, match=r"hoodie\.table.cdc\.enabled=true"):
        lakelatch.read(table.spark, table.path, hudi_options())
    with pytest.raises(InvalidRequest, match=r"query\.type=incremental"):
        lakelatch.read(table.spark, table.path, {FORMAT: "cdc"})
    with pytest.raises(InvalidRequest, match=r"hoodie\.table.cdc\.enabled=true, and the table"):
        table.write([(1, 2, "b")], **CDC)
    second = table.write([(1, 2, "b")])
    one = lakelatch.Table(table.spark, table.path)
    with pytest.raises(InvalidRequest, match="without columns"):
        one.changes(START, columns=["id"], images=True)
    one.restore(first.completion)
    third = table.write([(1, 3, "c")])
    with pytest.raises(InvalidRequest, match="removed commits"):
        one.changes(second.completion, images=True)
    assert images(table, first.completion) == [("u", third.instant, (1, 1, "a"), (1, 3, "c"))]
    for number in range(3):
        table.compact()
        last = table.write([(1, 4 + number, "d")])
    one.clean({"hoodie.clean.commits.retained": 1})
    with pytest.raises(InvalidRequest, match="which the clean"):
        one.changes(START, images=True)
    assert images(table, last.completion) == []
