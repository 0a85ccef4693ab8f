"""A table of Java's that several fields order: its logs are not merged here, and what the refusal advises works."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from live_table import LiveTable
from pyspark.sql import SparkSession

import lakelatch
from lakelatch.errors import InvalidRequest
from lakelatch.timeline.properties_file import PROPERTIES_PATH

OPTIMIZED: dict[str, object] = {"hoodie.datasource.query.type": "read_optimized"}


@pytest.mark.spark
def test_what_is_in_base_files_is_read_optimized_as_the_refusal_says(spark: SparkSession, tmp_path: Path) -> None:
    table = LiveTable(tmp_path / "t")
    table.write([(1, 1, "a"), (2, 1, "b")])
    table.compact({"hoodie.compact.inline.max.delta.commits": "1"})
    table.write([(1, 2, "in a log")])
    properties = table.root / PROPERTIES_PATH
    lines = [line for line in properties.read_text().splitlines() if "lakelatch.table.checksum" not in line]
    properties.write_text(
        "\n".join(lines).replace("hoodie.table.ordering.fields=ts", "hoodie.table.ordering.fields=ts,v")
    )
    path = str(table.root)

    def by_spark(options: dict[str, object]) -> list[str]:
        return sorted(row.v for row in lakelatch.read(spark, path, options).collect())

    def by_source(options: dict[str, object]) -> list[str]:
        found = spark.read.format("lakelatch").options(**{key: str(value) for key, value in options.items()}).load(path)
        return sorted(row.v for row in found.collect())

    def by_arrow(options: dict[str, object]) -> list[str]:
        return sorted(lakelatch.open(path, options).to_arrow()["v"].to_pylist())

    ways: list[Callable[[dict[str, object]], list[str]]] = [by_spark, by_arrow]
    for way in ways:
        with pytest.raises(
            InvalidRequest, match=r"ordering.fields=ts,v: .*hoodie.datasource.query.type=read_optimized"
        ):
            way({})
    for way in (*ways, by_source):
        assert way(OPTIMIZED) == ["a", "b"]
