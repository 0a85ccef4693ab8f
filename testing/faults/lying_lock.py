"""The worst lock provider there can be, to show that a table's safety does not rest on locks."""

from __future__ import annotations

from lakelatch.locks.contract import Holder, LockProvider, LockScope, Register, check_count
from lakelatch.locks.lease import Lease
from lakelatch.system import process_name


class LyingLockProvider(LockProvider):
    """Grants every key to everyone at once, calls each lease valid for ever, and every instance counts for itself.

    Tokens and registers thus repeat between instances, as with a service that has lost its memory.
    """

    def __init__(self, scope: LockScope) -> None:
        super().__init__(scope)
        self._tokens: dict[str, _OwnRegister] = {}
        self._registers: dict[str, _OwnRegister] = {}

    @property
    def domain(self) -> str:
        """Empty, so that it may be used whatever locks the others have."""
        return ""

    def acquire(self, key: str, timeout_s: float) -> Lease:
        token = self._tokens.setdefault(key, _OwnRegister()).advance(0)
        return _LyingLease(key, token, process_name(), self.scope.system, None, lambda _: True)

    def register(self, key: str) -> Register:
        return self._registers.setdefault(key, _OwnRegister())

    def holders(self, prefix: str = "") -> list[Holder]:
        return []

    def break_(self, key: str) -> bool:
        return True

    def close(self) -> None:
        pass


class _LyingLease(Lease):
    def valid(self) -> bool:
        return True


class _OwnRegister(Register):
    def __init__(self) -> None:
        self._stored = 0

    def advance(self, at_least: int, count: int = 1) -> int:
        check_count(count)
        first = max(self._stored + 1, at_least)
        self._stored = first + count - 1
        return first
