"""What the pages for users of Hudi, Delta Lake, Iceberg, pandas and Polars say, happens."""

from __future__ import annotations

from pathlib import Path

import pytest
from pages import Page, without_times
from pyspark.sql import SparkSession

DOCS = Path(__file__).parents[2] / "docs"
LONG = ("from-hudi.md", "from-delta.md", "from-iceberg.md")


@pytest.mark.spark
@pytest.mark.parametrize(
    "name",
    ["from-pandas.md", "from-polars.md", *(pytest.param(name, marks=pytest.mark.long) for name in LONG)],
)
def test_examples_print_what_the_page_says(spark: SparkSession, tmp_path: Path, name: str) -> None:
    text = (DOCS / name).read_text()
    assert without_times(Page(text, tmp_path).run(spark)) == without_times(text)
