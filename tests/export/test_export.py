"""`repro export`: the best settings as files, and a train.py that trains with them, stops, and goes on."""

from __future__ import annotations

import ast
import dataclasses
import json
import socket
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from repro import models
from repro.console import visible
from repro.export.configurations import configurations
from repro.export.script import script
from repro.export.training import SCRIPT, Training
from repro.installation import installed
from repro.machine.support import Stack, compiles
from repro.measure import trial
from repro.measure.jobs import Job
from repro.measure.launcher import ForkServer
from repro.measure.trial import Bench
from repro.models import custom
from repro.models.specification import Fields, specification
from repro.money.spot import Interruptions, daly, expected
from repro.paper.settings import Settings
from repro.predict.descriptions import describe
from repro.record import Trial
from repro.train.kept import Kept
from tests.support.command_line import (
    KEPT,
    PATIENCE,
    ROOT,
    answer,
    record,
    refusal,
    repro,
    results_folder,
    slow_imports,
)
from tests.support.price_files import prices, spot_table

H100 = str(ROOT / "results" / "h100" / "text")
PREDICTED = ("export", "--predicted", "--models", "pythia-2.8b", "--gpu", "A100")
MINE = """
from torch import nn
from repro import Recipe, Text

class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, x):
        return x + self.linear(x).relu()

class Model(nn.Module):
    def __init__(self, layers, width):
        super().__init__()
        self.embed, self.head = nn.Embedding(512, width), nn.Linear(width, 512)
        self.blocks = nn.ModuleList(Block(width) for _ in range(layers))

    def forward(self, input_ids, labels):
        x = self.embed(input_ids)
        for block in self.blocks:
            x = block(x)
        return nn.functional.cross_entropy(self.head(x).flatten(0, 1), labels.flatten())

def recipe(scale="paper"):
    layers, width = (4, 128) if scale == "paper" else (2, 64)
    return Recipe(
        name='My " model', inputs=Text(64, 512), batch_size=16, training_steps=100,
        build=lambda custom_kernels, attention: Model(layers, width),
    )
"""
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
        outcomes = fork_server.call(
            Job("tests.support.training:run_exported", arguments, world, str(log), timeout=PATIENCE)
        )
        ends = [outcome.value if outcome.status == "ok" else outcome.error for outcome in outcomes]
        kept = out / "training.json"
        return ends, json.loads(kept.read_text()) if kept.exists() else {"log": log.read_text()}

    return call


ENGINES = [
    ("vit", "checkpointing", 2, "DistributedDataParallel"),
    ("vit", "zero_2", 2, "DeepSpeedEngine(DeepSpeedZeroOptimizer)"),
    ("pythia-1b", "fsdp_3", 2, "FSDPModule"),
]
ENGINES_AT_NIGHT = [
    ("pythia-1b", "checkpointing+zero_3+offloading", 1, "DeepSpeedEngine(DeepSpeedZeroOptimizer_Stage3)"),
    ("gan", "checkpointing+fsdp_3+offloading", 1, "FSDPModule"),
    ("pythia-160m", "naive", 1, "DistributedDataParallel"),
    ("pythia-160m", "zero_1", 1, "DeepSpeedEngine(DeepSpeedZeroOptimizer)"),
    ("pythia-1b", "zero_3", 1, "DeepSpeedEngine(DeepSpeedZeroOptimizer_Stage3)"),
    ("pythia-160m", "fsdp_2", 1, "FSDPModule"),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("recipe", "settings", "world", "wrapper"),
    [*ENGINES, *(pytest.param(*each, marks=pytest.mark.nightly) for each in ENGINES_AT_NIGHT)],
    ids=[each[1] for each in [*ENGINES, *ENGINES_AT_NIGHT]],
)
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


@pytest.mark.slow
def test_a_training_that_is_told_to_stop_saves_first_and_says_so_by_its_code(run: Run, tmp_path: Path) -> None:
    file = exported(training("pythia-160m", "zero_2", 2), tmp_path)
    ends, stopped = run(file, tmp_path, "--max-steps", "20", world=2, stop_at=7)
    assert (ends, len(stopped["losses"])) == ([75, 75], 7)
    ends, resumed = run(file, tmp_path, "--max-steps", "9", world=2)
    assert (ends, resumed["first_step"], len(resumed["losses"])) == ([0, 0], 7, 2)
    ends, _ = run(file, tmp_path, "--max-steps", "9")
    assert ends == [2], "it was written by two processes"
    assert [path.name for path in sorted((tmp_path / "checkpoints").iterdir())] == ["step-000000007", "step-000000009"]


