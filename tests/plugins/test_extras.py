"""What `pip install lakelatch` brings is enough for tables of Arrow, and all else says what to install."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

tomllib = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
ROOT = Path(__file__).parents[2]
CORE = {"pyarrow", "numpy", "fastavro", "javaproperties", "sqlglot"}
#: The libraries of all extras, and of those that they need.
OTHERS = {"pyspark", "py4j", "pandas", "matplotlib", "rich", "redis", "kazoo", "boto3", "botocore", "obstore", "fsspec"}
OTHERS |= {"click", "jinja2", "aiohttp", "xxhash", "pyetcd", "etcd3", "grpc", "google", "hudi", "requests", "pytest"}
SCRIPT = f"""
import sys

class Without:
    def __init__(self, finder):
        self.finder = finder

    def find_spec(self, name, path=None, target=None):
        return None if name.partition(".")[0] in {OTHERS} else self.finder.find_spec(name, path, target)

    def __getattr__(self, name):
        return getattr(self.finder, name)

sys.meta_path[:] = [Without(finder) for finder in sys.meta_path]
import lakelatch
import pyarrow as pa
from lakelatch.errors import InvalidRequest

def refused(call, extra):
    try:
        call()
    except InvalidRequest as error:
        assert f"pip install 'lakelatch[{{extra}}]'" in str(error), error
        return error
    raise AssertionError(extra)

rows = pa.table({{"id": [1, 2], "v": ["a", "b"]}})
table = lakelatch.ArrowTable.create(sys.argv[1], "id long, v string", key="id", buckets=1)
table.upsert(rows)
table.update("id = 2", {{"v": "upper(v)"}})
table.merge(rows).when_matched_delete("source.v = 'a'").execute()
table.insert(rows, if_exists="skip", options=lakelatch.options(lock_provider="filesystem"))
table.compact()
assert sorted(table.to_arrow(where="id > 0").to_pylist(), key=str) == [
    {{"id": 1, "v": "a"}}, {{"id": 2, "v": "B"}}
], table.to_arrow()
other = lakelatch.ArrowTable.create(sys.argv[1] + "-other", "id long, v string", key="id", buckets=1)
with lakelatch.transaction([table, other]) as tx:
    tx.upsert(table, rows)
    tx.upsert(other, rows)
cut = lakelatch.snapshot([table, other])
assert cut.to_arrow(table).num_rows == cut.to_arrow(other).num_rows == 2
assert isinstance(refused(lambda: lakelatch.Table, "spark"), ImportError)
refused(lambda: lakelatch.write(None, sys.argv[1]), "spark")
from lakelatch.spark.session.local_session import open_session
refused(lambda: open_session("x"), "spark")
for provider in ("redis", "zookeeper", "etcd", "dynamodb"):
    more = {{"hoodie.write.lock.provider": provider}}
    refused(lambda: lakelatch.ArrowTable(sys.argv[1] + provider, more).upsert(rows), provider)
for scheme, extra in (("s3", "s3"), ("gs", "gcs"), ("abfss", "azure")):
    refused(lambda: lakelatch.open(f"{{scheme}}://bucket/t"), extra)
refused(lambda: lakelatch.open("oss://bucket/t"), "fsspec")
try:
    import lakelatch.console.main
except SystemExit as error:
    assert "pip install 'lakelatch[console]'" in str(error)
print("done")
"""


def test_a_table_of_arrow_needs_the_core_alone(tmp_path: Path) -> None:
    project: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert {re.split("[>=<]", one)[0] for one in project["dependencies"]} == CORE
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path / "t")], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.stdout, done.returncode) == ("done\n", 0), done.stderr
