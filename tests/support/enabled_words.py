"""Spark's words for tables of ours, said one after the other in a session that is enabled: what each of them gives."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession, functions

import lakelatch
from lakelatch.errors import InvalidRequest

OPTIONS = {
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.precombine.field": "ts",
    "hoodie.bucket.index.num.buckets": "2",
}


class Words:
    """A session that is enabled, and a folder for its tables."""

    def __init__(self, spark: SparkSession, folder: str) -> None:
        self.spark = spark
        self.folder = folder
        spark.sql(f"CREATE DATABASE of_words LOCATION '{folder}/of_words'")
        spark.sql("USE of_words")

    def drop(self) -> None:
        self.spark.sql("DROP DATABASE of_words CASCADE")

    def frame(self, *rows: tuple[Any, ...]) -> DataFrame:
        return self.spark.createDataFrame(list(rows), "id long, ts long, v string")

    def writer(self, *rows: tuple[Any, ...]) -> Any:
        return self.frame(*rows).write.format("lakelatch").options(**OPTIONS)

    def rows(self, name: str) -> list[list[Any]]:
        return sorted(list(row) for row in self.spark.table(name).select("id", "ts", "v").collect())

    def refused(self, call: Callable[[], object]) -> str | None:
        """The condition of a refusal, which users of Spark catch as one of Spark and those of lakelatch as one of it.

        One that Spark has no condition for is ours alone.
        """
        try:
            call()
        except InvalidRequest as error:
            return error.getCondition() if isinstance(error, AnalysisException) else "ours"
        return None


def modes(words: Words) -> dict[str, Any]:
    """`df.write` to a path in all modes, and what is read there."""
    path = f"{words.folder}/modes"
    name = f"lakelatch.`{path}`"
    load = words.spark.read.format("lakelatch").load
    said: dict[str, Any] = {"missing": words.refused(lambda: load(path))}
    words.writer((1, 1, "a"), (2, 1, "b")).save(path)
    said["default"] = words.refused(lambda: words.writer((1, 9, "never")).save(path))
    said["error"] = words.refused(lambda: words.writer((1, 9, "never")).mode("errorifexists").save(path))
    words.writer((1, 9, "never")).mode("ignore").save(path)
    words.writer((1, 2, "A"), (3, 1, "c")).save(path, mode="append")
    said["appended"] = words.rows(name)
    said["columns"] = [
        list(row)
        for row in words.spark.read.schema("v string, id long").format("LakeLatch").load([path]).orderBy("id").collect()
    ]
    words.writer((3, 2, "C")).mode("overwrite").option("replaceWhere", "id > 2").save(path)
    said["replaced where"] = words.rows(name)
    said["not overwriting"] = words.refused(
        lambda: words.writer((3, 2, "C")).option("replaceWhere", "id > 2").mode("append").save(path)
    )
    words.writer((9, 1, "z")).mode("overwrite").save(path)
    said["overwritten"] = words.rows(name)
    said["no such layout"] = words.refused(
        lambda: words.writer((1, 1, "a")).bucketBy(2, "id").mode("append").save(path)
    )
    return said


def partitions(words: Words) -> dict[str, Any]:
    """`partitionBy`, and overwriting the partitions that a frame touches."""
    path = f"{words.folder}/partitions"
    words.writer((1, 1, "a"), (2, 1, "b")).partitionBy("v").save(path)
    said: dict[str, Any] = {"folders": sorted(name for name in os.listdir(path) if not name.startswith("."))}
    words.writer((3, 1, "a")).mode("overwrite").option("partitionOverwriteMode", "dynamic").save(path)
    said["dynamic"] = words.rows(f"lakelatch.`{path}`")
    said["two words"] = words.refused(
        lambda: (
            words.writer((1, 1, "a"))
            .option("hoodie.datasource.write.partitionpath.field", "ts")
            .partitionBy("v")
            .save(path)
        )
    )
    return said


def catalog(words: Words) -> dict[str, Any]:
    """Tables by name: made, filled, read and dropped, where the catalog keeps them."""
    words.writer((1, 1, "a")).saveAsTable("words")
    said: dict[str, Any] = {"made": words.rows("spark_catalog.of_words.words")}
    said["made twice"] = words.refused(lambda: words.writer((1, 9, "never")).saveAsTable("words"))
    words.writer((1, 9, "never")).mode("ignore").saveAsTable("words")
    words.frame((2, 1, "b")).write.mode("append").saveAsTable("words")
    words.frame((3, 1, "c")).toDF("x", "y", "z").write.insertInto("words")
    said["filled"] = words.rows("words")
    said["too few"] = words.refused(lambda: words.frame((3, 1, "c")).select("id").write.insertInto("words"))
    words.frame((4, 1, "d")).write.insertInto("words", overwrite=True)
    said["by place"] = words.rows("words")
    words.frame((8, 1, "view")).createOrReplaceTempView("words")
    said["hidden by a view"] = words.rows("words")
    words.spark.catalog.dropTempView("words")
    said["refused rows"] = words.refused(lambda: words.writer((1, None, "never")).saveAsTable("broken"))
    said["left behind"] = words.spark.catalog.tableExists("broken")
    words.spark.range(1).write.mode("overwrite").format("parquet").saveAsTable("of_others")
    said["of others"] = words.refused(lambda: words.writer((1, 1, "a")).mode("append").saveAsTable("of_others"))
    said["rows of others"] = [row.id for row in words.spark.table("of_others").collect()]
    return said


def table_writer(words: Words) -> dict[str, Any]:
    """`df.writeTo`, of a table that lies where its path says."""
    path = f"{words.folder}/it's a table"

    def to(*rows: tuple[Any, ...]) -> Any:
        return words.frame(*rows).writeTo("written")

    said: dict[str, Any] = {
        "replaces nothing": words.refused(to((1, 1, "a")).using("lakelatch").options(**OPTIONS).replace)
    }
    made = to((1, 1, "a"), (2, 1, "b")).using("lakelatch").options(**OPTIONS).option("path", path)
    made.partitionedBy(functions.col("v")).create()
    said["lies there"] = sorted(name for name in os.listdir(path) if not name.startswith("."))
    said["created twice"] = words.refused(to((1, 9, "never")).using("lakelatch").create)
    to((3, 1, "c")).append()
    to((4, 1, "c")).overwritePartitions()
    said["of partitions"] = words.rows("written")
    to((2, 2, "b")).overwrite(functions.col("id") == 2)
    said["of a condition"] = words.rows("written")
    to((5, 1, "e")).createOrReplace()
    said["replaced"] = words.rows("written")
    words.frame((6, 1, "f")).writeTo(f"lakelatch.`{path}`").append()
    said["by path"] = words.rows("written")
    return said


def walk(spark: SparkSession, folder: str) -> dict[str, Any]:
    """All of it, and whether the files of a table with a path of its own stay when it is dropped."""
    words = Words(lakelatch.enable(spark), folder)
    try:
        said = {one.__name__: one(words) for one in (modes, partitions, catalog, table_writer)}
    finally:
        words.drop()
    return {**said, "stays": Path(f"{folder}/it's a table/.hoodie").exists()}


EXPECTED: dict[str, Any] = {
    "modes": {
        "missing": "PATH_NOT_FOUND",
        "default": "PATH_ALREADY_EXISTS",
        "error": "PATH_ALREADY_EXISTS",
        "appended": [[1, 2, "A"], [2, 1, "b"], [3, 1, "c"]],
        "columns": [["A", 1], ["b", 2], ["c", 3]],
        "replaced where": [[1, 2, "A"], [2, 1, "b"], [3, 2, "C"]],
        "not overwriting": "ours",
        "overwritten": [[9, 1, "z"]],
        "no such layout": "ours",
    },
    "partitions": {
        "folders": ["a", "b"],
        "dynamic": [[2, 1, "b"], [3, 1, "a"]],
        "two words": "ours",
    },
    "catalog": {
        "made": [[1, 1, "a"]],
        "made twice": "TABLE_OR_VIEW_ALREADY_EXISTS",
        "filled": [[1, 1, "a"], [2, 1, "b"], [3, 1, "c"]],
        "too few": "INSERT_COLUMN_ARITY_MISMATCH.NOT_ENOUGH_DATA_COLUMNS",
        "by place": [[4, 1, "d"]],
        "hidden by a view": [[8, 1, "view"]],
        "refused rows": "ours",
        "left behind": False,
        "of others": "ours",
        "rows of others": [0],
    },
    "table_writer": {
        "replaces nothing": "TABLE_OR_VIEW_NOT_FOUND",
        "lies there": ["a", "b"],
        "created twice": "TABLE_OR_VIEW_ALREADY_EXISTS",
        "of partitions": [[1, 1, "a"], [2, 1, "b"], [4, 1, "c"]],
        "of a condition": [[1, 1, "a"], [2, 2, "b"], [4, 1, "c"]],
        "replaced": [[5, 1, "e"]],
        "by path": [[5, 1, "e"], [6, 1, "f"]],
    },
    "stays": True,
}


def main() -> None:
    """Through Spark Connect, in a process of its own."""
    builder = SparkSession.builder.remote("local[2]")
    for pair in json.loads(sys.argv[1]).items():
        builder = builder.config(*pair)
    spark = builder.getOrCreate()
    print("said", json.dumps(walk(spark, sys.argv[2])), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
