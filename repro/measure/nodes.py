"""Several nodes as one: the fork server of this node, and those of nodes that joined over the network."""

from __future__ import annotations

import contextlib
import errno
import platform
import re
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from repro import command
from repro.environment import commit
from repro.errors import UserError
from repro.imported import Imports
from repro.packages import PACKAGES, installed

from .job import Job, Outcome
from .launcher import ForkServer, ServerDiedError, Stream
from .server import serve

_HELLO_SECONDS = 10.0
_SILENT_SECONDS, _ASKED_EACH, _ASKED_TIMES = 60, 10, 6  # of a connection, before its other end is given up
_GPUS = "GPUs"  # in what a node says of itself, how many it has


class Nodes:
    """Runs every job on `count` nodes with the same ranks on each, numbered node by node, this node's first.

    A context manager, as ForkServer, which listens on `address`, HOST:PORT, from its beginning on. `tell` gets a line
    when it waits for a node to join, and when one is let go. Whoever reaches the address and has the same `device` and
    stack, and `gpus` of it at least, can join: it belongs on a network that one trusts.
    """

    def __init__(
        self, here: ForkServer, count: int, address: str, tell: Callable[[str], None], device: str, gpus: int
    ) -> None:
        self._here, self._count, self._tell = here, count, tell
        self._alike, self._gpus = _alike(device), gpus
        self._host, self._port = parse_address(address)
        self._address = address
        self._joined: list[Stream] = []
        self._broken: dict[str, str] = {}

    def __enter__(self) -> Nodes:
        try:
            self._listener = socket.create_server((self._host, self._port))
        except OSError as error:
            why = f"({error.strerror}); give an address of this machine by which the other nodes reach it"
            if error.errno == errno.EADDRINUSE:
                why = "as another run or program does; wait for it to end, or give another port"
            elif error.errno == errno.EACCES:
                why = f"({error.strerror}); give a port from 1024 on"
            raise UserError(f"--address {self._address}: cannot listen there {why}") from error
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Starts this node's server, and waits until all other nodes have joined."""
        self._here.start()
        while len(self._joined) < self._count - 1:
            number = len(self._joined) + 2
            self._tell(f"waiting for node {number} of {self._count}: {self._joining}")
            connection, (host, *_) = self._listener.accept()
            _watch(connection)
            stream = Stream(connection, f"node {number} ({host})")
            try:
                self._greet(stream)
                broken = _await_stack(stream)
            except ServerDiedError as error:
                stream.close()
                self._tell(f"let go: {error}")
            else:
                self._joined.append(stream)
                self._broken |= {module: f"{stream.name}: {error}" for module, error in broken.items()}

    @property
    def broken(self) -> dict[str, str]:
        """The modules that do not import on one of the nodes, as far as they have joined, each with the error."""
        return {**self._broken, **self._here.broken}

    @property
    def imports(self) -> Imports | None:
        """What this node's stack imported, once it has started."""
        return self._here.imports

    def _greet(self, stream: Stream) -> None:
        """Hears what a node has. Raises ServerDiedError where this one has another, and tells the node."""
        there = stream.receive(_HELLO_SECONDS)
        if not isinstance(there, dict) or "device" not in there:
            raise ServerDiedError(f"{stream.name} does not say what it has, as repro join does")
        told = [
            f"its {name} is {there[name]}, the first node's is {here}; give all nodes the same"
            for name, here in self._alike.items()
            if name in there and there[name] != here
        ]
        if isinstance(gpus := there.get(_GPUS), int) and gpus < self._gpus:
            told.append(f"it has {gpus} of the {self._gpus} GPUs that the run takes of each node; give it as many")
        if told:
            stream.send({"refused": f"the run does not take this node: {told[0]}"})
            raise ServerDiedError(f"{stream.name}: {told[0]}")

    def call(self, job: Job) -> list[Outcome]:
        """Runs a job on all nodes and waits for the outcomes of all ranks. The first node to fail stops the others."""
        self.start()
        meeting = f"tcp://{self._host}:{_free_port(self._host)}"
        job = replace(job, rendezvous=meeting, world=job.ranks * self._count)
        servers: list[ForkServer | Stream] = [self._here, *self._joined]

        def outcomes(server: ForkServer | Stream) -> list[Outcome]:
            found: list[Outcome] = []
            try:
                found = server.outcomes(job)
            finally:
                if not found or any(outcome.status != "ok" for outcome in found):
                    for other in servers:
                        if other is not server:
                            other.stop()
            return found

        with ThreadPoolExecutor(self._count) as pool:
            try:
                # All of them before the first answer, or a node could be stopped before it has the job, to no effect.
                # This node's last: where another has left, nothing has to be stopped here.
                for node, server in reversed([*enumerate(servers)]):
                    server.begin(replace(job, first=job.ranks * node))
                return [outcome for found in pool.map(outcomes, servers) for outcome in found]
            except ServerDiedError as error:
                self._leave()
                raise ServerDiedError(
                    str(error), f"read the log of that node, and have all others join again: {self._joining}"
                ) from error
            except KeyboardInterrupt:
                self.close()
                raise

    @property
    def _joining(self) -> str:
        return f"{command()} join {self._address}"

    def mend(self) -> int:
        """Mends this node's caches of builds, see repro/build_cache.py; returns how many files were removed."""
        return self._here.mend()

    def close(self) -> None:
        """Ends the servers of all nodes, with all they forked."""
        self._leave()
        self._listener.close()
        self._here.close()

    def _leave(self) -> None:
        for stream in self._joined:
            stream.close()
        self._joined, self._broken = [], {}


