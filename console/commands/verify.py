"""`lakelatch verify`: checks that all files named by slots, writes, plans and savepoints exist."""

from __future__ import annotations

from lakelatch.console.base.invocation import Invocation, Outcome


def run(call: Invocation, deep: bool) -> Outcome:
    """Shows each finding; 1 if a file is missing or damaged."""
    from lakelatch.engine.calls import verify

    with call.status("verifying"):
        found = verify(call.table, call.options, deep)
    for one in found.findings:
        call.console.print(f"{one.kind}: {one.path}: {one.why}", markup=False, soft_wrap=True)
    looked = "read" if found.deep else "looked for"
    unchecked = f", {found.unchecked:,} of them have no checksum" if found.unchecked else ""
    said = "nothing is missing" if found.whole else "the table is not whole"
    call.console.print(f"{said}: {found.files:,} data files were {looked}{unchecked}", markup=False)
    findings = [{"kind": one.kind, "path": one.path, "why": one.why} for one in found.findings]
    result = {"whole": found.whole, "findings": findings, "files": found.files}
    return (0 if found.whole else 1), {**result, "deep": found.deep, "unchecked": found.unchecked}
