"""Which table services are due, by names alone, against timelines that are written down."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lakelatch.engine.options.archiving import ArchivingOptions
from lakelatch.engine.options.cleaning import CleaningOptions
from lakelatch.engine.options.inline import TRIGGERS, CompactionTrigger, InlineOptions
from lakelatch.engine.services.due import Standing
from lakelatch.errors import InvalidRequest
from lakelatch.storage import MemoryStorage
from lakelatch.system import REAL_SYSTEM
from lakelatch.timegen.instant_time import to_ms
from lakelatch.timeline.instant import TIMELINE_FOLDER, completed
from lakelatch.timeline.snapshot import Snapshot

HOUR_MS = 3_600_000


def time_of(minutes: float) -> str:
    """Minute by minute; plans are requested half a minute later."""
    whole, second = int(minutes), round(minutes % 1 * 60)
    return f"20261122{whole // 60:02d}{whole % 60:02d}{second:02d}000"


def standing(*names: str, now: float = 0) -> Standing:
    """Names as `deltacommit 3 4`, requested and completed, or `compaction 5.5` for a plan."""
    storage = MemoryStorage(REAL_SYSTEM.new_id())
    for name in names:
        action, start, *end = name.split()
        begin = time_of(float(start))
        files = [f"{begin}_{time_of(float(end[0]))}.{action}"] if end else [f"{begin}.{action}.requested"]
        for file in files:
            storage.put(f"{TIMELINE_FOLDER}/{file}", b"")
    snapshot = Snapshot.look(storage)
    return Standing.of(snapshot, to_ms(time_of(now)))


def deltas(first: int, last: int) -> list[str]:
    return [f"deltacommit {number} {number}" for number in range(first, last + 1)]


def test_a_compaction_is_due_after_so_many_delta_commits() -> None:
    trigger = CompactionTrigger(commits=5)
    assert not standing(*deltas(1, 4)).compaction_due(trigger)
    assert standing(*deltas(1, 5)).compaction_due(trigger)
    assert not standing(*deltas(1, 9), "commit 5 6").compaction_due(trigger), "four since the plan"
    assert standing(*deltas(1, 10), "commit 5 6").compaction_due(trigger)


def test_what_completes_after_a_plan_is_not_in_it() -> None:
    late = standing("deltacommit 1 8", "commit 5 6")
    assert late.compaction_due(CompactionTrigger(commits=1)) and not standing("commit 5 6").compaction_due(
        CompactionTrigger(commits=1)
    )


def test_while_a_plan_waits_none_is_made_unless_requests_are_counted() -> None:
    waits = standing(*deltas(1, 9), "compaction 4.5")
    assert not waits.compaction_due(CompactionTrigger("NUM_COMMITS", commits=5))
    assert waits.compaction_due(CompactionTrigger("NUM_COMMITS_AFTER_LAST_REQUEST", commits=5))
    assert not waits.compaction_due(CompactionTrigger("NUM_COMMITS_AFTER_LAST_REQUEST", commits=6))


def test_log_compactions_are_no_delta_commits() -> None:
    names = [*deltas(1, 4), "logcompaction 4.5", "deltacommit 4.5 5"]
    assert not standing(*names).compaction_due(CompactionTrigger(commits=5))
    assert not standing(*names, *deltas(5, 6)).log_compaction_due(3)
    assert standing(*names, *deltas(5, 7)).log_compaction_due(3)
    assert not standing(*deltas(1, 8), "logcompaction 5.5").log_compaction_due(3), "one waits"


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        ("NUM_COMMITS", [False, True, False, True]),
        ("NUM_COMMITS_AFTER_LAST_REQUEST", [False, True, False, True]),
        ("TIME_ELAPSED", [False, False, True, True]),
        ("NUM_AND_TIME", [False, False, False, True]),
        ("NUM_OR_TIME", [False, True, True, True]),
    ],
)
def test_each_trigger_of_hudi(strategy: str, expected: list[bool]) -> None:
    trigger = CompactionTrigger(strategy, commits=3, seconds=3600)
    found = [
        standing(*deltas(1, count), now=now).compaction_due(trigger)
        for count, now in ((2, 10), (3, 10), (2, 61), (3, 61))
    ]
    assert found == expected and strategy in TRIGGERS
    assert not standing(now=600).compaction_due(trigger), "nothing was written"


def test_a_clustering_is_due_after_so_many_writes() -> None:
    assert not standing(*deltas(1, 3)).clustering_due(4)
    assert standing(*deltas(1, 3), "replacecommit 4 4").clustering_due(4)
    clustered = [*deltas(1, 6), "clustering 4.5", "replacecommit 4.5 4.7"]
    assert not standing(*clustered).clustering_due(4)
    assert standing(*clustered, *deltas(7, 8)).clustering_due(4), "the write beside it is not in its plan"
    assert not standing(*deltas(1, 9), "clustering 4.5").clustering_due(4), "one waits"


def test_a_clean_is_due_when_something_became_old_that_no_clean_has_seen() -> None:
    ten = CleaningOptions(commits=10)
    assert not standing(*deltas(1, 50)).clean_due(ten), "log files add to the latest slices"
    compacted = [*deltas(1, 5), "commit 6 6"]
    assert not standing(*compacted, *deltas(7, 15)).clean_due(ten)
    assert standing(*compacted, *deltas(7, 16)).clean_due(ten)
    assert not standing(*compacted, *deltas(7, 16), "clean 16.5 17", *deltas(18, 18)).clean_due(ten), "it saw that"
    assert standing(*compacted, *deltas(7, 15), "clean 15.5 15.7", *deltas(16, 17)).clean_due(ten), "it came too early"
    assert standing(*compacted, *deltas(7, 15), "clean 15.5 17", "deltacommit 16 16").clean_due(ten), (
        "it was planned so"
    )
    assert standing("clean 5.5").clean_due(ten), "one waits"
    rarely = CleaningOptions(commits=10, trigger_commits=18)
    assert not standing(*compacted, *deltas(7, 17)).clean_due(rarely)
    assert standing(*compacted, *deltas(7, 18)).clean_due(rarely)


def test_a_clean_by_hours_and_by_versions() -> None:
    hours = CleaningOptions(policy="KEEP_LATEST_BY_HOURS", hours=2)
    names = [*deltas(1, 5), "commit 6 6"]
    assert not standing(*names, now=125).clean_due(hours) and standing(*names, now=126).clean_due(hours)
    assert not standing(*names, "clean 126 126", "deltacommit 127 127", now=130).clean_due(hours)
    versions = CleaningOptions(policy="KEEP_LATEST_FILE_VERSIONS", versions=2)
    assert not standing(*names, *deltas(7, 7)).clean_due(versions) and standing(*names, *deltas(7, 8)).clean_due(
        versions
    )


@pytest.mark.parametrize("undo", ["rollback", "restore"])
def test_tombstones_make_a_clean_due_when_they_are_a_day_old(undo: str) -> None:
    options = CleaningOptions(tombstone_hours=1)
    names = [*deltas(1, 3), f"{undo} 4 4"]
    assert not standing(*names, now=63).clean_due(options) and standing(*names, now=64).clean_due(options)
    assert not standing(*names, "clean 64.5 65", *deltas(66, 66), now=70).clean_due(options)


def test_an_archiving_is_due_by_number() -> None:
    assert not standing(*deltas(1, 30)).archive_due(30)
    assert not standing(*deltas(1, 30), "clean 31 31").archive_due(30)
    assert standing(*deltas(1, 31)).archive_due(30)


def test_a_writer_tries_to_archive_once_enough_is_old() -> None:
    options = ArchivingOptions(min_commits=20, max_commits=30, minimum_age_s=1800)
    assert not standing(*deltas(1, 30), now=100).archive_promises(options)
    assert standing(*deltas(1, 31), now=100).archive_promises(options)
    assert not standing(*deltas(1, 40), now=39.5).archive_promises(options), "nine are old"
    assert standing(*deltas(1, 40), now=40).archive_promises(options)
    many = standing(*deltas(1, 420), now=420)
    assert not many.archive_promises(replace(options, minimum_age_s=387 * 60)), "of 400, 33 are old"
    assert many.archive_promises(replace(options, minimum_age_s=380 * 60))


def test_a_time_ahead_of_the_clock_says_nothing_of_an_age() -> None:
    options = ArchivingOptions(min_commits=20, max_commits=30, minimum_age_s=600)
    assert standing(*deltas(101, 131), now=50).archive_promises(options)
    assert standing(*deltas(101, 131), now=131).archive_promises(replace(options, minimum_age_s=0))


def test_what_the_caller_completed_counts_although_it_was_not_listed() -> None:
    storage = MemoryStorage(REAL_SYSTEM.new_id())
    for name in deltas(1, 4):
        storage.put(
            f"{TIMELINE_FOLDER}/{time_of(int(name.split()[1]))}_{time_of(int(name.split()[2]))}.deltacommit", b""
        )
    storage.put(f"{TIMELINE_FOLDER}/{time_of(5)}.deltacommit.requested", b"")
    snapshot = Snapshot.look(storage)
    found = Standing.of(snapshot, 0, [completed(time_of(5), "deltacommit", time_of(6))])
    assert found.compaction_due(CompactionTrigger(commits=5)) and not found.pending


def test_hudis_defaults() -> None:
    options = InlineOptions.from_options({})
    assert options == InlineOptions() and options.enabled
    assert (
        options.enabled and CleaningOptions.from_options({}).automatic and ArchivingOptions.from_options({}).automatic
    )
    assert not options.compaction.run and options.compaction.beside and not options.clustering.run
    assert (options.trigger.strategy, options.trigger.commits, options.trigger.seconds) == ("NUM_COMMITS", 5, 3600)


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"hoodie.compact.inline": "true", "hoodie.compact.schedule.inline": "true"}, "set one of them"),
        ({"hoodie.clustering.inline": "true", "hoodie.clustering.schedule.inline": "true"}, "set one of them"),
        ({"hoodie.compact.inline.trigger.strategy": "DAILY"}, "NUM_OR_TIME"),
        ({"hoodie.compact.inline.max.delta.seconds": "1 hour"}, "no whole number"),
        ({"hoodie.log.compaction.inline": "true", "hoodie.log.compaction.enable": "false"}, "remove one"),
    ],
)
def test_options_that_do_not_go_together(values: dict[str, str], told: str) -> None:
    with pytest.raises(InvalidRequest, match=told):
        InlineOptions.from_options(values)


def test_what_runs_after_a_commit_does_not_run_beside_the_query_as_well() -> None:
    assert not InlineOptions.from_options({"hoodie.compact.inline": "true"}).compaction.beside
