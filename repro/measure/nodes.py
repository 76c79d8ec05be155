"""A run on several nodes: node 0 has each phase of a trial run by the fork servers of all, through torch's store."""

from __future__ import annotations

import contextlib
import itertools
import platform
import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from multiprocessing import TimeoutError
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import Any, TypeVar

from repro.console import FAILED, INTERRUPTED, USAGE, UserError, cut, one_line, say
from repro.installation import installed
from repro.machine.cluster import Node, local_address
from repro.machine.environment import commit
from repro.machine.packages import PACKAGES

from . import messages
from .jobs import AGAIN, Job, RankOutcome
from .launcher import ForkServer, ServerDiedError, StackError
from .messages import ForeignError, Hello, PhaseOutcomes, PhaseRequest
from .method import MethodFile, methods_text

T = TypeVar("T")

_TICK, _BEAT = 0.1, 2.0  # seconds between two looks into the store, and between two heartbeats
SILENT = 40.0  # seconds without a heartbeat after which a node is gone: one that is short of memory may be slow
ARRIVAL = 300.0  # seconds for all nodes to arrive: one may set its stack up, or load it over the network
_GOODBYE = 10.0  # seconds for the other nodes to leave at the end of a run
_LEFT = "left"


class GoneError(ServerDiedError):
    """An error of a node that is gone."""


class EndedError(Exception):
    """The end of a run as node 0 announced it: the exit code, and the reason where it ended early."""


class Store:
    """Torch's store of a node, with its heartbeat. A context manager. `names` are those of the nodes in errors, `lost`
    says which is gone and why; empty as long as all are there."""

    def __init__(self, node: Node) -> None:
        self._node, self._down, self._leaving = node, "", threading.Event()
        self._beats: dict[int, tuple[bytes | None, float, float]] = {}  # each node's last, silence since, and last look
        self.names, self.lost = [f"node {rank}" for rank in range(node.count)], ""

    def __enter__(self) -> Store:
        """Wait for the store, which node 0 or its torchrun serves. Raises GoneError where it does not come."""
        from torch.distributed import TCPStore  # type: ignore[attr-defined]

        self._threads = ThreadPool(2)  # daemons: where the network is down they may wait for the store without end
        place, most = (self._node.host, self._node.port, None, self._node.serve), timedelta(seconds=ARRIVAL)
        self._store = self._ask(lambda: TCPStore(*place, timeout=most, wait_for_workers=False), ARRIVAL + SILENT)
        self._heart = self._threads.apply_async(self._beat)
        return self

    def __exit__(self, *_: object) -> None:
        self._leaving.set()
        if not self._down:
            self._heart.wait(_BEAT)

    def set(self, key: str, message: Any) -> None:
        self._ask(lambda: self._store.set(key, messages.encode(message)))

    def get(self, key: str, sender: int) -> bytes | None:
        """Return the message under a key, None as long as there is none. Raises GoneError where its sender is gone, and
        EndedError where node 0 has ended the run."""
        keys = key, "repro/end", f"repro/beat/{sender}"
        message, end, beat = self._ask(
            lambda: [self._store.get(each) if self._store.check([each]) else None for each in keys]
        )
        if end is not None and self._node.rank:
            raise EndedError(*messages.decode(tuple[int, str], end))
        if message is None:
            self._check(sender, beat)
        return message

    def receive(self, kind: type[T], key: str, sender: int) -> T:
        """Wait for a message. Raises ForeignError where it is another, and what `get` raises."""
        while (message := self.get(key, sender)) is None:
            time.sleep(_TICK)
        try:
            return messages.decode(kind, message)
        except ForeignError as error:
            raise ForeignError(f"{self.names[sender]} says what no node of this version says: {error}") from None

    def _check(self, rank: int, beat: bytes | None) -> None:
        """Raise GoneError where a node has left, or has been silent for too long."""
        now = time.monotonic()
        known, silent, looked = self._beats.get(rank, (None, 0.0, now))
        silent = silent + min(now - looked, 1.0) if beat == known else 0.0  # not all: this process may be suspended
        self._beats[rank] = beat, silent, now
        if beat == _LEFT.encode():
            raise self._gone(rank, "has left")
        if beat is None and silent > ARRIVAL:
            raise self._gone(rank, f"was not there within {ARRIVAL:.0f} s")
        if beat is not None and silent > SILENT:
            raise self._gone(rank, f"has left: it was silent for {SILENT:.0f} s")

    def _beat(self) -> None:
        key = f"repro/beat/{self._node.rank}"
        for number in itertools.count():
            self._store.set(key, str(number))
            if self._leaving.wait(_BEAT):
                break
        self._store.set(key, _LEFT)

    def _ask(self, question: Callable[[], T], patience: float | None = None) -> T:
        """Return the store's answer, asked in a thread so that signals are heeded. Raises GoneError where none comes,
        and from then on at once."""
        if not self._down:
            answer = self._threads.apply_async(question)
            answer.wait(patience or SILENT)
            try:
                return answer.get(timeout=1)  # a process that was suspended waited in vain
            except TimeoutError:
                self._down = f"was silent for {SILENT:.0f} s"
            except Exception as error:
                self._down = f"does not answer ({one_line(error)})"
        raise self._gone(0, f"is out of reach: the store that the nodes meet in {self._down}")

    def _gone(self, rank: int, reason: str) -> GoneError:
        self.lost = self.lost or f"{self.names[rank]} {reason}"
        return GoneError(self.lost, AGAIN)