@pytest.mark.slow
@pytest.mark.nightly  # it is about time
@pytest.mark.alone
def test_it_runs_what_was_measured_at_the_measured_pace(run: Run, fork_server: ForkServer, tmp_path: Path) -> None:
    packages = {name: version for name in ("torch", "transformers") if (version := installed(name))}
    bench = Bench(fork_server, Stack(packages, None), None, tmp_path)
    measured, trained = list[float](), list[float]()
    for number in range(4):  # the fastest of several, as a machine is not equally fast at all times
        found = trial.run_trial(Trial("roberta", "tiny", "naive", "cpu", 2, steps=5, micro_batch=8), bench)
        assert found.status == "ok", found.reason
        folder = tmp_path / str(number)
        assert repro("export", str(results_folder(folder / "run", found)), "--out", str(folder)).returncode == 0
        ends, kept = run(folder / SCRIPT, folder, "--max-steps", "10", world=2)
        assert (ends, kept["wrapper"]) == ([0, 0], found.as_run.wrapper)
        measured, trained = measured + found.derived.step_rounds, trained + kept["step_seconds"]
        if min(trained) == pytest.approx(min(measured), rel=0.1):
            break
    assert min(trained) == pytest.approx(min(measured), rel=0.1)


@pytest.mark.slow
def test_a_model_of_ones_own_goes_with_the_script(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(custom, "_REGISTERED", {})
    file = tmp_path / "mine.py"
    file.write_text(MINE)
    found = describe(specification(str(file), Fields()), tiny=True)
    custom.register(found)
    folder = tmp_path / "out"
    folder.mkdir()
    for name, contents in custom.exported(found.paper.id).items():
        (folder / name).write_text(contents)
    written = exported(training(found.paper.id, "naive"), folder)
    file.unlink()
    ends, kept = run(written, folder, "--max-steps", "2")
    assert (ends, kept["recipe"], len(kept["losses"])) == ([0], found.paper.id, 2)


# --- What is exported ---


def keywords(file: Path) -> dict[str, Any]:
    """The literals that a script calls `train` with, by name."""
    calls = [node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Call)]
    [call] = [each for each in calls if isinstance(each.func, ast.Name) and each.func.id == "train"]
    return {
        str(each.arg): ast.literal_eval(each.value) for each in call.keywords if isinstance(each.value, ast.Constant)
    }


def test_the_fastest_measured_settings_are_exported_as_they_ran(tmp_path: Path) -> None:
    done = repro("export", H100, "--models", "pythia-1b", "--out", str(tmp_path))
    assert done.stdout.startswith(
        f"Pythia-1B with free_lunch on 1 x H100, MBS 16, GAS 64: 24.8 s a step, 41 days (measured: {H100}).\n"
    )
    assert {path.name for path in tmp_path.iterdir()} == {"train.py", "training_arguments.json"}
    known = keywords(tmp_path / SCRIPT)
    assert (known["recipe"], known["settings"], known["micro_batch"]) == ("pythia-1b", "free_lunch", 16)
    assert (known["compiled"], known["tf32"], known["device"]) == (True, True, "H100")
    arguments = json.loads((tmp_path / "training_arguments.json").read_text())
    assert arguments["per_device_train_batch_size"] * arguments["gradient_accumulation_steps"] == 1024


def test_trials_with_methods_of_ones_own_are_left_out(tmp_path: Path) -> None:
    fast = record("vit", "free_lunch+chunked", 10)
    folder = results_folder(tmp_path / "run", record("vit", "free_lunch", 30), fast)
    done = repro("export", str(folder), "--out", str(tmp_path / "out"))
    assert done.stdout.startswith("ViT with free_lunch on 4 x A100, ")
    assert "left out 1 trial with methods of your own, which train.py does not have" in done.stderr


def test_predicted_settings_are_exported_without_a_measurement(tmp_path: Path) -> None:
    done = repro(*PREDICTED, "--gpus", "4", "--out", str(tmp_path))
    assert done.stdout.startswith("Pythia-2.8B with free_lunch+fsdp_2 on 4 x A100, MBS 8, GAS 32: ")
    assert " days (predicted: free_lunch+fsdp_2, on today's stack (transformers 5.23.0)).\n" in done.stdout
    assert "--standalone --nproc-per-node 4 " in done.stdout
    arguments = json.loads((tmp_path / "training_arguments.json").read_text())
    assert arguments["fsdp_config"]["reshard_after_forward"] is False


def test_a_script_is_a_data_set_and_a_call() -> None:
    written = script(training("pythia-1b", "zero_2"))
    assert len(written.splitlines()) <= 50
    assert "{" not in written.replace('{"input_ids"', "")


def test_a_train_py_that_is_there_is_not_replaced(tmp_path: Path) -> None:
    assert repro(*PREDICTED, "--out", str(tmp_path)).returncode == 0
    (tmp_path / SCRIPT).write_text("with my data\n")
    assert "train.py, which would be lost: name another folder" in refusal(*PREDICTED, "--out", str(tmp_path))
    assert (tmp_path / SCRIPT).read_text() == "with my data\n"


