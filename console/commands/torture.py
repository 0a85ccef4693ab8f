"""`lakelatch torture`: injects all kinds of faults around a table, and reports whether anything was lost."""

from __future__ import annotations

import argparse
import multiprocessing
import signal
import sys
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from lakelatch.console.commands.arguments import Commands, Outcome
from lakelatch.errors import InvalidRequest
from lakelatch.torture.settings import PROVIDERS, ROLES, TortureSettings

_STOPPED = 130  # what shells say of a command that was interrupted
_AS_BEGUN = ("seed", "round_s", "lease_s", "pace_s", "store", "tables", *ROLES.values())


def add_parsers(commands: Commands) -> None:
    """`torture`."""
    known = TortureSettings()
    text = "writers, compactors and readers on a table, faults around them, and a checker"
    torture = commands.add("torture", torture_table, text, of_table=False)
    torture.add_argument(
        "--provider",
        action="append",
        metavar="NAME",
        help=f"lock provider, several with commas, or all: {', '.join(PROVIDERS)} (default: filesystem)",
    )
    torture.add_argument("--minutes", type=float, help=f"of faults on each provider (default: {known.minutes:g})")
    torture.add_argument("--folder", default="torture-out", help="where tables and histories go (default: torture-out)")
    torture.add_argument("--resume", action="store_true", help="go on with the run in the folder")
    torture.add_argument("--report", metavar="FILE", help="draw what happened, as one HTML file")
    torture.add_argument("--keep", action="store_true", help="keep the tables of rounds that went well, too")
    torture.add_argument("--seed", type=int, default=known.seed, help="what is drawn first (default: 0)")
    torture.add_argument("--round-s", type=float, default=known.round_s, help=f"(default: {known.round_s:g})")
    torture.add_argument("--lease-s", type=float, default=known.lease_s, help=f"(default: {known.lease_s:g})")
    torture.add_argument(
        "--pace-s", type=float, default=known.pace_s, help=f"mean time between two faults (default: {known.pace_s:g})"
    )
    several = f"transactions over so many tables as well (default: {known.tables})"
    torture.add_argument("--tables", type=int, default=known.tables, help=several)
    torture.add_argument("--store", default=known.store, metavar="NAME", help="s3: tables in an object store")
    for name in ROLES.values():
        default = getattr(known, name)
        torture.add_argument(f"--{name}", type=int, default=default, help=f"clients of this kind (default: {default})")


def torture_table(options: argparse.Namespace, console: Console) -> Outcome:
    """Runs a torture run, or resumes it, and shows the findings; 1 if the checker found problems."""
    # Imported here: no other command needs servers, clients of lock services and the checker.
    from lakelatch.torture.report.report import ensure_can_report, write_report
    from lakelatch.torture.runs.run import run, verdicts_of

    if sys.platform != "linux":
        raise InvalidRequest(
            f"lakelatch torture stops, watches and starves processes as Linux can; this is {sys.platform}"
        )
    if options.report:
        ensure_can_report()
    folder = Path(options.folder)
    multiprocessing.get_context("forkserver").set_forkserver_preload(["lakelatch.torture.traffic.clients"])
    settings = _resumed(folder, options) if options.resume else _fresh(folder, options)
    with console.status("starting") as status:

        def progress(round_name: str, text: str) -> None:
            status.update(f"{round_name}: {text}")

        def ended(round_name: str, text: str) -> None:
            console.print(f"{round_name}: {text}", soft_wrap=True)

        signal.signal(signal.SIGTERM, signal.default_int_handler)  # both end its clients, its servers and its disks
        try:
            problems = run(folder, settings, progress, ended)
        except KeyboardInterrupt:
            console.print(f"stopped: --folder {folder} --resume goes on")
            return _STOPPED, {"stopped": str(folder)}
    if options.report:
        write_report(folder, Path(options.report))
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
    return (1 if problems else 0), {
        "rounds": {place.name: verdict for place, verdict in verdicts.items()},
        "problems": problems,
    }


def _fresh(folder: Path, options: argparse.Namespace) -> TortureSettings:
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


def _resumed(folder: Path, options: argparse.Namespace) -> TortureSettings:
    """The settings with which the run was begun; only its length may change."""
    from lakelatch.torture.runs.run import settings_of

    if options.provider:
        raise InvalidRequest("--resume goes on with the providers that the run was begun with: leave --provider out")
    plain = TortureSettings()
    for name in _AS_BEGUN:
        if getattr(options, name) != getattr(plain, name):
            raise InvalidRequest(f"--resume goes on as the run was begun: leave --{name.replace('_', '-')} out")
    known = settings_of(folder)
    return replace(known, minutes=known.minutes if options.minutes is None else options.minutes, keep=options.keep)
