"""The exit codes of the `lakelatch` command: what a script that called it has to do."""

from __future__ import annotations

from enum import IntEnum

from lakelatch.errors import (
    CommitUnknown,
    CorruptTable,
    InvalidRequest,
    InvariantBroken,
    LakelatchError,
    LeaseLost,
    TransactionEnded,
    Unavailable,
    WriteConflict,
)


class ExitCode(IntEnum):
    """How a command ended. `MEANINGS` says what each is."""

    DONE = 0
    FOUND = 1
    WRONG_CALL = 2
    UNAVAILABLE = 3
    CONFLICT = 4
    UNKNOWN = 5
    CORRUPT = 6
    BUG = 7
    INTERRUPTED = 130
    OUTPUT_CLOSED = 141


MEANINGS = {
    ExitCode.DONE: "done",
    ExitCode.FOUND: "the answer is no: there are findings, a check failed, nobody held the lock; or the table refused "
    "it, which has no such instant, or other locks, and is as it was",
    ExitCode.WRONG_CALL: "the command line or `lakelatch.toml` is wrong, in what it says or in a value; nothing was "
    "begun. Of `doctor`: a part of the table, or all of it, could not be looked at",
    ExitCode.UNAVAILABLE: "a service, a store, a lock or a file cannot be used now; nothing happened. Try again later",
    ExitCode.CONFLICT: "another writer was first, or has ended this; nothing was committed. Do it on what is there now",
    ExitCode.UNKNOWN: "it may have happened or not, since an answer was lost. Look (`lakelatch timeline`) before you "
    "do it again",
    ExitCode.CORRUPT: "stored data is damaged: `lakelatch verify` lists what. Repair it before anything is written",
    ExitCode.BUG: "a fault of Lakelatch itself. Please report it with what `--debug` prints",
    ExitCode.INTERRUPTED: "interrupted by SIGINT (Ctrl-C)",
    ExitCode.OUTPUT_CLOSED: "nobody reads the output any more, as after `| head`",
}


class WrongCall(InvalidRequest):
    """The command line, or `lakelatch.toml`, cannot be read as it is written; nothing was begun."""


def exit_code_of(error: Exception) -> ExitCode:
    """How a command ends that raised this."""
    from lakelatch.storage.contract import PutUnknown  # not loaded before something has failed

    kinds: list[tuple[type[BaseException] | tuple[type[BaseException], ...], ExitCode]] = [
        (WrongCall, ExitCode.WRONG_CALL),
        ((CommitUnknown, PutUnknown), ExitCode.UNKNOWN),
        ((Unavailable, OSError), ExitCode.UNAVAILABLE),
        ((WriteConflict, TransactionEnded, LeaseLost), ExitCode.CONFLICT),
        (CorruptTable, ExitCode.CORRUPT),
        (InvariantBroken, ExitCode.BUG),
        (LakelatchError, ExitCode.FOUND),
    ]
    return next((code for kind, code in kinds if isinstance(error, kind)), ExitCode.BUG)
