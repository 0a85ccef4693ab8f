"""What is asked of etcd's keys: transactions as values, and their translation to the client's generated messages."""

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


@dataclass(frozen=True)
class Created:
    """A condition: the key was created at this revision; 0 means that it does not exist. Of a prefix: no such key."""

    key: str
    revision: int = 0
    prefix: bool = False


@dataclass(frozen=True)
class Exists:
    """A condition: the key exists."""

    key: str


@dataclass(frozen=True)
class Put:
    """Writes a key, attached to a lease if that is not 0."""

    key: str
    value: str
    lease: int = 0


@dataclass(frozen=True)
class Rewrite:
    """Writes a key that exists, with its lease, and with its value unless a new one is given."""

    key: str
    value: str | None = None


@dataclass(frozen=True)
class Delete:
    """Deletes a key; the result is how many there were."""

    key: str


@dataclass(frozen=True)
class Read:
    """Reads a key; the result is a list of the client's key-value messages."""

    key: str


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


Condition = Unchanged | Created | Exists
Operation = Put | Rewrite | Delete | Read | ReadAll


@dataclass(frozen=True)
class Done:
    """How a transaction went: whether its conditions held, at which revision, and each operation's result."""

    held: bool
    revision: int
    results: Sequence[Any]


class Messages:
    """Translates for one client library, whose generated module it is given."""

    def __init__(self, generated: Any) -> None:
        self._make = generated

    def transaction(
        self, conditions: Iterable[Condition], then: Iterable[Operation], otherwise: Iterable[Operation]
    ) -> Any:
        return self._make.TxnRequest(
            compare=[self._condition(each) for each in conditions],
            success=[self._operation(each) for each in then],
            failure=[self._operation(each) for each in otherwise],
        )

    def done(self, answer: Any) -> Done:
        return Done(answer.succeeded, answer.header.revision, [_result(each) for each in answer.responses])

    def _condition(self, condition: Condition) -> Any:
        make = self._make.Compare
        key = condition.key.encode()
        if isinstance(condition, Unchanged):
            return make(result=make.EQUAL, target=make.MOD, key=key, mod_revision=condition.revision)
        if isinstance(condition, Exists):
            return make(result=make.GREATER, target=make.CREATE, key=key, create_revision=0)
        found = make(result=make.EQUAL, target=make.CREATE, key=key, create_revision=condition.revision)
        if condition.prefix:
            found.range_end = end_of(condition.key)
        return found

    def _operation(self, operation: Operation) -> Any:
        make = self._make
        if isinstance(operation, Put):
            value = operation.value.encode()
            put = make.PutRequest(key=operation.key.encode(), value=value, lease=operation.lease)
            return make.RequestOp(request_put=put)
        if isinstance(operation, Rewrite):
            put = make.PutRequest(key=operation.key.encode(), ignore_lease=True, ignore_value=operation.value is None)
            if operation.value is not None:
                put.value = operation.value.encode()
            return make.RequestOp(request_put=put)
        if isinstance(operation, Delete):
            return make.RequestOp(request_delete_range=make.DeleteRangeRequest(key=operation.key.encode()))
        if isinstance(operation, Read):
            return make.RequestOp(request_range=make.RangeRequest(key=operation.key.encode()))
        return make.RequestOp(request_range=self._all(operation))

    def _all(self, operation: ReadAll) -> Any:
        make = self._make.RangeRequest
        return make(
            key=operation.prefix.encode(),
            range_end=end_of(operation.prefix),
            limit=operation.limit,
            keys_only=operation.bare,
            sort_order=make.DESCEND if operation.newest else make.ASCEND,
            sort_target=make.CREATE,
            max_create_revision=operation.after,
        )


def _result(response: Any) -> Any:
    kind = response.WhichOneof("response")
    if kind == "response_range":
        return list(response.response_range.kvs)
    return response.response_delete_range.deleted if kind == "response_delete_range" else None
