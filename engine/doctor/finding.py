"""What the doctor is given, and what it finds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from lakelatch.engine.options.table_services.services import ServiceOptions
from lakelatch.locks.contract import LockProvider
from lakelatch.storage.contract import Storage
from lakelatch.system import REAL_SYSTEM, System
from lakelatch.timeline.table_config import TableConfig

NOT_CHECKED = "not-checked"
OF_ONE_MACHINE = ("filesystem", "inprocess")  # kinds of locks, which also have no lease time


@dataclass(frozen=True)
class Finding:
    """One thing that is not as it should be: a fact, the reason why it matters, and what mends it."""

    code: str
    fact: str
    reason: str
    mend: str


@dataclass(frozen=True)
class Limits:
    """From where on something is a finding.

    `skew_s`: between two clocks. `plan_age_s`: of a plan that nobody carries out. `slots`: of the commit log.
    `bucket_times`, `bucket_bytes`: of a file group, against the median of its partition. `log_share`: of the bytes of
    log files, against those of base files. `groups`: the file groups that are measured at most.
    """

    skew_s: float = 1.0
    plan_age_s: float = 3600.0
    slots: int = 256
    bucket_times: float = 8.0
    bucket_bytes: int = 128 * 1024 * 1024
    log_share: float = 1.0
    log_bytes: int = 64 * 1024 * 1024
    groups: int = 2000


@dataclass(frozen=True)
class Patient:
    """A table, the options of a writer, and the locks to which they lead.

    `child_s` bounds what the second process of a check may take, and `lock_s` a wait for a scratch lock.
    """

    storage: Storage
    config: TableConfig
    options: ServiceOptions
    given: Mapping[str, str] = field(repr=False)
    provider: LockProvider
    child_s: float
    limits: Limits = field(default_factory=Limits)
    lock_s: float = 5.0
    system: System = REAL_SYSTEM

    @property
    def name(self) -> str:
        """The table, for a command."""
        return self.storage.uri.removeprefix("file://")


Check: TypeAlias = Callable[[Patient], Iterator[Finding]]
"""One check; an error of it says that it could not be made."""
