"""One round: a table of its own, clients on it, faults, then none, and the checker."""

from __future__ import annotations

import json
import math
import shutil
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from random import Random  # noqa: TID251  (seeded by the run)
from typing import Any

from lakelatch.engine.services.removals.cleaning import Clean, cancel_overdue
from lakelatch.engine.services.rewrites.clustering import Clustering
from lakelatch.engine.services.rewrites.compaction import Compaction
from lakelatch.engine.services.service import PlannedService, ServiceContext
from lakelatch.errors import LakelatchError
from lakelatch.system import REAL_SYSTEM
from lakelatch.torture.check.checker import check_round
from lakelatch.torture.history.reading import WRITING_ROLES, read_history
from lakelatch.torture.nemesis.faults import FAULTS, applies, memory_disk, remove_memory_disk
from lakelatch.torture.nemesis.half_broken import HALF_BROKEN
from lakelatch.torture.nemesis.lock_server import LockServer
from lakelatch.torture.nemesis.nemesis import Nemesis
from lakelatch.torture.nemesis.store_faults import ON_STORE
from lakelatch.torture.nemesis.store_ways import TableStore
from lakelatch.torture.settings import COMMITS_RETAINED, Place, TortureSettings
from lakelatch.torture.traffic.bank import open_bank
from lakelatch.torture.traffic.desk import heartbeat_of, manager_at, open_locks
from lakelatch.torture.traffic.keeping_storage import bring_table, storage_at
from lakelatch.torture.traffic.services import service_options
from lakelatch.transactions.base.settings import NON_BLOCKING
from lakelatch.transactions.manager import TransactionManager

_TICK_S = 0.03
_LOOK_S = 0.5
_RECOVERY_MAX_S = 60.0  # its length is only a figure; that the table recovers is a promise
_DISK_MIB = 512
_LEASES_OF_CALM = 3
_CLOSINGS_MAX = 20


def run_round(
    settings: TortureSettings,
    place: Place,
    locks: LockServer,
    store: TableStore | None,
    coverage: Counter[str],
    faults_s: float,
    on_memory_disk: bool,
    progress: Callable[[str], None],
) -> dict[str, Any]:
    """Runs a round; returns its verdict, which is also in the round's folder."""
    place.history.mkdir(parents=True)
    mounted = on_memory_disk and memory_disk(place.table, _DISK_MIB)
    nemesis = Nemesis(settings, place, locks, Random(place.seed), coverage, on_memory_disk=mounted, store=store)
    facts: dict[str, Any] = {
        "provider": place.provider,
        "seed": place.seed,
        "settings": settings.to_json(),
        "on_memory_disk": mounted,
        "recovery_bound_s": _RECOVERY_MAX_S,
        "commits_retained": COMMITS_RETAINED,
    }
    try:
        for each in place.all_tables:
            open_bank(storage_at(each), NON_BLOCKING)
        facts["began_ns"] = nemesis.recorder.note("begin")
        nemesis.start_all()
        _rage(nemesis, faults_s, progress)
        facts["faults_ended_ns"] = REAL_SYSTEM.monotonic_ns()
        nemesis.calm()
        facts["healed_ns"] = nemesis.recorder.note("calm")
        _rest(nemesis, _LEASES_OF_CALM * place.lease_s, facts["healed_ns"], progress)
        nemesis.finish("transfer", "append", "compact", "serve", "cancel", "snapshot", "spark", "move", "cut")
        progress("closing")
        nemesis.problems += _close_all(place, locks)
        nemesis.finish()
        if place.uri:
            for each in place.all_tables:
                bring_table(each)
        facts["ended_ns"] = REAL_SYSTEM.monotonic_ns()
        facts["problems"] = nemesis.problems
        (place.folder / "round.json").write_text(json.dumps(facts, indent=1))
        progress("checking")
        return check_round(place.folder).to_json()
    finally:
        nemesis.close()
        locks.forget_ways()
        if store is not None:
            store.forget_ways()
        if mounted:
            _take_down(place)


