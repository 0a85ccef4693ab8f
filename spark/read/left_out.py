"""Which rows of base files Spark leaves out, as a condition that it applies to each row.

The bits of all files of a scan are one array, which Spark is handed as a scalar subquery of one row: a literal of that
size would be in the text of each plan. A row's file is told by the file's size, which Spark knows without a look at the
row, and which costs a tenth of what a path does; files of one size are scans of their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lakelatch.engine.read.superseded import WORD_BITS, Superseded
from lakelatch.spark.session.handed import handed_once

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

_FILES_MAX = 32  # of a scan: a row is compared with the sizes one after the other
_WORDS = "_lakelatch_words"
_UNKNOWN = "a base file does not have the size that it had when its rows were looked at"


def in_scans(paths: Sequence[str], left_out: Mapping[str, Superseded]) -> list[list[str]]:
    """The files for each scan: all in one, unless rows are left out."""
    if not left_out:
        return [list(paths)]
    scans: list[dict[int, str]] = []
    for path in paths:
        size = left_out[path].file_bytes
        scan = next((one for one in scans if size not in one and len(one) < _FILES_MAX), None)
        if scan is None:
            scan = {}
            scans.append(scan)
        scan[size] = path
    return [list(scan.values()) for scan in scans]


def is_left(spark: SparkSession, files: Sequence[Superseded]) -> Column:
    """Whether a row of one of these files, which are of different sizes, is not left out.

    As text, which is one call of the JVM.
    """
    from pyspark.sql import functions

    starts = np.cumsum([0, *(len(one.words) for one in files)]).tolist()
    pairs = ", ".join(f"{one.file_bytes}L, {start}" for one, start in zip(files, starts[: len(files)], strict=True))
    # A map is no part of the code that Spark compiles, as numbers are: that is the same for each snapshot of a table.
    start = f"coalesce(element_at(map({pairs}), _metadata.file_size), CAST(raise_error('{_UNKNOWN}') AS INT))"
    # What overlays and small logs say is kept as well, and is then the same objects.
    words = handed_once(spark, tuple(files), lambda: _words_in_spark(spark, files))
    word = functions.get(words, functions.expr(f"{start} + CAST(_metadata.row_index DIV {WORD_BITS} AS INT)"))
    return functions.getbit(word, functions.expr(f"CAST(_metadata.row_index % {WORD_BITS} AS INT)")) == 0


def _words_in_spark(spark: SparkSession, files: Sequence[Superseded]) -> Column:
    words = pa.array([np.concatenate([one.words for one in files])], pa.list_(pa.int64()))
    return spark.createDataFrame(pa.table({_WORDS: words})).scalar()
