"""Node 0 of a run on several, which has every phase of a trial run by the fork servers of all nodes."""

from __future__ import annotations

import platform
import socket
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from repro.console import FAILED, INTERRUPTED, USAGE, UserError, cut, say
from repro.installation import installed
from repro.machine.cluster import Node, local_address
from repro.machine.environment import commit
from repro.machine.imports import Imports
from repro.machine.packages import PACKAGES

from . import messages
from .launcher import ForkServer, ServerDiedError, StackError
from .mailbox import GoneError, Mailbox
from .messages import End, ForeignError, Hello, Ready
from .method import MethodFile, methods_text
from .server import Job, RankOutcome

_GOODBYE = 10.0  # seconds for the other nodes to confirm the end of the run
AGAIN = "run the same command again on all nodes, once that one is back: it resumes"


class Leader:
    """The node that runs every job on all nodes, with equal ranks on each, numbered node by node. A context manager,
    used like ForkServer.

    `devices` describes this node's GPUs in use, which all nodes must have alike. `lost` is why no more jobs can run,
    empty as long as they can. The other nodes end with the exit `code`.
    """

    def __init__(self, node: Node, here: ForkServer, devices: str) -> None:
        self._node, self._here, self._alike = node, here, alike(devices, here.methods)
        self._others = range(1, node.count)
        self._post = Mailbox(node, self._gone)
        self._hosts: dict[int, str] = {}
        self._address = local_address(node.host, node.port)
        self._broken: dict[str, str] = {}
        self._ready, self._number = False, 0
        self.lost, self.code = "", FAILED

    def __enter__(self) -> Leader:
        """Wait for all nodes. Raises UserError where they are not alike, or one does not come: all of them then end."""
        self._post.__enter__()
        try:
            self._greet()
        except BaseException as error:
            self.__exit__(type(error), error)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None = None, error: BaseException | None = None, *_: object) -> None:
        end = End(self.code)
        if isinstance(error, UserError):
            end = End(USAGE, str(error))
        elif error is not None:
            end = End(INTERRUPTED if isinstance(error, KeyboardInterrupt) else FAILED, "it ended early")
        self._here.close()
        self._post.send("repro/end", messages.encode(end))
        deadline = time.monotonic() + _GOODBYE
        for rank in self._hosts:  # waits until they know: the store may end with this process
            try:
                self._post.receive(f"repro/bye/{rank}", of=rank, timeout=max(0.0, deadline - time.monotonic()))
            except GoneError:
                continue
        self._post.__exit__()

    def _greet(self) -> None:
        say(f"node 0 of {self._node.count}: waiting for the other nodes")
        refused = ""
        for rank in self._others:
            try:
                _, text = self._post.receive(f"repro/hello/{rank}", of=rank)
                hello: Hello = messages.decode(Hello, text)
            except GoneError as error:
                raise UserError(f"node {rank} of {self._node.count} {error}: start the same command on all") from None
            except ForeignError as error:
                raise UserError(f"node {rank} says what no node of this version says: {error}") from None
            self._hosts[rank] = cut(hello.host, 80)
            if messages.is_address(hello.address):
                self._address = local_address(hello.address, self._node.port)
            refused = refused or self._unlike(rank, hello)
        if refused:
            raise UserError(refused)
        self._post.send("repro/welcome", b"1")

    def _unlike(self, rank: int, hello: Hello) -> str:
        for name, here in self._alike.items():
            there = hello.alike.get(name)
            if there not in (None, here):
                return f"{self._name(rank)}: its {name} is {there}, that of node 0 is {here}; give all nodes the same"
        return ""

    def start(self) -> None:
        """Start this node's server, and wait until all nodes have loaded the stack. Raises StackError where one
        cannot."""
        self._here.start()
        if self._ready or self.lost:
            return
        for rank in self._others:
            try:
                _, text = self._post.receive(f"repro/ready/{rank}", of=rank)
                ready: Ready = messages.decode(Ready, text)
            except GoneError:
                return  # `lost` says why
            except ForeignError as error:
                raise ServerDiedError(f"{self._name(rank)} does not say whether it is ready: {error}") from None
            if ready.error:
                raise StackError(f"{self._name(rank)}: its stack does not import: {ready.error}")
            self._broken |= {module: f"{self._name(rank)}: {error}" for module, error in ready.broken.items()}
        self._ready = True

    @property
    def broken(self) -> dict[str, str]:
        """Return the modules that do not import on one of the nodes, each with the error, once all have started."""
        return {**self._broken, **self._here.broken}

    @property
    def imports(self) -> Imports | None:
        """Return what this node's server imported, once it has started."""
        return self._here.imports

    def call(self, job: Job) -> list[RankOutcome]:
        """Run a job on all nodes, and return the outcomes of all ranks. The first node to fail stops the others."""
        self.start()
        self._refuse_lost()
        self._number += 1
        number, phase_request = self._number, messages.PhaseRequest.of(job, self._address, _free_port())
        stop, keys = f"repro/stop/{number}", {rank: f"repro/outcomes/{number}/{rank}" for rank in self._others}
        found: dict[int, list[RankOutcome]] = {}
        wrong: dict[int, str] = {}

        def answered(rank: int, text: bytes) -> None:
            try:
                found[rank] = messages.outcomes(text, job, rank)
            except ForeignError as error:
                wrong[rank] = str(error)
            if number == self._number and (rank in wrong or failed(found[rank])):
                self._here.stop()
                self._post.send(stop, b"1")

        # On this node first: a stop before the start would be lost.
        self._here.begin(replace(phase_request.job(0, self._node.count, str(Path(job.log).parent)), sent=job.sent))
        for rank, key in keys.items():
            self._post.watch(key, partial(answered, rank))
        self._post.send(f"repro/job/{number}", messages.encode(phase_request))
        if self.lost:  # lost before the start, so that the stop had no effect
            self._here.stop()
        try:
            found[0] = self._here.outcomes(job)
        finally:
            if 0 not in found or failed(found[0]):
                self._post.send(stop, b"1")
        self._post.wait_for(
            lambda: bool(self.lost) or keys.keys() <= found.keys() | wrong.keys(), timeout=job.timeout + 60
        )
        self._refuse_lost()
        self._post.unwatch(*keys.values())
        for key in (f"repro/job/{number}", stop, *keys.values()):
            self._post.delete(key)
        for rank in keys:
            if rank not in found:
                raise ServerDiedError(f"{self._name(rank)}: {wrong.get(rank, 'does not answer')}", "read its log")
        return [outcome for rank in sorted(found) for outcome in found[rank]]

    def clean_build_caches(self) -> int:
        """Clean this node's build caches, see repro/machine/build_cache.py; return the number of removed files. The
        other nodes do so before each job."""
        return self._here.clean_build_caches()

    def _refuse_lost(self) -> None:
        if self.lost:
            raise ServerDiedError(self.lost, AGAIN)

    def _gone(self, rank: int, reason: str) -> None:
        self.lost = self.lost or f"{self._name(rank)} {reason}"
        self._here.stop()
        if self._number:
            self._post.send(f"repro/stop/{self._number}", b"1")

    def _name(self, rank: int) -> str:
        return f"node {rank} ({self._hosts[rank]})" if rank in self._hosts else f"node {rank}"


def failed(outcomes: list[RankOutcome]) -> bool:
    """Return whether a job has to be stopped on the other nodes."""
    return any(outcome.status != "ok" for outcome in outcomes)


def alike(devices: str, methods: Sequence[MethodFile]) -> dict[str, str]:
    """Return what must be equal on all nodes, as far as this one knows it: a record is of one device and one stack."""
    found = {"device": devices, "methods": methods_text(methods), "commit": commit()}
    found["Python"] = platform.python_version()
    return {name: value for name, value in (found | {name: installed(name) for name in PACKAGES}).items() if value}


def _free_port() -> int:
    with socket.create_server(("", 0)) as probe:
        return int(probe.getsockname()[1])
