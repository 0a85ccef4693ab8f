"""The names that Hudi's lock providers give a table by default."""

from __future__ import annotations

import re

import xxhash

from lakelatch.errors import InvalidRequest
from lakelatch.locks.contract import LockScope
from lakelatch.locks.options import BASE_PATH, TABLE_NAME

_SEED = 0xFFFF_FFFF_DABA_DABA  # of Hudi's HashID: an int of 32 bits, widened with its sign
_S3A = re.compile("^s3a:", re.IGNORECASE)


def hudi_path_hash(base_path: str) -> str:
    """The name that Hudi's providers derive from a table's base path: 16 upper-case hexadecimal digits.

    `s3a:` and `s3:` are one; apart from that both sides have to write the path alike, to the last slash.
    """
    return xxhash.xxh64_hexdigest(_S3A.sub("s3:", base_path).encode(), _SEED).upper()


def hudi_base_path(scope: LockScope) -> str:
    """The table's base path as Hudi's writers name it: `hoodie.base.path`, or our URI if it is not given.

    Errors: `InvalidRequest` for a local table without `hoodie.base.path`: `/a/b`, `file:/a/b` and `file:///a/b` are one
    folder and three locks, and nothing would show it.
    """
    given = str(scope.options.get(BASE_PATH) or "").strip()
    if not given and scope.table_uri.startswith("file:"):
        raise InvalidRequest(
            f"{BASE_PATH} is not given, and Java writers make the lock's place of the table's path as they write it, "
            f"which may be {scope.table_uri} or {scope.table_uri.removeprefix('file://')}: set {BASE_PATH} to the path "
            "that the others use",
            option=BASE_PATH,
        )
    return given or scope.table_uri


def hudi_table_name(scope: LockScope, given: str, option: str) -> str:
    """The lock's name as the option gives it, or the table's name, as Hudi does.

    Errors: `InvalidRequest` if there is neither.
    """
    name = given or str(scope.options.get(TABLE_NAME) or "").strip()
    if not name:
        raise InvalidRequest(
            f"neither {option} nor {TABLE_NAME} is given, so the lock of the table is not known: set {option} as "
            "the other writers have it",
            option=option,
        )
    return name
