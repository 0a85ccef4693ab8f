"""Settings of other writers with which a table cannot be read correctly here, each refused by name."""

from __future__ import annotations

import re
from collections.abc import Mapping

from lakelatch.errors import CorruptTable, InvalidRequest
from lakelatch.storage.contract import Storage
from lakelatch.timeline.properties_file import PROPERTIES_PATH, VERSION_PROPERTY

_FOLDER = ".hoodie"
_OLD_TIMELINE = re.compile(r"[0-9]{14}([0-9]{3})?\.[a-z]+(\.requested|\.inflight)?|[0-9]{14}([0-9]{3})?\.inflight")
_ONLY = {  # what a property must be if it is there, in lower case, and why
    "hoodie.table.base.file.format": ("parquet", "its base files are of a kind that cannot be read here"),
    "hoodie.table.multiple.base.file.formats.enable": ("false", "some of its base files may be no parquet files"),
    "hoodie.populate.meta.fields": ("true", "its rows have no record keys, so versions of a row cannot be told apart"),
    "hoodie.datasource.write.drop.partition.columns": ("false", "its files lack the partition columns"),
    "hoodie.table.storage.layout": ("default", "its logs are merged in another way than that which is known here"),
    "hoodie.table.format": ("native", "its timeline is kept by another table format"),
    "hoodie.timeline.path": ("timeline", "its timeline lies in another folder than that which is read here"),
    "hoodie.timeline.history.path": ("history", "its history lies in another folder than that which is read here"),
}
_BOOTSTRAP = "hoodie.bootstrap.base.path"
_PARTIAL_UPDATES = "hoodie.table.partial.update.mode"
_MERGE_PROPERTIES = "hoodie.record.merge.property."
_PAYLOAD = "hoodie.compaction.payload.class"
_MERGE_MODE = "hoodie.record.merge.mode"
_PLAIN_PAYLOADS = ("DefaultHoodieRecordPayload", "OverwriteWithLatestAvroPayload", "EventTimeAvroPayload")


def check_readable(values: Mapping[str, str], uri: str) -> None:
    """Errors: `InvalidRequest` for a table some of whose rows or values would be missing here."""
    for name, (allowed, why) in _ONLY.items():
        if values.get(name, "").strip().lower() not in ("", allowed):
            raise InvalidRequest(
                f"{PROPERTIES_PATH} of {uri} has {name}={values[name]}: {why}. Read the table with Hudi, or copy "
                f"it to one with {name}={allowed}"
            )
    if values.get(_BOOTSTRAP):
        raise InvalidRequest(
            f"{PROPERTIES_PATH} of {uri} has {_BOOTSTRAP}={values[_BOOTSTRAP]}: some of the table's columns lie in "
            "files of another one. Read it with Hudi, or copy it to a new table"
        )


def check_upgraded(storage: Storage, values: Mapping[str, str], left: Mapping[str, str] | None, left_path: str) -> None:
    """Errors: `CorruptTable` for a table in the middle of an upgrade or downgrade, running or interrupted.

    `left` are the properties that an updater keeps at `left_path` while it writes new ones.
    """
    version = values[VERSION_PROPERTY]
    old = [name for name in storage.list(_FOLDER).files if _OLD_TIMELINE.fullmatch(name)]
    if old:
        raise CorruptTable(
            f"the table at {storage.uri} has {VERSION_PROPERTY}={version}, and {_FOLDER}/{old[0]} is of the timeline "
            "of versions up to 6: an upgrade was interrupted. Finish it with Hudi (CALL upgrade_table), or restore the "
            "table from a copy"
        )
    if left is not None and left.get(VERSION_PROPERTY, version) != version:
        raise CorruptTable(
            f"the table at {storage.uri} has {VERSION_PROPERTY}={version}, and {left[VERSION_PROPERTY]} in "
            f"{left_path}: an upgrade or downgrade is under way or was interrupted. Wait for it, or open the "
            "table with the Hudi that ran it"
        )


def unmergeable(values: Mapping[str, str], merge_mode: str, ordering: str | None) -> str:
    """The setting that keeps log files from being merged here as the table's writers merge them; "" for none."""
    if merge_mode not in ("EVENT_TIME_ORDERING", "COMMIT_TIME_ORDERING"):
        return f"{_MERGE_MODE}={merge_mode}"
    payload = values.get(_PAYLOAD, "").rpartition(".")[2]
    if _MERGE_MODE not in values and payload and payload not in _PLAIN_PAYLOADS:
        return f"{_PAYLOAD}={values[_PAYLOAD]}"
    if values.get(_PARTIAL_UPDATES, "NONE").upper() != "NONE":
        return f"{_PARTIAL_UPDATES}={values[_PARTIAL_UPDATES]}"
    for name in sorted(values):
        if name.startswith(_MERGE_PROPERTIES):
            return f"{name}={values[name]}"
    if ordering is not None and "," in ordering and merge_mode == "EVENT_TIME_ORDERING":
        return f"hoodie.table.ordering.fields={ordering}"
    return ""
