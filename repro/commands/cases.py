"""The benchmark's cases, tests/benchmark/, which a run has pytest go through."""

from __future__ import annotations

import contextlib
import io
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import datafile, files
from ..console import FAILED, INTERRUPTED, OK, ROOT, UserError
from ..run.results import BENCHMARK

if TYPE_CHECKING:
    import pytest

    from ..record import Trial
    from ..run.run import Run

_IN_ORDER = ("test_trials.py", "test_cells.py")  # a cell is judged by its trials; by name pytest would take it first
# What a person told pytest of tests of their own.
_NOT_FOR_CASES = ("PYTEST_ADDOPTS", "PYTEST_PLUGINS", "PYTEST_DISABLE_PLUGIN_AUTOLOAD")


class _Plugin:
    """Hands the run to the cases, see tests/benchmark/conftest.py."""

    __name__ = "repro-run"  # what pytest registers it under
    error: UserError | None = None
    interrupted = False

    def __init__(self, run: Run) -> None:
        self.run, self.file = run, run.results.folder.resolve() / BENCHMARK
        self.trials: list[Trial] = []  # those whose cases match

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        ids = {item.name for item in session.items}
        self.trials = [trial for trial in self.run.trials if f"test_trial[{trial.id}]" in ids]

    def pytest_benchmark_update_json(self, output_json: dict[str, Any]) -> None:
        """Writes the file whole or not at all, as pytest-benchmark does not, and keeps in it what earlier runs of the
        folder measured and this one did not go through. Its commit is this checkout's: pytest-benchmark asks the
        repository of the current folder. After an error the folder may take or be no more."""
        if self.error is not None:
            return
        from pytest_benchmark.utils import safe_dumps

        output_json["commit_info"] = _commit_info(self.run.environment.commit)
        told = output_json["benchmarks"]
        standing = {f"test_trial[{id}]" for id in self.run.ran} - {case["name"] for case in told}
        told += [case for case in _cases(self.file) if case["name"] in standing]
        try:
            self.run.results.check()
            files.replace(self.file, safe_dumps(output_json, ensure_ascii=True, indent=4))
        except UserError as error:
            self.error = error

    def pytest_exception_interact(self, call: pytest.CallInfo[object]) -> None:
        if call.excinfo is not None and isinstance(call.excinfo.value, UserError):
            self.error = call.excinfo.value
            raise KeyboardInterrupt

    def pytest_configure(self, config: pytest.Config) -> None:
        self.plugins = config.pluginmanager

    def pytest_keyboard_interrupt(self) -> None:
        self.interrupted = True
        self.plugins.unregister(name="terminalreporter")  # our own line says how to go on


def _commit_info(commit: str | None) -> dict[str, Any]:
    """A commit of environment.json, with the names of pytest-benchmark."""
    return {
        "id": "unversioned" if commit is None else commit.removesuffix("-dirty"),
        "time": None,
        "author_time": None,
        "dirty": commit is not None and commit.endswith("-dirty"),
        "project": "repro",
        "branch": "(unknown)",
    }


def _cases(file: Path) -> list[dict[str, Any]]:
    """The cases that a file of pytest-benchmark's holds, none where it is none."""
    try:
        return [case for case in datafile.load(file)["benchmarks"] if isinstance(case["name"], str)]
    except (datafile.NotAsDeclaredError, LookupError, TypeError):
        return []


def chosen(run: Run, expression: str) -> list[Trial]:
    """The run's trials whose cases match. Raises UserError where no case does, or pytest does not understand."""
    plugin = _Plugin(run)
    with contextlib.redirect_stderr(io.StringIO()):
        _go_through(plugin, expression, "--collect-only")
    return plugin.trials


def run_cases(run: Run, expression: str | None) -> int:
    """Runs the benchmark's cases and maps pytest's exit code to ours. pytest speaks on stderr."""
    return _go_through(_Plugin(run), expression)


def _go_through(plugin: _Plugin, expression: str | None, *more: str) -> int:
    import pytest

    for name in _NOT_FOR_CASES:
        os.environ.pop(name, None)
    with contextlib.redirect_stdout(sys.stderr), tempfile.TemporaryDirectory(prefix="repro-") as unused:
        code = pytest.main(
            [
                *(str(ROOT / "tests" / "benchmark" / name) for name in _IN_ORDER),
                f"--rootdir={ROOT}",
                f"--config-file={ROOT / 'pyproject.toml'}",
                f"--benchmark-json={os.devnull}",  # the plugin writes it
                f"--benchmark-storage=file://{unused}",  # which it makes, where people start a run
                "--benchmark-disable-gc",
                "--benchmark-quiet",
                "-p",
                "no:cacheprovider",
                "-p",
                "no:unraisableexception",  # which would drop a wish to stop, see preflight.py
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
    if code == pytest.ExitCode.USAGE_ERROR and expression is None:
        raise UserError(f"pytest goes through no cases in {ROOT}, see above: move the checkout to a plainer path")
    if code == pytest.ExitCode.USAGE_ERROR:
        raise UserError(f"-k {expression}: pytest does not understand this expression")
    return OK if code == pytest.ExitCode.OK else FAILED
