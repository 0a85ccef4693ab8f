"""What the pages for users of Hudi, Delta Lake and pandas say, happens."""

from __future__ import annotations

from pathlib import Path

import pytest
from pages import Page, without_times
from pyspark.sql import SparkSession

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.spark
@pytest.mark.parametrize(
    "name",
    ["from-pandas.md", *(pytest.param(name, marks=pytest.mark.long) for name in ("from-hudi.md", "from-delta.md"))],
)
def test_examples_print_what_the_page_says(spark: SparkSession, tmp_path: Path, name: str) -> None:
    text = (DOCS / name).read_text()
    assert without_times(Page(text, tmp_path).run(spark)) == without_times(text)
