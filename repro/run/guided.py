"""Guided search: predictions order a run's trials, and measurements correct the predictions."""

from __future__ import annotations

from itertools import groupby

from .. import models
from ..console import say
from ..paper.settings import Settings
from ..predict.fits import here
from ..predict.guide import Guide
from ..predict.report import traced
from ..predict.traces import here_reason, nearest_here
from .probe import known_machine
from .run import Run


def guide(run: Run) -> None:
    """Sort the trials of each search by predicted speed, and create the guide that learns from their measurements. Do
    nothing where the time budget allows no waiting trial: the machine is not probed without need."""
    if any(map(run.can_run, run.waiting)) and not run.loads:
        return
    ordered = [trial for trial in run.trials if not run.can_run(trial)]  # these need no prediction
    stack, known, options = nearest_here(), None, run.options
    can_run = filter(run.can_run, run.trials)
    for (id, count), group in groupby(can_run, lambda trial: (trial.recipe, trial.count)):
        known = known or known_machine(run.bench, run.devices, run.results.folder, options.counts)
        machine, constants = here(known, count, options.memory)
        found = Guide(models.find(id, options.scale), machine, constants, stack, options.clock)
        run.guides[id, count] = found
        by_settings = {Settings.parse(trial.settings): trial for trial in group}
        ordered += [by_settings[settings] for settings in found.ordered(by_settings)]
        for trial in by_settings.values():
            if (record := run.finished(trial)) is not None:
                found.learn(record)
    if run.guides:
        say(f"guided by what is predicted {traced(stack, here_reason())}")
    run.trials = ordered
