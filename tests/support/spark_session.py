"""The Spark session of the tests: small, quiet, with the same settings in whichever process."""

from __future__ import annotations

import os
import sys
import warnings
from typing import Any

from pyspark.errors import PySparkRuntimeError
from pyspark.sql import DataFrame, SparkSession
from spark_java import SMALL

SESSION_SETTINGS = {
    "spark.driver.memory": "1g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.extraJavaOptions": SMALL,  # of executors that are processes
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.session.timeZone": "UTC",
}


def open_test_session() -> SparkSession:
    """The session of this process; its executors run the interpreter of the tests."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").appName("lakelatch-tests")
    for key, value in SESSION_SETTINGS.items():
        builder = builder.config(key, value)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=FutureWarning, module=r"pyspark\.")
        try:
            session = builder.getOrCreate()
        except PySparkRuntimeError as error:  # a Java that did not come up would fail all tests of this process
            if error.getCondition() != "JAVA_GATEWAY_EXITED":
                raise
            session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    return session


def local_frame(spark: SparkSession, rows: list[tuple[Any, ...]], columns: str) -> DataFrame:
    """A frame that is in the driver already, which is written without a Spark job."""
    made = spark.createDataFrame(rows, columns)
    return spark.createDataFrame(made.toArrow(), made.schema)
