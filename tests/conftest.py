"""What tests share: how they run side by side, one fork server, a way to call a function in ranks forked from it, and a
copy of expected/ to break."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from repro.datafile import expected_folder
from repro.measure.jobs import Job
from repro.measure.launcher import ForkServer
from tests.support.command_line import PATIENCE

# Those that measure, train, load the stack, draw pages, open a browser, set a stack up or start several nodes.
SLOW_FIXTURES = {
    "fork_server",
    "private_server",
    "finished",
    "probes",
    "pages",
    "reported",
    "browser",
    "house",
    "wheels",
    "start",
}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--nightly", action="store_true", help="run the tests that are marked nightly, too")


def pytest_configure(config: pytest.Config) -> None:
    """Tests expect what is said where run_all.sh did not say how a person calls this program."""
    os.environ.pop("REPRO_COMMAND", None)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell's `&`; runs that tests interrupt would inherit it
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if "PYTHONPYCACHEPREFIX" not in os.environ:  # as run_all.sh does: else each process may compile the stack anew
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        sys.dont_write_bytecode = False
        sys.pycache_prefix = str(Path(__file__).parents[1] / ".venv" / "build-cache" / "bytecode")
        os.environ["PYTHONPYCACHEPREFIX"] = sys.pycache_prefix
    os.environ.pop("PYTEST_XDIST_WORKER", None)  # the benchmark's own cases do not run side by side
    if (beside := getattr(config, "workerinput", None)) is not None:
        cpus, number = sorted(os.sched_getaffinity(0)), int(beside["workerid"].removeprefix("gw"))
        os.sched_setaffinity(0, cpus[number :: beside["workercount"]] or cpus[number % len(cpus) :][:1])


# --- Side by side: `./run_all.sh test` has pytest-xdist run files in as many processes as there are CPUs. Each keeps to
# one part of them, with all that it starts, so that threads wait for few others. ---


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Return the number of CPUs, at most four: each process has a fork server, which takes a GiB."""
    return min(len(os.sched_getaffinity(0)), 4)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tells a process where those beside it lock."""
    config = node.config
    if not hasattr(config, "locks"):
        config.locks = tempfile.mkdtemp(prefix="repro-tests-")
        config.add_cleanup(lambda: shutil.rmtree(config.locks, ignore_errors=True))
    node.workerinput["locks"] = config.locks


@pytest.hookimpl(tryfirst=True)  # before tests are chosen by their marks
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is nightly unless it is asked for. What asks for a fixture that is slow is slow. The files that
    take longest go first, so that all processes have something to do to the end: those of nodes, which wait for
    silence, then those with most that is slow."""
    if not config.option.nightly and "nightly" not in config.option.markexpr:
        nightly = [item for item in items if item.get_closest_marker("nightly")]
        items[:] = [item for item in items if item not in nightly]
        config.hook.pytest_deselected(items=nightly)
    for item in items:
        parameters = item.callspec.params if hasattr(item, "callspec") else {}  # which may have a fixture's name
        if SLOW_FIXTURES & {*getattr(item, "fixturenames", ())} - {*parameters}:
            item.add_marker(pytest.mark.slow)
    if hasattr(config, "workerinput"):
        slow = Counter(item.path for item in items if item.get_closest_marker("slow"))
        items.sort(key=lambda item: (item.path.name != "test_nodes.py", -slow[item.path]))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """No other test runs beside one that is marked `alone`."""
    if not hasattr(item.config, "workerinput"):
        return (yield)
    folder = Path(item.config.workerinput["locks"])
    alone = item.get_closest_marker("alone") is not None
    with open(folder / "next", "a") as first, open(folder / "running", "a") as running:
        fcntl.flock(first, fcntl.LOCK_EX)  # whoever waits to be alone lets nobody pass
        fcntl.flock(running, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        first.close()
        return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)  # after the line that pytest ends with
def pytest_sessionfinish(session: pytest.Session) -> Generator[None, None, None]:
    """Says in one last line how many tests were skipped for what this machine lacks, and how to get it: their reasons
    begin with `needs`."""
    yield
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or hasattr(session.config, "workerinput"):
        return
    reasons = (report.longrepr[2].removeprefix("Skipped: ") for report in reporter.stats.get("skipped", ()))
    if lacking := Counter(reason for reason in reasons if reason.startswith("needs ")):
        reporter.write_line(f"skipped: {'; '.join(f'{count} x {reason}' for reason, count in lacking.most_common())}")


@pytest.fixture(autouse=True)
def same_signals() -> Iterator[None]:
    """Undoes what commands called in this process do with signals: what they ignore, a program that a later test starts
    and stops would ignore too."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.fixture(scope="session")
def fork_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkServer]:
    """The stack, imported once for all tests, which run on the CPU: where DeepSpeed sees a GPU, it takes it. It starts
    with its first job. torch.compile compiles in the rank: its own processes would each import torch first."""
    variables = {"CUDA_VISIBLE_DEVICES": "", "TORCHINDUCTOR_COMPILE_THREADS": "1"}
    with ForkServer(tmp_path_factory.mktemp("server") / "server.log", variables) as server:
        yield server


@pytest.fixture(scope="session")
def in_ranks(fork_server: ForkServer, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., list[Any]]:
    """Calls a `function(rank, **arguments)` of tests/support/training.py in `world` ranks of a fresh process group;
    returns what each rank returned."""

    def call(function: str, world: int = 1, **arguments: Any) -> list[Any]:
        folder = tmp_path_factory.mktemp("job")
        outcomes = fork_server.call(
            Job(
                call=f"tests.support.training:{function}",
                arguments=arguments,
                ranks=world,
                log=str(folder / "log"),
                timeout=PATIENCE,
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