class Leader(ForkServer):
    """The fork server of node 0, which runs each job on all nodes, with equal ranks on each, numbered node by node.

    `devices` describes this node's GPUs in use, which all nodes must have alike. The others end with the exit `code`.
    """

    def __init__(self, node: Node, devices: str, *of_server: Any, **more: Any) -> None:
        super().__init__(*of_server, **more)
        self._node, self._store, self._others = node, Store(node), range(1, node.count)
        self._alike, self._address = _alike(devices, self.methods), ""
        self._broken, self._number = list[dict[str, str]](), 0  # the modules that do not import there, each with why
        self.code = FAILED

    @property
    def lost(self) -> str:
        """Return why no more jobs can run; empty as long as they can."""
        return self._store.lost

    def __enter__(self) -> Leader:
        """Wait for all nodes. Raises UserError where they are not alike, or one does not come: all of them then end."""
        say(f"node 0 of {self._node.count}: waiting for the other nodes")
        try:
            self._store.__enter__()
            self._greet()
        except BaseException as error:
            if isinstance(error, ServerDiedError):
                error = UserError(f"{error.reason}; start the same command on all {self._node.count} nodes")
            self.__exit__(type(error), error)
            raise error from None
        return self

    def _greet(self) -> None:
        refused = []
        for rank in self._others:
            hello = self._store.receive(Hello, f"repro/hello/{rank}", rank)
            name = self._store.names[rank] = f"node {rank} ({cut(hello.host, 80)})"
            self._address = local_address(hello.address, self._node.port)
            for what, here in self._alike.items():
                if (there := hello.alike.get(what, here)) != here:
                    refused.append(f"{name}: its {what} is {there}, that of node 0 is {here}; give all nodes the same")
        if refused:
            raise UserError(refused[0])
        self._store.set("repro/welcome", True)

    def __exit__(self, *raised: object) -> None:
        self.close()
        error = raised[1]
        code, reason = (self.code, "") if error is None else (FAILED, "it ended early")
        if isinstance(error, UserError):
            code, reason = USAGE, str(error)
        elif isinstance(error, KeyboardInterrupt):
            code = INTERRUPTED
        deadline = time.monotonic() + _GOODBYE
        with contextlib.suppress(GoneError):
            self._store.set("repro/end", [code, reason])
        for rank in self._others:  # waits until they have left: the store may end with this process
            with contextlib.suppress(GoneError):
                while time.monotonic() < deadline and self._store.get("repro/bye", rank) is None:
                    time.sleep(_TICK)
        self._store.__exit__()

    def start(self) -> None:
        """Start this node's server, and wait until all nodes have loaded the stack. Raises StackError where one
        cannot."""
        super().start()
        with contextlib.suppress(GoneError):  # `lost` says which
            for rank in self._others[len(self._broken) :]:
                broken, name = self._store.receive(dict[str, str], f"repro/ready/{rank}", rank), self._store.names[rank]
                if "torch" in broken:
                    raise StackError(f"{name}: its stack does not import: {broken['torch']}")
                self._broken.append({module: f"{name}: {error}" for module, error in broken.items()})
        for broken in self._broken:
            self.broken = broken | self.broken

    def call(self, job: Job) -> list[RankOutcome]:
        """Run a job on all nodes, and return the outcomes of all ranks. The first node to fail stops the others."""
        self.start()
        if self.lost:
            raise GoneError(self.lost, AGAIN)
        self._number += 1
        found, deadline = dict[int, list[RankOutcome]](), time.monotonic() + job.timeout + 60
        try:
            self.begin(_placed(job, self._node, self._number, self._address))
            self._store.set(f"repro/job/{self._number}", PhaseRequest.of(job))
            while missing := set(range(self._node.count)) - found.keys():
                if time.monotonic() > deadline:
                    raise ServerDiedError(f"{self._store.names[min(missing)]} does not answer", "read its log")
                found |= {rank: outcomes for rank in missing if (outcomes := self._outcomes(rank, job)) is not None}
                if any(outcome.status != "ok" for outcomes in found.values() for outcome in outcomes):
                    self.stop()
                time.sleep(_TICK)
        except BaseException:
            self.stop()
            self.close()  # what it has not answered yet would be taken for the next job's outcomes
            raise
        return [outcome for rank in sorted(found) for outcome in found[rank]]

    def stop(self) -> None:
        """End the running job, on all nodes; their servers stay."""
        super().stop()
        with contextlib.suppress(GoneError):
            self._store.set(f"repro/stop/{self._number}", True)

    def _outcomes(self, rank: int, job: Job) -> list[RankOutcome] | None:
        """Return the outcomes of a node's ranks; None as long as there are none."""
        if rank == 0:
            return self.outcomes(job) if self.answered() else None
        message = self._store.get(f"repro/job/{self._number}/{rank}", rank)
        try:
            return None if message is None else messages.decode(PhaseOutcomes, message).checked(job, rank)
        except ForeignError as error:
            raise ServerDiedError(f"{self._store.names[rank]}: {error.reason}", "read its log") from None


