"""Whether a table is the one that a transaction over several tables has seen, or another one in its place."""

from __future__ import annotations

from collections.abc import Collection

from lakelatch.errors import InvalidRequest, WriteConflict
from lakelatch.storage.contract import Storage
from lakelatch.storage.uris import without_secrets
from lakelatch.timeline.history.history import History
from lakelatch.timeline.instant import HISTORY_NAME, parse_file_name, undoes
from lakelatch.timeline.properties_file import is_table


def ensure_same_table(storage: Storage, before: Collection[str], now: Collection[str]) -> None:
    """Errors: `WriteConflict` if nothing that had completed by an earlier listing of the timeline is left of it.

    A table in which nothing had completed is not told from another one, nor is one in which something was taken back,
    which is for others to find. Makes no request unless nothing is left on the active timeline.
    """
    done = [one for one in map(parse_file_name, before) if one is not None and one.completion is not None]
    if not done or any(one.file_name in now for one in done) or any(map(undoes, now)):
        return
    if HISTORY_NAME in now and History.load(storage).find_all({one.requested for one in done}):
        return
    raise WriteConflict(
        f"another table is in the place of {without_secrets(storage.uri)}, since this transaction has begun: nothing "
        "of the transaction was committed. Run the block again to change the one that is there now"
    )


def ensure_there(storage: Storage) -> None:
    """Errors: `InvalidRequest` if the table is gone."""
    if not is_table(storage):
        raise InvalidRequest(
            f"there is no table at {without_secrets(storage.uri)} any more: others have removed it since this "
            "transaction has begun, and nothing of the transaction was committed in any table. Restore it from a copy, "
            "or run the block without it"
        )
