"""`repro run`: measure, extrapolate, diff with the paper."""

from __future__ import annotations

import argparse
import contextlib
import io
import shlex
import shutil
import signal
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any, get_args

from ..errors import UserError
from ..exit_codes import FAILED, INTERRUPTED, NOTHING_COMPARED, OK
from ..formats import add_format
from ..plan import Search
from ..stderr import say
from ..tracking import NAMES, Tracker
from ..trial import Record, Trial
from ..units import count, path

_FREE_BYTES = 256 * 2**20
_EXIT_CODES = """\
exit codes: 0 nothing that was compared failed; 1 a cell differs, a trial crashed, or an internal error;
2 usage; 3 --require-comparison and nothing could be compared; 130 interrupted (the same command resumes)"""


def options(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EXIT_CODES
    add = parser.add_argument
    add_devices(parser)
    add("--nodes", default="1", metavar="N", help="nodes; the others run: repro join")
    add("--address", default="", metavar="HOST:PORT", help="with --nodes: where this node listens for the others")
    add("--models", metavar="ID,...", help="recipes, by id; see repro recipes (default all nine)")
    add(
        "--methods",
        choices=("published", "naive", "free-lunch", "all"),
        help="published: naive and Appendix J's settings of each cell (default on GPUs); all: the paper's whole "
        "search; default without a GPU: naive and free lunch, and the whole search for pythia-1b",
    )
    add(
        "--search",
        choices=get_args(Search),
        default="exhaustive",
        help="exhaustive: every settings of the search, as in the paper; guided: those that may be the fastest, in "
        "predicted order (with --methods all)",
    )
    add("--scale", choices=("paper", "tiny"), help="size of the recipes (default: paper on GPUs, tiny on a CPU)")
    add("--attention", choices=("sdpa", "flash"), default="sdpa", help="custom attention kernel of free lunch")
    add("--steps", default="3", metavar="N", help="measured rounds (default 3, the paper's)")
    add("--tolerance", default="0.15", metavar="X", help="relative, around the printed days (default 0.15)")
    add("--budget", metavar="4h", help="start no trial that would end after this")
    add("--trial-timeout", default="1h", metavar="1h", help="end a trial after this (default 1h)")
    add("--memory", metavar="2GiB", help="limit of each rank's memory, on its GPU or on the CPU")
    add("--out", type=path, default=Path("results/local"), metavar="DIR", help="results folder (default results/local)")
    add("--check-extrapolation", action="store_true", help="also time whole accumulated steps")
    add("--require-comparison", action="store_true", help="exit 3 if no cell of the paper could be compared")
    add("--track", choices=NAMES, default="none", help="also log trials, verdicts and report with this tracker")
    add("-k", metavar="EXPRESSION", help="only the cases that match, handed to pytest")
    add_format(parser)


def add_devices(parser: argparse.ArgumentParser) -> None:
    """The options that say which GPUs, or how many processes of the CPU."""
    add = parser.add_argument
    add("--gpus", metavar="all|N|0,1", help="GPUs: all, a count as in Docker, or indices (0,1 or device=0)")
    add("--processes", metavar="1,2", help="without a GPU: numbers of CPU processes (default 1,2)")
    add("--allow-cpu", action="store_true", help="with --gpus: run on the CPU where no GPU is visible")


def main(given: argparse.Namespace) -> int:
    from .. import command, progress
    from ..report.write import payload
    from ..run import Run

    check_packages("pytest", "pytest-benchmark")
    options, devices = _checked(given)
    health = _image_health(devices)
    folder: Path = given.out
    check_disk(folder)
    stop_on_sigterm()
    seconds: dict[str, float] = {}
    bar = progress.Progress(seconds)

    def tell(trial: Trial, record: Record | None, earlier: bool) -> None:
        bar.tell(trial, record, earlier)
        if record is not None:
            tracker.trial(record)

    with Run(folder, options, devices, tell, given.address) as run, Tracker(given.track, folder) as tracker:
        if given.k:
            with contextlib.redirect_stderr(io.StringIO()):
                _pytest(run, given.k, "--collect-only")  # what is wrong with it is told before the stack is loaded
        waiting = run.waiting
        seconds.update({trial.id: run.estimate(trial) if trial in waiting else 0.0 for trial in run.trials})
        where = ", ".join(device.driver_name for device in devices) or "the CPU"
        if health:
            say(health)
        started = progress.first_line(run.trials, waiting, sum(seconds.values()))
        say(f"{started}; on {where}, results in {folder}")
        try:
            run.load()
            if options.search == "guided":
                run.guide()
            with bar:
                code = _pytest(run, given.k)
        except KeyboardInterrupt:
            code = INTERRUPTED
        written = run.write(draw=code != INTERRUPTED)  # who stops a run waits for nothing
        tracker.end()
        print(payload(written, run.records(), run.verdicts(), run.devices, given.format), flush=True)
        say(written.told)
        compared = any(v.verdict not in ("not_measured", "no_reference") for v in run.verdicts())
    if code == INTERRUPTED:
        words = shlex.join(sys.argv[1:])
        say(f"interrupted; what is finished is kept, resume with: {command()} {words}")
    if code == OK and given.require_comparison and not compared:
        say("no cell of the paper could be compared (--require-comparison)")
        return NOTHING_COMPARED
    return code


def _pytest(run: Any, expression: str | None, *more: str) -> int:
    """Runs the benchmark's cases and maps pytest's exit code to ours. pytest speaks on stderr."""
    import pytest

    from ..environment import ROOT

    class Plugin:
        """Hands the run to the cases, see tests/benchmark/conftest.py."""

        __name__ = "repro-run"  # what pytest registers it under
        error: UserError | None = None
        interrupted = False

        def __init__(self) -> None:
            self.run = run

        def pytest_exception_interact(self, call: Any) -> None:
            if isinstance(call.excinfo.value, UserError):
                self.error = call.excinfo.value
                raise KeyboardInterrupt

        def pytest_configure(self, config: pytest.Config) -> None:
            self.plugins = config.pluginmanager

        def pytest_keyboard_interrupt(self) -> None:
            self.interrupted = True
            self.plugins.unregister(name="terminalreporter")  # our own line says how to go on

    plugin = Plugin()
    with contextlib.redirect_stdout(sys.stderr):
        code = pytest.main(
            [
                str(ROOT / "tests" / "benchmark"),
                f"--rootdir={ROOT}",
                f"--config-file={ROOT / 'pyproject.toml'}",
                f"--benchmark-json={run.results.folder.resolve() / 'benchmark.json'}",
                "--benchmark-disable-gc",
                "--benchmark-quiet",
                "-p",
                "no:cacheprovider",
                "--capture=no",
                "--no-header",
                "--quiet",
                "--tb=short",
                "-W",
                "ignore:Not saving anything",  # where no trial is ok; the report says so
                *more,
                *(["-k", expression] if expression else []),
            ],
            plugins=[plugin],
        )
    if plugin.error is not None:
        raise plugin.error
    if plugin.interrupted:
        return INTERRUPTED
    if code == pytest.ExitCode.NO_TESTS_COLLECTED:
        raise UserError(f"-k {expression}: no case matches; --methods and --models choose trials too")
    if code == pytest.ExitCode.USAGE_ERROR:
        raise UserError(f"-k {expression}: pytest does not understand this expression")
    return {
        pytest.ExitCode.OK: OK,
        pytest.ExitCode.TESTS_FAILED: FAILED,
    }.get(pytest.ExitCode(code), FAILED)


def _image_health(devices: list[Any]) -> str:
    """In a container image the line that says what it is fit for; a UserError where it is not for these GPUs."""
    from .. import doctor, image

    if image.target() is None:
        return ""
    health = doctor.examine()
    if devices and health.complaint:
        raise UserError(health.complaint)
    return health.line


def _checked(given: argparse.Namespace) -> tuple[Any, list[Any]]:
    """The run's options and GPUs; a UserError for the first thing that is wrong."""
    import models

    from .. import units
    from ..plan import Options

    devices, counts = devices_and_counts(given)
    options = Options(
        models=models.listed(given.models),
        methods=given.methods,
        scale=given.scale or ("paper" if devices else "tiny"),
        counts=counts,
        memory=units.bytes_(given.memory, "--memory") if given.memory is not None else None,
        steps=units.count(given.steps, "--steps"),
        trial_timeout=units.seconds(given.trial_timeout, "--trial-timeout"),
        budget=units.seconds(given.budget, "--budget") if given.budget is not None else None,
        tolerance=_tolerance(given.tolerance),
        attention=given.attention,
        check_extrapolation=given.check_extrapolation,
        nodes=units.count(given.nodes, "--nodes"),
        search=given.search,
    )
    if options.search == "guided":
        _check_guided(options)
    if options.nodes > 1 and not given.address:
        raise UserError("--nodes needs --address HOST:PORT, where the other nodes reach this one")
    return options, devices


def _check_guided(options: Any) -> None:
    import models

    for id in options.models:
        models.find_of_paper(id)
    if options.methods not in (None, "all"):
        raise UserError(f"--search guided orders the whole search: use it with --methods all, not {options.methods}")
    if options.nodes > 1:
        raise UserError("--search guided knows one node only: leave out --nodes, or use --search exhaustive")


def devices_and_counts(given: argparse.Namespace) -> tuple[list[Any], tuple[int, ...]]:
    """The GPUs that were asked for, none means the CPU, and the numbers of them, or of processes, to run on."""
    from .. import hardware, nvml
    from ..plan import counts_up_to

    visible = [] if given.processes is not None and given.gpus is None else nvml.visible_devices()
    if given.gpus is not None and given.processes is not None:
        raise UserError("--gpus and --processes exclude each other: processes run on the CPU")
    if given.gpus is not None and not visible and given.allow_cpu:
        say("no GPU is visible here; running on the CPU (--allow-cpu)")
        given.gpus = None
    chosen = range(len(visible)) if given.gpus is None else hardware.parse_gpus(given.gpus, len(visible))
    devices = [visible[index] for index in chosen]
    check_alike(devices)
    processes = "1,2" if given.processes is None else given.processes
    return devices, counts_up_to(len(devices)) if devices else _processes(processes)


def check_alike(devices: list[Any]) -> None:
    """A UserError for GPUs that no trial can use together."""
    if len({device.driver_name for device in devices}) > 1:
        names = ", ".join(f"{device.index} {device.driver_name}" for device in devices)
        raise UserError(f"the GPUs are of several types ({names}): choose equal ones with --gpus")
    if len(devices) > 1 and any(device.sliced for device in devices):
        raise UserError(f"{len(devices)} MIG slices: CUDA gives a process one, and NCCL joins none; take --gpus 1")


def _processes(text: str) -> tuple[int, ...]:
    return tuple(sorted({count(part.strip(), "--processes") for part in text.split(",")}))


def _tolerance(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1:
        raise UserError(f"--tolerance {text}: expected a share between 0 and 1, such as 0.15")
    return value


def check_packages(*more: str) -> None:
    """What measuring needs besides the stack that it measures, and `more`. Raises UserError for what is missing."""
    needed = (*more, "tabulate", "tqdm", "psutil")
    missing = [package for package in needed if find_spec(package.replace("-", "_")) is None]
    if missing:
        raise UserError(f"{', '.join(missing)} not installed: set up with ./run_all.sh, or install with pip")


def check_disk(folder: Path) -> None:
    """Makes the folder, and raises UserError where it cannot be written, before any work is done for it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
        free = shutil.disk_usage(folder).free
    except OSError as error:
        raise UserError(f"cannot write to {folder}: {error.strerror}; name another folder with --out") from error
    if free < _FREE_BYTES:
        raise UserError(f"{folder}: {free >> 20} MiB of disk are free, {_FREE_BYTES >> 20} are needed; free some")


def stop_on_sigterm() -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, stop)
