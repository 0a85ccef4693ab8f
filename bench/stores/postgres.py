"""A PostgreSQL server for the time of a benchmark, as DuckLake's catalog: Debian's package, its defaults."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from contextlib import ExitStack
from pathlib import Path

from lakelatch.errors import LakelatchError
from lakelatch.testing.servers.local import LocalServer

CATALOG = "BENCH_DUCKLAKE_CATALOG"  # how libpq reaches it; child processes inherit it
_USER = "postgres"  # the server refuses to run as root
_PROGRAMS = Path("/usr/lib/postgresql")


class LocalPostgres(LocalServer):
    """One cluster in a folder, on loopback, whose clients need no password."""

    name = "postgres"

    def command(self) -> list[str]:
        return [*_as_user(), _program("postgres"), "-D", f"{self.data}", "-p", f"{self.port}", "-k", ""]

    def start(self) -> None:
        self.data.mkdir(parents=True, exist_ok=True)
        self.data.chmod(0o700)
        if os.getuid() == 0:
            shutil.chown(self.folder, _USER)
            shutil.chown(self.data, _USER)
        make = [*_as_user(), _program("initdb"), "-D", f"{self.data}", "-U", _USER, "--auth=trust"]
        subprocess.run(make, check=True, capture_output=True, cwd=self.folder)
        super().start()

    def answers(self) -> bool:
        asked = [_program("pg_isready"), "-q", "-h", self.host, "-p", f"{self.port}"]
        return subprocess.run(asked, check=False).returncode == 0


def open_catalog(stack: ExitStack) -> list[str]:
    """Starts one, until the stack ends, and names it in the environment; a line if there can be none."""
    try:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=Path.cwd(), prefix="bench-")))
        server = LocalPostgres(folder)
        server.start()
    except (OSError, LookupError, LakelatchError, subprocess.CalledProcessError) as error:
        return [f"DuckLake: no PostgreSQL: {' '.join(str(error).split())[:200]}"]
    stack.callback(server.close)
    os.environ[CATALOG] = f"dbname={_USER} host={server.host} port={server.port} user={_USER}"
    stack.callback(os.environ.pop, CATALOG)
    return []


def _program(name: str) -> str:
    found = sorted(_PROGRAMS.glob(f"*/bin/{name}"))
    if not found:
        raise LookupError(f"{name} is not below {_PROGRAMS}: apt-get install postgresql")
    return str(found[-1])


def _as_user() -> list[str]:
    return ["setpriv", f"--reuid={_USER}", f"--regid={_USER}", "--init-groups"] if os.getuid() == 0 else []
