"""Merging a source into a table: clauses in the order in which they were given, one commit.

The source is joined to the table inside the transaction, and anew after a conflict. Each row takes the first clause
that applies to it, and one that takes none stays as it is and is not written.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING

from lakelatch.errors import InvalidRequest
from lakelatch.spark.changed_rows import changed_rows
from lakelatch.spark.columns import Expression, analysed, checked, column_of, same_rows

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

    from lakelatch.engine.run.result import CommitResult

TARGET, SOURCE = "target", "source"  # how conditions and values name columns, by default: target.id = source.id
MATCHED, NOT_MATCHED, NOT_MATCHED_BY_SOURCE = "matched", "not matched", "not matched by source"
_IN_TARGET, _IN_SOURCE, _CLAUSE, _COUNT, _KNOWN = (
    f"_lakelatch_{name}" for name in ("in_target", "in_source", "clause", "count", "known")
)
_ALL: Mapping[str, Expression] = {}  # of an update or insert of all columns


@dataclass(frozen=True)
class Clause:
    """The action for rows of one kind: they are deleted where there are no `values`, else given these."""

    kind: str
    condition: Expression | None
    values: Mapping[str, Expression] | None

    @property
    def deletes(self) -> bool:
        return self.values is None

    @property
    def takes_all(self) -> bool:
        """Whether every column is the source's of that name."""
        return self.values is _ALL


@dataclass(frozen=True)
class MergedTable:
    """The parts of its table that a merge has to know."""

    schema: StructType
    keys: tuple[str, ...]
    partition_fields: tuple[str, ...]

    @property
    def identity(self) -> tuple[str, ...]:
        """The columns that say which row one is: two partitions may hold the same key."""
        return tuple(dict.fromkeys([*self.keys, *self.partition_fields]))

    def same(self, one: Callable[[str], Column], other: Callable[[str], Column]) -> Column:
        """Whether two rows are one; `one` and `other` have their columns."""
        from pyspark.sql.types import StructType

        return same_rows(StructType([self.schema[name] for name in self.identity]), self.keys, one, other)


