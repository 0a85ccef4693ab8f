"""`lakelatch upgrade`: lets writers of a table commit for each other and with other tables, once all know how.

With `--side-by-side` they also show what they have committed for each other at once.
"""

from __future__ import annotations

from contextlib import closing

from lakelatch.console.base.invocation import Invocation, Outcome
from lakelatch.locks.contract import TABLE_KEY
from lakelatch.locks.open import open_recorded_locks
from lakelatch.timeline.properties_update import update_properties
from lakelatch.timeline.recorded_options import LOG_VERSION, NEW_LOG_VERSION, SIDE_BY_SIDE_LOG_VERSION, log_property
from lakelatch.timeline.table_config import load_table_config, recorded_lock_options


def run(call: Invocation, side_by_side: bool) -> Outcome:
    """Raises the version of the commit log. It may be done again, and is not undone."""
    wanted = SIDE_BY_SIDE_LOG_VERSION if side_by_side else NEW_LOG_VERSION
    storage = call.open_table()
    provider = open_recorded_locks(storage.uri, call.options, recorded_lock_options(storage))
    with closing(provider), provider.acquire(TABLE_KEY, provider.scope.lock_options.timeout_s):
        before = load_table_config(storage).log_version
        if before < wanted:
            update_properties(storage, log_property(wanted))
    changed = before < wanted
    said = f"{LOG_VERSION}={max(before, wanted)}"
    call.console.print(f"done: the table has {said}" if changed else f"the table has {said} already", markup=False)
    return 0, {"changed": changed, "log_version": max(before, wanted)}
