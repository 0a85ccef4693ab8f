"""Which file groups a compaction takes, by the names of Hudi's strategies."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from live_table import LiveTable

from lakelatch.engine.options.table_services.compaction import CompactionOptions
from lakelatch.engine.services.rewrites.compaction_choice import chosen
from lakelatch.errors import InvalidRequest
from lakelatch.timeline.instant import requested
from lakelatch.timeline.metadata import CompactionOperation, CompactionPlan

MB = 1024 * 1024
BASES = {"2026/11/20": 100 * MB, "2026/11/21": 0, "2026/11/22": 1000 * MB}


def operation(partition: str, log_mb: float, logs: int) -> CompactionOperation:
    metrics = {"TOTAL_LOG_FILES_SIZE": log_mb * MB, "TOTAL_LOG_FILES": float(logs), "TOTAL_IO_MB": log_mb}
    base = "base.parquet" if BASES[partition.rpartition("=")[2]] else None
    return CompactionOperation(partition, f"{logs}", "1", base, (), metrics=metrics)


OPERATIONS = [operation("2026/11/20", 10, 1), operation("2026/11/21", 5, 9), operation("2026/11/22", 20, 4)]
OLD, LOGS_ONLY, LARGE = OPERATIONS


def base_bytes(operations: Sequence[CompactionOperation]) -> list[int]:
    return [BASES[one.partition] for one in operations]


def taken(**options: str) -> list[str]:
    given = {f"hoodie.compaction.{name.replace('__', '.')}": value for name, value in options.items()}
    given["lakelatch.compact.least.log.percent"] = given.pop("hoodie.compaction.percent", "0")
    found = chosen(OPERATIONS, CompactionOptions.from_options(given), base_bytes)
    return [one.partition[-2:] for one in found]


@pytest.mark.parametrize(
    "options, expected",
    [
        ({}, ["22", "20", "21"]),
        ({"logfile__size__threshold": str(6 * MB)}, ["22", "20"]),
        ({"strategy": "LogFileNumBasedCompactionStrategy"}, ["21", "22", "20"]),
        ({"strategy": "LogFileNumBasedCompactionStrategy", "logfile__num__threshold": "4"}, ["21", "22"]),
        ({"target__io": "1"}, ["22"]),
        ({"target__io": "2030"}, ["22", "20"]),  # the first has 2,020 MB
        ({"target__io": "2020"}, ["22"]),
        ({"target__io": "5", "strategy": "UnBoundedCompactionStrategy"}, ["20", "21", "22"]),
        ({"target__io": "5", "strategy": "BoundedIOCompactionStrategy"}, ["20"]),
        ({"percent": "5"}, ["20", "21"]),
        ({"strategy": "DayBasedCompactionStrategy", "daybased__target__partitions": "2"}, ["22", "21"]),
        (
            {
                "strategy": "org.apache.hudi.table.action.compact.strategy.PartitionRegexBasedCompactionStrategy,"
                " LogFileSizeBasedCompactionStrategy",
                "partition__path__regex": "11/2[12]",
            },
            ["22", "21"],
        ),
    ],
)
def test_strategies_take_what_hudis_do(options: dict[str, str], expected: list[str]) -> None:
    assert taken(**options) == expected


def test_days_are_told_apart_behind_hive_names() -> None:
    days = [operation("day=2026/11/20", 1, 1), operation("a=2026/11/22", 1, 1)]
    options = CompactionOptions(strategies=("DayBasedCompactionStrategy",), latest_partitions=1)
    assert chosen(days, options, base_bytes) == days[1:]


@pytest.mark.parametrize(
    "options, text",
    [
        ({"strategy": "my.Own"}, "'my.Own' is not supported: use LogFileSizeBased"),
        ({"strategy": "PartitionRegexBasedCompactionStrategy"}, "needs hoodie.compaction.partition.path.regex"),
        ({"partition__path__regex": "("}, "no regular expression"),
        ({"target__io": "much"}, "no whole number"),
    ],
)
def test_what_is_no_strategy_is_refused(options: dict[str, str], text: str) -> None:
    with pytest.raises(InvalidRequest, match=text):
        taken(**options)


def test_a_plan_leaves_what_does_not_pay_to_a_later_one(tmp_path: Path) -> None:
    table = LiveTable(tmp_path / "t")

    def partitions_of(plan: str | None) -> list[str]:
        assert plan is not None
        found = CompactionPlan.read(table.storage, requested(plan, "compaction").path)
        table.execute(plan)
        return list(dict.fromkeys(one.partition for one in found.operations))  # each has two buckets

    for day, rows in (("a", 2), ("b", 20_000), ("c", 200)):
        table.write([(2 * key, 1, f"{key * 7919 % 1000003}") for key in range(rows)], day)
    assert partitions_of(table.plan({"hoodie.compaction.target.io": "1"})) == ["b", "c", "a"]
    for day, rows in (("a", 2), ("b", 2), ("c", 200)):
        table.write([(2 * key, 2, f"{key * 7907 % 1000003}") for key in range(rows)], day)
    assert table.plan({"hoodie.compaction.logfile.size.threshold": "1000000"}) is None
    assert sorted(partitions_of(table.plan({"lakelatch.compact.least.log.percent": "20"}))) == ["a", "c"]
    assert partitions_of(table.plan()) == ["b"]
