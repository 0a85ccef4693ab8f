"""Folders that are still there after a power cut."""

from __future__ import annotations

import os


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
