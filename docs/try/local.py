"""Everything on this machine, without containers: each lock service, a store, writers, the page, and Prometheus.

`local.py [--seconds N] [--port 8370]`: goes on until Ctrl-C, or for N seconds. What is not installed is left out, and
said. All processes and files end with it.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import ExitStack, closing
from pathlib import Path

from lakelatch.errors import LakelatchError
from lakelatch.system import REAL_SYSTEM
from lakelatch.testing.ports import free_port
from lakelatch.testing.servers import NAMES, Server, open_server
from lakelatch.testing.servers.reach import AWS_ENVIRONMENT, place_environment
from lakelatch.testing.servers.seaweedfs import BUCKET

HERE = Path(__file__).parent
RULES = HERE.parent / "grafana" / "alerts.yml"
STOP_S = 20


def say(what: str, more: str) -> None:
    print(f"{what:<12} {more}", flush=True)


def start_servers(opened: ExitStack, folder: Path) -> dict[str, Server]:
    """Those that can be started here."""
    servers = {}
    for name in NAMES:
        try:
            server = opened.enter_context(closing(open_server(name, folder / name, "local")))
        except LakelatchError as error:
            say(name, f"left out: {str(error).splitlines()[0]}")
            continue
        servers[name] = server
        say(name, f"{server.host}:{server.port}")
    return servers


def start(
    opened: ExitStack, command: list[str], environment: dict[str, str] | None = None, piped: bool = False
) -> subprocess.Popen[str]:
    """A process that ends with this one."""
    process = subprocess.Popen(
        command,
        env={**os.environ, **(environment or {})},
        stdout=subprocess.PIPE if piped else None,
        text=True,
        start_new_session=True,
    )
    opened.callback(stop, process)
    return process


def stop(process: subprocess.Popen[str]) -> None:
    process.terminate()
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def prometheus(opened: ExitStack, folder: Path, port: int) -> None:
    """One that reads from the writers, with the alert rules, if it is installed."""
    program = shutil.which("prometheus")
    if program is None:
        say("prometheus", "left out: apt-get install prometheus")
        return
    own = free_port()
    text = (HERE / "prometheus.yml").read_text()
    text = text.replace("/etc/prometheus/alerts.yml", str(RULES)).replace("writers:9464", f"127.0.0.1:{port}")
    (folder / "prometheus.yml").write_text(text)
    start(
        opened,
        [
            *(program, f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'prometheus'}"),
            *(f"--web.listen-address=127.0.0.1:{own}", "--log.level=error"),
        ],
    )
    say(
        "prometheus",
        f"http://127.0.0.1:{own}/graph and /classic/alerts; docs/grafana/dashboard.json is for your Grafana",
    )


def run(opened: ExitStack, seconds: float | None, page_port: int) -> int:
    folder = Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="lakelatch-try-")))
    servers = start_servers(opened, folder)
    environment = dict(AWS_ENVIRONMENT)
    if "seaweedfs" in servers:
        environment |= place_environment(servers["seaweedfs"])
    port, places = free_port(), [f"{name}={server.host}:{server.port}" for name, server in servers.items()]
    writers = start(
        opened,
        [sys.executable, str(HERE / "writers.py"), str(folder / "tables"), str(port), *places],
        environment,
        piped=True,
    )
    if writers.stdout is None or writers.stdout.readline() != "ready\n":
        return 1
    say("writers", f"two for each table; what they measure: http://127.0.0.1:{port}/metrics")
    prometheus(opened, folder, port)
    tables = [str(path) for path in sorted((folder / "tables").iterdir())]
    tables += [f"s3://{BUCKET}/storage"] * ("seaweedfs" in servers)
    program = Path(sys.executable).with_name("lakelatch")
    page = start(opened, [str(program), "ui", *tables, "--port", str(page_port)], environment, piped=True)
    line = page.stdout.readline() if page.stdout else ""
    if not line.startswith("open "):
        return 1
    say("page", line.removeprefix("open ").strip())
    say("tables", " ".join(tables))
    say("", "Ctrl-C ends all of it" if seconds is None else f"all of it ends in {seconds:g} s")
    until_ns = REAL_SYSTEM.monotonic_ns() + int((seconds or 1e9) * 1e9)
    while REAL_SYSTEM.monotonic_ns() < until_ns:
        for name, process in (("writers", writers), ("page", page)):
            if process.poll() is not None:
                say(name, f"ended with exit code {process.returncode}")
                return 1
        REAL_SYSTEM.sleep(0.2)
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, help="end after so long (default: with Ctrl-C)")
    parser.add_argument("--port", type=int, default=8370, help="of the page; 0: any that is free (default: 8370)")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with ExitStack() as opened:
        try:
            return run(opened, options.seconds, options.port)
        except KeyboardInterrupt:
            return 0


if __name__ == "__main__":
    sys.exit(main())
