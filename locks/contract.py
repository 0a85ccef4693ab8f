"""The contract of a lock provider: leases for liveness, tokens and registers for order.

A lease keeps writers out of each other's way. It does **not** decide whether data survives: a holder that was paused
longer than its lease wakes up believing that it still holds it, and no lock service can prevent that. What must not
happen twice is decided by a conditional put in the table's storage; the lease only makes such races rare.

Every provider promises:

- A grant's **token** is greater than every earlier one of its key, across crashes of clients and restarts of servers.
- `valid()` turns false *before* the service may grant the key to another; it looks at its own monotonic clock and
  needs no network. A lease that ends without release sets `lost`.
- Releasing what one no longer holds changes nothing and says so.
- A lease that was pickled, or that a forked child inherited, refuses to act.
- Waiting is bounded by the caller's deadline and wakes up when the holder's lease ends, also if the holder crashed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from lakelatch.errors import InvalidRequest
from lakelatch.locks.lease import Lease
from lakelatch.locks.options import PROVIDER, LockOptions, with_place
from lakelatch.storage.uris import without_password
from lakelatch.system import REAL_SYSTEM, System

TABLE_KEY = "table"
WAITERS_MOST = 32  # that are named
IN_TABLE = "table"  # the id of locks that lie in the table itself


def file_group_key(partition: str, file_id: str) -> str:
    """The key of one file group; keys are plain text, and a provider escapes what its service cannot take."""
    return f"file_group/{partition}/{file_id}"


def service_key(service: str) -> str:
    """The key of one table service, for writers that would begin it at the same time; it orders nothing."""
    return f"service/{service}"


@dataclass(frozen=True)
class LockScope:
    """The scope of a provider: one table, its options as the user gave them, and the machine.

    `table_uri` names the table (providers with a service of their own put it into their keys); `options` are the
    write options with Hudi's keys (`hoodie.write.lock.*`), which may hold secrets and are never shown. What all
    providers have in common is parsed here, once; a provider reads its own keys (`BackendOptions`) and no others.

    Errors: `InvalidRequest` for a value that cannot be.
    """

    table_uri: str
    options: Mapping[str, str] = field(repr=False)
    system: System = REAL_SYSTEM
    lock_options: LockOptions = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "options", with_place(self.table_uri, self.options))
        object.__setattr__(self, "lock_options", LockOptions.from_options(self.options))


@dataclass(frozen=True)
class Holder:
    """The holder of a key, for people: `since_ms` is wall-clock time, `waiting` counts those that queue, if known.

    `waiters` are the owners of the first of those, in their order, as far as the service knows them.
    """

    key: str
    owner: str
    token: int
    since_ms: int
    waiting: int | None = None
    waiters: tuple[str, ...] = ()


class Register(ABC):
    """One integer that only grows, shared by all processes that share the table."""

    @abstractmethod
    def advance(self, at_least: int, count: int = 1) -> int:
        """Reserves `count` values, atomically and durably, and returns the first: `max(stored + 1, at_least)`.

        The register then stores the last of them.
        """


class ProviderRegister(Register):
    """A register whose provider advances it: by its key, the least value and the count."""

    def __init__(self, advance: Callable[[str, int, int], int], key: str) -> None:
        self._advance = advance
        self._key = key

    def advance(self, at_least: int, count: int = 1) -> int:
        check_count(count)
        return self._advance(self._key, at_least, count)


def check_count(count: int) -> None:
    """For implementers: refuses a count below one."""
    if count < 1:
        raise InvalidRequest(f"count={count}: at least one value has to be asked for")


class LockProvider(ABC):
    """One lock service, for one table. Construct it with a `LockScope`; connections open on first use, not before."""

    #: The options, by their whole keys, that lead to the service and are no secret: what a table may say of its locks.
    not_secret: ClassVar[frozenset[str]] = frozenset()
    #: Whether the service may lose what it keeps, as one that has it in memory does when it is restarted.
    may_forget: ClassVar[bool] = False

    def __init__(self, scope: LockScope) -> None:
        self.scope = scope

    @property
    def domain(self) -> str:
        """Names the locks that all writers of a table must share: providers that exclude each other say the same.

        It stands in the table's commit log for all to read, so it holds no secret, and no host, since a service
        may have many addresses.
        """
        return type(self).__name__.removesuffix("LockProvider").lower()

    @property
    def taken_by_hudi(self) -> bool:
        """Whether Hudi's own writers take the table's lock too, who are kept away by nothing else."""
        return False

    @property
    def identity(self) -> Hashable:
        """Equal for providers that ask the same service in the same way."""
        return self.domain, self.scope.table_uri

    def record(self) -> dict[str, str]:
        """The options that a table records of its locks for writers that give none: the provider, and no secrets.

        A password within a URL is left out, and so is a URL that cannot be parsed with certainty.
        """
        given = {key: str(self.scope.options.get(key, "")).strip() for key in sorted(self.not_secret)}
        said = {
            key: without_password(value) if key.endswith("url") or "://" in value else value
            for key, value in given.items()
        }
        return {PROVIDER: self.scope.lock_options.provider, **{key: value for key, value in said.items() if value}}

    def ask(self) -> None:
        """Asks the service one question, to hear whether it is there; nothing where there is no service.

        Errors: `Unavailable` or `InvalidRequest`, naming the option that leads to it.
        """
        self.holders(TABLE_KEY)

    def lock_id(self, proposed: str = "") -> str | None:
        """The id that the service keeps for the table's locks, "" if there is none yet; None if it keeps no ids.

        If there is none yet, a proposed one is put, unless another one comes before. Two providers that lead to the
        same locks under whatever names find the same id, and others never do. That of locks that lie in the table
        itself is `IN_TABLE`.

        Errors: those of `ask`. After them a proposed id may have been put.
        """
        return None

    def time_ms(self) -> int | None:
        """The wall clock of the service, for people; None if it does not tell. Errors: those of `ask`."""
        return None

    def __reduce__(self) -> tuple[Any, ...]:
        """A pickled provider is opened anew from its scope; leases, connections and threads do not travel."""
        return type(self), (self.scope,)

    @abstractmethod
    def acquire(self, key: str, timeout_s: float) -> Lease:
        """Takes the lease of a key, or raises `LockTimeout` at the deadline; 0 tries once.

        Leases are not re-entrant: a second acquire of a held key waits, also in the same thread.
        """

    @abstractmethod
    def register(self, key: str) -> Register:
        """The register of a name; it starts at 0."""

    @abstractmethod
    def holders(self, prefix: str = "") -> list[Holder]:
        """The holders of all keys that start with `prefix`, sorted by key: a picture, not a promise."""

    @abstractmethod
    def break_(self, key: str) -> bool:
        """Takes the key away from its holder, whose `valid()` turns false and whose release then changes nothing.

        Returns False if it was free. The next grant has a greater token.
        """

    @abstractmethod
    def close(self) -> None:
        """Gives up connections and threads; leases that are still held are released.

        Threads that wait in `acquire` get `Unavailable` soon, and later calls of `acquire` an `InvalidRequest`.
        """
