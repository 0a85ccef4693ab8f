"""`lakelatch doctor`: what an experienced colleague would check on a table, and what mends it."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from rich.console import Console

from lakelatch.console.commands.arguments import Commands, Outcome, check_least
from lakelatch.errors import LakelatchError

_FINE, _FOUND, _UNABLE = 0, 1, 2


def add_parsers(commands: Commands) -> None:
    """`doctor`."""
    doctor = commands.add("doctor", run, "find what is set up wrong, due, or in the way, and what mends it")
    doctor.add_argument(
        "--timeout", type=float, default=60.0, metavar="SECONDS", help="what one check may take (default: 60)"
    )


def run(parsed: argparse.Namespace, console: Console) -> Outcome:
    """Shows each finding; 0 if there is none, 1 if there are some, 2 if the table, or a part of it, was not seen."""
    from lakelatch.engine.doctor.examination import examine

    check_least(parsed, timeout=1)
    try:
        with console.status("looking") as status:
            found = examine(
                parsed.table, parsed.options, lambda name: status.update(f"looking at {name}"), parsed.timeout
            )
    except LakelatchError as error:
        console.print(str(error), markup=False, soft_wrap=True)
        return _UNABLE, {"error": error.code, "message": error.message}
    for one in found.findings:
        console.print(f"[bold]{one.code}[/bold]")
        for name, text in (("fact", one.fact), ("why", one.reason), ("mend", one.mend)):
            console.print(f"  {name}: {text}", markup=False, soft_wrap=True)
    said = f"{len(found.findings)} findings" if found.findings else "nothing found"
    console.print(f"{said}; looked at {', '.join(found.checked)}", markup=False, soft_wrap=True)
    code = _UNABLE if found.unable else _FOUND if found.findings else _FINE
    return code, {"findings": [asdict(one) for one in found.findings], "checked": list(found.checked)}
