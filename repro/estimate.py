"""About how long a trial will take: to plan with and to watch, never a result."""

from __future__ import annotations

import contextlib
from dataclasses import replace

from . import rules
from .errors import UserError
from .gpus import Gpu, peak_flops
from .predict.forecast import forecast
from .predict.here import here
from .trial import Trial

# What a run takes beside its trials, in seconds, measured on 2 otherwise idle cores of an AMD EPYC.
LOADING = 6.0  # the fork server imports the stack: 5.4 to 7.0 with its bytecode kept, as run_all.sh does, 14 without
REPORTING = 4.0  # collecting the cases 0.7, the report with its figures 3.2

_SAFETY = 3.0  # how many times its estimate a trial may take: nobody has held one against a run on a GPU


def estimate(trial: Trial, gpu: Gpu | None) -> float:
    """About how many seconds a trial takes: for the bar and the first line of a run, never for a result.

    A tiny trial is some seconds of starting, searching and, compiled, of compiling, and a tenth of one a round. A trial
    at the paper's scale draws its weights (1e8 a second on a host), compiles, and takes about ten micro-steps and four
    a round, four updates, two a round and one a size that is tried, as predicted; and whole steps, one a round, where
    these are timed, too. What nobody can predict is taken for four examples a micro-step, at a third of the GPU's peak.
    """
    recipe, settings = trial.recipe_and_settings
    compiling = rules.compiles(recipe, settings)
    if trial.scale == "tiny":
        return 1.7 + 0.1 * trial.steps + (12.0 if compiling else 0.0)
    micro_step, update, sizes, accumulation = _parts(trial, gpu)
    measuring = (10 + 4 * trial.steps) * micro_step + (4 + 2 * trial.steps + sizes) * update
    if trial.check_extrapolation:
        measuring += trial.steps * (accumulation * micro_step + update)
    return 10.0 + recipe.parameters / 1e8 + measuring + (90.0 if compiling else 0.0)


def time_limit(trial: Trial, gpu: Gpu | None) -> float:
    """The seconds that a trial gets where nobody says how many: an hour, or more where it is estimated to take long. An
    update of a large model whose states are offloaded takes minutes."""
    return max(Trial.timeout, _SAFETY * estimate(trial, gpu))


def _parts(trial: Trial, gpu: Gpu | None) -> tuple[float, float, int, float]:
    """About how many seconds a micro-step and an update take, at the paper's scale, how many sizes are tried, and how
    many micro-steps are in a training step."""
    if gpu is not None:
        with contextlib.suppress(UserError):  # nobody traced the recipe, or the catalogue lacks a figure of the GPU
            return _predicted_parts(trial, gpu)
    recipe, settings = trial.recipe_and_settings
    peak = peak_flops(gpu, recipe.precision, tf32=settings.free_lunch) or 100e12
    return 4 * recipe.flops_per_example / (peak / 3), 0.0, 0, recipe.batch_size / trial.world / 4


def _predicted_parts(trial: Trial, gpu: Gpu) -> tuple[float, float, int, float]:
    recipe, settings = trial.recipe_and_settings
    machine, fitted = here(gpu, trial.count, trial.memory_limit)
    found = forecast(recipe, replace(machine, nodes=trial.nodes), settings, fitted, papers_hosts=False)
    if found.step is None or found.accumulation is None:
        return 0.0, 0.0, 0, 0  # it ends as soon as it runs out of memory
    micro_step = (found.step.total - found.step.update) / found.accumulation
    return micro_step, found.step.update, found.micro_batch.bit_length(), found.accumulation
