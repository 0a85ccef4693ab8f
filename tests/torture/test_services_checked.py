"""What the checker must see of table services: a sound round with all of them, and one damage for each promise."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import round_damages as do
from made_round import go_on, make_round

from lakelatch.engine.options.table_services.archiving import ArchivingOptions
from lakelatch.engine.options.table_services.cleaning import CleaningOptions
from lakelatch.engine.services.cancelling import execute_cancel, request_cancel
from lakelatch.torture.check.archived import HISTORY
from lakelatch.torture.check.checker import check_round
from lakelatch.torture.check.evidence import Evidence
from lakelatch.torture.check.services import live_of
from lakelatch.torture.check.table_files import Commit, TableFiles

_RETAINED = 2


@pytest.fixture(scope="module")
def kept_round(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sound round whose table was clustered, with one plan cancelled before, cleaned and archived."""
    run = tmp_path_factory.mktemp("kept")
    folder = make_round(run)
    made = go_on(folder)
    seen = [json.loads(line) for line in (folder / "history/tail-1.1.jsonl").read_text().splitlines()]
    made.told = {name for line in seen for name in line.get("files", ())}
    table = made.built
    made.append("append-1.2", "append-1.2.0002", 3)
    called_off = table.plan_clustering("")
    assert called_off is not None
    asked = request_cancel(made.manager, called_off)
    assert asked is not None and asked.whole
    made.note("cancel-1.1", "cancelled", instant=called_off, groups=[])
    assert execute_cancel(made.manager, called_off)
    made.note("cancel-1.1", "aborted", instant=called_off)
    done = table.cluster("")
    assert done is not None
    made.note("serve-1.1", "served", service="clustering", outcome="done", instant=done.instant, text="")
    for number in range(3, 7):
        made.append("append-1.2", f"append-1.2.{number:04d}", 2)
    for result in table.clean(CleaningOptions(commits=_RETAINED)):
        assert result.files
        made.note("serve-1.1", "served", service="clean", outcome="done", instant=result.instant, text="")
    made.look("tail-1.1")
    ages = ArchivingOptions(min_commits=2, max_commits=3, minimum_age_s=0, orphan_age_s=0)
    assert table.archive(ages).instants
    made.snapshot("snapshot-1.1")
    do.edit_round(ended_ns=made.now_ns, commits_retained=_RETAINED)(folder)
    return folder


@pytest.fixture
def copied_kept(kept_round: Path, tmp_path: Path) -> Path:
    shutil.copytree(kept_round.parent.parent, tmp_path / "run")
    return tmp_path / "run/rounds" / kept_round.name


def table_of(folder: Path) -> TableFiles:
    return Evidence.of_round(folder).table


def clustered(folder: Path) -> Commit:
    (found,) = [commit for commit in table_of(folder).commits if commit.operation == "CLUSTER"]
    return found


def live_file(folder: Path) -> str:
    return sorted(path for path in live_of(table_of(folder)).needed() if path.endswith(".parquet"))[0]


def test_a_round_with_all_services_has_no_problems(copied_kept: Path) -> None:
    verdict = check_round(copied_kept)
    assert verdict.problems == [] and verdict.hudi_rs == "agreed"
    assert verdict.counts["clusterings"] == 1 and verdict.counts["cancellations"] == 1
    assert verdict.counts["cleaned_files"] >= 4 and verdict.counts["archived"] >= 4
    table = table_of(copied_kept)
    assert set(table.archived) - set(table.timeline)  # so what is archived was read there
    assert all(path not in table.files for path in table.cleaned) and table.kept


def remove_live(folder: Path) -> None:
    (folder / "table" / live_file(folder)).unlink()


def forget_history(folder: Path) -> None:
    shutil.rmtree(folder / "table" / HISTORY)


def remove_level_file(folder: Path) -> None:
    next((folder / "table" / HISTORY).glob("*.parquet")).unlink()


def break_level_file(folder: Path) -> None:
    next((folder / "table" / HISTORY).glob("*.parquet")).write_bytes(b"no")


def archive_twice(folder: Path) -> None:
    path = next((folder / "table" / HISTORY).glob("*.parquet"))
    rows = pq.read_table(path)
    pq.write_table(pa.concat_tables([rows, rows]), path)


