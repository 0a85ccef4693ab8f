"""Draws the pictures of docs/start.md and docs/walk.md from a run of what stands there: `python docs/site/pictures.py`.

It is for an environment with all extras. It needs the programs redis-server, prometheus and chromium, the ports 6379,
9091 and 9464, and the folder of the pages' tables, which must not be there yet. Names of writers, times and ids differ
from run to run.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from contextlib import ExitStack
from io import BytesIO, StringIO
from pathlib import Path
from typing import Any

from lake import DOCS, WIDTH, Lake, Session, without_pip
from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright
from rich.console import CONSOLE_SVG_FORMAT, Console
from rich.text import Text

IMAGES = DOCS / "images"
LAKE = Lake(Path("/tmp/lake"), environment={"FORCE_COLOR": "1"})  # colours, although no terminal looks on
_ENDS_S = 20
_QUALITY = 82
# A picture loads nothing from elsewhere, and a monospaced font is everywhere.
_SVG = re.sub(r"@font-face \{\{.*?\}\}\s*", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL).replace("Fira Code, ", "")
_PROMPT = "bold green"


def shown(session: Session, block: str) -> Text:
    """What a terminal shows of a session that runs a block."""
    text = Text()
    for statement, answer in session.run(block):
        for number, line in enumerate(statement):
            text.append("... " if number else ">>> ", _PROMPT).append(f"{line}\n")
        text.append(answer)
    return text


def run(command: str) -> Text:
    """A command, and what a terminal shows of it."""
    said = LAKE.run(command).stdout
    return Text.assemble(("$ ", _PROMPT), f"{command.strip()}\n", Text.from_ansi(said), "\n")


def draw(name: str, *texts: Text) -> None:
    """One picture of a terminal."""
    console = Console(record=True, width=WIDTH, file=StringIO(), force_terminal=True, color_system="truecolor")
    for text in texts:
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
    first, second, conflict, *_ = LAKE.blocks("start.md", "python")
    draw("start-first-table", shown(session, first), run("lakelatch timeline prices"))
    draw("start-second-writer", shown(session, second), run("lakelatch timeline prices"))
    with LAKE.started(["lakelatch", "ui", "prices", "--port", "0"], stdout=subprocess.PIPE) as served:
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
    walk = LAKE.walk()
    draw("walk-lock-moved", *map(run, without_pip(walk.moves)))
    session.run(walk.writes)
    draw("walk-refused", shown(session, walk.is_refused))
    draw("walk-doctor", *map(run, without_pip(walk.doctor)))
    LAKE.save(walk)
    with LAKE.started(["bash", "-c", "\n".join(without_pip(walk.alert))]) as shell:
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


def main() -> None:
    LAKE.folder.mkdir()
    with ExitStack() as ending:
        ending.callback(shutil.rmtree, LAKE.folder)
        redis = ["redis-server", "--port", "6379", "--save", ""]
        ending.enter_context(LAKE.started(redis, stdout=subprocess.DEVNULL))
        session = ending.enter_context(LAKE.session())
        playwright = ending.enter_context(sync_playwright())
        chromium = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        ending.callback(chromium.close)
        first_steps(session, chromium)
        five_more(session, chromium)


if __name__ == "__main__":
    main()
