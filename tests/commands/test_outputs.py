"""Output that goes away: what is measured is judged and written, whatever becomes of stdout and stderr."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import shlex
import signal
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from tests.support.command_line import PATIENCE, ROOT, record, results_folder, trial_lines

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""}
JUDGING = "--models vit --methods naive --processes 1 --budget 1s --require-comparison"
NOTHING_COMPARED = 3
FILES = ("trials.jsonl", "verdicts.json", "report.md", "report.html")
GONE = {
    "stdout closed": ">&-",
    "stderr closed": "2>&-",
    "all closed": "<&- >&- 2>&-",
    "stdout full": ">/dev/full",
    "stderr full": "2>/dev/full",
    "both full": ">/dev/full 2>&1",
    "no reader of stdout": "| true",
    "no reader of stderr": "2>&1 >/dev/null | true",
    "no reader of either": "2>&1 | true",
}
OTHERS = ("list gpus --format json", "predict --help", "compare results/cpu-2-cores results/cpu-2-cores")
READING = [(command, redirected) for command in ("claims", "nosuch") for redirected in GONE.values()]
READING += [(command, redirected) for command in OTHERS for redirected in (">/dev/full", "| true")]


def shell(arguments: str, redirected: str) -> subprocess.CompletedProcess[str]:
    """Runs `python -m repro` in a shell, with its streams redirected; its exit code is the command's."""
    line = f"{shlex.quote(sys.executable)} -m repro {arguments} {redirected}; exit ${{PIPESTATUS[0]}}"
    return subprocess.run(["bash", "-c", line], cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True)


def a_run(folder: Path) -> Path:
    return results_folder(folder, record("vit", "naive", 1.0, "cpu", 1, scale="tiny"))


def assert_judged(folder: Path) -> None:
    for name in FILES:
        assert (folder / name).is_file(), name
    assert len(json.loads((folder / "verdicts.json").read_text())) == 288
    assert "No number of the paper was measured" in (folder / "report.md").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("redirected", ["<&- >&- 2>&-", ">/dev/full 2>&1", "2>&1 | true"])
def test_a_run_is_judged_and_written_and_its_exit_code_stays(redirected: str, tmp_path: Path) -> None:
    folder = a_run(tmp_path / "run")
    done = shell(f"{JUDGING} --out {folder}", redirected)
    assert done.returncode == NOTHING_COMPARED, done.stderr
    assert "Traceback" not in done.stderr + done.stdout
    assert_judged(folder)


@pytest.mark.slow
def test_a_run_whose_output_cannot_be_written_says_so(tmp_path: Path) -> None:
    done = shell(f"{JUDGING} --out {a_run(tmp_path / 'run')}", ">/dev/full")
    assert "repro: cannot write the output: No space left on device\n" in done.stderr


@pytest.mark.slow
def test_trials_are_measured_after_the_reader_of_all_output_has_left(tmp_path: Path) -> None:
    done = shell(f"--models vit --methods naive --processes 1 --out {tmp_path}", "2>&1 | head -1")
    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch("repro: 1 trial; about .*\n", done.stdout)
    assert [json.loads(line)["status"] for line in trial_lines(tmp_path)] == ["ok"]
    assert_judged(tmp_path)


@pytest.mark.slow
def test_a_terminal_that_is_closed_ends_no_run_that_ignores_the_hang_up(tmp_path: Path) -> None:
    folder = a_run(tmp_path / "run")
    near, far = pty.openpty()

    def on_the_terminal() -> None:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    run = subprocess.Popen(
        [sys.executable, "-m", "repro", *JUDGING.split(), "--out", str(folder)],
        cwd=ROOT,
        env=ENVIRONMENT,
        stdin=far,
        stdout=far,
        stderr=far,
        preexec_fn=on_the_terminal,
    )
    os.close(far)
    assert os.read(near, 1)  # its first line
    os.close(near)
    assert run.wait(timeout=PATIENCE) == NOTHING_COMPARED
    assert_judged(folder)


@pytest.mark.parametrize(("command", "redirected"), READING)
def test_a_command_that_reads_ends_without_a_traceback(command: str, redirected: str) -> None:
    done = shell(command, redirected)
    assert "Traceback" not in done.stderr + done.stdout
    full = ">/dev/full" in redirected and not redirected.startswith("2")
    expected = 2 if full or command == "nosuch" else 3 if command.startswith("compare") else 0
    assert done.returncode == expected, done.stderr
    if full and redirected == ">/dev/full" and command != "nosuch":
        assert done.stderr == "repro: cannot write the output: No space left on device\n"


@pytest.mark.parametrize("number", ["-OO", "too old"])
def test_what_is_refused_before_all_else_needs_no_stderr(number: str) -> None:
    code = "import sys, runpy; sys.argv = ['repro']; runpy.run_module('repro', run_name='__main__')"
    if number == "too old":
        code = code.replace("sys.argv", "sys.version_info = (3, 10, 0); sys.argv")
    python = [sys.executable, "-OO"] if number == "-OO" else [sys.executable]
    for redirected in ("2>&-", "2>/dev/full"):
        done = subprocess.run(["bash", "-c", f'"$@" {redirected}', "sh", *python, "-c", code], cwd=ROOT)
        assert done.returncode == 2
