"""What notebooks and terminals show of tables, results, conflicts, merges and histories."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from IPython.core.formatters import DisplayFormatter

from lakelatch.engine.arrow import ArrowTable
from lakelatch.engine.options.calls.keywords import options
from lakelatch.engine.run.listing import Listing
from lakelatch.engine.run.report import FAILED, MaintenanceReport, ServiceRun
from lakelatch.engine.services.savepoints import Savepoint
from lakelatch.engine.services.verifying import DAMAGED, Finding, Verification
from lakelatch.errors import WriteConflict
from lakelatch.failpoints import calling

SECRET = {"lakelatch.storage.secret_access_key": "hush"}


class Cells(HTMLParser):
    """The rows of a table, and every attribute; fails on all but a table."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.attributes: set[str] = set()
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in ("table", "tr", "th", "td"), tag
        self.attributes |= {name for name, _ in attrs}
        if tag == "tr":
            self.rows.append([])
        elif tag != "table":
            self.rows[-1].append("")

    def handle_data(self, data: str) -> None:
        self.rows[-1][-1] += data


def shown(value: Any) -> tuple[str, list[list[str]]]:
    """The text and the table that IPython shows; small, with no colour of its own and no secret."""
    formatter: Any = DisplayFormatter()
    found, _ = formatter.format(value)
    text, html = found["text/plain"], found["text/html"]
    cells = Cells(html)
    assert "hush" not in text + html and len(html) < 50_000 and cells.attributes <= {"colspan"}
    return text, cells.rows


@pytest.fixture
def table(tmp_path: Path) -> ArrowTable:
    made = ArrowTable.create(tmp_path / "<b>t", "id long, v string", key="id", buckets=1, options=SECRET)
    made.upsert(pa.table({"id": [1, 2], "v": ["a", "<i>"]}))
    return made


def test_tables_results_and_plans(table: ArrowTable) -> None:
    text, rows = shown(table)
    assert text.startswith("ArrowTable('") and ["key", "id"] in rows and ["columns", "id bigint, v string"] in rows
    text, rows = shown(table.upsert(pa.table({"id": [3], "v": ["c"]})))
    assert text.startswith("CommitResult(upsert: 1 rows") and ["rows", "1"] in rows
    merge = table.merge(pa.table({"id": [1], "v": ["x"]}))
    assert shown(merge)[1] == [["merge", "no clause yet"]]
    merge = merge.when_matched_delete("source.v < 'b'").when_matched_update({"v": "'<u>'"})
    text, rows = shown(merge.when_not_matched_insert_all())
    assert text.startswith("Merge(when matched and source.v < 'b': delete; when matched: update v = '<u>'; when not")
    assert rows[1:] == [
        ["matched", "source.v < 'b'", "delete"],
        ["matched", "", "update v = '<u>'"],
        ["not matched", "", "insert all columns"],
    ]
    assert ["passed over", "upper(v) = '<i>'"] in shown(table.explain("upper(v) = '<i>'"))[1]


def test_histories_and_conflicts(table: ArrowTable) -> None:
    left = ["z"]

    def disturb(_: str) -> None:
        if left:
            table.upsert(pa.table({"id": [1], "v": [left.pop()]}))

    with calling(disturb, ["mark.after"]), pytest.raises(WriteConflict) as caught:
        table.delete("id = 1", {"hoodie.write.num.retries.on.conflict.failures": 0})
    said = dict(shown(caught.value)[1])
    assert said["to"].startswith("deltacommit ") and said["file groups"].startswith("./0000")
    text, rows = shown(table.history())
    assert text.splitlines()[0].split()[:2] == ["completed", "instant"] and "UPSERT" in text
    assert "UPSERT" in {row[rows[0].index("operation")] for row in rows[1:]} and "undone_by" not in rows[0]
    assert shown(table.conflicts())[1][1][1] == said["lost"]


def test_listings_are_rows_to_programs() -> None:
    many = Listing(pa.table({"n": range(2_000), "none": pa.nulls(2_000)}))
    text, rows = shown(many)
    assert text.endswith("\nand 1,980 more") and rows[0] == ["n"] and rows[-1] == ["and 1,900 more"]
    assert pa.table(many).num_rows == len(many) == len(many.to_pandas())
    assert many.to_arrow().column_names == ["n", "none"] and many.to_pylist()[0] == {"n": 0, "none": None}
    assert many[-1] == {"n": 1_999, "none": None} and [row["n"] for row in many] == list(range(2_000))
    with pytest.raises(IndexError):
        many[2_000]
    assert len(pd.DataFrame(many)) == 2_000 and len(pl.DataFrame(many)) == 2_000
    assert shown(Listing(pa.table({"n": pa.array([], pa.int64())}))) == ("n", [["n"]])


def test_reports_of_services(table: ArrowTable) -> None:
    kept = ArrowTable("memory://me:hush@shown/t", options(key="id", lock_provider="in_process"))
    kept.upsert(pa.table({"id": [1]}))
    assert shown(kept.maintain())[1] == [["table", "memory://shown/t"], ["due", "nothing"]]
    runs = (ServiceRun("compaction", FAILED, "20260101000000000", "<script>", 1.25),)
    said = ["compaction", "failed", "20260101000000000", "<script>", "1.2"]
    assert shown(MaintenanceReport("/t", runs))[1][1:] == [said]
    assert shown(Savepoint("20260101000000000", "1", "a & b", "me", 12_000))[1][2:] == [
        ["comment", "a & b"],
        ["by", "me"],
        ["files", "12,000"],
    ]
    damaged = Verification((Finding(DAMAGED, "p/<f>", "another checksum"),), 7, deep=True, unchecked=1)
    assert shown(damaged)[1] == [
        ["whole", "no"],
        ["looked at", "7 files, read; 1 have no checksum"],
        ["damaged p/<f>", "another checksum"],
    ]
    assert shown(table.verify())[1][0] == ["whole", "yes"]


def test_nothing_of_a_value_is_markup() -> None:
    html = Listing(pa.table({"<b>": ["<script>alert(1)</script>" + "x" * 10_000]}))._repr_html_()
    assert "<script>" not in html and "&lt;b&gt;" in html and len(html) < 5_000
