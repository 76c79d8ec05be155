"""A training that is started twice, waits for others, loses a checkpoint or its disk, and is started by SLURM."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from repro.console import UserError
from repro.train.kept import STOPPED
from repro.train.ranks import place_of
from tests.export.test_export import exported, training
from tests.support.command_line import PATIENCE, ROOT, process

pytestmark = pytest.mark.slow
SLURM = {
    "SLURM_JOB_ID": "7",
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_NUM_TASKS": "3",
    "SLURM_STEP_NUM_NODES": "2",
    "SLURM_STEP_NODELIST": "node[1-2]",
    "SLURM_STEP_TASKS_PER_NODE": "2,1",
    "SLURM_PROCID": "2",
    "SLURM_LOCALID": "0",
    "SLURM_NODEID": "1",
}


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """The train.py of the tiny ViT, in a folder of its own."""
    (tmp_path / "out").mkdir()
    return exported(training("vit", "naive"), tmp_path / "out")


def start(script: Path, *words: str, **variables: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(script), *words],
        env={**os.environ, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1", **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(script: Path, *words: str, **variables: str) -> tuple[int, str, str]:
    running = start(script, *words, **variables)
    output, errors = running.communicate(timeout=PATIENCE)
    return running.returncode, output, errors


def pair(port: int, rank: int) -> dict[str, str]:
    """The variables of one of two ranks on this machine, as torchrun sets them."""
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": "2",
        "LOCAL_WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }


@pytest.fixture
def port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


# --- Ranks ---


def test_ranks_come_from_torchrun_then_from_srun_and_else_are_alone() -> None:
    assert place_of(SLURM).world == 3
    assert (place_of(SLURM).rank, place_of(SLURM).local, place_of(SLURM).locals) == (2, 0, 1)
    assert place_of(SLURM | {"SLURM_NODEID": "0", "SLURM_PROCID": "1", "SLURM_LOCALID": "1"}).locals == 2
    assert (place_of(SLURM).host, place_of(SLURM).serve) == ("node1", False)
    both = place_of(SLURM | pair(29500, 1))
    assert (both.rank, both.world, both.host) == (1, 2, "127.0.0.1")
    assert place_of({"SLURM_JOB_ID": "7", "SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1"}).world == 1
    assert place_of({}).world == 1
    with pytest.raises(UserError, match="WORLD_SIZE=: expected a whole number"):
        place_of({"RANK": "0"})


def test_two_tasks_of_srun_train_together(script: Path, port: int) -> None:
    common = SLURM | {
        "SLURM_STEP_NUM_TASKS": "2",
        "SLURM_STEP_NUM_NODES": "1",
        "SLURM_STEP_TASKS_PER_NODE": "2",
        "SLURM_NODEID": "0",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
    script = exported(training("vit", "naive", 2), script.parent)
    ranks = [
        start(script, "--max-steps", "2", **common | {"SLURM_PROCID": str(rank), "SLURM_LOCALID": str(rank)})
        for rank in (0, 1)
    ]
    outputs = [rank.communicate(timeout=PATIENCE) for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], outputs
    assert "vit with DistributedDataParallel on 2 x cpu" in outputs[0][0]
    assert outputs[1][0] == ""


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
def test_a_rank_that_waits_says_for_what_and_ends_at_once(script: Path, port: int, ending: signal.Signals) -> None:
    waiting = start(script, **pair(port, 0))
    assert waiting.stderr is not None
    assert waiting.stderr.readline() == f"repro: waiting for 1 of 2 processes at 127.0.0.1:{port}\n"
    waiting.send_signal(ending)
    _, errors = waiting.communicate(timeout=10)
    assert waiting.returncode in (130, -signal.SIGTERM)
    assert errors == ""


def test_ranks_that_do_not_come_end_the_wait_in_one_line(script: Path, port: int, tmp_path: Path) -> None:
    shorter = script.read_text().replace("import torch\n", "import torch\nimport repro.train.ranks as ranks\n", 1)
    script.write_text(shorter.replace("\nBATCH = ", "\nranks._LIMIT = 1.0\nBATCH = ", 1))
    code, _, errors = finish(script, **pair(port, 1))
    assert code == 2
    assert errors.count("\n") == 1
    assert f"the first process did not come to 127.0.0.1:{port} within" in errors


# --- One training a folder ---


def test_a_second_training_in_a_folder_is_refused_and_names_the_first(script: Path) -> None:
    first = start(script, "--max-steps", "1000")
    assert first.stdout is not None
    assert "from step 0" in first.stdout.readline()
    code, _, errors = finish(script, "--max-steps", "2")
    assert code == 2
    assert f"has a training, of process {first.pid} on " in errors
    first.send_signal(signal.SIGHUP)
    first.communicate(timeout=PATIENCE)
    assert first.returncode == STOPPED, "SIGHUP saves as SIGTERM does"


def test_a_reader_that_closes_the_output_does_not_end_the_training(script: Path) -> None:
    running = start(script, "--max-steps", "25")
    assert running.stdout is not None
    running.stdout.readline()
    running.stdout.close()
    assert running.wait(timeout=PATIENCE) == 0
    assert (script.parent / "checkpoints" / "step-000000025").is_dir()


# --- Checkpoints ---


def torn_file(folder: Path) -> None:
    os.truncate(folder / "model.pt", 1000)


def zeros(folder: Path) -> None:
    with (folder / "model.pt").open("r+b") as file:
        length = os.fstat(file.fileno()).st_size
        file.seek(length // 2)
        file.write(bytes(length - length // 2))


def empty_rank(folder: Path) -> None:
    (folder / "rank-0.pt").write_bytes(b"")


def emptied(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.mkdir()


def test_torn_checkpoints_are_passed_over_and_named(script: Path) -> None:
    assert finish(script, "--max-steps", "2")[0] == 0
    there = script.parent / "checkpoints"
    (there / "step-best").mkdir()
    shutil.copytree(there / "step-000000002", there / "step-000000009 (copy)")
    torn = [there / f"step-00000000{step}" for step in (3, 4, 5, 6)]
    for folder, spoil in zip(torn, (torn_file, zeros, empty_rank, emptied), strict=True):
        shutil.copytree(there / "step-000000002", folder)
        spoil(folder)
    code, output, errors = finish(script, "--max-steps", "7")
    assert code == 0, errors
    assert "from step 2 to 7" in output
    assert all(f"{folder} is passed over: " in errors for folder in torn), errors
    assert errors.count("\n") == len(torn)


def test_no_whole_checkpoint_ends_it_in_one_line(script: Path) -> None:
    assert finish(script, "--max-steps", "1")[0] == 0
    torn_file(script.parent / "checkpoints" / "step-000000001")
    code, _, errors = finish(script, "--max-steps", "2")
    assert code == 2
    assert "is whole: move them away to begin anew" in errors
    assert "Traceback" not in errors


def test_a_full_disk_costs_a_checkpoint_and_no_more(script: Path, tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    words = f"{sys.executable} {script} --max-steps 12 --checkpoint-every 3 --out {small}"
    shell = f"mount -t tmpfs -o size=5M tmpfs {small} && {words}; echo code $?; ls {small}/checkpoints"
    done = subprocess.run(
        ["unshare", "-m", "bash", "-c", shell],
        env={**os.environ, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    if "unshare" in done.stderr or "mount:" in done.stderr:
        pytest.skip(f"file systems cannot be mounted here: {done.stderr.strip()}")
    assert "code 1" in done.stdout, "the last step's checkpoint is missing"
    assert "step 12: loss" in done.stdout
    lines = done.stderr.splitlines()
    assert lines
    assert all("no checkpoint was saved, no space left in " in line for line in lines), done.stderr
    assert "part" not in done.stdout.split("code 1")[1].split()


# --- What is exported ---


def test_export_of_a_folder_needs_no_model_named_again(tmp_path: Path) -> None:
    run = tmp_path / "run"
    model = ["--models", "timm:resnet10t:num_classes=10@images=1M,batch=8", "--scale", "paper"]
    measured = process("run", *model, "--methods", "naive", "--processes", "1", "--steps", "1", "--out", str(run))
    assert measured.returncode == 0, measured.stderr
    assert "auto_map" not in (run / "recipes.json").read_text()
    done = process("export", str(run), "--out", str(tmp_path / "out"))
    assert done.returncode == 0, done.stderr
    script = tmp_path / "out" / "train.py"
    code, _, errors = finish(script, "--max-steps", "3", "--checkpoint-every", "1")
    assert code == 0, errors
    assert json.loads((script.parent / "training.json").read_text())["recipe"].startswith("resnet10t-")
    assert "from step 3" in finish(script, "--max-steps", "4")[1]


def test_export_asks_for_the_file_of_a_model_in_python_alone(tmp_path: Path) -> None:
    from tests.export.test_export import MINE

    file = tmp_path / "mine.py"
    file.write_text(MINE)
    run, model = tmp_path / "run", f"{file}@steps=50,batch=8"
    words = ["--methods", "naive", "--processes", "1", "--steps", "1", "--out", str(run)]
    measured = process("run", "--models", model, *words)
    assert measured.returncode == 0, measured.stderr
    refused = process("export", str(run), "--out", str(tmp_path / "out"))
    assert refused.returncode == 2
    assert "name its file, as --models FILE.py" in refused.stderr
    done = process("export", str(run), "--models", str(file), "--out", str(tmp_path / "out"))
    assert done.returncode == 0, done.stderr


def test_training_without_the_stack_says_what_to_install(tmp_path: Path) -> None:
    code = "import sys; sys.modules['torch'] = None\nimport repro.installation as i; i.installed = lambda name: None\n"
    done = subprocess.run(
        [sys.executable, "-c", code + "from repro.train import train"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "training needs the stack (torch is missing): " in done.stderr
