"""The others' side: who is alive, who is dead."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from lakelatch.heartbeat.contract import (
    HEARTBEAT_FOLDER,
    HEARTBEAT_KEYS,
    LEASE,
    Beat,
    HeartbeatSettings,
    heartbeat_path,
    least_age_ms,
    task_beats_folder,
)
from lakelatch.locks.contract import LockProvider
from lakelatch.storage.contract import NotFound, Storage

_NOW = ".hoodie/.lakelatch/now"


class Observer:
    """Says which writers of a table are dead: by the storage's own clock, or by the lock provider if they hold leases.

    `defaults` are the settings assumed for writers that do not say theirs (Java Hudi's). Without a provider, a
    writer that says that it holds a lease counts as alive.
    """

    def __init__(
        self,
        storage: Storage,
        defaults: HeartbeatSettings | None = None,
        provider: LockProvider | None = None,
    ) -> None:
        self._provider = provider
        self._storage = storage
        self._defaults = defaults or HeartbeatSettings()

    def instants(self) -> list[str]:
        """The instants that have a heartbeat file, dead or alive."""
        return list(self._storage.list(HEARTBEAT_FOLDER).files)

    def beat_of(self, instant: str) -> Beat | None:
        """The last beat, None if there is none or it is another kind of writer's."""
        try:
            return Beat.from_bytes(self._storage.read(heartbeat_path(instant)))
        except NotFound:
            return None

    def dead(self, instants: list[str]) -> list[str]:
        """Those of the instants whose writer counts as dead: no heartbeat file, or one that is too old.

        Costs one small write to learn the storage's time, or one question to the lock service, and only if there
        is something to decide.
        """
        if not instants:
            return []
        beats = self._beats_of(instants)
        leased = {instant for instant, beat in beats.items() if beat is not None and beat.proof == LEASE}
        dead = leased - self._holders() if leased and self._provider is not None else set()
        rest = [instant for instant in instants if instant not in leased]
        if rest:
            now_ms = self.storage_time_ms()
            are_dead = self._storage.together(*(partial(self._is_dead, one, beats[one], now_ms) for one in rest))
            dead.update(one for one, is_dead in zip(rest, are_dead, strict=True) if is_dead)
        return [instant for instant in instants if instant in dead]

    def _beats_of(self, instants: Sequence[str]) -> dict[str, Beat | None]:
        beats = self._storage.together(*(partial(self.beat_of, instant) for instant in instants))
        return dict(zip(instants, beats, strict=True))

    def is_silent(self, *paths: str) -> bool:
        """Whether the last of these files is older than a beat may be, for writers that do not beat; False for none."""
        stamps = []
        for path in paths:
            with suppress(NotFound):
                stamps.append(self._storage.stat(path).modified_ms)
        return bool(stamps) and least_age_ms(self.storage_time_ms(), max(stamps)) > self._defaults.expiry_ms

    def oldest_start_slot(self, default: int) -> int:
        """The lowest slot that any transaction with a heartbeat file may still have to read."""
        beats = self._beats_of(self.instants())
        return min((beat.start_slot + 1 for beat in beats.values() if beat is not None), default=default)

    def _holders(self) -> set[str]:
        """Instants whose writers hold their leases; asked after the beats were read, as leases come before beats."""
        assert self._provider is not None
        return {holder.key[len(HEARTBEAT_KEYS) :] for holder in self._provider.holders(HEARTBEAT_KEYS)}

    def _is_dead(self, instant: str, beat: Beat | None, now_ms: int) -> bool:
        try:
            modified_ms = self._storage.stat(heartbeat_path(instant)).modified_ms
        except NotFound:
            return True
        settings = beat.settings if beat is not None else self._defaults
        if least_age_ms(now_ms, modified_ms) <= settings.expiry_ms:
            return False
        return least_age_ms(now_ms, self._last_task_beat_ms(instant)) > settings.expiry_ms

    def _last_task_beat_ms(self, instant: str) -> int:
        folder, latest_ms = task_beats_folder(instant), 0
        for name in self._storage.list(folder).files:
            try:
                latest_ms = max(latest_ms, self._storage.stat(f"{folder}/{name}").modified_ms)
            except NotFound:
                continue
        return latest_ms

    def storage_time_ms(self) -> int:
        """The storage's own time now, at the price of one small write."""
        self._storage.put(_NOW, b"")  # by others as well; what they see of each other's is a little later, no more
        return self._storage.stat(_NOW).modified_ms
