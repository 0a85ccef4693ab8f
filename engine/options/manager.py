"""The options of a transaction manager."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from lakelatch.option_values import ParsedOptions
from lakelatch.storage.options import StorageOptions
from lakelatch.transactions.base.settings import TransactionSettings


@dataclass(frozen=True)
class ManagerOptions(ParsedOptions):
    """The options of a transaction manager.

    `scope` is passed to the lock provider and the time generator, which may come from other packages and read keys of
    their own; it may hold secrets and is never shown.
    """

    transactions: TransactionSettings = field(default_factory=TransactionSettings)
    storage: StorageOptions = field(default_factory=StorageOptions)
    scope: Mapping[str, str] = field(default_factory=dict, repr=False)

    def completed(self, values: Mapping[str, str]) -> ManagerOptions:
        return replace(self, scope=values)
