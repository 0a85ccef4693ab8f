"""The options that most jobs set, as typed keywords instead of Hudi's keys."""

from __future__ import annotations

from collections.abc import Iterable
from math import isfinite
from numbers import Real
from typing import Literal

from lakelatch.engine.options import write
from lakelatch.engine.options.calls.arguments import Options, names_of
from lakelatch.engine.options.calls.registry import Call
from lakelatch.engine.options.table_services import cleaning, clustering, compaction, inline
from lakelatch.errors import InvalidRequest
from lakelatch.locks.options import LEASE, PROVIDER, WAIT_TIME
from lakelatch.timeline.plans.clustering_plan import SORT_COLUMNS
from lakelatch.transactions.base.settings import EARLY_OPTION, MODE_OPTION, NON_BLOCKING, OPTIMISTIC, RETRIES_OPTION

_MODES = {"optimistic": OPTIMISTIC, "non_blocking": NON_BLOCKING}


def options(
    *,
    key: str | Iterable[str] | None = None,
    ordering: str | None = None,
    partition_by: str | Iterable[str] | None = None,
    buckets: int | None = None,
    concurrency: Literal["optimistic", "non_blocking"] | None = None,
    retries: int | None = None,
    early_detection: bool | None = None,
    lock_provider: str | None = None,
    lock_wait_s: float | None = None,
    lock_lease_s: int | None = None,
    merge_schema: bool | None = None,
    missing_as_null: bool | None = None,
    small_rows: int | None = None,
    compact_after_commits: int | None = None,
    cluster_by: str | Iterable[str] | None = None,
    cluster_after_commits: int | None = None,
    keep_commits: int | None = None,
    keep_hours: int | None = None,
    keep_versions: int | None = None,
    more: Options | None = None,
) -> dict[str, object]:
    """Options of a write, a read or a service, under Hudi's keys; keywords that are None are left out.

    What is fixed when a table is made: `key` (columns that identify a row), `ordering` (the column whose greater value
    wins), `partition_by` (columns that make folders) and `buckets` (file groups in each of these).

    Writers that meet: `concurrency` (the first to complete wins, or nobody is in anybody's way), `retries` (of a write
    that lost), `early_detection` (of conflicts while it is at work), `lock_provider` (`filesystem`, `redis`,
    `zookeeper`, `etcd`, `dynamodb`, `storage`), `lock_wait_s` and `lock_lease_s`.

    Rows: `merge_schema` (columns that are new become the table's), `missing_as_null` (columns that the rows lack) and
    `small_rows` (so many are written without a Spark job).

    Services after a write, each as soon as so much has been committed: `compact_after_commits`, and
    `cluster_after_commits` with `cluster_by` (the columns to sort by). At most one of `keep_commits`, `keep_hours` and
    `keep_versions` says what a clean keeps.

    `more` has any other option under its key, such as those of the lock provider; docs/options.md lists them. Errors:
    `InvalidRequest`, for a keyword that makes no sense, and for an unknown key in `more`; ranges of numbers are checked
    where they are used.
    """
    policy = _cleaning(keep_commits, keep_hours, keep_versions)
    if concurrency is not None and concurrency not in _MODES:
        raise InvalidRequest(f"concurrency={concurrency!r}: it is 'optimistic' or 'non_blocking'", option="concurrency")
    found: dict[str, object] = {
        write.RECORD_KEY: _names(key, "key"),
        write.ORDERING_FIELD: ordering,
        write.PARTITION_FIELD: _names(partition_by, "partition_by"),
        write.BUCKET_COUNT: buckets,
        MODE_OPTION: concurrency and _MODES[concurrency],
        RETRIES_OPTION: retries,
        EARLY_OPTION: early_detection,
        PROVIDER: lock_provider,
        WAIT_TIME: _milliseconds(lock_wait_s),
        LEASE: lock_lease_s,
        write.MERGE_SCHEMA: merge_schema,
        write.NULL_FOR_MISSING: missing_as_null,
        write.SMALL_ROWS: small_rows,
        inline.COMPACT_INLINE: None if compact_after_commits is None else True,
        compaction.MIN_DELTA_COMMITS: compact_after_commits,
        SORT_COLUMNS: _names(cluster_by, "cluster_by"),
        clustering.INLINE: None if cluster_after_commits is None else True,
        clustering.INLINE_COMMITS: cluster_after_commits,
        **policy,
    }
    given = {**{option: value for option, value in found.items() if value is not None}, **(more or {})}
    Call(given)
    return given


def _cleaning(commits: int | None, hours: int | None, versions: int | None) -> dict[str, object]:
    kept = {
        (cleaning.KEEP_LATEST_COMMITS, cleaning.COMMITS_RETAINED): commits,
        (cleaning.KEEP_LATEST_BY_HOURS, cleaning.HOURS_RETAINED): hours,
        (cleaning.KEEP_LATEST_FILE_VERSIONS, cleaning.VERSIONS_RETAINED): versions,
    }
    policies = {policy: (option, value) for (policy, option), value in kept.items() if value is not None}
    if len(policies) > 1:
        raise InvalidRequest("keep_commits, keep_hours and keep_versions are three policies: say one of them")
    return {**dict(policies.values()), cleaning.POLICY: next(iter(policies), None)}


def _milliseconds(seconds: float | None) -> int | None:
    given: object = seconds  # not all callers heed types
    if seconds is None:
        return None
    if not (isinstance(given, Real) and isfinite(given)):
        raise InvalidRequest(f"lock_wait_s={given!r}: it is a number of seconds", option="lock_wait_s")
    return round(seconds * 1000)


def _names(names: str | Iterable[str] | None, what: str) -> str | None:
    return None if names is None else names_of(names, what)
