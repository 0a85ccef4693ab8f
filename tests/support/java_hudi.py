"""Java Hudi as a process beside the tests: writes, reads and procedures by Hudi's own Spark bundle.

`.ci/install-java-hudi` makes the environment and fetches the bundle. The folder of both is `.venv-java`, or what
`LAKELATCH_JAVA_HUDI` names; `LAKELATCH_JAVA_HUDI_VERSION` chooses another bundle than the tests' own.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from lakelatch.system import REAL_SYSTEM
from lakelatch.testing.servers import Server
from lakelatch.testing.servers.local import java

ROOT = Path(__file__).parents[2]
FOLDER_VARIABLE = "LAKELATCH_JAVA_HUDI"
VERSION_VARIABLE = "LAKELATCH_JAVA_HUDI_VERSION"
VERSION = "1.2.0"
OLDER_VERSION = "1.0.2"  # the oldest that reads tables of ours, those of version 8
PROCESS = ROOT / "tests" / "java" / "hudi_process.py"
LOG_LINES = 40
POLL_S = 0.002
KILL_LIMIT_S = 300
Rows = list[dict[str, Any]]


# A table that both engines can write: the bucket index, no metadata table, times in UTC.
SHARED = {
    "hoodie.table.name": "trips",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.table.type": "MERGE_ON_READ",
    "hoodie.metadata.enable": "false",
    "hoodie.table.timeline.timezone": "UTC",
    "hoodie.index.type": "BUCKET",
    "hoodie.index.bucket.engine": "SIMPLE",
    "hoodie.bucket.index.num.buckets": "2",
    "hoodie.datasource.write.hive_style_partitioning": "false",
    "hoodie.compact.inline": "false",
}
# The same for us: the other options are Java's alone.
OURS = {
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.precombine.field": "ts",
    "hoodie.bucket.index.num.buckets": "2",
    "lakelatch.rewrite.automatic": "false",
}
ORDERED = {
    "hoodie.table.ordering.fields": "ts",
    "hoodie.datasource.write.precombine.field": "ts",
    "hoodie.write.record.merge.mode": "EVENT_TIME_ORDERING",
}
NON_BLOCKING = {
    "hoodie.table.type": "MERGE_ON_READ",  # Hudi checks this one, and not the one of the data source
    "hoodie.write.concurrency.mode": "NON_BLOCKING_CONCURRENCY_CONTROL",
    "hoodie.cleaner.policy.failed.writes": "LAZY",
    "hoodie.clean.failed.writes.policy": "LAZY",
}
PARTITIONED = {"hoodie.datasource.write.partitionpath.field": "part"}
PARTITIONED_COLUMNS = "id long, ts long, v string, part string"
OPTIMISTIC = {**NON_BLOCKING, "hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL"}


def zookeeper_locks(server: Server, lock_key: str) -> dict[str, str]:
    """The options by which both engines take one lock on a ZooKeeper."""
    return {
        "hoodie.write.lock.provider": "org.apache.hudi.client.transaction.lock.ZookeeperBasedLockProvider",
        "hoodie.write.lock.zookeeper.url": f"{server.host}:{server.port}",
        "hoodie.write.lock.zookeeper.base_path": "/hudi/locks",
        "hoodie.write.lock.zookeeper.lock_key": lock_key,
    }


class JavaHudiError(AssertionError):
    """What Java said. `kind` is the exception's class; the message has every cause."""

    def __init__(self, kind: str, message: str, trace: str = "") -> None:
        super().__init__(f"{kind}: {message}\n{trace}")
        self.kind = kind
        self.message = message


