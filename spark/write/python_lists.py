"""Frames made of small Python lists, whose rows are in the driver, though Spark's plan does not say so.

`createDataFrame` of a list makes an RDD of pickled rows that lie in the driver, and a function of Spark's own that
passes them on; the plan takes that for as large as can be. Rows that a function of the user's makes have the same plan,
so the function is compared with that of a list frame made here, and the rows are counted and weighed where they lie.
"""

from __future__ import annotations

import pickle
import pickletools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from io import BytesIO
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_LEAF = "LogicalRDD"
_KNOWN_NODES = frozenset({"Filter", "Project", "Sort"})  # which make no more rows, and run no code of Python's
# Its partitions, its number, and the line that has made it, which the JVM forgets once it has compiled the call.
_OF_ONE_RDD = re.compile(r"^[ |]*(?:\([0-9]+\) *)?|\[[0-9]+\]| at [^ \n]+:-?[0-9]+", re.MULTILINE)
_SIZES = frozenset({"FRAME", "BININT", "BININT1", "BININT2"})  # how many rows a batch has, among them


@dataclass(frozen=True)
class _Made:
    """How the RDD of a frame is made: as Spark describes it, and what its function of Python does."""

    description: str
    function: list[tuple[str, object]]


def is_small_list(df: DataFrame, rows_max: int, bytes_max: int) -> bool:
    """Whether a frame is made of a Python list of at most so many rows and bytes, and of nothing else.

    False for what is not known for sure, and under Spark Connect, where such frames are local.
    """
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    java: Any = getattr(df, "_jdf", None)
    if java is None:
        return False
    try:
        rdd = _rdd_of(java)
        known = _made_of_list(df.sparkSession) if rdd is not None else None
        if known is None or _description(rdd) != known.description:
            return False
        function, source = _last_two(rdd, known.description)
        if _function(function) != known.function:
            return False
        batches = _batches(df.sparkSession.sparkContext._jvm, source, bytes_max)
        return batches is not None and _are_small(batches, rows_max, bytes_max)
    except (Py4JError, PySparkException, AttributeError, pickle.PickleError):  # another Spark, or a frame that fails
        return False


@lru_cache(maxsize=1)
def _made_of_list(session: SparkSession) -> _Made:
    java: Any = session.createDataFrame([(0,)], "value int")
    rdd = _rdd_of(java._jdf)
    description = _description(rdd)
    return _Made(description, _function(_last_two(rdd, description)[0]))


def _rdd_of(java: Any) -> Any:
    """The RDD that a frame is made of; None if it is made of more than one, or otherwise."""
    execution = java.queryExecution()
    leaves = execution.analyzed().collectLeaves()
    if leaves.length() != 1 or leaves.apply(0).nodeName().strip() != _LEAF:
        return None
    node = execution.optimizedPlan()
    while (name := node.nodeName()) in _KNOWN_NODES:
        node = node.children().apply(0)
    return node.rdd() if name.strip() == _LEAF else None


def _description(rdd: Any) -> str:
    """The RDDs that it is made of, one a line."""
    return _OF_ONE_RDD.sub("", rdd.toDebugString())


def _last_two(rdd: Any, description: str) -> tuple[Any, Any]:
    """The RDD of Python's function, and before it that of the rows."""
    before = rdd
    for _ in range(description.count("\n")):
        rdd, before = before, before.dependencies().apply(0).rdd()
    return rdd, before


def _function(rdd: Any) -> list[tuple[str, object]]:
    field = rdd.getClass().getDeclaredField("func")
    field.setAccessible(True)
    steps = pickletools.genops(field.get(rdd).command().unsafeArray())
    return [(step.name, argument) for step, argument, _ in steps if step.name not in _SIZES]


def _batches(jvm: Any, source: Any, bytes_max: int) -> Iterator[object] | None:
    """The rows, as Spark pickled them, many at once; None if they have too many bytes even so."""
    from pyspark.serializers import CPickleSerializer

    content, left = jvm.java.io.ByteArrayOutputStream(), bytes_max
    for partition in source.partitions():
        left -= jvm.org.apache.spark.util.SizeEstimator.estimate(partition.values())
        if left < 0:
            return None
        stream = jvm.java.io.DataOutputStream(content)
        jvm.org.apache.spark.api.python.PythonRDD.writeIteratorToStream(partition.iterator(), stream)
    # one answer for all, since each large one takes 40 ms on its way
    serializer: Any = CPickleSerializer()
    batches: Iterator[object] = serializer.load_stream(BytesIO(content.toByteArray()))
    return batches


def _are_small(batches: Iterator[object], rows_max: int, bytes_max: int) -> bool:
    """Whether they are few rows, and few bytes when what many rows share is counted for each of them."""
    weight = _Weight(bytes_max)
    pickler = pickle.Pickler(weight)
    pickler.fast = True  # without a memory of what it has seen
    rows = 0
    try:
        for batch in batches:
            rows += len(batch) if isinstance(batch, list) else 1
            if rows > rows_max:
                return False
            pickler.dump(batch)
    except _TooHeavy:
        return False
    return True


class _TooHeavy(Exception):
    pass


class _Weight:
    """A file that counts."""

    def __init__(self, most: int) -> None:
        self._left = most

    def write(self, data: bytes) -> int:
        self._left -= len(data)
        if self._left < 0:
            raise _TooHeavy
        return len(data)
