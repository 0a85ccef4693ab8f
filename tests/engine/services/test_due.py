"""Which table services are due, by names alone, against timelines that are written down."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lakelatch.engine.options.table_services.archiving import ArchivingOptions
from lakelatch.engine.options.table_services.cleaning import CleaningOptions
from lakelatch.engine.options.table_services.compaction import CompactionOptions
from lakelatch.engine.options.table_services.inline import TRIGGERS, CompactionTrigger, InlineOptions
from lakelatch.engine.services.counters import Counters
from lakelatch.engine.services.removals.archiving import is_due, is_worth_a_try
from lakelatch.engine.services.removals.cleaning import Clean
from lakelatch.engine.services.rewrites.clustering import Clustering
from lakelatch.engine.services.rewrites.compaction import Compaction
from lakelatch.engine.services.rewrites.log_compaction import LogCompaction
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


def counters(*names: str, now: float = 0) -> Counters:
    """Names as `deltacommit 3 4`, requested and completed, or `compaction 5.5` for a plan."""
    storage = MemoryStorage(REAL_SYSTEM.new_id())
    for name in names:
        action, start, *end = name.split()
        begin = time_of(float(start))
        files = [f"{begin}_{time_of(float(end[0]))}.{action}"] if end else [f"{begin}.{action}.requested"]
        for file in files:
            storage.put(f"{TIMELINE_FOLDER}/{file}", b"")
    return Counters.of(Snapshot.look(storage), to_ms(time_of(now)))


def deltas(first: int, last: int) -> list[str]:
    return [f"deltacommit {number} {number}" for number in range(first, last + 1)]


def test_a_compaction_is_due_after_so_many_delta_commits() -> None:
    trigger = CompactionTrigger(commits=5)
    assert not Compaction(trigger=trigger).due(counters(*deltas(1, 4)))
    assert Compaction(trigger=trigger).due(counters(*deltas(1, 5)))
    assert not Compaction(trigger=trigger).due(counters(*deltas(1, 9), "commit 5 6")), "four since the plan"
    assert Compaction(trigger=trigger).due(counters(*deltas(1, 10), "commit 5 6"))


def test_what_completes_after_a_plan_is_not_in_it() -> None:
    late = counters("deltacommit 1 8", "commit 5 6")
    each = Compaction(trigger=CompactionTrigger(commits=1))
    assert each.due(late) and not each.due(counters("commit 5 6"))


def test_while_a_plan_waits_none_is_made_unless_requests_are_counted() -> None:
    waits = counters(*deltas(1, 9), "compaction 4.5")
    assert not Compaction(trigger=CompactionTrigger("NUM_COMMITS", commits=5)).due(waits)
    assert Compaction(trigger=CompactionTrigger("NUM_COMMITS_AFTER_LAST_REQUEST", commits=5)).due(waits)
    assert not Compaction(trigger=CompactionTrigger("NUM_COMMITS_AFTER_LAST_REQUEST", commits=6)).due(waits)


def test_log_compactions_are_no_delta_commits() -> None:
    names = [*deltas(1, 4), "logcompaction 4.5", "deltacommit 4.5 5"]
    assert not Compaction(trigger=CompactionTrigger(commits=5)).due(counters(*names))
    assert not LogCompaction(CompactionOptions(least_logs_of_run=3)).due(counters(*names, *deltas(5, 6)))
    assert LogCompaction(CompactionOptions(least_logs_of_run=3)).due(counters(*names, *deltas(5, 7)))
    assert not LogCompaction(CompactionOptions(least_logs_of_run=3)).due(
        counters(*deltas(1, 8), "logcompaction 5.5")
    ), "one waits"


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
        Compaction(trigger=trigger).due(counters(*deltas(1, count), now=now))
        for count, now in ((2, 10), (3, 10), (2, 61), (3, 61))
    ]
    assert found == expected and strategy in TRIGGERS
    assert not Compaction(trigger=trigger).due(counters(now=600)), "nothing was written"


def test_a_clustering_is_due_after_so_many_writes() -> None:
    assert not Clustering(commits=4).due(counters(*deltas(1, 3)))
    assert Clustering(commits=4).due(counters(*deltas(1, 3), "replacecommit 4 4"))
    clustered = [*deltas(1, 6), "clustering 4.5", "replacecommit 4.5 4.7"]
    assert not Clustering(commits=4).due(counters(*clustered))
    assert Clustering(commits=4).due(counters(*clustered, *deltas(7, 8))), "the write beside it is not in its plan"
    assert not Clustering(commits=4).due(counters(*deltas(1, 9), "clustering 4.5")), "one waits"


def test_a_clean_is_due_when_something_became_old_that_no_clean_has_seen() -> None:
    ten = CleaningOptions(commits=10)
    assert not Clean(ten).due(counters(*deltas(1, 50))), "log files add to the latest slices"
    compacted = [*deltas(1, 5), "commit 6 6"]
    assert not Clean(ten).due(counters(*compacted, *deltas(7, 15)))
    assert Clean(ten).due(counters(*compacted, *deltas(7, 16)))
    assert not Clean(ten).due(counters(*compacted, *deltas(7, 16), "clean 16.5 17", *deltas(18, 18))), "it saw that"
    assert Clean(ten).due(counters(*compacted, *deltas(7, 15), "clean 15.5 15.7", *deltas(16, 17))), "it came too early"
    assert Clean(ten).due(counters(*compacted, *deltas(7, 15), "clean 15.5 17", "deltacommit 16 16")), (
        "it was planned so"
    )
    assert Clean(ten).due(counters("clean 5.5")), "one waits"
    rarely = CleaningOptions(commits=10, trigger_commits=18)
    assert not Clean(rarely).due(counters(*compacted, *deltas(7, 17)))
    assert Clean(rarely).due(counters(*compacted, *deltas(7, 18)))


def test_a_clean_by_hours_and_by_versions() -> None:
    hours = CleaningOptions(policy="KEEP_LATEST_BY_HOURS", hours=2)
    names = [*deltas(1, 5), "commit 6 6"]
    assert not Clean(hours).due(counters(*names, now=125)) and Clean(hours).due(counters(*names, now=126))
    assert not Clean(hours).due(counters(*names, "clean 126 126", "deltacommit 127 127", now=130))
    versions = CleaningOptions(policy="KEEP_LATEST_FILE_VERSIONS", versions=2)
    assert not Clean(versions).due(counters(*names, *deltas(7, 7))) and Clean(versions).due(
        counters(*names, *deltas(7, 8))
    )


@pytest.mark.parametrize("undo", ["rollback", "restore"])
def test_tombstones_make_a_clean_due_when_they_are_a_day_old(undo: str) -> None:
    options = CleaningOptions(tombstone_hours=1)
    names = [*deltas(1, 3), f"{undo} 4 4"]
    assert not Clean(options).due(counters(*names, now=63)) and Clean(options).due(counters(*names, now=64))
    assert not Clean(options).due(counters(*names, "clean 64.5 65", *deltas(66, 66), now=70))


def test_an_archiving_is_due_by_number() -> None:
    assert not is_due(counters(*deltas(1, 30)), ArchivingOptions(max_commits=30))
    assert not is_due(counters(*deltas(1, 30), "clean 31 31"), ArchivingOptions(max_commits=30))
    assert is_due(counters(*deltas(1, 31)), ArchivingOptions(max_commits=30))


def test_a_writer_tries_to_archive_once_enough_is_old() -> None:
    options = ArchivingOptions(min_commits=20, max_commits=30, minimum_age_s=1800)
    assert not is_worth_a_try(counters(*deltas(1, 30), now=100), options)
    assert is_worth_a_try(counters(*deltas(1, 31), now=100), options)
    assert not is_worth_a_try(counters(*deltas(1, 40), now=39.5), options), "nine are old"
    assert is_worth_a_try(counters(*deltas(1, 40), now=40), options)
    many = counters(*deltas(1, 420), now=420)
    assert not is_worth_a_try(many, replace(options, minimum_age_s=387 * 60)), "of 400, 33 are old"
    assert is_worth_a_try(many, replace(options, minimum_age_s=380 * 60))


def test_a_time_ahead_of_the_clock_says_nothing_of_an_age() -> None:
    options = ArchivingOptions(min_commits=20, max_commits=30, minimum_age_s=600)
    assert is_worth_a_try(counters(*deltas(101, 131), now=50), options)
    assert is_worth_a_try(counters(*deltas(101, 131), now=131), replace(options, minimum_age_s=0))


def test_what_the_caller_completed_counts_although_it_was_not_listed() -> None:
    storage = MemoryStorage(REAL_SYSTEM.new_id())
    for name in deltas(1, 4):
        storage.put(
            f"{TIMELINE_FOLDER}/{time_of(int(name.split()[1]))}_{time_of(int(name.split()[2]))}.deltacommit", b""
        )
    storage.put(f"{TIMELINE_FOLDER}/{time_of(5)}.deltacommit.requested", b"")
    found = Counters.of(Snapshot.look(storage), 0, [completed(time_of(5), "deltacommit", time_of(6))])
    assert Compaction(trigger=CompactionTrigger(commits=5)).due(found) and not found.snapshot.pending


def test_hudis_defaults() -> None:
    options = InlineOptions.from_options({})
    assert options == InlineOptions() and options.enabled
    assert (
        options.enabled and CleaningOptions.from_options({}).automatic and ArchivingOptions.from_options({}).automatic
    )
    assert not options.compaction.run and options.compaction.background and not options.clustering.run
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
    assert not InlineOptions.from_options({"hoodie.compact.inline": "true"}).compaction.background


def test_a_count_is_reached_by_any_of_the_commits_that_a_look_is_for() -> None:
    names = [f"deltacommit {number} {number}" for number in range(1, 8)]
    alone = counters(*names)
    assert alone.has_reached(7, 7) and not alone.has_reached(7, 6) and not alone.has_reached(7, 8)
    done = [completed(time_of(number), "deltacommit", time_of(number)) for number in (5, 6, 7)]
    of_three = Counters.of(alone.snapshot, 0, done)
    assert [least for least in range(1, 10) if of_three.has_reached(7, least)] == [5, 6, 7]
    drawn = [one.completion for one in alone.writes if Counters.of(alone.snapshot, 0, [one]).is_drawn(3)]
    assert 0 < len(drawn) < 7
    assert of_three.is_drawn(3) == any(one.completion in drawn for one in done)
