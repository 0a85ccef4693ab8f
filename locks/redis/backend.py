"""Sessions, queues and registers at Redis, each step one script (`locks/redis/scripts`)."""

from __future__ import annotations

from lakelatch.locks.contract import WAITERS_MOST, Holder
from lakelatch.locks.redis import scripts
from lakelatch.locks.redis.client import RedisClient
from lakelatch.locks.session.backend import Held, SessionBackend, SessionGone, Wait
from lakelatch.locks.session.options import BackendOptions
from lakelatch.system import System


class RedisBackend(SessionBackend):
    """The session backend of `RedisLockProvider`; all threads share one client."""

    def __init__(self, options: BackendOptions, system: System) -> None:
        self.lease_s = options.lease_s
        self._lease_ms = int(options.lease_s * 1000)
        self._system = system
        self._client = RedisClient(options)

    def open_session(self, owner: str) -> str:
        session = self._system.new_id()
        self._client.run(scripts.OPEN, session, owner, self._lease_ms)
        return session

    def renew_session(self, session: str) -> list[str]:
        requests = self._client.run(scripts.RENEW, session, self._lease_ms)
        if requests is None:
            raise SessionGone(f"{self._client.where} does not know this session any more", session=session)
        return [request.decode() for request in requests]

    def held_by(self, session: str) -> list[tuple[str, str]]:
        found = self._client.run(scripts.HELD_BY, session)
        return [(request.decode(), name.decode()) for request, name in zip(found[::2], found[1::2], strict=True)]

    def close_session(self, session: str) -> None:
        self._client.run(scripts.CLOSE, session)

    def take(self, session: str, request: str, name: str, wait: Wait) -> int | None:
        queue, again = wait.left_s() > 0, False
        while True:
            arguments = session, request, name, self._lease_ms, int(queue), self._system.realtime_ms(), int(again)
            token, look_again_ms = self._client.run(scripts.TAKE, *arguments)
            again = True
            if token < 0:
                raise SessionGone(f"{self._client.where} does not know this session any more", session=session)
            if token > 0:
                return int(token)
            if queue:
                look_again_ns = self._system.monotonic_ns() + min(look_again_ms, self._lease_ms) * 1_000_000
                woken = self._wait(request, wait, look_again_ns)
                if woken is not None:
                    return woken
            if not queue or wait.left_s() <= 0:
                return int(self._client.run(scripts.LEAVE, session, request, name)) or None

    def _wait(self, request: str, wait: Wait, until_ns: int) -> int | None:
        """Waits until woken with a token, or until the holder's session may be over, or the deadline."""
        while True:
            left_s = (until_ns - self._system.monotonic_ns()) / 1e9
            nap_s = wait.nap_s(max(left_s, 0.0) + 0.001)
            if nap_s <= 0 or left_s <= 0:
                return None
            woken = self._client.pop("w:" + request, nap_s)
            if woken is not None:
                return int(woken)

    def give_back(self, session: str, request: str, name: str) -> bool:
        return bool(self._client.run(scripts.GIVE_BACK, session, request, name))

    def advance(self, name: str, at_least: int, count: int) -> int:
        return int(self._client.run(scripts.ADVANCE, name, at_least, count))

    def holders(self, prefix: str) -> list[Holder]:
        found = []
        answer = self._client.run(scripts.HOLDERS, prefix, int("/=" in prefix[:-2]), WAITERS_MOST)
        for name, held, session, waiting, waiters in answer:
            _, _, token, since_ms = held.decode().split(" ")
            owner, *others = (about.decode().partition(" ")[2] for about in (session, *waiters))
            found.append(Holder(name.decode(), owner, int(token), int(since_ms), int(waiting), tuple(others)))
        return found

    def find_holder(self, name: str) -> Held | None:
        for _, held, about, _, _ in self._client.run(scripts.HOLDERS, name, 1, 0):
            session, request, _, _ = held.decode().split(" ")
            return Held(session, request, int(about.decode().partition(" ")[0]) / 1000)
        return None

    def lock_id(self, name: str, proposed: str) -> str:
        return bytes(self._client.run(scripts.LOCK_ID, name, proposed)).decode()

    def time_ms(self) -> int:
        return int(self._client.run(scripts.TIME))

    def ask_to_give_up(self, held: Held, name: str) -> None:
        self._client.run(scripts.REQUEST_RELEASE, held.session, held.request, int(held.lease_s * 1000))

    def force(self, held: Held, name: str) -> bool:
        return self.give_back(held.session, held.request, name)

    def close(self) -> None:
        self._client.close()
