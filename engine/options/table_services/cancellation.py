"""Whether plans of table services can be cancelled, after how long a clean does so, and whether in part."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from lakelatch.option_values import Option, ParsedOptions, flag, option, whole
from lakelatch.timeline.actions import CLUSTERING, LOG_COMPACTION
from lakelatch.timeline.plans.policy import PlanPolicy, parse_threshold

CANCELLABLE = "lakelatch.service.cancellable"
POLICY = "lakelatch.service.cancellation.policy"
_EXPIRES = Option("hoodie.clustering.enable.expirations", flag, False)
_EXPIRATION = Option("hoodie.clustering.expiration.time.mins", whole(0, 10_000_000), 60)


def _policy(key: str, text: str) -> str:
    parse_threshold(text, key)
    return text


@dataclass(frozen=True)
class CancellationOptions(ParsedOptions):
    """The cancellation policy of new plans. `cancellable` None: clusterings can be cancelled, and compactions not.
    Log compactions never can.

    `clustering_minutes` is Hudi's expiry of clusterings, which overrides the policy for them.
    """

    also = (_EXPIRES, _EXPIRATION)
    cancellable: bool | None = option(CANCELLABLE, flag)
    policy: str = option(POLICY, _policy, "24 hours")
    in_part: bool = option("lakelatch.service.cancel.in.part", flag, True)
    clustering_minutes: int | None = None

    def completed(self, values: Mapping[str, str]) -> CancellationOptions:
        return replace(self, clustering_minutes=_EXPIRATION.of(values)) if _EXPIRES.of(values) else self

    def policy_of(self, action: str, planned_against: str = "") -> PlanPolicy:
        """The policy of a plan of this action; `planned_against` is the completion time of the last commit it saw.

        A log compaction cannot be cancelled: its file is named after the last log of its run, so a late file of the
        cancelled plan could not be distinguished from the next plan's.
        """
        if action == LOG_COMPACTION:
            return PlanPolicy(planned_against=planned_against)
        clustering = action == CLUSTERING
        expires = clustering and self.clustering_minutes is not None
        cancellable = self.cancellable if self.cancellable is not None else clustering
        hours, instants = parse_threshold(self.policy, POLICY)
        if expires:
            hours, instants = (self.clustering_minutes or 0) / 60, None
        # A late file of a compaction would lie in a live file group, so no part of it can be left out.
        return PlanPolicy(cancellable or expires, hours, instants, clustering and self.in_part, planned_against)
