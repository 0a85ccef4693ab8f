"""Folders, and small files made once, that are still there after a power cut."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress


def make_folder(path: str) -> None:
    """Makes a folder with all that lead to it, each of them synced into its parent."""
    if os.path.isdir(path):
        return
    parent = os.path.dirname(path)
    make_folder(parent)
    try:
        os.mkdir(path)
    except FileExistsError:
        return
    sync_folder(parent)


def sync_folder(path: str) -> None:
    """Puts a folder's entries on the disk."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def put_once(path: str, data: bytes) -> None:
    """Makes a file with all its bytes at once, unless it is there."""
    handle, own = tempfile.mkstemp(dir=os.path.dirname(path), prefix="+")
    try:
        with open(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(own, 0o644)
        with suppress(FileExistsError):
            os.link(own, path)
            sync_folder(os.path.dirname(path))
    finally:
        os.unlink(own)
