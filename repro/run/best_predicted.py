"""The choice of a search's trials by prediction: naive settings, free lunch alone, and the N best predicted."""

from __future__ import annotations

from itertools import groupby

from .. import models
from ..console import say
from ..formats import listing
from ..paper.settings import FREE_LUNCH, NAIVE
from ..predict.fits import here
from ..predict.forecast import forecast, ranked
from ..predict.report import from_traces
from ..predict.traces import nearest_here
from ..record import Trial
from .probe import known_machine
from .run import Run


def choose_best(run: Run, number: int) -> None:
    """Choose naive settings, free lunch and the best predicted of the others for each recipe and count, and say so.
    Sort them by predicted micro batch, the largest first: where memory is short, that shows at once. Skip the rest.

    Do nothing where the time budget allows no waiting trial: the machine is not probed without need.
    """
    if not run.loads:
        return
    known = known_machine(run.bench, run.devices, run.results.folder, run.options.counts)
    stack, taken = nearest_here(), list[Trial]()
    say(f"settings are predicted {from_traces(stack)}")
    can_run = [trial for trial in run.chosen if run.can_run(trial)]
    for (id, count), group in groupby(can_run, lambda trial: (trial.recipe, trial.count)):
        recipe = models.find(id, run.options.scale)
        machine, constants = here(known, count, run.options.memory)
        trials = {trial.recipe_and_settings[1]: trial for trial in group}
        found = {each: forecast(recipe, machine, each, constants, stack, papers_hosts=False) for each in trials}
        others = [settings for settings in trials if settings.base not in (NAIVE, FREE_LUNCH)]
        feasible = [found[settings] for settings in others if found[settings].feasible]
        best = [each.settings for each in ranked(feasible, run.options.clock == "authors")[:number]]
        wanted = [each for each in trials if each in best or each not in others]
        wanted.sort(key=lambda settings: found[settings].micro_batch, reverse=True)
        taken += [trials[settings] for settings in wanted]
        names = listing([settings.id for settings in best]) if best else "none is predicted to fit"
        say(
            f"{id} on {taken[-1].machine}: {len(wanted)} of {len(trials)} settings are measured, largest micro batch "
            f"first: naive, free lunch and the {number} best predicted ({names}); the others are predicted to take "
            "longer, or not to fit"
        )
    run.skip_but(taken, can_run)
