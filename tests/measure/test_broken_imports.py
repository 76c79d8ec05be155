"""A package that is installed and does not import is told before the first trial; what does not need it runs."""

from __future__ import annotations

import json
import sysconfig
from pathlib import Path

import pytest

from repro import models
from repro.machine import support
from repro.measure.launcher import ForkServer
from repro.paper.settings import Settings
from tests.support.command_line import ROOT, process, trial_lines

LACKING = "raise ModuleNotFoundError(\"No module named 'httpcore2'\", name='httpcore2')"  # as huggingface_hub's httpx2


def library(folder: Path, module: str, body: str) -> str:
    """A PYTHONPATH on which this module comes before the installed one."""
    folder.mkdir()
    (folder / f"{module}.py").write_text(body)
    return f"{folder}:{ROOT}"


@pytest.mark.slow
def test_recipes_of_a_package_that_does_not_import_are_unsupported(tmp_path: Path) -> None:
    path, out = library(tmp_path / "broken", "httpx2", LACKING), tmp_path / "out"
    (tmp_path / "broken" / "timm").symlink_to(Path(sysconfig.get_path("purelib"), "timm"))  # a fork
    words = f"run --models pythia-160m,roberta,mamba,vit --methods naive --processes 1 --steps 2 --out {out}"
    done = process(*words.split(), PYTHONPATH=path, CUDA_VISIBLE_DEVICES="")
    assert done.returncode == 0, done.stderr
    records = {(record := json.loads(line))["recipe"]: record for line in trial_lines(out)}
    assert {name: record["status"] for name, record in records.items()} == {
        "pythia-160m": "unsupported",
        "roberta": "unsupported",
        "mamba": "unsupported",
        "vit": "ok",
    }
    reason = "transformers does not import: ModuleNotFoundError: No module named 'httpcore2'"
    remedy = "set up with ./run_all.sh, or install what it lacks with pip"
    assert {(record["reason"], record["remedy"]) for name, record in records.items() if name != "vit"} == {
        (reason, remedy)
    }
    said = done.stderr.splitlines()
    line = f"repro: {reason}; 3 trials of pythia-160m, roberta, mamba cannot run: {remedy}"
    first = next(number for number, text in enumerate(said) if text.startswith("[1/4]"))
    assert said.index(line) < first
    assert "Traceback" not in done.stderr
    reason = "timm was imported from elsewhere than the environment's site-packages"
    kept = json.loads((out / "environment.json").read_text())
    assert (kept["lock"]["is_the_lock"], kept["lock"]["reason"]) == (False, reason)
    assert {name: each["place"] for name, each in kept["imported"].items()}["timm"] == "elsewhere"
    assert "torch" not in kept["imported"]
    assert kept["variables"]["PYTHONPATH"] == "set"
    assert str(tmp_path) not in (out / "environment.json").read_text()
    assert said.index(f"repro: {reason}: what is measured is not a lock's stack, as environment.json records") < first
    assert f"The stack is not a lock's, whatever its versions: {reason}." in done.stdout.partition("TRIALS")[0]


@pytest.mark.slow
def test_a_torch_that_does_not_import_ends_a_run_before_its_first_trial(tmp_path: Path) -> None:
    path, out = library(tmp_path / "broken", "torch", "raise ImportError('libcudart.so.12: no such file')"), "out"
    words = f"run --models vit --methods naive --processes 1 --out {tmp_path / out}"
    done = process(*words.split(), PYTHONPATH=path, CUDA_VISIBLE_DEVICES="")
    assert (done.returncode, done.stdout) == (2, "")
    _, last = done.stderr.splitlines()
    output = "the stack does not import: ImportError: libcudart.so.12: no such file"
    assert last == f"repro: {output}; set up with ./run_all.sh, or install what it lacks with pip"
    assert all("environment" in json.loads(line) for line in (tmp_path / out / "trials.jsonl").read_text().splitlines())


@pytest.mark.slow
def test_a_fork_server_says_what_of_its_stack_does_not_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", library(tmp_path / "broken", "deepspeed", "raise OSError('no nvcc')"))
    with ForkServer(tmp_path / "log", {}, modules=["torch.distributed", "deepspeed", "timm.none"]) as server:
        assert server.broken == {}
        server.start()
        assert server.broken == {
            "deepspeed": "OSError: no nvcc",
            "timm.none": "ModuleNotFoundError: No module named 'timm.none'",
        }
        assert server.imports is not None
        assert [*server.imports.packages] == ["deepspeed"]


@pytest.mark.parametrize(
    ("recipe", "settings", "module", "stops"),
    [
        ("pythia-1b", "naive", "transformers.models.gpt_neox.modeling_gpt_neox", True),
        ("pythia-1b", "naive", "transformers.models.roberta.modeling_roberta", False),
        ("roberta", "naive", "transformers.models.roberta.modeling_roberta", True),
        ("vit", "naive", "transformers.models.gpt_neox.modeling_gpt_neox", False),
        ("vit", "naive", "timm.models.convnext", False),
        ("vit", "free_lunch+zero_1", "deepspeed", True),
        ("vit", "free_lunch", "deepspeed", False),
        ("vit", "free_lunch+zero_1", "deepspeed.runtime.zero.muon.muon_optimizer", False),
        ("gan", "naive", "transformers.models.gpt_neox.modeling_gpt_neox", False),
    ],
)
def test_only_trials_that_need_a_broken_module_are_stopped(
    recipe: str, settings: str, module: str, stops: bool
) -> None:
    packages = dict.fromkeys(("torch", "transformers", "timm", "deepspeed"), "9.0")
    stack = support.Stack(packages, None, broken={module: "ImportError: no luck"})
    found = support.obstacle(models.find(recipe), Settings.parse(settings), 1, stack)
    package = module.partition(".")[0]
    assert (None if found is None else found.reason) == (
        f"{package} does not import: ImportError: no luck" if stops else None
    )
