"""A run on several nodes: node 0 has each phase of a trial run by the fork servers of all, through torch's store.

Messages are JSON, whose fields are checked by their types, as nothing from a network is to be unpickled. A node is
asked for one of four phases, by its name, and never for a function.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import platform
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import timedelta
from functools import partial
from multiprocessing import TimeoutError
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from msgspec import Meta

from repro.console import FAILED, INTERRUPTED, USAGE, UserError, cut, one_line, say
from repro.datafile import NotAsDeclaredError, from_json, parse
from repro.installation import installed
from repro.machine.cluster import Node, local_address
from repro.machine.environment import commit
from repro.machine.packages import PACKAGES

from .jobs import AGAIN, Job, Measured, RankOutcome
from .launcher import ForkServer, ServerDiedError
from .method import MethodFile, methods_text

T = TypeVar("T")

_PHASES = "repro.measure.phases:"
RESULTS: dict[str, Any] = {"fit": None, "measure": Measured, "compile_anything": None, "build_adam": str | None}
_TICK, _BEAT = 0.1, 2.0  # seconds between two looks into the store, and between two heartbeats
SILENT = 40.0  # seconds without a heartbeat after which a node is gone: one that is short of memory may be slow
ARRIVAL = 300.0  # seconds for all nodes to arrive: one may set its stack up, or load it over the network
_GOODBYE = 10.0  # seconds for the other nodes to leave at the end of a run
_LEFT = "left"


class EndedError(Exception):
    """The end of a run as node 0 announced it: the exit code, and the reason where it ended early."""


@dataclass(frozen=True)
class Hello:
    """The greeting of a node that has loaded its stack. `address` is its own in the network that leads to node 0;
    `alike` maps what must be equal on all nodes to its value, `broken` each module that does not import to the error.
    """

    host: str
    address: str
    alike: dict[str, str]
    broken: dict[str, str]


@dataclass(frozen=True)
class Request:
    """A request to all nodes to run one phase, each with `ranks` processes."""

    phase: Literal["fit", "measure", "compile_anything", "build_adam"]
    arguments: dict[str, str | int | float | bool | None]
    ranks: Annotated[int, Meta(ge=1)]
    log: Annotated[str, Meta(pattern=r"\A[A-Za-z0-9][A-Za-z0-9._+,-]{0,250}\.log\Z")]
    timeout: float
    memory: int | None


@dataclass(frozen=True)
class Answer:
    """What a phase came to on a node: an outcome for each of its ranks, or an error."""

    outcomes: list[RankOutcome] = field(default_factory=list)
    error: str = ""


class Store:
    """Torch's store of a node, with its heartbeat. A context manager. `names` are those of the nodes in errors, `lost`
    says which is gone and why; empty as long as all are there."""

    def __init__(self, node: Node) -> None:
        self._node, self._down, self._leaving = node, "", threading.Event()
        self._beats: dict[int, tuple[bytes | None, int]] = {}  # each node's last, and how often it was seen again
        self.names, self.lost = [f"node {rank}" for rank in range(node.count)], ""

    def __enter__(self) -> Store:
        """Wait for the store, which node 0 or its torchrun serves. Raises ServerDiedError where it does not come."""
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
        self._ask(lambda: self._store.set(key, json.dumps(message, default=asdict)))

    def get(self, kind: type[T], key: str, sender: int) -> T | None:
        """Return the message under a key, None as long as there is none. Raises ServerDiedError where it is another, or
        its sender is gone, and EndedError where node 0 has ended the run."""
        keys = key, "repro/end", f"repro/beat/{sender}"
        message, end, beat = self._ask(
            lambda: [self._store.get(each) if self._store.check([each]) else None for each in keys]
        )
        if end is not None and self._node.rank:
            with self.hearing(0):
                raise EndedError(*from_json(tuple[int, str], parse(end)))
        if message is None:
            self._check(sender, beat)
            return None
        with self.hearing(sender):
            return from_json(kind, parse(message))

    @contextlib.contextmanager
    def hearing(self, sender: int) -> Iterator[None]:
        """Raise ServerDiedError where what the sender says is not as declared."""
        try:
            yield
        except NotAsDeclaredError as error:
            reason = f"{self.names[sender]} says what no node of this version says: {error}"
            raise ServerDiedError(reason, "read its log") from None

    def receive(self, kind: type[T], key: str, sender: int) -> T:
        """Wait for a message. Raises what `get` raises."""
        while (message := self.get(kind, key, sender)) is None:
            time.sleep(_TICK)
        return message

    def _check(self, rank: int, beat: bytes | None) -> None:
        """Raise ServerDiedError where a node has left, or was silent for too long: by the looks, one a tick, as this
        process may have been suspended."""
        known, looks = self._beats.get(rank, (None, 0))
        looks = looks + 1 if beat == known else 0
        self._beats[rank], silent = (beat, looks), looks * _TICK
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
        """Return the store's answer, asked in a thread so that signals are heeded. Raises ServerDiedError where none
        comes, and from then on at once."""
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

    def _gone(self, rank: int, reason: str) -> ServerDiedError:
        self.lost = self.lost or f"{self.names[rank]} {reason}"
        return ServerDiedError(self.lost, AGAIN)


class Leader(ForkServer):
    """The fork server of node 0, which runs each job on all nodes, with equal ranks on each, numbered node by node.

    `devices` describes this node's GPUs in use, which all nodes must have alike. The others end with the exit `code`.
    """

    def __init__(self, node: Node, devices: str, *of_server: Any, **more: Any) -> None:
        super().__init__(*of_server, **more)
        self._node, self._store, self._others = node, Store(node), range(1, node.count)
        self._alike, self._address, self._number = _alike(devices, self.methods), "", 0
        self._broken = dict[str, str]()  # the modules that do not import on another node, each with the error
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
        for rank in self._others:
            hello = self._store.receive(Hello, f"repro/hello/{rank}", rank)
            name = self._store.names[rank] = f"node {rank} ({cut(hello.host, 80)})"
            self._address = local_address(hello.address, self._node.port)
            for what, here in self._alike.items():
                if (there := hello.alike.get(what, here)) != here:
                    raise UserError(f"{name}: its {what} is {there}, that of node 0 is {here}; give all nodes the same")
            if "torch" in hello.broken:
                raise UserError(f"{name}: {hello.broken['torch']}")
            self._broken |= {module: f"{name}: {error}" for module, error in hello.broken.items()}

    def __exit__(self, *raised: object) -> None:
        self.close()
        error = raised[1]
        code, reason = (self.code, "") if error is None else (FAILED, "it ended early")
        if isinstance(error, UserError):
            code, reason = USAGE, str(error)
        elif isinstance(error, KeyboardInterrupt):
            code = INTERRUPTED
        deadline = time.monotonic() + _GOODBYE
        with contextlib.suppress(ServerDiedError):
            self._store.set("repro/end", [code, reason])
        for rank in self._others:  # waits until they have left: the store may end with this process
            with contextlib.suppress(ServerDiedError):
                while time.monotonic() < deadline and self._store.get(bool, "repro/bye", rank) is None:
                    time.sleep(_TICK)
        self._store.__exit__()

    def start(self) -> None:
        super().start()
        self.broken = self._broken | self.broken

    def call(self, job: Job) -> list[RankOutcome]:
        """Run a job on all nodes, and return the outcomes of all ranks. The first node to fail stops the others."""
        self.start()
        if self.lost:
            raise ServerDiedError(self.lost, AGAIN)
        self._number += 1
        found, deadline = dict[int, list[RankOutcome]](), time.monotonic() + job.timeout + 60
        try:
            self.begin(_placed(job, self._node, self._number, self._address))
            phase: Any = job.call.removeprefix(_PHASES)
            request = Request(phase, job.arguments, job.ranks, Path(job.log).name, job.timeout, job.memory)
            self._store.set(f"repro/job/{self._number}", request)
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
        with contextlib.suppress(ServerDiedError):
            self._store.set(f"repro/stop/{self._number}", True)

    def _outcomes(self, rank: int, job: Job) -> list[RankOutcome] | None:
        """Return the outcomes of a node's ranks; None as long as there are none."""
        if rank == 0:
            return self.outcomes(job) if self.answered() else None
        answer = self._store.get(Answer, f"repro/job/{self._number}/{rank}", rank)
        if answer is None:
            return None
        if answer.error:
            raise ServerDiedError(f"{self._store.names[rank]}: {answer.error}", "read its log")
        with self._store.hearing(rank):
            if [each.rank for each in answer.outcomes] != list(range(job.ranks * rank, job.ranks * (rank + 1))):
                raise NotAsDeclaredError("outcomes of other ranks than its own")
            for each in answer.outcomes:
                if each.status == "ok":
                    each.value = from_json(RESULTS[job.call.removeprefix(_PHASES)], each.value)
        return answer.outcomes


