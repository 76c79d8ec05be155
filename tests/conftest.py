"""What several tests share: one fork server, a way to call a function in ranks forked from it, and a copy of expected/
to break."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from repro.datafile import expected_folder
from repro.measure.job import Job
from repro.measure.launcher import ForkServer


def pytest_configure(config: pytest.Config) -> None:
    """What a person calls this program, which run_all.sh tells: tests hold what is said where nobody did, but the
    benchmark's own cases, which a run hands to pytest, say it as it is called."""
    if not config.pluginmanager.has_plugin("repro-run"):
        os.environ.pop("REPRO_COMMAND", None)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell's `&`; runs that tests interrupt would inherit it
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def fork_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkServer]:
    """The stack, imported once for all tests, which run on the CPU: where DeepSpeed sees a GPU, it takes it. It starts
    with its first job."""
    with ForkServer(tmp_path_factory.mktemp("server") / "server.log", {"CUDA_VISIBLE_DEVICES": ""}) as server:
        yield server


@pytest.fixture(scope="session")
def in_ranks(fork_server: ForkServer, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., list[Any]]:
    """Calls tests.training's `function(rank, **arguments)` in `world` ranks of a fresh process group; returns what
    each rank returned."""

    def call(function: str, world: int = 1, **arguments: Any) -> list[Any]:
        folder = tmp_path_factory.mktemp("job")
        outcomes = fork_server.call(
            Job(
                call=f"tests.training:{function}",
                arguments=arguments,
                ranks=world,
                log=str(folder / "log"),
                timeout=120,
            )
        )
        for outcome in outcomes:
            assert outcome.status == "ok", f"rank {outcome.rank}: {outcome.error}\n{outcome.traceback}"
        return [outcome.value for outcome in outcomes]

    return call


@pytest.fixture
def expected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of expected/ that is read in its place, here and by commands. What was read is kept, so break it first."""
    copy = shutil.copytree(expected_folder(), tmp_path / "expected")
    monkeypatch.setenv("REPRO_EXPECTED", str(copy))
    return copy
