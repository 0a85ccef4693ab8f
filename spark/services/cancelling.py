"""Plans that are called off, for those who have a table's path: see `services/cancelling.py` for what happens."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from lakelatch.services import cancelling
from lakelatch.spark.services.plans import table_at_rest
from lakelatch.system import REAL_SYSTEM, System
from lakelatch.transactions.cancellation.requests import CancelRequest


def request_cancel(
    path: str,
    instant: str,
    options: Mapping[str, object] | None = None,
    file_groups: Iterable[tuple[str, str]] | None = None,
    system: System = REAL_SYSTEM,
) -> CancelRequest | None:
    """Calls a plan off, or its part on these (partition, file id); None if it was aborted already.

    Once this has returned, the plan can never commit (in that part), and nobody can take that back. Whoever works on it
    stops as soon as it looks. `execute_cancel` removes what it left, as each clean does.

    Errors: `InvalidRequest` if it has completed, is immutable, or is no plan; for file groups that are not in it, and
    for a part of a plan that goes whole or not at all. `CommitUnknown`: it may have been asked for, so ask again.
    """
    with table_at_rest(path, options, system) as (_, manager, _):
        return cancelling.request_cancel(manager, instant, file_groups)


def execute_cancel(
    path: str, instant: str, options: Mapping[str, object] | None = None, system: System = REAL_SYSTEM
) -> bool:
    """Ends a plan that was called off, and removes what it left; False if it had ended already.

    Errors: `Unavailable` while a live process works on it, `InvalidRequest` if nobody has asked for all of it to be
    cancelled, and if another engine has completed it.
    """
    with table_at_rest(path, options, system) as (_, manager, _):
        return cancelling.execute_cancel(manager, instant)


def open_cancellations(
    path: str, options: Mapping[str, object] | None = None, system: System = REAL_SYSTEM
) -> list[CancelRequest]:
    """What was called off and has not ended yet, by the plans' requested times."""
    with table_at_rest(path, options, system) as (_, manager, _):
        return cancelling.open_requests(manager)
