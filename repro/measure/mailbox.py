"""Messages between the nodes of a run through torch's store, and the detection of nodes that are gone."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING

from repro.console import one_line
from repro.machine.cluster import Node

if TYPE_CHECKING:
    from torch.distributed import TCPStore  # type: ignore[attr-defined]


_TICK = 0.1  # seconds between two queries of the store
_BEAT = 2.0  # seconds between two heartbeats
SILENT = 45.0  # seconds without a heartbeat after which a node is gone: one that is short of memory may be slow
ARRIVAL = 300.0  # seconds for all nodes to arrive: one may set its stack up, or load it over the network
_LEFT = b"left"


class GoneError(RuntimeError):
    """An error of a node that is gone, with the reason in one line."""


class Mailbox:
    """A sender and receiver of messages by key. A context manager. `on_gone` is called once for each other node that is
    gone, with its number and the reason.

    The store is asked in a separate thread: where a network is down, an answer may never come.
    """

    def __init__(self, node: Node, on_gone: Callable[[int, str], None]) -> None:
        self._node, self._on_gone = node, on_gone
        self._others = [0] if node.rank else list(range(1, node.count))
        self._outgoing: queue.SimpleQueue[tuple[str, bytes | None]] = queue.SimpleQueue()
        self._awaited: dict[str, Callable[[bytes], None] | None] = {}
        self._arrived: dict[str, bytes] = {}
        self._changed = threading.Condition()
        self._closing = threading.Event()
        self._broken = ""
        # Seconds of silence, allowed and so far, of the store (None) and of each other node.
        self._limits = dict.fromkeys((None, *self._others), ARRIVAL)
        self._silent = dict.fromkeys(self._limits, 0.0)
        self._beats: dict[int, bytes] = {}
        self.gone: dict[int, str] = {}

    def __enter__(self) -> Mailbox:
        import torch.distributed  # noqa: F401, in this thread, which gets interruptions

        self._threads = [threading.Thread(target=each, daemon=True) for each in (self._carry, self._guard)]
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop once all is sent. A thread that waits for a network that is down is left behind."""
        self._closing.set()
        for thread in self._threads:
            thread.join(timeout=2)

    def send(self, key: str, message: bytes) -> None:
        """Queue a message for sending."""
        self._outgoing.put((key, message))

    def delete(self, key: str) -> None:
        """Queue the removal of the message under a key."""
        self._outgoing.put((key, None))

    def leave(self) -> None:
        """Tell the other nodes that this node leaves."""
        self.send(_beat(self._node.rank), _LEFT)

    def watch(self, key: str, then: Callable[[bytes], None]) -> None:
        """Call `then` with the message under a key once there is one, in the thread that asks the store."""
        with self._changed:
            self._awaited[key] = then

    def unwatch(self, *keys: str) -> None:
        with self._changed:
            for key in keys:
                self._awaited.pop(key, None)

    def receive(self, *keys: str, of: int, timeout: float | None = None) -> tuple[str, bytes]:
        """Wait for the first message under one of the keys, and return both. Raises GoneError where node `of`, its
        sender, is gone, and after `timeout` seconds."""
        with self._changed:
            self._awaited.update(dict.fromkeys(keys))
            self._changed.wait_for(lambda: of in self.gone or not self._arrived.keys().isdisjoint(keys), timeout)
            for key in keys:
                self._awaited.pop(key, None)
            for key in keys:
                if key in self._arrived:
                    return key, self._arrived.pop(key)
            raise GoneError(self.gone.get(of, "does not answer"))

    def wait_for(self, done: Callable[[], bool], timeout: float) -> None:
        """Wait until `done` returns true; it is checked whenever a message has come or a node is gone."""
        with self._changed:
            self._changed.wait_for(done, timeout)

    def _carry(self) -> None:
        """Exchange messages with the store, over and over."""
        try:
            store, beats = self._connect(), 0
            while not (self._closing.is_set() and self._outgoing.empty()):
                if beats % round(_BEAT / _TICK) == 0:
                    store.set(_beat(self._node.rank), str(beats))
                    self._look_for_beats(store)
                beats += 1
                while not self._outgoing.empty():
                    key, message = self._outgoing.get()
                    if message is None:
                        store.delete_key(key)
                    else:
                        store.set(key, message.decode())
                for key, then in list(self._awaited.items()):
                    if store.check([key]):
                        self._take(key, store.get(key), then)
                self._hear(None)
                self._closing.wait(_TICK)
        except Exception as error:
            self._broken = one_line(error)

    def _connect(self) -> TCPStore:
        from torch.distributed import TCPStore  # type: ignore[attr-defined]

        node = self._node
        return TCPStore(
            node.host,
            node.port,
            is_master=node.serve,
            timeout=timedelta(seconds=ARRIVAL),
            wait_for_workers=False,
        )

    def _look_for_beats(self, store: TCPStore) -> None:
        for rank in self._others:
            if store.check([_beat(rank)]) and (beat := store.get(_beat(rank))) != self._beats.get(rank):
                self._beats[rank] = beat
                self._hear(rank)

    def _hear(self, of: int | None) -> None:
        self._limits[of], self._silent[of] = SILENT, 0.0

    def _take(self, key: str, message: bytes, then: Callable[[bytes], None] | None) -> None:
        with self._changed:
            if key not in self._awaited:
                return
            del self._awaited[key]
            if then is None:
                self._arrived[key] = message
        if then is not None:
            then(message)
        with self._changed:
            self._changed.notify_all()

    def _guard(self) -> None:
        """Count silence, in rounds of this loop, so that no time passes while the process is suspended."""
        turn = 0.5
        while not self._closing.wait(turn):
            for each in self._silent:
                self._silent[each] += turn
            for rank in self._others:
                if rank not in self.gone and (reason := self._gone_reason(rank)):
                    with self._changed:
                        self.gone[rank] = reason
                    self._on_gone(rank, reason)
                    with self._changed:
                        self._changed.notify_all()

    def _gone_reason(self, rank: int) -> str:
        if self._beats.get(rank) == _LEFT:
            return "has left"
        if rank not in self._beats and (self._broken or self._silent[rank] > ARRIVAL):
            return f"was not there within {ARRIVAL:.0f} s" if not self._broken else f"cannot be reached: {self._broken}"
        if self._broken:
            return f"is out of reach: the store that the nodes meet in has gone ({self._broken})"
        if self._silent[None] > self._limits[None]:
            return f"is out of reach: the store that the nodes meet in was silent for {SILENT:.0f} s"
        if self._silent[rank] > self._limits[rank]:
            return f"has left: it was silent for {SILENT:.0f} s"
        return ""


def _beat(rank: int) -> str:
    return f"repro/beat/{rank}"
