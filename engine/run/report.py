"""What keeping a table has done, service by service."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

DONE = "done"
SCHEDULED = "scheduled"
LEFT = "left to others"
CANCELLED = "cancelled"
FAILED = "failed"


@dataclass(frozen=True)
class ServiceRun:
    """One thing that a service did: `instant` names it on the timeline, if it is there, and `detail` says what came
    of it, or why it failed."""

    service: str
    outcome: str
    instant: str = ""
    detail: str = ""
    seconds: float = 0.0

    def __str__(self) -> str:
        head = " ".join(part for part in (self.service, self.instant, self.outcome) if part)
        return f"{head} in {self.seconds:.1f} s" + (f": {self.detail}" if self.detail else "")


@dataclass(frozen=True)
class MaintenanceReport:
    """What was done, in order; nothing, if nothing was due. A service that failed kept no other from running."""

    path: str
    runs: tuple[ServiceRun, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether nothing failed."""
        return not self.failed

    @property
    def failed(self) -> tuple[ServiceRun, ...]:
        """What failed, and is tried again the next time."""
        return tuple(run for run in self.runs if run.outcome == FAILED)

    def to_json(self) -> Mapping[str, Any]:
        return {"table": self.path, "ok": self.ok, "runs": [asdict(run) for run in self.runs]}
