"""What a table says of itself, read in every way there is, beside what the oracle says."""

from __future__ import annotations

import random  # noqa: TID251  (seeded)
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from attack import Attack
from hudi import HudiQueryType, HudiReadOptions, HudiTableBuilder
from plain_oracle import BEGINNING, Key, Moment, Values, in_column
from random_tables.made_slice import holding
from random_tables.readers import NOT_WIDENED

import lakelatch
from lakelatch.engine.options.calls.registry import Call
from lakelatch.engine.options.read import (
    BEGIN_INSTANT,
    END_INSTANT,
    INCREMENTAL,
    QUERY_TYPE,
    READ_OPTIMIZED,
)
from lakelatch.engine.read.plan import plan_read
from lakelatch.engine.read.rows.images import plan_images
from lakelatch.errors import InvalidRequest
from lakelatch.format.merge.conditions import OneOf
from lakelatch.format.merge.spilled_logs import LogBounds
from lakelatch.storage.uris import open_storage

TINY = LogBounds(held=0, run=1, batch=1, part=1)
Read = Callable[[str, Mapping[str, str]], list[Values]]


@dataclass
class Looks:
    """Compares; `compared` counts by the kind of the read, and what was refused for a reason."""

    by_spark: Read | None = None
    with_hudi_rs: bool = True
    compared: Counter[str] = field(default_factory=Counter)
    _in_full: bool = False

    def look(self, attack: Attack, chance: random.Random, everything: bool = False) -> None:
        """One moment and window of the past or, without Spark, all moments and some windows."""
        moments, self._in_full = attack.oracle.moments, everything
        with _memory(attack):
            self._look_at_now(attack)
            self._look_for_keys(attack, chance)
            for moment in moments if everything else [chance.choice(moments)]:
                self._look_back(attack, moment)
            for _ in range(10 if everything else 1):
                begin, end = sorted(chance.choices(range(-1, len(moments)), k=2))
                if begin < end:
                    self._look_between(attack, begin, end)

    def look_at_base_files(self, attack: Attack) -> None:
        """After a compaction of all that had logs, they have everything."""
        options = {QUERY_TYPE: READ_OPTIMIZED}
        self._same(attack, "read optimized", self._rows(attack, options), attack.oracle.moments[-1].rows())

    def _look_at_now(self, attack: Attack) -> None:
        expected = attack.oracle.moments[-1].rows()
        found = self._rows(attack, {})
        self._same(attack, "now", found, expected)
        self._also(attack, "now", {}, expected)
        self._by_hudi_rs(attack, "now", expected, HudiReadOptions())
        some = attack.chance.sample(list(attack.oracle.columns), 2)
        of_some = [{name: row[name] for name in some} for row in expected]
        self._same(attack, "columns", self._rows(attack, {"columns": ",".join(some)}), of_some)

    def _look_for_keys(self, attack: Attack, chance: random.Random) -> None:
        """By each part of the key, and by all of it: a condition may leave out what does not fulfil it, and no more."""
        rows = attack.oracle.moments[-1].rows()
        wanted = chance.choice(rows) if rows and chance.random() < 0.8 else attack.row()
        wanted = {name: in_column(wanted.get(name), attack.oracle.columns[name]) for name in attack.oracle.columns}
        parts = [(name,) for name in (*attack.layout.key, *attack.layout.folders)]
        for names in dict.fromkeys([*parts, attack.layout.key, attack.oracle.key]):
            expected = [row for row in rows if all(row[name] == wanted[name] for name in names)]
            conditions = [OneOf(name, (wanted[name],)) for name in names]
            plan = plan_read(attack.engine.path, {}, conditions=conditions)
            batches = [batch for one in plan.slices for batch in plan.read(one)]
            found = plain(pa.Table.from_batches(batches, plan.schema).to_pylist())
            found = [row for row in found if all(row[name] == wanted[name] for name in names)]
            self._same(attack, "key" if names == attack.oracle.key else "part of key", found, expected)

    def _look_back(self, attack: Attack, moment: Moment) -> None:
        options = {"as.of.instant": moment.completion}
        found = self._past(attack, "as of", lambda: self._rows(attack, options))
        if found is None:
            return
        self._same(attack, "as of", found, moment.rows())
        self._also(attack, "as of", options, moment.rows())
        asked = HudiReadOptions().with_as_of_timestamp(moment.completion)
        if moment.completion not in attack.met_others and moment.columns == attack.oracle.moments[-1].columns:
            self._by_hudi_rs(attack, "as of", moment.rows(), asked)

    def _look_between(self, attack: Attack, begin: int, end: int) -> None:
        moments = attack.oracle.moments
        after, until = BEGINNING if begin < 0 else moments[begin].completion, moments[end]
        options = {QUERY_TYPE: INCREMENTAL, BEGIN_INSTANT: after, END_INSTANT: until.completion}
        found = self._past(attack, "between", lambda: self._rows(attack, options))
        if found is not None:
            self._same(attack, "between", found, until.rows(after))
            self._also(attack, "between", options, until.rows(after))
            asked = HudiReadOptions().with_query_type(HudiQueryType.Incremental)
            asked = asked.with_start_timestamp(after).with_end_timestamp(until.completion)
            older = {key for key in until.state if until.written(key) <= after}
            has_columns_of_now = until.columns == moments[-1].columns
            if has_columns_of_now and not {after, until.completion} & attack.met_others:
                self._by_hudi_rs(attack, "between", until.rows(after), asked, older)
        images = self._past(attack, "images", lambda: self._images(attack, options))
        if images is not None:
            wanted = [
                dict(zip(("op", "before", "after"), one, strict=True)) for one in attack.oracle.images(begin, end)
            ]
            self._same(attack, "images", images, wanted)

    def _past(self, attack: Attack, kind: str, read: Callable[[], list[Values]]) -> list[Values] | None:
        """None for a past whose files a clean has removed, which is said so; and for images of what was restored."""
        try:
            return read()
        except InvalidRequest as error:
            if kind == "images" and "the restore" in str(error):
                assert any(name.startswith("restore: done") for name in attack.reached), error
                self.compared["refused: images of what was restored"] += 1
                return None
            assert attack.layout["retained"] != "100" and "clean" in str(error), error
            self.compared[f"refused: {kind}, cleaned"] += 1
            return None

    def _rows(self, attack: Attack, options: Mapping[str, str]) -> list[Values]:
        plan = plan_read(attack.engine.path, options)
        batches = [batch for one in plan.slices for batch in plan.read(one)]
        return plain(pa.Table.from_batches(batches, plan.schema).to_pylist())

    def _images(self, attack: Attack, options: Mapping[str, str]) -> list[Values]:
        asked = Call({**options, "hoodie.datasource.query.incremental.format": "cdc"}).read()
        plan = plan_images(open_storage(attack.engine.path), asked, of_any_table=True).with_structs()
        found = [row for one in plan.slices for batch in plan.read(one) for row in batch.to_pylist()]
        return [{name: row[name] for name in ("op", "before", "after")} for row in found]

    def _also(self, attack: Attack, kind: str, options: Mapping[str, str], expected: list[Values]) -> None:
        if self.by_spark is not None and not self._in_full:
            self._same(attack, f"{kind}, Spark", plain(self.by_spark(attack.engine.path, options)), expected)

    def _by_hudi_rs(
        self, attack: Attack, kind: str, expected: list[Values], asked: HudiReadOptions, more: set[Key] | None = None
    ) -> None:
        """hudi-rs reads `more` keys, which lost to what is older than a window.

        It is not asked for a past that had fewer columns: into rows of then it puts values of others in these.
        """
        if not self.with_hudi_rs or not _is_for_hudi_rs(attack, kind):
            return
        now, key_of = attack.oracle.moments[-1].columns, attack.oracle.key_of
        rows = [{name: in_column(row.get(name), kind) for name, kind in now.items()} for row in expected]
        try:
            batches = HudiTableBuilder.from_base_uri(attack.engine.path).build().read(asked)
        except Exception as error:
            assert NOT_WIDENED.search(str(error)), f"hudi-rs, {kind}: {error!r}"
            self.compared["refused: hudi-rs does not widen"] += 1
            return
        found = plain([row for batch in batches for row in pa.record_batch(batch).to_pylist()])
        unsure = attack.deleted_out_of_order
        found = [row for row in found if key_of(row) not in unsure and (row in rows or key_of(row) not in (more or ()))]
        self._same(attack, f"{kind}, hudi-rs", found, [row for row in rows if key_of(row) not in unsure])

    def _same(self, attack: Attack, kind: str, found: list[Values], expected: list[Values]) -> None:
        self.compared[kind] += 1
        ours, wanted = in_order(found), in_order(expected)
        if ours != wanted:
            more = [row for row in ours if row not in wanted]
            missing = [row for row in wanted if row not in ours]
            raise AssertionError(f"{kind}: found {more or len(ours)}, and not {missing or len(wanted)}")


