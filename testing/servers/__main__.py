"""Runs a command beside the server that a lock provider needs, and ends the server with it.

`python -m lakelatch.testing.servers PROVIDER COMMAND...`: the command gets `-o KEY=VALUE` for each write option at its
end. Providers that need no server just get their name.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path

from lakelatch.locks.options import PROVIDER
from lakelatch.testing.servers.choice import open_server
from lakelatch.testing.servers.reach import AWS_ENVIRONMENT, SERVER_OF, lock_options


def main(arguments: list[str]) -> int:
    if len(arguments) < 2:
        print(__doc__, file=sys.stderr)
        return 2
    provider, command = arguments[0].strip().lower(), arguments[1:]
    if provider not in SERVER_OF:
        return _run(command, {PROVIDER: provider})
    with tempfile.TemporaryDirectory(prefix="lakelatch-") as folder:
        print(f"starting {SERVER_OF[provider]} for the lock provider {provider!r}", file=sys.stderr)
        with closing(open_server(SERVER_OF[provider], Path(folder))) as server:
            return _run(command, lock_options(server))


def _run(command: list[str], options: dict[str, str]) -> int:
    given = [word for key, value in options.items() for word in ("-o", f"{key}={value}")]
    return subprocess.run([*command, *given], env={**os.environ, **AWS_ENVIRONMENT}).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
