"""What a table holds, by dictionaries and lists alone: nothing of the product is imported here, nor of Arrow.

A row is made of groups of columns, each with a value that orders it. A plain table has one group. What a write says of
a group of a key counts if it is not ordered before what is there; without an order the later write counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

Values = dict[str, Any]
Key = tuple[Any, ...]
BEGINNING = "20000101000000000"
UNDER_WAY = ""  # the completion of what has not completed


@dataclass(frozen=True)
class Entry:
    """What one write has said of one group of one key; `values` are None if it deleted it."""

    order: Any
    values: Values | None
    completion: str


State = dict[Key, dict[str, Entry]]  # of each key, by the name of the group; neither is changed once it is there


@dataclass(frozen=True)
class Group:
    """Columns that are written together. `order` names the one that orders them; None: the later write counts."""

    order: str | None
    columns: tuple[str, ...]


@dataclass
class Moment:
    """The table after a commit. `later` is what table services have made of it since, which no reader sees."""

    instant: str
    completion: str
    columns: dict[str, str]
    state: State
    later: State

    def rows(self, after: str = BEGINNING) -> list[Values]:
        """The rows of which something was written after a time."""
        return [self.row(key) for key in self.state if self.is_there(key) and self.written(key) > after]

    def is_there(self, key: Key) -> bool:
        return any(entry.values is not None for entry in self.state.get(key, {}).values())

    def written(self, key: Key) -> str:
        """When the last change of a key completed that counts."""
        return max((entry.completion for entry in self.state.get(key, {}).values()), default="")

    def row(self, key: Key, columns: Mapping[str, str] | None = None) -> Values:
        """One that is there, in the columns of now or in those that are given."""
        found: Values = {}
        for entry in self.state[key].values():
            found.update(entry.values or {})
        return {name: in_column(found.get(name), kind) for name, kind in (columns or self.columns).items()}


@dataclass
class PlainOracle:
    """`key` are the columns that identify a row, those of its folder first. Without `groups` it is one, of `order`.

    With `forgets` a delete leaves nothing behind that an older row would have to be compared with.
    """

    key: tuple[str, ...]
    columns: dict[str, str]
    order: str | None = None
    groups: dict[str, Group] = field(default_factory=dict)
    forgets: bool = False
    state: State = field(default_factory=dict)
    moments: list[Moment] = field(default_factory=list)

    def key_of(self, row: Values) -> Key:
        return tuple(row[name] for name in self.key)

    def write(self, rows: Iterable[Values], deleted: bool = False) -> None:
        """Rows of one commit, or the keys that it deletes; `ended` says when it completed."""
        for row in rows:
            key = self.key_of(row)
            if self.groups:
                self._write_groups(key, row, deleted)
            elif deleted and self.order is not None and row.get(self.order) is None:
                self.state.pop(key, None)
            else:
                self._write_group(key, "", self.order, row, deleted)

    def _write_groups(self, key: Key, row: Values, deleted: bool) -> None:
        orders = [group.order for group in self.groups.values()]
        if deleted and all(order is None or row.get(order) is None for order in orders):
            self.state.pop(key, None)
            return
        identity = {name: row[name] for name in self.key}
        for name, group in self.groups.items():
            if group.order is not None and row.get(group.order) is not None:
                values = {column: row.get(column) for column in (group.order, *group.columns)}
                self._write_group(key, name, group.order, {**identity, **values}, deleted)

    def _write_group(self, key: Key, name: str, order: str | None, values: Values, deleted: bool) -> None:
        there = self.state.get(key, {})
        now = None if order is None else values[order]
        if name in there and now is not None and there[name].order > now:
            return
        rest = {group: entry for group, entry in there.items() if group != name}
        if not (deleted and self.forgets):
            rest[name] = Entry(now, None if deleted else dict(values), UNDER_WAY)
        self.state[key] = rest

    def forget(self, which: Callable[[Key], bool]) -> None:
        """What goes whatever its order, and leaves nothing behind."""
        self.state = {key: entries for key, entries in self.state.items() if not which(key)}

    def forget_deletes(self) -> None:
        """What a service does that keeps no deletes; what is read stays the same."""
        self.state = {
            key: {name: entry for name, entry in entries.items() if entry.values is not None}
            for key, entries in self.state.items()
        }
        if self.moments:
            self.moments[-1].later = dict(self.state)

    def ended(self, instant: str, completion: str) -> None:
        """A commit completed, with everything that was written since the one before."""
        for key, entries in self.state.items():
            if any(entry.completion == UNDER_WAY for entry in entries.values()):
                self.state[key] = {
                    name: replace(entry, completion=entry.completion or completion) for name, entry in entries.items()
                }
        now = dict(self.state)
        self.moments.append(Moment(instant, completion, dict(self.columns), now, now))

    def restored(self, moment: Moment) -> None:
        """Everything after a moment was taken back, services included."""
        del self.moments[self.moments.index(moment) + 1 :]
        moment.later = moment.state
        self._go_on_from(moment, moment.state)

    def rolled_back(self) -> None:
        """The last commit was taken back."""
        self.moments.pop()
        self._go_on_from(self.moments[-1], self.moments[-1].later)

    def _go_on_from(self, moment: Moment, state: State) -> None:
        self.state, self.columns = dict(state), dict(moment.columns)

    def rows(self) -> list[Values]:
        """Those that are there now, as they were written."""
        kept = Moment("", "", self.columns, self.state, self.state)
        return [kept.row(key) for key in self.state if kept.is_there(key)]

    def images(self, begin: int, end: int) -> list[tuple[str, Values | None, Values | None]]:
        """What the commits behind moment `begin` (-1: behind nothing) until `end` did to each key."""
        found: list[tuple[str, Values | None, Values | None]] = []
        columns = self.moments[end].columns
        nothing = Moment("", BEGINNING, columns, {}, {})
        for number in range(begin + 1, end + 1):
            old, new = (self.moments[number - 1] if number else nothing), self.moments[number]
            for key in {**old.state, **new.state}:
                before = old.row(key, columns) if old.is_there(key) else None
                after = new.row(key, columns) if new.is_there(key) else None
                if before is not None and after is not None:
                    if new.written(key) == new.completion:
                        found.append(("u", before, after))
                elif before is not None or after is not None:
                    found.append(("d" if after is None else "i", before, after))
        return found


def in_column(value: Any, kind: str) -> Any:
    """A value of a column that may have become a text since."""
    return str(value) if value is not None and kind == "string" else value
