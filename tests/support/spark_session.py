"""The Spark session of the tests: small, quiet, with the same settings in whichever process."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType
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


WORKERS = Path(__file__).with_name("spark_workers")


def open_test_session() -> SparkSession:
    """The session of this process; its executors run the interpreter of the tests, with what they need imported."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").appName("lakelatch-tests")
    for key, value in SESSION_SETTINGS.items():
        builder = builder.config(key, value)
    with warnings.catch_warnings(), pytest.MonkeyPatch.context() as inherited:
        inherited.setenv("PYTHONPATH", str(WORKERS), prepend=os.pathsep)
        warnings.filterwarnings("ignore", category=FutureWarning, module=r"pyspark\.")
        try:
            session = builder.getOrCreate()
        except PySparkRuntimeError as error:  # a Java that did not come up would fail all tests of this process
            if error.getCondition() != "JAVA_GATEWAY_EXITED":
                raise
            session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    return session


def local_frame(spark: SparkSession, rows: Iterable[Any], columns: str) -> DataFrame:
    """A frame that is in the driver already: neither to make it nor to write it takes a Spark job."""
    schema, found = StructType.fromDDL(columns), list(rows)
    assert isinstance(schema, StructType)
    if not found:
        return spark.createDataFrame([], schema)
    # What makes frames of rows for Spark Connect, which takes them as Arrow.
    named = "pyspark.sql.conversion" if find_spec("pyspark.sql.conversion") else "pyspark.sql.connect.conversion"
    convert = import_module(named).LocalDataToArrowConversion.convert
    return spark.createDataFrame(convert(found, schema, False), schema)
