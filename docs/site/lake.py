"""Runs what stands in docs/start.md and docs/walk.md as their reader does: in one folder, a session and a terminal."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

DOCS = Path(__file__).parents[1]
WIDTH = 100
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)

#: Runs what it reads, a line of JSON for each statement, and answers with what a session shows of it.
_SESSION = """
import contextlib, io, json, sys
names = {"__name__": "__main__"}
for line in sys.stdin:
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        try:
            exec(compile(json.loads(line), "session", "single"), names)
        except Exception as error:
            print(f"{type(error).__module__}.{type(error).__name__}: {error}")
    print(json.dumps(said.getvalue()), flush=True)
"""


class Walk(NamedTuple):
    """The blocks of docs/walk.md that do something, by what they do; `files` are saved, by name."""

    moves: str
    writes: str
    is_refused: str
    doctor: str
    files: Mapping[str, str]
    alert: str


class Session:
    """A Python session."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def run(self, block: str) -> list[tuple[list[str], str]]:
        """The statements of a block as lines, each with what the session shows of it."""
        lines, shown = block.splitlines(), []
        for node in ast.parse(block).body:
            statement = lines[node.lineno - 1 : node.end_lineno]
            shown.append((statement, self._answer("\n".join(statement) + "\n")))
        return shown

    def _answer(self, statement: str) -> str:
        assert self._process.stdin is not None and self._process.stdout is not None
        print(json.dumps(statement), file=self._process.stdin, flush=True)
        return str(json.loads(self._process.stdout.readline()))


@dataclass(frozen=True)
class Lake:
    """The folder. `ports` are used in place of those that stand on the pages, `environment` beside what is there."""

    folder: Path
    ports: Mapping[int, int] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)

    def blocks(self, page: str, *kinds: str) -> list[str]:
        """The blocks of a page that are of these kinds."""
        return [self._at_ports(text) for kind, text in _BLOCK.findall((DOCS / page).read_text()) if kind in kinds]

    def walk(self) -> Walk:
        """What docs/walk.md does."""
        writes, is_refused, *saved = self.blocks("walk.md", "python", "yaml")
        _, moves, doctor, alert = self.blocks("walk.md", "sh")
        files = {re.split(r"[:\s]", text.removeprefix("# "), maxsplit=1)[0]: text for text in saved}
        return Walk(moves, writes, is_refused, doctor, files, alert)

    def save(self, walk: Walk) -> None:
        """Saves the files that the page wants in the folder."""
        for name, text in walk.files.items():
            (self.folder / name).write_text(text)
        shutil.copy(DOCS / "grafana" / "alerts.yml", self.folder)

    @contextmanager
    def session(self) -> Iterator[Session]:
        """A session of Python in the folder."""
        command = [sys.executable, "-c", _SESSION]
        with self.started(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            yield Session(process)

    @contextmanager
    def started(self, command: Sequence[str], **more: Any) -> Iterator[subprocess.Popen[str]]:
        """A process, which is ended with all that it has started."""
        with subprocess.Popen(
            command, cwd=self.folder, env=self._environment(), text=True, start_new_session=True, **more
        ) as process:
            try:
                yield process
            finally:
                os.killpg(process.pid, signal.SIGTERM)

    def run(self, command: str) -> subprocess.CompletedProcess[str]:
        """A command of a terminal, with what it prints on both of its streams."""
        return subprocess.run(
            ["bash", "-c", command],
            cwd=self.folder,
            env=self._environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def _at_ports(self, text: str) -> str:
        for shown, used in self.ports.items():
            text = re.sub(rf"\b{shown}\b", str(used), text)
        return text

    def _environment(self) -> dict[str, str]:
        """This environment's own programs first, as after `activate`."""
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        return {**os.environ, "PATH": path, "COLUMNS": str(WIDTH), "LC_ALL": "C.UTF-8", **self.environment}


def without_pip(block: str) -> list[str]:
    """The commands of a block but for those that install."""
    return [line for line in block.splitlines() if not line.startswith("pip ")]
