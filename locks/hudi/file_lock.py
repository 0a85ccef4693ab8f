"""Hudi's lock by a file, which is refused: it cannot promise what a lease promises."""

from __future__ import annotations

from lakelatch.errors import InvalidRequest
from lakelatch.locks.contract import LockProvider, LockScope
from lakelatch.locks.options import FILESYSTEM_PATH, PROVIDER


def refuse_file_lock(scope: LockScope) -> LockProvider:
    """Raises `InvalidRequest`, which says what to use instead.

    A Java writer that has this lock creates the file `lock`, and removes it when it is done or closed, whichever writer
    holds it by then: after `filesystem.expire` minutes of any one holder (by the reader's clock), several may. With
    no expiry, the default, a holder that died keeps the table for good. Nothing of ours that took part could know that
    its lease is about to end, and kernel locks, which `filesystem` stands for, exclude no Java writer.
    """
    raise InvalidRequest(
        f"{PROVIDER}={scope.lock_options.provider!r} is Hudi's lock by a file, which its writers remove without "
        "looking whose it is: no lease can be built on it. If Java writers share the table, let all writers use "
        "org.apache.hudi.client.transaction.lock.ZookeeperBasedLockProvider (or Hudi's storage-based or DynamoDB "
        f"locks); if all writers are lakelatch's on one machine, use 'filesystem', with the same {FILESYSTEM_PATH}",
        option=PROVIDER,
    )
