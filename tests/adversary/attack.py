"""A table that is attacked: each `do_` is a step, which changes the table and the oracle, in this process."""

from __future__ import annotations

import random  # noqa: TID251  (seeded)
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import pyarrow as pa
from driver import Engine
from option_space import COPIED, OPTIMISTIC, Layout
from plain_oracle import Group, Key, PlainOracle
from random_rows import RandomRows

from lakelatch.errors import InvalidRequest, WriteConflict
from lakelatch.failpoints import FailpointHit, active, calling

DELETED = "_hoodie_is_deleted"
ADDED = ("int", "string", "double", "boolean", "struct", "array", "timestamp")
WIDER = {"int": "long", "long": "string"}
MERGED_COLUMNS = {"mergeSchema": "true", "lakelatch.write.numbers.to.text": "true"}
KINDS = {
    "upsert": 6,
    "upsert_twice": 1,
    "upsert_and_delete": 2,
    "upsert_some": 1,
    "insert": 1,
    "bulk_insert": 2,
    "delete": 3,
    "delete_without_order": 1,
    "overwrite": 1,
    "overwrite_all": 1,
    "drop_partition": 1,
    "nothing": 1,
    "add_column": 1,
    "widen_column": 1,
    "fail": 1,
    "write_beside": 5,
    "compact": 3,
    "compact_and_forget": 1,
    "compact_beside": 2,
    "compact_logs": 2,
    "compact_logs_beside": 1,
    "cluster": 1,
    "cluster_beside": 2,
    "maintain": 1,
    "clean": 1,
    "archive": 1,
    "savepoint": 1,
    "give_up_savepoint": 1,
    "restore": 1,
    "roll_back": 1,
}
_INSIDE = ("write.before_rows", "data.after", "mark.after", "close.after")


