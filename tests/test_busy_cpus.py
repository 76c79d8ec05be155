"""Others on the CPUs while something is timed there: how many of them they kept busy, and who tells."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from repro.lab.report import Report
from repro.measure import memory
from repro.measure.interleaving import Scheduler
from repro.measure.launcher import ForkServer
from repro.measure.memory import OtherCpuUse
from repro.measure.server import Job
from repro.record import Trial
from repro.report.terminal import notes_on
from repro.run.progress import Progress
from repro.validity import cpu_disturbance
from tests.command_line import record
from tests.test_lab import trained


@contextmanager
def another_process() -> Iterator[None]:
    """One that computes all the time."""
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        busy.kill()
        busy.wait()


def test_another_process_keeps_a_cpu_busy_and_one_that_was_reaped_was_our_own() -> None:
    watched = OtherCpuUse()
    with another_process():
        time.sleep(1.0)
        beside = watched.others()
    reaped = watched.others()
    assert beside is not None
    assert reaped is not None
    assert beside > 0
    assert reaped < beside


def test_only_work_on_our_cpus_counts_by_whomever_it_was_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stat = tmp_path / "stat"
    monkeypatch.setattr(memory, "_STAT", stat)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {1, 3})
    monkeypatch.setattr(os, "sysconf", {"SC_CLK_TCK": 100}.__getitem__)
    seconds = iter((5.0, 15.0))
    monkeypatch.setattr(time, "monotonic", lambda: next(seconds))
    monkeypatch.setattr(memory, "_own", iter((1.0, 5.0)).__next__)
    nothing = "0 0 0 0 0 0 0 0 0 0"
    stat.write_text(f"cpu {nothing}\ncpu0 {nothing}\ncpu1 {nothing}\ncpu3 {nothing}\nintr 7\n")
    watched = OtherCpuUse()
    # user, nice, system, idle, waiting for the disk, interrupts, soft ones, stolen, and guests, who are users too
    others, ours = f"cpu0 {nothing.replace('0', '900')}", "cpu1 200 100 100 500 100 50 50 100 200 100"
    stat.write_text(f"{others}\n{ours}\ncpu3 300 0 0 0 0 0 0 0 0 0\n")
    assert watched.others() == pytest.approx((6.0 + 3.0 - 4.0) / 10)


@pytest.mark.parametrize("text", [None, "cpu 1 2 3\n"])
def test_a_system_that_does_not_tell_says_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str | None
) -> None:
    if text is not None:
        (tmp_path / "stat").write_text(text)
    monkeypatch.setattr(memory, "_STAT", tmp_path / "stat")
    assert OtherCpuUse().others() is None
    assert cpu_disturbance(None) is None


def test_the_fork_server_tells_it_of_a_job_but_not_of_one_that_takes_turns_with_others(
    fork_server: ForkServer, tmp_path: Path
) -> None:
    def others(scheduler: str | None) -> float | None:
        job = Job("tests.ranks:answer", {"value": 1}, 1, str(tmp_path / "log"), 60.0, scheduler=scheduler)
        [outcome] = fork_server.call(job)
        return outcome.busy_cpus

    output = others(None)
    assert output is not None
    assert 0 <= output <= len(os.sched_getaffinity(0))
    with Scheduler() as scheduler:
        assert others(scheduler.address) is None


def test_a_trial_beside_others_says_so_while_it_runs_and_in_its_report() -> None:
    known: dict[str, Any] = {"gpu": "cpu", "count": 1, "scale": "tiny", "wall_seconds": 12.3}
    alone, beside = (record("vit", "naive", 7.0, **known, busy_cpus=cpus) for cpus in (0.2, 0.97))
    trials = [Trial("vit", "tiny", settings, "cpu", 1) for settings in ("naive", "free_lunch")]
    with redirect_stderr(StringIO()) as said, Progress({trial.id: 10.0 for trial in trials}, 0.0) as bar:
        for trial, each in zip(trials, (alone, beside), strict=True):
            bar.tell(trial, each, earlier=False)
    lines = [line for line in said.getvalue().splitlines() if "MBS" in line]
    assert "other processes" not in lines[0]
    assert lines[1].endswith("(12.3 s), while other processes kept about 1.0 CPUs busy")
    assert notes_on(alone) == []
    [note] = notes_on(beside)
    assert note.startswith("other processes kept about 1.0 CPUs busy while it was built and timed: ")


def test_a_training_of_the_lab_beside_others_says_so_in_its_report() -> None:
    first, all = trained(1, 12.0, 12.0), trained(20, 12.0, 10.0)
    quiet = Report(first, all, None, None).text("markdown")
    assert "other processes" not in quiet
    output = Report(first, replace(all, busy_cpus=1.5), None, None).text("markdown")
    said = "While 20 epochs ran, other processes kept about 1.5 CPUs busy: it may have taken longer than alone."
    assert said in output
