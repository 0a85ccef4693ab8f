"""Merging a source into a table: clauses in the order in which they were given, one commit.

The source is joined to the table inside the transaction, and anew after a conflict. Each row takes the first clause
that applies to it, and one that takes none stays as it is and is not written.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

from lakelatch.engine.changes.clauses import (
    INSERTED_TWICE,
    MATCHED,
    NOT_MATCHED,
    NOT_MATCHED_BY_SOURCE,
    Clause,
    MergeClauses,
)
from lakelatch.engine.sql.expressions import SOURCE, TARGET
from lakelatch.format.record_keys import DEFAULT_PARTITION
from lakelatch.spark.session.catalog import parts_of
from lakelatch.spark.session.columns import Expression, analysed, checked, column_of, folder_value, same_rows
from lakelatch.spark.session.spark_types import renamings
from lakelatch.spark.write.changed_rows import changed_rows, changes_partition, kept_apart

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

    from lakelatch.engine.run.result import CommitResult

_IN_TARGET, _IN_SOURCE, _CLAUSE, _COUNT = (
    f"_lakelatch_{name}" for name in ("in_target", "in_source", "clause", "count")
)


@dataclass(frozen=True)
class MergedTable:
    """The parts of its table that a merge has to know."""

    schema: StructType
    keys: tuple[str, ...]
    partition_fields: tuple[str, ...]
    chooses_by_order: bool

    @property
    def names(self) -> list[str]:
        """Its columns."""
        return [field.name for field in self.schema]

    @property
    def identity(self) -> tuple[str, ...]:
        """The columns that say which row one is: two partitions may hold the same key."""
        return tuple(dict.fromkeys([*self.keys, *self.partition_fields]))

    def same(self, one: Callable[[str], Column], other: Callable[[str], Column]) -> Column:
        """Whether two rows are one; `one` and `other` have their columns."""
        from pyspark.sql.types import StructType

        return same_rows(StructType([self.schema[name] for name in self.identity]), self.keys, one, other)


@dataclass(frozen=True, repr=False)
class Merge(MergeClauses[Expression]):
    """A merge that is being described. Every method but `execute` returns another one, with one clause more.

    In conditions and values, columns of the table are `target.name` and those of the source `source.name`. Without a
    condition rows are the same that have the same record key and partition. A row of the table that more than one row
    of the source would change ends the merge (`InvalidRequest`), with nothing changed. `names` are others for the two
    tables, and `read_source` gives the source's rows of each try.
    """

    table: MergedTable
    source: DataFrame
    condition: Expression | None
    look: Callable[[], MergedTable]
    read: Callable[[], DataFrame]
    commit: Callable[[Callable[[], DataFrame]], CommitResult]
    clauses: tuple[Clause[Expression], ...] = ()
    names: tuple[str, str] = (TARGET, SOURCE)
    read_source: Callable[[], DataFrame] | None = None

    @property
    def into(self) -> MergedTable:
        return self.table

    @property
    def source_names(self) -> list[str]:
        return self.source.columns

    def execute(self) -> CommitResult:
        """Commits it. Errors: those of `write`, and `InvalidRequest` for what cannot be understood or is ambiguous."""
        self.check_clauses()
        # Each try looks again: a column that others have added by then keeps its values.
        return self.commit(lambda: analysed(lambda: self._looked()._rows(), "the merge"))

    def _looked(self) -> Merge:
        source = self.source if self.read_source is None else self.read_source()
        return replace(self, table=self.look(), source=source)

    def _rows(self) -> DataFrame:
        """The rows for the upsert."""
        from pyspark.sql import functions

        joined = self._joined()
        names = [field.name for field in self.table.schema]
        old = {name: self._old(name) for name in names}
        numbered = list(enumerate(self.clauses, start=1))
        clause = functions.col(_CLAUSE)
        values = [self._values(one, old) for one in self.clauses]
        new = {
            name: reduce(
                lambda chain, pair: chain.when(clause == pair[0], pair[1][name]),
                list(enumerate(values[1:], start=2)),
                functions.when(clause == 1, values[0][name]),
            )
            for name in names
        }
        deletes = clause.isin([number for number, one in numbered if one.deletes])
        there = functions.col(_IN_TARGET).isNotNull()
        inserts = clause.isin([number for number, one in numbered if one.kind == NOT_MATCHED])
        joined, new = self._kept_apart(joined, old, new, there & ~deletes, inserts)
        return changed_rows(joined, self.table.schema, old, new, deletes, there, self.table.partition_fields)

    def _joined(self) -> DataFrame:
        """The table's rows and the source's side by side, of which some clause says what to do, and which."""
        from pyspark.sql import Window, functions

        kinds = {clause.kind for clause in self.clauses}
        how = {
            (False, False): "inner",
            (True, False): "right",
            (False, True): "left",
            (True, True): "full_outer",
        }[NOT_MATCHED in kinds, NOT_MATCHED_BY_SOURCE in kinds]
        left = self.read().withColumn(_IN_TARGET, functions.lit(True)).alias(self.names[0])
        right = self.source.withColumn(_IN_SOURCE, functions.lit(True)).alias(self.names[1])
        joined = left.join(right, self._condition(), how)
        in_target, in_source = functions.col(_IN_TARGET).isNotNull(), functions.col(_IN_SOURCE).isNotNull()
        of_kind = {
            MATCHED: in_target & in_source,
            NOT_MATCHED: in_source & ~in_target,
            NOT_MATCHED_BY_SOURCE: in_target & ~in_source,
        }
        hits = [
            of_kind[clause.kind] if clause.condition is None else of_kind[clause.kind] & column_of(clause.condition)
            for clause in self.clauses
        ]
        numbers = [functions.when(hit, number) for number, hit in enumerate(hits, start=1)]
        joined = joined.withColumn(_CLAUSE, functions.coalesce(*numbers)).where(functions.col(_CLAUSE).isNotNull())
        if MATCHED not in kinds and not self._counts_inserts:
            return joined
        identity = [self._identified(name) for name in self.table.identity]
        # Rows of the source alone have no key of the table, and would all come to one task.
        alone = functions.lit(False) if self._counts_inserts else ~in_target
        joined = joined.withColumn(_COUNT, functions.when(alone, functions.monotonically_increasing_id()))
        window = Window.partitionBy(*identity, functions.col(_COUNT))
        return joined.withColumn(_COUNT, functions.count(functions.lit(1)).over(window))

    def _identified(self, name: str) -> Column:
        """A column of the row that one of the joined rows is about: by its key, the source says which a new one is."""
        from pyspark.sql import functions

        if not self._counts_inserts:
            return self._old(name)
        kind = self.table.schema[name].dataType
        value = functions.coalesce(self._old(name), self._given(name).cast(kind))
        return value if name in self.table.keys else folder_value(value, kind)

    @property
    def _counts_inserts(self) -> bool:
        """Whether it is counted by the source's key how many new rows would be one; else by their own values."""
        return self._may_insert_twice and self._takes_key

    @property
    def _may_insert_twice(self) -> bool:
        return any(one.kind == NOT_MATCHED for one in self.clauses) and not self.table.chooses_by_order

    @property
    def _takes_key(self) -> bool:
        """Whether rows match by the key, and new ones have the source's."""
        new = (clause for clause in self.clauses if clause.kind == NOT_MATCHED)
        return self.is_by_key and all(clause.takes(self.table.identity, self._is_of_source) for clause in new)

    def _values(self, clause: Clause[Expression], old: Mapping[str, Column]) -> dict[str, Column]:
        from pyspark.sql import functions

        if clause.deletes:
            return dict(old)
        given = clause.values or {}
        if clause.takes_all:
            kept = self.table.keys if clause.kind == MATCHED else ()
            taken = set(self.source.columns).difference(kept)  # all but what others have added since
            given = {name: self._given(name) for name in old if name in taken}
        rest = dict.fromkeys(old, functions.lit(None)) if clause.kind == NOT_MATCHED else dict(old)
        values = {**rest, **{name: column_of(value) for name, value in given.items()}}
        if clause.kind == MATCHED:
            first, twice = self.table.keys[0], functions.col(_COUNT) > 1
            words = "the row with ", " is matched by more than one row of the source: make its keys unique first"
            values[first] = checked(values[first], twice, words, self.table.identity, old)
        elif clause.kind == NOT_MATCHED and self._counts_inserts:
            first, twice = self.table.keys[0], functions.col(_COUNT) > 1
            values[first] = checked(values[first], twice, INSERTED_TWICE, self.table.identity, values)
        return values

    def _kept_apart(
        self, joined: DataFrame, old: dict[str, Column], new: dict[str, Column], updates: Column, inserts: Column
    ) -> tuple[DataFrame, dict[str, Column]]:
        """Refuses what would be written over a row of the table of which the condition does not speak."""
        table = self.table
        kinds = {clause.kind for clause in self.clauses}
        takes_key = self._takes_key
        # Of values that are null `=` finds none that is the same; a key of one column has no such value.
        by_equality = self.condition is not None and len(table.identity) > 1
        moves = any(map(self._may_move, self.clauses))
        guards = NOT_MATCHED in kinds and (not takes_key or by_equality)
        if not guards and not moves:
            return joined, new
        known = self.read()
        if takes_key and not moves:
            known = known.where(self._has_gap(known))
        moved = updates & changes_partition(table.schema, old, new, table.partition_fields) if moves else None
        once = self._may_insert_twice and not self._counts_inserts
        return kept_apart(joined, new, table, known, inserts, moved, once)

    def _has_gap(self, known: DataFrame) -> Column:
        """Whether a column of the key is null, or one of the partition means the folder of null."""
        from pyspark.sql import functions

        gaps = []
        for name in self.table.identity:
            value = known[name]
            if name not in self.table.keys:
                value = folder_value(value, self.table.schema[name].dataType)
            gaps.append(value.isNull() | (value.cast("string") == functions.lit(DEFAULT_PARTITION)))
        return reduce(or_, gaps)

    def _may_move(self, clause: Clause[Expression]) -> bool:
        """Whether a clause may give rows of the table another partition."""
        if clause.deletes or clause.kind == NOT_MATCHED:
            return False
        given: Collection[str] = self.source.columns if clause.takes_all else clause.values or {}
        fields = [name for name in self.table.partition_fields if name in given]
        stays = clause.kind == MATCHED and self.is_by_key and clause.takes(fields, self._is_of_source)
        return bool(fields) and not stays

    def _is_of_source(self, value: Expression, name: str) -> bool:
        """Whether a value is the source's column of this name."""
        parts = parts_of(value.strip()) if isinstance(value, str) else []
        return [part.lower() for part in parts] == [self.names[1].lower(), name.lower()]

    def _condition(self) -> Column:

        if self.condition is not None:
            return column_of(self.condition)
        return self.table.same(self._old, self._given)

    def _old(self, name: str) -> Column:
        """The table's column."""
        from pyspark.sql import functions

        return functions.col(f"`{self.names[0]}`.`{name}`")

    def _given(self, name: str) -> Column:
        """The source's column."""
        from pyspark.sql import functions

        return functions.col(f"`{self.names[1]}`.`{name}`")

    @property
    def is_by_key(self) -> bool:
        return self.condition is None or (
            isinstance(self.condition, str) and _equal_columns(self.condition, self.names) == set(self.table.identity)
        )


def named_as(source: DataFrame, table: Sequence[str]) -> DataFrame:
    """The source, in which the table's columns have the table's names, where the session takes two cases for one.

    Errors: `InvalidRequest` for two columns that would have one name.
    """
    renamed = renamings(source.columns, table, source.sparkSession)
    return source.withColumnsRenamed(renamed) if renamed else source


def _equal_columns(condition: str, tables: tuple[str, str]) -> set[str] | None:
    """The columns that a condition such as `target.a = source.a AND target.b = source.b` speaks of, if it is one."""
    names, sides_of_all = set(), {table.lower() for table in tables}
    for part in re.split(r"\s+and\s+", condition.strip(), flags=re.IGNORECASE):
        sides = re.fullmatch(r"\(?\s*(\w+)\.(\w+)\s*==?\s*(\w+)\.(\w+)\s*\)?", part)
        if sides is None or {sides[1].lower(), sides[3].lower()} != sides_of_all or sides[2] != sides[4]:
            return None
        names.add(sides[2])
    return names
