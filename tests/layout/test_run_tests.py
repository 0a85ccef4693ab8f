"""That a test which fails by chance runs once more, and that nothing else gets away with it."""

from __future__ import annotations

import os
import runpy
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PASSES = "def test_passes():\n    assert True\n\n"
FAILS = "def test_fails():\n    assert False, 'always'\n\n"
FLAKY = """
from pathlib import Path

def test_fails_once():
    seen = Path(__file__).with_name("seen")
    if not seen.exists():
        seen.touch()
        assert False, 'the first time'

"""
SKIPS = "import pytest\n\ndef test_skips():\n    pytest.skip('no server here')\n\n"
PLACED = """
import tempfile

def test_place(tmp_path):
    with open("place", "w") as file, tempfile.TemporaryDirectory() as folder:
        print(tmp_path, folder, file=file)

"""
NOTES_ITS_WORKER = """
import os
from pathlib import Path

def test_worker():
    with Path(__file__).with_name("workers").open("a") as file:
        file.write(os.environ["PYTEST_XDIST_WORKER"] + " ")

"""
INTERRUPTED = "def test_interrupts():\n    raise KeyboardInterrupt\n\n"

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Runs one small test file as the gate does, with `flaky` as the list of those that failed by chance."""
    shutil.copy(ROOT / "tests" / "conftest.py", tmp_path / "conftest.py")
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -p no:cacheprovider\n")

    def start(
        text: str, flaky: str = str(tmp_path / "flaky"), workers: int = 0, folders: str = ""
    ) -> subprocess.CompletedProcess[str]:
        (tmp_path / "test_small.py").write_text(text)
        pytest_script = Path(sys.executable).with_name("pytest")
        command = [
            sys.executable,
            str(ROOT / ".ci" / "run-tests"),
            str(pytest_script),
            "-n",
            str(workers),
            "--",
            "test_small.py",
        ]
        inherited = {name: value for name, value in os.environ.items() if name != "TMPDIR"}  # which the gate sets
        environment = {**inherited, "LAKELATCH_FLAKY": flaky, "LAKELATCH_FORBID_SKIPS": "1", "TEST_FOLDERS": folders}
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=500)

    return start


def test_one_that_passes_alone_is_listed_and_one_that_fails_again_fails_the_run(run: Run, tmp_path: Path) -> None:
    done = run(PASSES + FAILS + FLAKY, workers=2)
    assert done.returncode == 1 and done.stdout.count("Once more, alone: ") == 2
    flaky = (tmp_path / "flaky").read_text()
    assert flaky.startswith("FLAKY test_small.py::test_fails_once\n") and "the first time" in flaky
    assert "test_fails\n" not in flaky
    (tmp_path / "seen").unlink()
    assert run(PASSES + FLAKY).returncode == 0
    (tmp_path / "seen").unlink()
    unasked = run(FLAKY, flaky="")
    assert unasked.returncode == 1 and "Once more" not in unasked.stdout


def test_folders_of_tests_lie_in_memory_if_there_is_enough_and_are_removed(run: Run, tmp_path: Path) -> None:
    def placed(folders: str = "") -> list[str]:
        assert run(PLACED, folders=folders).returncode == 0
        return (tmp_path / "place").read_text().split()

    assert not any(place.startswith("/dev/shm/") for place in placed("disk"))
    found = placed()
    assert not any(Path(place).exists() for place in found if place.startswith("/dev/shm/"))
    if runpy.run_path(str(ROOT / ".ci" / "run-tests"))["memory_is_there"]():
        assert len(found) == 2 and all(place.startswith("/dev/shm/lakelatch-") for place in found)


def test_a_skip_fails_the_run_also_where_a_flaky_test_passes_again(run: Run) -> None:
    assert run(SKIPS + FLAKY).returncode == 1


@pytest.mark.parametrize("text", [SKIPS, INTERRUPTED + FLAKY], ids=["skip", "end"])
def test_what_is_no_accident_fails_the_run(run: Run, text: str, tmp_path: Path) -> None:
    assert run(text).returncode != 0
    assert not (tmp_path / "flaky").exists()


def test_many_failures_are_no_accident(run: Run, tmp_path: Path) -> None:
    many = (
        "import pytest\n" + FLAKY + "\n@pytest.mark.parametrize('n', range(12))\ndef test_all(n):\n    assert n < 0\n"
    )
    done = run(many)
    assert done.returncode == 1 and "Once more" not in done.stdout


def test_what_goes_together_runs_in_one_process_and_tests_of_spark_in_others(tmp_path: Path) -> None:
    """So few that both processes get what they run before they begin."""
    for name in ("layout/test_a", "layout/test_b", "spark/test_a", "spark/test_b", "storage/test_a"):
        (tmp_path / f"tests/{name}.py").parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / f"tests/{name}.py").write_text(NOTES_ITS_WORKER)
    (tmp_path / "tests" / "support").mkdir()
    for name in ("conftest.py", "support/scheduling.py"):
        shutil.copy(ROOT / "tests" / name, tmp_path / "tests" / name)
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -p no:cacheprovider --import-mode=importlib\n")
    command = [str(Path(sys.executable).with_name("pytest")), "-n", "2", "--dist", "loadfile", "--no-loadscope-reorder"]
    assert subprocess.run(command, cwd=tmp_path, capture_output=True, timeout=500).returncode == 0
    workers = {path.parent.name: path.read_text().split() for path in tmp_path.rglob("workers")}
    assert workers == {"layout": ["gw1"] * 2, "spark": ["gw0"] * 2, "storage": ["gw1"]}


def test_each_file_that_is_to_run_first_is_there() -> None:
    first = runpy.run_path(str(ROOT / "tests" / "conftest.py"))["FIRST"]
    assert len(set(first)) == len(first) > 0
    assert [name for name in first if not (ROOT / "tests" / name).exists()] == []
