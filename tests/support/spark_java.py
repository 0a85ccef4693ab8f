"""How Java runs below every Spark session that tests start, in whichever process.

`python tests/support/spark_java.py` makes the archive of its classes: a session then starts with half the processor
time. Java takes it only where the class path is the same and has no folder with files in it, such as SPARK_CONF_DIR;
elsewhere, and without the archive, it loads its classes as always.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

ARCHIVE = Path(sys.prefix) / "spark-classes.jsa"
#: Sessions of tests end before Java's second compiler pays, and its threads take the cores from them. Without it Java
#: keeps 48 MB for compiled code, which a few hundred tests fill, and throws away what it needs again. And it would look
#: through all of its memory each time that it has loaded some more classes, until there are as many as Spark needs.
SMALL = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m -XX:MetaspaceSize=256m -XX:+UseSerialGC"
#: Or Java prints, on its output, why it cannot take or fill the archive.
_SILENT = "-Xlog:cds=off -Xlog:cds+dynamic=off -Xlog:class+path=off"


def java_options() -> str:
    """What Java is started with, for SPARK_SUBMIT_OPTS."""
    return f"{SMALL} -XX:SharedArchiveFile={ARCHIVE} {_SILENT}" if ARCHIVE.exists() else SMALL


def make_archive() -> None:
    """Fills the archive with the classes that some usual work has loaded."""
    unfinished = ARCHIVE.with_suffix(".unfinished")
    os.environ["SPARK_SUBMIT_OPTS"] = f"{SMALL} -XX:ArchiveClassesAtExit={unfinished} {_SILENT}"
    os.environ.pop("SPARK_CONF_DIR", None)
    from spark_session import open_test_session

    import lakelatch

    with tempfile.TemporaryDirectory() as folder:
        spark = open_test_session()
        options: dict[str, str | int] = {
            "hoodie.datasource.write.recordkey.field": "id",
            "hoodie.bucket.index.num.buckets": 2,
        }
        rows = spark.range(100).selectExpr("id", "id % 7 AS part", "CAST(id AS STRING) AS name")
        for _ in range(2):
            lakelatch.write(rows, f"{folder}/table", options)
        rows.repartition(2).write.format("lakelatch").options(**options).mode("append").save(f"{folder}/table")
        read = lakelatch.read(spark, f"{folder}/table", where="part > 2").orderBy("id").collect()
        assert len(read) == sum(number % 7 > 2 for number in range(100))
        spark.read.format("lakelatch").load(f"{folder}/table").groupBy("part").count().toArrow()
        rows.write.parquet(f"{folder}/rows")
        spark.read.parquet(f"{folder}/rows").join(rows, "id").toPandas()
        gateway = spark.sparkContext._gateway
        spark.stop()
    assert gateway is not None
    gateway.shutdown()
    gateway.proc.stdin.close()  # Java ends, and writes the archive
    gateway.proc.wait()
    unfinished.replace(ARCHIVE)


if __name__ == "__main__":
    make_archive()
