"""A run measures training methods of one's own beside the same settings without them, and shows what they change."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from repro.machine.host import limited_cpus, usable_cpus
from repro.machine.packages import installed_packages
from repro.machine.support import Stack
from repro.measure.jobs import Job, RankOutcome
from repro.measure.launcher import ForkServer
from repro.measure.method import MethodError, load, methods_of
from repro.measure.trial import Bench, run_trial
from repro.paper.settings import FREE_LUNCH, Settings
from repro.record import Record
from repro.run.plan import Options, trials
from repro.run.reading import read
from repro.run.settings_search import searches
from repro.run.verdict import comparable_with_cell
from tests.measure.test_correctness import EXACT, Training, apart
from tests.support.command_line import ROOT, process, refusal, repro
from tests.support.scripted_server import ScriptedServer

EXAMPLES = ROOT / "examples" / "methods.py"
OWN = """
import torch
from repro import Method

def _faster(parameters, given):
    return torch.optim.Adam(parameters, lr=5 * given.rate, betas=given.betas, eps=given.eps)

def _grown(model):
    model.more = torch.nn.Linear(2, 3)
    return model

def _raising(model):
    raise ValueError("no such layer")

faster = Method(optimizer=_faster)
grown = Method(module=_grown)
raising = Method(module=_raising)
vector = Method(loss=lambda model, batch: model(**batch).reshape(1))
function = _faster
"""


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("own") / "own.py"
    file.write_text(OWN)
    return file


def asked(*methods: str) -> list[str]:
    """A run of a recipe that needs no compiler, with these methods."""
    words = ["run", "--processes", "1", "--models", "mamba", "--steps", "1"]
    return [*words, *(word for method in methods for word in ("--with", method))]


def test_a_file_that_is_no_python_is_told_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("from repro import Method\nfast = Method(\n")
    assert "own.py, line 2 is no Python: '(' was never closed" in refusal(*asked("own.py:fast"), cwd=tmp_path)


def test_settings_with_methods_are_named_after_them_and_read_back() -> None:
    settings = Settings(True, sharding="zero_3", offloading=True, methods=("mine", "other"))
    assert settings.id == "free_lunch+zero_3+offloading+mine+other"
    assert Settings.parse(settings.id) == settings
    assert Settings.parse("free_lunch+mine").base == FREE_LUNCH


def test_another_content_of_the_file_is_another_trial(own: Path, tmp_path: Path) -> None:
    changed = Path(shutil.copy(own, tmp_path))
    changed.write_text(OWN.replace("5 *", "6 *"))
    planned = []
    for file in (own, changed):
        added, _ = methods_of([f"{file}:faster", f"{file}:faster+vector"])
        options = Options(("mamba",), None, "tiny", (1,), added=added)
        planned.append([each.id for each in trials(options, [])])
    (usual, *before), (as_usual, *after) = planned
    assert usual == as_usual == "mamba/tiny/1xcpu/free_lunch"
    assert [id.rpartition("/method-")[0] for id in before] == [f"{usual}+faster", f"{usual}+faster+vector"]
    assert not {*before} & {*after}


def test_a_file_is_run_as_it_was_when_the_command_began(own: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copy(own, tmp_path))
    _, files = methods_of([f"{copy}:faster", f"{copy}:function"])
    assert load(["faster"], files)["faster"].optimizer is not None
    with pytest.raises(MethodError, match=r"function of own\.py is no repro\.Method, but function"):
        load(["function"], files)
    copy.write_text(OWN + "\n")
    with pytest.raises(MethodError, match=r"own\.py has changed since the command began"):
        load(["faster"], files)
    with pytest.raises(MethodError, match="the method slower was not given here"):
        load(["slower"], files)


@pytest.fixture(scope="module")
def finished(own: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A run with methods of many kinds, and what it printed."""
    folder = tmp_path_factory.mktemp("run") / "out"
    methods = [f"{EXAMPLES}:{name}" for name in ("chunked_loss", "fused_adamw")]
    methods += [f"{own}:{name}" for name in ("faster", "grown", "raising", "vector")]
    done = process(*asked(*methods), "--cpus", "1", "--out", str(folder))
    assert done.returncode == 1, done.stderr  # trials crashed
    return folder, done.stdout


def records(folder: Path) -> dict[str, Record]:
    return {record.settings.removeprefix("free_lunch+"): record for record in read(folder).records}


@pytest.mark.slow
def test_a_method_that_trains_otherwise_is_told_from_one_that_does_not(
    finished: tuple[Path, str],
) -> None:
    folder, printed = finished
    assert "free_lunch+chunked_loss " in printed
    told = (folder / "report.md").read_text()
    found = records(folder)
    assert [found[name].as_run.optimizer for name in ("free_lunch", "fused_adamw")] == [
        "torch AdamW (tensor by tensor)",
        "torch AdamW (fused)",
    ]
    usual = found["free_lunch"].observed.trained_losses
    assert usual is not None
    first, last = usual[0] or 0, usual[-1] or 0
    assert 0 < last < 0.99 * first  # it learns
    assert found["chunked_loss"].observed.trained_losses == pytest.approx(usual, rel=1e-3)
    assert "free_lunch+chunked_loss: losses" in told
    assert told.count("the method trains as without it") == 2
    [changed] = [line for line in told.splitlines() if "the method changes the training" in line]
    assert "free_lunch+faster: losses" in changed


