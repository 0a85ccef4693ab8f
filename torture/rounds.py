"""One round: a table of its own, clients on it, a storm over them, calm, and the judge."""

from __future__ import annotations

import json
import math
import shutil
from collections import Counter
from collections.abc import Callable
from random import Random  # noqa: TID251  (seeded by the run)
from typing import Any

from lakelatch.errors import LakelatchError
from lakelatch.pipeline import compaction
from lakelatch.pipeline.plans import COMPACTION, pending_plans, run_here
from lakelatch.storage.local import LocalStorage
from lakelatch.system import REAL_SYSTEM
from lakelatch.torture.bank import open_bank
from lakelatch.torture.clients import heartbeat_of, manager_at, open_locks
from lakelatch.torture.faults import FAULTS, applies, memory_disk, remove_memory_disk
from lakelatch.torture.half_broken import HALF_BROKEN
from lakelatch.torture.history import read_history
from lakelatch.torture.judge import judge
from lakelatch.torture.services import LockService
from lakelatch.torture.settings import Place, TortureSettings
from lakelatch.torture.storm import Storm
from lakelatch.transactions.manager import TransactionManager
from lakelatch.transactions.settings import NON_BLOCKING

_TICK_S = 0.03
_LOOK_S = 0.5
_RECOVERY_MAX_S = 60.0  # how long it took is a figure; that it came about is a promise
_DISK_MIB = 512
_SLACK_NS = 500_000_000  # what was asked for before, and answered after
_LEASES_OF_CALM = 3
_CLOSINGS_MAX = 20


def run_round(
    settings: TortureSettings,
    place: Place,
    locks: LockService,
    coverage: Counter[str],
    storm_s: float,
    on_memory_disk: bool,
    progress: Callable[[str], None],
) -> dict[str, Any]:
    """Its verdict, which also stands in the round's folder."""
    place.history.mkdir(parents=True)
    mounted = on_memory_disk and memory_disk(place.table, _DISK_MIB)
    storm = Storm(settings, place, locks, Random(place.seed), coverage, on_memory_disk=mounted)
    facts: dict[str, Any] = {
        "provider": place.provider,
        "seed": place.seed,
        "settings": settings.to_json(),
        "on_memory_disk": mounted,
        "recovery_bound_s": _RECOVERY_MAX_S,
    }
    try:
        open_bank(LocalStorage(str(place.table)), NON_BLOCKING)
        facts["began_ns"] = storm.recorder.note("storm")
        storm.start_all()
        _rage(storm, storm_s, progress)
        facts["storm_ended_ns"] = REAL_SYSTEM.monotonic_ns()
        storm.calm()
        facts["healed_ns"] = storm.recorder.note("calm")
        _rest(storm, _LEASES_OF_CALM * place.lease_s, facts["healed_ns"], progress)
        storm.finish("transfer", "append", "compact", "snapshot", "spark")
        progress("closing")
        storm.problems += _close(place, locks)
        storm.finish()
        facts["ended_ns"] = REAL_SYSTEM.monotonic_ns()
        facts["problems"] = storm.problems
        (place.folder / "round.json").write_text(json.dumps(facts, indent=1))
        progress("judging")
        return judge(place.folder).to_json()
    finally:
        storm.close()
        locks.forget_ways()
        if mounted:
            _take_down(place)


def _rage(storm: Storm, storm_s: float, progress: Callable[[str], None]) -> None:
    """Faults at random times, of those kinds that were least often seen."""
    end_ns = REAL_SYSTEM.monotonic_ns() + int(storm_s * 1e9)
    next_ns = REAL_SYSTEM.monotonic_ns()
    faults = {kind: begin for kind, begin in {**FAULTS, **HALF_BROKEN}.items() if applies(kind, storm)}
    while (now_ns := REAL_SYSTEM.monotonic_ns()) < end_ns:
        storm.tick()
        if now_ns >= next_ns:
            next_ns = now_ns - int(math.log(1 - storm.draw.random()) * storm.settings.pace_s * 1e9)
            weights = [1 / (1 + storm.coverage[kind]) for kind in faults]
            faults[storm.draw.choices(list(faults), weights)[0]](storm)
        progress(f"{(end_ns - now_ns) / 1e9:.0f} s of storm left, {len(storm.faults)} faults in force")
        REAL_SYSTEM.sleep(_TICK_S)


def _rest(storm: Storm, least_s: float, healed_ns: int, progress: Callable[[str], None]) -> None:
    """Until somebody has committed what was asked for after all had healed."""
    while True:
        rested_s = (REAL_SYSTEM.monotonic_ns() - healed_ns) / 1e9
        if rested_s > _RECOVERY_MAX_S or (rested_s > least_s and _has_recovered(storm.place, healed_ns)):
            return
        storm.tick()
        progress("calm")
        REAL_SYSTEM.sleep(_TICK_S if rested_s < least_s else _LOOK_S)


def _has_recovered(place: Place, healed_ns: int) -> bool:
    return any(
        line["event"] == "return" and line["outcome"] == "committed" and line["at_ns"] > healed_ns + _SLACK_NS
        for line in read_history(place.history)
    )


def _close(place: Place, locks: LockService) -> list[str]:
    """Cleans up after the dead and carries out what is planned, until nothing is left to do."""
    heartbeat = heartbeat_of(place.lease_s)
    REAL_SYSTEM.sleep(place.late_s + heartbeat.expiry_ms * 2 / 1000)
    storage = LocalStorage(str(place.table))
    provider = open_locks(place, locks.options("closing"), REAL_SYSTEM)
    failure: LakelatchError | None = None
    try:
        for _ in range(_CLOSINGS_MAX):
            manager = manager_at(place, storage, provider, NON_BLOCKING, "closing")
            try:
                if _nothing_left(manager):
                    return []
            except LakelatchError as error:
                failure = error
            REAL_SYSTEM.sleep(heartbeat.expiry_ms / 1000)
        return [f"the table did not come to rest in {_CLOSINGS_MAX} closings; the last error was: {failure}"]
    finally:
        provider.close()


def _nothing_left(manager: TransactionManager) -> bool:
    """Does what is left to do; whether that was nothing."""
    healed = manager.heal()
    table, _ = open_bank(manager.storage, NON_BLOCKING)
    manager.folder.refresh(0)
    plans = pending_plans(manager.folder, COMPACTION)
    for plan in plans:
        compaction.execute(run_here, table, manager, plan)
    return not healed and not plans


def _take_down(place: Place) -> None:
    """Keeps what lay on the disk in memory, and removes that disk."""
    copy = place.folder / "table.kept"
    shutil.copytree(place.table, copy, dirs_exist_ok=True)
    remove_memory_disk(place.table)
    place.table.rmdir()
    copy.rename(place.table)
