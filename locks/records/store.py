"""Small records that change by conditional puts only, for services without locks and notifications."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from lakelatch.errors import CorruptTable
from lakelatch.system import System, process_name

OPERATION = "operation"  # in every record: the id of the put that made it, so that no two versions are alike


@dataclass(frozen=True)
class Record:
    """The content of a name at one moment. No other put, of any name or time, makes a record of the same version."""

    value: Mapping[str, Any]
    version: str


@dataclass(frozen=True)
class Put:
    """How a conditional put ended, and the record that is there since, or instead."""

    done: bool
    record: Record | None


class RecordStore(ABC):
    """Named JSON objects, each call atomic, and visible to all callers everywhere once it returned.

    Names are lower-case letters, digits, `-`, `_` and `/`. Calls end in a few seconds, and are never repeated by the
    store or its client library: a put that was sent twice could be refused because of itself. `Unavailable` from a put
    means that it may have happened, or may still happen. `InvalidRequest` is for wrong options, credentials and rights.
    """

    def __init__(self, system: System) -> None:
        self.system = system
        self._origin = f"{process_name()}/{id(self):x}"  # because two simulated systems may draw the same ids

    @abstractmethod
    def get(self, name: str) -> Record | None:
        """The newest record, never an older one."""

    @abstractmethod
    def send(self, name: str, value: Mapping[str, Any], expected: str | None) -> Put | None:
        """Puts the record if the name still has the expected version (None: if there is no record of that name).

        None says that it was refused, and that the store did not say what is there.
        """

    @abstractmethod
    def delete(self, name: str) -> None:
        """Removes a record, whatever its version: only for one that is final, of a name that is never put again."""

    @abstractmethod
    def names(self, prefix: str) -> list[str]:
        """All names that start with a prefix, which ends with `/`."""

    def get_all(self, names: Iterable[str]) -> dict[str, Record]:
        """The records of those names that have one."""
        found = ((name, self.get(name)) for name in names)
        return {name: record for name, record in found if record is not None}

    def advance(self, name: str, at_least: int, count: int) -> int | None:
        """A register, as `Register.advance` has it, if the store has something better for it than a conditional put."""
        return None

    def time_ms(self) -> int | None:
        """The store's own wall clock; None if it does not tell."""
        return None

    @abstractmethod
    def close(self) -> None:
        """Gives up connections."""

    def put(self, name: str, value: Mapping[str, Any], expected: str | None) -> Put:
        """Puts a record if the name still has the expected version.

        A refusal is believed only after reading the record: it may be this very put, whose first answer was lost
        somewhere on the way.
        """
        operation = f"{self.system.new_id()} {self._origin}"
        put = self.send(name, {**value, OPERATION: operation}, expected)
        if put is None:
            put = Put(False, self.get(name))
        if not put.done and put.record is not None and put.record.value.get(OPERATION) == operation:
            return Put(True, put.record)
        return put


def field(record: Record, name: str, kind: type[Any], where: str) -> Any:
    """A field of a record, which must be of this kind."""
    found = record.value.get(name)
    if type(found) is not kind:  # as JSON gives it: true and false are no numbers
        raise CorruptTable(
            f"the lock record {where!r} has {name}={found!r}, which no Lakelatch writer puts there: stop all writers, "
            "and remove the record",
            record=where,
        )
    return found
