"""A page that is served in this process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from lakelatch.ui.actions import PageTable
from lakelatch.ui.server import PageSettings, serve

if TYPE_CHECKING:
    from playwright.sync_api import Page


@dataclass(frozen=True)
class Served:
    """A page: the URL that its user opens, and the same without the token."""

    url: str

    @property
    def base(self) -> str:
        return f"http://{urlsplit(self.url).netloc}"

    @property
    def port(self) -> int:
        return urlsplit(self.url).port or 0


@contextmanager
def serving(*paths: str, **settings: Any) -> Iterator[Served]:
    """Serves a page of these tables, which looks often."""
    urls: list[str] = []
    enders: list[Callable[[], None]] = []
    there = threading.Event()

    def started(url: str, end: Callable[[], None]) -> None:
        urls.append(url)
        enders.append(end)
        there.set()

    chosen = PageSettings([PageTable(path) for path in paths], **{"every_s": 0.05, **settings})
    thread = threading.Thread(target=serve, args=(chosen, started))
    thread.start()
    try:
        assert there.wait(30)
        yield Served(urls[0])
    finally:
        for end in enders:
            end()
        thread.join(30)
    assert not thread.is_alive()


def wait_until(page: Page, expression: str) -> None:
    """Waits until an expression is true in the page; Playwright's own way is against the page's security policy."""
    for _ in range(200):
        if page.evaluate(expression):
            return
        page.wait_for_timeout(50)
    raise AssertionError(f"never true: {expression}")
