"""Notes: small files that the tasks of a write leave for each other and for their driver.

One note marks a write aborted, and names the winner: every task of it, now or in a second attempt, finds the note and
ends at once, where Spark would hand over no more than a text. Others say what each task attempt has done, so that the
error of an aborted write can say what was lost. Notes are removed after the markers, and must not lie among them:
Hudi's rollback takes every file there for a marker, and fails on any other.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict

from lakelatch.errors import Unavailable
from lakelatch.storage.checksums import checksummed_json, open_checksummed_json
from lakelatch.storage.contract import NotFound, Storage
from lakelatch.timeline.metadata import FileGroup
from lakelatch.transactions.conflicts.contract import Conflict, OtherWrite
from lakelatch.transactions.conflicts.report import Work

NOTES_FOLDER = ".hoodie/.lakelatch/notes"
_ABORTED = "doom"
_WORK = "work"
_LOST = "lost"


def aborted_path(instant: str) -> str:
    """The note that marks a write aborted."""
    return f"{NOTES_FOLDER}/{instant}/{_ABORTED}"


def work_folder(instant: str) -> str:
    """The folder with a note of each task attempt's work."""
    return f"{NOTES_FOLDER}/{instant}/{_WORK}"


def noted_instants(storage: Storage) -> set[str]:
    """Instants that have notes, dead or alive."""
    return set(storage.list(NOTES_FOLDER).folders)


def note_lost(storage: Storage, instant: str) -> bool:
    """Notes that a write will not commit, though its heartbeat goes on for the sake of its files; False if that failed.

    From then on it counts as no concurrent writer.
    """
    try:
        storage.put_if_absent(f"{NOTES_FOLDER}/{instant}/{_LOST}", b"")
    except Unavailable:
        return False
    return True


def has_lost(storage: Storage, instant: str) -> bool:
    """Whether there is the note of `note_lost`."""
    return storage.exists(f"{NOTES_FOLDER}/{instant}/{_LOST}")


def forget_notes(storage: Storage, instant: str) -> None:
    """Removes the notes of an instant that has ended."""
    storage.delete_folder(f"{NOTES_FOLDER}/{instant}")


def mark_aborted(storage: Storage, instant: str, conflict: Conflict) -> None:
    """Marks a write aborted; the first conflict that is noted stays."""
    with suppress(Unavailable):  # at worst the next task finds the conflict by itself
        storage.put_if_absent(aborted_path(instant), encode_conflict(conflict))


def aborted_by(storage: Storage, instant: str) -> Conflict | None:
    """The conflict by which a write was marked aborted, else None; a note that cannot be read counts as none."""
    try:
        return decode_conflict(storage.read(aborted_path(instant)))
    except NotFound:
        return None


def encode_conflict(conflict: Conflict) -> bytes:
    """A conflict as JSON with a checksum."""
    winner = asdict(conflict.winner)
    winner["file_groups"] = sorted(conflict.winner.file_groups)
    values = {"winner": winner, "file_groups": sorted(conflict.file_groups)}
    return checksummed_json(values)


def decode_conflict(content: bytes | str) -> Conflict | None:
    """The conflict that `encode_conflict` made JSON of; None for anything else."""
    values = open_checksummed_json(content)
    if values is None:
        return None
    try:
        winner = values["winner"]
        winner["file_groups"] = _groups(winner["file_groups"])
        return Conflict(OtherWrite(**winner), _groups(values["file_groups"]))
    except (ValueError, KeyError, TypeError):
        return None


def note_work(storage: Storage, instant: str, attempt: str, work: Work) -> None:
    """Notes what a task attempt has done so far; once is enough, at its end."""
    storage.put(f"{work_folder(instant)}/{attempt}", checksummed_json(asdict(work)))


def noted_work(storage: Storage, instant: str) -> Work:
    """All that task attempts have noted; a damaged note counts as none."""
    folder, total = work_folder(instant), Work()
    for name in storage.list(folder).files:
        with suppress(NotFound, TypeError):
            total += Work(**(open_checksummed_json(storage.read(f"{folder}/{name}")) or {}))
    return total


def _groups(pairs: list[list[str]]) -> frozenset[FileGroup]:
    return frozenset((partition, file_id) for partition, file_id in pairs)
