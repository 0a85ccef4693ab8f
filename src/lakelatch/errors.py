"""Every error of Lakelatch, by what the caller must do; one root.

The kinds are few on purpose: a new one is made only if a caller would act differently. Each carries a stable code
in its text (`[LAKELATCH-CONFLICT] ...`), because Spark loses Python error types on the way through its data source
interface; `reraise` gives the typed error back.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn


class LakelatchError(Exception):
    """The root of every error that Lakelatch raises on purpose.

    Keyword details are kept as attributes of `details` and survive pickling, so an error raised in a Spark task
    reaches the driver whole.
    """

    code = "LAKELATCH-ERROR"

    def __init__(self, message: str, **details: Any) -> None:
        super().__init__(message)
        self.message = message
        self.details = details

    def __str__(self) -> str:
        return f"[{self.code}] {self.message}"

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.message, self.details, self.code)


_WRITE_AGAIN = (
    "Compute the frame again from what is there now and write it (hoodie.write.num.retries.on.conflict.failures does "
    "so for a function), or use NON_BLOCKING_CONCURRENCY_CONTROL with an ordering field"
)
_RUN_AGAIN = "Nothing was committed in any table: run the block again"


def _rebuild(kind: type[LakelatchError], message: str, details: dict[str, Any], code: str) -> LakelatchError:
    error = kind.__new__(kind)
    LakelatchError.__init__(error, message, **details)
    error.code = code
    return error


class InvalidRequest(LakelatchError):
    """The options or the data of this call are wrong; the table is as it was. Change the call."""

    code = "LAKELATCH-INVALID"


class CorruptTable(LakelatchError):
    """Stored data is not what its writer must have written. It must be repaired before anything is written."""

    code = "LAKELATCH-CORRUPT"


class Unavailable(LakelatchError):
    """A service or the storage could not be used now; nothing happened. Try again later."""

    code = "LAKELATCH-UNAVAILABLE"


class LockTimeout(Unavailable):
    """The lease was not granted before the deadline; nothing is held."""

    code = "LAKELATCH-LOCK-TIMEOUT"

    @classmethod
    def of(cls, key: str, waited_s: float, option: str, holder: str | None = None) -> LockTimeout:
        by = f"; it is held by {holder}" if holder else ""
        return cls(
            f"the lock {key!r} was not free within {waited_s:g} s ({option}){by}. Raise {option}, or look at the "
            "holder with `lakelatch locks`",
            key=key,
            waited_s=waited_s,
            holder=holder,
        )


class LeaseLost(LakelatchError):
    """The lease is no longer held (expired, broken, forked or pickled copy). Take a new one; do not act on this."""

    code = "LAKELATCH-LEASE-LOST"


class WriteConflict(LakelatchError):
    """Another transaction has, or will have, the same file groups; this one was rolled back. Retry on fresh data.

    `winner` is the requested time of the instant that won, `file_groups` the (partition, file id) pairs that both
    touched, `time_lost_s` the seconds since this transaction began; `seen_slot` and `seen_time` say since when the
    conflict could be seen (the winner's slot and completion, or the time of its marker), `rows_lost`, `bytes_lost` and
    `task_s_lost` what was thrown away, and `early` whether it was found before the commit. An error that was found in a
    text knows none of them: they are "", [], 0 and False there.
    """

    code = "LAKELATCH-CONFLICT"

    @classmethod
    def of(
        cls,
        instant: str,
        winner: str,
        winner_action: str,
        file_groups: Iterable[tuple[str, str]],
        time_lost_s: float,
        **more: Any,
    ) -> WriteConflict:
        """`more`: winner_writer, inflight (the winner is still at work), early, seen_slot, seen_time, rows_lost,
        bytes_lost, task_s_lost; and table, of a part of a transaction over several tables."""
        groups = sorted(file_groups)
        shown = ", ".join(f"{partition or '.'}/{file_id}" for partition, file_id in groups[:5])
        rest = f" and {len(groups) - 5} more" if len(groups) > 5 else ""
        by = f" of {more['winner_writer']}" if more.get("winner_writer") else ""
        many = f"{len(groups)} of the same file groups ({shown}{rest})"
        if more.get("inflight"):
            story = f"gives way to {winner_action} {winner}{by}, which is at work on {many}"
        else:
            story = f"lost to {winner_action} {winner}{by}, which completed first on {many}"
        work = f"{more.get('rows_lost', 0):,} rows, {more.get('bytes_lost', 0):,} bytes"
        part = f" of {more['table']}, a part of a transaction over several tables," if more.get("table") else ""
        return cls(
            f"instant {instant}{part} {story}{_since(more)}; {time_lost_s:.1f} s of work are lost ({work}, "
            f"{more.get('task_s_lost', 0):.1f} task seconds). {_RUN_AGAIN if part else _WRITE_AGAIN}",
            instant=instant,
            winner=winner,
            winner_action=winner_action,
            file_groups=groups,
            time_lost_s=time_lost_s,
            **more,
        )

    def _repr_html_(self) -> str:
        """Who lost to whom, and what, for notebooks."""
        from lakelatch.notebook import html_of, text_of  # what checks us loads nothing else of ours

        if not self.winner:
            return html_of({"conflict": self.message})
        winner = [self.details.get("winner_action"), self.winner, self.details.get("winner_writer")]
        shown = {
            "lost": text_of(self.details.get("instant")),
            "to": " ".join(str(one) for one in winner if one),
            "file groups": text_of([f"{partition or '.'}/{file_id}" for partition, file_id in self.file_groups]),
            "seconds lost": text_of(self.time_lost_s),
            "rows lost": text_of(self.rows_lost),
            "bytes lost": text_of(self.bytes_lost),
        }
        return html_of(shown)

    @property
    def winner(self) -> str:
        return str(self.details.get("winner", ""))

    @property
    def file_groups(self) -> list[tuple[str, str]]:
        return list(self.details.get("file_groups", ()))

    @property
    def time_lost_s(self) -> float:
        return float(self.details.get("time_lost_s", 0))

    @property
    def early(self) -> bool:
        return bool(self.details.get("early", False))

    @property
    def seen_slot(self) -> int:
        return int(self.details.get("seen_slot", 0))

    @property
    def seen_time(self) -> str:
        return str(self.details.get("seen_time", ""))

    @property
    def rows_lost(self) -> int:
        return int(self.details.get("rows_lost", 0))

    @property
    def bytes_lost(self) -> int:
        return int(self.details.get("bytes_lost", 0))

    @property
    def task_s_lost(self) -> float:
        return float(self.details.get("task_s_lost", 0))


def _since(details: Mapping[str, Any]) -> str:
    """When a conflict could first be seen, as a part of its text."""
    if details.get("inflight"):
        return f", as its marker says since {details['seen_time']}" if details.get("seen_time") else ""
    slot = f" as slot {details['seen_slot']} of the commit log" if details.get("seen_slot") else ""
    return f", at {details['seen_time']}{slot}" if details.get("seen_time") else slot


class TransactionEnded(LakelatchError):
    """This transaction was ended by another writer (rolled back, cancelled) or before; it cannot commit. Begin anew."""

    code = "LAKELATCH-ENDED"


class CommitUnknown(LakelatchError):
    """The commit may or may not have happened, and reading could not resolve it. Look before doing it again.

    `instant` is the requested time: the commit happened if and only if a completed file of it is on the timeline.
    """

    code = "LAKELATCH-UNKNOWN"


class InvariantBroken(LakelatchError):
    """Something that cannot happen did: a fault of Lakelatch itself. Please report it with its text."""

    code = "LAKELATCH-BUG"


def _kinds(root: type[LakelatchError] = LakelatchError) -> dict[str, type[LakelatchError]]:
    """Every kind that is loaded, by its code; a kind without a code of its own is found as its parent."""
    found: dict[str, type[LakelatchError]] = {}
    for kind in root.__subclasses__():
        found.update(_kinds(kind))
    if "code" in vars(root):
        found[root.code] = root
    return found


_CODED = re.compile(r"\[(LAKELATCH-[A-Z-]+)\] ([^\n]*)")


def from_text(text: str) -> LakelatchError | None:
    """The typed error whose code stands in a text (a Spark exception's, say), or None; its details are not kept.

    A code whose module this process has not loaded gives a plain `LakelatchError` that carries it.
    """
    found = list(_CODED.finditer(text))
    if not found:
        return None
    code, message = found[-1].groups()  # the last one is the innermost error of a Spark traceback
    return _rebuild(_kinds().get(code, LakelatchError), message, {}, code)


def reraise(error: BaseException) -> NoReturn:
    """Raises the typed Lakelatch error that hides in another exception's text, or that exception itself."""
    if isinstance(error, LakelatchError):
        raise error
    typed = from_text(str(error))
    if typed is None:
        raise error
    raise typed from error
