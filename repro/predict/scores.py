"""How wrong predictions are: one list of what was measured and what is predicted of it, and its summaries."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path
from statistics import median
from typing import Any, Literal

from repro.console import DATA
from repro.formats import SECONDS_A_DAY, significant
from repro.paper.arithmetic import recipe_of
from repro.paper.tables import Table, cells
from repro.record import Record
from repro.validity import undisturbed

from .. import models
from ..paper.gpus import find
from .constants import PAPERS, Queue, Rates
from .fits import EVERYTHING, Constants, Errors, Factors
from .forecast import search, step_model
from .hardware import Machine, gpu_named
from .launch_queue import authors_step
from .observations import Observation, trials
from .published import Published, predicted_seconds, published
from .traces import nearest

HeldOut = Literal["recipe", "GPU", "all"]  # what the fit had not seen of a row; all: no such row is in any fit
WAYS: tuple[HeldOut, HeldOut] = ("recipe", "GPU")
TABLES: tuple[Table, ...] = ("4", "1")
STEP, CLOCK = "true step of a trial", "authors' clock of a trial"
OURS = ("results/h100/", "results/h200/")  # other folders of results/ somebody else contributed
TRAINING, FORWARD, RECORD, BEFORE = "training of others", "forward pass of others", "other record", "predicted before"
PREDICTED = DATA / "results" / "predicted"
# Those whose rows came to elsewhere.csv after its target was set.
ADDED = ("repro", "torchtitan", "nanoGPT", "llm.c", "nanochat")
NOTES = (
    "Each measurement is predicted by a fit that had not seen its recipe, its GPU, or anything of its source, but "
    "which constants exist, and which may be fitted, was chosen in sight of all of them.",
    "Days of Tables 1 and 4 are printed ones, by the authors' clock; trials: expected/measured.csv; of others: "
    "expected/elsewhere.csv; other records: results/; predicted before: results/predicted.",
    "csv and json have a row for each measurement with its source, and --all more tables.",
)
_INSIDE = 0.8  # share of unseen measurements inside the interval
_LEAST = 5  # measured trainings of a kind of GPU that has an interval
_WORST = 10


def _table(name: str) -> str:
    return f"days of Table {name}"


@dataclass(frozen=True)
class Scored:
    """A measured and a predicted number: of what (`of`, and `what` in particular), on which machine, where the
    measurement is from, and by what its prediction was held out. Both are days, or seconds of a step."""

    of: str
    what: str
    machine: Machine
    measured: float
    predicted: float
    source: str
    held_out: HeldOut

    @property
    def ratio(self) -> float:
        """Return the predicted over the measured number."""
        return self.predicted / self.measured

    @property
    def factor(self) -> float:
        """Return by which factor the prediction is off."""
        return max(self.ratio, 1 / self.ratio)

    def inside(self, errors: Errors) -> bool:
        """Return whether the measured number lies in the interval; False for a kind of GPU without one."""
        low, high = errors.intervals.get(self.machine.kind, (1.0, 1.0))
        return low <= 1 / self.ratio <= high


@dataclass(frozen=True)
class Target:
    """A score with what it should reach."""

    what: str
    value: float
    target: float
    shown: str
    met: bool


def scored(fits: Mapping[str, Constants], records: Mapping[str, Sequence[Record]]) -> list[Scored]:
    """Return every measurement with its prediction. `records` are those of results/, by their folder's path there."""
    return [*unseen(fits), *_recorded(fits[EVERYTHING], records), *_predicted_before(records)]


def unseen(fits: Mapping[str, Constants]) -> list[Scored]:
    """Return what the errors of predictions follow from: the paper's cells, our trials, and what others measured."""
    return [*_held_out(fits), *(_published(row, fits[EVERYTHING]) for row in published())]


def _held_out(fits: Mapping[str, Constants]) -> list[Scored]:
    """Return the paper's cells and our trials, each predicted by the fit without its recipe, and without its GPU."""
    found = []
    for way in WAYS:
        for cell in (each for table in TABLES for each in cells(table) if each.days is not None):
            held = fits[recipe_of(cell.model).id if way == "recipe" else cell.gpu]
            best = search(cell, held, by_authors=True)[0]
            if best.authors_days is not None and cell.days is not None:
                measured, of = float(cell.days), _table(cell.table)
                found.append(Scored(of, cell.model, best.machine, measured, best.authors_days, cell.source, way))
        for trial in trials():
            found += _trial(trial, fits[trial.recipe.id if way == "recipe" else trial.gpu], way)
    return found


def _trial(trial: Observation, held: Constants, way: HeldOut) -> list[Scored]:
    [settings] = trial.readings
    step = trial.step(settings, trial.micro_batch or 1, held.rates)
    what, steps = f"{trial.recipe.name} {settings.id}", trial.recipe.training_steps
    seconds = trial.days * SECONDS_A_DAY / steps
    found = [Scored(STEP, what, trial.machine, seconds, step.seconds, trial.source, way)]
    if trial.authors_days is not None:
        shown = authors_step(step, held.queue, seconds / step.seconds)
        authors = trial.authors_days * SECONDS_A_DAY / steps
        found.append(Scored(CLOCK, what, trial.machine, authors, shown, trial.source, way))
    return found


