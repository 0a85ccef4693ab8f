"""Draws docs/images/dashboard.webp: what the dashboard's queries find in a Prometheus beside writers that meet.

`python docs/site/dashboard_picture.py [MINUTES]`, in an environment with the extras redis, metrics and draw. It needs
the programs redis-server and prometheus. Each panel is drawn by matplotlib, in its place and with its legend: the
picture is not Grafana's. While the writers of docs/try are at work, others are killed, and the Redis stands still once.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

import matplotlib
from dashboard import Panel, Prometheus, panels
from lake import DOCS, Lake
from PIL import Image

from lakelatch.system import REAL_SYSTEM
from lakelatch.testing.ports import free_port
from lakelatch.testing.servers import Server, open_server

SCRAPE_S, STEP_S, RATE = 2, 4, "20s"
STANDS_STILL_S, TURN_S = 12, 20
CONFIGURATION = """\
global: {{scrape_interval: {scrape_s}s}}
scrape_configs: [{{job_name: writers, static_configs: [{{targets: ['127.0.0.1:{port}']}}]}}]
"""
#: A writer of a table that is killed before its commit, after its rows are in a file.
DYING = """
import os, signal, sys
import lakelatch, pyarrow as pa
table = lakelatch.open(sys.argv[1], {"hoodie.client.heartbeat.interval_in_ms": 500})
with lakelatch.transaction([table]) as write:
    write.upsert(table, pa.table({"account": [0], "amount": [0]}))
    write.to_arrow(table)
    os.kill(os.getpid(), signal.SIGKILL)
"""
_DPI = 100
_UNITS = {"ops": "a second", "s": "s", "Bps": "bytes a second", "short": ""}


@contextmanager
def watched_writers(lake: Lake, redis: Server) -> Iterator[Prometheus]:
    """The writers of docs/try, on a table of the kernel's locks and one of Redis', and a Prometheus that reads them."""
    port, own = free_port(), free_port()
    (lake.folder / "prometheus.yml").write_text(CONFIGURATION.format(scrape_s=SCRAPE_S, port=port))
    writers = [
        sys.executable,
        str(DOCS / "try" / "writers.py"),
        "tables",
        str(port),
        f"redis={redis.host}:{redis.port}",
    ]
    serve = ["prometheus", "--config.file=prometheus.yml", "--storage.tsdb.path=data", "--log.level=error"]
    with (
        (lake.folder / "ready").open("w+") as said,
        lake.started(writers, stdout=said),
        lake.started([*serve, f"--web.listen-address=127.0.0.1:{own}"]),
    ):
        while "ready" not in (lake.folder / "ready").read_text():
            REAL_SYSTEM.sleep(0.5)
        yield Prometheus(own)


def make_trouble(lake: Lake, redis: Server, until_ms: int) -> None:
    """Kills a writer in each turn, and has the Redis stand still in the second one, until it is that late."""
    (lake.folder / "dying.py").write_text(DYING)
    turn = 0
    while REAL_SYSTEM.realtime_ms() < until_ms:
        turn += 1
        lake.run(f"{sys.executable} dying.py tables/{'filesystem' if turn % 2 else 'redis'}")
        if turn == 2:
            redis.pause()
            REAL_SYSTEM.sleep(STANDS_STILL_S)
            redis.resume()
        REAL_SYSTEM.sleep(TURN_S)


def draw(shown: list[Panel], prometheus: Prometheus, start_ms: int, end_ms: int) -> Any:
    """The panels in their places."""
    matplotlib.use("Agg")
    from matplotlib import pyplot

    columns, rows = 24, max(one.place[1] + one.place[3] for one in shown)
    figure = pyplot.figure(figsize=(14, rows * 0.34), layout="constrained")
    grid = figure.add_gridspec(rows, columns)
    for panel in shown:
        x, y, width, height = panel.place
        axes = figure.add_subplot(grid[y : y + height, x : x + width])
        _draw_panel(axes, panel, prometheus, start_ms, end_ms)
    return figure


def _draw_panel(axes: Any, panel: Panel, prometheus: Prometheus, start_ms: int, end_ms: int) -> None:
    for target in panel.targets:
        query = {"start": start_ms / 1000, "end": end_ms / 1000, "step": STEP_S}
        for series in prometheus.ask("query_range", query=target.query(RATE), **query)["result"]:
            at_s = [float(at) - start_ms / 1000 for at, _ in series["values"]]
            name = target.name_of(series["metric"]).replace(_folder_of(series["metric"]), "").strip()
            axes.plot(at_s, [float(value) for _, value in series["values"]], linewidth=1.2, label=name)
    axes.set_title(panel.title, loc="left", fontsize=9, fontweight="bold")
    axes.set_ylabel(_UNITS[panel.unit], fontsize=7)
    axes.set_xlim(0, (end_ms - start_ms) / 1000)
    axes.set_ylim(bottom=0)
    axes.tick_params(labelsize=7)
    axes.grid(alpha=0.25)
    if axes.lines:
        axes.legend(fontsize=6, loc="upper left", ncols=2, frameon=False)
    else:
        axes.text(0.5, 0.5, "no data", transform=axes.transAxes, ha="center", color="gray")


def _folder_of(labels: dict[str, str]) -> str:
    """What the URI of a table has before its name."""
    return labels.get("lakelatch_table", "/").rpartition("/")[0] + "/"


def main() -> None:
    minutes = float(sys.argv[1]) if len(sys.argv) > 1 else 3
    with tempfile.TemporaryDirectory(prefix="lakelatch-dashboard-") as name:
        folder = Path(name)
        (folder / "redis").mkdir()
        lake = Lake(folder)
        with (
            closing(open_server("redis", folder / "redis", "local")) as redis,
            watched_writers(lake, redis) as prometheus,
        ):
            start_ms = REAL_SYSTEM.realtime_ms()
            make_trouble(lake, redis, start_ms + int(minutes * 60_000))
            figure = draw(list(panels()), prometheus, start_ms, REAL_SYSTEM.realtime_ms())
            drawn = BytesIO()
            figure.savefig(drawn, dpi=_DPI)
            with Image.open(drawn) as image:
                image.save(DOCS / "images" / "dashboard.webp", quality=82, method=6)


if __name__ == "__main__":
    main()
