"""Which data files have to be there and are not: what completed writes name, held against what lies in the folders.

A file that a write names may rightly be gone: cleaned, or taken back with its write. But nothing takes away a file of a
*latest* slice: a clean removes what later files have superseded, a replace commit hides what it has replaced, and a
rollback or restore takes the completed file away first. So what is named is put beside what is there, slices are cut of
both as of any listing, and a file that is named, is not there, and lies in a latest slice is missing.

A reader may be slower than a commit and a clean after it. So nothing is missing before a second look says it, at a
timeline that was listed later, and the storage was asked for the very path.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from lakelatch.errors import CorruptTable, Unavailable
from lakelatch.format.file_slices import FileSlice
from lakelatch.format.names import BaseFile, LogFile, is_compacted_log, parse_data_file
from lakelatch.storage.contract import NotFound, Storage, path_below
from lakelatch.timeline.actions import WRITE_ACTIONS
from lakelatch.timeline.history.named_files import Named, recall
from lakelatch.timeline.instant import Instant
from lakelatch.timeline.log.whole_timeline import WholeTimeline

_LOOKS_MAX = 20
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
        """The partitions in which something is expected, in order."""
        return sorted(self._by_partition)

    def lacking(self, partition: str, names: Collection[str]) -> dict[str, Instant]:
        """What is expected in a partition and is not among these names, each with the write that names it."""
        there, found = frozenset(names), dict[str, Instant]()
        for instant, named in self._by_partition.get(partition, ()):
            for name in named:
                if name not in there and _is_of(name, instant):
                    found[name] = instant
        return found


#: Which writes of a timeline are held against the folders.
Expects = Callable[[WholeTimeline], Expectation]


def known(whole: WholeTimeline) -> Expectation:
    """What this process remembers of writes on the active timeline. Costs no request."""
    found = ((one, recall(whole.storage, one)) for one in whole.active.completed if one.action in WRITE_ACTIONS)
    return Expectation((one, named) for one, named in found if named is not None)


def active(whole: WholeTimeline) -> Expectation:
    """What all writes on the active timeline name: a request for each that this process does not remember."""
    return _read(whole, [one for one in whole.active.completed if one.action in WRITE_ACTIONS])


def archived_too(whole: WholeTimeline) -> Expectation:
    """The same with the writes that the history has."""
    return _read(whole, whole.completed(WRITE_ACTIONS))


@dataclass(frozen=True, order=True)
class Missing:
    """A file that has to be there, and the write that names it."""

    path: str
    instant: Instant

    def error(self) -> CorruptTable:
        """What whoever needs the file is told."""
        return CorruptTable(
            f"the file {self.path!r} is missing, which {self.instant.path} names: its rows would be left out. Restore "
            "it from a copy, or take the table back to a time before it; `lakelatch verify` finds all that is missing",
            path=self.path,
            instant=self.instant.requested,
        )


class View(Protocol):
    """What a second look needs of a view of the table."""

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
    """What lacks in the latest slices of a partition, as far as one look tells.

    `groups` are those of the `names`, `cut` makes them of more names, and `hidden` are file ids that were replaced.
    Free but for a look at names where nothing lacks that later base files have not superseded.
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
    """Those of these that a second look finds missing as well. Errors: `Unavailable` for a table that never rests."""
    partitions = sorted({one.path.rpartition("/")[0] for one in found})
    for _ in range(_LOOKS_MAX):
        view = view.again()
        second = view.suspects(partitions)
        if not second:
            return []
        if not view.was_overtaken():
            storage = view.storage
            there = storage.together(*(partial(storage.exists, one.path) for one in second))
            return sorted(one for one, is_there in zip(second, there, strict=True) if not is_there)
    raise Unavailable(f"{view.storage.uri} was cleaned during each of {_LOOKS_MAX} looks at it: try again")


def ensure_none(view: View, found: Collection[Missing]) -> None:
    """Errors: `CorruptTable` for the first of these that a second look finds missing as well."""
    for one in confirmed(view, found) if found else ():
        raise one.error()


def _is_of(name: str, instant: Instant) -> bool:
    """Whether a name is that of a write's own data file, as all of ours are and those of Hudi since RFC-66."""
    file = parse_data_file(name)
    if isinstance(file, LogFile) and is_compacted_log(file):
        return True
    return file is not None and file.instant == instant.requested


def _is_superseded(name: str, instant: Instant, latest: Mapping[str, FileSlice]) -> bool:
    """Whether the file is of an older slice than the latest one that is there; False where only a cut can tell."""
    file = parse_data_file(name)
    there = latest.get(file.file_id) if file is not None else None
    if file is None or there is None or there.base_file is None:
        return False
    if isinstance(file, BaseFile):
        return file.instant < there.base_instant
    return not is_compacted_log(file) and (instant.completion or "") <= there.base_instant


def _read(whole: WholeTimeline, instants: Iterable[Instant]) -> Expectation:
    """What these name; one that is taken off both timelines meanwhile names nothing."""

    def read(instant: Instant) -> Named:
        with suppress(NotFound):
            return whole.named_files(instant)
        return {}

    asked = list(instants)
    return Expectation(zip(asked, whole.storage.together(*(partial(read, one) for one in asked)), strict=True))
