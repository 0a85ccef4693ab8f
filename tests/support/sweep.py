"""Compares what lies in a table's storage with what its timeline says: nothing lost, nothing orphaned.

For a table on which nobody is at work. It goes by commit metadata and cleans alone, and by none of the code that cuts
file slices or plans services.
"""

from __future__ import annotations

from collections.abc import Collection

from lakelatch.format.names import parse_data_file
from lakelatch.format.slices.partitions import partition_files
from lakelatch.storage.contract import NotFound, Storage, path_below
from lakelatch.timeline.actions import CLEAN, WRITE_ACTIONS
from lakelatch.timeline.log.whole_timeline import WholeTimeline
from lakelatch.timeline.service_metadata import read_cleaned
from lakelatch.timeline.table_config import TableConfig

_OF_ENDED = (".hoodie/.heartbeat", ".hoodie/.temp", ".hoodie/.lakelatch/open", ".hoodie/.lakelatch/notes")


def find_losses(storage: Storage, config: TableConfig, at_rest: bool = True) -> list[str]:
    """What is wrong, in words; empty if all is well. `at_rest`: nobody may have left anything of a write under way."""
    whole = WholeTimeline.load(storage)
    named = {stat.path: one.requested for one in whole.completed(WRITE_ACTIONS) for stat in whole.metadata(one).stats}
    cleaned = _cleaned(whole)
    there = {
        path_below(partition, name): storage.stat(path_below(partition, name)).size_bytes
        for partition, names in partition_files(storage, config)
        for name in names
        if parse_data_file(name) is not None
    }
    problems = [f"{path} of {named[path]} is lost" for path in sorted(named.keys() - cleaned - there.keys())]
    problems += [f"{path} of {named[path]} is empty" for path in sorted(named) if there.get(path) == 0]
    problems += [f"{path} was cleaned, and is there" for path in sorted(cleaned & there.keys())]
    pending = {one.requested for one in whole.active.pending}
    for path, size in sorted(there.items()):
        file = parse_data_file(path.rpartition("/")[2])
        if path not in named and size and (file is None or file.instant not in pending):
            problems.append(f"{path} is of no completed write")
    return problems + (_left_behind(storage) if at_rest else [])


def _cleaned(whole: WholeTimeline) -> Collection[str]:
    return {
        path_below(partition, name)
        for one in whole.completed((CLEAN,))
        for partition, names in read_cleaned(whole.content(one), one.path).items()
        for name in names
    }


def _left_behind(storage: Storage) -> list[str]:
    try:
        return [f"{path} was left behind" for folder in _OF_ENDED for path in storage.walk(folder)]
    except NotFound:
        return []
