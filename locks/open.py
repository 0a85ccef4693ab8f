"""Opens the lock provider that the options name."""

from __future__ import annotations

from lakelatch.errors import InvalidRequest
from lakelatch.locks.contract import LockProvider, LockScope
from lakelatch.locks.options import PROVIDER
from lakelatch.plugins import find_component

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
