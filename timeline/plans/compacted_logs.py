"""Names of the files that log compactions make: each follows from the last file of its run alone."""

from __future__ import annotations

COMPACTED_TOKEN = "2147483646-0-0"  # no task has these numbers


def compacted_log_name(last: str) -> str:
    """The file in which a log compaction repeats a run of log files that ends with this one."""
    head, _, tail = last.rpartition(".log.")
    return f"{head}.log.{int(tail.partition('_')[0]) + 1}_{COMPACTED_TOKEN}"