@dataclass
class Attack(RandomRows):
    """`reached` counts what was done. Keys that were `deleted_out_of_order` are others for hudi-rs, as the guide says;
    `met_others` are completions while something else was at work, which it takes for completed by then."""

    engine: Engine = field(kw_only=True)
    reached: Counter[str] = field(default_factory=Counter)
    deleted_out_of_order: set[Key] = field(default_factory=set)
    savepoints: list[str] = field(default_factory=list)
    met_others: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, path: str, seed: int, engine: Callable[[str, dict[str, str]], Engine] = Engine) -> Attack:
        layout = Layout.of(seed)
        groups = {}
        if layout["groups"] != "none":
            groups = {"at": Group("at", ("a", "b")), "ct": Group("ct", ("c",))}
        columns = layout.columns()
        if layout["groups"] == "some":
            apart = {"ts", "at", "a", "b", "ct", "c", *layout.key, *layout.folders}
            groups["ts"] = Group("ts", tuple(name for name in columns if name not in apart))
        oracle = PlainOracle((*layout.folders, *layout.key), columns, layout.order, groups, layout["type"] == COPIED)
        reached = Counter(f"{name}={value}" for name, value in layout.choice.items())
        made = engine(path, layout.options())
        return cls(layout, random.Random(f"steps {seed}"), oracle, engine=made, reached=reached)

    def step(self, kind: str) -> None:
        done = getattr(self, f"do_{kind}")()
        self.reached[f"{kind}: {done or 'done'}"] += 1

    @property
    def blocking(self) -> bool:
        return self.layout["concurrency"] == OPTIMISTIC

    @property
    def merges(self) -> bool:
        return self.layout["type"] != COPIED

    # -- writes -------------------------------------------------------------------------------------------------------

    def do_upsert(self, **more: str) -> None:
        rows = self.rows()
        data = self.arrow(rows)
        self.oracle_after(lambda: self.oracle.write(rows), "upsert", data, **more)

    def oracle_after(self, change: Callable[[], object], operation: str, data: pa.Table, **more: str) -> None:
        """Writes, and then tells the oracle, to which others may have told something meanwhile."""
        more["hoodie.logfile.data.block.format"] = self.chance.choice(["parquet", "avro"])
        done = self.engine.write(operation, data, more)
        change()
        self.oracle.ended(done.instant, done.completion)

    def do_upsert_twice(self) -> str | None:
        """The same keys twice in one frame, of which the greater order wins."""
        if self.layout.order is None or self.oracle.groups:
            return "left out"
        self.parity = 0
        rows = self.rows()
        self.parity = 1
        again = [{**self.row(), **{name: row[name] for name in self.oracle.key}} for row in rows]
        self.parity = None
        both = self.chance.sample([*rows, *again], len(rows) * 2)
        self.oracle_after(lambda: self.oracle.write(both), "upsert", self.arrow(both))
        return None

    def do_upsert_and_delete(self) -> str | None:
        if self.oracle.groups:
            return "left out"
        rows = self.rows(6)
        gone = [self.chance.random() < 0.5 for _ in rows]
        data = self.arrow(
            [{**row, DELETED: is_gone} for row, is_gone in zip(rows, gone, strict=True)], **{DELETED: "boolean"}
        )

        def change() -> None:
            for row, is_gone in zip(rows, gone, strict=True):
                self.oracle.write([row], is_gone)

        self.oracle_after(change, "upsert", data)
        return None

    def do_upsert_some(self) -> None:
        """Without a column, which is null then; of a table with column groups some of these, one perhaps null."""
        rows = self.rows()
        if not self.oracle.groups:
            rows = [{**row, "v": None} for row in rows]
            more = {"hoodie.write.set.null.for.missing.columns": "true"}
            self.oracle_after(lambda: self.oracle.write(rows), "upsert", self.arrow(rows, "v"), **more)
            return
        kept = self.chance.sample(sorted(self.oracle.groups), self.chance.randint(1, len(self.oracle.groups)))
        without = [
            column
            for name, group in self.oracle.groups.items()
            if name not in kept
            for column in (name, *group.columns)
        ]
        for row in rows:
            row.update(dict.fromkeys(without))
            if len(kept) > 1 and self.chance.random() < 0.3:
                left = self.chance.choice(kept)
                row.update(dict.fromkeys((left, *self.oracle.groups[left].columns)))
        self.oracle_after(lambda: self.oracle.write(rows), "upsert", self.arrow(rows, *without))

    def do_insert(self) -> None:
        self._write_rows("insert")

    def do_bulk_insert(self) -> None:
        self._write_rows("bulk_insert")

    def _write_rows(self, operation: str) -> None:
        rows = self.rows(8)
        self.oracle_after(lambda: self.oracle.write(rows), operation, self.arrow(rows))

    def do_delete(self) -> None:
        rows = self.rows(3)
        names = {"ts", "at", "ct", *self.oracle.key}
        without = [name for name in self.oracle.columns if name not in names]
        if self.oracle.groups and self.chance.random() < 0.5:
            dropped = self.chance.choice(sorted(self.oracle.groups))
            without.append(dropped)
            rows = [{**row, dropped: None} for row in rows]
        self.oracle_after(lambda: self.oracle.write(rows, deleted=True), "delete", self.arrow(rows, *without))

    def do_delete_without_order(self) -> str | None:
        if not self.blocking:
            return "left out"
        rows = self.rows(3)
        names = [name for name in self.oracle.columns if name not in self.oracle.key]
        keys = {self.oracle.key_of(row) for row in rows}
        if self.layout.order is not None or self.oracle.groups:
            self.deleted_out_of_order |= keys
        rows = [{**row, **dict.fromkeys(names)} for row in rows]
        self.oracle_after(lambda: self.oracle.write(rows, deleted=True), "delete", self.arrow(rows, *names))
        return None

    def do_overwrite(self) -> None:
        rows = self.rows()
        count = len(self.layout.folders)
        touched = {self.oracle.key_of(row)[:count] for row in rows}

        def change() -> None:
            self.oracle.forget(lambda key: key[:count] in touched)
            self.oracle.write(rows)

        self.oracle_after(change, "insert_overwrite", self.arrow(rows))

    def do_overwrite_all(self) -> None:
        rows = self.rows()

        def change() -> None:
            self.oracle.forget(lambda key: True)
            self.oracle.write(rows)

        self.oracle_after(change, "insert_overwrite_table", self.arrow(rows))

    def do_drop_partition(self) -> str | None:
        rows = self.oracle.rows()
        if not self.layout.folders or not rows:
            return "left out"
        row = self.chance.choice(rows)
        place = tuple(row[name] for name in self.layout.folders)
        done = self.engine.drop(self.engine.folder_of(place, self.layout))
        self.oracle.forget(lambda key: key[: len(place)] == place)
        self.oracle.ended(done.instant, done.completion)
        return None

    def do_nothing(self) -> None:
        self.oracle_after(lambda: None, "upsert", self.arrow([]))

    def do_add_column(self) -> str | None:
        if self.oracle.groups:
            return "left out"
        self._upsert_with({f"c{len(self.oracle.columns)}": self.chance.choice(ADDED)})
        return None

    def do_widen_column(self) -> str | None:
        wider = WIDER.get(self.oracle.columns.get("n", ""))
        if self.oracle.groups or wider is None:
            return "left out"
        self._upsert_with({"n": wider})
        return None

    def _upsert_with(self, more: dict[str, str]) -> None:
        before, self.oracle.columns = self.oracle.columns, {**self.oracle.columns, **more}
        rows, data = (found := self.rows()), self.arrow(found)
        self.oracle.columns = before

        def change() -> None:
            self.oracle.columns = {**self.oracle.columns, **more}
            self.oracle.write(rows)

        self.oracle_after(change, "upsert", data, **MERGED_COLUMNS)

    def do_fail(self) -> str | None:
        """A write that ends on its way leaves nothing. Not every write comes by every point."""
        point = self.chance.choice(_INSIDE)
        try:
            with active(f"{point}=raise"):
                self.do_upsert()
        except FailpointHit:
            return f"failed at {point}"
        return "came through"

    # -- at once ------------------------------------------------------------------------------------------------------

    def do_write_beside(self) -> str:
        """A write that begins first and completes last; of ordered ones no two values are equal."""
        inner = [
            "upsert",
            "upsert_and_delete",
            "delete",
            "overwrite",
            "drop_partition",
            "compact",
            "compact_logs",
            "cluster",
        ]
        outer = ["upsert", "insert", "bulk_insert", "delete", "overwrite", "upsert_and_delete"]
        return self._beside(_INSIDE, inner, getattr(self, f"do_{self.chance.choice(outer)}"))

    def do_compact_beside(self) -> str:
        return self._beside(
            ("compact.after_base_file", "compact.before_commit"), ["upsert", "delete", "overwrite"], self.do_compact
        )

    def do_compact_logs_beside(self) -> str:
        return self._beside(
            ("compact.after_base_file", "compact.before_commit"), ["upsert", "delete"], self.do_compact_logs
        )

    def do_cluster_beside(self) -> str:
        return self._beside(
            ("cluster.before_commit",), ["upsert", "delete", "overwrite", "bulk_insert"], self.do_cluster
        )

    def _beside(self, points: tuple[str, ...], inner: list[str], outer: Callable[[], str | None]) -> str:
        ready = [self.chance.choice(inner)]
        met: list[str] = []

        def other(point: str) -> None:
            if ready:
                kind = ready.pop()
                met.append(f"{kind} at {point}")
                self.parity = 1
                count = len(self.oracle.moments)
                try:
                    getattr(self, f"do_{kind}")()
                except WriteConflict:  # found early: the outer one came first
                    met[-1] = f"{kind} lost"
                self.met_others |= {moment.completion for moment in self.oracle.moments[count:]}

        self.parity = 0
        try:
            with calling(other, [self.chance.choice(points)]):
                outer()
        finally:
            self.parity = None
        for one in met:
            self.reached[f"beside: {one}"] += 1
        return "met" if met else "alone"

    # -- services -----------------------------------------------------------------------------------------------------

    def do_compact(self) -> str | None:
        if not self.merges:
            return "left out"
        return "done" if self.engine.compact({}) else "nothing to do"

    def do_compact_and_forget(self) -> str | None:
        """Where it is known which file groups are due for it: only of these deletes are forgotten."""
        if not self.merges or self.layout.folders or self.layout["buckets"] != "1":
            return "left out"
        self.do_upsert(**{"lakelatch.rewrite.automatic": "false"})
        assert self.engine.compact({"lakelatch.compact.keep.deletes": "false"})
        self.oracle.forget_deletes()
        return None

    def do_compact_logs(self) -> str | None:
        if not self.merges:
            return "left out"
        return "done" if self.engine.compact_logs() else "nothing to do"

    def do_cluster(self) -> str | None:
        columns = [name for name, kind in self.oracle.columns.items() if kind in ("int", "long", "string")]
        chosen = self.chance.sample(columns, 2)
        layout = self.chance.choice(["linear", "z-order", "hilbert"])
        return "done" if self.engine.cluster(chosen, layout) else "nothing to do"

    def do_maintain(self) -> None:
        self.engine.maintain()

    def do_clean(self) -> str:
        return "done" if self.engine.clean() else "nothing to do"

    def do_archive(self) -> str:
        return "done" if self.engine.archive() else "nothing to do"

    # -- the past -----------------------------------------------------------------------------------------------------

    def do_savepoint(self) -> str | None:
        moment = self.chance.choice(self.oracle.moments[-3:])
        return self._refusable(lambda: self.savepoints.append(self.engine.savepoint(moment.instant)))

    def do_give_up_savepoint(self) -> str | None:
        if not self.savepoints:
            return "left out"
        self.engine.delete_savepoint(self.savepoints.pop())
        return None

    def do_restore(self) -> str | None:
        moment = self.chance.choice(self.oracle.moments[-3:])

        def restore() -> None:
            self.engine.restore(moment.instant)
            self.oracle.restored(moment)

        return self._refusable(restore)

    def do_roll_back(self) -> str | None:
        if len(self.oracle.moments) < 2:
            return "left out"

        def roll_back() -> None:
            self.engine.roll_back(self.oracle.moments[-1].instant)
            self.oracle.rolled_back()

        return self._refusable(roll_back)

    def _refusable(self, act: Callable[[], object]) -> str | None:
        """What services have done since may stand in the way, and is named then."""
        try:
            act()
        except InvalidRequest:
            return "refused"
        return None
