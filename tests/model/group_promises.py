"""What must hold in every state of `group_model`, whatever the participants do."""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from group_state import Event, State, named


class Promises:
    """Looks at states; what depends on the log and the files alone is looked at once, as many states share them."""

    def __init__(self, groups: tuple[str, ...], at_once: bool = False, reads: str = "whole slots") -> None:
        self._groups, self._at_once, self._reads = groups, at_once, reads
        self._seen: dict[Hashable, str | None] = {}

    def broken(self, state: State) -> str | None:
        """The first promise that does not hold."""
        tail = state.slots[-1] if state.slots else None
        shared = (state.truth, state.files, tail)
        if shared not in self._seen:
            self._seen[shared] = self._broken_in_log(state)
        return self._seen[shared] or _wrong_for_callers(state, len(self._groups)) or self._unread(state)

    def _broken_in_log(self, state: State) -> str | None:
        events = [event for slot in state.truth for event in slot.events]
        ended = [event.who for event in events if event.kind != "withdraw"]
        if len(set(ended)) < len(ended):
            return "an instant ends twice in the log"
        if _falls(event.time for event in events):
            return "times do not increase along the log"
        return self._lost_update(events) or (
            self._wrong_at_once(state, events) if self._at_once else _wrong_files(state, events)
        )

    def _wrong_at_once(self, state: State, events: list[Event]) -> str | None:
        """Files of one slot appear in any order; a reader that knows takes them in that of the log all the same."""
        order = [named(event) for event in events if event.kind != "withdraw"]
        if not set(state.files) <= set(order):
            return "readers see a file that is not in the log"
        read = self._read(state)
        if read != order[: len(read)]:
            return "an incremental reader has passed a commit that it never saw"
        below = [named(event) for slot in state.truth[:-1] for event in slot.events if event.kind != "withdraw"]
        if not set(below) <= set(state.files):
            return "a committed file is missing below the tail"
        return None

    def _read(self, state: State) -> list[Event]:
        """The files that a reader takes of those that are there, in the order of their times."""
        files = sorted(state.files, key=lambda file: file.time)
        if self._reads == "any" or not files:
            return files
        slot = next(slot for slot in state.truth if files[-1] in map(named, slot.events))
        before = [named(event) for event in slot.events if event.time < files[-1].time]
        looked_at = before[-1:] if self._reads == "next" else before
        missing = [file.time for file in looked_at if file not in files]
        return [file for file in files if not missing or file.time < missing[0]]

    def _unread(self, state: State) -> str | None:
        if self._at_once:
            read = {file.time for file in self._read(state) if file.kind == "commit"}
            if any(mine.told > 0 and mine.told not in read for mine in state.parts[: len(self._groups)]):
                return "a caller does not read what it was told is committed"
        return None

    def _lost_update(self, events: list[Event]) -> str | None:
        earlier = dict.fromkeys(self._groups, 0)
        for event in events:
            if event.kind == "commit" and self._groups[event.who]:
                if event.view != earlier[self._groups[event.who]]:
                    return "an update was lost"
                earlier[self._groups[event.who]] |= 1 << event.who
        return None


def _wrong_for_callers(state: State, writers: int) -> str | None:
    committed = {event.who: event for slot in state.truth for event in slot.events if event.kind == "commit"}
    for who, mine in enumerate(state.parts[:writers]):
        event = committed.get(who)
        if event is not None and event.files != mine.files:
            return "a commit names files that its owner has moved"
        if event is not None and mine.told < 0:
            return "a caller was told 'not committed', and it is in the log"
        if mine.told > 0 and (event is None or event.time != mine.told):
            return "a caller was told 'committed', and the log knows nothing of it"
    for mine in state.parts[writers:]:
        if mine.told > 0 and mine.told not in {event.time for event in committed.values()}:
            return "a recovery took for committed what is not"
        if mine.told < 0 and not any(event.kind == "rollback" for slot in state.truth for event in slot.events):
            return "a recovery removes files that nobody has rolled back"
    return None


def _wrong_files(state: State, events: list[Event]) -> str | None:
    """Files are those of the log, in its order; what is missing is at the log's end, where everybody finds it.

    So a reader that has got to a time has all up to it, whenever it looked.
    """
    named = [event._replace(files=0, view=0) for event in events if event.kind != "withdraw"]
    if not set(state.files) <= set(named):
        return "readers see a file that is not in the log"
    if _falls(file.time for file in state.files):
        return "files appeared out of the order of their times"
    if list(state.files) != named[: len(state.files)]:
        return "an incremental reader has passed a commit that it never saw"
    last = state.truth[-1] if state.truth else None
    if last is not None and len(named) - len(state.files) > len(last.events):
        return "a committed file is missing below the tail"
    if last is not None and state.slots[-1] != last:
        return "the tail is not in the storage"
    return None


def _falls(times: Iterable[int]) -> bool:
    last = 0
    for time in times:
        if time <= last:
            return True
        last = time
    return False
