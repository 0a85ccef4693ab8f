"""A server as a process of this machine, on loopback, with a folder of its own."""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import subprocess
import tempfile
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from pathlib import Path

from lakelatch.errors import InvalidRequest, Unavailable
from lakelatch.system import REAL_SYSTEM, System
from lakelatch.testing.ports import free_port
from lakelatch.testing.servers.contract import START_TIMEOUT_S, STOP_TIMEOUT_S, Server, wait_until

CACHE_VARIABLE = "LAKELATCH_TEST_CACHE"
JAVA_OPTIONS = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")  # small, and quick to start
_LOG_LINES = 20


class LocalServer(Server):
    """A server process in a group of its own, which dies with the process that started it.

    `arguments` come after its usual ones and `environment` on top of this process's. A subclass gives `command` and
    `answers`, the environment that it always needs, and the names of the `ports` that it needs apart from its own.
    """

    host = "127.0.0.1"
    usual_environment: Mapping[str, str] = {}
    port_names: Sequence[str] = ()

    def __init__(
        self,
        folder: Path,
        arguments: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        system: System = REAL_SYSTEM,
    ) -> None:
        self.folder = folder.absolute()
        self.data = self.folder / "data"
        self.log = self.folder / "log"
        self.port = free_port(system)
        self.ports = {name: free_port(system) for name in self.port_names}
        self._arguments = tuple(arguments)
        self._environment = {**self.usual_environment, **(environment or {})}
        self._system = system
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = os.getpid()
        atexit.register(self._at_exit)

    @abstractmethod
    def command(self) -> list[str]:
        """Program and arguments; the program must not fork into the background."""

    @abstractmethod
    def answers(self) -> bool:
        """Whether the server does its work, not only listens."""

    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        if self.running():
            return
        self.data.mkdir(parents=True, exist_ok=True)
        command = [*self.command(), *self._arguments]
        self._process = _starter(os.getpid()).submit(_spawn, command, self.folder, self.log, self._environment).result()
        wait_until(lambda: not self.running() or self.answers(), START_TIMEOUT_S, self._system)
        if not self.running() or not self.answers():
            state = "does not answer" if self.running() else f"ended with status {self._process.returncode}"
            self.kill()
            raise Unavailable(f"the server {self.name} {state}; the end of its log {self.log}:\n{self._log_end()}")

    def stop(self) -> None:
        if not self.running():
            return
        self._signal(signal.SIGTERM)
        self._signal(signal.SIGCONT)  # a paused process would never see the first one
        if not wait_until(lambda: not self.running(), STOP_TIMEOUT_S, self._system):
            self.kill()
            raise Unavailable(
                f"the server {self.name} did not stop within {STOP_TIMEOUT_S:g} s and was killed; the end of its log "
                f"{self.log}:\n{self._log_end()}"
            )

    def kill(self) -> None:
        if self._process is not None:
            self._signal(signal.SIGKILL)
            self._process.wait()

    def pause(self) -> None:
        if not self.running() or self._process is None:
            raise InvalidRequest(f"the server {self.name} does not run, so it cannot be paused: start it")
        self._signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)  # until its last thread stands

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def wipe(self) -> None:
        if self.running():
            raise InvalidRequest(f"the server {self.name} runs, so it cannot be wiped: stop it")
        shutil.rmtree(self.data, ignore_errors=True)

    def close(self) -> None:
        self.kill()
        shutil.rmtree(self.data, ignore_errors=True)
        atexit.unregister(self._at_exit)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)

    def _at_exit(self) -> None:
        if os.getpid() == self._owner:  # a forked child ends without its parent's server
            self.close()

    def _log_end(self) -> str:
        with suppress(OSError):
            return "\n".join(self.log.read_text(errors="replace").splitlines()[-_LOG_LINES:])
        return "(there is none)"


def program(name: str, way_out: str) -> str:
    """The path of a program, looked for where system services have theirs as well."""
    found = shutil.which(name) or shutil.which(name, path="/usr/sbin:/usr/local/sbin:/sbin")
    if found is None:
        raise Unavailable(f"the program {name!r} is not installed: {way_out}")
    return found


def cache_folder() -> Path:
    """Where fetched servers are kept: `LAKELATCH_TEST_CACHE`, or `lakelatch` in the user's own cache folder."""
    own = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "lakelatch"
    return Path(os.environ.get(CACHE_VARIABLE) or own).absolute()


def fetched(name: str, fetch: Callable[[Path], Path]) -> Path:
    """A folder of the cache. If it is missing, `fetch` makes it below an empty one, and returns where."""
    cache = cache_folder()
    target = cache / name
    if target.is_dir():
        return target
    cache.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="fetching-", dir=cache))
    try:
        made = fetch(folder)
        with suppress(OSError):  # another process was first
            made.rename(target)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return target


def java() -> str:
    """The program that runs Java: that of JAVA_HOME, or the one on PATH."""
    home = os.environ.get("JAVA_HOME")
    return str(Path(home, "bin", "java")) if home else program("java", "install Java 17 or newer")


@cache
def _starter(process: int) -> ThreadPoolExecutor:
    """The thread that starts servers: the kernel ends a child with the *thread* that started it, so this one stays."""
    return ThreadPoolExecutor(1, f"servers-of-{process}")


def _spawn(command: list[str], folder: Path, log: Path, environment: dict[str, str]) -> subprocess.Popen[bytes]:
    setpriv = shutil.which("setpriv")
    if setpriv is not None:
        command = [setpriv, "--pdeathsig", "KILL", *command]
    with open(log, "ab") as output:
        return subprocess.Popen(
            command,
            cwd=folder,
            env=os.environ | environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
