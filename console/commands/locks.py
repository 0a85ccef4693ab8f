"""`lakelatch locks`: who holds what; breaking a lock; moving a live table to another service; recording where it is."""

from __future__ import annotations

from contextlib import closing
from dataclasses import asdict

from rich.markup import escape
from rich.table import Table

from lakelatch.console.base.invocation import Invocation, Outcome
from lakelatch.errors import InvalidRequest, Unavailable
from lakelatch.heartbeat.observer import Observer
from lakelatch.locks.contract import Holder, LockProvider
from lakelatch.locks.open import open_recorded_locks
from lakelatch.locks.options import PROVIDER
from lakelatch.storage.contract import Storage
from lakelatch.system import REAL_SYSTEM, process_name
from lakelatch.timegen.instant_time import to_instant, to_ms
from lakelatch.timeline.log.commit_log import CommitLog
from lakelatch.timeline.log.lock_names import agree, named_locks
from lakelatch.timeline.recorded_options import LOG_VERSION
from lakelatch.timeline.table_config import recorded_lock_options
from lakelatch.transactions.lock_migration import change_locks, lock_domain, record_locks

_SECOND_MS = 1000


def show(call: Invocation) -> Outcome:
    """Shows who holds which lock, and which writers are alive; warns if the table uses other locks."""
    storage = call.open_table()
    with _recorded_locks(call, storage) as provider:
        holders = provider.holders()
        writers = _writers(storage, provider)
        asked = named_locks(provider.domain, provider.lock_id() or "")
    tail = CommitLog(storage).tail()
    now_ms = REAL_SYSTEM.realtime_ms()
    ahead_ms = to_ms(tail.time) - now_ms if tail.time else 0
    domain = tail.lock_domain
    call.console.print(f"locks of the table: {domain or 'not said yet'}; looked at: {asked}", markup=False)
    if not agree(domain, asked):
        call.console.print("[yellow]the table's writers use other locks than those looked at[/yellow]")
    if ahead_ms > _SECOND_MS:
        call.console.print(
            f"[yellow]the table's times are {ahead_ms / 1000:,.1f} s ahead of this machine's clock[/yellow]"
        )
    call.console.print(_held_table(holders, now_ms) if holders else "no lock is held")
    beats = Table("instant", "writer", "state", box=None)
    for writer in writers:
        beats.add_row(str(writer["instant"]), escape(str(writer["writer"])), "alive" if writer["alive"] else "dead")
    call.console.print(beats if writers else "no transaction is open")
    held_json = [{**asdict(holder), "held_s": (now_ms - holder.since_ms) / 1000} for holder in holders]
    found = {"domain": domain, "asked": asked, "times_ahead_ms": max(ahead_ms, 0)}
    return 0, {**found, "locks": held_json, "writers": writers}


def break_lock(call: Invocation, key: str) -> Outcome:
    """Takes a lock away; 1 if it was not held."""
    with _recorded_locks(call, call.open_table()) as provider:
        before = [holder for holder in provider.holders(key) if holder.key == key]
        with call.status("waiting until the holder has given it up, or can no longer believe that it holds it"):
            broken = provider.break_(key)
    owner = before[0].owner if before else None
    if broken:
        call.console.print(f"{key} was taken from {owner or 'its holder'}", markup=False)
    else:
        call.console.print(f"{key} has no holder", markup=False)
    return (0 if broken else 1), {"key": key, "broken": broken, "holder": owner}


def migrate(call: Invocation, old: str | None, new: str, from_is_gone: bool) -> Outcome:
    """Names other locks in the table's log, under the present ones, with which writers are refused from then on."""
    options, storage = call.options, call.open_table()
    if PROVIDER in options:
        raise InvalidRequest(f"{PROVIDER}={options[PROVIDER]!r}: say --from and --to instead", option=PROVIDER)
    recorded = recorded_lock_options(storage) or {}
    if not (old or PROVIDER in recorded or LOG_VERSION in recorded or lock_domain(storage)):
        raise InvalidRequest(
            "--from is missing: neither the table's properties nor its log say which locks its writers take; name the "
            "provider of these",
            option="--from",
        )
    # Without --from those that a writer gets who names none; the log refuses them if the table has others.
    before = {PROVIDER: old} if old else {}
    with (
        closing(open_recorded_locks(storage.uri, {**options, **before}, recorded)) as present,
        closing(open_recorded_locks(storage.uri, {**options, PROVIDER: new}, recorded)) as later,
        call.status("waiting for the table's lock"),
    ):
        timeout_s = present.scope.lock_options.timeout_s
        event = change_locks(storage, present, later, process_name(), timeout_s, from_is_gone)
        named = event.lock_domain if event is not None else lock_domain(storage)
        _record_moved(storage, later, timeout_s)
    if event is None:
        call.console.print(f"the table's locks are {named!r} already", markup=False)
        return 0, {"changed": False, "domain": named}
    call.console.print(
        f"from {event.time} on, the table's locks are {named!r}; writers with others are refused",
        markup=False,
    )
    return 0, {"changed": True, "domain": named, "time": event.time, "slot": event.number}


def record(call: Invocation) -> Outcome:
    """Records the table's lock options, under its lock, for callers that do not set them."""
    storage = call.open_table()
    with _recorded_locks(call, storage) as provider, call.status("waiting for the table's lock"):
        said = record_locks(storage, provider, provider.scope.lock_options.timeout_s)
    call.console.print("who says nothing of locks takes these from now on:")
    for key, value in said.items():
        call.console.print(f"  {key}={value}", markup=False, soft_wrap=True)
    return 0, {"recorded": said}


def _record_moved(storage: Storage, new: LockProvider, timeout_s: float) -> None:
    try:
        record_locks(storage, new, timeout_s)
    except Unavailable as error:
        raise type(error)(
            f"the table's locks are {new.domain!r} now, and its properties do not say so yet, to those who say nothing "
            f"of locks: do the same again. {error.message}",
            **error.details,
        ) from error


def _recorded_locks(call: Invocation, storage: Storage) -> closing[LockProvider]:
    """The table's locks, by the options or the table; closed at the end."""
    return closing(open_recorded_locks(storage.uri, call.options, recorded_lock_options(storage)))


def _held_table(holders: list[Holder], now_ms: int) -> Table:
    held = Table("lock", "holder", "token", "since", "for", "waiting", box=None)
    for holder in holders:
        waiting = "" if holder.waiting is None else ", ".join(holder.waiters) or str(holder.waiting)
        if holder.waiters and (holder.waiting or 0) > len(holder.waiters):
            waiting += f" and {(holder.waiting or 0) - len(holder.waiters)} more"
        held_for = f"{max(now_ms - holder.since_ms, 0) / 1000:,.1f} s"
        since = to_instant(holder.since_ms)
        held.add_row(escape(holder.key), escape(holder.owner), str(holder.token), since, held_for, escape(waiting))
    return held


def _writers(storage: Storage, provider: LockProvider) -> list[dict[str, object]]:
    observer = Observer(storage, provider=provider)
    instants = observer.instants()
    dead = set(observer.dead(instants))
    writers: list[dict[str, object]] = []
    for instant in instants:
        beat = observer.beat_of(instant)
        name = beat.writer if beat is not None else "another kind of writer"
        writers.append({"instant": instant, "writer": name, "alive": instant not in dead})
    return writers
