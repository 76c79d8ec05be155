"""What others measured on GPUs, and what was predicted for it: the kept numbers, and what the documents say of them."""

from __future__ import annotations

import csv
import re
from dataclasses import replace
from itertools import groupby
from statistics import median
from typing import Literal

import pytest

from benchmarks import elsewhere
from benchmarks.elsewhere import Traces
from tests.command_line import ROOT

KEPT = list(csv.DictReader((ROOT / "results/elsewhere.csv").open()))
PUBLISHED = elsewhere.published()
# As printed, and to half of what unit: timm's files, and the last column of llm-foundry's table.
WEIGHTS = {
    "vit_base_patch16_224": (86_570_000, 5_000),
    "convnext_base": (88_590_000, 5_000),
    "mpt-125m": (125_311_488, 0),
}


def test_each_published_row_is_kept_beside_its_prediction() -> None:
    assert [(each["model"], each["gpu"], int(each["mbs"])) for each in KEPT] == [
        (each.model, each.gpu, each.micro_batch) for each in PUBLISHED
    ]
    assert [float(each["measured (ms)"]) for each in KEPT] == [round(1e3 * each.seconds, 1) for each in PUBLISHED]


@pytest.fixture(scope="module")
def traces() -> Traces:
    return Traces()


@pytest.mark.parametrize("model", WEIGHTS)
def test_what_is_kept_is_what_the_model_of_cost_predicts(model: str, traces: Traces) -> None:
    for measured, kept in zip(PUBLISHED, KEPT, strict=True):
        if measured.model == model and measured.settings != "naive":
            assert elsewhere.row(measured, traces.of(measured))["predicted (ms)"] == float(kept["predicted (ms)"])


def test_the_memory_model_finds_the_micro_batch_that_timm_found(traces: Traces) -> None:
    measured = next(each for each in PUBLISHED if each.model == "convnext_base" and each.what == "step")
    assert elsewhere.largest(measured, traces.of(measured)) == measured.micro_batch
    searched = [(each["mbs"], each["largest predicted"]) for each in KEPT if each["largest predicted"]]
    assert len(searched) == 5
    assert all(found == predicted for found, predicted in searched)


@pytest.mark.parametrize("model", WEIGHTS)
def test_the_models_have_as_many_weights_as_were_printed(model: str, traces: Traces) -> None:
    measured = next(each for each in PUBLISHED if each.model == model and each.settings != "naive")
    printed, half = WEIGHTS[model]
    assert abs(traces.of(measured).parameters - printed) <= half


def test_a_forward_pass_is_about_a_third_of_a_step(traces: Traces) -> None:
    def seconds(what: Literal["step", "forward"]) -> float:
        measured = next(each for each in PUBLISHED if each.model == "convnext_base" and each.what == "step")
        return elsewhere.predicted(replace(measured, what=what), traces.of(measured)).value

    assert 0.30 < seconds("forward") / seconds("step") < 0.36


def _group(each: dict[str, str]) -> tuple[str, str, str]:
    return each["who"], each["what"], each["gpu"]


def test_the_documents_tell_how_predictions_fare() -> None:
    told = (ROOT / "docs/prediction.md").read_text()
    for (who, what, gpu), members in groupby(sorted(KEPT, key=_group), key=_group):
        group = list(members)
        ratios = [float(each["predicted/measured"]) for each in group]
        inside = sum(each["inside the interval"] == "True" for each in group)
        error = 100 * median(abs(ratio - 1) for ratio in ratios)
        numbers = f"{len(ratios)} | {min(ratios):.2f} to {max(ratios):.2f} | {error:.0f} % | {inside}"
        pattern = "training steps" if what == "step" else "forward passes"
        assert f"| {who} | {pattern} | {gpu} | {numbers} |" in told
    steps = [abs(float(each["predicted/measured"]) - 1) for each in KEPT if each["what"] == "step"]
    readme = " ".join((ROOT / "README.md").read_text().split())
    inside = sum(each["inside the interval"] == "True" for each in KEPT)
    assert f"{len(steps)} training steps are predicted with a median error of {100 * median(steps):.0f} %" in readme
    assert re.search(rf"Of all {len(KEPT)} times, [^.]* {inside} lie inside the interval", readme)
