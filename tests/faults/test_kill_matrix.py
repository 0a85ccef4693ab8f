"""A writer dies, fails or is stopped at every named step; whoever comes next must find, or make, a sound table."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from fault_writer import QUICK, open_manager, write
from soundness import find_problems_of

from lakelatch.failpoints import ENVIRONMENT_VARIABLE, NAMES
from lakelatch.locks.contract import TABLE_KEY
from lakelatch.system import REAL_SYSTEM
from lakelatch.torture.check.files import Folder
from lakelatch.torture.check.table_files import TableFiles

SCRIPT = Path(__file__).parent / "fault_writer.py"
REACHED_ONLY_WITH_SPARK = {
    "create.before_properties",
    "create.after_properties",
    "compact.after_base_file",
    "compact.before_commit",
    "cluster.before_commit",
    "cluster.after_given_up",
    "batch.after_register",
    "write.before_rows",
    "relocate.after_reopen",
    "relocate.after_file",
    "rebase.after_file",
}
OF_SERVICES = ("archive.", "cancel.", "clean.", "restore.", "savepoint.", "undo.")  # tests/services
POINTS = [name for name in NAMES if name not in REACHED_ONLY_WITH_SPARK and not name.startswith(OF_SERVICES)]
#: Of the second write, whose files its own process makes; the first one has announced and made three.
OF_OWN_FILES = ["mark.after", "data.after", "commit.before_slot", "commit.after_slot"]
_PLACES = {"mark.after": 5, "data.after": 4}

Story = list[dict[str, str]]


def start(root: Path, points: str) -> subprocess.Popen[str]:
    environment = {**os.environ, ENVIRONMENT_VARIABLE: points}
    command = [sys.executable, str(SCRIPT), "scenario", str(root)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def end(process: subprocess.Popen[str]) -> tuple[int, Story]:
    output, errors = process.communicate(timeout=600)
    assert "Traceback" not in errors, errors
    return process.returncode, [json.loads(line) for line in output.splitlines()]


def wait_until_dead() -> None:
    REAL_SYSTEM.sleep((QUICK.expiry_ms + 100) / 1000)


def recover(root: Path, story: Story, twice: bool = True) -> None:
    """Recovers and writes, twice; the table must be sound each time."""
    for _ in range(2 if twice else 1):
        wait_until_dead()
        manager = open_manager(str(root))
        manager.recover()
        write(manager)
        open_manager(str(root)).recover()
        assert find_problems_of(root, story) == []


def test_every_failpoint_is_somewhere_in_the_code() -> None:
    packages = ("transactions", "timeline", "heartbeat", "locks", "storage", "format", "services", "spark")
    root = Path(__file__).parents[2]
    code = "".join(path.read_text() for package in packages for path in (root / package).rglob("*.py"))
    assert [name for name in NAMES if f'"{name}"' not in code] == []
    assert set(NAMES) >= REACHED_ONLY_WITH_SPARK


@pytest.mark.parametrize("point", POINTS)
def test_a_writer_that_is_killed_leaves_a_table_that_recovers(point: str, tmp_path: Path) -> None:
    code, story = end(start(tmp_path, f"{point}=kill@1"))
    assert code == -signal.SIGKILL, f"{point} was never reached"
    recover(tmp_path, story)


@pytest.mark.parametrize("harm", ["kill", "stop"])
@pytest.mark.parametrize("point", OF_OWN_FILES)
def test_so_does_one_whose_own_process_makes_its_files(point: str, harm: str, tmp_path: Path) -> None:
    process = start(tmp_path, f"{point}={harm}@{_PLACES.get(point, 2)}")
    if harm == "stop":
        _, status = os.waitpid(process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        wait_until_dead()
        manager = open_manager(str(tmp_path))
        manager.context.provider.break_(TABLE_KEY)
        (stopped,) = {path.rpartition("/")[2] for path in os.listdir(tmp_path / ".hoodie/.heartbeat")}
        manager.recover()
        os.kill(process.pid, signal.SIGCONT)
    code, story = end(process)
    assert code == (-signal.SIGKILL if harm == "kill" else 0) and len(story) >= 1
    if harm == "stop":
        assert story[1]["instant"] == stopped
        assert story[1]["outcome"] == ("committed" if point == "commit.after_slot" else "refused")
    recover(tmp_path, story, twice=harm == "kill")


@pytest.mark.long
@pytest.mark.parametrize("point", POINTS)
def test_a_step_that_fails_leaves_a_table_that_recovers(point: str, tmp_path: Path) -> None:
    code, story = end(start(tmp_path, f"{point}=raise@1"))
    assert code == 0 and len(story) >= 5
    recover(tmp_path, story, twice=False)


@pytest.mark.parametrize("point", POINTS)
def test_a_writer_that_was_stopped_until_others_gave_it_up_does_no_harm(point: str, tmp_path: Path) -> None:
    process = start(tmp_path, f"{point}=stop@1")
    _, status = os.waitpid(process.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status), f"{point} was never reached"
    wait_until_dead()
    manager = open_manager(str(tmp_path))
    manager.context.provider.break_(TABLE_KEY)  # a stopped holder keeps its lock
    manager.recover()
    write(manager)
    os.kill(process.pid, signal.SIGCONT)
    code, story = end(process)
    assert code == 0 and len(story) >= 5
    outcome = story[0]["outcome"]
    if point in ("commit.after_slot", "commit.after_projection"):
        assert outcome == "committed"
    recover(tmp_path, story, twice=False)


def test_a_zombie_before_its_slot_is_refused_and_nothing_of_it_is_seen(tmp_path: Path) -> None:
    process = start(tmp_path, "commit.before_slot=stop@1")
    _, status = os.waitpid(process.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)
    (zombie,) = os.listdir(tmp_path / ".hoodie/.heartbeat")
    wait_until_dead()
    manager = open_manager(str(tmp_path))
    manager.context.provider.break_(TABLE_KEY)
    assert manager.recover() == [zombie]
    write(manager)
    os.kill(process.pid, signal.SIGCONT)
    _, story = end(process)
    assert story[0] == {"instant": zombie, "outcome": "refused", "completion": ""}
    recover(tmp_path, story)
    assert zombie not in TableFiles(Folder(tmp_path)).by_instant
    assert not [path for path in tmp_path.glob(f"*{zombie}*") if path.stat().st_size]
