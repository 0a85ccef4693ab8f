"""Merging rows of Arrow into a table: clauses in the order in which they were given, one commit.

The source is held in memory, and the table's rows pass by it in parts, inside the transaction, and anew after a
conflict. Each row takes the first clause that applies to it, and one that takes none stays as it is and is not written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakelatch.engine.changes.changed import Changes, flagged, with_values
from lakelatch.engine.changes.clauses import (
    INSERTED_TWICE,
    MATCHED,
    NOT_MATCHED,
    NOT_MATCHED_BY_SOURCE,
    WRITTEN_OVER,
    Clause,
    MergeClauses,
    chooses_by_order,
)
from lakelatch.engine.changes.identity import Identity, Reader
from lakelatch.engine.sql.expressions import (
    SOURCE,
    TARGET,
    Expression,
    check_condition,
    equal_columns,
    held_by,
    named_columns,
    stored_as,
)
from lakelatch.errors import InvalidRequest
from lakelatch.timeline.table_config import TableConfig

if TYPE_CHECKING:
    from lakelatch.engine.run.result import CommitResult

_PART_ROWS = 500_000  # of the table that are joined at once
_COMPARED_MOST = 1000  # rows of a source that are compared with each of the table's
_PAIRS_AT_ONCE, _MATCHES_MOST = 1_000_000, 10_000_000
_LEFT, _RIGHT, _IDENTITY = "_lakelatch_left", "_lakelatch_right", "_lakelatch_identity"


@dataclass(frozen=True)
class MergedTable:
    """The parts of its table that a merge has to know."""

    schema: pa.Schema
    config: TableConfig

    @property
    def names(self) -> list[str]:
        """Its columns."""
        return list(self.schema.names)

    @property
    def keys(self) -> tuple[str, ...]:
        return self.config.record_key_fields

    @property
    def identity(self) -> tuple[str, ...]:
        """The columns that say which row one is: two partitions may hold the same key."""
        return Identity(self.config).names


@dataclass(frozen=True, repr=False)
class Merge(MergeClauses[Expression]):
    """A merge that is being described. Every method but `execute` returns another one, with one clause more.

    In conditions and values, columns of the table are `target.name` and those of the source `source.name`. Without a
    condition rows are the same that have the same record key and partition; one is best that says that columns of both
    are equal, as in `target.id = source.id AND source.n > 3`, and any other will do for a small source. A row of the
    table that more than one row of the source would change ends the merge (`InvalidRequest`), with nothing changed.
    """

    table: MergedTable
    source: pa.Table
    condition: str | None
    look: Callable[[], MergedTable]
    read: Reader
    commit: Callable[[pa.Schema, Callable[[], pa.Table]], CommitResult]
    clauses: tuple[Clause[Expression], ...] = ()

    @property
    def into(self) -> MergedTable:
        return self.table

    @property
    def source_names(self) -> list[str]:
        return list(self.source.column_names)

    def execute(self) -> CommitResult:
        """Commits it. Errors: those of `write`, and `InvalidRequest` for what cannot be understood or is ambiguous."""
        self.check_clauses()
        self._check(self.table.schema.empty_table(), self.source.slice(0, 0))
        if self.condition is not None and not self._equalities() and self.source.num_rows > _COMPARED_MOST:
            raise InvalidRequest(
                f"the condition {self.condition!r} says of no column of the table that it is equal to one of the "
                f"source, so each row of the one is compared with each of the other, which is done for at most "
                f"{_COMPARED_MOST:,} rows of the source, and it has {self.source.num_rows:,}: say so first, as in "
                "'target.id = source.id AND ...', or merge in parts"
            )
        # Each try looks again: a column that others have added by then keeps its values.
        return self.commit(flagged(self.table.schema), lambda: replace(self, table=self.look())._rows())

    def _check(self, old: pa.Table, given: pa.Table) -> None:
        """Errors: those of `execute` that need no row; the tables are empty."""
        both = _side_by_side(old, given)
        for condition in (self.condition, *(clause.condition for clause in self.clauses)):
            check_condition(condition, both.schema)
        for clause in self.clauses:
            if not clause.deletes:
                self._new(clause, old, both)
        if self.condition is None:
            _ = self._keyed

    def _equalities(self) -> list[tuple[str, str]]:
        names = [f"{TARGET}.{name}" for name in self.table.names], [f"{SOURCE}.{name}" for name in self.source_names]
        pairs = equal_columns(self.condition or "", *names)
        return [(one.partition(".")[2], other.partition(".")[2]) for one, other in pairs]

    def _rows(self) -> pa.Table:
        """The rows for the upsert."""
        made = Changes(self.table.schema, self.table.config, self.read)
        kinds = {clause.kind for clause in self.clauses}
        matched = np.zeros(self.source.num_rows, np.bool_)
        for part in self._table_parts(NOT_MATCHED_BY_SOURCE in kinds):
            lefts, rights = self._pairs(part)
            matched[rights] = True
            self._change(made, MATCHED, part.take(lefts), self.source.take(rights), lefts)
            if NOT_MATCHED_BY_SOURCE in kinds:
                alone = part.take(np.setdiff1d(np.arange(part.num_rows), lefts))
                self._change(made, NOT_MATCHED_BY_SOURCE, alone, _nulls(self.source.schema, alone.num_rows))
        if NOT_MATCHED in kinds:
            alone = self.source.filter(pa.array(~matched))
            self._change(made, NOT_MATCHED, _nulls(self.table.schema, alone.num_rows), alone)
        return made.rows()

    def _table_parts(self, all_rows: bool) -> Iterator[pa.Table]:
        """The table's rows, of which those that no row of the source can match may be left out."""
        identity = Identity(self.table.config)
        by_key = self.condition is None and not all_rows
        conditions = identity.conditions(self._keyed) if by_key else ()
        held: list[pa.Table] = []
        for rows in self.read(self.table.names, conditions):
            held.append(rows)
            if sum(one.num_rows for one in held) >= _PART_ROWS:
                yield pa.concat_tables(held)
                held = []
        if held:
            yield pa.concat_tables(held)

    @cached_property
    def _keyed(self) -> pa.Table:
        """The source's rows, whose columns of the key have the table's types. Errors: `InvalidRequest`."""
        rows = self.source
        for name in self.table.identity:
            if name not in rows.column_names:
                raise InvalidRequest(
                    f"the source lacks the column {name!r}, by which rows are told apart: add it, or say with a "
                    "condition which rows match"
                )
            place, field = rows.schema.get_field_index(name), self.table.schema.field(name)
            rows = rows.set_column(place, field, stored_as(rows[name], field))
        return rows

    def _pairs(self, part: pa.Table) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Which rows of the part and of the source match: their numbers, in order."""
        if self.condition is None:
            identity = Identity(self.table.config)
            columns = [(identity.texts(part), identity.texts(self._keyed))]
        elif not self._equalities():
            return self._compared(part, self.condition)
        else:
            columns = [
                (part[one], stored_as(self.source[other], self.table.schema.field(one)))
                for one, other in self._equalities()
            ]
        names = [f"{_IDENTITY}{place}" for place in range(len(columns))]
        left = pa.table([one for one, _ in columns], names=names).append_column(_LEFT, _numbers(part))
        right = pa.table([other for _, other in columns], names=names).append_column(_RIGHT, _numbers(self.source))
        found = left.join(right, names, join_type="inner", use_threads=False).select([_LEFT, _RIGHT])
        found = found.sort_by([(_LEFT, "ascending"), (_RIGHT, "ascending")])
        if self.condition is not None and found.num_rows:
            both = _side_by_side(part.take(found[_LEFT]), self.source.take(found[_RIGHT]))
            found = found.filter(held_by(self.condition, both))
        return found[_LEFT].to_numpy(), found[_RIGHT].to_numpy()

    def _compared(self, part: pa.Table, condition: str) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Which rows match under a condition by which nothing is joined: each is looked at beside each, in blocks."""
        both = [f"{TARGET}.{name}" for name in part.column_names] + [f"{SOURCE}.{name}" for name in self.source_names]
        used = named_columns(condition, both) or both[:1]
        left = part.select([one.partition(".")[2] for one in used if one.startswith(f"{TARGET}.")])
        right = self.source.select([one.partition(".")[2] for one in used if one.startswith(f"{SOURCE}.")])
        step = max(1, _PAIRS_AT_ONCE // max(part.num_rows, 1))
        lefts, rights = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        for first in range(0, self.source.num_rows, step):
            numbers = np.arange(first, min(first + step, self.source.num_rows))
            each = np.repeat(np.arange(part.num_rows), len(numbers)), np.tile(numbers, part.num_rows)
            seen = _side_by_side(left.take(each[0]), right.take(each[1]))
            hit = held_by(condition, seen).to_numpy(zero_copy_only=False)
            lefts.append(each[0][hit])
            rights.append(each[1][hit])
            if sum(map(len, lefts)) > _MATCHES_MOST:
                raise InvalidRequest(
                    f"the condition {condition!r} matches more than {_MATCHES_MOST:,} pairs of rows: say more of what "
                    "belongs together"
                )
        found = np.concatenate(lefts), np.concatenate(rights)
        order = np.lexsort(found[::-1])
        return found[0][order], found[1][order]

    def _change(
        self,
        made: Changes,
        kind: str,
        old: pa.Table,
        given: pa.Table,
        numbers: npt.NDArray[np.int64] | None = None,
    ) -> None:
        """Adds the rows for the upsert from rows of one kind, side by side; `numbers` tell those of the table apart."""
        both = _side_by_side(old, given)
        clause_of = self._clause_of(kind, both)
        if numbers is not None:
            self._refuse_several(old, clause_of, numbers)
        inserted = [self.table.schema.empty_table()]
        for number, clause in enumerate(self.clauses):
            chosen = pa.array(clause_of == number)
            before, seen = old.filter(chosen), both.filter(chosen)
            if not before.num_rows:
                continue
            if clause.deletes:
                made.add(before, True)
            elif kind == NOT_MATCHED:
                added = self._new(clause, before, seen)
                self._refuse_known(clause, added)
                made.add(added, False)
                inserted.append(added)
            else:
                made.change(before, self._new(clause, before, seen))
        if not chooses_by_order(self.table.config):
            self._refuse_twice(pa.concat_tables(inserted))

    def _clause_of(self, kind: str, both: pa.Table) -> npt.NDArray[np.int64]:
        """The number of the clause that each row takes, -1 if none."""
        found = np.full(both.num_rows, -1)
        for number, clause in reversed(list(enumerate(self.clauses))):
            if clause.kind == kind:
                hit = np.ones(both.num_rows, np.bool_)
                if clause.condition is not None:
                    hit = held_by(clause.condition, both).to_numpy(zero_copy_only=False)
                found[hit] = number
        return found

    def _new(self, clause: Clause[Expression], old: pa.Table, seen: pa.Table) -> pa.Table:
        if not clause.takes_all:
            return with_values(old, clause.values or {}, seen)
        kept = self.table.keys if clause.kind == MATCHED else ()
        taken = {*self.source_names} - {*kept}  # all but what others have added since
        columns = [
            stored_as(seen[f"{SOURCE}.{field.name}"], field) if field.name in taken else old[field.name]
            for field in old.schema
        ]
        return pa.table(columns, schema=old.schema)

    def _refuse_several(self, old: pa.Table, clause_of: npt.NDArray[np.int64], numbers: npt.NDArray[np.int64]) -> None:
        """`InvalidRequest` for a row of the table to which more than one row of the source gives values."""
        deletes = np.array([clause.deletes for clause in self.clauses])
        taken = np.flatnonzero(clause_of >= 0)
        if not len(taken):
            return
        several = np.bincount(numbers[taken])[numbers[taken]] > 1
        wrong = taken[several & ~deletes[clause_of[taken]]]
        if len(wrong):
            raise InvalidRequest(
                f"the row with {Identity(self.table.config).shown(old, int(wrong[0]))} is matched by more than one row "
                "of the source: make its keys unique first"
            )

    def _refuse_twice(self, added: pa.Table) -> None:
        """`InvalidRequest` for two new rows that would be one, of which nothing says which is wanted."""
        identity = Identity(self.table.config)
        several = identity.twice(added, added)
        if pc.any(several, min_count=0).as_py():
            before, after = INSERTED_TWICE
            raise InvalidRequest(f"{before}{identity.shown(added, pc.index(several, True).as_py())}{after}")

    def _refuse_known(self, clause: Clause[Expression], added: pa.Table) -> None:
        """`InvalidRequest` for inserts of what the table has: nothing matched it, and it would be lost."""
        names = self.table.identity
        if self.condition is None and clause.takes(names, lambda value, name: value == f"{SOURCE}.{name}"):
            return
        identity = Identity(self.table.config)
        known = identity.known(added, self.read)
        if pc.any(known, min_count=0).as_py():
            before, after = WRITTEN_OVER
            raise InvalidRequest(f"{before}{identity.shown(added, pc.index(known, True).as_py())}{after}")


def _side_by_side(old: pa.Table, given: pa.Table) -> pa.Table:
    names = [f"{TARGET}.{name}" for name in old.column_names] + [f"{SOURCE}.{name}" for name in given.column_names]
    return pa.table([*old.columns, *given.columns], names=names)


def _nulls(schema: pa.Schema, count: int) -> pa.Table:
    return pa.table([pa.nulls(count, field.type) for field in schema], schema=schema)


def _numbers(rows: pa.Table) -> pa.Array:
    return pa.array(np.arange(rows.num_rows))
