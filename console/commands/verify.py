"""`lakelatch verify`: checks that all files named by slots, writes, plans and savepoints exist."""

from __future__ import annotations

import argparse

from rich.console import Console

from lakelatch.console.commands.arguments import Commands, Outcome


def add_parsers(commands: Commands) -> None:
    """`verify`."""
    verify = commands.add("verify", run, "look for files that are missing, damaged or superfluous")
    verify.add_argument("--deep", action="store_true", help="read all data files, and compare their checksums")


def run(parsed: argparse.Namespace, console: Console) -> Outcome:
    """Shows each finding; 1 if a file is missing or damaged."""
    from lakelatch.engine.calls import verify

    with console.status("verifying"):
        found = verify(parsed.table, parsed.options, parsed.deep)
    for one in found.findings:
        console.print(f"{one.kind}: {one.path}: {one.why}", markup=False, soft_wrap=True)
    looked = "read" if found.deep else "looked for"
    unchecked = f", {found.unchecked:,} of them have no checksum" if found.unchecked else ""
    said = "nothing is missing" if found.whole else "the table is not whole"
    console.print(f"{said}: {found.files:,} data files were {looked}{unchecked}", markup=False)
    findings = [{"kind": one.kind, "path": one.path, "why": one.why} for one in found.findings]
    result = {"whole": found.whole, "findings": findings, "files": found.files}
    return (0 if found.whole else 1), {**result, "deep": found.deep, "unchecked": found.unchecked}
