"""Transactions on etcd's keys as values, which become messages of the client library at hand.

`make` is that library's generated module.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any


def end_of(prefix: str) -> bytes:
    """The first key after all that start with a prefix."""
    start = prefix.encode()
    return start[:-1] + bytes([start[-1] + 1])


@dataclass(frozen=True)
class Unchanged:
    """A condition: the key was last written at this revision; 0 means that it does not exist."""

    key: str
    revision: int

    def message(self, make: Any) -> Any:
        kind = make.Compare
        return kind(result=kind.EQUAL, target=kind.MOD, key=self.key.encode(), mod_revision=self.revision)


@dataclass(frozen=True)
class Created:
    """A condition: the key was created at this revision; 0 means that it does not exist. Of a prefix: no such key."""

    key: str
    revision: int = 0
    prefix: bool = False

    def message(self, make: Any) -> Any:
        kind, end = make.Compare, end_of(self.key) if self.prefix else b""
        key = self.key.encode()
        return kind(result=kind.EQUAL, target=kind.CREATE, key=key, create_revision=self.revision, range_end=end)


@dataclass(frozen=True)
class Exists:
    """A condition: the key exists."""

    key: str

    def message(self, make: Any) -> Any:
        kind = make.Compare
        return kind(result=kind.GREATER, target=kind.CREATE, key=self.key.encode(), create_revision=0)


@dataclass(frozen=True)
class Put:
    """Writes a key, attached to a lease if that is not 0."""

    key: str
    value: str
    lease: int = 0

    def message(self, make: Any) -> Any:
        put = make.PutRequest(key=self.key.encode(), value=self.value.encode(), lease=self.lease)
        return make.RequestOp(request_put=put)


@dataclass(frozen=True)
class Rewrite:
    """Writes a key that exists, with its lease, and with its value unless a new one is given."""

    key: str
    value: str | None = None

    def message(self, make: Any) -> Any:
        value, same = (self.value or "").encode(), self.value is None
        put = make.PutRequest(key=self.key.encode(), value=value, ignore_lease=True, ignore_value=same)
        return make.RequestOp(request_put=put)


@dataclass(frozen=True)
class Delete:
    """Deletes a key; the result is how many there were."""

    key: str

    def message(self, make: Any) -> Any:
        return make.RequestOp(request_delete_range=make.DeleteRangeRequest(key=self.key.encode()))


@dataclass(frozen=True)
class Read:
    """Reads a key; the result is a list of the client's key-value messages."""

    key: str

    def message(self, make: Any) -> Any:
        return make.RequestOp(request_range=make.RangeRequest(key=self.key.encode()))


@dataclass(frozen=True)
class ReadAll:
    """Reads keys by their prefix, in order of creation, `newest` first or last; none that was created `after`.

    `bare` leaves their values out.
    """

    prefix: str
    limit: int = 0
    newest: bool = False
    after: int = 0
    bare: bool = False

    def message(self, make: Any) -> Any:
        found = make.RangeRequest(
            key=self.prefix.encode(),
            range_end=end_of(self.prefix),
            limit=self.limit,
            keys_only=self.bare,
            sort_order=make.RangeRequest.DESCEND if self.newest else make.RangeRequest.ASCEND,
            sort_target=make.RangeRequest.CREATE,
            max_create_revision=self.after,
        )
        return make.RequestOp(request_range=found)


Condition = Unchanged | Created | Exists
Operation = Put | Rewrite | Delete | Read | ReadAll


@dataclass(frozen=True)
class Done:
    """The outcome of a transaction: whether its conditions held, at which revision, and each operation's result."""

    held: bool
    revision: int
    results: Sequence[Any]

    @classmethod
    def of(cls, answer: Any) -> Done:
        """Reads the client library's answer."""
        return cls(answer.succeeded, answer.header.revision, [_result(each) for each in answer.responses])


def transaction(
    make: Any, conditions: Iterable[Condition], then: Iterable[Operation], otherwise: Iterable[Operation]
) -> Any:
    """The request that does `then` if all conditions hold, and else `otherwise`."""
    return make.TxnRequest(
        compare=[each.message(make) for each in conditions],
        success=[each.message(make) for each in then],
        failure=[each.message(make) for each in otherwise],
    )


def _result(response: Any) -> Any:
    kind = response.WhichOneof("response")
    if kind == "response_range":
        return list(response.response_range.kvs)
    return response.response_delete_range.deleted if kind == "response_delete_range" else None
