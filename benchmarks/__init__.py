"""Benchmarks of this project, with the command line and the fork server that they share."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from repro.formats import FORMATS, render
from repro.machine.nvml import visible_devices
from repro.measure.interleaving import Scheduler
from repro.measure.jobs import Job, RankOutcome
from repro.measure.launcher import ForkServer

Ask = Callable[..., list[RankOutcome]]


def asking(server: ForkServer, folder: Path) -> Ask:
    """Return a function that calls "module:function"(rank, **arguments) in ranks forked from this server, interleaved
    by `scheduler`, on GPUs where there are any. It raises RuntimeError with a failed rank's traceback. `folder` is for
    logs."""
    cuda = bool(visible_devices())

    def ask(call: str, ranks: int = 1, scheduler: Scheduler | None = None, **arguments: Any) -> list[RankOutcome]:
        job = Job(call, arguments, ranks, f"{folder}/log", timeout=600, cuda=cuda, scheduler=scheduler)
        outcomes = server.call(job)
        for outcome in outcomes:
            if outcome.status != "ok":
                raise RuntimeError(f"{call}: {outcome.status} {outcome.error}\n{outcome.traceback}")
        return outcomes

    return ask


@contextmanager
def warm_ranks() -> Iterator[Ask]:
    """Yield such a function for a fork server of its own, with its stack loaded."""
    with tempfile.TemporaryDirectory(prefix="repro-") as folder, ForkServer(Path(folder, "server.log"), {}) as server:
        server.start()
        yield asking(server, Path(folder))


def options(description: str | None) -> argparse.ArgumentParser:
    """Return the argument parser of a benchmark, with --format."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--format", choices=FORMATS, default="text")
    return parser


def tell(description: str | None, rows: Callable[[], list[dict[str, Any]]]) -> None:
    """Run a benchmark's command line: print its rows in the requested format."""
    asked = options(description).parse_args().format
    print(render(rows(), asked))
