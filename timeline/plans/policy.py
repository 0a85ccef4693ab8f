"""The cancellation policy of a plan: whether it can be cancelled, when a cleaner does so, and whether in part.

It is in the plan's extra metadata, so that it holds for every process that finds the plan; other engines ignore it. A
plan without one (as all of Java's) is immutable: only its executor ends it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from lakelatch.errors import InvalidRequest

CANCELLABLE = "cancellable"
CANCELLATION_POLICY = "cancellation-policy"
CANCEL_IN_PART = "cancel-in-part"
PLANNED_AGAINST = "planned-against"
_HOUR_MS = 3_600_000
_MOST = 1_000_000
_THRESHOLD = re.compile(r"([0-9]{1,7}(?:\.[0-9]{1,6})?) (hours?|instants?)")


@dataclass(frozen=True)
class PlanPolicy:
    """How one plan may be cancelled. Of the two thresholds at most one is set; without any no cleaner cancels it.

    `planned_against` is the completion time of the last instant that had completed when it was planned.
    """

    cancellable: bool = False
    after_hours: float | None = None
    after_instants: int | None = None
    in_part: bool = False
    planned_against: str = ""

    @property
    def threshold(self) -> str:
        """The threshold as a plan and an option have it, as `24 hours` or `50 instants`; "" for none."""
        if self.after_instants is not None:
            return f"{self.after_instants} instants"
        return "" if self.after_hours is None else f"{self.after_hours:g} hours"

    def is_past(self, age_ms: int, instants_since: int) -> bool:
        """Whether a cancellable plan of this age has waited so long that a cleaner cancels it."""
        if not self.cancellable:
            return False
        if self.after_instants is not None:
            return instants_since > self.after_instants
        return self.after_hours is not None and age_ms > self.after_hours * _HOUR_MS

    def to_extra(self) -> dict[str, str]:
        """The plan's extra metadata."""
        said = {
            CANCELLABLE: "true" if self.cancellable else "",
            CANCELLATION_POLICY: self.threshold if self.cancellable else "",
            CANCEL_IN_PART: "true" if self.cancellable and self.in_part else "",
            PLANNED_AGAINST: self.planned_against,
        }
        return {key: value for key, value in said.items() if value}

    @classmethod
    def of(cls, extra: Mapping[str, str]) -> PlanPolicy:
        """The policy in a plan's extra metadata. An unreadable threshold counts as none."""
        hours, instants = None, None
        with suppress(InvalidRequest):
            hours, instants = parse_threshold(extra.get(CANCELLATION_POLICY, ""))
        cancellable = extra.get(CANCELLABLE) == "true"
        in_part = cancellable and extra.get(CANCEL_IN_PART) == "true"
        return cls(cancellable, hours, instants, in_part, extra.get(PLANNED_AGAINST, ""))


def parse_threshold(text: str, option: str = CANCELLATION_POLICY) -> tuple[float | None, int | None]:
    """Hours, or instants, of a threshold; neither for "". Errors: `InvalidRequest`, naming the option."""
    if not text.strip():
        return None, None
    found = _THRESHOLD.fullmatch(" ".join(text.lower().split()))
    if found is None:
        raise InvalidRequest(f"{option}={text!r} is no threshold: write '24 hours' or '50 instants'", option=option)
    number = float(found[1])
    if not 0 <= number <= _MOST or (found[2].startswith("instant") and "." in found[1]):
        raise InvalidRequest(
            f"{option}={text!r} is out of range: use 0 to {_MOST:,} hours, or a whole number of instants", option=option
        )
    return (None, int(number)) if found[2].startswith("instant") else (number, None)
