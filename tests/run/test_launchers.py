"""What a launcher leaves to a run that it starts: variables, signals and interfaces. Measured for real on this CPU."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.command_line import ROOT, one_line, process_of, trial_lines

pytestmark = pytest.mark.slow

# A trial of DeepSpeed's on two processes: it asks mpirun's, Azure's and SageMaker's variables for its rank.
ZERO = ["--models", "pythia-1b", "--methods", "all", "--processes", "2", "--steps", "1"]
CASE = ["--", "-k", "lunch+zero_1 and not offloading and not checkpointing"]
OF_A_LAUNCHER = {
    **{f"OMPI_COMM_WORLD_{name}": number for name, number in (("RANK", "0"), ("SIZE", "1"), ("LOCAL_RANK", "0"))},
    **dict.fromkeys(("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_SIZE", "SLURM_PROCID"), "3"),
    "MASTER_ADDR": "192.0.2.1",
    "MASTER_PORT": "1",
    "AZUREML_EXPERIMENT_ID": "an experiment",
    "DS_ACCELERATOR": "cuda",
}


def test_a_trial_needs_neither_its_launcher_s_variables_nor_its_signals(tmp_path: Path) -> None:
    """Some launchers and window managers ignore SIGCHLD, whereby nobody can wait for a process."""
    leaving = (
        "import os, signal, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN); "
        "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD, signal.SIGTERM]); "
        "os.execv(sys.argv[1], sys.argv[1:])"
    )
    prefix = [sys.executable, "-c", leaving]
    done = process_of(prefix, *ZERO, "--out", str(tmp_path), *CASE, cwd=ROOT, CUDA_VISIBLE_DEVICES="", **OF_A_LAUNCHER)
    [record] = map(json.loads, trial_lines(tmp_path))
    assert (record["status"], record["reason"]) == ("ok", ""), done.stderr
    assert record["wrapper"].startswith("DeepSpeedEngine")
    assert "DS_ACCELERATOR" not in json.loads((tmp_path / "environment.json").read_text())["variables"]


def test_a_library_that_another_one_hides_is_reported_with_the_variable(tmp_path: Path) -> None:
    libraries = tmp_path / "libraries"
    libraries.mkdir()
    hiding = ["gcc", "-shared", "-x", "c", "/dev/null", "-o", str(libraries / "libstdc++.so.6")]
    subprocess.run([*hiding, "-Wl,-soname,libstdc++.so.6"], check=True)
    output = refusal_of_run(tmp_path / "out", LD_LIBRARY_PATH=str(libraries))
    assert "undefined symbol" in output
    assert "; LD_LIBRARY_PATH is set, which may name another such library: unset it; " in output
    environment = (tmp_path / "out" / "environment.json").read_text()
    assert json.loads(environment)["variables"]["LD_LIBRARY_PATH"] == "set", "and no path of this machine"


@pytest.mark.nightly
def test_without_the_loopback_interface_nothing_is_measured(tmp_path: Path) -> None:
    alone = ["unshare", "--net", "--map-root-user"]
    if subprocess.run([*alone, "true"], capture_output=True).returncode:
        pytest.skip("no network namespace may be made here")
    output = refusal_of_run(tmp_path / "out", *alone)
    assert output.startswith("repro: the loopback interface, lo, is down: ")
    assert not (tmp_path / "out").exists()


def refusal_of_run(out: Path, *prefix: str, **variables: str) -> str:
    """The last line with which a run of one small trial ends before it begins."""
    wanted = ["--models", "vit", "--methods", "naive", "--out", str(out)]
    done = process_of(prefix, *wanted, cwd=ROOT, CUDA_VISIBLE_DEVICES="", **variables)
    assert (done.returncode, done.stdout) == (2, ""), done.stdout
    return done.stderr.splitlines()[-1]


NAIVE = ["run", "--models", "pythia-160m", "--methods", "naive", "--processes", "1", "--steps", "1"]


def started_with(shell: str, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return process_of(["sh", "-c", f'{shell}; exec "$@"', "sh"], *arguments, cwd=folder, CUDA_VISIBLE_DEVICES="")


@pytest.mark.parametrize("command", [NAIVE, ["probe"], ["lab"], ["compare", "--against", "torch==2.11.0"], ["report"]])
def test_in_a_folder_that_was_removed_a_command_that_writes_says_so(command: list[str], tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    done = started_with("rmdir ../here", tmp_path / "here", *command, "--out", "out")
    assert one_line(done) == (
        "repro: the current folder was removed: change to one that exists, and run the same command again\n"
    )


def test_in_a_folder_that_was_removed_what_reads_answers(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    assert started_with("rmdir ../here", tmp_path / "here", "table", "1").returncode == 0


def test_a_run_needs_no_home_no_stdin_and_no_others(tmp_path: Path) -> None:
    done = started_with("unset HOME; umask 077; exec <&-", tmp_path, *NAIVE, "--out", str(tmp_path / "out"))
    assert done.returncode == 0, done.stderr
    assert [json.loads(line)["status"] for line in trial_lines(tmp_path / "out")] == ["ok"]
