"""What a launcher leaves to a run that it starts, measured for real on this CPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.command_line import ROOT

# A trial of DeepSpeed's on two processes: it asks mpirun's, Azure's and SageMaker's variables for its rank.
ZERO = ["--models", "pythia-1b", "--methods", "all", "--processes", "2", "--steps", "1"]
ZERO += ["-k", "lunch+zero_1 and not offloading and not checkpointing"]
OF_A_LAUNCHER = {
    **{f"OMPI_COMM_WORLD_{name}": number for name, number in (("RANK", "0"), ("SIZE", "1"), ("LOCAL_RANK", "0"))},
    **dict.fromkeys(("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_SIZE", "SLURM_PROCID"), "3"),
    "MASTER_ADDR": "192.0.2.1",
    "MASTER_PORT": "1",
    "AZUREML_EXPERIMENT_ID": "an experiment",
    "DS_ACCELERATOR": "cuda",
}


def test_a_trial_has_none_of_its_launcher_s_variables(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "repro", *ZERO, "--out", str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": "", **OF_A_LAUNCHER},
        capture_output=True,
        text=True,
    )
    [record] = map(json.loads, (tmp_path / "trials.jsonl").read_text().splitlines())
    assert (record["status"], record["reason"]) == ("ok", ""), done.stderr
    assert record["wrapper"].startswith("DeepSpeedEngine")
    assert "DS_ACCELERATOR" not in json.loads((tmp_path / "environment.json").read_text())["variables"]
