"""The benchmark as pytest-benchmark cases. `python -m repro` hands its driver to pytest. `pytest tests/benchmark` makes
the default run's, into the results folder REPRO_OUT or results/local. Other tests do not collect these cases."""

from __future__ import annotations

import os
from collections.abc import Generator
from pathlib import Path

import pytest
from replay import ReplayClock

from repro.cli import parser
from repro.commands.driver import Driver
from repro.commands.preflight import check_packages
from repro.commands.run import driver_of, parsed
from repro.console import INTERRUPTED, USAGE, UserError, say
from repro.record import Trial
from repro.run.parts_search import planned_searches

INI = Path(__file__).with_name("pytest.ini")


def driver_in(config: pytest.Config) -> Driver | None:
    return next((plugin for plugin in config.pluginmanager.get_plugins() if isinstance(plugin, Driver)), None)


class ByHand:
    """Ends a run that pytest was started for by hand: nobody else does."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Generator[None]:
        try:
            yield
        except KeyboardInterrupt:
            self.driver.interrupted = True
        try:
            session.exitstatus = self.driver.finish(session.exitstatus)
        except KeyboardInterrupt:
            say("interrupted: what is finished is kept; the same command resumes")
            session.exitstatus = INTERRUPTED
        except UserError as error:
            say(error)
            session.exitstatus = USAGE


def pytest_configure(config: pytest.Config) -> None:
    if config.inipath is None or not config.inipath.samefile(INI):
        return
    if driver_in(config) is not None:
        return
    out = os.environ.get("REPRO_OUT")
    try:
        check_packages("pytest", "pytest-benchmark")
        driver = driver_of(parsed(parser("run").parse_args([] if out is None else ["--out", out])))
    except UserError as error:
        raise pytest.UsageError(str(error) if out is None else f"REPRO_OUT={out}: {error}") from None
    config.pluginmanager.register(driver)
    config.pluginmanager.register(ByHand(driver))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    driver = driver_in(config)
    if driver is None:
        return True
    # pytest would report a file of no cases as one that was skipped.
    return True if collection_path.name == "test_searches.py" and not planned_searches(driver.run) else None


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    driver = driver_in(metafunc.config)
    assert driver is not None
    if "trial" in metafunc.fixturenames:
        metafunc.parametrize(
            "trial",
            [
                pytest.param(name, id=name, marks=pytest.mark.benchmark(group=_group(trial), timer=ReplayClock()))
                for name, (trial, _) in driver.run.measurements.items()
            ],
            indirect=True,  # what benchmark.json has of it is its name
        )
    if "searched" in metafunc.fixturenames:
        searches = planned_searches(driver.run)
        metafunc.parametrize("searched", searches.values(), ids=[*searches])
    if "cell" in metafunc.fixturenames:
        cells = driver.run.cells
        metafunc.parametrize("cell", cells, ids=[f"{cell.table}-{cell.model}-{cell.gpus}x{cell.gpu}" for cell in cells])


def _group(trial: Trial) -> str:
    projected = "" if trial.measured_on is None else ", projected"
    return f"{trial.recipe} {trial.scale}, {trial.count} x {trial.device}{projected}"


def pytest_report_teststatus(report: pytest.TestReport) -> tuple[str, str, str] | None:
    """No dots: the run reports each trial itself."""
    if report.when == "call" or report.skipped:
        return report.outcome, "", report.outcome.upper()
    return None


@pytest.fixture
def driver(request: pytest.FixtureRequest) -> Driver:
    found = driver_in(request.config)
    assert found is not None
    return found


@pytest.fixture
def trial(driver: Driver, request: pytest.FixtureRequest) -> tuple[Trial, int]:
    """A trial, and for the how manyth time it is measured."""
    return driver.run.measurements[request.param]


@pytest.fixture
def clock(request: pytest.FixtureRequest) -> ReplayClock:
    marker = request.node.get_closest_marker("benchmark")
    assert marker is not None
    return marker.kwargs["timer"]
