"""Changing `.hoodie/hoodie.properties` of a table that is there, as Hudi's own tools do."""

from __future__ import annotations

from collections.abc import Mapping

import javaproperties

from lakelatch.storage.contract import Storage
from lakelatch.timeline.properties_file import BACKUP_PATH, PROPERTIES_PATH
from lakelatch.timeline.recorded_options import LOCKS_RECORDED, lock_properties
from lakelatch.timeline.table_config import load_table_config


def update_properties(storage: Storage, values: Mapping[str, str | None]) -> None:
    """Sets these properties, removes those that are None here, and leaves all others as they are.

    Until the new file is whole the old one is kept as the backup that all readers of Hudi tables look for; another call
    completes one that died in between. Two calls at once may lose one's values: hold the table's lock. Errors: those of
    `load_table_config`, and nothing has changed.
    """
    config = load_table_config(storage)
    changed = {key: value for key, value in {**config.raw, **values}.items() if value is not None}
    if changed != config.raw:
        for path in (BACKUP_PATH, PROPERTIES_PATH):  # Hadoop's checksums of local files, which would be of other bytes
            folder, _, name = path.rpartition("/")
            storage.delete(f"{folder}/.{name}.crc")
        storage.put(BACKUP_PATH, _encoded(config.raw))
        storage.put(PROPERTIES_PATH, _encoded(changed))
    storage.delete(BACKUP_PATH)


def record_lock_options(storage: Storage, locks: Mapping[str, str]) -> None:
    """Replaces the lock options that the table has for writers that name none.

    Errors and duties: those of `update_properties`.
    """
    said = {key: None for key in load_table_config(storage).raw if key.startswith(LOCKS_RECORDED)}
    update_properties(storage, {**said, **lock_properties(locks)})


def _encoded(values: Mapping[str, str]) -> bytes:
    return javaproperties.dumps(values, sort_keys=True, timestamp=False).encode("utf-8")
