"""What the tasks of a write leave for each other and for their driver.

A write that has lost is *doomed*: a file says so, and against whom. Whoever works for it, now or in a second attempt,
finds it and ends at once; Spark hands over no more than a text. The *notes* say what each task attempt has done, so
that the loser's error can say what was thrown away. Both go after the markers, and must not lie among them: Hudi's
rollback takes whatever is there for a marker, and fails on anything else.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict

from lakelatch.errors import Unavailable
from lakelatch.storage.contract import NotFound, Storage
from lakelatch.storage.seals import open_sealed_json, sealed_json
from lakelatch.transactions.conflicts import Conflict, OtherWrite
from lakelatch.transactions.losses import Work

NOTES_FOLDER = ".hoodie/.lakelatch/notes"
_DOOM = "doom"
_WORK = "work"
_LOST = "lost"


def doom_path(instant: str) -> str:
    return f"{NOTES_FOLDER}/{instant}/{_DOOM}"


def work_folder(instant: str) -> str:
    """Where each task attempt says what it has done."""
    return f"{NOTES_FOLDER}/{instant}/{_WORK}"


def noted_instants(storage: Storage) -> set[str]:
    """Instants about which something was left, dead or alive."""
    return set(storage.list(NOTES_FOLDER).folders)


def note_lost(storage: Storage, instant: str) -> bool:
    """Says that a write will not commit, though its heartbeat goes on for the sake of its files: it is no rival.

    False if that could not be said.
    """
    try:
        storage.put_if_absent(f"{NOTES_FOLDER}/{instant}/{_LOST}", b"")
    except Unavailable:
        return False
    return True


def has_lost(storage: Storage, instant: str) -> bool:
    return storage.exists(f"{NOTES_FOLDER}/{instant}/{_LOST}")


def forget_notes(storage: Storage, instant: str) -> None:
    """Removes what was left about an instant that has ended."""
    storage.delete_folder(f"{NOTES_FOLDER}/{instant}")


def condemn(storage: Storage, instant: str, conflict: Conflict) -> None:
    """Says that a write has lost; the first to say so is heard. Doing it again changes nothing."""
    with suppress(Unavailable):  # at worst the next task finds the conflict by itself
        storage.put_if_absent(doom_path(instant), encode_conflict(conflict))


def doom_of(storage: Storage, instant: str) -> Conflict | None:
    """Against whom a write has lost, None if it has not. A file that cannot be read counts as empty: not doomed."""
    try:
        return decode_conflict(storage.read(doom_path(instant)))
    except NotFound:
        return None


def encode_conflict(conflict: Conflict) -> bytes:
    """A conflict as sealed JSON."""
    winner = asdict(conflict.winner)
    winner["file_groups"] = sorted(conflict.winner.file_groups)
    values = {"winner": winner, "file_groups": sorted(conflict.file_groups)}
    return sealed_json(values)


def decode_conflict(content: bytes | str) -> Conflict | None:
    """The conflict that `encode_conflict` made JSON of; None for anything else."""
    values = open_sealed_json(content)
    if values is None:
        return None
    try:
        winner = values["winner"]
        winner["file_groups"] = _groups(winner["file_groups"])
        return Conflict(OtherWrite(**winner), _groups(values["file_groups"]))
    except (ValueError, KeyError, TypeError):
        return None


def note_work(storage: Storage, instant: str, attempt: str, work: Work) -> None:
    """Says what a task attempt has done so far; once is enough, at its end."""
    storage.put(f"{work_folder(instant)}/{attempt}", sealed_json(asdict(work)))


def noted_work(storage: Storage, instant: str) -> Work:
    """All that task attempts have noted; a damaged note counts as none."""
    folder, total = work_folder(instant), Work()
    for name in storage.list(folder).files:
        with suppress(NotFound, TypeError):
            total += Work(**(open_sealed_json(storage.read(f"{folder}/{name}")) or {}))
    return total


def _groups(pairs: list[list[str]]) -> frozenset[tuple[str, str]]:
    return frozenset((partition, file_id) for partition, file_id in pairs)