def _await_stack(stream: Stream) -> dict[str, str]:
    """Waits until a node has loaded its stack, and returns what of it does not import. Raises ServerDiedError where it
    cannot."""
    match stream.receive(None):
        case {"ready": True, "broken": dict(broken)}:
            return {str(module): str(error) for module, error in broken.items()}
        case {"error": str(told)}:
            raise ServerDiedError(f"{stream.name}: its stack does not import: {told}")
        case other:
            raise ServerDiedError(f"{stream.name} does not say that it is ready, as repro join does: {other!r:.40}")


def parse_address(text: str) -> tuple[str, int]:
    """HOST:PORT; a UserError for anything else."""
    host, _, port = text.rpartition(":")
    try:
        named = host.encode("idna")  # as looking it up does, which tells of an empty part of a name in no words of ours
    except UnicodeError:
        named = b""
    if not named or not re.fullmatch("[0-9]{1,5}", port) or not 0 < int(port) < 65536:
        raise UserError(f"address {text!r}: expected HOST:PORT, such as 10.0.0.1:29400")
    if ":" in host:
        raise UserError(f"address {text!r}: expected IPv4 or a host's name, such as 10.0.0.1:29400")
    if host in ("0.0.0.0", "*"):
        raise UserError(
            f"address {text!r}: expected the one by which the other nodes reach this one, not every address"
        )
    return host, int(port)


def join(address: str, logs: Path, device: str, gpus: int) -> None:
    """Makes this process the fork server of one more node, with so many `gpus`, of the run that listens on `address`,
    until it ends. Raises UserError where it takes no part."""
    try:
        connection = socket.create_connection(parse_address(address), timeout=60)
    except OSError as error:
        start = f"{command()} run --nodes N --address {address}"
        raise UserError(f"no run listens on {address} ({error}); start it first: {start}") from error
    logs.mkdir(parents=True, exist_ok=True)
    connection.settimeout(None)
    _watch(connection)
    with contextlib.suppress(ServerDiedError):  # it is told below
        Stream(connection).send({**_alike(device), _GPUS: gpus})
    if not serve(connection, logs):
        raise UserError(f"the run on {address} ended without this node: it had all its --nodes, or was stopped")


def _watch(connection: socket.socket) -> None:
    """Has the system ask after a silent other end, and end the connection where none answers: a machine that lost its
    power or its network does not say so, and a node that waits for its next job would wait for good."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _SILENT_SECONDS)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _ASKED_EACH)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _ASKED_TIMES)


def _alike(device: str) -> dict[str, str]:
    """What all nodes must have alike, as far as each knows it: a record tells of one device and one stack."""
    found = {"device": device, "commit": commit(), "Python": platform.python_version()}
    return {name: value for name, value in (found | {name: installed(name) for name in PACKAGES}).items() if value}


def _free_port(host: str) -> int:
    with socket.create_server((host, 0)) as probe:
        return probe.getsockname()[1]
