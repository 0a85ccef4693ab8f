"""What a read leaves out, as a user sees it."""

from __future__ import annotations

import datetime
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import pytest
from live_table import LiveTable, window
from pyspark.sql import SparkSession
from pyspark.sql import functions as functions

from lakelatch import Table
from lakelatch.engine.read.explanation import ReadExplanation, explain
from lakelatch.errors import InvalidRequest
from lakelatch.format.slices import index_making as making
from lakelatch.format.slices import partitions

DAY = datetime.date(2026, 11, 21)


@pytest.fixture
def table(tmp_path: Path) -> LiveTable:
    """Three partitions of two buckets: base files with `ts` 1, 2 and 3, and logs above one of them."""
    table = LiveTable(tmp_path / "t", buckets=2)
    for ts, partition in enumerate(("p", "q", "r"), 1):
        table.write([(key, ts, f"v{key}") for key in range(8)], partition)
    table.compact({"hoodie.compact.inline.max.delta.commits": "1"})
    table.write([(1, 9, "new")], "r")
    return table


def of(table: LiveTable, where: str = "", **options: object) -> ReadExplanation:
    return explain(str(table.root), options, where or None)


def test_partitions_and_buckets(table: LiveTable) -> None:
    found = of(table)
    assert (found.partitions, found.partitions_there, found.slices, found.file_groups_there) == (3, 3, 6, 6)
    assert (found.native, found.beside_logs, found.merged) == (5, 1, 0)
    assert (found.index, found.understood, found.passed_over) == ("", (), ())
    found = of(table, "part > 'p'")
    assert (found.partitions, found.partitions_there, found.slices, found.file_groups_there) == (2, 3, 4, 4)
    found = of(table, "part = 'p' and id = 1 and length(v) = 2")
    assert (found.partitions, found.partitions_there, found.slices, found.file_groups_there) == (1, None, 1, 2)
    assert (found.left_out_by_buckets, found.left_out_by_statistics, found.record_keys) == (1, 0, 1)
    assert found.understood == ("part = 'p'", "id = 1") and found.passed_over == ("length(v) = 2",)


def test_a_table_without_partitions_is_one(tmp_path: Path) -> None:
    plain = LiveTable(tmp_path / "plain", buckets=4, partitioned=False)
    plain.write([(key, 1, "v") for key in range(20)], "")
    found = of(plain, "id in (1, 2) and ts = 1")
    assert (found.partitions, found.partitions_there, found.record_keys) == (1, 1, 2)
    assert found.slices + found.left_out_by_buckets == found.file_groups_there == 4 and found.slices in (1, 2)


def test_folders_that_nobody_opened_count_as_deep_as_there_are_fields(tmp_path: Path) -> None:
    fields = "part,ts"
    table = LiveTable(tmp_path / "t", hoodie__datasource__write__partitionpath__field=fields, partitioned=False)
    for part, ts in (("p", 1), ("p", 2), ("q", 1), ("q", 2)):
        table.write([(1, ts, "v")], part)
    found = of(table, "part in ('p', 'q') and ts > 1")
    assert (found.partitions, found.partitions_there) == (2, 4)
    found = of(table, "part = 'q'")
    assert (found.partitions, found.partitions_there) == (2, None), "there may be any number below the other"


def test_statistics_of_the_file_index(table: LiveTable) -> None:
    with patch.object(partitions, "FEW_FOLDERS", 1), patch.object(making, "FEW_FOLDERS", 1):
        index = making.make_index(table.storage, table.opened.config)
        found = of(table, "ts = 1")
    assert index is not None and found.index == index.moment
    assert (found.slices, found.file_groups_there, found.left_out_by_statistics) == (3, 6, 3)
    assert (found.native, found.beside_logs) == (2, 1), "with logs nothing is left out"
    assert "6 in these; 3 left out by statistics" in repr(found) and "file index of 20" in repr(found)


def test_what_a_text_does_not_say_for_sure_is_passed_over(table: LiveTable) -> None:
    for where, understood, passed_over in (
        ("ts >= 1 AND  (id = 1 OR id = 2) AND v IS NOT NULL", ("ts >= 1", "v IS NOT NULL"), ("(id = 1 OR id = 2)",)),
        ("ts >= 1 OR id = 1 ", (), ("ts >= 1 OR id = 1",)),
        ("ts = 99999999999999999999 and `id`  in (1, 2)", ("`id`  in (1, 2)",), ("ts = 99999999999999999999",)),
        ("ts between 1 and 5", ("ts between 1 and 5",), ()),
    ):
        found = of(table, where)
        assert (found.understood, found.passed_over) == (understood, passed_over)


def test_a_read_optimized_read_and_one_of_the_past(table: LiveTable) -> None:
    table.write([(1, 9, "new")], "new")
    found = of(table, **{"hoodie.datasource.query.type": "read_optimized"})
    assert (found.slices, found.file_groups_there, found.native, found.merged) == (6, 7, 6, 0)
    assert "1 with nothing to read" in repr(found)
    with pytest.raises(InvalidRequest, match="explain a read without it"):
        explain(str(table.root), window("20200101000000000"))


def test_a_table_explains_its_reads(spark: SparkSession, table: LiveTable) -> None:
    held = Table.for_path(spark, table.root)
    found = held.explain("part = 'r' AND ts = 3 AND upper(v) = 'V<'")
    uri = table.storage.uri
    assert repr(found) == (
        f"table        {uri}\n"
        "files from   listings\n"
        "partitions   1 of unknown\n"
        "file groups  2 of 2 in these\n"
        "slices       1 read by Spark itself, 1 but for what their logs change, 0 merged with their logs\n"
        "understood   part = 'r'; ts = 3\n"
        "passed over  upper(v) = 'V<'"
    )
    assert "<tr><th>passed over</th><td>upper(v) = &#x27;V&lt;&#x27;</td></tr>" in found._repr_html_()
    column = held.explain(functions.col("ts") == 3, columns=["id"])
    assert column.slices == 6 and column.understood == () and "ts" in column.passed_over[0]
    assert held.explain("ts = 3", columns=["id"], as_of=table.write([(1, 9, "x")], "s").completion).partitions == 4
    assert replace(found) == found


def test_sparks_own_plan_says_it_too_and_works_as_before(
    spark: SparkSession, table: LiveTable, capsys: pytest.CaptureFixture[str]
) -> None:
    held = Table.for_path(spark, table.root)
    frame, plain = held.to_df(where="part > 'p' and id = 1"), held.to_df().where("part > 'p' and id = 1")
    frame.explain(True)
    shown = capsys.readouterr().out
    parsed, optimized = shown.split("== Optimized Logical Plan ==")
    assert "2 of 3 partitions, 2 of their 4 file groups" in parsed and "file groups" not in optimized
    rows = sorted(plain.collect())
    assert frame.schema == plain.schema and frame.columns == plain.columns and sorted(frame.collect()) == rows
    other = held.to_df(where="id = 1", columns=["part", "ts"])
    joined = frame.join(other, frame["part"] == other["part"]).select(frame["id"], other.ts, "v")
    assert sorted(joined.collect()) == sorted(plain.select("id", "ts", "v").collect())
    frame.createOrReplaceTempView("explained")
    same = spark.sql("select a.v from explained a join explained b on a.part = b.part where b.part = 'r'")
    assert same.collect() == [("new",)]
