"""Reports of table maintenance, service by service."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from lakelatch.notebook import Shown, html_of, html_rows

DONE = "done"
SCHEDULED = "scheduled"
LEFT = "left to others"
CANCELLED = "cancelled"
FAILED = "failed"


@dataclass(frozen=True)
class ServiceRun(Shown):
    """One run of a service: its `instant` on the timeline, if it has one, and its result, or why it failed, as
    `detail`."""

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
    """The services that ran, in order; none if nothing was due. A failed service does not stop the others."""

    path: str
    runs: tuple[ServiceRun, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether nothing failed."""
        return not self.failed

    @property
    def failed(self) -> tuple[ServiceRun, ...]:
        """The runs that failed, which are tried again the next time."""
        return tuple(run for run in self.runs if run.outcome == FAILED)

    def _repr_html_(self) -> str:
        """The runs as a table, for notebooks."""
        if not self.runs:
            return html_of({"table": self.path, "due": "nothing"})
        names = [field.name for field in fields(ServiceRun)]
        return html_rows(names, ([getattr(run, name) for name in names] for run in self.runs), len(self.runs))

    def to_json(self) -> Mapping[str, Any]:
        return {"table": self.path, "ok": self.ok, "runs": [asdict(run) for run in self.runs]}
