"""The scripts that Redis runs, each atomically: sessions that expire, a queue for each name, hand-over in order.

Keys, below a prefix with a hash tag, so that a cluster keeps them in one slot:
`s:<session>` the session, expiring; its value is lease time and owner. `locks` a hash, name to holder
(`session request token since_ms`). `q:<name>` waiters, in order (`session request`). `w:<request>` wakes one waiter,
with its token. `x:<request>` refuses a request that was given back before it arrived. `b:<session>` the release
requests for a session. `token` the last token of all names. `r:<name>` a register. `i:<name>` the id of
a table's locks.
"""

from __future__ import annotations

from importlib.resources import files


def _load(name: str) -> str:
    return files(__name__).joinpath(f"{name}.lua").read_text(encoding="utf-8")


_COMMON = _load("common")

ADVANCE = _load("advance")
CLOSE = _COMMON + _load("close")
GIVE_BACK = _COMMON + _load("give_back")
HELD_BY = _COMMON + _load("held_by")
HOLDERS = _COMMON + _load("holders")
LEAVE = _COMMON + _load("leave")
LOCK_ID = _load("lock_id")
OPEN = _COMMON + _load("open")
RENEW = _COMMON + _load("renew")
REQUEST_RELEASE = _COMMON + _load("request_release")
TAKE = _COMMON + _load("take")
TIME = _COMMON + _load("time")
