"""Names of data files."""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass
from functools import lru_cache

from lakelatch.errors import InvalidRequest
from lakelatch.timeline.plans.compacted_logs import COMPACTED_TOKEN

# Java and hudi-rs take any text without '_' for a write token; ours is always three numbers.
_BASE = re.compile(r"([^_/]+)_([^_/]+)_([0-9]{14}|[0-9]{17})\.parquet")
_LOG = re.compile(r"\.([^_/]+)_([0-9]{14}|[0-9]{17})\.log\.([0-9]{1,10})(?:_([^_/.]+))?")
_NATIVE = re.compile(r"([^._/]+)_([0-9]+-[0-9]+-[0-9]+)_([0-9]{14}|[0-9]{17})_([0-9]{1,10})\.(log|deletes?)\.([a-z]+)")
_WRITE_TOKEN = re.compile(r"[0-9]+-[0-9]+-[0-9]+")
_NUMBER_MAX = 2**31 - 1
NO_TASK = "0-0-0"  # the write token of what no task of Spark writes, and of base files of before
# No task has these numbers, so no other log file is taken for one of kept deletes, or for a compacted one.
_KEPT_DELETES_TASK = "2147483647"
_PLACEHOLDER_TASK = "2147483645"
# Of our base files, to which all attempts give the same name, so that they make one file. The last number is a version
# of its layout: from 1 on, readers that trust the footer find NaN and zeros. (Java's library always handled NaN.)
BASE_TOKEN = "0-0-1"
COMPACTED_MARK = f"_{COMPACTED_TOKEN}"  # at the end of the names of compacted logs, and nowhere else


@dataclass(frozen=True)
class BaseFile:
    """`<file id>_<write token>_<instant>.parquet`."""

    file_id: str
    write_token: str
    instant: str

    @property
    def name(self) -> str:
        return f"{self.file_id}_{self.write_token}_{self.instant}.parquet"

    @property
    def hides_floats(self) -> bool:
        """Whether the footer's statistics of floating point columns may be wrong for NaN and zeros."""
        return self.write_token == NO_TASK


@dataclass(frozen=True)
class LogFile:
    """`.<file id>_<instant>.log.<version>_<write token>`; the instant is that of the write that made it.

    A `native` one of table version 10 is `<file id>_<write token>_<instant>_<version>.<native>`, where that is
    `log.parquet` for rows and `deletes.parquet` for deletes.
    """

    file_id: str
    instant: str
    version: int
    write_token: str
    native: str = ""

    @property
    def name(self) -> str:
        if self.native:
            return f"{self.file_id}_{self.write_token}_{self.instant}_{self.version}.{self.native}"
        token = f"_{self.write_token}" if self.write_token else ""
        return f".{self.file_id}_{self.instant}.log.{self.version}{token}"

    @property
    def order(self) -> tuple[str, int, str, bool]:
        """Logs of a slice are merged in this order: instant, version as a number, write token as text (Hudi's own).

        Native rows come before the deletes of the same write, as blocks do in a file of both.
        """
        return self.instant, self.version, self.write_token, not self.native.startswith("log.")


def token_within(partition: str, write_token: str) -> str:
    """The write token for files of a partition, with a number made of the partition's path in the middle.

    The file ids of a bucket are the same in every partition, and Java Hudi 1.0 reads by names without folders: it sees
    only one of two files of a commit that share a name. A task's third number is unique in a Spark application, so the
    stage that it replaces is not needed; a table without partitions keeps that.
    """
    if not partition:
        return write_token
    task, _, attempt = write_token.split("-")
    return f"{task}-{zlib.crc32(partition.encode()) & _NUMBER_MAX}-{attempt}"


def planned_base_file(partition: str, file_id: str, instant: str) -> BaseFile:
    """The one base file of an instant in a file group, for all attempts, and all executors of a plan."""
    return BaseFile(file_id, token_within(partition, BASE_TOKEN), instant)


def kept_deletes_file(partition: str, file_id: str, instant: str) -> LogFile:
    """The log file in which the compaction of this instant keeps the deletes that won."""
    return LogFile(file_id, instant, 1, token_within(partition, f"{_KEPT_DELETES_TASK}-0-0"))


def compacted_log(last: LogFile) -> LogFile:
    """The log file in which a log compaction repeats a run of log files that ends with this one.

    Readers merge it directly after that one, so its entries count as if they were there.
    """
    return LogFile(last.file_id, last.instant, last.version + 1, COMPACTED_TOKEN)


def is_compacted_log(file: LogFile) -> bool:
    """Whether a log compaction made this file."""
    return file.write_token == COMPACTED_TOKEN


def placeholder_file(file_id: str, instant: str, write_token: str) -> LogFile:
    """The empty log file with which an overwrite of this instant begins a file group in which it has no rows."""
    return LogFile(file_id, instant, 1, f"{_PLACEHOLDER_TASK}-{write_token.partition('-')[2]}")


def is_placeholder(name: str) -> bool:
    """Whether the log file of this name is an empty one that only makes its file group."""
    return f"_{_PLACEHOLDER_TASK}-" in name


def is_kept_deletes(file: LogFile) -> bool:
    """Whether a compaction keeps deletes in this file."""
    return file.write_token.startswith(f"{_KEPT_DELETES_TASK}-")


def keeps_deletes_of(name: str, instant: str) -> bool:
    """Whether the compaction of this instant keeps deletes in the file of this name."""
    return f"_{instant}.log.1_{_KEPT_DELETES_TASK}-" in name


@lru_cache(maxsize=4096)  # a plan asks several times of each name of a partition, and then goes on to the next one
def parse_data_file(name: str) -> BaseFile | LogFile | None:
    """The data file of a name in a partition folder; None for files of other kinds (`.cdc` logs among them)."""
    if name.startswith("."):
        found = _LOG.fullmatch(name)
        if found is None or str(int(found[3])) != found[3] or int(found[3]) > _NUMBER_MAX:
            return None
        return LogFile(found[1], found[2], int(found[3]), found[4] or "")
    found = _NATIVE.fullmatch(name)
    if found is not None:
        return LogFile(found[1], found[3], int(found[4]), found[2], f"{found[5]}.{found[6]}")
    found = _BASE.fullmatch(name)
    return BaseFile(found[1], found[2], found[3]) if found else None


def check_own_file(file: BaseFile | LogFile) -> None:
    """`InvalidRequest` unless every Hudi reader recognises this name.

    Readers silently ignore a file id with an underscore, and Java a write token that is not three numbers.
    """
    if parse_data_file(file.name) != file or _WRITE_TOKEN.fullmatch(file.write_token) is None:
        raise InvalidRequest(
            f"{file.name!r} is no name that Hudi readers find: the file id may hold no '_', the instant has 17 digits, "
            "and the write token is three numbers as in 0-12-34"
        )