def _is_for_hudi_rs(attack: Attack, kind: str) -> bool:
    """It reads no log files of column groups, and of what was cleaned or archived nothing but now."""
    past_is_there = attack.layout["retained"] == "100" and attack.layout["archiving"] == "false"
    past_is_there = past_is_there and not attack.reached["archive: done"]
    return not attack.oracle.groups and (kind == "now" or past_is_there)


def _memory(attack: Attack) -> AbstractContextManager[None]:
    return holding(TINY) if attack.layout["memory"] == "tiny" else nullcontext()


def plain(rows: list[dict[str, Any]]) -> list[Values]:
    """Without meta columns."""
    return [{name: value for name, value in row.items() if not name.startswith("_hoodie_")} for row in rows]


def in_order(rows: list[Values]) -> list[Values]:
    return sorted(rows, key=lambda row: repr(sorted(row.items())))


def rows_by_format(spark: Any) -> Read:
    """Through Spark's own interface."""

    def read(path: str, options: Mapping[str, str]) -> list[Values]:
        found: list[Values] = spark.read.format("lakelatch").options(**options).load(path).toArrow().to_pylist()
        return found

    return read


def rows_by_read(spark: Any) -> Read:
    return lambda path, options: lakelatch.read(spark, path, options).toArrow().to_pylist()
