"""`lakelatch completion`: the script with which a shell completes what is typed."""

from __future__ import annotations

from lakelatch.console.base.invocation import Invocation, Outcome
from lakelatch.console.base.streams import say
from lakelatch.console.parser.completion import script
from lakelatch.console.parser.program import program


def run(_: Invocation, shell: str) -> Outcome:
    """Prints the script of a shell."""
    say(script(program(), shell) + "\n")
    return 0, None
