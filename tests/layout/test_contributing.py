"""That the lock provider which CONTRIBUTING.md shows is complete: it passes the suite that it is told to pass."""

from __future__ import annotations

import re
import sys
import textwrap
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lakelatch.locks.contract import LockProvider, LockScope
from lakelatch.testing.lock_provider_conformance import LockProviderConformance

TEXT = (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text()
BLOCKS = [textwrap.dedent(block) for block in re.findall(r"^ +```python\n(.*?)^ +```$", TEXT, re.MULTILINE | re.DOTALL)]
MODULE = "my_package.dictionary"


@pytest.fixture(autouse=True, scope="module")
def shown() -> Iterator[Any]:
    """The module that the page shows, importable under the name that the page gives it."""
    module = types.ModuleType(MODULE)
    package = types.ModuleType("my_package")
    sys.modules.update({"my_package": package, MODULE: module})
    exec(compile(BLOCKS[0], "CONTRIBUTING.md", "exec"), module.__dict__)
    yield module
    del sys.modules["my_package"], sys.modules[MODULE]


class TestShownProvider(LockProviderConformance):
    across_processes = False

    def make_provider(self, table_uri: str) -> LockProvider:
        provider: LockProvider = sys.modules[MODULE].DictionaryLockProvider(LockScope(table_uri, {}))
        return provider


def test_the_shown_test_file_defines_the_shown_test(shown: Any) -> None:
    namespace: dict[str, Any] = {"__name__": "shown_test"}
    exec(compile(BLOCKS[1], "CONTRIBUTING.md", "exec"), namespace)
    suite = namespace["TestDictionary"]
    assert issubclass(suite, LockProviderConformance) and not suite.across_processes
    assert isinstance(suite().make_provider("memory://shown"), shown.DictionaryLockProvider)


def test_the_shown_entry_point_names_the_shown_class(shown: Any) -> None:
    assert f'dictionary = "{MODULE}:{shown.DictionaryLockProvider.__name__}"' in TEXT
    assert '[project.entry-points."lakelatch.lock_providers"]' in TEXT
