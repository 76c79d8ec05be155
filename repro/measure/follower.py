"""A node of a run on several that is not the first: it runs what node 0 asks for, by a fork server of its own."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

from repro.console import FAILED, UserError, cut, say
from repro.machine.cluster import Node, local_address

from . import messages
from .launcher import ForkServer, ServerDiedError, StackError
from .leader import alike
from .mailbox import GoneError, Mailbox
from .messages import End, ForeignError, Hello, PhaseOutcomes, Ready

_END = "repro/end"


def follow(node: Node, server: ForkServer, logs: Path, devices: str, most_ranks: int, cuda: bool) -> int:
    """Take part in the run of node 0 until it ends, and return its exit code. `devices` must be equal on all nodes,
    `most_ranks` is how many processes node 0 may ask for. Raises UserError where the run does not accept this node."""
    with Mailbox(node, lambda rank, reason: server.stop()) as post, server:
        try:
            server.launch()  # it loads while the nodes connect
            code = _Follower(node, server, post, logs, most_ranks, cuda).follow(devices)
        except GoneError as error:
            say(f"node 0 {error}; run the same command again on all nodes: it resumes")
            return FAILED
        except BaseException:
            post.leave()
            raise
        post.send(f"repro/bye/{node.rank}", b"1")
        return code


class _Follower:
    def __init__(self, node: Node, server: ForkServer, post: Mailbox, logs: Path, most_ranks: int, cuda: bool) -> None:
        self._node, self._server, self._post, self._logs = node, server, post, logs
        self._most_ranks, self._cuda = most_ranks, cuda

    def follow(self, devices: str) -> int:
        rank = self._node.rank
        address = local_address(self._node.host, self._node.port)
        hello = Hello(socket.gethostname(), address, alike(devices, self._server.methods))
        self._send(f"repro/hello/{rank}", hello)
        key, text = self._post.receive("repro/welcome", _END, of=0)
        if key == _END:
            return self._end(text)
        try:
            self._server.start()
        except StackError as error:
            self._send(f"repro/ready/{rank}", Ready(error=cut(error.reason)))
            self._post.receive(_END, of=0)
            raise UserError(f"{error.reason}; set up with ./run_all.sh, or install what it lacks with pip") from None
        except ServerDiedError:
            pass  # the first job starts it again, and reports the error
        self._send(f"repro/ready/{rank}", Ready(self._server.broken))
        number = 0
        while True:
            number += 1
            key, text = self._post.receive(f"repro/job/{number}", _END, of=0)
            if key == _END:
                return self._end(text)
            self._post.send(f"repro/outcomes/{number}/{rank}", self._answer(number, text))

    def _answer(self, number: int, text: bytes) -> bytes:
        """Run a job here, and return the answer to send."""
        stop = f"repro/stop/{number}"
        try:
            job = messages.phase_request(text, self._most_ranks, self._cuda).job(
                self._node.rank, self._node.count, str(self._logs)
            )
            self._server.clean_build_caches()
            self._server.begin(job)
            self._post.watch(stop, lambda _: self._server.stop())
            self._post.watch(_END, lambda _: self._server.stop())
            if self._post.gone:  # gone before the start, so that the stop had no effect
                self._server.stop()
            return messages.encode(PhaseOutcomes(self._server.outcomes(job)))
        except ForeignError as error:
            return messages.encode(PhaseOutcomes(error=f"this node was asked for what no run asks for: {error}"))
        except ServerDiedError as error:
            return messages.encode(PhaseOutcomes(error=cut(error.reason)))
        finally:
            self._post.unwatch(stop, _END)

    def _end(self, text: bytes) -> int:
        end = self._read(End, text)
        if end.reason:
            say(f"node 0 ended the run: {end.reason}")
        return end.code

    def _send(self, key: str, message: Any) -> None:
        self._post.send(key, messages.encode(message))

    def _read(self, kind: type[Any], text: bytes) -> Any:
        try:
            return messages.decode(kind, text)
        except ForeignError as error:
            raise UserError(f"node 0 says what no run of this version says: {error}") from None
