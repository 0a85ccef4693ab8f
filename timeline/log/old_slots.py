"""Removal of slots that nobody has to read any more, and of the content that lies beside them."""

from __future__ import annotations

from collections.abc import Iterable

from lakelatch.failpoints import failpoint
from lakelatch.storage.contract import Storage, delete_all
from lakelatch.timeline.log.events import slot_number, slot_path

CONTENT_FOLDER = ".hoodie/.lakelatch/content"


def remove_below(storage: Storage, names: Iterable[str], watermark: int) -> None:
    """Removes slots below a watermark, in any order, and then all content below it, whoever left it.

    `names` are those in the log's folder.
    """
    old = [slot_path(number) for number in filter(None, map(slot_number, names)) if number < watermark]
    if not old:
        return
    delete_all(storage, old)
    failpoint("log.after_removal")
    digits = ((name, name.rpartition("-")[2]) for name in storage.list(CONTENT_FOLDER).files)
    numbered = ((name, int(number)) for name, number in digits if number.isascii() and number.isdigit())
    delete_all(storage, [f"{CONTENT_FOLDER}/{name}" for name, number in numbered if number < watermark])
