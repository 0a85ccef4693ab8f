"""Whether the locks that a writer takes are those of the table, by the id that the lock service keeps (0043).

Asked once in a process, where the lock service is asked anyway: when a table is opened for the first time, or after the
table's lock was granted. Who never asks a lock service cannot take a wrong lock. What was found is compared with the
commit log wherever kinds of locks are, at no request.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256

from lakelatch.locks.contract import LockProvider
from lakelatch.locks.options import TABLE_NAME
from lakelatch.timeline.log.commit_log import CommitLog
from lakelatch.timeline.log.lock_names import WrongLocks, is_lock_id, split_locks
from lakelatch.timeline.recorded_options import LOG_VERSION

_OF_EACH_MACHINE = re.compile(r"(?:^|//|@|,)(?:localhost|127\.|\[?::1)|^(?:unix:|file:|/)", re.IGNORECASE)
_log = logging.getLogger("lakelatch.transactions")


@dataclass(frozen=True)
class LockCheck:
    """The check of one writer's locks. `recorded` are the lock options in the table's properties."""

    provider: LockProvider
    recorded: Mapping[str, str]

    def confirm(self, log: CommitLog) -> None:
        """Has the log know the id of these locks, from the service unless it knows it already.

        Errors: `WrongLocks` if the service has none and the table's writers have one; those of the service.
        """
        log.lock_hint = self.hint
        if not log.lock_id:
            log.lock_id = self._found(log)

    def hint(self) -> str:
        """What this writer says of its locks otherwise than the table, for an error; empty if nothing."""
        said = self.provider.record()
        differ = sorted(key for key in {*said, *self._recorded} if said.get(key, "") != self._recorded.get(key, ""))
        if not differ or not self._recorded:
            return ""
        parts = [f"{key}={said.get(key, '')}, recorded {self._recorded.get(key, '')!r}" for key in differ]
        return f" (unlike the table's properties: {'; '.join(parts)})"

    @property
    def _recorded(self) -> dict[str, str]:
        return {key: value for key, value in self.recorded.items() if key not in (TABLE_NAME, LOG_VERSION)}

    def _found(self, log: CommitLog) -> str:
        provider = self.provider
        found = provider.lock_id() if provider.domain else None
        if found == "":
            found = provider.lock_id(self._proposal(log))
        return found if found and is_lock_id(found) else ""

    def _proposal(self, log: CommitLog) -> str:
        """The id for a service that has none: a new one, or the table's if the service may have forgotten it."""
        name = log.tail().lock_domain
        kind, kept = split_locks(name)
        if kind != self.provider.domain or not kept:
            return new_lock_id(self.provider)
        if not self._is_recorded_place():
            raise WrongLocks(
                f"the lock service knows nothing of this table's locks, which its writers take from {name!r}: it is "
                f"another service, or another place at it{self.hint()}, or its data was lost. Correct these options; "
                f"if it is the right one, or is to be from now on, say so with `lakelatch locks migrate --to "
                f"{self.provider.scope.lock_options.provider} --from-is-gone`",
                option="hoodie.write.lock.provider",
            )
        _log.warning("the lock service at the recorded place has lost its data: it is given the id of %r again", name)
        return kept

    def _is_recorded_place(self) -> bool:
        """Whether a service that may forget is the recorded one. What is local on each machine does not say that."""
        provider = self.provider
        if not provider.may_forget or not self._recorded or provider.record() != self._recorded:
            return False
        local = any(_OF_EACH_MACHINE.search(value) for key, value in self._recorded.items() if key.endswith("url"))
        return not local or provider.scope.table_uri.startswith("file:")


def new_lock_id(provider: LockProvider) -> str:
    """A new id for a lock service that has none."""
    return sha256(provider.scope.system.new_id().encode()).hexdigest()[:16]
