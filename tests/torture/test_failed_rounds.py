"""Rounds in which something went wrong once, as they were recorded: the checker goes on finding it."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from lakelatch.torture.check.checker import check_round

FAILED = Path(__file__).with_name("failed")
FOUND = {
    # A failpoint raised after the commit's slot and outside of what turns errors there into CommitUnknown.
    "commit-told-as-failed": [
        "append-3.1.0023 got the answer that 20261121223937978 is not committed, and it is",
        "the work append-3.1.0023 was done 2 times, by 20261121223937978, 20261121223939268",
        "the entry append-3.1.0023/0 is in the table 2 times",
    ],
}


@pytest.mark.parametrize("name", sorted(FOUND))
def test_what_was_found_then_is_found_now(name: str, tmp_path: Path) -> None:
    with tarfile.open(FAILED / f"{name}.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    (recorded,) = tmp_path.iterdir()
    problems = check_round(recorded).problems
    assert len(problems) == len(FOUND[name])
    for problem, start in zip(problems, FOUND[name], strict=True):
        assert problem.startswith(start)


def test_every_recorded_round_is_looked_at() -> None:
    assert {path.name.partition(".")[0] for path in FAILED.iterdir()} == set(FOUND)
