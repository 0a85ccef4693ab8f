"""Options, which come as texts: each is declared once, by the package that acts by it, and says how it is read.

A frozen dataclass that is a `ParsedOptions` declares them as its fields, by `option`. An unfit value is refused with
the option, the value and the way out.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import Field, dataclass, field
from datetime import datetime, timezone
from numbers import Real
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeAlias, TypeVar, cast

from lakelatch.errors import InvalidRequest

if TYPE_CHECKING:
    from typing_extensions import Self

T = TypeVar("T")
Parse: TypeAlias = Callable[[str, str], T]
"""From an option's key and its text to its value. Errors: `InvalidRequest`."""

_WHOLE = re.compile(r"[+-]?[0-9]{1,18}")
_NUMBER = re.compile(r"[+-]?[0-9]{0,18}\.?[0-9]{1,18}(e[+-]?[0-9]{1,3})?", re.IGNORECASE)


@dataclass(frozen=True)
class Option(Generic[T]):
    """One option: its key in lower case, how its text is read, and its value where it is not given.

    `aliases` are Hudi's other names for it.
    """

    key: str
    parse: Parse[T]
    default: T
    aliases: tuple[str, ...] = ()

    def of(self, values: Mapping[str, str]) -> T:
        """Its value among others. Errors: `InvalidRequest`, whose detail `option` is the key."""
        if self.key not in values:
            return self.default
        try:
            return self.parse(self.key, str(values[self.key]))
        except InvalidRequest as error:
            error.details.setdefault("option", self.key)
            raise


def option(key: str, parse: Parse[Any], default: Any = None, *aliases: str, secret: bool = False) -> Any:
    """A field of `ParsedOptions` that is an option; a function as its default makes it. A secret is not shown."""
    metadata = {"of": Option(key, parse, default, aliases)}
    if callable(default):
        return field(default_factory=default, repr=not secret, metadata=metadata)
    return field(default=default, repr=not secret, metadata=metadata)


class ParsedOptions:
    """What is read from options, once: a base of frozen dataclasses.

    A field whose default is made by another such class holds that one's. `also` are options that are no fields, and are
    checked all the same.
    """

    also: ClassVar[tuple[Option[Any], ...]] = ()
    _declared: ClassVar[Mapping[str, Option[Any] | type[ParsedOptions]]] = {}

    def __init_subclass__(cls) -> None:
        fields = {name: one for name, one in vars(cls).items() if isinstance(one, Field)}
        found = {name: one.metadata.get("of", one.default_factory) for name, one in fields.items()}
        cls._declared = {
            name: one
            for name, one in found.items()
            if isinstance(one, Option) or (isinstance(one, type) and issubclass(one, ParsedOptions))
        }

    @classmethod
    def from_options(cls, values: Mapping[str, str], parsed: dict[type, Any] | None = None) -> Self:
        """From options with keys in lower case; `parsed` has what was read from the same ones before.

        Errors: `InvalidRequest`, naming the option, its value and what is possible.
        """
        parsed = {} if parsed is None else parsed
        if cls not in parsed:
            found: dict[str, Any] = {}
            for name, declared in cls._declared.items():
                if not isinstance(declared, Option):
                    found[name] = declared.from_options(values, parsed)
                elif declared.key in values:
                    found[name] = declared.of(values)
            for other in cls.also:
                other.of(values)
            parsed[cls] = cls(**found).completed(values)
        return cast("Self", parsed[cls])

    def completed(self, values: Mapping[str, str]) -> Self:
        """With what follows from several options. Errors: `InvalidRequest` for those that do not go together."""
        return self

    @classmethod
    def options(cls) -> Iterator[Option[Any]]:
        """All options that it reads, also by its parts."""
        for declared in cls._declared.values():
            yield from (declared,) if isinstance(declared, Option) else declared.options()
        yield from cls.also


def as_given(key: str, text: str) -> str:
    """A text as it is."""
    return text


def stripped(key: str, text: str) -> str:
    """A text without the spaces around it."""
    return text.strip()


def stripped_or_none(key: str, text: str) -> str | None:
    """A text without the spaces around it; None if nothing is left."""
    return text.strip() or None


def names(key: str, text: str) -> tuple[str, ...]:
    """The parts of a list with commas."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


def whole(least: int, most: int) -> Parse[int]:
    """An integer within bounds."""

    def parse(key: str, text: str) -> int:
        text = text.strip()
        if not _WHOLE.fullmatch(text):
            raise InvalidRequest(f"{key}={text!r} is no whole number: use {least} to {most}", option=key)
        if not least <= int(text) <= most:
            raise InvalidRequest(f"{key}={int(text)} is out of range: use {least} to {most}", option=key)
        return int(text)

    return parse


def fraction(example: float) -> Parse[float]:
    """A number between 0 and 1, neither of them."""

    def parse(key: str, text: str) -> float:
        text = text.strip()
        value = float(text) if _NUMBER.fullmatch(text) else 0.0
        if not 0 < value < 1:
            raise InvalidRequest(f"{key}={text!r} is not between 0 and 1: use a number such as {example}", option=key)
        return value

    return parse


def one_of(*allowed: str) -> Parse[str]:
    """One of some texts, in this spelling, which it must equal but for case."""

    def parse(key: str, text: str) -> str:
        text = text.strip()
        for choice in allowed:
            if text.lower() == choice.lower():
                return choice
        raise InvalidRequest(f"{key}={text!r} is not supported: use {' or '.join(allowed)}", option=key)

    return parse


_true_or_false = one_of("true", "false")


def flag(key: str, text: str) -> bool:
    """Whether an option is on."""
    return _true_or_false(key, text) == "true"


def regex(key: str, text: str) -> str:
    """A regular expression of Python's."""
    try:
        re.compile(text)
    except (re.error, OverflowError, RecursionError) as error:
        raise InvalidRequest(f"{key}={text!r} is no regular expression ({error})", option=key) from None
    return text


def text_of(key: str, value: object) -> str:
    """An option's value as the text that Spark would hand over: of lists with commas, of times in UTC.

    Errors: `InvalidRequest` for a time without a zone, for a part of a list that has a comma, and for what has no text.
    """
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | Real):
        return str(value)
    if isinstance(value, os.PathLike):
        return os.fsdecode(value)
    if isinstance(value, list | tuple):
        return ",".join(_part_of(key, part) for part in value)
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(timezone.utc).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
    if isinstance(value, datetime):
        raise InvalidRequest(
            f"{key}={value!r} has no zone: use datetime.now(timezone.utc), or a text in UTC", option=key
        )
    raise InvalidRequest(
        f"{key}: a {type(value).__name__} is no value of an option: use a text, a number, True or False, a list of "
        "them, a path or a datetime",
        option=key,
    )


def _part_of(key: str, part: object) -> str:
    text = text_of(key, part)
    if "," in text:
        raise InvalidRequest(f"{key}: {text!r} has a comma, which separates the parts of a list", option=key)
    return text
