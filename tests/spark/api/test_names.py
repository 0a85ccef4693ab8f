"""What `import lakelatch` shows, without loading any of it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import lakelatch

PROJECT = Path(__file__).parents[3] / "pyproject.toml"


def test_every_name_that_is_shown_is_there() -> None:
    shown = dir(lakelatch)
    assert {"Table", "open", "read", "write", "__version__"} <= set(shown) and shown == sorted(shown)
    for name in shown:
        assert getattr(lakelatch, name) is not None, name
    with pytest.raises(AttributeError, match="no attribute 'merge'"):
        _ = lakelatch.merge


def test_the_version_is_that_of_the_package() -> None:
    assert f'version = "{lakelatch.__version__}"\n' in PROJECT.read_text()


def test_looking_loads_nothing() -> None:
    script = "import sys, lakelatch; dir(lakelatch); print([name for name in sys.modules if 'spark' in name])"
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ended.stdout == "[]\n"
