"""The driver of a run: has pytest go through the benchmark's cases, tests/benchmark/, and writes the report."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any, NoReturn

import pytest

from .. import datafile, files
from ..console import DATA, FAILED, INSTALLED, INTERRUPTED, NOTHING_COMPARED, OK, ROOT, UserError, say
from ..formats import Format, shell_words
from ..report.blocks import Report
from ..report.sections import compose
from ..report.terminal import printed
from ..report.write import write
from ..run.progress import Progress, announce
from ..run.reading import read
from ..run.results import BENCHMARK, VERDICTS
from ..run.run import FILES, Run
from .preflight import check_compilers, check_disk
from .stopping import stop_with

CASES = DATA / "benchmark" if INSTALLED else ROOT / "tests" / "benchmark"
# Options that a person gives pytest for tests of their own.
_NOT_FOR_CASES = ("PYTEST_ADDOPTS", "PYTEST_PLUGINS", "PYTEST_DISABLE_PLUGIN_AUTOLOAD")


class Driver:
    """A pytest plugin that carries out a run: it opens the run once pytest has collected the cases, and measures the
    trials whose cases were chosen. After pytest, `finish` writes the report and closes the run."""

    progress: Progress

    def __init__(self, run: Run, health: str = "") -> None:
        self.run, self._health = run, health
        self.interrupted = self._begun = False
        self._opened = contextlib.ExitStack()
        self._error: Exception | None = None

    def finish(self, code: int, format: Format = "text", require_comparison: bool = False) -> int:
        """Write the report, print it, close the run, and return the exit code where pytest's is `code`.

        Raises what stopped the run; after KeyboardInterrupt the report is written."""
        with self._opened:
            if self._error is not None:
                raise self._error
            code = INTERRUPTED if self.interrupted else OK if code == pytest.ExitCode.OK else FAILED
            if not self._begun:
                return self._ended(code)
            run = self.run
            written, report = _write(run)
            print(printed(report, format), flush=True)
            say(written)
            if code == OK and require_comparison and not any(verdict.compared for verdict in report.verdicts):
                say("no cell of the paper could be compared (--require-comparison)")
                code = NOTHING_COMPARED
            run.end(code)
        return self._ended(code)

    def _ended(self, code: int) -> int:
        if self.interrupted:
            raise KeyboardInterrupt
        return code

    @pytest.hookimpl(wrapper=True)
    def pytest_collection_modifyitems(self, config: pytest.Config) -> Generator[None]:
        try:
            return (yield)
        except pytest.UsageError:
            self._stop(UserError(f"-k {config.option.keyword}: pytest does not understand this expression"))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Generator[None, object, object]:
        if session.testsfailed or session.config.option.collectonly:
            return (yield)
        try:
            self._begin(session)
        except Exception as error:
            self._stop(error)
        self.progress = Progress.of_run(self.run)
        return (yield)

    def _begin(self, session: pytest.Session) -> None:
        """Open the run for the trials whose cases are left, load the stack, and put the cases in order: a cell is
        judged by its trials."""
        run, keyword = self.run, session.config.option.keyword
        if not session.items:
            chosen = f"-k {keyword}" if keyword else "pytest's options"
            raise UserError(f"{chosen}: no case matches; --methods and --models choose trials too")
        names = {item.name for item in session.items}
        run.choose(trial for trial in run.trials if _case(trial.id) in names)
        check_compilers(run.chosen, run.devices)
        check_disk(run.results.folder, *FILES)
        stop_with(run.node)
        self._opened.enter_context(run)
        self._begun = True
        if self._health:
            say(self._health)
        if run.options.best is not None:
            from ..run.best_predicted import choose_best

            run.load()  # first, as what does not import here cannot be the best
            choose_best(run, run.options.best)
        announce(run)
        run.load()
        run.project()
        ids = {trial.id for trial in run.chosen}
        skipped = {_case(name) for name, (trial, _) in run.measurements.items() if trial.id not in ids}
        session.items[:] = [item for item in session.items if item.name not in skipped]
        order = {_case(name): place for place, name in enumerate(run.measurements)}
        session.items.sort(key=lambda item: order.get(item.name, len(order)))

    def pytest_exception_interact(self, call: pytest.CallInfo[object]) -> None:
        if call.excinfo is not None and isinstance(call.excinfo.value, UserError):
            self._stop(call.excinfo.value)

    def _stop(self, error: Exception) -> NoReturn:
        """Have pytest end without a word, and `finish` raise the error."""
        self._error = error
        raise KeyboardInterrupt from None

    def pytest_configure(self, config: pytest.Config) -> None:
        self._plugins = config.pluginmanager

    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        if isinstance(excinfo.value, pytest.Session.Interrupted):  # by cases that do not import
            return
        self.interrupted = True
        self._plugins.unregister(name="terminalreporter")  # our own line says how to go on

    def pytest_benchmark_update_json(self, output_json: dict[str, Any]) -> None:
        """Write the file whole or not at all, as pytest-benchmark does not. Keep in it what earlier runs of the folder
        measured and this one did not go through. Its commit is this checkout's: pytest-benchmark asks the repository of
        the current folder. After an error the folder may take or be no more."""
        if self._error is not None:
            return
        from pytest_benchmark.utils import safe_dumps

        commit = self.run.environment.commit
        output_json["commit_info"] = {  # the commit of environment.json, with the names of pytest-benchmark
            "id": "unversioned" if commit is None else commit.removesuffix("-dirty"),
            "time": None,
            "author_time": None,
            "dirty": commit is not None and commit.endswith("-dirty"),
            "project": "repro",
            "branch": "(unknown)",
        }
        kept_cases = output_json["benchmarks"]
        standing = {_case(id) for id in self.run.timed_ids} - {case["name"] for case in kept_cases}
        file = self.run.results.folder.resolve() / BENCHMARK
        kept_cases += [case for case in _cases(file) if case["name"] in standing]
        try:
            self.run.results.check()
            files.replace(file, safe_dumps(output_json, ensure_ascii=True, indent=4))
        except UserError as error:
            self._error = error


def _case(name: str) -> str:
    """Return the name of a measurement's case; a trial's id names its first."""
    return f"test_trial[{name}]"


def _cases(file: Path) -> list[dict[str, Any]]:
    """Return the cases that a file of pytest-benchmark's holds, none where it is none."""
    try:
        return [case for case in datafile.load(file)["benchmarks"] if isinstance(case["name"], str)]
    except (datafile.NotAsDeclaredError, LookupError, TypeError):
        return []


