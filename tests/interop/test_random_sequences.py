"""Random sequences of writes, changes of columns and services: after each step three readers and an oracle agree.

A failing seed prints its steps.
"""

from __future__ import annotations

import random  # noqa: TID251  (seeded)
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import SparkSession
from random_tables.readers import Readers
from random_tables.table import KINDS, RandomTable

pytestmark = pytest.mark.spark
Read = Callable[..., list[dict[str, Any]]]
SEEDS = (1024, 2557)  # both orderings, with and without partitions


@pytest.fixture
def readers(by_lakelatch: Read, by_arrow: Read, by_hudi_rs: Read) -> Readers:
    return Readers(by_lakelatch, by_arrow, by_hudi_rs)


def run(spark: SparkSession, path: str, readers: Readers, seed: int, steps: int) -> None:
    table = RandomTable.of(spark, path, seed, ordered=seed % 2 == 0, partitioned=seed // 2 % 2 == 0)
    print(f"seed {seed}: {table.options}")
    for kind in ["upsert", *random.Random(seed).choices(list(KINDS), list(KINDS.values()), k=steps - 1)]:
        print(kind)
        table.step(kind)
        readers.check(table)
    readers.check(table, everything=True)


@pytest.mark.stores
@pytest.mark.parametrize("seed", SEEDS)
def test_three_readers_agree_with_an_oracle(spark: SparkSession, table_path: str, readers: Readers, seed: int) -> None:
    run(spark, table_path, readers, seed, steps=5)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 112))
def test_three_readers_agree_with_an_oracle_for_long(
    spark: SparkSession, table_path: str, readers: Readers, seed: int
) -> None:
    run(spark, table_path, readers, seed, steps=12)
