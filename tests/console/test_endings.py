"""How commands end: a code for each kind of error, one line, and where it came from with `--debug`."""

from __future__ import annotations

from typing import NoReturn

import pytest

from lakelatch import errors
from lakelatch.console.base.exit_codes import MEANINGS, ExitCode, WrongCall, exit_code_of
from lakelatch.console.main import main, run
from lakelatch.storage.contract import PutUnknown
from lakelatch.storage.local import LocalStorage

CONFLICT = errors.WriteConflict.of("20260101000000001", "20260101000000000", "commit", [("", "a")], 1.25)


def test_each_code_has_a_meaning_and_each_kind_a_code() -> None:
    assert set(MEANINGS) == set(ExitCode)
    codes: dict[type[Exception], ExitCode] = {
        WrongCall: ExitCode.WRONG_CALL,
        errors.InvalidRequest: ExitCode.FOUND,
        errors.Unavailable: ExitCode.UNAVAILABLE,
        errors.LockTimeout: ExitCode.UNAVAILABLE,
        PermissionError: ExitCode.UNAVAILABLE,
        PutUnknown: ExitCode.UNKNOWN,
        errors.CommitUnknown: ExitCode.UNKNOWN,
        errors.TransactionEnded: ExitCode.CONFLICT,
        errors.LeaseLost: ExitCode.CONFLICT,
        errors.CorruptTable: ExitCode.CORRUPT,
        errors.InvariantBroken: ExitCode.BUG,
        ZeroDivisionError: ExitCode.BUG,
    }
    assert {kind: exit_code_of(kind("it broke")) for kind in codes} == codes
    assert exit_code_of(CONFLICT) == ExitCode.CONFLICT
    known = {kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, Exception)}
    assert known - {errors.LakelatchError, errors.WriteConflict} <= set(codes)


def test_a_damaged_table_ends_with_its_own_code(storage: LocalStorage, capsys: pytest.CaptureFixture[str]) -> None:
    storage.put(".hoodie/hoodie.properties", b"hoodie.table.name=t\nhoodie.table.version=x\n")
    assert main(["timeline", storage.root]) == ExitCode.CORRUPT
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize(
    ("raised", "code", "line"),
    [
        (
            ZeroDivisionError("by\nzero"),
            ExitCode.BUG,
            "[LAKELATCH-BUG] ZeroDivisionError: by zero (--debug shows where)",
        ),
        (PermissionError(13, "Permission denied", "/x"), ExitCode.UNAVAILABLE, "Permission denied: '/x'"),
        (errors.CommitUnknown("no answer"), ExitCode.UNKNOWN, "[LAKELATCH-UNKNOWN] no answer"),
        (KeyboardInterrupt(), ExitCode.INTERRUPTED, "interrupted"),
    ],
)
def test_whatever_is_raised_is_one_line(
    raised: BaseException,
    code: int,
    line: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def broken(*_: object) -> NoReturn:
        raise raised

    assert run(["timeline", "t"], broken) == code
    said = capsys.readouterr().err
    assert line in said and said.count("\n") == 1
    if isinstance(raised, Exception):
        assert run(["--debug", "timeline", "t"], broken) == code
        assert "Traceback" in capsys.readouterr().err
