"""All options, gathered from the modules that declare them; and the options of one call, normalised and parsed once."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from lakelatch.engine.options.calls.hints import (
    KEY_GENERATOR_KEYS,
    PAYLOAD_KEYS,
    check_key_generator,
    check_value,
    log_ignored,
    merge_mode_of,
    named_key_generator,
    rule_of,
)
from lakelatch.engine.options.calls.other_formats import elsewhere
from lakelatch.engine.options.read import ReadOptions, StreamOptions
from lakelatch.engine.options.table_services.services import ServiceOptions
from lakelatch.engine.options.write import KEY_GENERATOR, MERGE_MODE, PARTITION_FIELD, RECORD_KEY, WriteOptions
from lakelatch.errors import InvalidRequest
from lakelatch.format.base_file_options import is_bloom_key
from lakelatch.locks.options import LockOptions, is_provider_key
from lakelatch.option_values import Option, as_given, text_of
from lakelatch.timegen.open import TIME_GENERATOR_OPTIONS

_KINDS = (WriteOptions, ServiceOptions, ReadOptions, StreamOptions, LockOptions)
_PLACES = ("path", "hoodie.base.path")  # Hudi's lock providers with an implicit place need the second
OPTIONS: tuple[Option[Any], ...] = (
    *(one for kind in _KINDS for one in kind.options()),
    *TIME_GENERATOR_OPTIONS,
    *(Option(key, as_given, None) for key in _PLACES),
)
KNOWN_KEYS = frozenset(one.key for one in OPTIONS)
OTHER_NAMES = {alias: one.key for one in OPTIONS for alias in one.aliases}

_NEAR = 0.8  # a hint at another option is worse than none
_REMEMBERED_MAX = 64
_SLIP = 0.96  # so near to a known key that it is a typing error, even where all keys with that prefix have no effect


class _Given:
    """Normalised options, and what was read from them: one is of no use with the other's of another call."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self.values = values
        self.parsed: dict[type, Any] = {}


class Call(Mapping[str, str]):
    """The options of one call, by key: normalised once, and parsed on first use.

    A `Call` made from a `Call` shares its values, and so do those of the same options, which a process gives again and
    again. Errors: `InvalidRequest`, naming the option, its value and what is possible.
    """

    def __init__(self, options: Mapping[str, object] | None = None) -> None:
        self._given: _Given = options._given if isinstance(options, Call) else _given(options or {})

    def __getitem__(self, key: str) -> str:
        return self._given.values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._given.values)

    def __len__(self) -> int:
        return len(self._given.values)

    def having(self, more: Mapping[str, str]) -> Call:
        """The same call with other values of some options, by normalised keys."""
        made = Call()
        made._given = _Given({**self._given.values, **more})
        return made

    def check(self) -> None:
        """Reads each value that is given, whatever it is for. Errors: `InvalidRequest`."""
        for one in OPTIONS:
            one.of(self._given.values)

    def write(self) -> WriteOptions:
        """The options of a write."""
        return WriteOptions.from_options(self._given.values, self._given.parsed)

    def read(self) -> ReadOptions:
        """The options of a read."""
        return ReadOptions.from_options(self._given.values, self._given.parsed)

    def stream(self) -> StreamOptions:
        """The options of a stream of reads."""
        return StreamOptions.from_options(self._given.values, self._given.parsed)

    def services(self) -> ServiceOptions:
        """The options of table services."""
        return ServiceOptions.from_options(self._given.values, self._given.parsed)


def normalise(options: Mapping[str, object] | None) -> dict[str, str]:
    """Keys in lower case (as Spark's data source passes them), values as text; `InvalidRequest` if unknown.

    Write and read options may be mixed, so that one dictionary serves a job that does both. Options of Hudi that have
    no effect here are left out and logged; a value that asks for a different table is refused.
    """
    values: dict[str, str] = {}
    without_effect: dict[str, str] = {}
    given = {key.lower(): (key, text_of(key, value)) for key, value in (options or {}).items() if value is not None}
    for name, (key, value) in given.items():
        if name in PAYLOAD_KEYS:
            _set(values, given, MERGE_MODE, merge_mode_of(name, value), key)
        elif name in OTHER_NAMES:
            _set(values, given, OTHER_NAMES[name], value, key)
        elif name in KNOWN_KEYS:
            values[name] = value
        elif (rule := rule_of(name)) is not None and not _nearest(name, _SLIP):
            check_value(rule, name, value)
            if named_key_generator({name: value}) is None:
                without_effect[name] = rule.why
        elif is_provider_key(name) or is_bloom_key(name):
            values[name] = value
        else:
            raise InvalidRequest(f"the option {key!r} is not known: {_way_out(name, value)}", option=key)
    generators = {key: given[key][1] for key in KEY_GENERATOR_KEYS if key in given}
    check_key_generator({**values, **generators}, RECORD_KEY, PARTITION_FIELD)
    generator = named_key_generator(generators)
    if generator is not None:
        values[KEY_GENERATOR] = generator
    log_ignored(without_effect)
    return values


def _given(options: Mapping[str, object]) -> _Given:
    try:
        return _remembered(tuple((key, type(value), value) for key, value in options.items()))
    except TypeError:  # a list
        return _Given(normalise(options))


@lru_cache(_REMEMBERED_MAX)
def _remembered(options: tuple[tuple[str, type, object], ...]) -> _Given:
    """With the types of the values, since 1 and True are equal and differ as texts."""
    return _Given(normalise({key: value for key, _, value in options}))


def _set(values: dict[str, str], given: Mapping[str, tuple[str, str]], name: str, value: str, key: str) -> None:
    """Sets an option that was given by another name; `InvalidRequest` if it was also given with another value."""
    for other in (values.get(name), given[name][1] if name in given else None):
        if other is not None and other.strip().lower() != value.strip().lower():
            raise InvalidRequest(
                f"{key} means {name}={value}, and {name}={other} was given as well: remove one", option=key
            )
    values[name] = value


def _way_out(name: str, value: str) -> str:
    near = _nearest(name, _NEAR)
    return elsewhere(name, value) or (f"did you mean {near!r}? Correct it, or remove it" if near else "remove it")


@lru_cache(200)  # a job gives the same keys with each write
def _nearest(name: str, cutoff: float) -> str | None:
    """A known key that the user may have meant, compared without the prefix that nearly all keys share."""
    by_rest = {known.partition(".")[2] or known: known for known in sorted(KNOWN_KEYS)}
    near = difflib.get_close_matches(name.partition(".")[2] or name, by_rest, n=1, cutoff=cutoff)
    return by_rest[near[0]] if near else None
