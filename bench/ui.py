"""`lakelatch ui`: what it costs a writer while somebody looks, and how fast 10,000 active instants open and move.

The page is a process of its own. A writer commits in blocks, in turns with a stream of the page that somebody holds
open and without; the page polls only while somebody looks. The browser is Debian's Chromium, without a screen.
"""

from __future__ import annotations

import http.client
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from bench.harness import Result, time_ms

from lakelatch.locks.contract import LockScope
from lakelatch.locks.filesystem.provider import FilesystemLockProvider
from lakelatch.storage.local import LocalStorage
from lakelatch.system import REAL_SYSTEM
from lakelatch.timegen.hybrid import HybridTimeGenerator
from lakelatch.timegen.instant_time import to_instant
from lakelatch.timeline.actions import DELTA_COMMIT
from lakelatch.timeline.instant import completed, inflight, requested
from lakelatch.timeline.metadata import WRITER_KEY, CommitMetadata, WriteStat
from lakelatch.timeline.properties_file import PROPERTIES_PATH
from lakelatch.timeline.table_config import TableConfig
from lakelatch.transactions.manager import TransactionManager

_INSTANTS = int(os.environ.get("LAKELATCH_BENCH_INSTANTS", "10000"))
_BLOCKS, _COMMITS = 12, 40
_PANS = 120
_GOAL_RATIO, _GOAL_OPEN_S, _GOAL_MEMORY_MIB, _GOAL_FRAME_MS = 1.01, 1.0, 200, 20.0


_TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")


def run() -> list[Result]:
    with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix="bench-") as folder:
        many, busy = LocalStorage(f"{folder}/many"), LocalStorage(f"{folder}/busy")
        for storage in (many, busy):
            storage.put_if_absent(PROPERTIES_PATH, TableConfig("t", ("id",), bucket_count=1).to_properties())
        _make_instants(Path(many.root))
        with _page(busy) as (url, process):
            found = [_writer(busy, url, process.pid)]
        with _page(many) as (url, process):
            return [*found, *_browser(url, process)]


def _make_instants(root: Path) -> None:
    """A timeline of four writers, of which each commits every 8 s."""
    folder = root / ".hoodie/timeline"
    folder.mkdir(parents=True)
    start_ms = REAL_SYSTEM.realtime_ms() - _INSTANTS * 2000
    for number in range(_INSTANTS):
        time = to_instant(start_ms + number * 2000)
        done = completed(time, DELTA_COMMIT, to_instant(start_ms + number * 2000 + 1500))
        stat = WriteStat("", f"{number % 16:08d}-0000-0000-0000-000000000000-0", f"{number}.log", num_writes=number)
        content = CommitMetadata((stat,), "UPSERT", {WRITER_KEY: f"writer {number % 4}"}).to_avro()
        for name, data in ((requested(time, DELTA_COMMIT), b""), (inflight(time, DELTA_COMMIT), b""), (done, content)):
            (folder / name.file_name).write_bytes(data)