def acknowledge_too_late(folder: Path) -> None:
    do.append_line("cancel-2.1", event="cancelled", instant=clustered(folder).instant, groups=[])(folder)


def acknowledge_a_part_too_late(folder: Path) -> None:
    commit = clustered(folder)
    partition, ids = sorted(commit.replaced.items())[0]
    groups = [[partition, ids[0]]]
    do.append_line("cancel-2.1", event="cancelled", instant=commit.instant, groups=groups)(folder)


def abort_what_completed(folder: Path) -> None:
    do.append_line("cancel-2.1", event="aborted", instant=clustered(folder).instant)(folder)


def leave_terminal_state(folder: Path) -> None:
    do.leave(f"timeline/{clustered(folder).instant}.clustering.aborted")(folder)


def serve(instant: str, outcome: str) -> do.Damage:
    return do.append_line("serve-2.1", event="served", service="clean", outcome=outcome, instant=instant, text="")


def give_up_what_completed(folder: Path) -> None:
    serve(clustered(folder).instant, "cancelled")(folder)


def call_off_in_the_log(folder: Path) -> None:
    instant = clustered(folder).instant
    do.edit_slot("cancel", lambda *_: {"target": instant})(folder)


def lose_a_row_of_a_clustering(folder: Path) -> None:
    commit = clustered(folder)
    path = next(path for path in commit.paths if path.startswith("journal/") and path.endswith(".parquet"))
    place = folder / "table" / path
    pq.write_table(pq.read_table(place, partitioning=None).slice(1), place, store_schema=False)


LOST = ("is live", "live files say", "hudi-rs", "is missing", "never was", "does not", "is not what", "in no slot")
OF_HISTORY = (
    *("is lost", "is gone", "has no file", "no commit names", "never saw", "entries", "not the two", "wrote version"),
    *(
        "out of nothing",
        "has begun the work",
        "out of",
        "was its base",
        "leaves out",
        "too many",
        "cannot be read",
        "whose",
    ),
    *(
        "acknowledged before",
        "is missing, and the manifest",
        "its plan does not",
        "no such plan",
        "still pending",
        "was done",
        *LOST,
    ),
)


@pytest.mark.parametrize(
    ("damage", "problem", "follows"),
    [
        (remove_live, "is live, and is gone", LOST),
        (forget_history, "and it is not: this commit is lost", OF_HISTORY),
        (remove_level_file, "is missing, and the manifest names it", OF_HISTORY),
        (break_level_file, "cannot be read", OF_HISTORY),
        (archive_twice, "is in the history twice", ()),
        (acknowledge_too_late, ", and it completed", ()),
        (acknowledge_a_part_too_late, "alone, and it did not", ()),
        (abort_what_completed, "ended", ("and it is committed",)),
        (leave_terminal_state, "has ended as cancelled, and is committed", ()),
        (call_off_in_the_log, "has cancelled", ()),
        (serve(do.LATE, "done"), "as done, and it is lost", ()),
        (give_up_what_completed, "up, and it completed", ()),
        (lose_a_row_of_a_clustering, "is not what its slice says", LOST),
        (do.edit_round(commits_retained=6), "removed files that were live 6 commits before it", ()),
        (lambda folder: shutil.rmtree(folder / "kept"), "is not what its", (*OF_HISTORY, "asked", "rows of")),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_damage_to_services_is_found(
    damage: Callable[[Path], object], problem: str, follows: tuple[str, ...], copied_kept: Path
) -> None:
    damage(copied_kept)
    found = check_round(copied_kept).problems
    assert [one for one in found if problem in one], found
    assert [one for one in found if not any(part in one for part in (problem, *follows))] == []


def test_a_reader_that_was_too_slow_for_a_clean_may_miss_a_file(copied_kept: Path) -> None:
    cleaned = sorted(table_of(copied_kept).cleaned)[0]
    do.append_line("snapshot-9.1", event="started", role="snapshot", at_ns=1)(copied_kept)
    do.append_line("snapshot-9.1", event="missing", path=cleaned, at_ns=10**15)(copied_kept)
    assert check_round(copied_kept).problems == []
    do.append_line("snapshot-9.1", event="missing", path=cleaned, at_ns=10**15 + 1)(copied_kept)
    assert [one for one in check_round(copied_kept).problems if "did not find" in one]
