"""Components that are found by name among the installed entry points, and what an extra brings."""

from __future__ import annotations

import difflib
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from typing import Any

from lakelatch.errors import InvalidRequest


class NotInstalled(InvalidRequest, ImportError):
    """What the call needs comes with an extra that is not installed."""


def ensure_installed(library: str, extra: str, what: str) -> None:
    """Errors: `NotInstalled`, with what to install for `what`, if a library cannot be imported."""
    if not is_installed(library):
        raise NotInstalled(f"{what} needs {library}, which is not installed: run pip install 'lakelatch[{extra}]'")


def is_installed(library: str) -> bool:
    """Whether a library is there to be imported."""
    return find_spec(library) is not None


@lru_cache(maxsize=256)  # reading the entry points of a large environment takes milliseconds
def find_component(group: str, name: str, what: str, option: str) -> Any:
    """Loads the object that is registered under this name in an entry-point group.

    A short name matches in any case, a class name (with dots) only as it is. `what` says what is looked for, and
    `option` where the user chose the name; both are for the messages.

    Errors: `InvalidRequest` if the name is not installed, is claimed by two packages, or cannot be imported.
    """
    ensure_known(group, name, what, option)
    points = {point.value: point for point in _named(group, name)}
    if len(points) > 1:
        raise InvalidRequest(
            f"{option}={name!r} is claimed by {' and '.join(sorted(points))}: uninstall one of the packages, or use "
            f"another name of the {what} that you want",
            option=option,
        )
    return _load(next(iter(points.values())), name, what, option)


def ensure_known(group: str, name: str, what: str, option: str = "") -> None:
    """Errors: `InvalidRequest` if nothing is registered under this name, as for `find_component`; loads nothing."""
    if not _named(group, name):
        raise InvalidRequest(_unknown(list(entry_points(group=group)), name, what, option), option=option)


def _named(group: str, name: str) -> list[EntryPoint]:
    installed = entry_points(group=group)
    exact = [point for point in installed if point.name == name]
    return exact or [point for point in installed if "." not in name and point.name.lower() == name.lower()]


def _load(point: EntryPoint, name: str, what: str, option: str) -> Any:
    try:
        return point.load()
    except (ImportError, AttributeError) as error:
        package = _extra_of(point)
        way_out = f"run pip install '{package}'" if package else "install what it needs, or choose another one"
        place = f"{point.module}:{point.attr}"
        raise InvalidRequest(
            f"{option}={name!r}: the {what} {place} cannot be loaded ({error}); {way_out}", option=option
        ) from error


def _extra_of(point: EntryPoint) -> str:
    """The extra that pip is to install for it, which pyproject.toml names behind the object."""
    package = point.dist.name if point.dist is not None else "lakelatch"
    return f"{package}[{','.join(point.extras)}]" if point.extras else ""


def _unknown(points: list[EntryPoint], name: str, what: str, option: str) -> str:
    by_lower = {point.name.lower(): point.name for point in points}
    near = difflib.get_close_matches(name.lower(), by_lower, n=1)
    guess = f" Did you mean {by_lower[near[0]]!r}?" if near else ""
    there, missing = set[str](), dict[str, list[str]]()
    for point in points:
        if _can_load(point):
            there.add(point.name)
        elif _extra_of(point):
            missing.setdefault(_extra_of(point), []).append(point.name)
    shown = ", ".join(sorted(there)) or "none; install lakelatch itself, as with pip install lakelatch"
    more = "; ".join(f"{', '.join(sorted(names))} with pip install '{extra}'" for extra, names in missing.items())
    return f"{option}{'=' * bool(option)}{name!r} is no known {what}.{guess} Installed: {shown}" + (
        f". Not installed: {more}" if more else ""
    )


def _can_load(point: EntryPoint) -> bool:
    try:
        point.load()
    except (ImportError, AttributeError):
        return False
    return True
