"""What a child process says of its environment."""

from __future__ import annotations

import os
from multiprocessing.connection import Connection


def tell_variable(connection: Connection, name: str) -> None:
    connection.send(os.environ.get(name))
