"""The watches of one connection to etcd: one stream, shared by all threads that wait for keys to be deleted."""

from __future__ import annotations

import threading
from collections import deque
from queue import SimpleQueue
from typing import Any

_DELETED = 1  # mvccpb.Event.DELETE
_JOIN_S = 5.0  # a machine under load takes its time; a thread inside gRPC must not be there when the process ends


class Watch:
    """The watch of one waiting thread: `ended` is set when its key was deleted, or its stream has ended.

    `lost` says that it was the latter: the key may have been deleted or not.
    """

    def __init__(self, key: bytes) -> None:
        self.key = key
        self.ended = threading.Event()
        self.lost = False
        self.number: int | None = None  # the server's

    def lose(self) -> None:
        """Ends the watch without news of its key."""
        self.lost = True
        self.ended.set()


class Watches:
    """Opens its stream at once. When the stream ends, for whatever reason, all its watches are lost."""

    def __init__(self, messages: Any, stub: Any, metadata: Any) -> None:
        self._messages = messages
        self._guard = threading.Lock()
        self._requests: SimpleQueue[Any] = SimpleQueue()
        self._asked: deque[Watch] = deque()  # the server confirms watches in the order in which they were asked for
        self._watches: set[Watch] = set()
        self.over = False
        self._call = stub.Watch(iter(self._requests.get, None), metadata=metadata)
        self._thread = threading.Thread(target=self._read, name="lakelatch-etcd-watches", daemon=True)
        self._thread.start()

    def add(self, key: bytes, revision: int) -> Watch:
        """Watches a key for deletions at this revision or later; a watch that is lost already if the stream is."""
        watch = Watch(key)
        create = self._messages.WatchCreateRequest(key=key, start_revision=revision)
        create.filters.append(self._messages.WatchCreateRequest.NOPUT)
        with self._guard:
            if self.over:
                watch.lose()
            else:
                self._watches.add(watch)
                self._asked.append(watch)
                self._requests.put(self._messages.WatchRequest(create_request=create))
        return watch

    def remove(self, watch: Watch) -> None:
        """Stops a watch, also at the server."""
        with self._guard:
            self._watches.discard(watch)
            if watch.number is not None and not self.over:
                self._cancel(watch.number)

    def close(self) -> None:
        """Ends the stream and its thread."""
        self._call.cancel()
        self._end()
        if self._thread is not threading.current_thread():
            self._thread.join(_JOIN_S)

    def _read(self) -> None:
        try:
            for answer in self._call:
                if not self._understand(answer):
                    break
        except Exception:  # the reason does not matter: waiters read for themselves, and meet it
            pass
        finally:
            self._call.cancel()
            self._end()

    def _understand(self, answer: Any) -> bool:
        """False if the stream is of no use any more: the server denies watches, as it does when a token is too old."""
        with self._guard:
            if answer.created:
                if answer.canceled:
                    return False
                watch = self._asked.popleft()
                watch.number = answer.watch_id
                if watch not in self._watches:
                    self._cancel(answer.watch_id)
            elif answer.canceled:  # of its own accord, as the revision was compacted; what we cancelled is not there
                for watch in self._watches:
                    if watch.number == answer.watch_id:
                        watch.lose()
            deleted = {event.kv.key for event in answer.events if event.type == _DELETED}
            for watch in self._watches if deleted else ():
                if watch.key in deleted:
                    watch.ended.set()
        return True

    def _cancel(self, number: int) -> None:
        cancel = self._messages.WatchCancelRequest(watch_id=number)
        self._requests.put(self._messages.WatchRequest(cancel_request=cancel))

    def _end(self) -> None:
        with self._guard:
            self.over = True
            for watch in self._watches:
                watch.lose()
            self._watches.clear()
        self._requests.put(None)
