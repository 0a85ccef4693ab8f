"""How far the services that rewrite files are behind the writes, for measurements."""

from __future__ import annotations

from lakelatch.engine.services.counters import Counters, last_requested
from lakelatch.engine.services.service import ServiceContext
from lakelatch.telemetry import SERVICE, SERVICE_LAG, measures, record
from lakelatch.timegen.instant_time import to_ms
from lakelatch.timeline.actions import CLUSTERING, COMPLETED_ACTIONS
from lakelatch.timeline.instant import Instant
from lakelatch.timeline.plans.service_plan import REWRITING_SERVICES


def tell_lag(context: ServiceContext, service: str, counters: Counters) -> None:
    """Measures how far a service is behind, if it rewrites files and this process measures."""
    if service in REWRITING_SERVICES and measures():
        _record(context, service, lag_s(service, counters))


def tell_done(context: ServiceContext, service: str) -> None:
    """A run has taken in what there was when it was planned; the next look sees what has come since."""
    if service in REWRITING_SERVICES:
        _record(context, service, 0.0)


def lag_s(service: str, counters: Counters) -> float:
    """From the completion of the oldest write that no run has taken in to that of the newest; 0 if there is none.

    Compactions take in what has logs, clusterings everything.
    """
    ran = counters.completed(COMPLETED_ACTIONS[service])
    last = last_requested(one for one in ran if counters.has_plan(one, service))
    if service == CLUSTERING:
        left = [one for one in counters.writes if _completion(one) > last and not _is_of_a_service(one, counters)]
    else:
        left = list(counters.deltas_after(last))
    return (to_ms(_completion(left[-1])) - to_ms(_completion(left[0]))) / 1000 if left else 0.0


def _is_of_a_service(instant: Instant, counters: Counters) -> bool:
    return any(counters.has_plan(instant, service) for service in REWRITING_SERVICES)


def _completion(instant: Instant) -> str:
    return instant.completion or ""


def _record(context: ServiceContext, service: str, value_s: float) -> None:
    record(SERVICE_LAG, value_s, {**context.manager.context.labels, SERVICE: service})