@contextmanager
def _page(storage: LocalStorage) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    command = [sys.executable, "-m", "lakelatch", "ui", storage.root, "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().split()[1], process
        finally:
            process.terminate()


@contextmanager
def _looking(url: str) -> Iterator[None]:
    """Somebody holds a stream open, and reads what comes."""
    place = urlsplit(url)
    connection = http.client.HTTPConnection(place.netloc, timeout=60)
    connection.request("GET", f"/?{place.query}")
    answer = connection.getresponse()
    answer.read()
    cookie = (answer.getheader("Set-Cookie") or "").partition(";")[0]
    connection.request("GET", "/api/events?table=0", headers={"Cookie": cookie})
    stream = connection.getresponse()

    def read() -> None:
        try:
            while stream.read1(65536):
                pass
        except (OSError, ValueError, http.client.HTTPException):
            return

    thread = threading.Thread(target=read)
    thread.start()
    try:
        yield
    finally:
        if connection.sock is not None:
            connection.sock.shutdown(2)
        thread.join()
        connection.close()


def _writer(storage: LocalStorage, url: str, page: int) -> Result:
    provider = FilesystemLockProvider(LockScope(storage.uri, {}))
    manager = TransactionManager(storage, provider, HybridTimeGenerator(provider))
    times: dict[bool, list[float]] = {True: [], False: []}
    used_s, looked_s = 0.0, 0.0
    for number in range(_BLOCKS * 2):
        looked_at = number % 4 in (1, 2)
        if looked_at:
            with _looking(url):
                REAL_SYSTEM.sleep(0.2)
                before_s = _used_s(page)
                times[looked_at].append(_block_ms(manager))
                used_s, looked_s = used_s + _used_s(page) - before_s, looked_s + times[looked_at][-1] / 1000
        else:
            REAL_SYSTEM.sleep(0.2)
            times[looked_at].append(_block_ms(manager))
    provider.close()
    pairs = zip(times[True], times[False], strict=True)
    ratio = statistics.median(with_it / without for with_it, without in pairs)
    with_ms, without_ms = (statistics.median(times[looked_at]) / _COMMITS for looked_at in (True, False))
    share = f"the page took {used_s / looked_s:.1%} of a core meanwhile"
    note = f"median of {_BLOCKS} pairs of blocks of {_COMMITS} commits; {share}"
    return Result(
        "ui_writer",
        round(with_ms, 2),
        "ms",
        None,
        round(without_ms, 2),
        round(ratio, 3),
        f"at most {_GOAL_RATIO:g} times a commit at which nobody looks",
        ratio <= _GOAL_RATIO,
        note,
    )


def _used_s(process: int) -> float:
    """The processor time of a process so far."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_A_SECOND


def _block_ms(manager: TransactionManager) -> float:
    def block() -> None:
        for _ in range(_COMMITS):
            transaction = manager.begin()
            name = f"a_{transaction.instant}.log"
            transaction.markers.create_data_file("", name, b"rows")
            transaction.commit(CommitMetadata((WriteStat("", "a", name, num_writes=10),), "UPSERT"))

    return time_ms(block)


def _browser(url: str, process: subprocess.Popen[str]) -> list[Result]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_context(viewport={"width": 1600, "height": 1000}).new_page()
        started_ns = REAL_SYSTEM.monotonic_ns()
        page.goto(url)
        _wait_until(page, f"window.lakelatch?.store.entries.size >= {_INSTANTS} && lakelatch.chart.drawn.length > 0")
        opened_s = (REAL_SYSTEM.monotonic_ns() - started_ns) / 1e9
        _wait_until(page, "lakelatch.store.shown.every((one) => one.writer)")
        read_s = (REAL_SYSTEM.monotonic_ns() - started_ns) / 1e9
        frames = {}
        for name, span in (("all in view", 1.06), ("a tenth in view", 0.1)):
            frames[name] = page.evaluate(_PAN, [span, _PANS])
        browser.close()
    memory = _memory_mib(process.pid)
    slow_ms = max(found["slow_ms"] for found in frames.values())
    draws = "; ".join(f"{name}: {found['draw_ms']:.1f} ms to draw" for name, found in frames.items())
    return [
        Result(
            "ui_open",
            round(opened_s, 2),
            "s",
            None,
            None,
            None,
            f"under {_GOAL_OPEN_S:g} s",
            opened_s < _GOAL_OPEN_S,
            f"{_INSTANTS:,} active instants drawn; what each wrote is there after {read_s:.1f} s",
        ),
        Result(
            "ui_frames",
            round(slow_ms, 1),
            "ms",
            None,
            None,
            None,
            f"19 of 20 frames within {_GOAL_FRAME_MS:g} ms",
            slow_ms <= _GOAL_FRAME_MS,
            f"{_PANS} frames of panning; {draws}",
        ),
        Result(
            "ui_memory",
            memory,
            "MiB",
            None,
            None,
            None,
            f"under {_GOAL_MEMORY_MIB} MiB",
            memory < _GOAL_MEMORY_MIB,
            "the most that the page's process held",
        ),
    ]


def _wait_until(page: Any, expression: str) -> None:
    while not page.evaluate(expression):
        page.wait_for_timeout(20)


#: Pans by some pixels before each frame; the time between frames that 19 of 20 keep, and the median time of drawing.
_PAN = """async ([span, count]) => {
  const { chart } = lakelatch;
  chart.fit();
  chart.span *= span;
  chart.frames.length = 0;
  const gaps = [];
  let last = null;
  for (let number = 0; number < count; number += 1) {
    chart.pan(number % 2 ? 7 : -5);
    const now = await new Promise(requestAnimationFrame);
    if (last !== null) gaps.push(now - last);
    last = now;
  }
  const at = (values, share) => [...values].sort((a, b) => a - b)[Math.floor(values.length * share)];
  return { slow_ms: at(gaps, 0.95), draw_ms: at(chart.frames, 0.5) };
}"""


def _memory_mib(process: int) -> int:
    status: dict[str, Any] = dict(
        line.split(":", 1) for line in Path(f"/proc/{process}/status").read_text().splitlines() if ":" in line
    )
    return int(str(status["VmHWM"]).split()[0]) // 1024