def _published(row: Published, fit: Constants) -> Scored:
    """Return what others published, and no fit has seen."""
    return Scored(
        TRAINING if row.what == "step" else FORWARD,
        f"{row.who} {row.model} {row.settings}",
        Machine(gpu_named(row.gpu), row.gpus),
        row.seconds,
        predicted_seconds(row, fit),
        row.source,
        "all",
    )


def public_times(fit: Constants) -> list[dict[str, Any]]:
    """Return the times of a step that people published, with what is predicted of them."""
    return [row(_published(each, fit)) for each in published() if each.unit == "s"]


def _recorded(fit: Constants, records: Mapping[str, Sequence[Record]]) -> list[Scored]:
    """Return the trials in results/ that expected/measured.csv does not have, of the paper's recipes on one kind of
    GPU of the catalogue."""
    kept = {trial.source for trial in trials()}
    found = []
    for folder, record in ((folder, each) for folder, there in records.items() for each in there):
        gpu, source = find(record.device), f"{folder}, {record.id}"
        measured, size = record.derived.true_step, record.batch.micro_batch
        ran = undisturbed(record) and record.comparable_with_paper and record.recipe in models.IDS
        if gpu is None or measured is None or size is None or not ran or source in kept:
            continue
        recipe, settings = record.recipe_and_settings
        machine = Machine(gpu, record.count)
        step = step_model(recipe, machine, settings, fit, nearest({})).step(size).seconds
        of = RECORD if folder.startswith(OURS) else f"records of {folder}"
        found.append(Scored(of, f"{recipe.name} {settings.id}", machine, measured, step, source, "all"))
    return found


def _predicted_before(records: Mapping[str, Sequence[Record]]) -> list[Scored]:
    """Return the trials of results/ that results/predicted had predicted before they were measured, as it did then."""
    found = []
    for file in sorted(PREDICTED.glob("*.csv")):
        with file.open(newline="") as rows:
            known = {(row["recipe"], row["settings"]): row["step_seconds"] for row in csv.DictReader(rows)}
        there = [each for folder, group in records.items() if Path(folder).parent.name == file.stem for each in group]
        for record in (each for each in there if undisturbed(each) and each.derived.true_step):
            gpu, seconds = find(record.device), known.get((record.recipe, record.settings))
            if gpu is not None and seconds and record.derived.true_step is not None:
                what = f"{models.find(record.recipe).name} {record.settings}"
                machine, measured = Machine(gpu, record.count), record.derived.true_step
                found.append(Scored(BEFORE, what, machine, measured, float(seconds), str(file.name), "all"))
    return found


def errors_of(rows: Sequence[Scored]) -> Errors:
    """Return the intervals of each kind of GPU with enough trainings that were measured, and the worst GPU of those
    held out.

    HBM and GDDR have one interval each: the inner 8 of 10 factors between printed or measured and predicted days of
    the cells and trials, whether the recipe or the GPU was held out, the wider bounds of the two.
    """
    trained = [each for each in rows if each.of not in (CLOCK, FORWARD)]
    by_gpu: dict[str, list[float]] = {}
    for each in (each for each in trained if each.held_out != "recipe"):
        by_gpu.setdefault(each.machine.gpu.called, []).append(each.factor)
    worst_gpu = max(by_gpu, key=lambda gpu: median(by_gpu[gpu]))
    ours = [each for each in trained if each.held_out != "all"]
    memories = {
        stacked: _inner([each for each in ours if each.machine.stacked == stacked]) for stacked in (True, False)
    }
    kinds = Counter((each.machine.kind, each.machine.stacked) for each in trained)
    intervals = {kind: memories[stacked] for (kind, stacked), number in sorted(kinds.items()) if number >= _LEAST}
    return Errors(intervals, worst_gpu, round(median(by_gpu[worst_gpu]), 4))


def _inner(rows: Sequence[Scored]) -> Factors:
    outside = (1 - _INSIDE) / 2
    ends = []
    for way in WAYS:
        known = sorted(1 / each.ratio for each in rows if each.held_out == way)
        ends.append((known[int(outside * len(known))], known[int((1 - outside) * len(known))]))
    return round(min(low for low, _ in ends), 4), round(max(high for _, high in ends), 4)


def median_error(rows: Iterable[Scored]) -> float:
    return median(abs(each.ratio - 1) for each in rows)


def targets(rows: Sequence[Scored], errors: Errors) -> list[Target]:
    """Return what predictions should reach: median errors, the mean of both ways of holding out, and trainings of
    others in the interval."""
    found = []
    for of, most in ((STEP, 0.05), (_table("1"), 0.12), (_table("4"), 0.105)):
        ways = [median_error(each for each in rows if (each.of, each.held_out) == (of, way)) for way in WAYS]
        value = sum(ways) / len(ways)
        shown = f"{' / '.join(f'{100 * way:.1f} %' for way in ways)}"
        found.append(Target(f"{of}: median error", value, most, shown, value <= most))
    trainings = [each for each in rows if each.of == TRAINING and not each.what.startswith(ADDED)]
    inside = sum(each.inside(errors) for each in trainings)
    shown = f"{inside} of {len(trainings)}"
    return [*found, Target(f"{TRAINING}: in interval", inside, 21, shown, inside >= 21)]


