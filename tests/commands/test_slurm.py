"""The batch script that `repro slurm` prints; tests/measure/test_nodes.py runs one."""

from __future__ import annotations

import shlex
import subprocess
import time
from pathlib import Path

from tests.support.command_line import ROOT, program, refusal, repro, slow_imports

JOB = ["slurm", "--gpus-per-node", "4", "--time", "4h"]


def printed(*words: str, cwd: Path = ROOT, **variables: str) -> str:
    done = repro(*words, cwd=cwd, **variables)
    assert (done.returncode, done.stderr) == (0, "")
    subprocess.run(["bash", "-n"], input=done.stdout, text=True, check=True)
    return done.stdout


def ran(script: str, folder: Path, **variables: str) -> tuple[int, list[str], str]:
    """The exit code of a batch script, the words that it gives srun, and what it says, where SLURM starts nothing. The
    variables that its tasks would have are in the file `exported`."""
    said = folder / "said"
    program(
        folder / "srun",
        f'#!/usr/bin/env bash\nprintf "%s\\0" "$@" > {shlex.quote(str(said))}\n'
        f"[[ ${{SLURM_EXPORT_ENV:-ALL}} == ALL ]] && export -p > {shlex.quote(str(folder / 'exported'))}\n"
        'exit "${ENDS:-0}"\n',
    )
    environment = {"PATH": f"{folder}:/usr/bin:/bin", "PYTHONPATH": str(ROOT), **variables}
    done = subprocess.run(["bash"], input=script, env=environment, capture_output=True, text=True)
    return done.returncode, said.read_text().split("\0")[:-1] if said.exists() else [], done.stderr


def test_it_asks_for_what_was_named_and_to_be_queued_again() -> None:
    names = ["--partition", "gpu,long", "--account", "lab-7", "--qos", "low", "--constraint", "h100&ib"]
    script = printed(*JOB, "--nodes", "2", "--cpus-per-node", "32", *names, "--", "run")
    asked = [line.removeprefix("#SBATCH --") for line in script.splitlines() if line.startswith("#SBATCH ")]
    assert asked == [
        *("job-name=repro", "nodes=2", "ntasks-per-node=1", "gpus-per-node=4", "cpus-per-task=32", "time=04:00:00"),
        *("output=repro-%j.out", "open-mode=append", "signal=TERM@120"),
        *("partition=gpu,long", "account=lab-7", "qos=low", "constraint=h100&ib", "requeue"),
    ]
    before = script.splitlines()[: script.splitlines().index("#SBATCH --requeue")]
    assert all(line.startswith("#") for line in before), "sbatch reads no further than the first command"


def test_on_one_node_it_needs_no_more_than_gpus_and_a_time(tmp_path: Path) -> None:
    script = printed("slurm", "--gpus-per-node", "1", "--time", "90m", "--", "run", "--models", "vit")
    assert "#SBATCH --nodes=1\n" in script
    assert "#SBATCH --time=01:30:00\n" in script
    code, words, _ = ran(script, tmp_path)
    assert code == 0
    assert words[:4] == ["--nodes=1", "--ntasks=1", "--ntasks-per-node=1", "--kill-on-bad-exit=0"]


def test_every_word_reaches_the_run_and_the_budget_ends_before_the_job(tmp_path: Path) -> None:
    folder = tmp_path / "it's a $(touch planted) folder"
    folder.mkdir()
    typed = ["run", "--models", "vit", "--out", "a 'b' $HOME `c` \\ \u00e9", "--", "-k", "naive and not (x)"]
    script = printed(*JOB, "--nodes", "2", "--", *typed, cwd=folder)
    end = int(time.time()) + 3600
    code, words, _ = ran(script, tmp_path, SLURM_JOB_END_TIME=str(end))
    assert code == 0
    assert words[-len(typed) - 2 : -len(typed) + 1] == ["run", "--budget", budget := words[-len(typed)]]
    assert words[-len(typed) + 1 :] == typed[1:]
    assert 3600 - 300 - 30 < int(budget.removesuffix("s")) <= 3600 - 300
    assert not [*folder.iterdir()]
    _, words, _ = ran(script, tmp_path)
    budget = words[-len(typed)]
    assert 4 * 3600 - 300 - 30 < int(budget.removesuffix("s")) <= 4 * 3600 - 300, "an older SLURM does not say it"


def test_a_training_has_a_task_for_each_gpu_and_is_queued_again(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("")
    script = printed(*JOB, "--nodes", "2", "--", "train.py", "--checkpoint-every", "30m", cwd=tmp_path)
    assert "#SBATCH --ntasks-per-node=4\n" in script
    said = tmp_path / "requeued"
    program(tmp_path / "scontrol", f'[ "$1" = show ] || echo "$@" > {shlex.quote(str(said))}')
    code, words, _ = ran(script, tmp_path, SLURM_JOB_NODELIST="a,b", SLURM_JOB_ID="7", ENDS="75")
    assert (code, said.read_text()) == (75, "requeue 7\n")
    assert words[:3] == ["--nodes=2", "--ntasks=8", "--ntasks-per-node=4"]
    assert words[-3:] == ["train.py", "--checkpoint-every", "30m"]
    task = {"SLURM_PROCID": "5", "SLURM_LOCALID": "1", "PATH": "/usr/bin:/bin"}
    shown = ["env"]
    done = subprocess.run([*words[4:8], *shown], env=task, capture_output=True, text=True, check=True)
    assert {"RANK=5", "LOCAL_RANK=1", "WORLD_SIZE=8", "LOCAL_WORLD_SIZE=4"} <= set(done.stdout.splitlines())


def test_tasks_get_the_scripts_variables_where_the_job_was_submitted_with_none(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("")
    program(tmp_path / "scontrol", "echo first")
    for job in ("run",), ("train.py",):
        script = printed(*JOB, "--", *job, cwd=tmp_path)
        for exported in ("NONE", "NIL", "HOME,PATH"):
            (tmp_path / "exported").unlink(missing_ok=True)
            variables = {"SLURM_JOB_NODELIST": "first", "SLURM_JOB_ID": "7", "SLURM_EXPORT_ENV": exported}
            assert ran(script, tmp_path, **variables)[0] == 0
            seen = (tmp_path / "exported").read_text()
            assert " PATH=" in seen
            if job == ("train.py",):
                assert ' MASTER_ADDR="first"' in seen
                assert ' MASTER_PORT="20007"' in seen


def test_a_job_that_is_about_to_end_starts_no_run(tmp_path: Path) -> None:
    code, words, said = ran(printed(*JOB, "--", "run"), tmp_path, SLURM_JOB_END_TIME=str(int(time.time()) + 200))
    assert (code, words, said) == (1, [], "the job ends within 300 s, too soon for a run\n")


def test_it_is_started_by_its_front_door_where_it_was_called_by_that() -> None:
    script = printed(*JOB, "--", "run", REPRO_COMMAND="'/my place/run_all.sh'")
    assert "\n'/my place/run_all.sh' --version >/dev/null\n" in script
    assert "    '/my place/run_all.sh' run --budget" in script


def test_a_line_that_is_not_slurms_is_refused() -> None:
    line = refusal(*JOB, "--partition", "gpu\n#SBATCH --wrap=x", "--", "run")
    assert "expected a name as SLURM has them" in line


def test_it_answers_without_what_is_slow_to_import() -> None:
    assert slow_imports(*JOB, "--", "run") == set()
