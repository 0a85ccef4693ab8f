"""A user's job where somebody else's provider is installed: it imports nothing of either's insides."""

from __future__ import annotations

import json
import sys

import pyarrow as pa
from pyspark.sql import SparkSession

import lakelatch


def main(table: str, database: str) -> None:
    spark = (
        SparkSession.builder.master("local[1]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .getOrCreate()
    )
    options: dict[str, str | int] = {
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.bucket.index.num.buckets": 1,
        "hoodie.write.lock.provider": "sqlite",
        "hoodie.write.lock.sqlite.path": database,
        "lakelatch.heartbeat.type": "lease",
    }
    frame = spark.createDataFrame(pa.table({"id": [1, 2, 3], "name": ["a", "b", "c"]}))
    lakelatch.write(frame, table, options)
    frame.repartition(1).write.format("lakelatch").options(**options).mode("append").save(table)
    rows = [row.id for row in lakelatch.read(spark, table).orderBy("id").collect()]
    print(json.dumps({"rows": rows}))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
