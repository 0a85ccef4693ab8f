"""Damaged files of a table in SeaweedFS, where ranges are read: the right rows, or an error names the file."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from damages import DAMAGES, NUMBER, Damage, one_of, tried
from fuzzed_table import Made
from hypothesis import given, note
from uses import USES

from lakelatch.errors import LakelatchError
from lakelatch.storage import open_storage
from lakelatch.testing.servers import Server
from lakelatch.testing.servers.reach import place_environment
from lakelatch.testing.servers.seaweedfs import BUCKET

READING = ("read", "read_since", "read_bases", "settings")


@pytest.fixture(scope="module")
def stored(made: Made, seaweedfs_server: Server) -> Iterator[Any]:
    """The table in a bucket, for uses that change nothing."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in place_environment(seaweedfs_server).items():
            patch.setenv(name, value)
        storage = open_storage(f"s3://{BUCKET}/fuzzed/table")
        for path, data in made.files.items():
            storage.put(path, data)
        yield SimpleNamespace(storage=storage)


@pytest.fixture(scope="module")
def answers(made: Made) -> dict[str, Any]:
    """What the same table answers from memory."""
    with made.place() as place:
        return {name: USES[name](place, place.storage) for name in READING}


@given(use=NUMBER, file=NUMBER, damage=DAMAGES)
@tried(60)
def test_a_damaged_file_in_a_store(
    made: Made, stored: Any, answers: dict[str, Any], use: int, file: int, damage: Damage
) -> None:
    name = one_of(READING, use)
    needed = [path for path in made.files if ".hoodie/" not in path or path.endswith((".properties", "commit"))]
    path = one_of(needed, file)
    data = damage.apply(made.files[path], made.files)
    note(f"{name}: {damage.kind} of {path}, {len(made.files[path])} to {len(data)} bytes")
    stored.storage.put(path, data)
    try:
        answer = USES[name](stored, stored.storage)
    except LakelatchError as error:
        assert path.rpartition("/")[2] in str(error), f"{error} does not name {path}"
    else:
        assert answer == answers[name]
    finally:
        stored.storage.put(path, made.files[path])


def test_the_table_in_the_store_is_the_one_in_memory(stored: Any, answers: dict[str, Any]) -> None:
    assert {name: USES[name](stored, stored.storage) for name in READING} == answers
