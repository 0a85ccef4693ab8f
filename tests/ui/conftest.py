"""A table for a page, and a browser that looks at it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from bare_table import bare_table

from lakelatch.storage.local import LocalStorage

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    """That of a table without rows."""
    made = LocalStorage(str(tmp_path / "trips"))
    bare_table(made, buckets=3)
    return made


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Debian's Chromium, for which one name leads to this machine that is not its own."""
    from playwright.sync_api import sync_playwright

    found = shutil.which("chromium")
    if found is None:
        pytest.skip("there is no browser: apt-get install chromium (.ci/install-servers does it)")
    arguments = ["--no-sandbox", "--host-resolver-rules=MAP foreign.test 127.0.0.1"]
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=found, args=arguments)
        yield launched
        launched.close()
