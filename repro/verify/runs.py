"""The runs that may decide cells of Tables 1 and 4, with their minutes, and how likely each decides its cells."""

from __future__ import annotations

import math
from collections.abc import Sequence, Set
from dataclasses import dataclass
from statistics import NormalDist

from .. import command
from ..claims import numbers
from ..claims.claim import Claim, listed
from ..claims.working import Working
from ..compare.trials import DRIFT
from ..formats import Interval, shell_words
from ..paper.arithmetic import paper_gpu, recipe_of
from ..paper.measured_days import measured
from ..paper.settings import NAIVE
from ..paper.tables import TOLERANCE, Cell, cells, settings_by_place
from ..predict.fits import EVERYTHING, fitted_constants
from ..predict.forecast import Forecast, forecast, ranked
from ..predict.hardware import Machine
from ..predict.traces import of_stack
from ..record import Trial
from ..run.estimate import LOADING, REPORTING, estimate
from ..run.plan import Methods, settings_for
from ..run.verdict import bounds

SETTING_UP = 5.0  # minutes on a rented machine before its first run: docs/artifact.md
_TENTH = NormalDist().inv_cdf(0.9)  # standard deviations from the median to a bound of an interval with 8 of 10


@dataclass(frozen=True)
class Odds:
    """A cell that a run measures: the days that it is predicted to measure, None where nothing is predicted to fit; the
    probability that its verdict is one that a second run repeats, 0 where results that are kept have decided it."""

    cell: Cell
    days: Interval | None
    decides: float


@dataclass(frozen=True, eq=False)
class Run:
    """A model on one machine with the settings that `methods` selects, the minutes that it should take, and the cells
    that it may decide."""

    recipe: str
    gpu: str
    gpus: int
    methods: Methods
    minutes: float
    odds: tuple[Odds, ...]

    @property
    def machine(self) -> tuple[str, int]:
        return self.gpu, self.gpus

    @property
    def place(self) -> str:
        """Return the machine as it stands in a path, and in the ids of trials."""
        return f"{self.gpus}x{self.gpu.replace(' ', '-')}"

    def words(self, folder: str = "results/verify") -> list[str]:
        """Return the words behind the command: its options."""
        methods = [] if self.methods == "published" else ["--methods", self.methods]
        fewer = ["--", "-k", self.place] if self.gpus > 1 else []  # --gpus 8 also measures on 1, 2 and 4 of them
        out = f"{folder}/{self.place}/{self.recipe}"
        return ["--gpus", str(self.gpus), "--models", self.recipe, *methods, "--out", out, *fewer]

    @property
    def line(self) -> str:
        """Return the command, as a shell takes it."""
        return f"{command()} {shell_words(self.words())}"


def candidates(gpu: str | None = None, gpus: int | None = None) -> list[Run]:
    """Return a run for each model on each of the paper's machines, in the order of its tables; those on one GPU, or on
    one number of them, where that is asked for."""
    places: dict[tuple[str, str, int], list[Cell]] = {}
    for cell in (*cells("1"), *cells("4")):
        if gpu in (None, cell.gpu) and gpus in (None, cell.gpus):
            places.setdefault(cell.place, []).append(cell)
    done = decided()
    runs = (_run(of_place, done) for of_place in places.values())
    return [run for run in runs if run.odds]


def _run(of_place: Sequence[Cell], done: Set[Cell]) -> Run:
    best, naive = of_place
    recipe, machine = recipe_of(best.model), Machine(paper_gpu(best.gpu), best.gpus)
    # The paper publishes no settings for a cell where none fits: only the whole search shows the same.
    methods: Methods = "all" if best.state == "infeasible" else "published"
    wanted = settings_for(recipe, methods, machine.gpu, best.gpus)
    found = [forecast(recipe, machine, each, fitted_constants()[EVERYTHING], of_stack("today")) for each in wanted]
    trials = [
        Trial(recipe=recipe.id, scale="paper", settings=each.id, device=best.gpu, count=best.gpus) for each in wanted
    ]
    seconds = LOADING + REPORTING + sum(estimate(each, machine.gpu) for each in trials)
    searched = best.state == "infeasible" or best.place in settings_by_place()
    of_cells = {naive: [each for each in found if each.settings == NAIVE]}
    if searched:
        of_cells = {best: [each for each in found if each.settings != NAIVE], **of_cells}
    odds = (_odds(cell, of_cell) for cell, of_cell in of_cells.items() if cell.state != "lost" and cell not in done)
    return Run(recipe.id, best.gpu, best.gpus, methods, seconds / 60, tuple(odds))


def _odds(cell: Cell, found: Sequence[Forecast]) -> Odds:
    """Return how likely measuring the fastest of these settings decides a cell."""
    days = ranked(found)[0].days
    if cell.days is None or days is None:  # that it fits, or does not, decides; all cells are predicted as printed
        return Odds(cell, days, 1.0)
    low, high = bounds(cell.days, TOLERANCE)
    margin = 1 + DRIFT
    differs = below(days, low / margin) + 1 - below(days, high * margin)
    held = below(days, high / margin) - below(days, low * margin)
    return Odds(cell, days, differs + max(held, 0.0))


def decides(cell: Cell, days: float | None) -> bool:
    """Return whether these measured days, None where nothing fits, give a cell a verdict that a second run repeats."""
    if cell.state == "lost" or cell.days is None or days is None:
        return cell.state != "lost"
    return all(abs(math.log(days / bound)) > math.log(1 + DRIFT) for bound in bounds(cell.days, TOLERANCE))


def decided() -> frozenset[Cell]:
    """Return the cells that results which are kept decide: those of expected/measured.csv."""
    kept = {cell: measured(cell) for cell in (*cells("1"), *cells("4"))}
    return frozenset(cell for cell, row in kept.items() if row is not None and decides(cell, row.true_days))


def deviation(days: Interval, above: bool) -> float:
    """Return the standard deviation of the logarithm of predicted days, above or below the predicted ones. Days of
    which no interval is known are as uncertain as the least certain that are."""
    edge = days.high / days.value if above else days.value / days.low
    if days.low == days.high:
        factors = fitted_constants()[EVERYTHING].errors.intervals.values()
        edge = max(max(high, 1 / low) for low, high in factors)
    return math.log(edge) / _TENTH


def below(days: Interval, bound: float) -> float:
    """Return the probability that the true days lie below a bound: log-normal on either side of the predicted ones."""
    distance = math.log(bound / days.value)
    return NormalDist().cdf(distance / deviation(days, distance > 0))


def resting_on() -> dict[str, frozenset[Cell]]:
    """Return the undecided cells on whose days each claim rests that rests on any."""
    done = decided()
    return {claim.id: cells for claim in listed() if (cells := frozenset(_days_of(claim)) - done)}


def _days_of(claim: Claim) -> list[Cell]:
    found: list[Cell] = []

    def read(cell: Cell) -> Working:
        found.append(cell)
        return Working.read(cell.days or 1, numbers.cell_row(cell))

    if claim.formula:
        with numbers.days_read_by(read):
            claim.formula.value()
    return found
