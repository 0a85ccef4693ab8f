"""The others' side: who is alive, who is dead."""

from __future__ import annotations

from lakelatch.heartbeat.contract import HEARTBEAT_FOLDER, Beat, HeartbeatSettings, heartbeat_path, task_beats_folder
from lakelatch.storage.contract import NotFound, Storage
from lakelatch.system import REAL_SYSTEM, System

_CLOCK_FOLDER = ".hoodie/.lakelatch/clock"


class Observer:
    """Judges heartbeats of one table by the storage's own clock.

    `defaults` are the settings assumed for writers that do not tell theirs (Java Hudi's).
    """

    def __init__(
        self,
        storage: Storage,
        defaults: HeartbeatSettings | None = None,
        system: System = REAL_SYSTEM,
    ) -> None:
        self._storage = storage
        self._defaults = defaults or HeartbeatSettings()
        self._system = system

    def instants(self) -> list[str]:
        """The instants that have a heartbeat file, dead or alive."""
        return list(self._storage.list(HEARTBEAT_FOLDER).files)

    def beat_of(self, instant: str) -> Beat | None:
        """What the last beat said, None if there is none or another kind of writer's."""
        try:
            return Beat.from_bytes(self._storage.read(heartbeat_path(instant)))
        except NotFound:
            return None

    def dead(self, instants: list[str]) -> list[str]:
        """Those of the instants whose writer counts as dead: no heartbeat file, or one that is too old.

        Costs one small write to learn the storage's time, and only if there is something to judge.
        """
        if not instants:
            return []
        now_ms = self._storage_time_ms()
        return [instant for instant in instants if self._is_dead(instant, now_ms)]

    def oldest_start_slot(self, default: int) -> int:
        """The lowest slot that any transaction with a heartbeat file may still have to read."""
        beats = [self.beat_of(instant) for instant in self.instants()]
        return min((beat.start_slot + 1 for beat in beats if beat is not None), default=default)

    def _is_dead(self, instant: str, now_ms: int) -> bool:
        try:
            modified_ms = self._storage.stat(heartbeat_path(instant)).modified_ms
        except NotFound:
            return True
        beat = self.beat_of(instant)
        settings = beat.settings if beat is not None else self._defaults
        if now_ms - modified_ms <= settings.expiry_ms:
            return False
        return now_ms - self._last_task_beat_ms(instant) > settings.expiry_ms

    def _last_task_beat_ms(self, instant: str) -> int:
        folder, latest_ms = task_beats_folder(instant), 0
        for name in self._storage.list(folder).files:
            try:
                latest_ms = max(latest_ms, self._storage.stat(f"{folder}/{name}").modified_ms)
            except NotFound:
                continue
        return latest_ms

    def _storage_time_ms(self) -> int:
        path = f"{_CLOCK_FOLDER}/{self._system.new_id()}"
        self._storage.put(path, b"")
        try:
            return self._storage.stat(path).modified_ms
        finally:
            self._storage.delete(path)
