"""Java Hudi in a Spark session of its own: takes commands as JSON lines on stdin, answers each by one on stdout.

It is run by the Python of the environment that `.ci/install-java-hudi` makes, which has no lakelatch. Rows come and go
as parquet files, so that every type arrives as it was sent. `java_hudi.JavaHudi` is its other end.

    {"do": "write", "rows": FILE, "path": TABLE, "options": {...}, "mode": "append"}
    {"do": "read", "path": TABLE, "options": {...}, "columns": [...], "where": "...", "into": FOLDER}
    {"do": "sql", "statement": "call ...", "into": FOLDER}
    {"do": "set", "conf": {...}}
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession

SETTINGS = {
    "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
    "spark.sql.extensions": "org.apache.spark.sql.hudi.HoodieSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.hudi.catalog.HoodieCatalog",
    "spark.kryo.registrator": "org.apache.spark.HoodieSparkKryoRegistrar",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}
PLACES_OF_A_TRACE = 8


def open_session(jar: str, settings: dict[str, str]) -> SparkSession:
    builder = SparkSession.builder.master("local[2]").appName("java-hudi").config("spark.jars", jar)
    for pair in {**SETTINGS, **settings}.items():
        builder = builder.config(*pair)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("WARN")
    session.conf.set("hoodie.metadata.enable", "false")  # or procedures would build a metadata table
    return session


def carry_out(spark: SparkSession, command: dict[str, Any]) -> None:
    what = command["do"]
    if what == "write":
        frame = spark.read.parquet(command["rows"])
        frame.write.format("hudi").options(**command["options"]).mode(command["mode"]).save(command["path"])
    elif what == "read":
        frame = spark.read.format("hudi").options(**command["options"]).load(command["path"])
        if command.get("where"):
            frame = frame.where(command["where"])
        if command.get("columns"):
            frame = frame.select(*command["columns"])
        hand_over(frame, command["into"])
    elif what == "sql":
        hand_over(spark.sql(command["statement"]), command["into"])
    elif what == "set":
        for name, value in command["conf"].items():
            spark.conf.set(name, value)
    else:
        raise ValueError(f"there is no command {what!r}")


def hand_over(frame: DataFrame, folder: str) -> None:
    """A statement without a result has no columns, which parquet cannot hold; then there is no file."""
    if frame.columns:
        frame.coalesce(1).write.mode("overwrite").parquet(folder)


def told(error: Exception) -> dict[str, str]:
    """The causes in full, and where it happened in short: a trace of Spark has hundreds of lines."""
    text = str(error)
    kind = error.java_exception.getClass().getName() if isinstance(error, Py4JJavaError) else type(error).__name__
    places = [line for line in text.splitlines() if line.startswith("\tat ")][:PLACES_OF_A_TRACE]
    said = [line for line in text.splitlines() if line and not line.startswith(("\t", "Driver stacktrace"))]
    return {"kind": kind, "message": "\n".join(dict.fromkeys(said)), "trace": "\n".join(places)}


def main(jar: str, settings: str) -> None:
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what the JVM prints is no answer
    spark = open_session(jar, json.loads(settings))
    print(json.dumps({"ready": spark.version}), file=answers)
    for line in sys.stdin:
        try:
            carry_out(spark, json.loads(line))
        except Exception as error:
            print(json.dumps({"error": told(error)}), file=answers)
        else:
            print(json.dumps({"done": True}), file=answers)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