def follow(node: Node, server: ForkServer, logs: Path, devices: str, most_ranks: int, cuda: bool) -> int:
    """Take part in the run of node 0 until it ends, and return its exit code. `devices` must be equal on all nodes,
    `most_ranks` is how many processes node 0 may ask for."""
    try:
        with server, Store(node) as store:
            try:  # while node 0 waits
                server.start()
                broken = server.broken
            except ServerDiedError as error:
                broken = {"torch": cut(error.reason)}
            address = local_address(node.host, node.port)
            hello = Hello(socket.gethostname(), address, _alike(devices, server.methods), broken)
            store.set(f"repro/hello/{node.rank}", hello)
            for number in itertools.count(1):
                asked = store.receive(Request, f"repro/job/{number}", 0)
                if asked.ranks > most_ranks:
                    raise ServerDiedError(f"node 0 asks for {asked.ranks} processes, there is room for {most_ranks}")
                call, log = _PHASES + asked.phase, str(logs / asked.log)
                job = Job(call, asked.arguments, asked.ranks, log, asked.timeout, cuda=cuda, memory=asked.memory)
                try:
                    stopped = partial(store.get, bool, f"repro/stop/{number}", 0)
                    answer = Answer(_run(_placed(job, node, number, address), server, stopped))
                except ServerDiedError as error:
                    answer = Answer(error=cut(error.reason))
                store.set(f"repro/job/{number}/{node.rank}", answer)
    except EndedError as end:
        code, reason = end.args
        if reason:
            say(f"node 0 ended the run: {reason}")
    except ServerDiedError as error:
        say("; ".join(filter(None, (error.reason, error.remedy))))
        code = FAILED
    return code


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
