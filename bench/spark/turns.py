"""Reads of two tables with the same rows, and actions of two sides in turns: what the benchmarks here share."""

from __future__ import annotations

import statistics
from collections.abc import Callable

from bench.harness import Result, time_ms
from pyspark.sql import DataFrame, SparkSession

#: Those of the rows, without the table's own.
COLUMNS = ("id", "ts", "v", "w", "text")


def spread(column: str, rows: int) -> str:
    """In SQL, each number below `rows` once, and not in its place."""
    return f"({column} * 2654435761) % {rows}"  # times a prime


def rows_of(spark: SparkSession, rows: int, ts: int) -> DataFrame:
    """So many rows with these columns, in the order of their keys."""
    return spark.range(rows).selectExpr(
        "format_string('key-%09d', id) AS id",
        f"{ts}L AS ts",
        "hash(id) AS v",
        "xxhash64(id) AS w",
        "md5(CAST(id AS STRING)) AS text",
    )


def sorted_by_key(source: DataFrame, files: int) -> DataFrame:
    """What Spark writes as so many files, each sorted by key."""
    return source.repartition(files, "id").sortWithinPartitions("id")


def answer(query: str, frame: Callable[[], DataFrame], where: str | None) -> object:
    """What a query finds; of a full scan nothing."""
    rows = frame()
    if query == "count":
        return rows.count()
    if query == "column":
        return rows.selectExpr("sum(CAST(v AS BIGINT)) AS total").collect()[0].total
    if query == "lookup":
        return rows.where(str(where)).select(*COLUMNS).collect()
    rows.write.format("noop").mode("overwrite").save()
    return None


def in_turns(
    name: str, ours: Callable[[], object], theirs: Callable[[], object], rounds: int
) -> tuple[list[float], list[float]]:
    """Milliseconds of each, after one run of both, which must find the same."""
    if ours() != theirs():  # and warms up
        raise AssertionError(f"{name}: other rows than the peer's")
    times: tuple[list[float], list[float]] = [], []
    for turn in range(rounds):
        for place, action in ((0, ours), (1, theirs))[:: -1 if turn % 2 else 1]:
            times[place].append(time_ms(action))
    return times


def compared(
    name: str, ours: list[float], theirs: list[float], goal: tuple[float, str], note: str, floor: float | None = None
) -> Result:
    """The speed: how often as fast as the peer. Turn by turn, so that what else the machine did is in both.

    `goal` is the least speed, and whose it is to.
    """
    ratios = [their / our for our, their in zip(ours, theirs, strict=True)]
    speed = statistics.median(ratios)
    return Result(
        name,
        round(statistics.median(ours), 0),
        "ms",
        None if floor is None else round(floor, 0),
        round(statistics.median(theirs), 0),
        round(speed, 2),
        f"at least {goal[0]:g} of {goal[1]} speed",
        speed >= goal[0],
        f"{note}; {len(ratios)} turns, {min(ratios):.2f} to {max(ratios):.2f}",
    )
