"""A third party's provider: built as a wheel, installed, used by its name, while nothing of ours knows of it."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from lakelatch.console.main import main as console
from lakelatch.errors import InvalidRequest
from lakelatch.locks.contract import LockProvider, LockScope
from lakelatch.locks.open import open_lock_provider
from lakelatch.plugins import find_component
from lakelatch.testing.conformance.lock_provider import LockProviderConformance
from lakelatch.timeline.log.lock_names import split_locks

HERE = Path(__file__).parent
OPTIONS = {"hoodie.write.lock.provider": "sqlite", "lakelatch.lock.lease_s": "3"}


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the package as pip installs its wheel."""
    folder = tmp_path_factory.mktemp("third-party")
    source = shutil.copytree(HERE / "sqlite_locks", folder / "source")
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(source)]
    subprocess.run(build, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    site = folder / "site"
    install = [sys.executable, "-m", "pip", "install", "--no-index", "--no-deps", "--target", str(site), str(wheel)]
    subprocess.run(install, check=True, capture_output=True)
    return site


@pytest.fixture
def in_this_process(installed: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(str(installed))
    inherited = os.environ.get("PYTHONPATH", "")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(installed), inherited])))
    find_component.cache_clear()
    return installed


def test_the_name_is_unknown_without_the_package() -> None:
    find_component.cache_clear()
    with pytest.raises(InvalidRequest, match="no known lock provider"):
        open_lock_provider(LockScope("file:///nowhere", OPTIONS))


class TestConformance(LockProviderConformance):
    @pytest.fixture(autouse=True)
    def _use(self, in_this_process: Path, tmp_path: Path) -> None:
        self.database = tmp_path / "locks.db"

    def make_provider(self, table_uri: str) -> LockProvider:
        path = {"hoodie.write.lock.sqlite.path": str(self.database)}
        return open_lock_provider(LockScope(table_uri, {**OPTIONS, **path}))


@pytest.mark.spark
@pytest.mark.long
def test_a_spark_job_uses_it_by_name(in_this_process: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table, database = tmp_path / "table", tmp_path / "locks.db"
    job = [sys.executable, str(HERE / "writer.py"), str(table), str(database)]
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    ran = subprocess.run(job, env=environment, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout.splitlines()[-1]) == {"rows": [1, 2, 3]}
    with closing(sqlite3.connect(database)) as stored:
        names = [name for (name,) in stored.execute("select name from records")]
    assert any(name.startswith("locks/") for name in names)
    options = ["-o", "hoodie.write.lock.provider=sqlite", "-o", f"hoodie.write.lock.sqlite.path={database}"]
    assert console(["locks", str(table), *options, "--json"]) == 0
    assert split_locks(json.loads(capsys.readouterr().out)["domain"])[0] == "sqlite"