@pytest.mark.slow
def test_what_is_wrong_with_a_hook_is_the_one_line_of_its_trial(finished: tuple[Path, str]) -> None:
    found = records(finished[0])
    assert {name: found[name].reason for name in ("grown", "raising", "vector")} == {
        "grown": "grown: its module trains 98,249 weights, the model without it 98,240: a method must keep them",
        "raising": "raising: its module raised ValueError: no such layer",
        "vector": "vector: its loss returned a tensor of shape (1,), not a scalar tensor",
    }
    assert {found[name].status for name in ("grown", "raising", "vector")} == {"crashed"}


@pytest.mark.slow
def test_methods_stand_for_no_cell_and_for_no_search(finished: tuple[Path, str]) -> None:
    found = records(finished[0])
    assert not any(comparable_with_cell(record) or record.comparable_with_paper for record in found.values())
    assert all(found[name].custom for name in found.keys() - {"free_lunch"})
    [search] = searches(found.values())
    assert [*search.standing] == ["free_lunch"]


@pytest.mark.slow
def test_a_folder_names_no_file_to_run_and_its_report_has_what_was_measured(finished: tuple[Path, str]) -> None:
    folder, _ = finished
    assert str(EXAMPLES.parent) not in "".join(
        file.read_text() for file in (folder / "environment.json", folder / "verdicts.json")
    )
    environment = json.loads((folder / "environment.json").read_text())
    assert environment["options"]["added"][0].keys() == {"file", "methods", "digest"}
    assert environment["host"]["usable_cpus"] == 1
    rows = json.loads(repro("report", str(folder), "--format", "json").stdout)["methods"]
    [chunked] = [row for row in rows if row["settings"] == "free_lunch+chunked_loss"]
    assert chunked["at MBS"] == 8
    assert chunked["speed"] is not None
    assert chunked["peak GiB without"] is not None
    assert "## Methods of your own" in (folder / "report.md").read_text()


@pytest.mark.parametrize("settings", ["free_lunch+checkpointing", "free_lunch+zero_3+offloading", "free_lunch+fsdp_3"])
def test_a_model_on_several_devices_trains_with_the_examples_as_without(
    settings: str,
    fork_server: ForkServer,
    in_ranks: Callable[..., list[Any]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fork_server, "methods", methods_of([f"{EXAMPLES}:chunked_loss+fused_adamw"])[1])

    def trained(settings: str) -> Training:
        (folder := tmp_path / settings).mkdir()
        known = {"recipe": "pythia-1b", "micro_batch": 2, "accumulation": 2, "world": 2}
        return Training.read(in_ranks("train", settings=settings, folder=str(folder), **known), folder)

    own, usual = (trained(each) for each in (f"{settings}+chunked_loss+fused_adamw", settings))
    assert own.reported[0]["optimizer"] == "torch AdamW (fused)"
    assert own.reported[0]["wrapper"] == usual.reported[0]["wrapper"]
    assert own.losses == pytest.approx(usual.losses, rel=1e-5)
    assert apart(own, usual) < 10 * EXACT


# --- Micro batches and CPUs ---


def test_a_micro_batch_that_is_asked_for_is_measured_alone(fork_server: ForkServer, tmp_path: Path) -> None:
    """Whose ranks run out of memory above a micro batch of 2."""

    def full_above_2(job: Job) -> list[RankOutcome] | None:
        size = job.arguments.get("start", job.arguments.get("micro_batch", 0))
        return [RankOutcome(0, "out_of_memory", error="full")] if size > 2 else None

    options = Options(("vit",), "naive", "tiny", (1,), steps=1, micro_batch=4)
    [trial] = trials(options, [])
    bench = Bench(ScriptedServer(full_above_2, fork_server), Stack(installed_packages(), None), None, tmp_path)
    full, fits = (run_trial(replace(trial, micro_batch=size), bench, fixed_size=True) for size in (4, 2))
    assert (full.status, full.reason, full.batch.micro_batch) == (
        "out_of_memory",
        "micro batch 4 does not fit: full",
        None,
    )
    assert (fits.status, fits.batch.micro_batch, [size for size, _ in fits.batch.peaks]) == ("ok", 2, [2])


def test_more_cpus_than_there_are_are_refused() -> None:
    assert "--cpus 4096: at most " in refusal("run", "--processes", "1", "--models", "pythia-1b", "--cpus", "4096")


def test_cpus_are_given_back_after_a_command() -> None:
    before = os.sched_getaffinity(0)
    with limited_cpus(1):
        assert (usable_cpus(), len(os.sched_getaffinity(0))) == (1, 1)
    assert os.sched_getaffinity(0) == before
