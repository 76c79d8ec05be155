"""The launch queue: what the authors' clock shows of a step, and what printed days imply."""

from __future__ import annotations

import pytest

from repro import models
from repro.paper.arithmetic import paper_gpu
from repro.paper.settings import FREE_LUNCH, NAIVE, Settings
from repro.paper.tables import all_cells
from repro.predict import traces
from repro.predict.constants import Queue, Rates
from repro.predict.forecast import corrected, implied_true_days
from repro.predict.hardware import Machine
from repro.predict.launch_queue import authors_step, launches, true_over_predicted, waits
from repro.predict.memory import variant_of
from repro.predict.time import StepModel, TimedStep
from repro.predict.traces import PAPER_STACK, Traced
from repro.run.reading import read
from tests.support.command_line import ROOT

OURS = traces.nearest({"transformers": "5.17.0"})
EVERYTHING = 1e9  # launches: all of a micro-step


def step(recipe: str, settings: Settings, gpus: int = 1, examples: int = 8, stack: Traced = PAPER_STACK) -> TimedStep:
    machine, trace = Machine(paper_gpu("H100"), gpus), traces.find(recipe, variant_of(settings), stack)
    return StepModel(models.find(recipe), trace, settings, machine, Rates()).step(examples)


def room(size: float, launch: float = 0.0) -> Queue:
    return Queue(size, size, size, launch, launch)


def test_without_a_queue_the_authors_clock_shows_the_micro_steps_whole() -> None:
    taken = step("roberta", NAIVE)
    assert authors_step(taken, room(0.0)) == pytest.approx(taken.micro.seconds * taken.times)


def test_a_queue_that_holds_a_whole_micro_step_leaves_only_its_launching() -> None:
    taken = step("vit", NAIVE)
    shown = authors_step(taken, room(EVERYTHING, launch=1e-6))
    assert shown == pytest.approx(launches(taken) * 1e-6 * taken.times, rel=0.01)


def test_the_scaler_of_fp16_waits_in_the_update_for_what_the_micro_step_left() -> None:
    half, whole = step("pythia-160m", NAIVE), step("pythia-1b", NAIVE)
    assert authors_step(half, room(EVERYTHING)) == pytest.approx(half.micro.seconds)
    assert authors_step(whole, room(EVERYTHING)) == pytest.approx(0.0, abs=1e-9), "in bf16 nothing waits"


def test_the_clock_never_shows_more_than_the_true_time_of_micro_steps() -> None:
    taken = step("pythia-160m", NAIVE)
    assert authors_step(taken, room(620.0, launch=1.0)) <= taken.micro.seconds * taken.times + 1e3


def test_the_last_launches_are_copies_of_gradients_and_the_layers_backward_passes() -> None:
    taken = step("pythia-1b", NAIVE)
    last = taken.micro.stretches[-1]
    copies = taken.trace.total("tensors").fixed
    assert (copies, last.stretch.tensors) == (196, 192)
    nothing = taken.seconds - taken.update
    assert authors_step(taken, room(copies)) == pytest.approx(nothing, rel=0.01), "the copies take next to no time"
    half = authors_step(taken, room(copies + (1.32 * last.stretch.kernels + 192) / 2))
    scale = taken.micro.seconds / sum(each.seconds for each in taken.micro.stretches)
    assert nothing - half == pytest.approx(scale * last.seconds / 2 * taken.times, rel=0.02)


@pytest.mark.parametrize(
    ("folder", "recipe", "settings"),
    [
        ("naive-pythia-160m-vit", "pythia-160m", "naive"),
        ("naive-pythia-160m-vit", "vit", "naive"),
        ("naive-roberta-convnext", "roberta", "naive"),
        ("published", "pythia-2.8b", "naive"),
        ("published", "pythia-2.8b", "free_lunch"),
        ("whole-steps", "pythia-160m", "free_lunch"),
    ],
)
def test_launches_are_about_as_many_as_a_profiler_counted(folder: str, recipe: str, settings: str) -> None:
    [record] = [
        each
        for each in read(ROOT / "results" / "h200" / folder).records
        if (each.recipe, each.settings) == (recipe, settings)
    ]
    assert record.observed.launches is not None
    assert record.batch.micro_batch is not None
    taken = step(recipe, Settings.parse(settings), examples=record.batch.micro_batch, stack=OURS)
    assert launches(taken) == pytest.approx(record.observed.launches["with"], rel=0.1)


@pytest.mark.parametrize(
    ("settings", "papers", "ours"),
    [
        ("free_lunch", False, False),
        ("free_lunch+zero_1", False, False),
        ("free_lunch+zero_2", True, True),
        ("free_lunch+zero_3", True, True),
        ("free_lunch+zero_1+offloading", True, True),
        ("free_lunch+fsdp_2", True, False),
        ("free_lunch+fsdp_3+offloading", True, True),
    ],
)
def test_engines_that_wait_in_a_micro_step_show_all_of_it(settings: str, papers: bool, ours: bool) -> None:
    wanted = Settings.parse(settings)
    assert (waits(wanted, True), waits(wanted, False)) == (papers, ours)
    for stack, waiting in ((PAPER_STACK, papers), (OURS, ours)):
        taken = step("pythia-1b", wanted, gpus=2, stack=stack)
        assert (authors_step(taken, Queue()) == taken.seconds) == waiting


def test_what_compiled_code_hides_differs_between_stacks() -> None:
    queue = Queue(eager=0.0, compiled=500.0, papers_compiled=0.0, launch=0.0, launch_compiled=0.0)
    papers, ours = (step("roberta", FREE_LUNCH, stack=stack) for stack in (PAPER_STACK, OURS))
    assert authors_step(papers, queue) == pytest.approx(papers.micro.seconds * papers.times)
    assert authors_step(ours, queue) < ours.micro.seconds * ours.times


def test_true_times_are_found_again_from_what_the_clock_shows() -> None:
    taken = step("convnext", NAIVE, examples=128)
    shown = authors_step(taken, Queue(), 1.7)
    assert true_over_predicted(taken, Queue(), shown) == pytest.approx(1.7, rel=1e-4)


def test_printed_days_imply_at_least_as_many_true_ones() -> None:
    for cell in all_cells():
        if cell.days is not None and corrected(cell).feasible:
            implied = implied_true_days(cell, cell.days)
            assert implied is not None
            assert implied >= 0.99 * cell.days, cell
