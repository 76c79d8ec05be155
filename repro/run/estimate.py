"""Estimates of how long a trial will take, for planning and progress display only, never as a result."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace

from .. import models
from ..console import UserError
from ..machine import support
from ..machine.host import usable_cpus
from ..models.recipe import Recipe, divisors
from ..paper.gpus import Gpu, peak_flops
from ..paper.settings import Settings
from ..predict import descriptions
from ..predict.fits import here
from ..predict.forecast import forecast, trace_of
from ..predict.traces import PAPER_STACK
from ..record import Trial

# Seconds of a run outside its trials, measured on 2 otherwise idle cores of an AMD EPYC.
LOADING = 6.0  # the fork server imports the stack: 5.4 to 7.0 with cached bytecode, as in run_all.sh, 14 without
REPORTING = 4.0  # collecting the cases 0.7, the report with its figures 3.2

# Seconds of a trial at the paper's scale on a GPU outside its steps, fitted to the trials of results/h100
# (one H100, 16 CPU cores, torch 2.11). tests/run/test_estimate.py fits them again.
STARTING = 4.0  # two processes start CUDA and build the model, one to search and one to time: median, from 3.1 to 12.4
COMPILING = 28.3  # compiling, and the uncompiled search before it; grows with layers, not parameters or kernels
COMPILING_A_LAYER = 0.85
COMPILING_CHECKPOINTED = 2.0  # factor: a layer and its recomputation; one trial, of RoBERTa, took 2.0 times as long
_LAYERS = 24  # assumed for a model without a trace: four of the nine recipes have 24
_DRAWN = 1e8  # weights per second that the host initialises: on a CPU, and for libraries that shard them

# The same on a CPU: a guess, not measured.
_STARTING_ON_CPU, _COMPILING_ON_CPU = 10.0, 90.0
_A_CORE = 60e9  # FLOP/s in fp32; measured on an AMD EPYC: 51e9 in timm's ResNet-10-T, 56e9 in ResNet-26, 77e9 in ViT-S


@dataclass(frozen=True)
class _Steps:
    """Seconds of a micro-step and an update, sizes in the search, micro-steps in a training step, the model's
    layers."""

    micro_step: float
    update: float
    sizes: int
    accumulation: float
    layers: int = _LAYERS


def estimate(trial: Trial, gpu: Gpu | None) -> float:
    """Estimate the seconds that a trial takes, for the time left and the first line of a run.

    A trial starts, compiles and takes predicted steps. Without a prediction, a micro-step is assumed to have four
    examples, a tiny one the whole batch, and to run at a third of the GPU's peak or as fast as the CPU's cores do. The
    steps of a tiny trial take at least 0.1 s a round and whole step.
    """
    recipe, settings = trial.recipe_and_settings
    compiling = support.compiles(recipe, settings)
    steps = _steps(trial, gpu)
    seconds = measuring(trial.steps, steps.micro_step, steps.update, steps.sizes)
    if trial.check_extrapolation:
        seconds += trial.steps * (steps.accumulation * steps.micro_step + steps.update)
    if trial.scale == "tiny":
        rounds = trial.steps * (2 if trial.check_extrapolation else 1)
        return 1.7 + max(0.1 * rounds, seconds) + (12.0 if compiling else 0.0)
    if trial.device == "cpu":
        seconds += _STARTING_ON_CPU + (_COMPILING_ON_CPU if compiling else 0.0)
    else:
        seconds += STARTING + (compiling_seconds(steps.layers, settings) if compiling else 0.0)
    if trial.device == "cpu" or settings.library != "torch":
        seconds += recipe.parameters / _DRAWN
    return seconds


def measuring(rounds: int, micro_step: float, update: float, sizes: int) -> float:
    """Return the seconds of a trial's steps: 10 micro-steps and 4 a round; 4 updates, 2 a round and one a size."""
    return (10 + 4 * rounds) * micro_step + (4 + 2 * rounds + sizes) * update


def compiling_seconds(layers: int, settings: Settings) -> float:
    """Return the seconds that compiling a model with this many layers adds to a trial on a GPU."""
    once = COMPILING + COMPILING_A_LAYER * layers
    return COMPILING_CHECKPOINTED * once if settings.checkpointing else once


def _steps(trial: Trial, gpu: Gpu | None) -> _Steps:
    recipe, settings = trial.recipe_and_settings
    tiny = trial.scale == "tiny"
    if gpu is not None and not tiny and descriptions.is_traced(recipe):
        with contextlib.suppress(UserError):  # no trace of the recipe, or the catalogue lacks a figure of the GPU
            return _predicted_steps(trial, gpu, recipe, settings)
    peak = peak_flops(gpu, recipe.precision, tf32=settings.free_lunch) or 100e12
    speed = _A_CORE * usable_cpus() / trial.count if trial.device == "cpu" else peak / 3
    examples = trial.micro_batch or (models.micro_batch_limit(recipe, trial.world) if tiny else 4)
    return _Steps(examples * recipe.flops_per_example / speed, 0.0, 0, recipe.batch_size / trial.world / examples)


def _predicted_steps(trial: Trial, gpu: Gpu, recipe: Recipe, settings: Settings) -> _Steps:
    machine, fitted = here(gpu, trial.count, trial.memory_limit)
    machine = replace(machine, nodes=trial.nodes)
    found = forecast(recipe, machine, settings, fitted, papers_hosts=False)
    layers = sum(part.count for part in trace_of(recipe, machine, settings, PAPER_STACK).layers)
    if found.step is None or found.accumulation is None:
        return _Steps(0.0, 0.0, 0, 0.0, layers)  # it ends as soon as it runs out of memory
    micro_step = (found.step.total - found.step.update) / found.accumulation
    sizes = sum(each <= found.micro_batch for each in divisors(models.micro_batch_limit(recipe, trial.world)))
    return _Steps(micro_step, found.step.update, sizes, found.accumulation, layers)