class JavaHudi:
    """One Spark session with Hudi's bundle of `version`, in a process group of its own that can be killed.

    Commands are carried out one after another. `begin_write` does not wait for its answer, `finish` does.
    """

    def __init__(self, folder: Path, version: str | None = None, settings: Mapping[str, str] | None = None) -> None:
        self.version = version or os.environ.get(VERSION_VARIABLE, VERSION)
        home = Path(os.environ.get(FOLDER_VARIABLE) or ROOT / ".venv-java").absolute()
        self.python = home / ".venv" / "bin" / "python"
        self.jar = home / "jars" / f"hudi-spark3.5-bundle_2.12-{self.version}.jar"
        self.settings = {
            "spark.driver.memory": "2g",
            "spark.driver.extraJavaOptions": _JAVA_OPTIONS,
            **(settings or {}),
        }
        self.folder = Path(tempfile.mkdtemp(prefix="java-hudi-", dir=folder))
        self.log = self.folder / "log"
        self._process: subprocess.Popen[str] | None = None
        self._count = 0

    def missing(self) -> str | None:
        """What is not installed, or None."""
        return next((str(path) for path in (self.python, self.jar) if not path.exists()), None)

    def start(self) -> None:
        """Ready when this returns; does nothing if it runs."""
        if self._process is not None and self._process.poll() is None:
            return
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        environment |= {"PYSPARK_PYTHON": str(self.python), "TZ": "UTC"}
        for name in ("SPARK_HOME", "SPARK_SUBMIT_OPTS"):  # which are of our own Spark
            environment.pop(name, None)
        with self.log.open("a") as log:
            self._process = subprocess.Popen(
                [str(self.python), str(PROCESS), str(self.jar), json.dumps(self.settings)],
                cwd=self.folder,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        self.finish()

    def write(
        self, path: str, rows: pa.Table, options: Mapping[str, str] | None = None, mode: str = "append", **more: str
    ) -> None:
        """`more` has `__` for `.`; without options those of `SHARED` and `ORDERED` hold."""
        self.begin_write(path, rows, options, mode, **more)
        self.finish()

    def begin_write(
        self, path: str, rows: pa.Table, options: Mapping[str, str] | None = None, mode: str = "append", **more: str
    ) -> None:
        file = self._next("rows") + ".parquet"
        pq.write_table(rows, file)
        chosen = {**(SHARED | ORDERED if options is None else options)}
        chosen |= {name.replace("__", "."): value for name, value in more.items()}
        self._send({"do": "write", "rows": file, "path": path, "options": chosen, "mode": mode})

    def write_and_die(
        self,
        path: str,
        rows: pa.Table,
        options: Mapping[str, str] | None = None,
        when: str = ".hoodie/timeline/*.inflight",
        **more: str,
    ) -> str:
        """Kills the process, JVM and all, as soon as a new file matches `when`, and returns that file's name."""
        before = set(Path(path).glob(when))
        self.begin_write(path, rows, options, **more)
        began = REAL_SYSTEM.monotonic_ns()
        while not (fresh := set(Path(path).glob(when)) - before):
            if REAL_SYSTEM.monotonic_ns() - began > KILL_LIMIT_S * 10**9:
                self.kill()
                raise AssertionError(f"no file {when} appeared in {path} within {KILL_LIMIT_S} s")
            REAL_SYSTEM.sleep(POLL_S)
        self.kill()
        return min(found.name for found in fresh)

    def read(
        self,
        path: str,
        options: Mapping[str, str] | None = None,
        columns: Sequence[str] | None = None,
        where: str | None = None,
    ) -> Rows:
        """Rows as plain values, in the order of partition and key; meta columns are among them."""
        into = self._next("read")
        command = {"do": "read", "path": path, "options": dict(options or {}), "into": into}
        self._send({**command, "columns": columns and list(columns), "where": where})
        self.finish()
        return plain(pq.read_table(into))

    def read_optimized(self, path: str) -> Rows:
        return self.read(path, {"hoodie.datasource.query.type": "read_optimized"})

    def read_as_of(self, path: str, instant: str) -> Rows:
        return self.read(path, {"as.of.instant": instant})

    def read_since(self, path: str, begin: str, end: str | None = None) -> Rows:
        """Completion times: `(begin, end]`."""
        options = {"hoodie.datasource.query.type": "incremental", "hoodie.datasource.read.begin.instanttime": begin}
        return self.read(path, options | ({"hoodie.datasource.read.end.instanttime": end} if end else {}))

    def sql(self, statement: str) -> Rows:
        """The result of a statement or of a procedure, `call ...`, in its own order."""
        into = self._next("sql")
        self._send({"do": "sql", "statement": statement, "into": into})
        self.finish()
        rows: Rows = [dict(row) for row in pq.read_table(into).to_pylist()] if Path(into).exists() else []
        return rows

    def register(self, path: str, name: str = "trips") -> str:
        """Gives a table a name, since many procedures take `table => ...` only."""
        self.sql(f"drop table if exists {name}")
        self.sql(f"create table {name} using hudi location '{path}'")
        return name

    def set(self, conf: Mapping[str, str]) -> None:
        """Settings of the Spark session, which every later write has as options too if they begin with `hoodie.`."""
        self._send({"do": "set", "conf": dict(conf)})
        self.finish()

    def finish(self) -> None:
        """Waits for the answer to what was sent last; raises what Java said, or how its process ended."""
        process = self._process
        assert process is not None and process.stdout is not None
        line = process.stdout.readline()
        if not line:
            self.kill()
            lines = self.log.read_text(errors="replace").splitlines()[-LOG_LINES:]
            raise JavaHudiError("process ended", f"with status {process.returncode}", "\n".join(lines))
        answer = json.loads(line)
        if "error" in answer:
            raise JavaHudiError(**answer["error"])

    def kill(self) -> None:
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            for stream in (self._process.stdin, self._process.stdout):
                with suppress(OSError):
                    if stream is not None:
                        stream.close()
            self._process = None

    def close(self) -> None:
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _send(self, command: Mapping[str, Any]) -> None:
        self.start()
        assert self._process is not None and self._process.stdin is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()

    def _next(self, name: str) -> str:
        self._count += 1
        return str(self.folder / f"{name}-{self._count}")


# Short-lived sessions on few cores: no second compiler, no threads that collect garbage.
_JAVA_OPTIONS = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Duser.timezone=UTC"

_TYPES = {
    "long": pa.int64(),
    "int": pa.int32(),
    "short": pa.int16(),
    "byte": pa.int8(),
    "double": pa.float64(),
    "float": pa.float32(),
    "boolean": pa.bool_(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
}


def table_of(columns: str, rows: Sequence[Sequence[Any]], **types: pa.DataType) -> pa.Table:
    """Rows as an Arrow table, which both engines take; `columns` as in `"id long, ts timestamp"`, others by `types`."""
    pairs = [column.split() for column in columns.split(", ")]
    schema = pa.schema([(name, types.get(name) or _TYPES[kind]) for name, kind in pairs])
    data = [pa.array([row[index] for row in rows], field.type) for index, field in enumerate(schema)]
    return pa.Table.from_arrays(data, schema=schema)


def plain(table: pa.Table) -> Rows:
    """Rows as Python values that compare: times without a zone, in UTC; sorted by partition and key."""
    rows: Rows = [{name: _value(value) for name, value in row.items()} for row in table.to_pylist()]
    order = ("_hoodie_partition_path", "_hoodie_record_key")
    return sorted(rows, key=lambda row: (*(str(row.get(name)) for name in order), repr(row)))


def _value(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _value(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_value(inner) for inner in value]
    if isinstance(value, tuple):
        return tuple(_value(inner) for inner in value)
    if getattr(value, "tzinfo", None) is not None:
        return value.astimezone(timezone.utc).replace(tzinfo=None)
    return value


@dataclass
class SharedTable:
    """One table and what works on it. `ours` and `hudi_rs` read the table at a path, as `java.read` does."""

    spark: SparkSession
    java: JavaHudi
    path: str
    ours: Callable[..., Rows]
    hudi_rs: Callable[[str], Rows]

    def agreed(self) -> Rows:
        """The rows, after making sure that all three readers see the same."""
        rows = self.ours(self.path)
        assert rows == self.java.read(self.path)
        assert rows == self.hudi_rs(self.path)
        return rows


def rows_of(ids: range, ts: int, name: str) -> pa.Table:
    """Rows whose values are made of a name and their key, in the partitions p and q in turns."""
    return table_of(PARTITIONED_COLUMNS, [(key, ts, f"{name}{key}", "pq"[key % 2]) for key in ids])


class JavaProgram:
    """Reads orders, one in a line, and answers each with a line; the first line that it says is `ready`."""

    def __init__(self, folder: Path, name: str, source: str, class_path: str, *arguments: str) -> None:
        file, errors = folder / f"{name}.java", folder / "errors"
        file.write_text(source)
        with errors.open("w") as output:
            self._process = subprocess.Popen(
                [java(), "-Xmx256m", "-cp", class_path, str(file), *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                text=True,
            )
        said = self.told()
        assert said == "ready", f"{said} {errors.read_text()}"

    @property
    def process_id(self) -> int:
        return self._process.pid

    def tell(self, order: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(order + "\n")
        self._process.stdin.flush()

    def told(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def asked(self, order: str) -> str:
        self.tell(order)
        return self.told()

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()
