"""`repro export`: the best settings as files, and a train.py that trains with them, stops, and goes on."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from repro import models
from repro.export.configurations import configurations
from repro.export.script import SCRIPT, script
from repro.export.training import Training
from repro.machine.support import compiles
from repro.measure.launcher import ForkServer
from repro.measure.server import Job
from repro.paper.settings import Settings

Run = Callable[..., tuple[list[Any], dict[str, Any]]]


def training(recipe: str, settings: str, world: int = 1) -> Training:
    """The tiny twin of a recipe on the CPU, in more than one micro batch."""
    found, wanted = models.find(recipe, "tiny"), Settings.parse(settings)
    accumulation = found.batch_size // world // 4
    compiled = compiles(found, wanted)
    return Training(found, wanted, "cpu", world, 1, 4, accumulation, compiled, False, 0.1, "measured", "a run")


def exported(training: Training, folder: Path) -> Path:
    for name, text in {**configurations(training), SCRIPT: script(training)}.items():
        (folder / name).write_text(text)
    return folder / SCRIPT


@pytest.fixture(scope="module")
def run(fork_server: ForkServer, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Runs a train.py, as torchrun would, in processes that are forked with torch imported. Returns what ended each of
    them, an exit code or an error, and its training.json."""

    def call(file: Path, out: Path, *words: str, world: int = 1, **stops: int) -> tuple[list[Any], dict[str, Any]]:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        arguments = {"script": str(file), "words": [*words, "--out", str(out)], "port": port, **stops}
        log = tmp_path_factory.mktemp("training") / "log"
        outcomes = fork_server.call(Job("tests.training:run_exported", arguments, world, str(log), timeout=120))
        ends = [outcome.value if outcome.status == "ok" else outcome.error for outcome in outcomes]
        kept = out / "training.json"
        return ends, json.loads(kept.read_text()) if kept.exists() else {"log": log.read_text()}

    return call


ENGINES = [
    ("pythia-160m", "naive", 1, "DistributedDataParallel"),
    ("vit", "checkpointing", 2, "DistributedDataParallel"),
    ("pythia-160m", "zero_1", 1, "DeepSpeedEngine(DeepSpeedZeroOptimizer)"),
    ("vit", "zero_2", 2, "DeepSpeedEngine(DeepSpeedZeroOptimizer)"),
    ("pythia-1b", "zero_3", 1, "DeepSpeedEngine(DeepSpeedZeroOptimizer_Stage3)"),
    ("pythia-1b", "checkpointing+zero_3+offloading", 1, "DeepSpeedEngine(DeepSpeedZeroOptimizer_Stage3)"),
    ("pythia-160m", "fsdp_2", 1, "FSDPModule"),
    ("pythia-1b", "fsdp_3", 2, "FSDPModule"),
    ("gan", "checkpointing+fsdp_3+offloading", 1, "FSDPModule"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("recipe", "settings", "world", "wrapper"), ENGINES, ids=[each[1] for each in ENGINES])
def test_a_killed_training_goes_on_to_the_same_losses(
    run: Run, tmp_path: Path, recipe: str, settings: str, world: int, wrapper: str
) -> None:
    file = exported(training(recipe, settings, world), tmp_path)
    ends, whole = run(file, tmp_path / "whole", "--max-steps", "20", world=world)
    assert ends == [0] * world, whole
    assert whole["wrapper"] == wrapper
    assert len(whole["losses"]) == 20
    assert whole["losses"][-1] != whole["losses"][0]

    again = ("--max-steps", "20", "--checkpoint-every", "5")
    ends, _ = run(file, tmp_path / "killed", *again, world=world, kill_at=13)
    assert all("SIGKILL" in end for end in ends)
    ends, resumed = run(file, tmp_path / "killed", *again, world=world)
    assert (ends, resumed["first_step"]) == ([0] * world, 10)
    assert resumed["losses"] == whole["losses"][10:]
