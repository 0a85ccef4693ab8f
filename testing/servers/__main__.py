"""Runs a command with the servers that a lock provider and a table's store need, and ends them with it.

`python -m lakelatch.testing.servers [--store s3] PROVIDER COMMAND...`: the command gets `-o KEY=VALUE` for each write
option at its end, and, with a store, `--table` with a place for a table. Providers that need no server just get their
name.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from contextlib import ExitStack, closing
from pathlib import Path

from lakelatch.locks.options import PROVIDER
from lakelatch.testing.servers.choice import open_server
from lakelatch.testing.servers.contract import Server
from lakelatch.testing.servers.reach import AWS_ENVIRONMENT, SERVER_OF, lock_options, place_options
from lakelatch.testing.servers.seaweedfs import BUCKET

_STORES = {"s3": ("seaweedfs", f"s3://{BUCKET}/flights")}


def main(arguments: list[str]) -> int:
    store = arguments[1] if arguments[:1] == ["--store"] and len(arguments) > 1 else ""
    provider, *command = arguments[2 if store else 0 :] or [""]
    if not command or provider.startswith("-") or (store and store not in _STORES):
        print(__doc__, file=sys.stderr)
        return 2
    provider = provider.strip().lower()
    with ExitStack() as opened:
        servers: dict[str, Server] = {}

        def server_of(name: str, what: str) -> Server:
            if name not in servers:
                folder = Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="lakelatch-")))
                print(f"starting {name} for {what}", file=sys.stderr)
                servers[name] = opened.enter_context(closing(open_server(name, folder)))
            return servers[name]

        options, more = {PROVIDER: provider}, list[str]()
        if store:
            name, place = _STORES[store]
            options |= place_options(server_of(name, "the table"))
            more = ["--table", place]
        if provider in SERVER_OF:
            options |= lock_options(server_of(SERVER_OF[provider], f"the lock provider {provider!r}"))
        more += [word for key, value in options.items() for word in ("-o", f"{key}={value}")]
        return subprocess.run([*command, *more], env={**os.environ, **AWS_ENVIRONMENT}).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
