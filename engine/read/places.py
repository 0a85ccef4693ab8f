"""The places of rows in base files: numbers by which Spark tells the rows of several files apart."""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence

from lakelatch.format.file_slices import FileSlice

ROW_BITS, NAME_CHARACTERS = 31, 8  # so many characters of a name
#: The columns in which `read_natively` gives each row's place: a number made of the beginning of its file's name, which
#: files of other partitions may share, and its own in the file; and the file's URI.
PLACE, PATH = "_lakelatch_place", "_lakelatch_path"
NUMBER = "_lakelatch_path_number"
#: Names of columns, in lower case, that a frame of this kind cannot have: Spark's own one, and those here.
RESERVED = frozenset(["_metadata", PLACE, PATH, NUMBER])
ROWS_MAX = 1 << ROW_BITS  # of a file whose rows have places
_SAME_IN_URIS = re.compile(r"[\w.=/:+-]*", re.ASCII)


def have_places(slices: Sequence[FileSlice]) -> bool:
    """Whether the rows of these slices' base files are told apart by `PLACE` and `path_number`.

    Spark names a file by a URI, in which some characters are escaped.
    """
    paths = [found.base_path or "" for found in slices]
    numbers = {path_number(path) for path in paths}
    same_depth = len({path.count("/") for path in paths}) == 1
    return same_depth and len(numbers) == len(paths) and all(map(_SAME_IN_URIS.fullmatch, paths))


def place_of(path: str) -> int:
    """The `PLACE` of the first row of the file at this path in the table; the other rows count up from it."""
    return zlib.crc32(path.rpartition("/")[2][:NAME_CHARACTERS].encode()) << ROW_BITS


def path_number(path: str) -> int:
    """A number for a file's path in the table; `path_number_in_spark` computes the same."""
    return zlib.crc32(path.encode())
