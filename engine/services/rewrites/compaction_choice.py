"""Chooses among the file groups that are due for compaction, by Hudi's strategies.

A compaction saves merging the logs at each read, and costs reading and writing the base file. So a large base file with
few bytes of logs can wait, and a bounded plan first takes the file groups that save most.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from lakelatch.engine.options.table_services.compaction import (
    BOUNDED_IO,
    DAY_BASED,
    LOG_COUNT,
    LOG_SIZE,
    PARTITION_REGEX,
    UNBOUNDED,
    CompactionOptions,
)
from lakelatch.timeline.metadata import CompactionOperation

_Operations = list[CompactionOperation]
LOG_BYTES, LOGS, IO_MB = "TOTAL_LOG_FILES_SIZE", "TOTAL_LOG_FILES", "TOTAL_IO_MB"
_MB = 1024 * 1024


def chosen(
    operations: Iterable[CompactionOperation],
    options: CompactionOptions,
    base_bytes: Callable[[Sequence[CompactionOperation]], Sequence[int]],
) -> _Operations:
    """The operations of the plan, in order. `base_bytes` is called only if the sizes of base files matter."""
    found = list(operations)
    if options.target_io_mb is not None or options.least_log_ratio:
        sizes = base_bytes(found)
        paying = ((one, size) for one, size in zip(found, sizes, strict=True) if _pays(one, size, options))
        found = [with_io(one, size) for one, size in paying]
    for name in options.strategies:
        found = _STRATEGIES[name](found, options)
    return found


def _pays(operation: CompactionOperation, base_bytes: int, options: CompactionOptions) -> bool:
    return operation.metrics[LOG_BYTES] >= options.least_log_ratio * base_bytes


def with_io(operation: CompactionOperation, base_bytes: int) -> CompactionOperation:
    """The operation with metrics of its IO. Without a base file, about as much is written as the logs have."""
    log_bytes = operation.metrics[LOG_BYTES]
    read_mb, write_mb = (base_bytes + log_bytes) / _MB, (base_bytes or log_bytes) / _MB
    io = {IO_MB: read_mb + write_mb, "TOTAL_IO_READ_MB": read_mb, "TOTAL_IO_WRITE_MB": write_mb}
    return replace(operation, metrics={**operation.metrics, **io})


def _bounded(operations: _Operations, options: CompactionOptions) -> _Operations:
    """The first operations up to the target, the last of which may exceed it, so that there is always progress."""
    if options.target_io_mb is None:
        return operations
    found, left_mb = [], float(options.target_io_mb)
    for operation in operations:
        if left_mb <= 0:
            break
        found.append(operation)
        left_mb -= operation.metrics[IO_MB]
    return found


def _by_log_size(operations: _Operations, options: CompactionOptions) -> _Operations:
    large = [one for one in operations if one.metrics[LOG_BYTES] >= options.least_log_bytes]
    return _bounded(sorted(large, key=lambda one: -one.metrics[LOG_BYTES]), options)


def _by_log_count(operations: _Operations, options: CompactionOptions) -> _Operations:
    many = [one for one in operations if one.metrics[LOGS] >= options.least_log_files]
    return _bounded(sorted(many, key=lambda one: -one.metrics[LOGS]), options)


def _latest_partitions(operations: _Operations, options: CompactionOptions) -> _Operations:
    """Operations of the last partitions by name, as dates begin with the year; Hudi sorts the same way."""
    by_name = {one.partition: re.sub(r"(^|/)[^/=]*=", r"\1", one.partition) for one in operations}
    latest = sorted(by_name, key=lambda partition: by_name[partition], reverse=True)[: options.latest_partitions]
    return [one for partition in latest for one in operations if one.partition == partition]


def _matching_partitions(operations: _Operations, options: CompactionOptions) -> _Operations:
    return [one for one in operations if re.search(options.partition_regex, one.partition)]


_STRATEGIES: dict[str, Callable[[_Operations, CompactionOptions], _Operations]] = {
    UNBOUNDED: lambda operations, _: operations,
    BOUNDED_IO: _bounded,
    LOG_SIZE: _by_log_size,
    LOG_COUNT: _by_log_count,
    DAY_BASED: _latest_partitions,
    PARTITION_REGEX: _matching_partitions,
}
