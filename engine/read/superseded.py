"""Rows of base files that a reader leaves out, which takes the others from these files by itself."""

from __future__ import annotations

import zlib
from base64 import b64decode, b64encode
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

WORD_BITS = 64
_WORDS = "<i8"


@dataclass(frozen=True, eq=False)
class Superseded:
    """The rows of one base file that are left out: a bit for each row, in words, from the lowest bit of the first one.

    `file_bytes` is the size of the file, by which Spark tells the files of a scan apart.
    """

    file_bytes: int
    words: npt.NDArray[np.int64]

    @classmethod
    def of(cls, file_bytes: int, rows: npt.NDArray[np.bool_]) -> Superseded:
        """Of whether each row of the file is left out."""
        padded = np.zeros(-(-len(rows) // WORD_BITS) * WORD_BITS, np.bool_)
        padded[: len(rows)] = rows
        return cls(file_bytes, np.packbits(padded, bitorder="little").view(_WORDS))

    @classmethod
    def from_text(cls, file_bytes: int, text: str) -> Superseded:
        """Errors: `ValueError` and `zlib.error` for what is no such text."""
        return cls(file_bytes, np.frombuffer(zlib.decompress(b64decode(text)), _WORDS))

    def to_text(self) -> str:
        return b64encode(zlib.compress(self.words.tobytes(), 1)).decode()

    @property
    def is_empty(self) -> bool:
        """Whether no row is left out."""
        return not self.words.any()
