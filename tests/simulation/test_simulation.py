from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from simulate import Total, many, of_tree, open_pool, simulate

SEEDS = int(os.environ.get("LAKELATCH_SIMULATION_SEEDS", "100"))
SCRIPT = Path(__file__).with_name("simulate.py")


@pytest.mark.parametrize("seed", range(3, 9))
def test_a_seed_replays_to_the_byte_in_any_process(seed: int) -> None:
    here = simulate(seed, keep_lines=True)
    command = [sys.executable, str(SCRIPT), "--seed", str(seed), "--lines"]
    environment = {**os.environ, "PYTHONHASHSEED": str(seed)}  # another order of sets than here
    there = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)
    assert there.returncode == 0, there.stdout + there.stderr
    assert there.stdout.startswith("\n".join(here.lines) + "\n{") and len(here.lines) > 100
    assert f'"fingerprint": "{here.fingerprint}"' in there.stdout
    assert simulate(seed).fingerprint == here.fingerprint, "the record that is kept of it changes the run"
    assert simulate(seed + 1).fingerprint != here.fingerprint


@pytest.mark.parametrize("seed", [8934, 9774, 307961])
def test_a_seed_that_was_wrong_is_right(seed: int) -> None:
    assert not simulate(seed).problems


def test_another_source_draws_other_seeds_and_the_same_one_the_same(tmp_path: Path) -> None:
    (tmp_path / "locks").mkdir()
    (tmp_path / "locks" / "lease.py").write_text("held = True\n")
    before = of_tree(500, tmp_path)
    for folder in (".venv", "build"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "other.py").write_text("pass\n")
    assert of_tree(500, tmp_path) == before and before[1] - before[0] == 500
    (tmp_path / "locks" / "lease.py").write_text("held = False\n")
    assert of_tree(500, tmp_path) != before


def test_a_range_says_how_to_repeat_it_and_each_seed_that_is_wrong() -> None:
    mistake = ("--planted", "what is taken back counts until that has begun")
    command = [sys.executable, str(SCRIPT), "--seeds", "8934:8935", "--processes", "1", *mistake]
    run = subprocess.run(command, capture_output=True, text=True, timeout=120)
    first, problem, again, *counts, problem_at_the_end, again_at_the_end, total = run.stdout.splitlines()
    assert run.returncode == 1 and problem.startswith("seed 8934: ")
    script = "python tests/simulation/simulate.py"
    assert first.endswith(f"{script} --seeds 8934:8935 --planted '{mistake[1]}'")
    assert again.endswith(f"{script} --seed 8934 --planted '{mistake[1]}' --lines")
    assert (problem_at_the_end, again_at_the_end) == (problem, again) and counts and total.endswith("1 wrong")


def without_problems(seeds: int, with_ledger: bool = False, with_loads: bool = False, several: bool = False) -> Total:
    total = Total()
    for seed in range(seeds):
        outcome = simulate(seed, with_ledger=with_ledger, with_loads=with_loads, several=several)
        assert not outcome.problems, f"seed {seed}"
        total.add(outcome)
    return total


def test_no_faults_lose_what_copy_on_write_commits_hold() -> None:
    total = without_problems(60, with_ledger=True)
    for what in ("committed", "lost at its commit", "killed at a step"):
        assert total.counts[what] > 0


def test_no_faults_hide_rows_beside_bulk_loads() -> None:
    total = without_problems(25, with_loads=True)
    for what in ("loads with base files", "loads that became log files", "compaction done", "killed at a step"):
        assert total.counts[what] > 0


def test_no_faults_tear_a_transaction_over_several_tables() -> None:
    total = without_problems(8, several=True)
    for what in ("committed in several", "refused in several", "moments", "killed at a step", "cut off"):
        assert total.counts[what] > 0


@pytest.mark.parametrize("seed", [14, 35])
def test_a_seed_of_several_tables_that_was_wrong_is_right(seed: int) -> None:
    assert not simulate(seed, several=True).problems


def test_no_faults_break_a_promise() -> None:
    """A few; `make test` has had many more before it comes to this."""
    total, wrong = Total(), []
    with open_pool() as pool:
        for outcome in many(pool, 0, SEEDS):
            total.add(outcome)
            if outcome.problems:
                wrong.append(f"`python tests/simulation/simulate.py --seed {outcome.seed} --lines`: {outcome.problems}")
    assert not wrong
    things = ("committed", "refused", "lost early", "batch found", "killed at a step", "paused at a step", "late")
    of_groups = ("slots of several", "moved")
    taken_back = ("savepoint", "restore", "rollback of a commit")
    for what in (*things, *of_groups, *taken_back, "lost after", "cut off"):
        assert total.counts[what] > 0, f"{total.seeds} runs without anything {what}"
