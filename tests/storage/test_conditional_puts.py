"""That a storage is checked for conditional puts before it is written to."""

from __future__ import annotations

import pytest

from lakelatch.errors import InvalidRequest
from lakelatch.storage.conditional_puts import ensure_refuses_second
from lakelatch.storage.contract import PutUnknown
from lakelatch.storage.memory import MemoryStorage
from lakelatch.system import REAL_SYSTEM


class Clone(MemoryStorage):
    """A place on another scheme; `lies` counts conditional puts that it carries out without looking."""

    lies = 0
    lost = 0
    puts = 0

    @property
    def uri(self) -> str:
        return f"clone://{super().uri.partition('://')[2]}"

    def put_if_absent(self, path: str, data: bytes) -> bool:
        self.puts += 1
        if self.lies:
            self.put(path, data)
            return True
        done = super().put_if_absent(path, data)
        if self.puts <= self.lost:
            raise PutUnknown("lost", path=path)
        return done


def test_a_place_without_conditional_puts_is_refused_by_its_name() -> None:
    storage = Clone("proof-lies")
    storage.lies = 1
    with pytest.raises(InvalidRequest, match=r"clone://proof-lies creates an object .* a second time"):
        ensure_refuses_second(storage, REAL_SYSTEM)
    assert list(storage.walk("")) == []


@pytest.mark.parametrize("lost", [0, 1, 2])
def test_a_place_that_keeps_them_is_asked_once(lost: int) -> None:
    storage = Clone(f"proof-good-{lost}")
    storage.lost = lost
    ensure_refuses_second(storage, REAL_SYSTEM)
    ensure_refuses_second(storage, REAL_SYSTEM)
    assert storage.puts == 2 and list(storage.walk("")) == []


def test_places_that_are_known_to_keep_them_are_not_asked() -> None:
    storage = MemoryStorage("proof-known")
    ensure_refuses_second(storage, REAL_SYSTEM)
    assert list(storage.walk("")) == []
