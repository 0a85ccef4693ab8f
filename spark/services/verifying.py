"""Verifying a table, for callers who have a path and options."""

from __future__ import annotations

from collections.abc import Mapping

from lakelatch.services import verifying
from lakelatch.services.verifying import Verification
from lakelatch.spark.open_table import load_config
from lakelatch.spark.service_options import ServiceOptions
from lakelatch.storage.uris import open_storage


def verify(path: str, options: Mapping[str, object] | None = None, deep: bool = False) -> Verification:
    """Looks whether every file is there that slots, writes, plans and savepoints name; changes nothing.

    Needs no Spark session. `deep` reads all data files and compares their checksums. Others may go on meanwhile.
    Errors: `InvalidRequest` for the options, and where there is no table; `CorruptTable` for damaged properties.
    """
    storage = open_storage(path, ServiceOptions.parse(options).manager.storage)
    return verifying.verify(storage, load_config(storage), deep)
