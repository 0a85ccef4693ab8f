"""The checker sees what it is there for on tables of killed writers as well: each kind of damage is found."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from fault_writer import add_file, open_manager, scenario, write
from soundness import files_of, find_problems_of
from statement_checks import writes_saw_all_before

from lakelatch.timegen.instant_time import to_instant, to_ms
from lakelatch.timeline.metadata import CommitMetadata
from lakelatch.torture.check.table_files import TableFiles
from lakelatch.transactions.base.settings import NON_BLOCKING


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
    (old.parent / f"{start}_{to_instant(to_ms(end) + 1)}.{action}").write_bytes(old.read_bytes())


def leave_pending(root: Path) -> None:
    open_manager(str(root)).begin()


def leave_a_file(root: Path) -> None:
    transaction = open_manager(str(root)).begin()
    add_file(transaction, "z")


def empty_a_file(root: Path) -> None:
    data(root).write_bytes(b"")


def leave_content(root: Path) -> None:
    (root / ".hoodie/.lakelatch/content").mkdir(exist_ok=True)
    (root / ".hoodie/.lakelatch/content/00000000000000000001").write_bytes(b"x")


def remove_below_the_watermark(root: Path) -> None:
    """A slot that may go some day, but not before those that are older."""
    last = log(root)[-1]
    last.write_text(json.dumps({**json.loads(last.read_bytes()), "watermark": 3}))
    log(root)[1].unlink()


def turn_back_time_below_the_watermark(root: Path) -> None:
    turn = log(root)[1]
    turn.write_text(json.dumps({**json.loads(turn.read_bytes()), "time": "20000101000000000"}))
    last = log(root)[-1]
    last.write_text(json.dumps({**json.loads(last.read_bytes()), "watermark": 3}))


def resurrect_a_victim(root: Path) -> None:
    transaction = open_manager(str(root)).begin()
    instant = transaction.instant
    transaction.abort()
    (root / f".hoodie/timeline/{instant}.deltacommit.inflight").write_bytes(b"")


DAMAGE: list[tuple[Callable[[Path], None], str]] = [
    (lambda root: log(root)[-2].unlink(), "at or above 1 are gone"),
    (lambda root: log(root)[0].unlink(), "slots at or above 1 are gone"),
    (copy_operation, "in the commit log 2 times"),
    (turn_back_time, "has the time 20000101"),
    (lambda root: completed(root).unlink(), "has no file"),
    (complete_twice, "ended 2 times"),
    (lambda root: data(root).unlink(), "is missing"),
    (empty_a_file, "is empty"),
    (leave_content, "is of no slot"),
    (remove_below_the_watermark, "slots at or above 1 are gone: 2"),
    (turn_back_time_below_the_watermark, "has the time 20000101"),
    (leave_a_file, "no commit names it"),
    (leave_pending, "still pending"),
    (leave_pending, "was left behind"),
    (resurrect_a_victim, "and is pending"),
]


@pytest.mark.parametrize(("damage", "problem"), DAMAGE, ids=[problem for _, problem in DAMAGE])
def test_damage_is_found(damage: Callable[[Path], None], problem: str, tmp_path: Path) -> None:
    manager = open_manager(str(tmp_path), slots_kept=100)
    for _ in range(3):
        write(manager)
    assert find_problems_of(tmp_path, []) == []
    damage(tmp_path)
    assert [found for found in find_problems_of(tmp_path, []) if problem in found]


def test_lies_and_lost_updates_are_found(tmp_path: Path) -> None:
    manager = open_manager(str(tmp_path))
    transaction = manager.begin()
    stat = add_file(transaction, "a", json.dumps({"group": "a", "base": ["1"], "optimistic": True}).encode())
    done = transaction.commit(CommitMetadata((stat,), "UPSERT"))
    told = [{"instant": done.instant, "outcome": "committed", "completion": done.completion}]
    assert find_problems_of(tmp_path, told) == []
    told += [
        {"instant": done.instant, "outcome": "refused", "completion": ""},
        {"instant": "1", "outcome": "committed", "completion": "2"},
    ]
    problems = find_problems_of(tmp_path, told, stated=True)
    assert len(problems) == 3
    for said in ("and it is not: this commit is lost", "is not committed, and it is", "without having seen all"):
        assert [problem for problem in problems if said in problem]


@pytest.mark.parametrize("seen", [False, True])
@pytest.mark.parametrize("content", [b"", b"rows"])
def test_a_commit_that_only_bars_a_name_in_a_group_may_be_seen_or_not(
    tmp_path: Path, content: bytes, seen: bool
) -> None:
    """As where a file was given its name ahead, and the commit then wrote to other groups."""
    manager = open_manager(str(tmp_path))
    bars = manager.begin()
    of_other = json.dumps({"group": "b", "base": [], "optimistic": True}).encode()
    bars.commit(CommitMetadata((add_file(bars, "b", of_other),), "UPSERT"))
    (tmp_path / f"a_0_{bars.instant}.log").write_bytes(content)
    transaction = manager.begin()
    of_group = {"group": "a", "base": [bars.instant] * seen, "optimistic": True}
    stat = add_file(transaction, "a", json.dumps(of_group).encode())
    transaction.commit(CommitMetadata((stat,), "UPSERT"))
    said = [f"{transaction.instant} overwrote a without having seen all"] if seen and content else []
    assert list(writes_saw_all_before(TableFiles(files_of(tmp_path), every_slot=True))) == said


@pytest.mark.parametrize("completes", [False, True])
def test_an_empty_file_does_not_excuse_that_rows_were_read_before_they_were_committed(
    tmp_path: Path, completes: bool
) -> None:
    """As where the name of another attempt was taken, or the file of one that was rolled back."""
    other = open_manager(str(tmp_path), mode=NON_BLOCKING).begin()
    stat = add_file(other, "a", json.dumps({"group": "a", "base": [], "optimistic": False}).encode())
    (tmp_path / f"a_1_{other.instant}.log").touch()
    transaction = open_manager(str(tmp_path)).begin()
    content = json.dumps({"group": "a", "base": [other.instant], "optimistic": True}).encode()
    transaction.commit(CommitMetadata((add_file(transaction, "a", content),), "UPSERT"))
    if completes:
        other.commit(CommitMetadata((stat,), "UPSERT"))
    else:
        other.abort()
        (tmp_path / stat.path).write_bytes(b"")
    said = [f"{transaction.instant} overwrote a without having seen all"]
    assert list(writes_saw_all_before(TableFiles(files_of(tmp_path), every_slot=True))) == said


def test_the_whole_scenario_is_sound(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scenario(str(tmp_path))
    assert find_problems_of(tmp_path, []) == []
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["outcome"] for line in told] == ["committed"] * 3 + ["refused"] + ["committed"] * 6
