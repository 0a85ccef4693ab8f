"""Inserts that look which keys are new: rows whose key is in the table, or twice in the data, are refused or skipped.

The table is read inside each try of the write, so that whatever others commit in between is a conflict.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakelatch.engine.changes.identity import Identity, Reader
from lakelatch.engine.options.write import DROP, FAIL, KNOWN_KEYS_POLICY, WriteOptions
from lakelatch.errors import InvalidRequest
from lakelatch.format.merge.ordering import in_java_s_order
from lakelatch.timeline.table_config import COMMIT_TIME, EVENT_TIME, TableConfig

_WAY_OUT = "with if_exists='skip' of an insert or hoodie.datasource.insert.dup.policy=drop"
#: What is said of a row, before and after the words that name it.
KNOWN = ("the table has a row with ", f" already: leave it out, or use upsert, or leave out all such rows {_WAY_OUT}")
TWICE = (
    "more than one row of the frame has ",
    f": leave out all but one, or use upsert, or keep the one with the greatest ordering value of each key {_WAY_OUT}",
)


def policy_of(if_exists: str) -> dict[str, str]:
    """The option that says what an insert does with rows whose keys are not new. Errors: `InvalidRequest`."""
    if if_exists not in ("error", "skip"):
        why = ", and a table with a record key holds one row of each" if if_exists == "keep" else ""
        raise InvalidRequest(f"if_exists={if_exists!r}: it is 'error' or 'skip'{why}", option="if_exists")
    return {KNOWN_KEYS_POLICY: DROP if if_exists == "skip" else FAIL}


def refuse_times(options: WriteOptions, name: str, fields: Sequence[str] | None) -> None:
    """`InvalidRequest` for a table that makes folders of times, whose rows are not told apart by their columns."""
    if fields:
        raise InvalidRequest(
            f"{KNOWN_KEYS_POLICY}={options.known_keys} compares columns, and the table {name!r} makes folders of times "
            f"({', '.join(fields)}), each of which holds one row of a key for several times: leave the option out, and "
            "use upsert",
            option=KNOWN_KEYS_POLICY,
        )


def config_of_new(options: WriteOptions, path: str) -> TableConfig:
    """What is known of a table that the write is going to make."""
    if options.record_key_fields:
        refuse_times(options, options.table_name or path, options.partition_fields if options.time_options else ())
    return TableConfig(
        name=options.table_name or path,
        record_key_fields=options.record_key_fields or (),
        partition_fields=options.partition_fields or (),
        ordering_field=options.ordering_field,
        merge_mode=EVENT_TIME if options.ordering_field else COMMIT_TIME,
        url_encode_partitioning=bool(options.url_encode),
    )


def with_new_keys(rows: pa.Table, config: TableConfig, read: Reader | None, known_keys: str) -> tuple[pa.Table, int]:
    """The rows that are written, and how many are skipped; without `read` there is no table yet.

    Errors: `InvalidRequest` for the first row that may not be written, where none is skipped.
    """
    identity = Identity(config)
    if not identity.keys or not {*identity.names} <= {*rows.column_names}:  # the write says what is missing
        return rows, 0
    known = pa.repeat(False, rows.num_rows) if read is None else identity.known(rows, read)
    numbers = identity.texts(rows).dictionary_encode().indices.to_numpy()
    if known_keys != DROP:
        more = np.bincount(numbers)[numbers] > 1 if len(numbers) else np.zeros(0, np.bool_)
        for refused, (before, after) in ((np.asarray(known), KNOWN), (more, TWICE)):
            if refused.any():
                raise InvalidRequest(f"{before}{identity.shown(rows, int(refused.argmax()))}{after}")
        return rows, 0
    ordering = config.ordering_field if config.merge_mode == EVENT_TIME else None
    kept = _greatest(rows, numbers, identity.names, ordering) & ~np.asarray(known)
    return rows.filter(pa.array(kept)), int(rows.num_rows - kept.sum())


def _greatest(
    rows: pa.Table, numbers: npt.NDArray[np.int32], identity: Sequence[str], ordering: str | None
) -> npt.NDArray[np.bool_]:
    """One of the rows of each number: the one with the greatest ordering value, and of several such rows the one whose
    other columns, in their order, are the greatest. Where a row stands says nothing."""
    kept = np.ones(rows.num_rows, np.bool_)
    if not rows.num_rows:
        return kept
    several = np.flatnonzero(np.bincount(numbers)[numbers] > 1)
    if not len(several):
        return kept
    found, first = rows.take(pa.array(several)), [ordering] if ordering in rows.column_names else []
    others = [name for name in rows.column_names if name not in (*identity, *first)]
    columns = {f"c{place}": _comparable(found[name]) for place, name in enumerate([*first, *others])}
    keys = [("number", "ascending"), *((name, "descending") for name in columns)]
    order = pc.sort_indices(pa.table({"number": numbers[several], **columns}), sort_keys=keys).to_numpy()
    of_order = numbers[several][order]
    later = np.concatenate([[False], of_order[1:] == of_order[:-1]])
    kept[several[order[later]]] = False
    return kept


def _comparable(values: pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """A column as one that sorts; as text where Arrow has no order for its type."""
    if pa.types.is_floating(values.type):
        return in_java_s_order(values)
    if pa.types.is_nested(values.type):
        texts = [None if one is None else json.dumps(one, default=str, sort_keys=True) for one in values.to_pylist()]
        return pa.array(texts, pa.string())
    return values
