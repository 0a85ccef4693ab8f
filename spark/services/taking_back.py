"""Savepoints, rollbacks and restores of a table by its path. None of them needs a Spark session."""

from __future__ import annotations

from collections.abc import Mapping

from lakelatch.services import restoring
from lakelatch.services import savepoints as kept
from lakelatch.services.restoring import Undone
from lakelatch.services.savepoints import Savepoint
from lakelatch.spark.services.plans import open_existing_storage, table_at_rest
from lakelatch.system import REAL_SYSTEM, System


def savepoint(
    path: str,
    instant: str | None = None,
    comment: str = "",
    options: Mapping[str, object] | None = None,
    system: System = REAL_SYSTEM,
) -> Savepoint:
    """Keeps the table as of a completed commit, the last one unless told otherwise, until `delete_savepoint`.

    Errors: `InvalidRequest` for what is no completed commit of the active timeline, and for one of whose files a clean
    has removed some.
    """
    with table_at_rest(path, options, system) as (table, manager, _):
        chosen = instant or kept.latest_commit(manager)
        return kept.create_savepoint(table.config, manager, chosen, comment)


def delete_savepoint(
    path: str, instant: str, options: Mapping[str, object] | None = None, system: System = REAL_SYSTEM
) -> None:
    """Gives a savepoint up. Errors: `InvalidRequest` if there is none of this commit."""
    with table_at_rest(path, options, system) as (_, manager, _):
        kept.delete_savepoint(manager, instant)


def savepoints(path: str, options: Mapping[str, object] | None = None) -> list[Savepoint]:
    """The table's savepoints, whoever made them, oldest commit first."""
    return kept.savepoints(open_existing_storage(path, options))


def roll_back(
    path: str, instant: str, options: Mapping[str, object] | None = None, system: System = REAL_SYSTEM
) -> Undone:
    """Takes back a completed commit on which no later one builds.

    Writers under way on its file groups lose, unless they are under non-blocking control. Errors: `InvalidRequest`,
    with nothing changed, if a later commit or a plan builds on it, or a savepoint keeps it.
    """
    with table_at_rest(path, options, system) as (_, manager, _):
        return restoring.roll_back(manager, instant)


def restore(path: str, to: str, options: Mapping[str, object] | None = None, system: System = REAL_SYSTEM) -> Undone:
    """Takes the table back to where it was when this commit completed, a savepoint's or any other.

    Every write under way ends with `TransactionEnded`. Errors: `InvalidRequest`, with nothing changed, if a later
    commit was archived or is kept by a savepoint, or if a clean has removed files that are needed; `Unavailable` while
    another restore is under way.
    """
    with table_at_rest(path, options, system) as (table, manager, _):
        return restoring.restore(table.config, manager, to)
