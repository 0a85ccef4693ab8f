"""Every policy on random histories, against what readers of each moment read."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st
from made_history import Begun, MadeHistory, group
from sweep import find_losses

from lakelatch.engine.options.table_services.cleaning import POLICIES, CleaningOptions
from lakelatch.errors import InvalidRequest
from lakelatch.format.file_slices import file_slices
from lakelatch.format.slices.partitions import partition_files
from lakelatch.timegen.instant_time import to_instant
from lakelatch.timeline.snapshot import Snapshot

BUCKETS = 2
STEP = st.tuples(
    st.sampled_from(["write", "begin", "late", "compact", "plan", "execute", "overwrite", "wait", "clean"]),
    st.integers(0, BUCKETS - 1),
    st.sampled_from(["p", "q"]),
)


class History:
    """Carries steps out, and checks after each clean what is left."""

    def __init__(self, options: CleaningOptions) -> None:
        self.table, self.options = MadeHistory(), options
        self.live = {(partition, bucket): group(bucket) for partition in ("p", "q") for bucket in range(BUCKETS)}
        self.generation = 0
        self.begun: list[tuple[tuple[str, int], Begun]] = []
        self.plans: dict[str, tuple[str, str]] = {}
        self.moments: list[str] = []

    def step(self, kind: str, bucket: int, partition: str) -> None:
        table, place = self.table, (partition, bucket)
        now = (partition, self.live[place])
        if kind == "write":
            table.write(now)
        elif kind == "begin":
            self.begun.append((place, table.begin([now])))
        elif kind == "late" and self.begun:
            begun_at, begun = self.begun.pop(0)
            if begun[1][0].file_id == self.live[begun_at]:
                table.commit(begun)
            else:
                begun[0].abort()
        elif kind == "compact" and now not in self.plans.values():
            plan = table.plan_compaction(now)
            if plan is not None:
                table.compact(plan)
        elif kind == "plan" and now not in self.plans.values():
            plan = table.plan_compaction(now)
            if plan is not None:
                self.plans[plan] = now
        elif kind == "execute" and self.plans:
            table.compact(self.plans.popitem()[0])
        elif kind == "overwrite" and now not in self.plans.values() and not self.begun:
            self.generation += 1
            self.live[place] = group(bucket, self.generation)
            table.overwrite([now], [(partition, self.live[place])])
        elif kind == "wait":
            table.system.advance(1800)
        elif kind == "clean":
            self.clean()

    def clean(self) -> int:
        """How many files have gone."""
        table, before = self.table, self.table.files()
        expected = self.expected_to_stay()
        results = table.clean(self.options)
        gone = before - table.files()
        assert gone == {path for result in results for path in result.files}
        assert not gone & expected["needed"], "a reader within retention needs it"
        if not self.plans:
            of_begun = {stat.path for _, begun in self.begun for stat in begun[1]}
            assert not table.files() - expected["needed"] - of_begun - self.tombstones(), "superfluous, and there"
        assert find_losses(table.storage, table.config, at_rest=False) == []
        return len(gone)

    def tombstones(self) -> set[str]:
        return {path for path in self.table.files() if not self.table.storage.stat(path).size_bytes}

    def expected_to_stay(self) -> dict[str, set[str]]:
        table, options, times = self.table, self.options, self.table.completions()
        needed = {
            path
            for plan, (partition, file_id) in self.plans.items()
            for path in table.needed_since(plan)
            if path.startswith(f"{partition}/") and file_id in path
        }
        if options.policy == "KEEP_LATEST_FILE_VERSIONS":
            moment = times[-options.versions - 1] if len(times) > options.versions else ""
            replaced = {group for group, time in table.view().replaced().items() if time <= moment}
            replaced_later = table.view().replaced().keys() - replaced
            completions = Snapshot.load(table.storage).completion_times()
            for partition, names in partition_files(table.storage, table.config):
                for slices in file_slices(partition, names, completions):
                    if (partition, slices[0].file_id) in replaced_later:
                        continue
                    for found in slices[: options.versions] if (partition, slices[0].file_id) not in replaced else ():
                        needed.update(found.log_paths, [found.base_path] if found.base_path else [])
            return {"needed": needed | (table.needed_since(moment) if replaced_later else set())}
        if options.policy == "KEEP_LATEST_BY_HOURS":
            moment = to_instant(table.system.realtime_ms() - options.hours * 3_600_000)
        else:
            moment = times[-options.commits - 1] if len(times) > options.commits else ""
        if not any(time <= moment for time in times):
            return {"needed": table.files()}
        self.moments = [moment, *(time for time in times if time > moment)]
        return {"needed": needed | table.needed_since(moment)}


Steps = list[tuple[str, int, str]]


def test_what_stays_is_what_readers_within_retention_read() -> None:
    """And whoever asks for an older moment is refused, or reads what was there."""
    met: Counter[str] = Counter()

    @settings(max_examples=60, deadline=None)
    @given(
        policy=st.sampled_from(POLICIES[::2]),
        number=st.integers(1, 4),
        steps=st.lists(STEP, min_size=8, max_size=40),
        tail=st.integers(0, 6),  # without one there is seldom anything to remove
    )
    def check(policy: str, number: int, steps: Steps, tail: int) -> None:
        history = History(CleaningOptions(policy=policy, commits=number, versions=number, hours=number))
        for kind, bucket, partition in steps + [("write", 0, "p"), ("compact", 0, "p"), ("wait", 0, "p")] * tail:
            history.step(kind, bucket, partition)
        times = history.table.completions()
        before = {moment: history.table.slices(moment) for moment in times[-number - 1 :]}
        met["cleaned"] += history.clean()
        if policy == "KEEP_LATEST_COMMITS":
            assert {moment: history.table.slices(moment) for moment in before} == before
        for moment in history.table.completions():
            try:
                found = history.table.slices(moment)
            except InvalidRequest as error:
                assert moment != times[-1] and "has removed" in error.message
                met["refused"] += 1
                continue
            met["read"] += bool(found)
            assert all(history.table.storage.exists(path) for one in found for path in one.log_paths)
            assert all(history.table.storage.exists(one.base_path) for one in found if one.base_path)

    check()
    print(met)
    assert min(met["cleaned"], met["refused"], met["read"]) > 10


@settings(max_examples=30, deadline=None)
@given(number=st.integers(1, 3), steps=st.lists(STEP, min_size=8, max_size=40))
def test_versions_are_counted_in_each_file_group(number: int, steps: list[tuple[str, int, str]]) -> None:
    history = History(CleaningOptions(policy="KEEP_LATEST_FILE_VERSIONS", versions=number))
    for kind, bucket, partition in steps:
        if kind != "clean":
            history.step(kind, bucket, partition)
    before = history.table.files()
    needed = history.expected_to_stay()["needed"]
    history.table.clean(history.options)
    assert not (before - history.table.files()) & needed
    history.table.slices()
    assert find_losses(history.table.storage, history.table.config, at_rest=False) == []
