"""Opens the lock provider that the options name."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing

from lakelatch.errors import InvalidRequest
from lakelatch.locks.contract import LockProvider, LockScope
from lakelatch.locks.options import PROVIDER, TABLE_NAME
from lakelatch.plugins import find_component
from lakelatch.system import REAL_SYSTEM, System

LOCK_PROVIDERS = "lakelatch.lock_providers"


def open_lock_provider(scope: LockScope) -> LockProvider:
    """Constructs the provider that `hoodie.write.lock.provider` names, by short name or Hudi class name.

    Nothing is connected yet. The caller closes it.

    Errors: `InvalidRequest`, with the nearest known name and what is installed.
    """
    name = scope.lock_options.provider
    kind = find_component(LOCK_PROVIDERS, name, "lock provider", PROVIDER)
    provider = kind(scope)
    if not isinstance(provider, LockProvider):
        raise InvalidRequest(
            f"{PROVIDER}={name!r} made a {type(provider).__name__}, which is no LockProvider: choose another one",
            option=PROVIDER,
        )
    return provider


def open_recorded_locks(
    table_uri: str, options: Mapping[str, str], recorded: Mapping[str, str] | None, system: System = REAL_SYSTEM
) -> LockProvider:
    """The provider of a table's locks: by the options, and by what the table records where they say nothing.

    Options win. What is recorded of a provider is left out if they name another one, and all that it does not declare
    as `not_secret`: a writer of the table's properties cannot have others read files, or run code, by them.

    Errors: those of `open_lock_provider`.
    """
    said = options.get(PROVIDER, "").strip()
    found = dict(recorded or {})
    provider = found.pop(PROVIDER, "")
    if not provider or said.lower() not in ("", provider.lower()):
        return open_lock_provider(LockScope(table_uri, {**_names(found), **options}, system))
    try:
        kind = find_component(LOCK_PROVIDERS, provider, "lock provider", PROVIDER)
        known: frozenset[str] = getattr(kind, "not_secret", frozenset())
        taken = {key: value for key, value in found.items() if key in known}
        return open_lock_provider(
            LockScope(table_uri, {PROVIDER: provider, **_names(found), **taken, **options}, system)
        )
    except InvalidRequest as error:
        if said:
            raise
        raise InvalidRequest(
            f"{error.message} (the lock provider {provider!r} and what leads to it are recorded in the properties of "
            f"the table at {table_uri}; an option that you give goes before)",
            **error.details,
        ) from error


def record_of(table_uri: str, options: Mapping[str, str]) -> dict[str, str]:
    """The options that a table made with these records of its locks; none where they name no locks.

    Then the locks are those that belong to the place where it lies, for all.
    """
    with closing(open_lock_provider(LockScope(table_uri, options))) as provider:
        found = provider.record()
    return found if PROVIDER in options or len(found) > 1 else {}


def _names(recorded: Mapping[str, str]) -> dict[str, str]:
    """The table's name, by which some providers call its lock, and which no option of theirs gives."""
    return {TABLE_NAME: recorded[TABLE_NAME]} if TABLE_NAME in recorded else {}
