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
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from repro.lab import report as lab_report
from repro.measure import memory
from repro.measure.interleaving import Scheduler
from repro.measure.jobs import Job, RankOutcome
from repro.measure.launcher import ForkServer
from repro.measure.memory import CpuUse, busy_cpus
from repro.measure.rank import Rank
from repro.record import Trial
from repro.report.trials import notes_on
from repro.run.progress import Progress
from repro.validity import cpu_disturbance
from tests.lab.test_lab import trained
from tests.support.command_line import record


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
    watched = CpuUse()
    with another_process():
        time.sleep(1.0)
        beside = watched.read()
    reaped = watched.read()
    assert beside is not None
    assert reaped is not None
    others = busy_cpus([beside])
    assert others is not None
    assert others > 0
    assert beside[2] < 0.5
    assert reaped[2] > 0.1


def cpu(**seconds: float) -> Any:
    """What psutil tells of a CPU that has worked for so long."""
    known = dict.fromkeys(("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal", "guest"), 0.0)
    return SimpleNamespace(**known | seconds)


def test_only_work_on_our_cpus_counts_by_whomever_it_was_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    before, others = [cpu()] * 4, cpu(user=900.0)
    ours = cpu(user=2.0, nice=1.0, system=1.0, idle=5.0, iowait=1.0, irq=0.5, softirq=0.5, steal=1.0, guest=2.0)
    told = iter((before, [others, ours, others, cpu(user=3.0)]))
    monkeypatch.setattr(psutil, "cpu_times", lambda percpu: next(told))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {1, 3})
    seconds = iter((5.0, 15.0))
    monkeypatch.setattr(time, "monotonic", lambda: next(seconds))
    monkeypatch.setattr(memory, "_own", iter((1.0, 5.0)).__next__)
    assert CpuUse().read() == pytest.approx((10.0, 6.0 + 3.0, 4.0))


@pytest.mark.parametrize("told", [OSError(), []])
def test_a_system_that_does_not_tell_says_nothing(monkeypatch: pytest.MonkeyPatch, told: Any) -> None:
    def cpu_times(percpu: bool) -> Any:
        if isinstance(told, OSError):
            raise told
        return told

    monkeypatch.setattr(psutil, "cpu_times", cpu_times)
    assert CpuUse().read() is None
    assert busy_cpus([]) is None
    assert cpu_disturbance(None) is None


def test_what_all_ranks_of_a_machine_used_is_nobody_elses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3})
    monkeypatch.setattr(os, "sysconf", {"SC_CLK_TCK": 100}.__getitem__)
    assert busy_cpus([(10.0, 32.0, 10.0), (10.0, 32.0, 12.0)]) == pytest.approx(1.0, abs=0.01)
    assert busy_cpus([(10.0, 22.0, 10.0), (10.0, 22.0, 12.0)]) == 0.0


def test_a_tick_of_each_cpu_that_worked_for_a_rank_is_nobody_elses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    monkeypatch.setattr(os, "sysconf", {"SC_CLK_TCK": 100}.__getitem__)
    assert busy_cpus([(0.1, 0.22, 0.2)]) == 0.0, "two CPUs, each a tick more than it worked"
    assert busy_cpus([(10.0, 20.0, 10.0)]) == pytest.approx(1.0, abs=0.01)


def called(
    server: ForkServer, log: Path, call: str, scheduler: Scheduler | None = None, **arguments: Any
) -> RankOutcome:
    [outcome] = server.call(Job(call, arguments, 1, str(log), 60.0, scheduler=scheduler))
    assert outcome.status == "ok", outcome.error
    return outcome


def test_who_else_computes_counts_while_something_is_timed_and_not_before(
    fork_server: ForkServer, tmp_path: Path
) -> None:
    outcome = called(fork_server, tmp_path / "log", "tests.support.ranks:timed_beside_another", building=3.0, timed=1.0)
    assert outcome.busy_cpus is not None
    assert 0.5 < outcome.busy_cpus <= len(os.sched_getaffinity(0))


def test_a_job_that_times_nothing_or_takes_turns_with_others_says_nothing(
    fork_server: ForkServer, tmp_path: Path
) -> None:
    assert called(fork_server, tmp_path / "log", "tests.support.ranks:answer", value=1).busy_cpus is None
    timed: dict[str, Any] = {"building": 0.0, "timed": 0.1}
    of_turns = called(fork_server, tmp_path / "log", "tests.support.ranks:timed_beside_another", Scheduler(), **timed)
    assert of_turns.busy_cpus is None


def test_a_trial_watches_the_cpus_over_its_rounds_alone(fork_server: ForkServer, tmp_path: Path) -> None:
    began = time.monotonic()
    tiny: dict[str, Any] = {"recipe": "vit", "scale": "tiny", "settings": "naive", "tf32": False, "compiled": False}
    rounds: dict[str, Any] = {
        "micro_batch": 1,
        "accumulation": 2,
        "steps": 2,
        "check_extrapolation": False,
        "trained": 8,
    }
    outcome = called(fork_server, tmp_path / "log", "repro.measure.phases:measure", **tiny, **rounds)
    whole = time.monotonic() - began
    assert outcome.cpu_use is not None
    seconds, _, own = outcome.cpu_use
    measured = outcome.value
    timed = sum(sum(times) for clock in (measured.host, measured.synchronised) for times in clock.values())
    assert timed < seconds < whole - measured.warm_up
    assert own > 0
    assert outcome.busy_cpus is not None


def test_a_rank_on_a_gpu_tells_how_its_cpus_were_used(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[dict[str, Any]] = []
    rank = Rank(0, 1, 0, 1, cuda=True, report=lambda **said: told.append(said))
    with rank.timed():
        time.sleep(0.05)
    [report] = told
    assert report["cpu_use"][0] >= 0.05


def test_a_trial_beside_others_says_so_while_it_runs_and_in_its_report() -> None:
    known: dict[str, Any] = {"gpu": "cpu", "count": 1, "scale": "tiny", "wall_seconds": 12.3}
    alone, beside = (record("vit", "naive", 7.0, **known, busy_cpus=cpus) for cpus in (0.2, 0.97))
    trials = [Trial("vit", "tiny", settings, "cpu", 1) for settings in ("naive", "free_lunch")]
    bar = Progress({trial.id: 10.0 for trial in trials}, 0.0)
    with redirect_stderr(StringIO()) as said:
        for trial, each in zip(trials, (alone, beside), strict=True):
            bar.tell(trial, each, earlier=False)
    lines = [line for line in said.getvalue().splitlines() if "MBS" in line]
    assert "other processes" not in lines[0]
    assert lines[1].endswith("(12.3 s), while other processes kept about 1.0 CPUs busy")
    assert notes_on(alone) == []
    [note] = notes_on(beside)
    assert note.startswith("other processes kept about 1.0 CPUs busy while it was timed: ")


def test_a_training_of_the_lab_beside_others_says_so_in_its_report() -> None:
    first, all = trained(1, 12.0, 12.0), trained(20, 12.0, 10.0)
    quiet = lab_report.report(first, all, None, "markdown")
    assert "other processes" not in quiet
    output = lab_report.report(first, replace(all, busy_cpus=1.5), None, "markdown")
    assert "Meanwhile other processes kept about 1.5 CPUs busy: an epoch may have taken longer than alone." in output
