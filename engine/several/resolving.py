"""What has become of a transaction over several tables whose answer was lost, or whose writer has died."""

from __future__ import annotations

from collections.abc import Callable

from lakelatch.engine.options.calls.arguments import Options
from lakelatch.engine.options.calls.registry import Call
from lakelatch.engine.several.cut import opening, place_of
from lakelatch.engine.table.manager import open_manager
from lakelatch.engine.table.opening import load_config
from lakelatch.errors import CommitUnknown, InvalidRequest, Unavailable
from lakelatch.storage.contract import Storage
from lakelatch.system import REAL_SYSTEM, System
from lakelatch.timeline.log.commit_log import CommitLog
from lakelatch.timeline.log.decisions import ABORT, Decisions, Undecided
from lakelatch.timeline.log.events import WITHDRAW, Event
from lakelatch.timeline.log.log_reader import Tail
from lakelatch.transactions.attempts.attempt import table_lock


def resolve(
    unknown: object,
    options: Options | None = None,
    give_up: bool = False,
    system: System = REAL_SYSTEM,
    open_table: Callable[[str], Storage] | None = None,
) -> bool | None:
    """Whether a transaction over several tables is committed; one that nobody has decided is aborted by this call.

    `unknown` is the `CommitUnknown` that it raised, or a table whose last slot is a part of it; None if that table
    waits for no decision. A live writer whose transaction is aborted tries again. With `give_up` the part of a table
    whose decision is lost for good, because the first table of the transaction is gone, is aborted in this table alone:
    for people who know that no other part of it was committed, or can live with that.
    Errors: `Unavailable` if the table with the decision cannot be asked; `InvalidRequest` for what is no table.
    """
    open_other = open_table or opening(options)
    if isinstance(unknown, CommitUnknown):
        home, decision = unknown.details.get("home"), unknown.details.get("decision")
        if not home or not decision:
            raise InvalidRequest("this error is not about a transaction over several tables: read the table's history")
        return Decisions(open_other(home), system, open_other).decide(home, decision, ABORT).commits
    path = place_of(unknown)
    log = CommitLog(open_other(path), system, open_table=open_other)
    event = log.last_prepared()
    if event is None:
        load_config(log.storage)  # for a path that is no table
        return None
    try:
        committed = log.counts(event)
    except Undecided:
        try:
            log.decisions.ensure_home(event.home)
        except Unavailable:
            if not give_up:
                raise
            _give_up(log, event, options, system)
            return False
        log.decisions.decide(event.home, event.decision, ABORT)
        committed = log.counts(event)
    log.project(log.tail())
    return committed


def _give_up(log: CommitLog, event: Event, options: Options | None, system: System) -> None:
    """Puts a slot behind the prepared event which says that it does not count, whatever was decided elsewhere."""
    with open_manager(log.storage, Call(options).services().manager, system) as manager:
        context = manager.context
        with table_lock(context) as lease:
            draft = Event(WITHDRAW, event.action, "", system.new_id(), context.writer)
            after = Tail(event.number, (event.aborted(),))
            context.log.create(draft, after, lambda above: context.clock.next(above, lease), lambda: 0)