def _rage(nemesis: Nemesis, faults_s: float, progress: Callable[[str], None]) -> None:
    """Injects faults at random times, of the least frequent kinds."""
    end_ns = REAL_SYSTEM.monotonic_ns() + int(faults_s * 1e9)
    next_ns = REAL_SYSTEM.monotonic_ns()
    faults = {kind: begin for kind, begin in {**FAULTS, **HALF_BROKEN}.items() if applies(kind, nemesis)}
    faults |= ON_STORE if nemesis.store is not None else {}
    while (now_ns := REAL_SYSTEM.monotonic_ns()) < end_ns:
        nemesis.tick()
        if now_ns >= next_ns:
            next_ns = now_ns - int(math.log(1 - nemesis.draw.random()) * nemesis.settings.pace_s * 1e9)
            weights = [1 / (1 + nemesis.coverage[kind]) for kind in faults]
            faults[nemesis.draw.choices(list(faults), weights)[0]](nemesis)
        progress(f"{(end_ns - now_ns) / 1e9:.0f} s of faults left, {len(nemesis.faults)} faults in force")
        REAL_SYSTEM.sleep(_TICK_S)


def _rest(nemesis: Nemesis, least_s: float, healed_ns: int, progress: Callable[[str], None]) -> None:
    """Waits for an acknowledged commit of each table that was requested after all faults had ended."""
    while True:
        rested_s = (REAL_SYSTEM.monotonic_ns() - healed_ns) / 1e9
        if rested_s > _RECOVERY_MAX_S or (rested_s > least_s and _has_recovered(nemesis.place, healed_ns)):
            return
        nemesis.tick()
        progress("calm")
        REAL_SYSTEM.sleep(_TICK_S if rested_s < least_s else _LOOK_S)


def _has_recovered(place: Place, healed_ns: int) -> bool:
    """Whether in each table a write that nobody had asked for before is committed: the same as the checker asks for."""
    asked_ns: dict[str, int] = {}
    table_of: dict[str, int | None] = {}
    done: set[int | None] = set()
    for line in read_history(place.history):
        if line["event"] == "started":
            table_of[line["process"]] = line.get("table")
        elif line["event"] == "call" and line.get("role") in WRITING_ROLES:
            asked_ns.setdefault(line["work"], line["at_ns"])
        elif line["event"] == "return" and line["outcome"] == "committed" and asked_ns.get(line["work"], 0) > healed_ns:
            done.add(table_of.get(line["process"], 0))
    return done.issuperset(range(place.tables))


def _close_all(place: Place, locks: LockServer) -> list[str]:
    """Closes all tables side by side, since closing one is mostly waiting until the dead count as dead."""
    options = locks.options("closing")
    with ThreadPoolExecutor(place.tables) as pool:
        return [problem for found in pool.map(partial(_close, options=options), place.all_tables) for problem in found]


def _close(place: Place, options: dict[str, str]) -> list[str]:
    """Recovers from dead writers and executes plans, until nothing is left to do."""
    heartbeat = heartbeat_of(place.lease_s)
    REAL_SYSTEM.sleep(place.late_s + heartbeat.expiry_ms * 2 / 1000)
    storage = storage_at(place)
    provider = open_locks(place, options, REAL_SYSTEM)
    failure: LakelatchError | None = None
    try:
        for _ in range(_CLOSINGS_MAX):
            manager = manager_at(place, storage, provider, NON_BLOCKING, "closing")
            try:
                if _nothing_left(manager, place):
                    return []
            except LakelatchError as error:
                failure = error
            REAL_SYSTEM.sleep(heartbeat.expiry_ms / 1000)
        return [f"the table was not at rest after {_CLOSINGS_MAX} closings; the last error was: {failure}"]
    finally:
        provider.close()


def _nothing_left(manager: TransactionManager, place: Place) -> bool:
    """Does one round of this; returns whether there was nothing to do."""
    options = service_options(place, Random(place.seed))
    recovered = manager.recover()
    ended = cancel_overdue(manager, options.cleaning)  # and what came late for those that had ended
    table, _ = open_bank(manager.storage, NON_BLOCKING)
    manager.context.snapshots.take()
    context, plans = ServiceContext(table, manager), 0
    services: tuple[PlannedService[Any], ...] = (Compaction(), Clustering(), Clean(options.cleaning))
    for service in services:
        for plan in service.waiting(context):
            plans += 1
            service.execute_or_leave(context, plan)
    return not recovered and not ended and not plans


def _take_down(place: Place) -> None:
    """Copies the files from the disk in memory, and removes that disk."""
    copy = place.folder / "table.kept"
    shutil.copytree(place.table, copy, dirs_exist_ok=True)
    remove_memory_disk(place.table)
    place.table.rmdir()
    copy.rename(place.table)