def follow(node: Node, server: ForkServer, logs: Path, devices: str, most_ranks: int, cuda: bool) -> int:
    """Take part in the run of node 0 until it ends, and return its exit code. `devices` must be equal on all nodes,
    `most_ranks` is how many processes node 0 may ask for. Raises UserError where it says what no run says."""
    try:
        with server:
            server.launch()  # it loads while the nodes connect
            with Store(node) as store:
                address = local_address(node.host, node.port)
                hello = Hello(socket.gethostname(), address, _alike(devices, server.methods))
                store.set(f"repro/hello/{node.rank}", hello)
                store.receive(bool, "repro/welcome", 0)
                store.set(f"repro/ready/{node.rank}", _broken_modules(server))
                for number in itertools.count(1):
                    request = store.receive(PhaseRequest, f"repro/job/{number}", 0)
                    try:
                        job = _placed(request.job(logs, most_ranks, cuda), node, number, address)
                        answer = PhaseOutcomes(_run(job, server, partial(store.get, f"repro/stop/{number}", 0)))
                    except ServerDiedError as error:
                        answer = PhaseOutcomes(error=cut(error.reason))
                    store.set(f"repro/job/{number}/{node.rank}", answer)
    except EndedError as end:
        code, reason = end.args
        if reason:
            say(f"node 0 ended the run: {reason}")
    except GoneError as error:
        say(f"{error.reason}; {error.remedy}")
        code = FAILED
    except ForeignError as error:
        raise UserError(error.reason) from None
    return code


def _broken_modules(server: ForkServer) -> dict[str, str]:
    """Start the server, and return which modules do not import there, each with the error."""
    try:
        server.start()
    except StackError as error:
        return {"torch": cut(error.reason)}
    except ServerDiedError:
        pass  # the first job starts it again, and reports the error
    return server.broken


def _run(job: Job, server: ForkServer, stopped: Callable[[], object]) -> list[RankOutcome]:
    """Run a job of this node's ranks until they end, or `stopped` returns something."""
    server.clean_build_caches()
    server.begin(job)
    while not server.answered():
        if stopped() is not None:
            server.stop()
        time.sleep(_TICK)
    return server.outcomes(job)


def _alike(devices: str, methods: Sequence[MethodFile]) -> dict[str, str]:
    """Return what must be equal on all nodes, as far as this one knows it: a record is of one device and one stack."""
    found = {"device": devices, "methods": methods_text(methods), "commit": commit()}
    found |= {"Python": platform.python_version()} | {name: installed(name) for name in PACKAGES}
    return {name: value for name, value in found.items() if value}


def _placed(job: Job, node: Node, number: int, address: str) -> Job:
    """Return a job as this node's part of it, whose ranks meet those of the other nodes in the nodes' store."""
    host = f"[{node.host}]" if ":" in node.host else node.host
    meeting = f"tcp://{host}:{node.port}/repro/ranks/{number}#{address}"
    return replace(job, rendezvous=meeting, world=job.ranks * node.count, first=job.ranks * node.rank)
