"""`pytest tests/benchmark`, by hand: measures the default run as `repro run` does."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from repro.cli import parser
from repro.commands.run import driver_of, parsed
from tests.support.command_line import PATIENCE, ROOT, process, trial_lines, wait_for

ONE = "test_trial and vit and naive and 1xcpu"


def started(*words: str, cwd: Path = ROOT, out: Path | str = "") -> subprocess.Popen[str]:
    """Starts pytest with these arguments as who has no run_all.sh does, on the CPU."""
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    variables |= {"CUDA_VISIBLE_DEVICES": "", "REPRO_OUT": str(out)}
    command, pipe = [sys.executable, "-m", "pytest", *words], subprocess.PIPE
    return subprocess.Popen(command, cwd=cwd, env=variables, stdout=pipe, stderr=pipe, text=True)


def by_hand(*words: str, cwd: Path = ROOT, out: Path | str = "") -> subprocess.CompletedProcess[str]:
    process = started(*words, cwd=cwd, out=out)
    stdout, stderr = process.communicate()
    return subprocess.CompletedProcess(words, process.returncode, stdout, stderr)


def collected(*words: str, cwd: Path = ROOT) -> set[str]:
    """The benchmark's cases that pytest would run."""
    done = by_hand(*words, "--collect-only", cwd=cwd, out="unmade")
    assert done.returncode in (0, pytest.ExitCode.NO_TESTS_COLLECTED), done.stdout + done.stderr
    return set(re.findall(r"test_(?:trial|cell)\[.+\]", done.stdout))


@pytest.mark.slow
def test_what_is_chosen_is_measured_reported_and_left_to_the_command(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    done = by_hand("tests/benchmark", "-k", ONE, out=folder)
    assert done.returncode == 0, done.stderr
    first, trial, last = done.stderr.splitlines()
    assert re.fullmatch(rf"repro: 1 trial; about \d+ s to go, by estimate; on the CPU, results in {folder}", first)
    assert trial.startswith("[1/1] vit/tiny/1xcpu/naive: ")
    assert last == f"repro: the report is {folder / 'report.html'}"
    assert "1 passed" in done.stdout
    assert "1 of 1 settings ran on this CPU at tiny scale: everything works here." in done.stdout
    assert "vit/tiny/1xcpu/naive" in (folder / "benchmark.json").read_text()

    again = process("run", "--out", str(folder), "--", "-k", ONE, CUDA_VISIBLE_DEVICES="")
    assert "repro: 1 trial, 1 of them done by an earlier run; " in again.stderr
    again = by_hand("tests/benchmark", "-k", ONE, out=folder)
    assert "repro: 1 trial, 1 of them done by an earlier run; " in again.stderr
    assert len(trial_lines(folder)) == 1


@pytest.mark.slow
def test_the_default_run_is_what_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    run = driver_of(parsed(parser("run").parse_args([]))).run
    assert str(run.results.folder) == "results/local"
    cases = {f"test_trial[{trial.id}]" for trial in run.trials}
    found = collected("tests/benchmark")
    assert {name for name in found if name.startswith("test_trial")} == cases
    assert len(found) == len(cases) + len(run.cells)
    assert collected(cwd=ROOT / "tests" / "benchmark") == found


@pytest.mark.slow
def test_whoever_runs_all_tests_measures_no_run() -> None:
    assert collected("tests", "--ignore-glob=tests/[!b]*") == set()


@pytest.mark.slow
def test_one_that_is_interrupted_keeps_what_is_finished(tmp_path: Path) -> None:
    run = started("tests/benchmark", "-k", "test_trial and vit", out=tmp_path)
    wait_for((tmp_path / "logs" / "server.log").is_file, run)
    run.send_signal(signal.SIGINT)
    _, output = run.communicate(timeout=PATIENCE)
    assert run.returncode == 130, output
    assert output.splitlines()[-1] == "repro: interrupted: what is finished is kept; the same command resumes"
    assert (tmp_path / "report.md").is_file()


def test_what_chooses_no_case_is_one_line(tmp_path: Path) -> None:
    done = by_hand("tests/benchmark", "-k", "nonsense", out=tmp_path / "run")
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("repro: -k nonsense: no case matches")
    assert not (tmp_path / "run").exists()
