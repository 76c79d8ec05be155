"""Several nodes as one: the fork server of this node, and those of nodes that joined over the network."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from repro import command
from repro.errors import UserError

from .launcher import ForkServer, ServerDiedError, Stream
from .server import Job, Outcome, serve


class Nodes:
    """Runs every job on `count` nodes with the same ranks on each, numbered node by node, this node's first.

    Listens on `address`, HOST:PORT, from the start on; `tell` gets a line when it waits for a node to join. Whoever
    reaches the address can join: it belongs on a network that one trusts. A context manager, as ForkServer.
    """

    def __init__(self, here: ForkServer, count: int, address: str, tell: Callable[[str], None]) -> None:
        self._here, self._count, self._tell = here, count, tell
        self._host, port = parse_address(address)
        self._address = address
        self._joined: list[Stream] = []
        try:
            self._listener = socket.create_server((self._host, port))
        except OSError as error:
            raise UserError(f"--address {address}: cannot listen there ({error.strerror})") from error

    def start(self) -> None:
        """Starts this node's server, and waits until all other nodes have joined."""
        self._here.start()
        while len(self._joined) < self._count - 1:
            self._tell(f"waiting for node {len(self._joined) + 2} of {self._count}: {command()} join {self._address}")
            stream = Stream(self._listener.accept()[0])
            ready = stream.receive(None)
            if "error" in ready:
                raise ServerDiedError(ready["error"])
            self._joined.append(stream)

    def call(self, job: Job) -> list[Outcome]:
        """Runs a job on all nodes and waits for the outcomes of all ranks. The first node to fail stops the others."""
        self.start()
        world = job.ranks * self._count
        if job.rendezvous.startswith("file://"):
            job = replace(job, rendezvous=f"tcp://{self._host}:{_free_port(self._host)}")
        jobs = [replace(job, world=world, first=job.ranks * node) for node in range(self._count)]
        servers: list[tuple[Callable[[Job], list[Outcome]], Callable[[], None]]] = [(self._here.call, self._here.stop)]
        servers += [(stream.run, stream.stop) for stream in self._joined]

        def run(node: int) -> list[Outcome]:
            outcomes: list[Outcome] = []
            try:
                outcomes = servers[node][0](jobs[node])
            finally:
                if not outcomes or any(outcome.status != "ok" for outcome in outcomes):
                    for other, (_, stop) in enumerate(servers):
                        if other != node:
                            stop()
            return outcomes

        with ThreadPoolExecutor(self._count) as pool:
            try:
                return [outcome for outcomes in pool.map(run, range(self._count)) for outcome in outcomes]
            except ServerDiedError:
                self._leave()  # all others have to join again
                raise
            except KeyboardInterrupt:
                self.close()
                raise

    def close(self) -> None:
        """Ends the servers of all nodes, with all they forked."""
        self._leave()
        self._listener.close()
        self._here.close()

    def _leave(self) -> None:
        for stream in self._joined:
            stream.close()
        self._joined = []


def parse_address(text: str) -> tuple[str, int]:
    """HOST:PORT; a UserError for anything else."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise UserError(f"address {text!r}: expected HOST:PORT, such as 10.0.0.1:29400")
    if host.strip("[]") in ("0.0.0.0", "::", "*"):
        raise UserError(
            f"address {text!r}: expected the one by which the other nodes reach this one, not every address"
        )
    return host, int(port)


def join(address: str, logs: Path) -> None:
    """Makes this process the fork server of one more node of the run that listens on `address`, until it ends."""
    try:
        connection = socket.create_connection(parse_address(address), timeout=60)
    except OSError as error:
        raise UserError(f"no run listens on {address} ({error}); start it first: {command()} run --nodes") from error
    connection.settimeout(None)
    with contextlib.suppress(ConnectionError):  # the run has ended
        serve(connection, logs)


def _free_port(host: str) -> int:
    with socket.create_server((host, 0)) as probe:
        return probe.getsockname()[1]
