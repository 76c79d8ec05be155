"""Training days of a model on every machine for which they are known, with their origin."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from .. import command, models
from ..console import UserError
from ..formats import Interval, listing, rough
from ..paper.arithmetic import rounded_days
from ..paper.gpus import Gpu, OfGpus, OwnGpu, catalogue
from ..paper.settings import NAIVE
from ..paper.tables import COUNTS, cells
from ..predict import own
from ..predict.calibration import EVERYTHING, calibrations
from ..predict.forecast import Forecast, fastest
from ..predict.hardware import Machine
from ..predict.modern import today
from ..predict.traces import PAPER_STACK, Traced, shipped
from ..record import Record
from ..run.reading import Joined
from ..run.reading import measured as read_measured
from ..run.settings_search import searches

Origin = Literal["expected", "measured", "predicted", "given"]  # printed, measured, predicted, or the user's


@dataclass(frozen=True)
class TrainingDays(OfGpus):
    """Days of one training on `gpus` of `gpu`, with bounds: the rounding of the paper's days, or the 80 % interval of
    predicted ones. `watts` is the power of its GPUs together, where that was measured: with `by_counter` the mean of
    the timed rounds by the GPUs' energy counters, else one reading."""

    gpu: str
    gpus: int
    days: Interval
    origin: Origin
    source: str
    watts: float | None = None
    by_counter: bool = False

    @property
    def bounds(self) -> tuple[float, float] | None:
        """Return the days between which 8 of 10 such predictions hold; None for days that are not predicted, and where
        no interval is known."""
        known = self.origin == "predicted" and self.days.low < self.days.high
        return (self.days.low, self.days.high) if known else None

    def known(self, value: float) -> float:
        """Return a value derived from these days, rounded to significant figures where they are predicted."""
        return rough(value) if self.origin == "predicted" else value

    def times(self, runs: int) -> TrainingDays:
        """Return the days of several trainings, one after the other."""
        return replace(self, days=(self.days * runs).mapped(self.known))


def training_days(
    model: str,
    measured: Sequence[Path] | None = None,
    predicted: bool = False,
    trained: Sequence[TrainingDays] = (),
) -> list[TrainingDays]:
    """Return a model's days: Table 1's, replaced by those measured in results folders, and these by `trained` ones.
    With `predicted`, those of GPUs that are not in Table 1 are added, as far as training is predicted to fit them; of a
    model of one's own all are predicted.

    Raises UserError for an unknown model, for one that is not the paper's and was not measured, and for folders without
    a measurement of it.
    """
    is_own = models.is_own(model)
    if measured is None and not trained and not is_own:
        models.find_of_paper(model)
    found = {(row.gpu, row.gpus): row for row in expected_days(model)}
    if predicted or (is_own and measured is None and not trained):
        known = set[str]() if is_own else {cell.gpu for cell in cells("1")}
        found |= {(row.gpu, row.gpus): row for row in predicted_days(model) if row.gpu not in known}
    if measured is not None:
        found |= {(row.gpu, row.gpus): row for row in measured_days(model, measured)}
    found |= {(row.gpu, row.gpus): row for row in trained}
    return list(found.values())


def days_on(
    gpu: str | OwnGpu | None,
    gpus: int | None,
    model: str,
    measured: Sequence[Path] | None,
    predicted: bool,
    trained: Sequence[TrainingDays] = (),
) -> list[TrainingDays]:
    """Return the days on that GPU and that number of them; None matches all. Those on a GPU of the user's own are
    predicted. Raises UserError where there are none, naming those that are known."""
    if isinstance(gpu, OwnGpu):
        _refuse_measured(gpu, measured)
        found = [row for row in predicted_days(model, [gpu]) if gpus in (None, row.gpus)]
        if not found:
            raise UserError(f"{model} is not predicted to train on {listing([str(n) for n in COUNTS])} {gpu.name}")
        return found

    def asked(days: list[TrainingDays]) -> list[TrainingDays]:
        return [row for row in days if gpu in (None, row.gpu) and gpus in (None, row.gpus)]

    days = training_days(model, measured, predicted, trained)
    found = asked(days)
    if not found:
        numbers = sorted({row.gpus for row in days if gpu in (None, row.gpu)})
        names = ", ".join(dict.fromkeys(row.gpu for row in days))
        known = f"{', '.join(map(str, numbers))} {gpu or 'GPUs'}" if numbers else names
        would_be = not predicted and model in models.IDS and asked(training_days(model, measured, True, trained))
        way_out = "; --predicted brings days that are only predicted" if would_be else ""
        machine = f"{gpus or ''} {gpu or ('GPU' if gpus == 1 else 'GPUs')}".strip()
        raise UserError(f"nobody knows how long {model} takes on {machine}; known: {known}{way_out}")
    return found


def _refuse_measured(gpu: OwnGpu, measured: Sequence[Path] | None) -> None:
    if measured is not None:
        raise UserError(f"--measured changes nothing of --gpu {gpu.file}, whose days are predicted: leave it out")


def expected_days(model: str) -> list[TrainingDays]:
    """Return Table 1's days, of feasible cells: the paper's best settings, by the authors' clock, rounded to a day."""
    name = models.find(model).name
    return [
        TrainingDays(cell.gpu, cell.gpus, rounded_days(cell), "expected", cell.source)
        for cell in cells("1")
        if cell.model == name and cell.state == "days"
    ]


