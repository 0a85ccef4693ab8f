"""Whether plans of table services can be cancelled, from when on a cleaner does so, and whether in part."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lakelatch.option_values import flag, whole_number
from lakelatch.timeline.actions import CLUSTERING, LOG_COMPACTION
from lakelatch.timeline.plans.policy import PlanPolicy, parse_threshold

CANCELLABLE = "lakelatch.service.cancellable"
POLICY = "lakelatch.service.cancellation.policy"
IN_PART = "lakelatch.service.cancel.in.part"
EXPIRATIONS = "hoodie.clustering.enable.expirations"
EXPIRATION_MINUTES = "hoodie.clustering.expiration.time.mins"
KEYS = frozenset({CANCELLABLE, POLICY, IN_PART, EXPIRATIONS, EXPIRATION_MINUTES})
_DEFAULT_POLICY = "24 hours"


@dataclass(frozen=True)
class CancellationOptions:
    """What new plans say of cancelling. `cancellable` None: clusterings can be cancelled, and compactions not.
    Log compactions never can.

    `clustering_minutes` is Hudi's expiry of clusterings, which takes the place of the policy for them.
    """

    cancellable: bool | None = None
    policy: str = _DEFAULT_POLICY
    in_part: bool = True
    clustering_minutes: int | None = None

    @classmethod
    def from_options(cls, values: Mapping[str, str]) -> CancellationOptions:
        """Errors: `InvalidRequest`, naming the option, its value and what is possible."""
        default = cls()
        policy = str(values.get(POLICY, default.policy))
        parse_threshold(policy, POLICY)
        minutes = whole_number(values, EXPIRATION_MINUTES, 60, 0, 10_000_000)
        return cls(
            cancellable=flag(values, CANCELLABLE) if CANCELLABLE in values else None,
            policy=policy,
            in_part=flag(values, IN_PART, default.in_part),
            clustering_minutes=minutes if flag(values, EXPIRATIONS) else None,
        )

    def policy_of(self, action: str, planned_against: str = "") -> PlanPolicy:
        """The policy of a plan of this action; `planned_against` is the completion time of what it was planned on.

        A log compaction cannot be cancelled: its file is named after the last log of its run, so the next plan's could
        not be told from one that comes late.
        """
        if action == LOG_COMPACTION:
            return PlanPolicy(planned_against=planned_against)
        clustering = action == CLUSTERING
        expires = clustering and self.clustering_minutes is not None
        cancellable = self.cancellable if self.cancellable is not None else clustering
        hours, instants = parse_threshold(self.policy, POLICY)
        if expires:
            hours, instants = (self.clustering_minutes or 0) / 60, None
        # A compaction's files have no place to go to if one comes late, so there is no part of it to leave out.
        return PlanPolicy(cancellable or expires, hours, instants, clustering and self.in_part, planned_against)
