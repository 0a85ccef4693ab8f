"""Options as keywords, and values that are no texts."""

from __future__ import annotations

import inspect
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lakelatch
from lakelatch.engine.options.calls.registry import Call, normalise
from lakelatch.engine.options.read import AS_OF
from lakelatch.errors import InvalidRequest

ALL: dict[str, Any] = {
    "key": ["a", "b"],
    "ordering": "ts",
    "partition_by": "day",
    "buckets": 8,
    "concurrency": "non_blocking",
    "retries": 3,
    "lock_provider": "redis",
    "lock_wait_s": 2.5,
    "lock_lease_s": 20,
    "merge_schema": True,
    "missing_as_null": True,
    "small_rows": 10,
    "compact_after_commits": 7,
    "cluster_by": ["x", "y"],
    "cluster_after_commits": 9,
    "keep_hours": 48,
}


def test_keywords_are_hudis_options() -> None:
    assert lakelatch.options(**ALL, more={"hoodie.table.name": "trips"}) == {
        "hoodie.datasource.write.recordkey.field": "a,b",
        "hoodie.datasource.write.precombine.field": "ts",
        "hoodie.datasource.write.partitionpath.field": "day",
        "hoodie.bucket.index.num.buckets": 8,
        "hoodie.write.concurrency.mode": "NON_BLOCKING_CONCURRENCY_CONTROL",
        "hoodie.write.num.retries.on.conflict.failures": 3,
        "hoodie.write.lock.provider": "redis",
        "hoodie.write.lock.wait_time_ms": 2500,
        "lakelatch.lock.lease_s": 20,
        "mergeSchema": True,
        "hoodie.write.set.null.for.missing.columns": True,
        "lakelatch.write.small.rows": 10,
        "hoodie.compact.inline": True,
        "hoodie.compact.inline.max.delta.commits": 7,
        "hoodie.clustering.plan.strategy.sort.columns": "x,y",
        "hoodie.clustering.inline": True,
        "hoodie.clustering.inline.max.commits": 9,
        "hoodie.clean.hours.retained": 48,
        "hoodie.clean.policy": "KEEP_LATEST_BY_HOURS",
        "hoodie.table.name": "trips",
    }
    assert lakelatch.options() == {}
    assert lakelatch.options(early_detection=False) == {
        "hoodie.write.concurrency.early.conflict.detection.enable": False
    }
    tried = {*ALL, "early_detection", "keep_commits", "keep_versions", "more"}
    assert tried == set(inspect.signature(lakelatch.options).parameters)


def test_they_are_understood_by_writes_and_services() -> None:
    given = lakelatch.options(**{**ALL, "lock_provider": "filesystem"})
    written, served = Call(given).write(), Call(given).services()
    assert written.record_key_fields == ("a", "b") and written.merge_schema and written.small_rows == 10
    assert served.clustering.columns == ("x", "y") and served.clustering.inline
    assert Call(lakelatch.options(keep_commits=4)).services().cleaning.commits == 4
    assert Call(lakelatch.options(keep_versions=5)).services().cleaning.versions == 5


@pytest.mark.parametrize(
    "keywords, text",
    [
        ({"concurrency": "hopeful"}, "concurrency='hopeful': it is 'optimistic' or 'non_blocking'"),
        ({"keep_hours": 1, "keep_commits": 1}, "say one of them"),
        ({"lock_wait_s": "30"}, "lock_wait_s='30': it is a number of seconds"),
        ({"lock_wait_s": float("inf")}, "lock_wait_s=inf: it is a number of seconds"),
        ({"key": ["a,b"]}, "may not hold a comma"),
        ({"more": {"hoodie.my.own.idea": 1}}, "'hoodie.my.own.idea' is not known"),
    ],
)
def test_keywords_that_make_no_sense_are_refused(keywords: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidRequest, match=text):
        lakelatch.options(**keywords)


def test_values_may_be_lists_paths_times_and_numbers() -> None:
    moment = datetime(2026, 11, 21, 14, 0, 0, 123456, timezone(timedelta(hours=2)))
    given = {
        "hoodie.datasource.write.recordkey.field": ["a", "b"],
        "hoodie.write.lock.filesystem.path": Path("/locks"),
        AS_OF: moment,
        "hoodie.bucket.index.num.buckets": np.int64(8),
        "mergeSchema": True,
        "hoodie.table.name": None,
    }
    assert normalise(given) == {
        "hoodie.datasource.write.recordkey.field": "a,b",
        "hoodie.write.lock.filesystem.path": "/locks",
        AS_OF: "2026-11-21 12:00:00.123",
        "hoodie.bucket.index.num.buckets": "8",
        "mergeschema": "true",
    }


@pytest.mark.parametrize(
    "value, text",
    [
        (datetime(2026, 11, 21), "has no zone"),
        (["a,b"], "has a comma"),
        ({"a"}, "a set is no value of an option"),
        (b"a", "a bytes is no value of an option"),
    ],
)
def test_values_without_a_text_are_refused(value: object, text: str) -> None:
    with pytest.raises(InvalidRequest, match=text):
        normalise({"columns": value})