def predicted_days(model: str, of: Sequence[Gpu] | None = None) -> list[TrainingDays]:
    """Return the predicted days of the best settings on these GPUs (None: every one of the catalogue), with 80 %
    intervals. They are shown beside the paper's days, and so are for its stack, whatever is installed here; of a model
    of one's own they are for the installed stack."""
    recipe = models.find(model) if models.is_own(model) else models.find_of_paper(model)
    gpus = catalogue() if of is None else of
    machines = [Machine(gpu, count) for gpu in gpus for count in COUNTS if recipe.batch_size % count == 0]
    return [found for each in machines if (found := foretold(fastest(recipe, each, PAPER_STACK))) is not None]


def modern_days(
    gpu: str | OwnGpu | None, model: str, measured: Sequence[Path] | None, exact_only: bool
) -> list[TrainingDays]:
    """Return the days with the parts of modern training on that GPU, None for all: those that a run kept, by true days,
    else predicted ones, which have no interval. Raises UserError where there are none."""
    recipe = models.find(model) if models.is_own(model) else models.find_of_paper(model)
    stack, fitted = own.stack() if models.is_own(model) else shipped()[-1], calibrations()[EVERYTHING]
    if isinstance(gpu, OwnGpu):
        _refuse_measured(gpu, measured)
    gpus = [gpu] if isinstance(gpu, OwnGpu) else [each for each in catalogue() if gpu in (None, each.called)]
    found: dict[tuple[str, int], TrainingDays] = {}
    for machine in (Machine(each, count) for each in gpus for count in COUNTS if recipe.batch_size % count == 0):
        both = today(recipe, machine, fitted, stack)
        best = foretold(both.exact if exact_only else both.all, stack)
        if best is not None:
            found[best.gpu, best.gpus] = replace(best, days=Interval.exact(best.days.value))
    if measured is not None:
        runs = read_measured(measured)
        for record in runs.records:
            days, stands = record.derived.true_days, record.modern is not None and record.modern.stands(exact_only)
            if not (stands and days and record.like_papers and record.recipe == model and gpu in (None, record.device)):
                continue
            before = found.get((record.device, record.count))
            if before is None or before.origin == "predicted" or days < before.days.value:
                found[record.device, record.count] = _of_record(runs, record, days)
    if not found:
        name = gpu.name if isinstance(gpu, OwnGpu) else gpu or "any GPU"
        raise UserError(f"{model} is not predicted to train on {name}")
    return list(found.values())


def _predicted_on(stack: Traced) -> str:
    return f"repro predict, transformers {stack.transformers}"


OF_PAPERS_STACK = _predicted_on(PAPER_STACK)  # begins the source of days that are predicted for the paper's stack


def foretold(best: Forecast, stack: Traced = PAPER_STACK) -> TrainingDays | None:
    """Return the days of a prediction by a stack's traces, in significant figures; None where it has none."""
    if best.days is None:
        return None
    stack = own.stack() if models.is_own(best.recipe) else stack
    return TrainingDays(
        best.machine.gpu.called,
        best.machine.gpus,
        best.days.mapped(rough),
        "predicted",
        f"{_predicted_on(stack)}, {best.settings.id}",
    )


def measured_days(model: str, folders: Sequence[Path]) -> list[TrainingDays]:
    """Return the true days of the fastest trial on each machine: at the paper's scale, on one node, with the whole
    memory; for the paper's recipes without naive settings, as in Table 1. Raises UserError where there are none."""
    runs = read_measured(folders)
    there = searches(each for each in runs.records if each.recipe == model and each.comparable_with_paper)
    best = [
        min(ran, key=lambda one: one[0])
        for search in there
        if (
            ran := [
                (each.derived.true_days, each)
                for each in search.standing.values()
                if _counts(each) and each.derived.true_days
            ]
        )
    ]
    if not best:
        raise UserError(
            f"--measured {runs.name}: no finished trial of {model} at the paper's scale on GPUs, naive ones left out; "
            f"{command()} --gpus all --models {model} --out DIR measures it"
        )
    return [_of_record(runs, record, days) for days, record in best]


def _of_record(runs: Joined, record: Record, days: float) -> TrainingDays:
    source = f"{runs.run_of(record).folder}, {record.settings}, true"
    by_counter = record.derived.joules_per_step is not None
    return TrainingDays(
        record.device, record.count, Interval.exact(days), "measured", source, _watts(record), by_counter
    )


def _counts(record: Record) -> bool:
    """Return True where the record may be the fastest: of the paper's recipes Table 1 leaves naive settings out."""
    return record.settings != NAIVE.id or record.recipe not in models.IDS


def _watts(record: Record) -> float | None:
    """Return the ranks' power together: the mean while the rounds were timed, else as read once in a training step;
    None where a GPU did not report it."""
    if record.derived.joules_per_step is not None and record.derived.true_step:
        return record.derived.joules_per_step / record.derived.true_step
    readings = [state.get("power_w") if state else None for state in record.observed.gpu_state or []]
    drawn = [watts for watts in readings if watts is not None]
    return sum(drawn) if readings and len(drawn) == len(readings) else None
