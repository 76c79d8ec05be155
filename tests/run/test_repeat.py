"""`run --repeat N`: each trial measured several times, in fresh processes, and how far it is off itself."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from repro.measure.launcher import ForkServer
from repro.record import Record, Trial
from repro.run import run as running
from repro.run.plan import Options
from repro.run.records import history
from repro.run.run import Run
from repro.run.spread import spreads, summary
from tests.support.command_line import process, record, repro, results_folder, trial_lines

THRICE = Options(("vit", "convnext"), "naive", "tiny", (1,), repeat=3)


@pytest.fixture
def starts(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The starts of the stack of a run whose trials run at once: one more where it ends its fork server."""
    found = [1]
    monkeypatch.setattr(ForkServer, "close", lambda server: found.append(found[-1] + 1))

    def at_once(trial: Trial, *_: Any, **__: Any) -> Record:
        status: Any = "ok" if trial.recipe == "vit" else "out_of_memory"
        days = 1.0 if status == "ok" else None
        known: dict[str, Any] = {"scale": "tiny", "status": status, "stack_started": float(found[-1])}
        return record(trial.recipe, trial.settings, days, "cpu", 1, **known)

    monkeypatch.setattr(running, "run_trial", at_once)
    return found


def measure(run: Run, most: int = 9) -> int:
    """Go through the cases of a run as its driver does; return how many were measured."""
    measured = 0
    for trial, number in run.measurements.values():
        if run.finished(trial, number) is None and measured < most:
            assert run.record(trial, number=number) is not None
            measured += 1
    return measured


def test_each_pass_is_of_a_fresh_server_and_what_does_not_fit_is_tried_once(starts: list[int], tmp_path: Path) -> None:
    with Run(tmp_path, THRICE, []) as run:
        assert [*run.measurements] == [
            *("vit/tiny/1xcpu/naive", "convnext/tiny/1xcpu/naive"),
            *("vit/tiny/1xcpu/naive#2", "convnext/tiny/1xcpu/naive#2"),
            *("vit/tiny/1xcpu/naive#3", "convnext/tiny/1xcpu/naive#3"),
        ]
        assert run.seconds.keys() == run.measurements.keys()
        assert measure(run) == 4
        assert run.waiting == []
    of = {id: [each.stack_started for each in history(tmp_path) if id in each.id] for id in ("vit", "convnext")}
    assert of == {"vit": [1.0, 2.0, 3.0], "convnext": [1.0]}


def test_a_run_that_goes_on_measures_only_what_is_missing(starts: list[int], tmp_path: Path) -> None:
    with Run(tmp_path, THRICE, []) as run:
        assert measure(run, most=3) == 3
    with Run(tmp_path, THRICE, []) as run:
        assert [trial.recipe for trial in run.waiting] == ["vit"]
        assert [name for name, seconds in run.seconds.items() if seconds] == ["vit/tiny/1xcpu/naive#3"]
        assert measure(run) == 1
    assert len([each for each in history(tmp_path) if each.recipe == "vit"]) == 3
    with Run(tmp_path, Options(("vit",), "naive", "tiny", (1,)), []) as run:
        assert run.waiting == [], "once is less than three times"


def of_starts(settings: str, *days: float) -> list[Record]:
    times = enumerate(days, 1)
    return [record("vit", settings, each, "cpu", 1, scale="tiny", stack_started=float(at)) for at, each in times]


def test_the_spread_is_that_of_the_medians_of_starts_and_of_what_ran_undisturbed() -> None:
    twice = of_starts("naive", 10.0, 11.0)
    same_start = record("vit", "naive", 14.0, "cpu", 1, scale="tiny", stack_started=2.0)
    [found] = spreads([*twice, same_start, *of_starts("free_lunch", 1.0)])
    assert [step / found.steps[0] for step in found.steps] == pytest.approx([1.0, 1.25])
    assert found.relative == pytest.approx(0.25 / 1.125)
    disturbed = record("vit", "naive", 99.0, "A100", 1, stack_started=3.0, gpu_state=[{"processes": 2}])
    assert spreads([disturbed, *of_starts("free_lunch", 1.0)]) == ()


def test_a_report_gives_the_spread_of_each_trial_the_largest_and_the_middle_one(tmp_path: Path) -> None:
    records = [*of_starts("naive", 10.0, 10.0, 11.0), *of_starts("free_lunch", 5.0, 5.1, 5.0)]
    folder = results_folder(tmp_path / "run", *records)
    done = repro("report", str(folder))
    assert done.returncode == 0, done.stderr
    sentence = (
        "Run to run, in 2 trials measured from 3 starts of the stack, the slowest step is off the fastest by at most "
        "10.0% of their median, 6.0% in the median."
    )
    assert sentence in " ".join(done.stdout.split())
    page = (folder / "report.md").read_text()
    assert "Run-to-run variation" in page
    assert re.search(r"vit, 1 x cpu, free_lunch: 2\.0% of [0-9.]+ s, the median of 3 starts", page)
    assert "starts of the stack" not in summary(())


@pytest.mark.slow
@pytest.mark.nightly  # it starts the stack three times
def test_a_real_run_repeats_in_fresh_processes_and_says_how_far_they_are_apart(tmp_path: Path) -> None:
    words = ["--models", "vit", "--methods", "naive", "--processes", "1", "--out", str(tmp_path), "--repeat", "3"]
    done = process(*words, CUDA_VISIBLE_DEVICES="")
    assert done.returncode == 0, done.stderr
    assert "1 trial, each 3 times; about" in done.stderr
    assert "[3/3] vit/tiny/1xcpu/naive#3: " in done.stderr
    assert "Run to run, in 1 trial measured from 3 starts" in " ".join(done.stdout.split())
    records = history(tmp_path)
    assert [each.id for each in records] == ["vit/tiny/1xcpu/naive"] * 3
    assert len({each.stack_started for each in records}) == 3
    process(*words, CUDA_VISIBLE_DEVICES="")
    assert len(trial_lines(tmp_path)) == 3