def _write(run: Run) -> tuple[str, Report]:
    """Write verdicts.json, and the report of all that the folder holds. Return where it is, and the report."""
    run.results.check()
    folder, clock = run.results.folder, run.options.clock
    found = read(folder, clock)
    datafile.write(folder / VERDICTS, [verdict.row() for verdict in found.verdicts])
    report = compose(found)
    return write(report, folder), report


def go_through(driver: Driver, more: Sequence[str]) -> int:
    """Have pytest, which prints on stderr, go through the cases with `more` options, and return its exit code."""
    for name in _NOT_FOR_CASES:
        os.environ.pop(name, None)
    words = [str(CASES), f"--config-file={CASES / 'pytest.ini'}", f"--rootdir={ROOT}"]
    with contextlib.redirect_stdout(sys.stderr), tempfile.TemporaryDirectory(prefix="repro-") as unused:
        try:
            # pytest-benchmark makes the folder of its storage, where people start a run.
            code = pytest.main([*words, f"--benchmark-storage=file://{unused}", *more], plugins=[driver])
        except KeyboardInterrupt:
            driver.interrupted, code = True, pytest.ExitCode.INTERRUPTED
    if code == pytest.ExitCode.USAGE_ERROR and more:
        raise UserError(f"pytest does not take -- {shell_words(more)}, see above")
    if code == pytest.ExitCode.USAGE_ERROR:
        raise UserError(f"pytest goes through no cases in {ROOT}, see above: move the checkout to a plainer path")
    return code
