"""The clauses of a merge: what is done with rows that match, and with those that do not."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Protocol, TypeVar

from lakelatch.errors import InvalidRequest
from lakelatch.notebook import html_of, html_rows
from lakelatch.timeline.actions import INSERT_OVERWRITE, INSERT_OVERWRITE_TABLE
from lakelatch.timeline.table_config import EVENT_TIME, TableConfig

MATCHED, NOT_MATCHED, NOT_MATCHED_BY_SOURCE = "matched", "not matched", "not matched by source"
ALL: Mapping[str, Any] = {}  # of an update or insert of all columns
#: What is said of a row, before and after the words that name it.
WRITTEN_OVER = (
    "the table has a row with ",
    ", which the condition does not match, so an insert would write over it: merge by the key, and insert the source's",
)
INSERTED_TWICE = (
    "more than one row of the source would be the new row with ",
    ", and the table has no ordering field to say which one is wanted: make the source's keys unique first",
)

E = TypeVar("E")
M = TypeVar("M", bound="MergeClauses[Any]")


@dataclass(frozen=True)
class Clause(Generic[E]):
    """The action for rows of one kind: they are deleted where there are no `values`, else given these."""

    kind: str
    condition: E | None
    values: Mapping[str, E] | None

    @property
    def deletes(self) -> bool:
        return self.values is None

    @property
    def takes_all(self) -> bool:
        """Whether every column is the source's of that name."""
        return self.values is ALL

    def takes(self, names: Collection[str], is_source_s: Callable[[E, str], bool]) -> bool:
        """Whether these columns are the source's of those names."""
        given = self.values or {}
        return self.takes_all or all(name in given and is_source_s(given[name], name) for name in names)

    def parts(self) -> tuple[str, str, str]:
        """Its kind, its condition, and what it does, as texts."""
        values = (f"{name} = {one}" for name, one in (self.values or {}).items())
        given = "all columns" if self.takes_all else ", ".join(values)
        action = "delete" if self.deletes else f"{'insert' if self.kind == NOT_MATCHED else 'update'} {given}"
        return self.kind, "" if self.condition is None else str(self.condition), action

    def __str__(self) -> str:
        kind, condition, action = self.parts()
        return f"when {kind}{f' and {condition}' if condition else ''}: {action}"


class Merged(Protocol):
    """The table of a merge: its columns, those of its record key, and those that say which row one is."""

    @property
    def names(self) -> Sequence[str]: ...

    @property
    def keys(self) -> tuple[str, ...]: ...

    @property
    def identity(self) -> tuple[str, ...]: ...


