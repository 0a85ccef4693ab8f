"""Properties by which a table says how its writers meet: which locks they take, and which commit log they write."""

from __future__ import annotations

from collections.abc import Mapping

from lakelatch.errors import InvalidRequest

# The locks of writers that name none. Not under Hudi's own keys: its tools take properties for options.
LOCKS_RECORDED = "lakelatch.table.lock."
#: 1, or nothing: a slot of the commit log has one event. 2: one writer may commit for others in its slot. 3: an event
#: may be a part of a transaction over several tables. 4: the completed files of a slot's commits are made at once, so
#: incremental readers that do not know the log may pass one by; a table gets it by name alone.
LOG_VERSION = "lakelatch.table.log.version"
GROUPING_LOG_VERSION = 2
PREPARING_LOG_VERSION = 3
SIDE_BY_SIDE_LOG_VERSION = 4
NEW_LOG_VERSION = PREPARING_LOG_VERSION
LATEST_LOG_VERSION = SIDE_BY_SIDE_LOG_VERSION
_LOCK_OPTIONS = "hoodie.write.lock."


def lock_properties(locks: Mapping[str, str]) -> dict[str, str]:
    """Lock options as a table's properties have them."""
    return {LOCKS_RECORDED + key.removeprefix(_LOCK_OPTIONS): value for key, value in locks.items()}


def locks_in(values: Mapping[str, str]) -> dict[str, str]:
    """The lock options among a table's properties; keys other than `hoodie.write.lock.*` are recorded whole."""
    found = {key.removeprefix(LOCKS_RECORDED): value for key, value in values.items() if key.startswith(LOCKS_RECORDED)}
    return {key if key.startswith("hoodie.") else _LOCK_OPTIONS + key: value for key, value in sorted(found.items())}


def log_property(version: int) -> dict[str, str]:
    """The version of the commit log as a table's properties have it; tables of the first one do not name it."""
    return {LOG_VERSION: str(version)} if version > 1 else {}


def check_log_version(values: Mapping[str, str], table_uri: str) -> None:
    """Errors: `InvalidRequest` for a version of the commit log that is not known here."""
    version = values.get(LOG_VERSION, "1")
    if version not in map(str, range(1, LATEST_LOG_VERSION + 1)):
        raise InvalidRequest(
            f"the table at {table_uri} has {LOG_VERSION}={version}, and this version of lakelatch knows 1 to "
            f"{LATEST_LOG_VERSION}: upgrade lakelatch"
        )


def groups_commits(recorded: Mapping[str, str]) -> bool:
    """Whether one writer of a table may commit for others, by what its properties say of its writers."""
    return recorded.get(LOG_VERSION, "1") != "1"


def shows_side_by_side(recorded: Mapping[str, str]) -> bool:
    """Whether the completed files of a slot are made at once, by what a table's properties say of its writers."""
    return recorded.get(LOG_VERSION, "1") == str(SIDE_BY_SIDE_LOG_VERSION)
