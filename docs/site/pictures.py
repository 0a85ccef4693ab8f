"""Draws the pictures of docs/start.md and docs/walk.md from a run of what stands there: `python docs/site/pictures.py`.

It is for an environment with all extras. It needs the programs redis-server, prometheus and chromium, the ports 6379,
9091 and 9464, and the folder of the pages' tables, which must not be there yet. Names of writers, times and ids differ
from run to run.
"""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from io import BytesIO, StringIO
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright
from rich.console import CONSOLE_SVG_FORMAT, Console
from rich.text import Text

DOCS = Path(__file__).parents[1]
IMAGES = DOCS / "images"
LAKE = Path("/tmp/lake")
WIDTH = 100
_ENDS_S = 20
_QUALITY = 82
# A picture loads nothing from elsewhere, and a monospaced font is everywhere.
_SVG = re.sub(r"@font-face \{\{.*?\}\}\s*", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL).replace("Fira Code, ", "")
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_PROMPT = "bold green"

#: Runs what it reads, a line of JSON for each statement, and answers with what a session shows of it.
_SESSION = """
import contextlib, io, json, sys
names = {"__name__": "__main__"}
for line in sys.stdin:
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        try:
            exec(compile(json.loads(line), "session", "single"), names)
        except Exception as error:
            print(f"{type(error).__module__}.{type(error).__name__}: {error}")
    print(json.dumps(said.getvalue()), flush=True)
"""


def blocks(page: str, *kinds: str) -> list[str]:
    """The blocks of a page that are of these kinds."""
    return [text for kind, text in _BLOCK.findall((DOCS / page).read_text()) if kind in kinds]


def environment() -> dict[str, str]:
    """This environment's own programs first, as after `activate`; colours, although no terminal looks on."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "FORCE_COLOR": "1", "COLUMNS": str(WIDTH), "LC_ALL": "C.UTF-8"}


@contextmanager
def started(command: Sequence[str], **more: Any) -> Iterator[subprocess.Popen[str]]:
    """A process, which is ended with all that it has started."""
    with subprocess.Popen(command, cwd=LAKE, env=environment(), text=True, start_new_session=True, **more) as process:
        try:
            yield process
        finally:
            os.killpg(process.pid, signal.SIGTERM)


class Session:
    """A Python session, and what a terminal shows of it."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def run(self, block: str) -> Text:
        lines, shown = block.splitlines(), Text()
        for node in ast.parse(block).body:
            statement = lines[node.lineno - 1 : node.end_lineno]
            for number, line in enumerate(statement):
                shown.append("... " if number else ">>> ", _PROMPT).append(f"{line}\n")
            shown.append(self._answer("\n".join(statement) + "\n"))
        return shown

    def _answer(self, statement: str) -> str:
        assert self._process.stdin is not None and self._process.stdout is not None
        print(json.dumps(statement), file=self._process.stdin, flush=True)
        return str(json.loads(self._process.stdout.readline()))


def run(command: str) -> Text:
    """A command, and what a terminal shows of it."""
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=LAKE,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    return Text.assemble(("$ ", _PROMPT), f"{command.strip()}\n", Text.from_ansi(done.stdout), "\n")


def draw(name: str, *shown: Text) -> None:
    """One picture of a terminal."""
    console = Console(record=True, width=WIDTH, file=StringIO(), force_terminal=True, color_system="truecolor")
    for text in shown:
        text.rstrip()
        console.print(text, overflow="fold")
    (IMAGES / f"{name}.svg").write_text(console.export_svg(title="lake", code_format=_SVG, unique_id=name))


def photograph(name: str, page: Page) -> None:
    """One picture of a page in a browser."""
    with Image.open(BytesIO(page.screenshot())) as image:
        image.save(IMAGES / f"{name}.webp", quality=_QUALITY, method=6)


def opened(browser: Browser, url: str, height: int, theme: Any = "light") -> Page:
    page = browser.new_context(viewport={"width": 1100, "height": height}, color_scheme=theme).new_page()
    page.goto(url)
    return page


def first_steps(session: Session, browser: Browser) -> None:
    """docs/start.md, up to the conflict that is seen."""
    first, second, conflict, *_ = blocks("start.md", "python")
    draw("start-first-table", session.run(first), run("lakelatch timeline prices"))
    draw("start-second-writer", session.run(second), run("lakelatch timeline prices"))
    with started(["lakelatch", "ui", "prices", "--port", "0"], stdout=subprocess.PIPE) as served:
        assert served.stdout is not None
        url = served.stdout.readline().split()[1]
        pages = {theme: opened(browser, url, 760, theme) for theme in ("light", "dark")}
        for page in pages.values():
            page.locator("#connection.live").wait_for()
        session.run(conflict)
        for theme, page in pages.items():
            page.locator("#losses:has-text('lost to')").wait_for()
            page.evaluate("lakelatch.chart.zoom(0.35)")
            page.wait_for_timeout(500)
            photograph(f"start-conflict-{theme}", page)


def five_more(session: Session, browser: Browser) -> None:
    """docs/walk.md."""
    row, refused, *files = blocks("walk.md", "python", "yaml")
    _, moved, doctor, alert = blocks("walk.md", "sh")
    draw("walk-lock-moved", *map(run, _without_pip(moved)))
    session.run(row)
    draw("walk-refused", session.run(refused))
    draw("walk-doctor", *map(run, _without_pip(doctor)))
    for text in files:
        (LAKE / re.split(r"[:\s]", text.removeprefix("# "), maxsplit=1)[0]).write_text(text)
    shutil.copy(DOCS / "grafana" / "alerts.yml", LAKE)
    with started(["bash", "-c", "\n".join(_without_pip(alert))]) as shell:
        shell.wait()
        page = opened(browser, "http://localhost:9091/classic/alerts", 760)
        firing = page.locator("tr.danger, tr.alert-danger", has_text="LakelatchWritersDie")
        for _ in range(_ENDS_S):
            if firing.count():
                break
            page.wait_for_timeout(1000)
            page.reload()
        firing.first.click()
        page.wait_for_timeout(1000)
        photograph("walk-alert", page)


def _without_pip(block: str) -> list[str]:
    return [line for line in block.splitlines() if not line.startswith("pip ")]


def main() -> None:
    LAKE.mkdir()
    with ExitStack() as ending:
        ending.callback(shutil.rmtree, LAKE)
        ending.enter_context(started(["redis-server", "--port", "6379", "--save", ""], stdout=subprocess.DEVNULL))
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        session = Session(ending.enter_context(started([sys.executable, "-c", _SESSION], **pipes)))
        playwright = ending.enter_context(sync_playwright())
        chromium = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        ending.callback(chromium.close)
        first_steps(session, chromium)
        five_more(session, chromium)


if __name__ == "__main__":
    main()
