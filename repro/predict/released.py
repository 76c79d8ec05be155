"""The authors' raw results beside predictions: what the launch queue explains of them, and how far off each is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from ..formats import first, from_to
from ..paper.arithmetic import paper_gpu, paper_peak
from ..paper.settings import FREE_LUNCH, NAIVE, Settings
from ..record import Record
from ..steps import days_of_steps, utilisation
from .fits import EVERYTHING, fitted_constants
from .forecast import step_model
from .hardware import Machine
from .launch_queue import authors_step, true_over_predicted
from .traces import PAPER_STACK


@dataclass(frozen=True)
class ReleasedStep:
    """A raw step time of the authors, in seconds by their clock, beside what is predicted of it: the true step, and
    what their clock would have shown of that one. `implied` is the true step behind the released one, with what waits
    in the launch queue. Shares of the GPU's dense peak are FLOP/s that the released and the implied step need."""

    record: Record
    model: str
    seconds: float
    true: float
    shown: float
    implied: float
    share: float
    implied_share: float

    @property
    def name(self) -> str:
        return f"{self.model} on {self.record.machine} with {self.record.settings}"

    @property
    def ratio(self) -> float:
        """Return the predicted over the released step, both by the authors' clock."""
        return self.shown / self.seconds

    @property
    def impossible(self) -> bool:
        return self.share > 1

    @property
    def implied_days(self) -> float:
        """Return the true days that the released ones imply."""
        return days_of_steps(self.implied, self.record.recipe_and_settings[0].training_steps)

    @property
    def predicted_days(self) -> float:
        """Return the true days that are predicted."""
        return days_of_steps(self.true, self.record.recipe_and_settings[0].training_steps)

    @property
    def kind(self) -> str:
        """Return the kind of its settings."""
        settings = Settings.parse(self.record.settings)
        if settings.free_lunch and not self.record.as_run.compiled:
            return "timed uncompiled"
        if settings in (NAIVE, FREE_LUNCH):
            return "naive" if settings == NAIVE else "free lunch alone"
        library = {"torch": "checkpointing", "deepspeed": "ZeRO", "fsdp": "FSDP"}[settings.library]
        return f"{library}, offloading" if settings.offloading else library


def steps(records: Iterable[Record]) -> list[ReleasedStep]:
    """Return the raw step times, each beside its prediction for the paper's stack at its micro batch."""
    return [_step(record) for record in records if record.status == "ok"]


def _step(record: Record) -> ReleasedStep:
    (recipe, settings), fit = record.recipe_and_settings, fitted_constants()[EVERYTHING]
    seconds, micro_batch = record.derived.authors_step, record.batch.micro_batch
    assert seconds is not None
    assert micro_batch is not None
    machine = Machine(paper_gpu(record.device), record.count)
    predicted = step_model(recipe, machine, settings, fit, PAPER_STACK).step(micro_batch)
    implied = predicted.seconds * true_over_predicted(predicted, fit.queue, seconds)
    flops, peak = (
        recipe.flops_per_example * recipe.batch_size,
        paper_peak(record.device, recipe.precision, settings.free_lunch),
    )
    share, implied_share = (utilisation(flops, each, record.count, peak) for each in (seconds, implied))
    shown = authors_step(predicted, fit.queue)
    return ReleasedStep(record, recipe.name, seconds, predicted.seconds, shown, implied, share, implied_share)


def possible(found: Sequence[ReleasedStep]) -> str:
    """Return a sentence on which raw step times cannot be true, and what the launch queue explains of them."""
    impossible = [each for each in found if each.impossible]
    text = f"{len(impossible)} of the {len(found):,} raw step times need more FLOP/s than the GPU has"
    if not impossible:
        return f"{text}."
    explained = [each for each in impossible if each.implied_share <= 1]
    text += f"; with the launch queue {len(explained)} of them are possible"
    worst = sorted((each for each in impossible if each not in explained), key=lambda each: -each.implied_share)
    left = first([f"{each.name}: {each.implied_share:.0%} of the peak" for each in worst])
    return f"{text}, not {left}." if worst else f"{text}."


def off(found: Sequence[ReleasedStep]) -> str:
    """Return a sentence on how far predictions are off the raw step times, to which nothing was fitted."""
    errors = [abs(each.ratio - 1) for each in found]
    near = sum(error <= 0.25 for error in errors)
    return (
        f"Predicted steps, as the authors' clock would show them, are {100 * median(errors):.1f} % off in the median "
        f"of {len(found):,} raw step times, and {near:,} of them are within 25 %; nothing was fitted to them."
        if found
        else "No raw step time was found, so that nothing is compared."
    )


_GROUPS: dict[str, Callable[[ReleasedStep], str]] = {
    "model": lambda each: each.model,
    "GPU": lambda each: each.record.device,
    "kind of setting": lambda each: each.kind,
}


def errors(found: Sequence[ReleasedStep]) -> list[dict[str, Any]]:
    """Return how far off predictions are, by model, GPU and kind of setting; and how far without the launch queue."""
    rows = []
    for by, key in _GROUPS.items():
        for name in dict.fromkeys(map(key, found)):
            there = [each for each in found if key(each) == name]
            ratios = [each.ratio for each in there]
            rows.append(
                {
                    "by": by,
                    "which": name,
                    "steps": len(there),
                    "median error": f"{100 * median(abs(ratio - 1) for ratio in ratios):.1f} %",
                    "predicted / released": from_to(ratios, ".2f"),
                    "without the queue": f"{100 * median(abs(each.true / each.seconds - 1) for each in there):.1f} %",
                }
            )
    return rows


def row(each: ReleasedStep) -> dict[str, Any]:
    """Return a raw step time and its prediction for CSV and JSON."""
    record = each.record
    return {
        "origin": record.origin,
        "model": each.model,
        "gpu": record.device,
        "gpus": record.count,
        "settings": record.settings,
        "kind": each.kind,
        "micro_batch": record.batch.micro_batch,
        "released_step_seconds": each.seconds,
        "released_days": record.derived.authors_days,
        "predicted_authors_step_seconds": each.shown,
        "predicted_step_seconds": each.true,
        "ratio": each.ratio,
        "of_peak": each.share,
        "of_peak_with_the_queue": each.implied_share,
        "implied_true_days": each.implied_days,
    }
