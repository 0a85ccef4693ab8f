"""Small Bloom files for an instant's markers: what they do not hold, its markers do not hold.

Each step of a task attempt (or each batch of a marker server) adds one file *before* its markers, and no file is ever
changed. So whoever sees a marker finds its Bloom file, and reads each file once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lakelatch.errors import Unavailable
from lakelatch.storage.contract import Storage
from lakelatch.transactions.doom import NOTES_FOLDER
from lakelatch.transactions.marker_files import START_LENGTH

_MAGIC = b"LLB1"
_BITS_FOR_EACH = 16  # with 8 hashes: one in 1,700 is found that is not there
_HASHES = 8
_LEAST_BITS = 64


def bloom_folder(instant: str) -> str:
    """Where an instant's Bloom files lie: not among its markers, for which Hudi's rollback would take them."""
    return f"{NOTES_FOLDER}/{instant}/bloom"


def bloom_key(partition: str, file_id: str) -> bytes:
    """What stands for a file group: equal for all file ids that may name the same bucket."""
    return f"{partition}/{file_id[:START_LENGTH]}".encode()


def hashes_of(keys: Iterable[bytes]) -> Any:
    """Two numbers for each key, from which all its bits follow; the same on every machine."""
    digests = b"".join(hashlib.blake2b(key, digest_size=16).digest() for key in keys)
    return np.frombuffer(digests, dtype="<u8").reshape(-1, 2)


@dataclass(frozen=True)
class Bloom:
    """A set of keys that may also claim to hold others. `bits` None holds everything: a file that cannot be read."""

    bits: Any

    @classmethod
    def of(cls, keys: Sequence[bytes]) -> Bloom:
        size = max(_LEAST_BITS, (len(keys) * _BITS_FOR_EACH + 7) // 8 * 8)
        bits = np.zeros(size, dtype=bool)
        bits[_positions(hashes_of(keys), size).ravel()] = True
        return cls(bits)

    @classmethod
    def from_bytes(cls, content: bytes) -> Bloom:
        head = len(_MAGIC) + 4
        size = int.from_bytes(content[len(_MAGIC) : head], "big")
        if not content.startswith(_MAGIC) or size == 0 or len(content) - head != (size + 7) // 8:
            return cls(None)
        return cls(np.unpackbits(np.frombuffer(content, dtype=np.uint8, offset=head))[:size].astype(bool))

    def to_bytes(self) -> bytes:
        packed: bytes = np.packbits(self.bits).tobytes()
        return _MAGIC + len(self.bits).to_bytes(4, "big") + packed

    def holds_any(self, hashes: Any) -> bool:
        """Whether it may hold any of the keys with these hashes; False is certain."""
        if len(hashes) == 0:
            return False
        if self.bits is None:
            return True
        return bool(self.bits[_positions(hashes, len(self.bits))].all(axis=1).any())


def _positions(hashes: Any, size: int) -> Any:
    steps = np.arange(_HASHES, dtype=np.uint64)
    odd = hashes[:, 1:] | np.uint64(1)  # so that a key's bits differ
    return (hashes[:, :1] + steps * odd) % np.uint64(size)


def write_bloom(storage: Storage, instant: str, name: str, keys: Sequence[bytes]) -> None:
    """Adds the file of this name; it must be there before a marker of these keys is."""
    storage.put(f"{bloom_folder(instant)}/{name}", Bloom.of(keys).to_bytes())


class BloomReader:
    """Tells which instants can be passed over. Used by one thread."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._known: dict[str, dict[str, Bloom]] = {}

    def may_mark(self, instant: str, hashes: Any) -> bool:
        """Whether an instant's markers may be of any of these keys. True if it writes no Bloom files, or none yet."""
        folder = bloom_folder(instant)
        known = self._known.setdefault(instant, {})
        names = self._storage.names(folder)
        for name in names:
            if name not in known:
                try:
                    bloom = Bloom.from_bytes(self._storage.read(f"{folder}/{name}"))
                except Unavailable:
                    return True
                if bloom.bits is None:
                    return True
                known[name] = bloom
        return not names or any(bloom.holds_any(hashes) for bloom in known.values())
