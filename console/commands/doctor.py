"""`lakelatch doctor`: what an experienced colleague would check on a table, and what mends it."""

from __future__ import annotations

from dataclasses import asdict

from lakelatch.console.base.invocation import Invocation, Outcome
from lakelatch.errors import LakelatchError

_FINE, _FOUND, _UNABLE = 0, 1, 2


def run(call: Invocation, timeout_s: float) -> Outcome:
    """Shows each finding; 0 if there is none, 1 if there are some, 2 if the table, or a part of it, was not seen."""
    from lakelatch.engine.doctor.examination import examine

    try:
        with call.status("looking") as tell:
            found = examine(call.table, call.options, lambda name: tell(f"looking at {name}"), timeout_s)
    except LakelatchError as error:
        call.console.print(str(error), markup=False, soft_wrap=True)
        return _UNABLE, {"error": error.code, "message": error.message}
    for one in found.findings:
        call.console.print(f"[bold]{one.code}[/bold]")
        for name, text in (("fact", one.fact), ("why", one.reason), ("mend", one.mend)):
            call.console.print(f"  {name}: {text}", markup=False, soft_wrap=True)
    number = len(found.findings)
    said = f"{number} finding{'s' if number > 1 else ''}" if number else "nothing found"
    call.console.print(f"{said}; looked at {', '.join(found.checked)}", markup=False, soft_wrap=True)
    code = _UNABLE if found.unable else _FOUND if found.findings else _FINE
    return code, {"findings": [asdict(one) for one in found.findings], "checked": list(found.checked)}
