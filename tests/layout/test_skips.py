"""That a skipped test fails the session where skips are forbidden, and only there."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

CONFTEST = Path(__file__).parents[1] / "conftest.py"
PASSING = "def test_passes():\n    assert True\n\n"
SKIPPED = "import pytest\n\ndef test_skips():\n    pytest.skip('no server here')\n\n"
RIGHTFUL = SKIPPED.replace("test_skips", "test_fits_not").replace(
    "no server here", "does not apply: this provider does not promise an order"
)
MODULE = "import pytest\n\npytest.skip('nothing of it', allow_module_level=True)\n"
EXPECTED_FAILURE = "import pytest\n\n@pytest.mark.xfail\ndef test_fails():\n    assert False\n\n"


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs pytest with this project's hooks on one small test file."""
    shutil.copy(CONFTEST, tmp_path / "conftest.py")
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -p no:cacheprovider\n")

    def start(text: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        (tmp_path / "test_small.py").write_text(text)
        inherited = {name: value for name, value in os.environ.items() if name != "LAKELATCH_FORBID_SKIPS"}
        return subprocess.run(
            [sys.executable, "-m", "pytest", *arguments],
            cwd=tmp_path,
            env=inherited | environment,
            capture_output=True,
            text=True,
            timeout=60,
        )

    return start


@pytest.mark.parametrize("skipped", [PASSING + SKIPPED, MODULE], ids=["test", "module"])
def test_a_forbidden_skip_fails_and_is_named(
    run: Callable[..., subprocess.CompletedProcess[str]], skipped: str
) -> None:
    done = run(skipped, "--forbid-skips")
    assert done.returncode != 0
    assert "skips are forbidden here" in done.stdout and "test_small.py" in done.stdout
    assert "no server here" in done.stdout or "nothing of it" in done.stdout
    assert " in " in done.stdout.strip().splitlines()[-1]  # pytest's own closing line stays last


def test_the_environment_forbids_skips_too(run: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    assert run(PASSING + SKIPPED, LAKELATCH_FORBID_SKIPS="1").returncode == 1
    assert run(PASSING + SKIPPED, LAKELATCH_FORBID_SKIPS="0").returncode == 0


def test_skips_are_allowed_unless_forbidden(run: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    done = run(PASSING + SKIPPED)
    assert done.returncode == 0 and "forbidden" not in done.stdout


def test_what_cannot_apply_or_fails_as_expected_is_no_skip(
    run: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    done = run(PASSING + RIGHTFUL + EXPECTED_FAILURE, "--forbid-skips")
    assert done.returncode == 0, done.stdout
    assert "1 passed, 1 skipped, 1 xfailed" in done.stdout


def test_a_test_cannot_excuse_itself(run: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    assert run(PASSING + SKIPPED.replace("no server", "does not apply: no server"), "--forbid-skips").returncode == 1


def test_every_rightful_skip_is_one_that_a_conformance_suite_makes(source_tree: Any) -> None:
    listed = re.findall(r'^    "(does not apply: .*)",$', CONFTEST.read_text(), re.MULTILINE)
    suites = "".join(source.text for source in source_tree.shipped if source.package == "testing")
    made = set(re.findall(r'SkipTest\("(.*)"\)', suites))
    assert made == set(listed) and len(listed) > 0
