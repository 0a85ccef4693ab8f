"""Waiting until a transaction over several tables is decided whose part is the last slot of a table.

Its owner decides within moments, and whoever is dead is not waited for: once the heartbeat of the part has expired,
anybody decides that the transaction is aborted, unless its owner was faster after all.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from lakelatch.errors import Unavailable
from lakelatch.retry import Backoff, tries
from lakelatch.storage.uris import without_secrets
from lakelatch.timeline.log.decisions import ABORT, Undecided
from lakelatch.timeline.log.events import Event
from lakelatch.transactions.base.context import TransactionContext
from lakelatch.transactions.several.part import give_way_to

_BACKOFF = Backoff(first_s=0.005, longest_s=0.5)
_WAIT_MOST_S = 600.0
_log = logging.getLogger("lakelatch.transactions")


def await_decision(context: TransactionContext, event: Event, ensure_in_time: Callable[[], None] | None = None) -> None:
    """Returns once it is decided whether a prepared event counts. Errors: `Unavailable` if that takes too long.

    `ensure_in_time` is called all the time, and may raise.
    """
    give_way_to(event)
    system, log = context.system, context.log
    interval_ns = context.settings.heartbeat.interval_ms * 1_000_000
    look_ns: int | None = None
    problem = ""
    for _ in tries(system, _BACKOFF, limit_s=_WAIT_MOST_S):
        try:
            if log.decisions.find(event.home, event.decision) is not None or log.has_slot(event.number + 1):
                return
        except Unavailable as error:
            problem = f" ({error.message})"
        if ensure_in_time is not None:
            ensure_in_time()
        if look_ns is None and context.observer.beat_of(event.instant) is not None:
            look_ns = system.monotonic_ns() + interval_ns  # its owner lives, or did a moment ago
        if look_ns is not None and system.monotonic_ns() < look_ns:
            continue
        look_ns = system.monotonic_ns() + interval_ns
        if _is_decided(context, event):
            return
        if event.instant in context.observer.dead([event.instant]):
            abort(context, event)
    raise Unavailable(
        f"the last slot of {without_secrets(context.storage.uri)} is a part of a transaction over several tables that "
        f"was not decided within {_WAIT_MOST_S:g} s{problem}. Its first table is {without_secrets(event.home)}: end "
        "its writer, or call lakelatch.resolve",
        decision=event.decision,
    )


def _is_decided(context: TransactionContext, event: Event) -> bool:
    """By all that its own table says as well, in case that the decision was removed since."""
    try:
        context.log.decided_tail()
    except Undecided as error:
        return error.event != event
    return True


def abort(context: TransactionContext, event: Event) -> None:
    """Decides that the transaction of a prepared event is aborted, unless others have decided."""
    decisions = context.log.decisions
    try:
        decisions.ensure_home(event.home)
        found = decisions.decide(event.home, event.decision, ABORT)
    except Unavailable as error:
        raise Unavailable(
            f"the last slot of {without_secrets(context.storage.uri)} is a part of a transaction over several tables "
            f"whose writer is dead, and whether it is committed says its first table, {without_secrets(event.home)}, "
            f"alone: {error.message}. Give this writer the right to ask it, or wait until it answers; if that table is "
            "gone for good, call lakelatch.resolve with give_up=True",
            decision=event.decision,
            home=event.home,
        ) from error
    if not found.commits:
        _log.warning("a transaction over several tables is aborted, since its writer %s is dead", event.writer)
