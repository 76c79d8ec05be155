"""The benchmark as pytest-benchmark cases: `python -m repro` hands its run to them; without one there are none."""

from __future__ import annotations

from dataclasses import asdict

import pytest
from replay import ReplayClock

from repro.run.run import Run


def run_of(config: pytest.Config) -> Run | None:
    plugin = config.pluginmanager.get_plugin("repro-run")
    return plugin.run if plugin else None


def pytest_ignore_collect(config: pytest.Config) -> bool | None:
    return True if run_of(config) is None else None


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    run = run_of(metafunc.config)
    assert run is not None
    if "trial" in metafunc.fixturenames:
        metafunc.parametrize(
            "trial",
            [
                pytest.param(
                    asdict(trial),  # plain, so that benchmark.json can hold it
                    id=trial.id,
                    marks=pytest.mark.benchmark(
                        group=f"{trial.recipe} {trial.scale}, {trial.count} x {trial.device}", timer=ReplayClock()
                    ),
                )
                for trial in run.trials
            ],
        )
    if "cell" in metafunc.fixturenames:
        metafunc.parametrize(
            "cell", run.cells, ids=[f"{cell.table}-{cell.model}-{cell.gpus}x{cell.gpu}" for cell in run.cells]
        )


def pytest_report_teststatus(report: pytest.TestReport) -> tuple[str, str, str] | None:
    """No dots: the run tells each trial itself."""
    if report.when == "call" or report.skipped:
        return report.outcome, "", report.outcome.upper()
    return None


@pytest.fixture
def run(request: pytest.FixtureRequest) -> Run:
    found = run_of(request.config)
    assert found is not None
    return found


@pytest.fixture
def clock(request: pytest.FixtureRequest) -> ReplayClock:
    marker = request.node.get_closest_marker("benchmark")
    assert marker is not None
    return marker.kwargs["timer"]
