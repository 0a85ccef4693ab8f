"""The newest file index, brought up to the moment of a reader; or none, and the reader lists folders."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from functools import lru_cache, partial

from lakelatch.errors import CorruptTable, Unavailable
from lakelatch.format.index.file_index import INDEX_FOLDER, FileIndex, files_of, index_moment, index_path
from lakelatch.format.slices.partitions import FEW_FOLDERS
from lakelatch.storage.contract import NotFound, Storage
from lakelatch.timeline.instant import Instant
from lakelatch.timeline.log.whole_timeline import WholeTimeline

_log = logging.getLogger("lakelatch.format")
_COMMITS_REMEMBERED = 64


def current_index(whole: WholeTimeline, names: Collection[str] | None = None) -> FileIndex | None:
    """The newest index that is not younger than this timeline, with the files of all writes since.

    None if there is none, or if it is damaged, incomplete, or does not fit the timeline, which only costs time. `names`
    are those of the index's folder, if the caller has listed it.
    """
    try:
        found = _newest(whole, whole.storage.names(INDEX_FOLDER) if names is None else names)
        later = None if found is None else found.writes_since(whole)
        # One request for each: with more of them than partitions, listing these is faster.
        if found is None or later is None or len(later) > max(len(found.files), FEW_FOLDERS):
            return None
        read = whole.storage.together(*(partial(_written_by, whole, instant) for instant in later))
        written = [(instant, files) for instant, files in zip(later, read, strict=True) if files is not None]
    except (CorruptTable, NotFound, Unavailable) as error:
        _log.warning("%s: the file index is not used, and folders are listed: %s", whole.storage.uri, error)
        return None
    return found.after(written) if len(written) == len(later) else None


def _newest(whole: WholeTimeline, names: Collection[str]) -> FileIndex | None:
    moments = [moment for moment in map(index_moment, names) if "" < moment <= whole.latest]
    if not moments:
        return None
    path = index_path(max(moments))
    return FileIndex.from_bytes(whole.storage.read(path), path)


def _written_by(whole: WholeTimeline, instant: Instant) -> Mapping[str, tuple[str, ...]] | None:
    """The answer of `files_of` for a completed write. It never changes, so each is read once a process."""
    place = _place(whole.storage, instant)
    if not place:
        place.append(files_of(whole.metadata(instant)))
    return place[0]


@lru_cache(maxsize=_COMMITS_REMEMBERED)
def _place(storage: Storage, instant: Instant) -> list[Mapping[str, tuple[str, ...]] | None]:
    """The cache entry for an instant: an empty list at first."""
    return []
