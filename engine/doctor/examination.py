"""All checks of the doctor, one after the other, each with a deadline."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass

from lakelatch.engine.doctor import locks, store, upkeep, writers
from lakelatch.engine.doctor.finding import NOT_CHECKED, Check, Finding, Limits, Patient
from lakelatch.engine.options.calls.registry import Call
from lakelatch.engine.table.opening import load_config
from lakelatch.errors import LakelatchError
from lakelatch.locks.open import open_recorded_locks
from lakelatch.storage.contract import Storage
from lakelatch.storage.uris import open_storage
from lakelatch.system import REAL_SYSTEM, System

DEFAULT_TIMEOUT_S = 60.0
#: Every check, by the name under which it is told; those `of_locks` are left out if the lock service does not answer.
CHECKS: tuple[tuple[str, Check, bool], ...] = (
    ("the table's properties", store.table, False),
    ("a second conditional put", store.second_put, False),
    ("the lock service", locks.answering, False),
    ("the locks of the other writers", locks.same_locks, True),
    ("two processes at one lock", locks.two_processes, True),
    ("the storage's clock", store.storage_clock, False),
    ("the lock service's clock", store.lock_clock, True),
    ("heartbeats", writers.heartbeats, True),
    ("writes of other engines", writers.other_engines, False),
    ("the commit log", upkeep.commit_log, False),
    ("services that are due", upkeep.due, False),
    ("missing files and orphans", upkeep.whole, False),
    ("sizes of file groups", upkeep.sizes, False),
)
_NO_LOCKS = "locks-unreachable"
# Of the time that a check has: the scratch lock is waited for before, and is given back before the check is given up.
_CHILD_SHARE = 0.8


@dataclass(frozen=True)
class Examination:
    """What was found, and by which checks. `unable` are the findings that say that something could not be checked."""

    findings: tuple[Finding, ...]
    checked: tuple[str, ...]

    @property
    def unable(self) -> tuple[Finding, ...]:
        return tuple(one for one in self.findings if one.code == NOT_CHECKED)


def examine(
    path: str,
    options: Mapping[str, object] | None = None,
    tell: Callable[[str], None] = lambda _: None,
    timeout_s: float = DEFAULT_TIMEOUT_S,
    limits: Limits | None = None,
    system: System = REAL_SYSTEM,
) -> Examination:
    """Examines a table, and what a writer with these options would meet. It changes nothing but scratch objects.

    `tell` is called with the name of each check before it is made. A check that fails, or has no answer after
    `timeout_s`, is a finding (`not-checked`). Errors: `InvalidRequest` for the options and where there is no table;
    those of a storage that cannot be read.
    """
    call = Call(options)
    parsed = call.services()
    return examine_storage(open_storage(path, parsed.manager.storage), call, tell, timeout_s, limits, system)


def examine_storage(
    storage: Storage,
    options: Mapping[str, object] | None = None,
    tell: Callable[[str], None] = lambda _: None,
    timeout_s: float = DEFAULT_TIMEOUT_S,
    limits: Limits | None = None,
    system: System = REAL_SYSTEM,
    checks: Sequence[tuple[str, Check, bool]] = CHECKS,
) -> Examination:
    """As `examine`, of a storage that is open, and perhaps by some of the checks."""
    call = Call(options)
    parsed, config = call.services(), load_config(storage)
    given = {key: str(value) for key, value in call.items()}
    provider = open_recorded_locks(storage.uri, parsed.manager.scope, config.lock_options, system)
    patient = Patient(
        storage, config, parsed, given, provider, _CHILD_SHARE * timeout_s, limits or Limits(), system=system
    )
    with closing(provider):
        return _examined(patient, checks, tell, timeout_s)


def _examined(
    patient: Patient, checks: Sequence[tuple[str, Check, bool]], tell: Callable[[str], None], timeout_s: float
) -> Examination:
    found, checked = list[Finding](), list[str]()
    for name, check, of_locks in checks:
        if of_locks and any(one.code == _NO_LOCKS for one in found):
            continue
        tell(name)
        more, ended = _made(patient, name, check, timeout_s)
        found += more
        if ended:
            checked.append(name)
    return Examination(tuple(found), tuple(checked))


def _made(patient: Patient, name: str, check: Check, timeout_s: float) -> tuple[list[Finding], bool]:
    """What a check found, and whether it was made."""
    found, errors, done = list[Finding](), list[Exception](), patient.system.new_event()

    def make() -> None:
        try:
            found.extend(check(patient))
        except Exception as error:  # told below, in the caller's thread
            errors.append(error)
        finally:
            done.set()

    thread = patient.system.start_thread(make, "lakelatch-doctor")
    if not done.wait(timeout_s):
        return [*found, _unable(name, f"no answer within {timeout_s:g} s", "give it longer: --timeout SECONDS")], False
    thread.join()
    for error in errors:
        if not isinstance(error, LakelatchError):
            raise error
        mend = "mend what the fact says, or give it longer: --timeout SECONDS"
        return [*found, _unable(name, error.message, mend)], False
    return found, True


def _unable(name: str, why: str, mend: str) -> Finding:
    return Finding(NOT_CHECKED, f"{name}: {why}", "what this check would have found is not known", mend)