def test_what_a_results_folder_says_stays_text(tmp_path: Path) -> None:
    named = 'unknown GPU (A100"\n\nimport antigravity\n# \\)'
    folder = results_folder(tmp_path / "run", record("vit", "naive", 30, gpu=named))
    assert repro("export", str(folder), "--out", str(tmp_path / "out")).returncode == 0
    file = tmp_path / "out" / SCRIPT
    assert keywords(file)["device"] == visible(named)
    imports = [node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Import)]
    assert "antigravity" not in {alias.name for node in imports for alias in node.names}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "expected a results folder or --predicted, one of them"),
        ([H100, "--predicted"], "expected a results folder or --predicted, one of them"),
        ([str(KEPT)], "and vit: name one with --models"),
        ([H100, "--models", "pythia-2b"], "did you mean"),
        ([str(KEPT), "--models", "vit", "--gpus", "4"], "of vit on 4 GPUs that was timed: it has vit on 1 x cpu"),
        ([H100, "--models", "pythia-1b", "--nodes", "2"], "--nodes: a measured run says how many it had"),
        (["--predicted", "--models", "pythia-1b"], "--predicted needs --gpu: which GPU?"),
        (["--predicted", "--models", "pythia-1b", "--gpu", "A100", "--gpus", "3"], "does not divide by 3"),
        (["--predicted", "--models", "pythia-6.9b", "--gpu", "RTX 3090"], "does not train on 1 x RTX 3090"),
    ],
)
def test_bad_input_gets_one_line(tmp_path: Path, arguments: list[str], says: str) -> None:
    assert says in refusal("export", *arguments, "--out", str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def test_it_needs_no_torch(tmp_path: Path) -> None:
    assert slow_imports(*PREDICTED, "--out", str(tmp_path)) <= {"importlib.metadata"}, "which names the version"


# --- Configurations ---


@pytest.mark.slow
def test_transformers_takes_the_arguments(in_ranks: Callable[..., list[Any]], tmp_path: Path) -> None:
    """Its Trainer needs accelerate, which the stack does not have: without, the names of the arguments are checked."""
    for settings in ("free_lunch", "checkpointing+fsdp_3+offloading", "zero_2"):
        folder = tmp_path / settings
        folder.mkdir()
        exported(training("pythia-1b", settings), folder)
        [found] = in_ranks("transformers_arguments", folder=str(folder))
        assert found["unknown"] == []
        assert found["taken"] in (None, [143_000, "cosine_with_min_lr"])
        assert (found["taken"] is None) == (find_spec("accelerate") is None)


@pytest.mark.parametrize(("settings", "again"), [("fsdp_2", False), ("fsdp_3", True)])
def test_weights_are_gathered_again_for_the_backward_pass_in_stage_3_alone(settings: str, again: bool) -> None:
    arguments = json.loads(configurations(training("pythia-1b", settings))["training_arguments.json"])
    assert arguments["fsdp_config"]["reshard_after_forward"] is again


# --- What a training records ---

SPOT = ("--interrupted-every", "12h")


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """What train.py keeps of Pythia-1B on one RTX 4090, whose checkpoints take two minutes."""
    step = 200 * 86_400 / 143_000
    known = Kept(
        *("pythia-1b", "paper", "free_lunch", "RTX 4090", 1, "DistributedDataParallel", 4, 256, 0),
        *([10.9, None], [40.0, step], 10**10, 120.0, step, 200.0, 2 * 10**10),
    )
    (tmp_path / "training.json").write_text(json.dumps(dataclasses.asdict(known)))
    return tmp_path


def test_cost_takes_the_days_and_the_time_of_a_checkpoint_from_a_training(kept: Path, tmp_path: Path) -> None:
    asked = ("cost", "pythia-1b", "--gpu", "RTX 4090", "--gpus", "1", "--measured", str(kept), *SPOT)
    rows = []
    for checkpoint in ("", "9m"):
        rows += answer(*asked, "--prices", prices(tmp_path, spot_table(checkpoint)))["rows"]
    assert (rows[0]["days"], rows[0]["origin"]) == (200, "measured")
    assert rows[0]["source"] == f"{kept}, train.py, free_lunch, on today's stack (unknown versions)"
    faced = Interruptions(12, 2 / 60, 10 / 60)
    assert rows[0]["rent_days"] == pytest.approx(expected(4800, daly(faced), faced) / 24, abs=1e-3)
    assert rows[1] == rows[0], "what was measured counts before the price file"


def test_cost_refuses_a_training_that_says_nothing_of_the_run(kept: Path) -> None:
    asked = ("cost", "pythia-1b", "--measured", str(kept))
    assert "trained pythia-1b, not vit" in refusal("cost", "vit", "--measured", str(kept))
    file = kept / "training.json"
    file.write_text(file.read_text().replace('"paper"', '"tiny"'))
    assert "is of a tiny model" in refusal(*asked)
    file.write_text("{}")
    assert "is not what train.py keeps (Object missing required field `recipe`" in refusal(*asked)
