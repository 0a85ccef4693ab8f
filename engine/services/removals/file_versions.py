"""The versions of file groups: all files of each, and which of them readers of a moment need."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from lakelatch.format.names import BaseFile, LogFile, parse_data_file


@dataclass(frozen=True)
class Version:
    """All completed files of one slice of a file group; `since` is when it became visible."""

    instant: str
    since: str
    files: tuple[str, ...]


def versions(names: Iterable[str], completions: Mapping[str, str]) -> dict[str, list[Version]]:
    """The versions of each file group among a partition's files, latest first, without files that do not count.

    Unlike the slices of readers, they have every file: both of two base files of one instant, and logs that compacted
    logs repeat.
    """
    bases: dict[str, dict[str, list[str]]] = {}
    logs: dict[str, list[LogFile]] = {}
    for file in map(parse_data_file, names):
        if file is None or file.instant not in completions:
            continue
        if isinstance(file, BaseFile):
            bases.setdefault(file.file_id, {}).setdefault(file.instant, []).append(file.name)
        else:
            logs.setdefault(file.file_id, []).append(file)
    found: dict[str, list[Version]] = {}
    for file_id in sorted(bases.keys() | logs.keys()):
        barriers = sorted(bases.get(file_id, ()), reverse=True)
        files = {barrier: list(bases[file_id][barrier]) for barrier in barriers}
        older: list[LogFile] = []
        for log in logs.get(file_id, ()):
            barrier = next((one for one in barriers if one < completions[log.instant]), None)
            if barrier is None:
                older.append(log)
            else:
                files[barrier].append(log.name)
        cut = [Version(barrier, completions[barrier], tuple(sorted(files[barrier]))) for barrier in barriers]
        if older:
            since = min(completions[log.instant] for log in older)
            first = min(log.instant for log in older)
            cut.append(Version(first, since, tuple(sorted(log.name for log in older))))
        found[file_id] = cut
    return found


def needed_at(found: list[Version], moment: str) -> int:
    """How many of the versions, latest first, readers need that began at a moment or later."""
    return next((count for count, version in enumerate(found, 1) if version.since <= moment), len(found))
