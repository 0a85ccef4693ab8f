"""Missing data files: completed writes name them, and the folders do not have them.

A file named by a write may rightly be gone: cleaned, or rolled back with its write. But no file of a *latest* slice is
ever removed: a clean removes superseded files, a replace commit hides the groups that it has replaced, and a rollback
or restore removes the completed file first. So slices are made of the named files together with those that exist, as
of one listing; a file is missing if it is named, does not exist, and is in a latest slice.

A reader may be slower than a commit and a clean after it. So a file counts as missing only if a second check finds the
same, with a timeline that was listed later, and the storage does not have the path.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from lakelatch.errors import CorruptTable, Unavailable, WriteConflict
from lakelatch.format.expected.cleaned import cleaned_after
from lakelatch.format.file_slices import FileSlice
from lakelatch.format.names import BaseFile, LogFile, is_compacted_log, parse_data_file
from lakelatch.storage.contract import NotFound, Storage, path_below
from lakelatch.timeline.actions import WRITE_ACTIONS
from lakelatch.timeline.history.named_files import Named, recall
from lakelatch.timeline.instant import Instant
from lakelatch.timeline.log.whole_timeline import WholeTimeline
from lakelatch.timeline.staged import StagedStorage, no_longer_readable

_CHECKS_MAX = 20
Groups = list[list[FileSlice]]


class Expectation:
    """The files that some completed writes name, by partition."""

    def __init__(self, commits: Iterable[tuple[Instant, Named]]) -> None:
        self._by_partition: dict[str, list[tuple[Instant, tuple[str, ...]]]] = {}
        for instant, named in commits:
            for partition, names in named.items():
                self._by_partition.setdefault(partition, []).append((instant, names))

    @property
    def partitions(self) -> list[str]:
        """The partitions with expected files, in order."""
        return sorted(self._by_partition)

    def lacking(self, partition: str, names: Collection[str]) -> dict[str, Instant]:
        """The expected files of a partition that are not among these names, each with the write that names it."""
        there, found = frozenset(names), dict[str, Instant]()
        for instant, named in self._by_partition.get(partition, ()):
            for name in named:
                if name not in there and _is_of(name, instant):
                    found[name] = instant
        return found


#: The writes of a timeline whose files are expected.
Expects = Callable[[WholeTimeline], Expectation]


def known(whole: WholeTimeline) -> Expectation:
    """The files of writes on the active timeline that this process has cached. Costs no request."""
    found = ((one, recall(whole.storage, one)) for one in whole.active.completed if one.action in WRITE_ACTIONS)
    return Expectation((one, named) for one, named in found if named is not None)


def active(whole: WholeTimeline) -> Expectation:
    """The files of all writes on the active timeline: a request for each that this process has not cached."""
    return _read(whole, [one for one in whole.active.completed if one.action in WRITE_ACTIONS])


def archived_too(whole: WholeTimeline) -> Expectation:
    """The files of all writes on the active timeline and in the history; requests as for `active`."""
    return _read(whole, whole.completed(WRITE_ACTIONS))


@dataclass(frozen=True, order=True)
class Missing:
    """A file that has to be there, and the write that names it."""

    path: str
    instant: Instant

    def error(self) -> CorruptTable:
        """The error for a reader that needs the file."""
        return CorruptTable(
            f"the file {self.path!r} is missing, which {self.instant.path} names: its rows would be left out. Restore "
            "it from a copy, or restore the table to a commit before it; `lakelatch verify` finds all missing files",
            path=self.path,
            instant=self.instant.requested,
        )


class View(Protocol):
    """The parts of a view of the table that a second check needs."""

    @property
    def storage(self) -> Storage: ...
    def again(self) -> View: ...
    def suspects(self, partitions: Iterable[str]) -> list[Missing]: ...
    def was_overtaken(self) -> bool: ...


def suspects(
    expectation: Expectation,
    partition: str,
    names: Collection[str],
    groups: Groups,
    cut: Callable[[Collection[str]], Groups],
    hidden: Collection[str],
) -> Iterator[Missing]:
    """The files that the latest slices of a partition lack, by one listing.

    `groups` are those of the `names`, `cut` makes them of more names, and `hidden` are replaced file ids. Costs only a
    comparison of names unless a file is lacking that no later base file has superseded.
    """
    lacking = expectation.lacking(partition, names)
    if lacking:
        latest = {group[0].file_id: group[0] for group in groups}
        lacking = {name: instant for name, instant in lacking.items() if not _is_superseded(name, instant, latest)}
    for group in cut((*names, *lacking)) if lacking else ():
        for name in group[0].names if group[0].file_id not in hidden else ():
            if name in lacking:
                yield Missing(path_below(partition, name), lacking[name])


def confirmed(view: View, found: Collection[Missing]) -> list[Missing]:
    """The files that a second check finds missing as well. Errors: `Unavailable` if cleans overtake each check."""
    partitions = sorted({one.path.rpartition("/")[0] for one in found})
    for _ in range(_CHECKS_MAX):
        view = view.again()
        second = view.suspects(partitions)
        if not second:
            return []
        if not view.was_overtaken():
            storage = view.storage
            there = storage.together(*(partial(storage.exists, one.path) for one in second))
            return sorted(one for one, is_there in zip(second, there, strict=True) if not is_there)
    raise Unavailable(f"{view.storage.uri} was cleaned during each of {_CHECKS_MAX} checks of it: try again")


def ensure_none(view: View, found: Collection[Missing]) -> None:
    """Raises `CorruptTable` for the first of these files that a second check finds missing as well.

    `WriteConflict` where a clean has removed it after the moment at which a transaction over several tables sees it.
    """
    for one in confirmed(view, found) if found else ():
        raise _cleaned_since(view.storage, one) or one.error()


def _cleaned_since(storage: Storage, missing: Missing) -> WriteConflict | None:
    if not isinstance(storage, StagedStorage) or storage.moment is None:
        return None
    cleaned = cleaned_after(WholeTimeline.load(storage.storage), storage.moment)
    partition, _, name = missing.path.rpartition("/")
    clean = cleaned.get(partition, {}).get(name)
    return None if clean is None else no_longer_readable(storage, missing.path, clean)


def _is_of(name: str, instant: Instant) -> bool:
    """Whether a name is that of a write's own data file, as all of ours are and those of Hudi since RFC-66."""
    file = parse_data_file(name)
    if isinstance(file, LogFile) and is_compacted_log(file):
        return True
    return file is not None and file.instant == instant.requested


def _is_superseded(name: str, instant: Instant, latest: Mapping[str, FileSlice]) -> bool:
    """Whether the file is of an older slice than the latest existing one; False where only `cut` can decide that."""
    file = parse_data_file(name)
    there = latest.get(file.file_id) if file is not None else None
    if file is None or there is None or there.base_file is None:
        return False
    if isinstance(file, BaseFile):
        return file.instant < there.base_instant
    return not is_compacted_log(file) and (instant.completion or "") <= there.base_instant


def _read(whole: WholeTimeline, instants: Iterable[Instant]) -> Expectation:
    """The files that these instants name; one that is removed from both timelines meanwhile names none."""

    def read(instant: Instant) -> Named:
        with suppress(NotFound):
            return whole.named_files(instant)
        return {}

    asked = list(instants)
    return Expectation(zip(asked, whole.storage.together(*(partial(read, one) for one in asked)), strict=True))
