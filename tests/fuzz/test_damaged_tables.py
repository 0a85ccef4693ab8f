"""A damaged file anywhere in a table: the same answer as before, or an error that names the file; never anything else.

An example chooses a use of the table, one of the files that this use reads, and a damage. After a call that failed the
file is put back, and the table has to be what it was, or what the call should have made of it.
"""

from __future__ import annotations

from typing import Any

import pytest
from bare_table import put_stamped
from damages import DAMAGES, NUMBER, Damage, one_of, tried
from fuzzed_table import Made, Place, unchecksummed
from hypothesis import given, note
from uses import GROUPED_USES, USES, Use, recover

from lakelatch.errors import LakelatchError
from lakelatch.storage import NotFound
from lakelatch.testing.faults.storage import FaultyStorage

_CALLS_MOST = 20_000


class Endless(BaseException):
    """More calls of the storage than any use needs."""


class Known:
    """A use of the whole table: what it reads, its answer, and the rows that are there when all is resolved."""

    def __init__(self, use: Use, paths: tuple[str, ...], answer: Any, resolved: Any) -> None:
        self.use = use
        self.paths = paths
        self.answer = answer
        self.resolved = resolved

    def __repr__(self) -> str:
        return "known"


def _watched(place: Place, read: set[str] | None = None) -> FaultyStorage:
    calls = [0]

    def before(operation: str, path: str) -> None:
        calls[0] += 1
        if calls[0] > _CALLS_MOST:
            raise Endless(path)
        if read is not None and operation == "read":
            read.add(path)

    return FaultyStorage(place.storage, before=before)


def _known(made: Made, use: Use) -> Known:
    read: set[str] = set()
    with made.place() as place, pytest.MonkeyPatch.context() as patch:
        found = place.storage.read

        def noted(path: str) -> bytes:
            read.add(path)
            return found(path)

        patch.setattr(place.storage, "read", noted)
        answer = use(place, _watched(place))
        resolved = recover(place, place.storage)
    return Known(use, tuple(sorted(read.intersection(made.files))), answer, resolved)


@pytest.fixture(scope="session")
def known(made: Made) -> dict[str, Known]:
    return {name: _known(made, use) for name, use in USES.items()}


@pytest.fixture(scope="session")
def known_grouped(grouped: Made) -> dict[str, Known]:
    return {name: _known(grouped, use) for name, use in GROUPED_USES.items()}


def check(made: Made, known: dict[str, Known], use: int, file: int, damage: Damage) -> None:
    name = one_of(known, use)
    path = one_of(known[name].paths, file)
    data = damage.apply(made.files[path], made.files)
    whole, before = known[name], known["recover"].resolved if "recover" in known else known["read"].resolved
    note(f"{name}: {damage.kind} of {path}, {len(made.files[path])} to {len(data)} bytes")
    with made.place() as place:
        modified_ms = place.storage.stat(path).modified_ms
        put_stamped(place.storage, path, data, modified_ms)
        try:
            answer = whole.use(place, _watched(place))
        except LakelatchError as error:
            _check_named(error, path)
            _restore(place, path, data, (made.files[path], modified_ms))
            resolved = recover(place, place.storage)
            assert resolved in (before, whole.resolved), f"{name} failed with {error} and left other rows"
            return
        assert answer == whole.answer
        _restore(place, path, data, (made.files[path], modified_ms))
        assert recover(place, place.storage) == whole.resolved


def _check_named(error: LakelatchError, path: str) -> None:
    assert path.rpartition("/")[2] in str(error), f"{error} does not name {path}"


def _restore(place: Place, path: str, damaged: bytes, was: tuple[bytes, int]) -> None:
    if place.storage.exists(path) and place.storage.read(path) == damaged:
        put_stamped(place.storage, path, *was)


@given(use=NUMBER, file=NUMBER, damage=DAMAGES)
@tried(300)
def test_a_damaged_file(made: Made, known: dict[str, Known], use: int, file: int, damage: Damage) -> None:
    check(made, known, use, file, damage)


@given(use=NUMBER, file=NUMBER, damage=DAMAGES)
@tried(60)
def test_a_damaged_file_of_a_table_with_column_groups(
    grouped: Made, known_grouped: dict[str, Known], use: int, file: int, damage: Damage
) -> None:
    check(grouped, known_grouped, use, file, damage)


@given(use=NUMBER, file=NUMBER, damage=DAMAGES)
@tried(60)
def test_a_damaged_file_of_another_writer(
    made: Made, known: dict[str, Known], use: int, file: int, damage: Damage
) -> None:
    """Nothing tells whether a value is the one that was written. But no error is another one than ours."""
    name = one_of(("read", "read_since", "read_bases", "recover", "compact", "look"), use)
    files = unchecksummed(made.files)
    ours = (".hoodie/.heartbeat/", ".hoodie/.lakelatch/")
    path = one_of([path for path in known[name].paths if not path.startswith(ours)], file)
    note(f"{name}: {damage.kind} of {path}, {len(files[path])} bytes")
    files[path] = damage.apply(files[path], files)
    with Made(files, made.now_ms, made.live).place() as place:
        try:
            known[name].use(place, _watched(place))
        except NotFound:
            assert path.endswith(".compaction.requested"), "it may name a file that never was"
        except LakelatchError as error:
            _check_named(error, path)


def test_every_kind_of_file_is_read_by_some_use(made: Made, known: dict[str, Known]) -> None:
    """So that no kind of file escapes the test above. Of the others only the names count, and most are empty."""
    read = {_kind(path) for one in known.values() for path in one.paths}
    assert {_kind(path) for path in made.files} - read == {
        ".hoodie/.lakelatch/beats",
        ".hoodie/.lakelatch/now",
        ".hoodie/.lakelatch/open",
        ".hoodie/.temp CREATE",
        ".hoodie/.temp type",
        ".hoodie/timeline deltacommit.inflight",
        ".hoodie/timeline deltacommit.requested",
        ".hoodie/timeline compaction.inflight",
        ".hoodie/timeline logcompaction.inflight",
        ".hoodie/timeline replacecommit.inflight",
        ".hoodie/timeline replacecommit.requested",
        ".hoodie/timeline rollback.inflight",
        "partition_metadata",
    }


def _kind(path: str) -> str:
    """The folder of a file below `.hoodie`, and what its name says; of a data file its form."""
    parts = path.split("/")
    name = parts[-1]
    if parts[0] != ".hoodie":
        return "partition_metadata" if "metadata" in name else "log" if ".log." in name else "base"
    if parts[1] == "timeline":
        return f".hoodie/timeline {name.partition('.')[2]}"
    if parts[1] == ".temp":
        return f".hoodie/.temp {'MARKERS' if name == 'MARKERS0' else name.rpartition('.')[2]}"
    if parts[1] == ".lakelatch":
        return "/".join([*parts[:3], *parts[4:5]] if parts[2] == "notes" else parts[:3])
    return "/".join(parts[:2])
