"""That the lock provider which CONTRIBUTING.md shows is complete: it is the one that `tests/plugins` builds and uses.

There it passes the suite that the page tells it to pass, in a process and across processes.
"""

from __future__ import annotations

import re
import textwrap
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from lakelatch.locks.contract import TABLE_KEY
from lakelatch.testing.conformance.lock_provider import LockProviderConformance

ROOT = Path(__file__).parents[2]
PLUGIN = ROOT / "tests" / "plugins" / "sqlite_locks"
TEXT = (ROOT / "CONTRIBUTING.md").read_text()
BLOCKS = re.findall(r"^ +```(\w+)\n(.*?)^ +```$", TEXT, re.MULTILINE | re.DOTALL)


def shown(language: str) -> list[str]:
    return [textwrap.dedent(block) for found, block in BLOCKS if found == language]


def test_the_shown_provider_is_the_one_that_is_built_and_installed_in_the_tests() -> None:
    assert shown("python")[0] == (PLUGIN / "latch_on_sqlite" / "__init__.py").read_text()


def test_the_shown_entry_point_is_the_one_of_that_package() -> None:
    (entry_point,) = shown("toml")
    assert entry_point in (PLUGIN / "pyproject.toml").read_text()


def test_the_shown_test_file_defines_the_shown_test(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.syspath_prepend(str(PLUGIN))
    namespace: dict[str, Any] = {"__name__": "shown_test"}
    exec(compile(shown("python")[1], "CONTRIBUTING.md", "exec"), namespace)
    suite = namespace["TestSqlite"]
    assert issubclass(suite, LockProviderConformance) and suite.across_processes
    shown_test = suite()
    vars(suite)["_use_database"].__wrapped__(shown_test, tmp_path)
    with closing(shown_test.make_provider("memory://shown")) as provider:
        assert type(provider).__name__ == "SqliteLockProvider" and provider.acquire(TABLE_KEY, 0).release()
