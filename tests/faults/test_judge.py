"""The judge must see what it is there for: each kind of damage, done by hand, is found."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from fault_writer import add_file, open_manager, scenario, write
from judge import Judge

from lakelatch.timeline.metadata import CommitMetadata


def log(root: Path) -> list[Path]:
    return sorted((root / ".hoodie/.lakelatch/log").glob("*.json"))


def completed(root: Path, action: str = "deltacommit") -> Path:
    return sorted((root / ".hoodie/timeline").glob(f"*_*.{action}"))[-1]


def data(root: Path) -> Path:
    return sorted(path for path in root.glob("*.log") if path.stat().st_size)[-1]


def copy_operation(root: Path) -> None:
    first, second = (json.loads(path.read_bytes()) for path in log(root)[-2:])
    log(root)[-1].write_text(json.dumps({**second, "operation_id": first["operation_id"]}))


def turn_back_time(root: Path) -> None:
    slot = json.loads(log(root)[-1].read_bytes())
    log(root)[-1].write_text(json.dumps({**slot, "time": "20000101000000000"}))


def complete_twice(root: Path) -> None:
    old = completed(root)
    start, end, action = old.name.replace("_", ".").split(".")
    (old.parent / f"{start}_{int(end) + 1}.{action}").write_bytes(old.read_bytes())


def leave_pending(root: Path) -> None:
    open_manager(str(root)).begin()


def leave_a_file(root: Path) -> None:
    transaction = open_manager(str(root)).begin()
    add_file(transaction, "z")


def empty_a_file(root: Path) -> None:
    data(root).write_bytes(b"")


def resurrect_a_victim(root: Path) -> None:
    transaction = open_manager(str(root)).begin()
    instant = transaction.instant
    transaction.abort()
    (root / f".hoodie/timeline/{instant}.deltacommit.inflight").write_bytes(b"")


DAMAGE: list[tuple[Callable[[Path], None], str]] = [
    (lambda root: log(root)[-2].unlink(), "gaps"),
    (lambda root: log(root)[0].unlink(), "above the watermark are gone"),
    (copy_operation, "2 times"),
    (turn_back_time, "do not increase"),
    (lambda root: completed(root).unlink(), "has no file"),
    (complete_twice, "completed twice"),
    (lambda root: data(root).unlink(), "are missing"),
    (empty_a_file, "are missing"),
    (leave_a_file, "of no commit"),
    (leave_pending, "still pending"),
    (leave_pending, "left behind"),
    (resurrect_a_victim, "was rolled back and is pending"),
]


@pytest.mark.parametrize(("damage", "problem"), DAMAGE, ids=[problem for _, problem in DAMAGE])
def test_damage_is_found(damage: Callable[[Path], None], problem: str, tmp_path: Path) -> None:
    manager = open_manager(str(tmp_path), slots_kept=100)
    for _ in range(3):
        write(manager)
    assert Judge(tmp_path).judge() == []
    damage(tmp_path)
    assert [found for found in Judge(tmp_path).judge() if problem in found]


def test_lies_and_lost_updates_are_found(tmp_path: Path) -> None:
    manager = open_manager(str(tmp_path))
    transaction = manager.begin()
    stat = add_file(transaction, "a", json.dumps({"group": "a", "base": ["1"], "optimistic": True}).encode())
    done = transaction.commit(CommitMetadata((stat,), "UPSERT"))
    judge = Judge(tmp_path)
    judge.judge_told([{"instant": done.instant, "outcome": "committed", "completion": done.completion}])
    assert judge.problems == []
    judge.judge_told(
        [
            {"instant": done.instant, "outcome": "refused", "completion": ""},
            {"instant": "1", "outcome": "committed", "completion": "2"},
        ]
    )
    judge.judge_bases()
    assert len(judge.problems) == 3


def test_the_whole_scenario_is_sound(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scenario(str(tmp_path))
    assert Judge(tmp_path).judge() == []
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["outcome"] for line in told] == ["committed", "committed", "refused"] + ["committed"] * 4
