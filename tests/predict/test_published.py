"""What others measured on GPUs, and what is predicted for it: the kept numbers, and what the documents say of them."""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import replace

import pytest

from repro.predict import fits, traces
from repro.predict.fits import EVERYTHING
from repro.predict.published import FOLDER, Published, predicted_seconds, published
from repro.predict.scores import public_times
from tests.support.command_line import ROOT
from tools import elsewhere

FITTED = fits.fitted_constants()[EVERYTHING]
# As printed, and to half of what unit: timm's files, the last column of llm-foundry's table, the 336M and 1.4B of
# Hugging Face's pages; and what gpt-neox's count of FLOPs (6 a weight, 60 x 2048 x 1536 x 24 a token) makes of 45
# TFLOP/s at 18 sequences/s.
WEIGHTS = {
    "vit_base_patch16_224": (86_570_000, 5_000),
    "convnext_base": (88_590_000, 5_000),
    "mpt-125m": (125_311_488, 0),
    "bert-large": (336_000_000, 500_000),
    "pythia-1.4b": (1_414_647_808, 0),
    "llama-1.1b": (1_100_048_384, 0),
    "llama3-8b": (8_030_261_248, 0),
    "gpt2-124m": (123_590_000, 5_000),  # nanoGPT prints it without positions
    "nanochat-d20": (560_988_160, 100_000),
    "neox-760m": ((45e12 / (18 / 8 * 2048) - 60 * 2048 * 1536 * 24) / 6, 50_000_000),
}


def one(model: str, what: str = "step") -> Published:
    return next(each for each in published() if (each.model, each.what) == (model, what))


@pytest.mark.alone
def test_predictions_take_under_two_seconds_and_no_torch() -> None:
    program = (
        "import sys; from repro.predict import fits, scores; scores.unseen(fits.fitted_constants()); "
        "sys.exit(any(name in sys.modules for name in ('torch', 'scipy', 'numpy')))"
    )
    started = time.monotonic()
    assert subprocess.run([sys.executable, "-c", program], cwd=ROOT).returncode == 0
    assert time.monotonic() - started < 2


def test_units_are_read_as_seconds_of_a_step_of_the_whole_machine() -> None:
    assert one("vit_base_patch16_224").seconds == pytest.approx(192 / 392.99)
    assert one("mpt-125m").seconds == pytest.approx(8 * 32 * 2 * 2048 / 1_133_901)
    assert one("bert-large").seconds == pytest.approx(4 / 26.64)
    assert one("pythia-1.4b").seconds == pytest.approx(614.074228 * 86_400 / 143_000)
    assert {each.model for each in published() if each.clock == "authors"} == {"pythia-1.4b"}
    [nanochat] = [each for each in published() if each.who == "nanochat"]
    assert (nanochat.seconds, nanochat.examples) == (13.777, 256)


def test_public_times_are_printed_with_their_errors_and_say_what_is_uncertain() -> None:
    times = [each for each in published() if each.unit == "s"]
    assert [each.who for each in times] == ["nanoGPT", "nanoGPT", "torchtitan", "llm.c", "llm.c", "nanochat"]
    assert all("Uncertain: " in each.source for each in times)
    rows = public_times(FITTED)
    assert [float(row["ratio"]) for row in rows] == pytest.approx([0.79, 1.11, 0.75, 1.32, 1.03, 1.33], abs=0.01)
    assert [row["measured"] for row in rows] == [each.measured for each in times]


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
    shipped = one(model).trace
    for key in {key for part in made.parts for key in part.costs} - {"head", "body"}:  # peaks are the rest's
        assert made.total(key).at(2) == pytest.approx(shipped.total(key).at(2), rel=1e-6), key


def test_a_forward_pass_is_about_a_third_of_a_step() -> None:
    step = one("convnext_base")
    forward = predicted_seconds(replace(step, what="forward"), FITTED)
    assert 0.25 < forward / predicted_seconds(step, FITTED) < 0.36


def test_nvidias_gradients_are_exchanged_after_the_backward_pass_and_once_a_step() -> None:
    alone, eight = (
        next(each for each in published() if (each.gpu, each.gpus) == ("V100 16 GB", gpus)) for gpus in (1, 8)
    )
    added = predicted_seconds(eight, FITTED) - predicted_seconds(alone, FITTED)
    # 2 bytes a weight to and from seven of eight, at no more than NVLink's 150 GB/s in one direction.
    assert added >= 2 * 2 * 7 / 8 * one("bert-large").trace.parameters / 150e9
    accumulated = predicted_seconds(replace(eight, accumulation=4), FITTED)
    assert accumulated < 4 * predicted_seconds(eight, FITTED), "one update for four micro-steps"
