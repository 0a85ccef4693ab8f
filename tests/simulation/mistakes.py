"""A mistake that can be planted in the product."""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType


@dataclass(frozen=True)
class Mistake:
    """A method or a function of the product, and pieces of its source with what stands there instead.

    `seeds` is within how many, from `first` on, it has to be found. `stocked`: of runs with table services only;
    `ledger`: of runs on a copy-on-write table; `loads`: of runs with bulk loads; `several`: of runs over
    several tables.
    """

    owner: type | ModuleType
    method: str
    changes: tuple[tuple[str, str], ...]
    seeds: int
    first: int = 0
    stocked: bool = False
    ledger: bool = False
    loads: bool = False
    several: bool = False