@dataclass(frozen=True)
class Merge:
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
    clauses: tuple[Clause, ...] = ()
    names: tuple[str, str] = (TARGET, SOURCE)
    read_source: Callable[[], DataFrame] | None = None

    def when_matched_update(self, set: Mapping[str, Expression], condition: Expression | None = None) -> Merge:
        """Gives these columns of the table's row other values. Errors: `InvalidRequest` for a column of the key."""
        return self._with(MATCHED, condition, self._checked(set, may_name_keys=False))

    def when_matched_update_all(self, condition: Expression | None = None) -> Merge:
        """Gives each column of the table's row, but those of its key, the value of the source's column of that name."""
        return self._with(MATCHED, condition, _ALL)

    def when_matched_delete(self, condition: Expression | None = None) -> Merge:
        """Deletes the table's row."""
        return self._with(MATCHED, condition, None)

    def when_not_matched_insert(self, values: Mapping[str, Expression], condition: Expression | None = None) -> Merge:
        """Inserts a row with these values; columns that are not named are null, and the key has to be."""
        missing = sorted(set(self.table.identity) - set(values))
        if missing:
            raise InvalidRequest(f"an insert gives no value to {', '.join(missing)}, by which rows are told apart: add")
        return self._with(NOT_MATCHED, condition, self._checked(values, may_name_keys=True))

    def when_not_matched_insert_all(self, condition: Expression | None = None) -> Merge:
        """Inserts the source's row, which has all columns of the table."""
        return self._with(NOT_MATCHED, condition, _ALL)

    def when_not_matched_by_source_update(
        self, set: Mapping[str, Expression], condition: Expression | None = None
    ) -> Merge:
        """Changes a row of the table that no row of the source matches; see `when_matched_update`."""
        return self._with(NOT_MATCHED_BY_SOURCE, condition, self._checked(set, may_name_keys=False))

    def when_not_matched_by_source_delete(self, condition: Expression | None = None) -> Merge:
        """Deletes a row of the table that no row of the source matches."""
        return self._with(NOT_MATCHED_BY_SOURCE, condition, None)

    def execute(self) -> CommitResult:
        """Commits it. Errors: those of `write`, and `InvalidRequest` for what cannot be understood or is ambiguous."""
        if not self.clauses:
            raise InvalidRequest(
                "a merge without a clause changes nothing: say what is done when rows match, or do not"
            )
        lacking = sorted({field.name for field in self.table.schema} - set(self.source.columns))
        if lacking and any(clause.takes_all for clause in self.clauses):
            raise InvalidRequest(
                f"the source lacks the column(s) {', '.join(lacking)} of the table, and a clause takes all of them: "
                "add them, or name the values"
            )
        # Each try looks again: a column that others have added by then keeps its values.
        return self.commit(lambda: analysed(lambda: self._looked()._rows(), "the merge"))

    def _looked(self) -> Merge:
        source = self.source if self.read_source is None else self.read_source()
        return replace(self, table=self.look(), source=source)

    def _with(self, kind: str, condition: Expression | None, values: Mapping[str, Expression] | None) -> Merge:
        return replace(self, clauses=(*self.clauses, Clause(kind, condition, values)))

    def _checked(self, values: Mapping[str, Expression], may_name_keys: bool) -> Mapping[str, Expression]:
        check_set(values, self.table.schema, () if may_name_keys else self.table.keys)
        return dict(values)

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
        if not self.is_by_key and any(one.kind == NOT_MATCHED for one in self.clauses):
            joined, new = self._guarded(joined, new, inserts)
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
        if MATCHED not in kinds:
            return joined
        identity = [self._old(name) for name in self.table.identity]
        # Rows of the source alone have no such key, and would all come to one task.
        spread = functions.when(~in_target, functions.monotonically_increasing_id())
        joined = joined.withColumn(_COUNT, spread)
        window = Window.partitionBy(*identity, functions.col(_COUNT))
        return joined.withColumn(_COUNT, functions.count(functions.lit(1)).over(window))

    def _values(self, clause: Clause, old: Mapping[str, Column]) -> dict[str, Column]:
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
        return values

    def _guarded(
        self, joined: DataFrame, new: dict[str, Column], inserts: Column
    ) -> tuple[DataFrame, dict[str, Column]]:
        """Refuses inserts of what the table has: it did not match by the condition, and would be written over."""
        from pyspark.sql import functions

        identity = self.table.identity
        known = self.read().select(*[functions.col(name).alias(f"{_KNOWN}_{name}") for name in identity])
        known = known.withColumn(_KNOWN, functions.lit(True))
        same = self.table.same(lambda name: new[name], lambda name: functions.col(f"{_KNOWN}_{name}"))
        joined = joined.join(known, inserts & same, "left")
        words = (
            "the table has a row with ",
            ", which the condition does not match, so an insert would write over it: merge by the key",
        )
        first = self.table.keys[0]
        return joined, {**new, first: checked(new[first], functions.col(_KNOWN), words, identity, new)}

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


def check_set(values: Mapping[str, Expression], schema: StructType, fixed: Sequence[str]) -> None:
    """`InvalidRequest` for columns that the table does not have or whose values cannot change."""
    if not values:
        raise InvalidRequest("no column is given a value: name those that change")
    for name in values:
        if name not in schema.fieldNames():
            raise InvalidRequest(f"{name!r} is no column of the table ({', '.join(schema.fieldNames())})", option="set")
        if name in fixed:
            raise InvalidRequest(
                f"{name!r} is of the record key, by which rows are told apart: delete the row and insert another one",
                option="set",
            )


def _equal_columns(condition: str, tables: tuple[str, str]) -> set[str] | None:
    """The columns that a condition such as `target.a = source.a AND target.b = source.b` speaks of, if it is one."""
    names, sides_of_all = set(), {table.lower() for table in tables}
    for part in re.split(r"\s+and\s+", condition.strip(), flags=re.IGNORECASE):
        sides = re.fullmatch(r"\(?\s*(\w+)\.(\w+)\s*==?\s*(\w+)\.(\w+)\s*\)?", part)
        if sides is None or {sides[1].lower(), sides[3].lower()} != sides_of_all or sides[2] != sides[4]:
            return None
        names.add(sides[2])
    return names
