"""Base files of a completed plan that its commit does not name, as another executor of the plan leaves them."""

from __future__ import annotations

import logging
from collections.abc import Collection

from lakelatch.engine.table.table import OpenedTable
from lakelatch.errors import Unavailable
from lakelatch.format.names import BaseFile, parse_data_file
from lakelatch.format.slices.table_view import TableView
from lakelatch.storage.contract import path_below
from lakelatch.timeline.metadata import FileGroup

_log = logging.getLogger("lakelatch.engine")


def remove_left_over_bases(table: OpenedTable, instant: str, groups: Collection[FileGroup]) -> None:
    """Removes them from these file groups, where the commit names another one; nothing if it has not completed.

    Readers of ours pass over them, and hudi-rs refuses two base files of one instant. Whoever is still writing one
    leaves it again, for the next call. What cannot be removed now is left as well.
    """
    try:
        _remove(TableView.load(table.storage, table.config), instant, groups)
    except Unavailable as error:
        _log.warning("base files that the commit of %s does not name may be left: %s", instant, error)


def _remove(view: TableView, instant: str, groups: Collection[FileGroup]) -> None:
    committed = view.files_of(instant)
    for partition in sorted({partition for partition, _ in groups}) if committed else ():
        files = [parse_data_file(name) for name in view.storage.list(partition).files]
        bases = [file for file in files if isinstance(file, BaseFile) and file.instant == instant]
        named = {base.file_id for base in bases if path_below(partition, base.name) in committed}
        for base in bases:
            path = path_below(partition, base.name)
            if path not in committed and base.file_id in named and (partition, base.file_id) in groups:
                _log.warning("%s is removed: the plan %s was completed with another base file", path, instant)
                view.storage.delete(path)
