"""The checker sees what it is there for: each kind of damage, done by hand, is found, and nothing else is."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import round_damages as do
from made_round import go_on

from lakelatch.torture.check.checker import check_round

Copied = Callable[[], Path]
OF_ITS_LOSS = ("is lost", "no commit names it", "is in no slot", "has no file", "and it is gone", "hudi-rs")
OF_LOST_ROWS = (
    *("is missing", "is empty", "hudi-rs", "is not what its logs say", "not the two rows", "rows of transfer"),
    *("out of nothing", "never was", "wrote version", "the live files say", "is live, and is gone"),
)
OF_NEW_CONTENT = ("something else than slot", "has changed since")

# What is done, what the checker has to say of it, and what follows from it.
DAMAGE: list[tuple[do.Damage, str, tuple[str, ...]]] = [
    (lambda folder: do.slots(folder)[-2].unlink(), "above 1 are gone", ("is in no slot",)),
    (lambda folder: do.slots(folder)[0].unlink(), "above 1 are gone", ()),
    (do.edit_slot("complete", lambda slot, _: {"time": "20200101000000000"}), "has the time 2020", ()),
    (do.edit_slot("complete", lambda _, before: {"operation_id": before["operation_id"]}), "log 2 times", ()),
    (lambda folder: do.slots(folder)[-1].write_text("{"), "cannot be read", ("is in no slot",)),
    (
        lambda folder: do.timeline(folder, "*_*.deltacommit").unlink(),
        "has no file",
        ("still pending", *OF_ITS_LOSS, *OF_LOST_ROWS, "takes too many"),
    ),
    (lambda folder: do.timeline(folder, "*.rollback.requested").unlink(), "has no file", ()),
    (do.rewrite("*_*.deltacommit", lambda _: None), "something else than slot", OF_NEW_CONTENT),
    (do.add_completed(do.LATE, do.LATER), "is in no slot", ()),
    (do.same_completion, "2 instants completed at", ("is in no slot",)),
    (do.add_completed(do.LATER, do.LATE), "completed before it began", ("is in no slot",)),
    (do.again_in_timeline("*_*.rollback", f"_{do.LATE}.rollback"), "ended 2 times", ("is in no slot",)),
    (do.again_in_timeline("*_*.commit", ".clean.requested"), "have the requested time", ("was begun as clean",)),
    (do.roll_back_a_commit, "and is committed as", ("and is pending", *OF_NEW_CONTENT)),
    (do.abort_a_commit, "aborts", ()),
    (do.leave("timeline/20990101000000000.deltacommit.requested"), "still pending: deltacommit", ()),
    (do.leave_a_plan, "still pending: compaction", ()),
    (lambda folder: do.last_log(folder).unlink(), "is missing", OF_LOST_ROWS),
    (lambda folder: do.last_log(folder).write_bytes(b""), "is empty", OF_LOST_ROWS),
    (do.tear, "is torn", OF_LOST_ROWS),
    (do.swap_logs, "holds a block of the instant", OF_LOST_ROWS),
    (lambda folder: do.data(folder, "bank/*.parquet").write_bytes(b"no"), "does not decode", OF_LOST_ROWS),
    (do.leave_an_orphan, "no commit names it", ()),
    (do.leave(".heartbeat/20990101000000000"), ".heartbeat/20990101000000000 was left behind", ()),
    (do.leave(".temp/20990101000000000/MARKERS0"), "MARKERS0 was left behind", ()),
    (do.leave(".lakelatch/open/20990101000000000"), "open/20990101000000000 was left behind", ()),
    (
        do.rewrite("*.compaction.requested", do.drop_a_log_of_a_plan),
        "leaves out logs",
        ("is not what its logs say", "the live files say", *OF_NEW_CONTENT),
    ),
    (
        do.rewrite("*.compaction.requested", do.exchange_the_base_of_a_plan),
        "was its base",
        ("is not what its logs say", "is missing", *OF_NEW_CONTENT),
    ),
    (do.edit_base(do.more_money), "is not what its logs say", ("the live files say", "hudi-rs reads something else")),
    (do.edit_base(do.twice), "holds a key twice", ("hudi-rs",)),
    (do.edit_round(problems=["a client did not finish"]), "a client did not finish", ()),
    (do.append_line("append-9.1", event="broken", what="a copy acted"), "append-9.1 found that a copy acted", ()),
    (do.append_line("snapshot-9.1", event="missing", path="a/b"), "did not find a/b", ()),
    (do.edit_last("transfer-1.1", "return", instant=do.LATE), "is lost", ()),
    (do.edit_last("transfer-1.1", "return", completion=do.LATE), f"completed at {do.LATE}", ()),
    (do.edit_last("compact-1.1", "return", kind="plan", work="p", instant=do.LATE), "there is no such plan", ()),
    (
        do.edit_last("transfer-1.1", "return", outcome="refused"),
        "is not committed, and it is",
        ("which was reported as failed",),
    ),
    (
        lambda folder: go_on(folder).append("append-1.2", "append-1.2.0001", 2),
        "was done 2 times",
        ("append-1.2.0001/0 is in the table 2 times", "hudi-rs"),
    ),
    (lambda folder: (folder / "history/append-1.2.jsonl").unlink(), "no client has begun the work append-1.2.0001", ()),
    (do.edit_last("append-1.2", "return", rows=3), "the answer to it says 3", ()),
    (
        do.write_once_more("append-1.2", "a", "append", ("a/0", 1, 0, "a", "journal"), ("b/0", 1, 0, "b", "journal")),
        "holds 1 rows of others",
        ("no client has begun the work b", "the answer to it says 2"),
    ),
    (
        do.write_once_more("append-1.2", "a", "append", ("a/0", 1, 0, "a", "journal"), ("a/2", 1, 0, "a", "journal")),
        "a/1 is not among them",
        (),
    ),
    (
        do.write_once_more("transfer-1.1", "t", "transfer", ("account-0", 3, -9, "t", "bank")),
        "is not the two rows of one transfer",
        (),
    ),
    (
        do.write_once_more(
            "transfer-1.1", "t", "transfer", ("account-0", 4, -19, "t", "bank"), ("account-1", 3, 16, "t", "bank")
        ),
        "wrote version 4 of account-0 after version 2",
        (),
    ),
    (
        do.write_once_more(
            "transfer-1.1", "t", "transfer", ("account-0", 3, -19, "t", "bank"), ("account-1", 3, 17, "t", "bank")
        ),
        "made 1 out of nothing; the sum after it is 1",
        (),
    ),
    (do.edit_last("snapshot-1.1", "snapshot", accounts={"account-0": [1, 5]}), "whose sum is 5", ("never was",)),
    (do.edit_last("snapshot-1.1", "snapshot", entries=4), "saw what the table never was, with 4 entries", ()),
    (
        do.edit_last("snapshot-1.1", "snapshot", accounts={}, entries=0),
        "as it was before it had seen it before",
        (),
    ),
    (do.see_what_was, "acknowledged before it looked", ()),
    (do.swap_seen, "appear after", ()),
    (do.edit_lines("tail-1.1", "seen", do.other_contents), "has changed since tail-1.1 saw it", ()),
    (do.edit_base(do.more_money), "hudi-rs reads something else", ("the live files say", "is not what its logs say")),
    (do.rewrite("*_*.commit", do.no_base_file), "made no base file", ("no commit names it", *OF_NEW_CONTENT)),
    (do.empty_the_log, "the commit log is empty", ()),
    (do.append_line("tail-1.1", event="seen", files=[f"{do.LATE}_{do.LATER}.commit"]), "and it is gone", ("appear",)),
    (do.edit_lines("tail-1.1", "seen", do.without_first), "tail-1.1 never saw", ()),
    (do.edit_lines("tail-1.1", "seen", lambda _: None), "tail-1.1 never saw", ()),
    (do.edit_last("append-1.1", "lease", token=1), "after transfer-1.1 had it with token 1", ()),
    (do.two_holders, "both held 'table' for", ()),
    (do.late_answers, "the first commit after the faults took 100.30 s, and 6.00 s are allowed", ()),
    (do.nobody_answers_after_the_faults, "no client could commit after the faults had ended", ()),
    (do.break_a_line, "the round cannot be checked", ()),
    (lambda folder: (folder / "round.json").unlink(), "the round cannot be checked", ()),
]


def test_the_checker_shares_no_code_with_what_it_checks() -> None:
    command = [sys.executable, "-c", "import sys, lakelatch.torture.check.checker\nprint(*sys.modules, sep='\\n')"]
    loaded = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout.split()
    own = {name for name in loaded if name.startswith("lakelatch.")}
    parts = ("lakelatch.torture.check", "lakelatch.torture.history")
    assert {name for name in own if not name.startswith(parts)} == {"lakelatch.errors", "lakelatch.torture"}
    assert not {"pyspark", "hudi"} & set(loaded)


def test_a_sound_round_has_no_problems(copied: Copied) -> None:
    folder = copied()
    verdict = check_round(folder)
    assert verdict.problems == [] and verdict.notes == []
    assert verdict.to_json() == json.loads((folder / "verdict.json").read_text())
    expected = {"committed": 9, "refused": 1, "unknown": 2, "unknown_committed": 1, "unknown_not_committed": 1}
    expected |= {"rollbacks": 1, "compactions": 2, "conflicts": 1, "snapshots": 3, "failed": 0, "overlaps": 0}
    assert {name: verdict.counts[name] for name in expected} == expected
    assert verdict.faults == {"paused": 1, "killed": 1} and verdict.failpoints == {"commit.after_slot=raise": 1}
    assert (verdict.hudi_rs, verdict.recovery_s, verdict.lease_s) == ("agreed", 0.3, 2.0)


@pytest.mark.parametrize(("damage", "problem", "follows"), DAMAGE, ids=[f"{n}-{d[1]}" for n, d in enumerate(DAMAGE)])
def test_damage_is_found(damage: do.Damage, problem: str, follows: tuple[str, ...], copied: Copied) -> None:
    folder = copied()
    damage(folder)
    found = check_round(folder).problems
    assert [one for one in found if problem in one], found
    assert [one for one in found if not any(part in one for part in (problem, *follows))] == []


def test_a_plan_may_wait_before_the_closing(copied: Copied) -> None:
    folder = copied()
    do.leave_a_plan(folder)
    do.edit_round(ended_ns=0)(folder)
    assert check_round(folder).problems == []


def test_what_a_server_forgot_is_noted_and_no_problem(copied: Copied) -> None:
    folder = copied()
    made = go_on(folder)
    began_ns = made.now_ns
    made.fault(9, "server_forgets", "server")
    made.now_ns = began_ns + 500_000_000  # all of this while it is at it
    made.tokens = 0
    made.lease("transfer-1.1")
    made.tokens = 10
    do.hold_together(made)
    verdict = check_round(folder)
    assert verdict.problems == [] and verdict.counts["overlaps"] == 1
    assert [note for note in verdict.notes if "1 tokens were not greater" in note], verdict.notes


def test_tokens_must_increase_again_after_a_server_forgot(copied: Copied) -> None:
    folder = copied()
    made = go_on(folder)
    made.fault(9, "server_forgets", "server")
    for _ in range(2):
        made.tokens = 0
        made.lease("transfer-1.1")
    assert [problem for problem in check_round(folder).problems if "with token 1, after" in problem]


def test_locks_that_lie_may_overlap(copied: Copied) -> None:
    folder = copied()
    do.two_holders(folder)
    do.edit_last("append-1.1", "lease", token=1)(folder)
    do.edit_round(provider="lying")(folder)
    verdict = check_round(folder)
    assert verdict.problems == [] and verdict.counts["overlaps"] == 1 and len(verdict.notes) == 2


def test_a_lease_that_was_no_longer_valid_excludes_nobody(copied: Copied) -> None:
    folder = copied()
    do.two_holders(folder)
    do.edit_last("append-7.1", "lease", valid=False)(folder)
    verdict = check_round(folder)
    assert verdict.problems == [] and verdict.counts["overlaps"] == 0


def test_hudi_rs_is_asked_if_it_is_there(copied: Copied, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "hudi", None)
    verdict = check_round(copied())
    assert verdict.hudi_rs.startswith("skipped: hudi is not installed") and verdict.problems == []


def test_many_problems_of_one_kind_are_cut_short(copied: Copied) -> None:
    folder = copied()
    for number in range(50):
        do.leave(f".heartbeat/{number:02d}")(folder)
    found = check_round(folder).problems
    assert len(found) == 21 and found[-1].startswith("and 30 more of this kind")
