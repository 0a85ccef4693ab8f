"""The clients that maintain a round's table: one runs due services, with little retained; the other cancels plans."""

from __future__ import annotations

from dataclasses import replace
from random import Random  # noqa: TID251  (seeded by the run)
from typing import TYPE_CHECKING

from lakelatch.engine.options.calls.registry import Call
from lakelatch.engine.options.table_services.archiving import ArchivingOptions
from lakelatch.engine.options.table_services.cancellation import CancellationOptions
from lakelatch.engine.options.table_services.cleaning import CleaningOptions
from lakelatch.engine.options.table_services.clustering import ClusteringOptions
from lakelatch.engine.options.table_services.services import ServiceOptions
from lakelatch.engine.run.report import CANCELLED, DONE, FAILED, ServiceRun
from lakelatch.engine.services import cancelling
from lakelatch.engine.services.keeping.maintenance import keep
from lakelatch.engine.services.keeping.steps import Steps
from lakelatch.engine.services.rewrites.clustering import Clustering
from lakelatch.engine.services.rewrites.compaction import Compaction
from lakelatch.engine.services.service import ServiceContext
from lakelatch.engine.table.table import OpenedTable
from lakelatch.errors import CorruptTable, InvalidRequest, InvariantBroken, LakelatchError
from lakelatch.timeline.plans.service_plan import ServicePlan, read_service_plan
from lakelatch.torture.settings import COMMITS_RETAINED, Place
from lakelatch.torture.traffic.bank import open_bank
from lakelatch.transactions.attempts.claims import PlanBusy
from lakelatch.transactions.base.settings import NON_BLOCKING
from lakelatch.transactions.manager import TransactionManager

if TYPE_CHECKING:
    from lakelatch.torture.traffic.clients import Client

_CLUSTER_AFTER = 10  # writes
_LEAST_ON_TIMELINE, _MOST_ON_TIMELINE = 30, 40
_CLEAN_AFTER = 5
_PAUSE_S = 0.6
_PLAN_RATE = 0.4
_BROKEN = tuple(f"[{kind.code}]" for kind in (CorruptTable, InvariantBroken))


def service_options(place: Place, draw: Random) -> ServiceOptions:
    """Options that retain as little as late requests of this round allow; all plans can be cancelled, most in part."""
    plain = Call({}).services()
    tombstones_s = int(4 * place.late_s + 1)
    columns = draw.choice(((), ("version",), ("work", "key")))
    return replace(
        plain,
        compaction=replace(plain.compaction, least_logs=4),
        clustering=ClusteringOptions(columns=columns, small_bytes=2**40),
        cleaning=CleaningOptions(
            commits=COMMITS_RETAINED,
            trigger_commits=_CLEAN_AFTER,
            tombstone_hours=tombstones_s / 3600,
            cancel_delay_minutes=0,
        ),
        archiving=ArchivingOptions(
            min_commits=_LEAST_ON_TIMELINE,
            max_commits=_MOST_ON_TIMELINE,
            merged_files=3,
            minimum_age_s=int(2 * place.late_s + 1),
            orphan_age_s=tombstones_s,
        ),
        cancellation=CancellationOptions(cancellable=True, policy="60 instants", in_part=draw.random() < 0.7),
        inline=replace(plain.inline, clustering_commits=_CLUSTER_AFTER),
    )


def serve(client: Client) -> None:
    """Runs due services, as the service loop does; or puts plans on the timeline, for any client to execute."""
    kind = "schedule" if client.random.random() < _PLAN_RATE else "keep"
    with client.asked(client.next_work(), kind=kind) as answer:
        manager = client.manager(NON_BLOCKING)
        table, _ = open_bank(client.storage, NON_BLOCKING)
        options = service_options(client.place, client.random)
        if kind == "schedule":
            manager.recover()
            _schedule(client, table, manager, options)
        else:
            answer.error = keep_table(client, table, manager, options)
        answer.outcome = "failed" if answer.error else "done"
    client.system.sleep(_PAUSE_S * client.random.random())


def keep_table(client: Client, table: OpenedTable, manager: TransactionManager, options: ServiceOptions) -> str:
    """Runs one round of all services; returns the names of those that failed."""
    failed: list[str] = []

    def tell(run: ServiceRun) -> None:
        if run.outcome in (DONE, CANCELLED):
            client.recorder.note(
                "served", service=run.service, outcome=run.outcome, instant=run.instant, text=run.detail
            )
        if run.outcome == FAILED:
            failed.append(run.service)
        if any(code in run.detail for code in _BROKEN):
            client.recorder.note("broken", what=f"{run.service}: {run.detail}")

    keep(ServiceContext(table, manager), Steps(options).of_maintenance(), tell=tell)
    return ", ".join(failed)


def _schedule(client: Client, table: OpenedTable, manager: TransactionManager, options: ServiceOptions) -> None:
    if client.random.random() < 0.6:
        Clustering(options.clustering, options.cancellation).schedule(ServiceContext(table, manager))
    else:
        Compaction(options.compaction, options.cancellation).schedule(ServiceContext(table, manager))


def cancel(client: Client) -> None:
    """Cancels a waiting or running plan, whole or in part; or carries out a cancellation."""
    kind = client.random.choice(("request", "request", "execute"))
    with client.asked(client.next_work(), InvalidRequest, PlanBusy, kind=kind) as answer:
        manager = client.manager(NON_BLOCKING)
        answer.instant = _request(client, manager) if kind == "request" else _execute(client, manager)
        answer.outcome = "done" if answer.instant else "refused"
    client.system.sleep(_PAUSE_S * client.random.random())


def _request(client: Client, manager: TransactionManager) -> str:
    plans = _waiting(manager)
    if not plans:
        return ""
    plan = client.random.choice(plans)
    groups = None
    if plan.policy.in_part and client.random.random() < 0.5:
        known = sorted(plan.groups)
        groups = client.random.sample(known, client.random.randrange(1, len(known) + 1))
    asked = cancelling.request_cancel(manager, plan.instant, groups)
    if asked is not None:
        client.recorder.note("cancelled", instant=plan.instant, action=plan.action, groups=sorted(asked.groups))
    return plan.instant


def _execute(client: Client, manager: TransactionManager) -> str:
    requests = [one for one in cancelling.open_requests(manager) if one.whole]
    if not requests:
        return ""
    instant = client.random.choice(requests).instant
    cancelling.execute_cancel(manager, instant)
    client.recorder.note("aborted", instant=instant)
    return instant


def _waiting(manager: TransactionManager) -> list[ServicePlan]:
    manager.context.snapshots.take()
    found = []
    for one in manager.snapshot.pending:
        if one.action in ("compaction", "clustering"):
            try:
                found.append(read_service_plan(manager.storage, one.requested, one.action))
            except LakelatchError:  # it has ended since
                continue
    return [plan for plan in found if plan.policy.cancellable]
