"""What can happen to the bytes of a file."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

EXAMPLES = "LAKELATCH_FUZZ_EXAMPLES"
JUNK = (
    b"\xff\xfe",
    b"\x00" * 9,
    b"[" * 70_000,
    b"9" * 5000,
    b"\\ud800",
    b"\n",
    b'"',
    b"{}",
    b"#HUDI#",
    b"PAR1",
    b"1e999",
)
NUMBERS = (b"\x00\x00\x00\x00", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x80\x00\x00\x00", b"\x7f" + b"\xff" * 7)


def tried(few: int) -> settings:
    """How often a test is tried: with `few` examples, or as many times more as the environment asks for."""
    slow = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture]
    return settings(max_examples=few * int(os.environ.get(EXAMPLES, "1")), deadline=None, suppress_health_check=slow)


@dataclass(frozen=True)
class Damage:
    """One damage: `at` and `length` are shares of a file's size, `other` says which file's content comes instead."""

    kind: str
    at: int = 0
    length: int = 0
    byte: int = 1
    text: bytes = b""
    other: int = 0

    def apply(self, data: bytes, files: Mapping[str, bytes]) -> bytes:
        """The damaged bytes; sometimes they are the same."""
        start = min(len(data) * self.at // 100_000, max(len(data) - 1, 0))
        stop = start + 1 + (len(data) - start) * self.length // 100_000
        if self.kind == "flip":
            return data[:start] + bytes(byte ^ self.byte for byte in data[start : start + 1]) + data[start + 1 :]
        if self.kind == "set":
            return data[:start] + bytes([self.byte]) + data[start + 1 :]
        if self.kind == "cut":
            return data[:start]
        if self.kind == "remove":
            return data[:start] + data[stop:]
        if self.kind == "repeat":
            return data[:stop] + data[start:]
        if self.kind == "zeros":
            return data[:start] + bytes(len(data[start:stop])) + data[stop:]
        if self.kind == "insert":
            return data[:start] + self.text + data[start:]
        if self.kind == "append":
            return data + self.text
        if self.kind == "number":
            return data[:start] + self.text + data[start + len(self.text) :]
        return b"" if self.kind == "empty" else files[one_of(files, self.other)]


_AT = st.integers(0, 100_000)
_JUNK = st.sampled_from(JUNK) | st.binary(max_size=40)
DAMAGES = st.one_of(
    st.builds(Damage, st.just("flip"), _AT, byte=st.sampled_from([1 << bit for bit in range(8)])),
    st.builds(Damage, st.just("set"), _AT, byte=st.integers(1, 255)),
    st.builds(Damage, st.sampled_from(["cut", "empty"]), _AT),
    st.builds(Damage, st.sampled_from(["remove", "repeat", "zeros"]), _AT, _AT),
    st.builds(Damage, st.sampled_from(["insert", "append"]), _AT, text=_JUNK),
    st.builds(Damage, st.just("number"), _AT, text=st.sampled_from(NUMBERS)),
    st.builds(Damage, st.just("other"), other=st.integers(0, 10_000)),
)
NUMBER = st.integers(0, 10_000)


def one_of(names: Collection[str], number: int) -> str:
    """A name that a drawn number stands for. What is drawn must not depend on the table."""
    ordered = sorted(names)
    return ordered[number % len(ordered)]
