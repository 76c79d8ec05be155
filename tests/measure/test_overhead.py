"""What the harness adds to a step, and what it takes to start a trial, stay small."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import pytest
import torch

from benchmarks import Ask, asking
from benchmarks.overhead import LOOPS, apart, measure
from repro import models
from repro.measure.engine.base import HALF
from repro.measure.launcher import ForkServer
from repro.models.pythia import parameters
from repro.models.recipe import Text
from repro.models.transformer import TextShape


@pytest.fixture
def ask(fork_server: ForkServer, tmp_path: Path) -> Ask:
    """Calls functions of the benchmarks in ranks of the tests' fork server."""
    return asking(fork_server, tmp_path)


@pytest.mark.alone
def test_a_step_of_the_harness_takes_no_more_than_one_by_hand(ask: Ask) -> None:
    by_hand, around, recorded = measure(ask, ranks=4, steps=40)
    assert by_hand["losses differ by (%)"] == 0, "both train the same"
    assert by_hand["median (ms)"] > 1  # else there is nothing to compare
    assert abs(around["over by hand (%)"]) < 10
    assert abs(recorded["over by hand (%)"]) < 10


@pytest.mark.alone
def test_the_example_times_a_step_as_a_trial_does(in_ranks: Callable[..., list[Any]]) -> None:
    [(measured, by_hand)] = in_ranks("timed_by_the_example", recipe="vit", micro_batch=8, rounds=20)
    for part in ("without", "with", "update"):
        assert min(by_hand[part]) == pytest.approx(min(measured[part]), rel=0.3), part


@pytest.mark.parametrize("scale", sorted(LOOPS))
def test_the_loop_by_hand_is_of_the_recipe_that_the_harness_trains(scale: str) -> None:
    loop = LOOPS[scale]
    recipe = models.find(loop.recipe, loop.scale)
    assert recipe.inputs == Text(loop.sequence, loop.vocabulary)
    shape = TextShape(loop.layers, loop.width, loop.heads, loop.vocabulary)
    assert (recipe.parameters, recipe.width) == (parameters(shape), loop.width)
    assert (recipe.optimizer.rate, HALF[recipe.precision]) == (loop.rate, getattr(torch, loop.dtype))


def test_losses_that_are_no_numbers_are_not_the_same() -> None:
    assert apart([2.0, 4.0], [2.0, 4.0]) == 0
    assert apart([2.0, 4.0], [2.0, 4.4]) == pytest.approx(0.1)
    assert apart([2.0, math.nan], [2.0, math.nan]) == math.inf


@pytest.mark.alone
@pytest.mark.parametrize("ranks", [1, 2])
def test_a_trial_is_at_its_first_micro_step_within_a_second(ask: Ask, ranks: int) -> None:
    common = {"ranks": ranks, "recipe": "vit", "scale": "tiny", "settings": "naive", "tf32": False}
    timing = {"compiled": False, "micro_batch": 1, "accumulation": 1, "steps": 1, "check_extrapolation": False}
    started = []
    for phase, arguments in 3 * [("fit", {"start": 1, "largest": 1}), ("measure", timing)]:
        outcomes = ask(f"repro.measure.phases:{phase}", **common, **arguments)
        started.append(max(outcome.started for outcome in outcomes if outcome.started is not None))
    assert median(started) <= 1.0
