"""`lakelatch torture`: injects all kinds of faults around a table, and reports whether anything was lost."""

from __future__ import annotations

import multiprocessing
import signal
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from lakelatch.console.base.exit_codes import ExitCode
from lakelatch.console.base.invocation import Invocation, Outcome
from lakelatch.errors import InvalidRequest
from lakelatch.torture.settings import PROVIDERS, ROLES, TortureSettings

_AS_BEGUN = ("seed", "round_s", "lease_s", "pace_s", "store", "tables", *ROLES.values())


def torture_table(call: Invocation, table_count: int, **given: Any) -> Outcome:
    """Runs a torture run, or resumes it, and shows the findings; 1 if the checker found problems."""
    # Imported here: no other command needs servers, clients of lock services and the checker.
    from lakelatch.torture.report.ledger import add_rounds, read_ledger
    from lakelatch.torture.report.report import ensure_can_report, write_report
    from lakelatch.torture.runs.run import run, verdicts_of

    options = SimpleNamespace(tables=table_count, **given)
    if sys.platform != "linux":
        raise InvalidRequest(
            f"lakelatch torture stops, watches and starves processes as Linux can; this is {sys.platform}"
        )
    if options.report:
        ensure_can_report()
    ledger = Path(options.ledger) if options.ledger else None
    if ledger:
        read_ledger(ledger)  # refuses a mistake before anything runs
    folder, console = Path(options.folder), call.console
    multiprocessing.get_context("forkserver").set_forkserver_preload(["lakelatch.torture.traffic.clients"])
    settings = _resumed(folder, options) if options.resume else _fresh(folder, options)
    with call.status("starting") as tell:

        def progress(round_name: str, text: str) -> None:
            tell(f"{round_name}: {text}")

        def ended(round_name: str, text: str) -> None:
            call.notes.print(f"{round_name}: {text}", soft_wrap=True)
            if ledger:
                add_rounds(ledger, folder)

        signal.signal(signal.SIGTERM, signal.default_int_handler)  # both end its clients, its servers and its disks
        try:
            problems = run(folder, settings, progress, ended)
        except KeyboardInterrupt:
            console.print(f"stopped: --folder {folder} --resume goes on")
            return ExitCode.INTERRUPTED, {"stopped": str(folder)}
    if options.report:
        write_report(folder, Path(options.report), ledger)
        console.print(f"report: {options.report}")
    verdicts = verdicts_of(folder)
    for problem in problems:
        console.print(problem, style="red", soft_wrap=True)
    commits = sum(verdict["counts"].get("committed", 0) for verdict in verdicts.values())
    faults = sum(sum(verdict["faults"].values()) for verdict in verdicts.values())
    console.print(
        f"{len(verdicts)} rounds, {commits} acknowledged commits, {faults} faults: "
        + (f"{len(problems)} problems" if problems else "nothing lost, nothing doubled, nothing out of order"),
        soft_wrap=True,
    )
    outcome = {"rounds": {place.name: verdict for place, verdict in verdicts.items()}, "problems": problems}
    if ledger:
        owed = add_rounds(ledger, folder)
        console.print(f"{ledger}: {owed}", soft_wrap=True, markup=False)
        outcome["ledger"] = owed.to_json()
    return (1 if problems else 0), outcome


def _fresh(folder: Path, options: SimpleNamespace) -> TortureSettings:
    from lakelatch.torture.runs.run import begin_run

    names = [name.strip() for value in options.provider or ["filesystem"] for name in value.split(",")]
    settings = TortureSettings(
        providers=PROVIDERS if names == ["all"] else tuple(names),
        minutes=TortureSettings.minutes if options.minutes is None else options.minutes,
        keep=options.keep,
        **{name: getattr(options, name) for name in _AS_BEGUN},
    )
    begin_run(folder, settings)
    return settings


def _resumed(folder: Path, options: SimpleNamespace) -> TortureSettings:
    """The settings with which the run was begun; only its length may change."""
    from lakelatch.torture.runs.run import settings_of

    if options.provider:
        raise InvalidRequest(
            "--resume goes on with the providers that the run was begun with: leave --provider out", option="--provider"
        )
    plain = TortureSettings()
    for name in _AS_BEGUN:
        if getattr(options, name) != getattr(plain, name):
            said = f"--{name.replace('_', '-')}"
            raise InvalidRequest(f"--resume goes on as the run was begun: leave {said} out", option=said)
    known = settings_of(folder)
    return replace(known, minutes=known.minutes if options.minutes is None else options.minutes, keep=options.keep)
