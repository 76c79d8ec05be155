"""What others measured on GPUs, and what is predicted for it: the kept numbers, and what the documents say of them."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from dataclasses import replace
from statistics import median

import pytest

from benchmarks import elsewhere
from repro.formats import render
from repro.predict import calibration, traces
from repro.predict.calibration import EVERYTHING
from repro.predict.hardware import Machine, gpu_named
from repro.predict.published import FOLDER, HeldOut, Published, held_out, largest, predicted, published
from tests.command_line import ROOT

FITTED = calibration.calibrations()[EVERYTHING]
FOUND = held_out(FITTED)
# As printed, and to half of what unit: timm's files, the last column of llm-foundry's table, the 336M and 1.4B of
# Hugging Face's pages; and what gpt-neox's count of FLOPs (6 a weight, 60 x 2048 x 1536 x 24 a token) makes of 45
# TFLOP/s at 18 sequences/s.
WEIGHTS = {
    "vit_base_patch16_224": (86_570_000, 5_000),
    "convnext_base": (88_590_000, 5_000),
    "mpt-125m": (125_311_488, 0),
    "bert-large": (336_000_000, 500_000),
    "pythia-1.4b": (1_414_647_808, 0),
    "neox-760m": ((45e12 / (18 / 8 * 2048) - 60 * 2048 * 1536 * 24) / 6, 50_000_000),
}


def one(model: str, what: str = "step") -> Published:
    return next(each for each in published() if (each.model, each.what) == (model, what))


def test_each_published_row_is_predicted_and_kept() -> None:
    assert [each.published for each in FOUND] == published()
    kept = (ROOT / "results/elsewhere.csv").read_text()
    assert kept.splitlines() == render(elsewhere.rows(), "csv").splitlines(), (
        "python -m benchmarks.elsewhere --format csv > results/elsewhere.csv"
    )


@pytest.mark.alone
def test_predictions_take_under_a_second_and_no_torch() -> None:
    program = (
        "import sys; from repro.predict import calibration as c; from repro.predict.published import held_out; "
        "held_out(c.calibrations()[c.EVERYTHING]); sys.exit('torch' in sys.modules)"
    )
    started = time.monotonic()
    assert subprocess.run([sys.executable, "-c", program], cwd=ROOT).returncode == 0
    assert time.monotonic() - started < 2


def test_a_row_is_inside_where_its_measured_time_lies_between_the_bounds() -> None:
    for each in FOUND:
        low, high = FITTED.interval(Machine(gpu_named(each.published.gpu), each.published.gpus))
        assert each.inside == (1 / high <= each.ratio <= 1 / low)
    tenth = [HeldOut(each.published, each.predicted * 0.1) for each in FOUND]
    assert not any(each.inside for each in tenth)


def test_units_are_read_as_seconds_of_a_step_of_the_whole_machine() -> None:
    assert one("vit_base_patch16_224").seconds == pytest.approx(192 / 392.99)
    assert one("mpt-125m").seconds == pytest.approx(8 * 32 * 2 * 2048 / 1_133_901)
    assert one("bert-large").seconds == pytest.approx(4 / 26.64)
    assert one("pythia-1.4b").seconds == pytest.approx(614.074228 * 86_400 / 143_000)
    assert {each.model for each in published() if each.clock == "authors"} == {"pythia-1.4b"}


@pytest.mark.parametrize("model", WEIGHTS)
def test_the_models_have_as_many_weights_as_were_printed(model: str) -> None:
    printed, half = WEIGHTS[model]
    assert abs(one(model).trace.parameters - printed) <= half


@pytest.mark.slow
@pytest.mark.parametrize("model", ["mpt-125m", "bert-large"])
def test_a_trace_made_again_is_the_one_that_is_shipped(model: str) -> None:
    [made] = elsewhere.traced([one(model)])
    if traces.nearest({}, FOLDER) != replace(made.stack, torch=traces.nearest({}, FOLDER).torch):
        pytest.skip("no trace is shipped for the installed transformers and timm")
    assert traces._plain(made)["parts"] == traces._plain(one(model).trace)["parts"]


def test_the_memory_model_finds_the_micro_batches_that_searches_found() -> None:
    """timm's in all five trainings; the authors', by the traces of another transformers than theirs, within twice."""
    searched = [(each.published, largest(each.published, FITTED)) for each in FOUND]
    found = {row: size for row, size in searched if size is not None}
    assert [size for row, size in found.items() if row.who == "timm"] == [192, 64, 128, 96, 64]
    [authors] = [row for row in found if row.who == "academic-pretraining"]
    assert authors.micro_batch <= found[authors] <= 2 * authors.micro_batch
    assert len(found) == 6


def test_a_forward_pass_is_about_a_third_of_a_step() -> None:
    step = one("convnext_base")
    forward = predicted(replace(step, what="forward"), FITTED).value
    assert 0.30 < forward / predicted(step, FITTED).value < 0.36


def test_nvidias_gradients_are_exchanged_after_the_backward_pass_and_once_a_step() -> None:
    alone, eight = (next(each for each in FOUND if each.published.gpus == gpus and _is_bert(each)) for gpus in (1, 8))
    added = eight.predicted.value - alone.predicted.value
    # 2 bytes a weight to and from seven of eight, at no more than NVLink's 150 GB/s in one direction.
    assert added >= 2 * 2 * 7 / 8 * one("bert-large").trace.parameters / 150e9
    accumulated = replace(eight.published, accumulation=4)
    assert predicted(accumulated, FITTED).value < 4 * eight.predicted.value, "one update for four micro-steps"


def _is_bert(each: HeldOut) -> bool:
    return each.published.gpu == "V100 16 GB"


def test_the_documents_say_how_predictions_fare() -> None:
    document = re.sub(r"\s+", " ", (ROOT / "docs/prediction.md").read_text())
    for line in elsewhere.summary(FOUND):
        assert f"| {' | '.join(map(str, line.values()))} |" in document, (
            "python -m benchmarks.elsewhere --summary --format markdown"
        )
    steps = [abs(each.ratio - 1) for each in FOUND if each.published.what == "step"]
    inside = sum(each.inside for each in FOUND)
    assert f"{len(steps)} training steps are predicted with a median error of {100 * median(steps):.0f} %" in document
    assert f"{inside} of the {len(FOUND)} lie inside" in document
    slow = sum(each.ratio > 1 for each in FOUND)
    assert f"{slow} of the {len(FOUND)} are predicted too slow" in document


def test_the_documents_list_the_ten_that_are_furthest_off() -> None:
    lines = (ROOT / "docs/prediction.md").read_text().splitlines()
    furthest = sorted(FOUND, key=lambda each: max(each.ratio, 1 / each.ratio), reverse=True)[:10]
    kinds = {"step": "training step", "forward": "forward pass"}
    rows = [
        f"| {row.who} | {row.model} | {row.gpu} | {kinds[row.what]} | {row.compiled} | {each.ratio:.2f} | "
        for row, each in ((each.published, each) for each in furthest)
    ]
    start = next(number for number, line in enumerate(lines) if line.startswith(rows[0]))
    for line, row in zip(lines[start:], rows, strict=False):
        assert line.startswith(row)