class MergeClauses(ABC, Generic[E]):
    """A merge that is being described, whose conditions and values are of type `E`. Subclasses are dataclasses.

    Each method returns another merge, with one clause more.
    """

    clauses: tuple[Clause[E], ...]

    @property
    @abstractmethod
    def into(self) -> Merged:
        """The table that is merged into."""

    @property
    @abstractmethod
    def source_names(self) -> Collection[str]:
        """The columns of the source."""

    def when_matched_update(self: M, set: Mapping[str, E], condition: E | None = None) -> M:
        """Gives these columns of the table's row other values. Errors: `InvalidRequest` for a column of the key."""
        return self._with(MATCHED, condition, self._checked(set, may_name_keys=False))

    def when_matched_update_all(self: M, condition: E | None = None) -> M:
        """Gives each column of the table's row, but those of its key, the value of the source's column of that name."""
        return self._with(MATCHED, condition, ALL)

    def when_matched_delete(self: M, condition: E | None = None) -> M:
        """Deletes the table's row."""
        return self._with(MATCHED, condition, None)

    def when_not_matched_insert(self: M, values: Mapping[str, E], condition: E | None = None) -> M:
        """Inserts a row with these values; columns that are not named are null, and the key has to be."""
        missing = sorted({*self.into.identity} - {*values})
        if missing:
            raise InvalidRequest(f"an insert gives no value to {', '.join(missing)}, by which rows are told apart: add")
        return self._with(NOT_MATCHED, condition, self._checked(values, may_name_keys=True))

    def when_not_matched_insert_all(self: M, condition: E | None = None) -> M:
        """Inserts the source's row, which has all columns of the table."""
        return self._with(NOT_MATCHED, condition, ALL)

    def when_not_matched_by_source_update(self: M, set: Mapping[str, E], condition: E | None = None) -> M:
        """Changes a row of the table that no row of the source matches; see `when_matched_update`."""
        return self._with(NOT_MATCHED_BY_SOURCE, condition, self._checked(set, may_name_keys=False))

    def when_not_matched_by_source_delete(self: M, condition: E | None = None) -> M:
        """Deletes a row of the table that no row of the source matches."""
        return self._with(NOT_MATCHED_BY_SOURCE, condition, None)

    def __repr__(self) -> str:
        """One line, without the rows of the source."""
        return f"Merge({'; '.join(map(str, self.clauses)) or 'no clause yet'})"

    def _repr_html_(self) -> str:
        """The clauses as a table, for notebooks."""
        if not self.clauses:
            return html_of({"merge": "no clause yet"})
        return html_rows(["when", "and", "then"], (clause.parts() for clause in self.clauses), len(self.clauses))

    def check_clauses(self) -> None:
        """`InvalidRequest` for a merge without a clause, and for a source that lacks columns which one takes."""
        if not self.clauses:
            raise InvalidRequest(
                "a merge without a clause changes nothing: say what is done when rows match, or do not"
            )
        lacking = sorted({*self.into.names} - {*self.source_names})
        if lacking and any(clause.takes_all for clause in self.clauses):
            raise InvalidRequest(
                f"the source lacks the column(s) {', '.join(lacking)} of the table, and a clause takes all of them: "
                "add them, or name the values"
            )

    def _with(self: M, kind: str, condition: Any, values: Mapping[str, Any] | None) -> M:
        described: Any = self
        made: M = replace(described, clauses=(*self.clauses, Clause(kind, condition, values)))
        return made

    def _checked(self, values: Mapping[str, E], may_name_keys: bool) -> Mapping[str, E]:
        check_set(values, self.into.names, () if may_name_keys else self.into.keys)
        return dict(values)


def check_set(values: Mapping[str, Any], names: Sequence[str], fixed: Collection[str]) -> None:
    """`InvalidRequest` for columns that the table does not have or whose values cannot change."""
    if not values:
        raise InvalidRequest("no column is given a value: name those that change")
    for name in values:
        if name not in names:
            raise InvalidRequest(f"{name!r} is no column of the table ({', '.join(names)})", option="set")
        if name in fixed:
            raise InvalidRequest(
                f"{name!r} is of the record key, by which rows are told apart: delete the row and insert another one",
                option="set",
            )


def refuse_times(config: TableConfig, what: str) -> None:
    """`InvalidRequest` for `what` compares values of times with folders'."""
    if config.time_fields:
        raise InvalidRequest(
            f"the table {config.name!r} makes folders of times ({', '.join(config.time_fields)}): {what} would "
            "take rows of one folder for those of several. Use upsert, delete, and update of other columns"
        )


def operation_of_overwrite(partitions: str, condition: object | None) -> str:
    """The operation of an overwrite without a condition. Errors: `InvalidRequest` for arguments that do not agree."""
    operations = {"all": INSERT_OVERWRITE_TABLE, "touched": INSERT_OVERWRITE}
    if partitions not in operations or (condition is not None and partitions != "all"):
        raise InvalidRequest(
            f"partitions={partitions!r}: it is 'all' or 'touched', and goes without a condition",
            option="partitions",
        )
    return operations[partitions]


def chooses_by_order(config: TableConfig) -> bool:
    """Whether ordering values say which of several rows of one key is read."""
    return bool(config.column_groups) or (config.ordering_field is not None and config.merge_mode == EVENT_TIME)
