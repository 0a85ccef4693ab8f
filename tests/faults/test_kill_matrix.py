"""A writer dies, fails or is stopped at every named step; whoever comes next must find, or make, a sound table."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from fault_writer import PATIENT, open_manager, quick, write
from soundness import files_of, find_problems_of
from writers import Story, Writers

from lakelatch.failpoints import NAMES
from lakelatch.heartbeat.contract import HEARTBEAT_FOLDER, HeartbeatSettings
from lakelatch.locks.contract import TABLE_KEY
from lakelatch.storage import open_storage
from lakelatch.system import REAL_SYSTEM
from lakelatch.torture.check.table_files import TableFiles

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
OF_SERVICES = ("archive.", "cancel.", "clean.", "restore.", "savepoint.", "undo.")  # tests/engine/services
OF_GROUPS = ("group.",)  # which it takes several writers to reach: tests/transactions/test_group.py
OF_SEVERAL_TABLES = ("several.",)  # tests/engine/several
ELSEWHERE = (*OF_SERVICES, *OF_GROUPS, *OF_SEVERAL_TABLES)
POINTS = [name for name in NAMES if name not in REACHED_ONLY_WITH_SPARK and not name.startswith(ELSEWHERE)]
#: Of the second write, whose files its own process makes; the first one has announced and made three.
OF_OWN_FILES = ["mark.after", "data.after", "commit.before_slot", "commit.after_slot"]
_PLACES = {("scenario", "mark.after"): 5, ("scenario", "data.after"): 4, ("remembered", "mark.after"): 4}
#: The same of one that claims its time ahead, and is not on the timeline when it announces its first file.
OF_AHEAD = [("begin.after_claim", "kill"), *(("mark.after", harm) for harm in ("kill", "stop"))]

#: Of one who commits for another as well, and whether its slot is there then.
OF_LEADERS = {
    "group.after_record@1": False,
    "commit.after_lock@1": False,
    "commit.before_slot@1": False,
    "commit.after_slot@1": True,
    "commit.after_projection@1": True,
    "commit.after_projection@2": True,
}

#: What a store cannot make different takes too long on both.
ON_DISK = pytest.mark.parametrize("place", ["disk"], indirect=True)


@pytest.fixture(scope="module")
def writers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Writers]:
    with closing(Writers(tmp_path_factory.mktemp("writers"))) as made:
        yield made


def wait_until_dead(place: str, heartbeat: HeartbeatSettings | None = None) -> None:
    """An object store tells times in whole seconds, with the rest cut off, of a heartbeat as of the present."""
    REAL_SYSTEM.sleep(((heartbeat or quick(place)).expiry_ms + 100) / 1000 + (2 if "://" in place else 0))


def recover(place: str, story: Story, twice: bool = True) -> None:
    """Recovers and writes, twice; the table must be sound each time."""
    for _ in range(2 if twice else 1):
        wait_until_dead(place)
        manager = open_manager(place)
        manager.recover()
        write(manager)
        open_manager(place).recover()
        assert find_problems_of(place, story) == []


def heartbeats(place: str) -> list[str]:
    """The instants of which there are heartbeat files."""
    return [path.rpartition("/")[2] for path in open_storage(place).walk(HEARTBEAT_FOLDER)]


def test_every_failpoint_is_somewhere_in_the_code() -> None:
    packages = ("transactions", "timeline", "heartbeat", "locks", "storage", "format", "engine", "spark")
    root = Path(__file__).parents[2]
    code = "".join(path.read_text() for package in packages for path in (root / package).rglob("*.py"))
    assert [name for name in NAMES if f'"{name}"' not in code] == []
    assert set(NAMES) >= REACHED_ONLY_WITH_SPARK


@pytest.mark.parametrize("point", POINTS)
def test_a_writer_that_is_killed_leaves_a_table_that_recovers(point: str, place: str, writers: Writers) -> None:
    code, story = writers.start(place, f"{point}=kill@1").end()
    assert code == -signal.SIGKILL, f"{point} was never reached"
    recover(place, story, twice="://" not in place)


@ON_DISK
@pytest.mark.parametrize(
    ("story_of", "point", "harm"),
    [
        *(("scenario", point, harm) for point in OF_OWN_FILES for harm in ("kill", "stop")),
        *(("remembered", *one) for one in OF_AHEAD),
    ],
)
def test_so_does_one_whose_own_process_makes_its_files(
    story_of: str, point: str, harm: str, place: str, writers: Writers
) -> None:
    process = writers.start(place, f"{point}={harm}@{_PLACES.get((story_of, point), 2)}", story_of)
    if harm == "stop":
        assert process.stops()
        wait_until_dead(place)
        manager = open_manager(place)
        manager.context.provider.break_(TABLE_KEY)
        (stopped,) = heartbeats(place)
        manager.recover()
        process.go_on()
    code, story = process.end()
    assert code == (-signal.SIGKILL if harm == "kill" else 0) and len(story) >= 1
    if harm == "stop":
        assert story[1]["instant"] == stopped
        assert story[1]["outcome"] == ("committed" if point == "commit.after_slot" else "refused")
    recover(place, story, twice=harm == "kill")


@ON_DISK
@pytest.mark.long
@pytest.mark.parametrize("point", POINTS)
def test_a_step_that_fails_leaves_a_table_that_recovers(point: str, place: str, writers: Writers) -> None:
    code, story = writers.start(place, f"{point}=raise@1").end()
    assert code == 0 and len(story) >= 5
    recover(place, story, twice=False)


@ON_DISK
@pytest.mark.parametrize("point", POINTS)
def test_a_writer_that_was_stopped_until_others_gave_it_up_does_no_harm(
    point: str, place: str, writers: Writers
) -> None:
    process = writers.start(place, f"{point}=stop@1")
    assert process.stops(), f"{point} was never reached"
    wait_until_dead(place)
    manager = open_manager(place)
    manager.context.provider.break_(TABLE_KEY)  # a stopped holder keeps its lock
    manager.recover()
    write(manager)
    process.go_on()
    code, story = process.end()
    assert code == 0 and len(story) >= 5
    outcome = story[0]["outcome"]
    if point in ("commit.after_slot", "commit.after_projection"):
        assert outcome == "committed"
    recover(place, story, twice=False)


def test_a_zombie_before_its_slot_is_refused_and_nothing_of_it_is_seen(place: str, writers: Writers) -> None:
    process = writers.start(place, "commit.before_slot=stop@1")
    assert process.stops()
    (zombie,) = heartbeats(place)
    wait_until_dead(place)
    manager = open_manager(place)
    manager.context.provider.break_(TABLE_KEY)
    assert manager.recover() == [zombie]
    write(manager)
    process.go_on()
    _, story = process.end()
    assert story[0] == {"instant": zombie, "outcome": "refused", "completion": ""}
    recover(place, story)
    files = files_of(place)
    assert zombie not in TableFiles(files).by_instant
    assert not [path for path in files if zombie in path and ".hoodie/" not in path and files[path]]


@pytest.mark.parametrize("point", OF_LEADERS)
def test_one_who_is_killed_while_it_commits_for_another_costs_neither_its_commit(
    point: str, place: str, writers: Writers
) -> None:
    """Between its record and its slot, before the files of both are there, and between these files."""
    looks_later = not OF_LEADERS[point]  # or it would go by what it has seen beside its own record, and lead alone
    other = writers.start(place, f"{'close.after' if looks_later else 'group.after_record'}=stop@1", "member", "b")
    assert other.stops()
    name, _, visit = point.partition("@")
    code, told = writers.start(place, f"{name}=kill@{visit}", "member", "a").end()
    assert code == -signal.SIGKILL and told == []
    sizes = Counter(slot["number"] for slot in TableFiles(files_of(place)).slots)
    assert sorted(sizes.values()) == ([2] if OF_LEADERS[point] else [])
    other.go_on()
    code, story = other.end()
    assert code == 0 and [line["outcome"] for line in story] == ["committed"]
    wait_until_dead(place, PATIENT)
    recover(place, story, twice=False)
    committed = {commit.instant for commit in TableFiles(files_of(place)).commits}
    assert story[0]["instant"] in committed and len(committed) == 3  # with who recovered: records outlive their writers


@ON_DISK
@pytest.mark.parametrize("harm", ["kill", "stop"])
def test_of_one_who_has_withdrawn_its_record_others_commit_nothing(harm: str, place: str, writers: Writers) -> None:
    process = writers.start(place, f"group.after_withdrawal={harm}@1")
    if harm == "kill":
        code, story = process.end()
        assert code == -signal.SIGKILL
    else:
        assert process.stops()
    (instant,) = heartbeats(place) if harm == "stop" else ("",)
    leader = writers.start(place, "", "member", "b")
    code, told = leader.end()
    assert code == 0 and [line["outcome"] for line in told] == ["committed"]
    assert instant not in {commit.instant for commit in TableFiles(files_of(place)).commits}
    if harm == "stop":
        process.go_on()
        code, story = process.end()
        assert code == 0
    recover(place, [*story, *told], twice=False)