def sentence(rows: Sequence[Scored], errors: Errors) -> str:
    """Say how far off a true step is, which is what a user waits for, and how many targets are met."""
    aimed = targets(rows, errors)
    number = sum(each.of == STEP for each in rows) // len(WAYS)
    met = sum(each.met for each in aimed)
    return (
        f"A true step is predicted {100 * aimed[0].value:.1f} % off in the median, of {number} trials whose recipe, or "
        f"whose GPU, no rate was fitted to; {met} of {len(aimed)} targets are met."
    )


def interval_rows(errors: Errors) -> list[dict[str, Any]]:
    """Return the interval of each kind of GPU, and the error of the worst GPU for all others."""
    found = [
        {"GPU": kind, "measured / predicted days": f"{low:.2f} to {high:.2f}"}
        for kind, (low, high) in errors.intervals.items()
    ]
    off = f"unknown; the worst, {errors.worst_gpu}, was off by a factor of {errors.worst_factor:.2f}"
    return [*found, {"GPU": "others", "measured / predicted days": off}]


def target_rows(rows: Sequence[Scored], errors: Errors) -> list[dict[str, Any]]:
    """Return the targets as a table."""
    return [
        {
            "what": each.what,
            "recipe / GPU held out": each.shown,
            "value": f"{100 * each.value:.1f} %" if each.target < 1 else f"{each.value:.0f}",
            "target": f"at most {100 * each.target:.1f} %" if each.target < 1 else f"at least {each.target:.0f}",
            "met": each.met,
        }
        for each in targets(rows, errors)
    ]


def summary(rows: Sequence[Scored], errors: Errors) -> list[dict[str, Any]]:
    """Return a row for each kind of measurement and way of holding out."""
    lines = []
    for (of, way), members in groupby(sorted(rows, key=_order), key=lambda each: (each.of, each.held_out)):
        group = list(members)
        near = sum(abs(each.ratio - 1) <= 0.25 for each in group)
        lines.append(
            {
                "what": of,
                "held out": way,
                "rows": len(group),
                "median error": f"{100 * median_error(group):.1f} %",
                "from, to": f"{min(e.ratio for e in group):.2f}, {max(e.ratio for e in group):.2f}",
                "in 25 %": near,
                "in interval": sum(each.inside(errors) for each in group) if of != CLOCK else None,
            }
        )
    return lines


def _order(each: Scored) -> tuple[int, str, int]:
    groups = (STEP, _table("1"), _table("4"), CLOCK, TRAINING, FORWARD, RECORD, BEFORE)
    place = groups.index(each.of) if each.of in groups else len(groups)
    return place, each.of, (*WAYS, "all").index(each.held_out)


def worst(rows: Iterable[Scored]) -> list[dict[str, Any]]:
    """Return the ten that are furthest off, once each."""
    listed = sorted(
        (each for each in rows if each.of not in (BEFORE, CLOCK)), key=lambda each: each.factor, reverse=True
    )
    once = {(each.of, each.what, each.machine): each for each in reversed(listed)}
    return [row(each) for each in sorted(once.values(), key=lambda each: each.factor, reverse=True)[:_WORST]]


def row(each: Scored) -> dict[str, Any]:
    """Return a measurement and its prediction as a row."""
    return {
        "what": each.of,
        "model and settings": each.what,
        "machine": f"{each.machine.gpus} x {each.machine.gpu.called}",
        "held out": each.held_out,
        "measured": each.measured,
        "predicted": each.predicted,
        "ratio": f"{each.ratio:.2f}",
    }


def full_row(each: Scored, errors: Errors) -> dict[str, Any]:
    """Return the same for programs, with its source."""
    named = {name.replace(" ", "_"): value for name, value in row(each).items()}
    inside = None if each.of == CLOCK else each.inside(errors)
    return named | {"ratio": each.ratio, "in_interval": inside, "source": each.source}


def fitted_rows(fits: Mapping[str, Constants]) -> list[dict[str, Any]]:
    """Return the numbers that are fitted to everything: where each starts, and in how many folds it is fitted."""
    start = asdict(Rates()) | {PAPERS: Queue().papers_compiled}
    found = {name: asdict(fit.rates) | {PAPERS: fit.queue.papers_compiled} for name, fit in fits.items()}
    folds = [numbers for name, numbers in found.items() if name != EVERYTHING]
    return [
        {
            "fitted number": name,
            "start": significant(value),
            "fitted": significant(found[EVERYTHING][name]),
            "folds that fit it": f"{sum(numbers[name] != value for numbers in folds)} of {len(folds)}",
        }
        for name, value in start.items()
        if found[EVERYTHING][name] != value
    ]
