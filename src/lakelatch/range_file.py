"""An object as a file that is read in parts, for libraries that want a file."""

from __future__ import annotations

import io
from abc import abstractmethod


class RangeFile(io.RawIOBase):
    """Reads what is asked for, by `part`, and nothing else."""

    def __init__(self, size_bytes: int) -> None:
        self._size_bytes = size_bytes
        self._at = 0

    @abstractmethod
    def part(self, start: int, size_bytes: int) -> bytes | memoryview:
        """These bytes, which are within the object."""

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size_bytes}[whence]
        return self._at

    def read(self, size: int | None = -1) -> bytes:
        left = max(0, self._size_bytes - self._at)
        found = self.part(self._at, left if size is None or size < 0 else min(size, left))
        self._at += len(found)
        return bytes(found)
