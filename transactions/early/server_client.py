"""The tasks' side of a marker server: one connection, one request for all files of a step, and one deadline for it.

Requests and answers are signed with the write's token, which itself is never sent: who listens on the network learns
names of files, and can neither announce any nor answer in the driver's place.
"""

from __future__ import annotations

import hashlib
import hmac
import http.client
import json
import logging
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from lakelatch.errors import TransactionEnded, Unavailable
from lakelatch.system import REAL_SYSTEM, System
from lakelatch.transactions.conflicts.contract import Conflict
from lakelatch.transactions.early.notes import decode_conflict, encode_conflict

MARKERS_PATH = "/v1/markers"
SCHEME, SIGNATURE = "Lakelatch", "X-Lakelatch-Signature"
_DEADLINE_S = 10.0
_TRY_S = 3.0  # then the same request is sent again, on a new connection
_FIRST_WAIT_S = 0.05
_LONGEST_WAIT_S = 1.0
_REFUSALS_MAX = 5  # the server has been closed, and does not come back under this token
_DOWN_S = 60.0
_log = logging.getLogger("lakelatch.transactions")


@dataclass(frozen=True)
class ServerAddress:
    """Where a write's marker server listens, and what opens it. Travels to tasks and nowhere else."""

    host: str
    port: int
    token: str = field(repr=False)


def session_name(token: str) -> str:
    """Says whose a request is, and nothing of the token."""
    return hashlib.sha256(token.encode()).hexdigest()


def signed_request(token: str, body: bytes) -> str:
    """What only who has the token can say of a request."""
    return hmac.new(token.encode(), b"request\n" + body, hashlib.sha256).hexdigest()


def signed_answer(token: str, body: bytes, answer: bytes) -> str:
    """And of the answer to it."""
    text = b"answer\n%d\n" % len(body) + body + answer
    return hmac.new(token.encode(), text, hashlib.sha256).hexdigest()


@dataclass(frozen=True)
class Answer:
    """The server's answer to a task: that its markers count, or why they do not."""

    lost: Conflict | None = None
    ended: TransactionEnded | None = None

    def to_json(self) -> str:
        if self.lost is not None:
            return json.dumps({"lost": json.loads(encode_conflict(self.lost))})
        return json.dumps({"ended": self.ended.message} if self.ended is not None else {"counts": True})

    @classmethod
    def from_json(cls, text: str) -> Answer | None:
        """None for what is no answer."""
        with suppress(ValueError):
            values = json.loads(text)
            if values == {"counts": True}:
                return cls()
            if isinstance(values, dict) and isinstance(values.get("ended"), str):
                return cls(ended=TransactionEnded(values["ended"]))
            lost = (
                decode_conflict(json.dumps(values["lost"])) if isinstance(values, dict) and "lost" in values else None
            )
            if lost is not None:
                return cls(lost)
        return None


class ServerLost(Unavailable):
    """The marker server did not answer in time, or not as one: announce the files directly."""


# Of this process: when one attempt has waited in vain, the next one does not wait again for a while.
_down_until_ns: dict[ServerAddress, int] = {}
_DOWN_MAX = 100
_down_guard = threading.Lock()


class MarkerClient:
    """One task attempt's connection, made when it is needed. Used by one thread."""

    def __init__(self, address: ServerAddress, system: System = REAL_SYSTEM, deadline_s: float = _DEADLINE_S) -> None:
        self._address = address
        self._system = system
        self._deadline_s = deadline_s
        self._connection: http.client.HTTPConnection | None = None

    def ask(self, markers: Sequence[str]) -> Answer:
        """Announces data files; with no markers, asks only whether the write has lost. Errors: `ServerLost`."""
        began_ns = self._system.monotonic_ns()
        with _down_guard:
            if _down_until_ns.get(self._address, began_ns) > began_ns:
                raise ServerLost("the marker server could not be reached a moment ago")
        # Each try sends the same id, so that whatever happened to the earlier ones, the markers are made once.
        body = json.dumps({"id": self._system.new_id(), "markers": list(markers)}).encode()
        wait_s, refusals = _FIRST_WAIT_S, 0
        while True:
            left_s = self._deadline_s - (self._system.monotonic_ns() - began_ns) / 1e9
            try:
                status, text = self._send(body, max(0.1, min(_TRY_S, left_s)))
                answer = Answer.from_json(text) if status == 200 else None
                if answer is not None:
                    return answer
                reason, again = f"status {status}", status == 503
            except (OSError, http.client.HTTPException) as error:
                self.close()
                refusals += isinstance(error, ConnectionRefusedError)
                reason, again = f"{type(error).__name__}: {error}", refusals < _REFUSALS_MAX
            left_s = self._deadline_s - (self._system.monotonic_ns() - began_ns) / 1e9
            if not again or left_s <= wait_s:
                raise self._lost(reason)
            self._system.sleep(wait_s)
            wait_s = min(wait_s * 2, _LONGEST_WAIT_S)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _send(self, body: bytes, timeout_s: float) -> tuple[int, str]:
        if self._connection is None:
            self._connection = http.client.HTTPConnection(self._address.host, self._address.port, timeout=timeout_s)
        elif self._connection.sock is not None:
            self._connection.sock.settimeout(timeout_s)
        token = self._address.token
        signed = f"{SCHEME} {session_name(token)}:{signed_request(token, body)}"
        headers = {"Authorization": signed, "Content-Type": "application/json"}
        self._connection.request("POST", MARKERS_PATH, body, headers)
        response = self._connection.getresponse()
        answer = response.read()
        if response.status == 200:
            said = response.headers.get(SIGNATURE, "")
            if not hmac.compare_digest(said.encode(), signed_answer(token, body, answer).encode()):
                raise http.client.HTTPException("the answer is not signed with the write's token")
        return response.status, answer.decode("utf-8", "replace")

    def _lost(self, reason: str) -> ServerLost:
        """The error; each process logs one warning each time that the server is lost."""
        self.close()
        with _down_guard:
            now_ns = self._system.monotonic_ns()
            known = _down_until_ns.get(self._address, now_ns) > now_ns
            if len(_down_until_ns) >= _DOWN_MAX:
                _down_until_ns.clear()
            _down_until_ns[self._address] = now_ns + round(_DOWN_S * 1e9)
        place = f"{self._address.host}:{self._address.port}"
        text = f"the marker server of the driver at {place} could not be reached ({reason})"
        if not known:
            _log.warning("%s: the files are announced by direct markers for the next %g s", text, _DOWN_S)
        return ServerLost(text)
