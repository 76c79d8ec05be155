"""Numbers with their sources: rows of expected/ and of recipes, and arithmetic that records its steps.

Functions that read raise UserError where a file of expected/ is broken, or lacks the number that a claim needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import add, mul, sub, truediv
from random import Random
from typing import Any

from ..datafile import absent
from ..formats import Interval, counted
from ..lab.specification import LabRun, lab_runs
from ..money import prices
from ..paper.arithmetic import by_place, recipe_of, training_flops
from ..paper.gpus import by_name, paper_gpus
from ..paper.tables import COUNTS, Cell, Table, original_trainings, quantities

_READER: ContextVar[Callable[[Cell], Working] | None] = ContextVar("days", default=None)


@contextmanager
def days_read_by(reader: Callable[[Cell], Working]) -> Iterator[None]:
    """Take a cell's days from a reader in place of the printed ones, in what is computed meanwhile."""
    token = _READER.set(reader)
    try:
        yield
    finally:
        _READER.reset(token)


def printed_days(table: Table, model: str, gpu: str, gpus: int) -> Working:
    """Return the days that Table 1 or 4 prints for a cell, or those of `days_read_by`."""
    cell = by_place(table)[model, gpu, gpus]
    if (reader := _READER.get()) is not None:
        return reader(cell)
    if cell.days is None:
        absent(f"table{table}.csv", "days", (model, gpu, gpus))
    return Working.read(cell.days, cell_row(cell), rounded_to=1)


def original(model: str) -> Working:
    """Return the GPU-days of a model's original training."""
    found = original_trainings()[model]
    if found.gpus is None or found.days is None:
        absent("figure6.csv", "GPUs and days", model)
    value = f"{found.gpus} {found.gpu} for {counted(found.days, 'day')}"
    days = Working.read(found.days, SourceRow("figure6.csv", model, value, found.source))
    return (days * found.gpus).called(f"GPU-days of the original {model}")


def original_gpus(model: str) -> Working:
    """Return the number of GPUs of a model's original training."""
    found = original_trainings()[model]
    if found.gpus is None:
        absent("figure6.csv", "GPUs", model)
    return Working.read(found.gpus, SourceRow("figure6.csv", model, f"{found.gpus} {found.gpu}", found.source))


def quantity(id: str, rounded_to: float = 0.0) -> Working:
    found = quantities()[id]
    row = SourceRow("quantities.csv", f"{id}: {found.what}", f"{shown(found.value)} {found.unit}", found.source)
    return Working.read(found.value, row, rounded_to)


def price(gpu: str) -> Working:
    """Return the price of one GPU in US dollars."""
    found = prices.gpu_prices()[gpu]
    row = SourceRow("table5.csv", gpu, f"{shown(found.cost_usd)} USD", found.source)
    return Working.read(found.cost_usd, row, quantities()[f"rounding/{gpu}"].value)


def system(gpus: int) -> Working:
    """Return the price in US dollars of a machine without its GPUs, as section 4.1 rounds it."""
    found = prices.known_systems()[gpus]
    row = SourceRow("systems.csv", f"{found.system}, GPUs: {gpus}", f"{shown(found.cost_usd)} USD", found.source)
    return Working.read(found.cost_usd, row, quantities()["rounding/system"].value)


def machine(gpu: str, gpus: int) -> Working:
    """Return the price in US dollars of a machine with its GPUs."""
    return (price(gpu) * gpus + system(gpus)).called(f"USD of a machine with {gpus} {gpu}")


def machines() -> dict[tuple[str, int], tuple[Working, Working]]:
    """Return price and days of Pythia-1B for every machine of the paper, cheapest first: Figure 7."""
    found = {
        (gpu, gpus): (machine(gpu, gpus), printed_days("1", "Pythia-1B", gpu, gpus))
        for gpu in paper_gpus()
        for gpus in COUNTS
    }
    return dict(sorted(found.items(), key=lambda item: item[1][0].value.value))


def parts(gpus: int) -> Working:
    """Return the price in US dollars of a desktop's parts: Table 6, without its total."""
    return total(
        [
            Working.read(part.cost_usd, SourceRow("table6.csv", part.part, f"{part.cost_usd:.2f} USD", part.source))
            for part in prices.parts().values()
            if part.gpus == gpus and part.part != "Total"
        ]
    )


def server(gpus: int) -> Working:
    """Return the price in US dollars of a server without its GPUs: Table 7."""
    found = prices.servers()[gpus]
    row = SourceRow("table7.csv", f"server, GPUs: {gpus}", f"{shown(found.cost_usd)} USD", found.source)
    return Working.read(found.cost_usd, row)


def rental(gpu: str, gpus: int, provider: str, terms: str) -> Working:
    """Return the price of renting an instance: of one hour, or of a whole reservation."""
    found = prices.known_rentals()[gpu, gpus, provider, terms]
    what = f"{gpus} {gpu} at {provider}, {terms}, {found.hours:g} h"
    row = SourceRow("rental.csv", what, f"{shown(found.price)} {found.currency}", found.source)
    return Working.read(found.price, row)


def lab(resources: str, epochs: int) -> tuple[LabRun, SourceRow]:
    """Return a training run of the lab report, and its row."""
    run = lab_runs()[resources, epochs]
    return run, SourceRow("lab.csv", f"{resources}, {counted(epochs, 'epoch')}", f"{run.seconds} s", run.source)


def datasheet(gpu: str, field: str, unit: str) -> Working:
    """Return a number of a GPU's data sheet."""
    found = by_name()[gpu]
    value = getattr(found, field)
    if value is None:
        absent("gpus.csv", field, gpu)
    return Working.read(value, SourceRow("gpus.csv", f"{gpu}, {field}", f"{value:g} {unit}", found.source))


def parameters(model: str) -> Working:
    """Return the model's number of weights, counted in closed form."""
    recipe = recipe_of(model)
    row = SourceRow("models/", recipe.id, f"{recipe.parameters:,} parameters", "closed form of the recipe's shape")
    return Working.read(recipe.parameters, row)


def flops(model: str) -> Working:
    """Return the FLOPs of a whole training, counted in closed form."""
    recipe = recipe_of(model)
    value = f"{shown(recipe.flops_per_example)} FLOPs an example x {recipe.batch_size} x {recipe.training_steps} steps"
    row = SourceRow("models/", recipe.id, value, "closed form of the recipe's shape")
    return Working.read(training_flops(recipe), row).called(f"FLOPs of {model}")


def cell_row(cell: Cell) -> SourceRow:
    """Return the row of a cell of Table 1 or 4."""
    value = counted(cell.days, "day") if cell.days is not None else cell.state
    return SourceRow(f"table{cell.table}.csv", f"{cell.model} on {cell.machine}", value, cell.source)


@dataclass(frozen=True)
class SourceRow:
    """The row that a number was read from: file, row, value with unit, and source."""

    file: str
    row: str
    value: str
    source: str


DRAWS = 20_000  # of what the rounded inputs of a number may have been
_TAIL = DRAWS // 40  # draws below the central 95 %, and as many above
Draws = Sequence[float]


@dataclass(frozen=True)
class Working:
    """A number with the rows that it comes from and its calculation, in words; `note` is a remark for the reader.

    Sums, differences, products and quotients keep the rows and steps of their operands, so that none is lost. The
    bounds of `value` are those of all inputs rounded the worst way at once; `central` has the likely ones. `draw`
    makes the draws of a number that is computed from others.
    """

    value: Interval
    rows: tuple[SourceRow, ...] = ()
    steps: tuple[str, ...] = ()
    note: str = ""
    draw: Callable[[], Draws] | None = field(default=None, compare=False, repr=False)

    @classmethod
    def read(cls, value: float, row: SourceRow, rounded_to: float = 0.0) -> Working:
        """Return a number read from a row, printed there to a multiple of `rounded_to`; 0 means exact."""
        return cls(Interval.rounded(value, rounded_to), (row,))

    def __add__(self, other: Working | float) -> Working:
        return self._with("+", add, other)

    def __sub__(self, other: Working | float) -> Working:
        return self._with("-", sub, other)

    def __mul__(self, other: Working | float) -> Working:
        return self._with("x", mul, other)

    def __truediv__(self, other: Working | float) -> Working:
        return self._with("/", truediv, other)

    def draws(self) -> Draws:
        """Return what the number would be for each draw of its inputs. The same row is the same draw everywhere."""
        if self.value.low == self.value.high:
            return [self.value.low] * DRAWS
        return self.draw() if self.draw else _rounding(self.value, self.rows)

    def central(self) -> Interval:
        """Return the number with the bounds of the central 95 % of its draws."""
        ordered = sorted(self.draws())
        return Interval(self.value.value, ordered[_TAIL], ordered[-1 - _TAIL])

    def mapped(self, by: Callable[[float], float]) -> Working:
        """Return a copy to whose number a function is applied that never decreases, such as rounding."""
        return replace(self, value=self.value.mapped(by), draw=lambda: list(map(by, self.draws())))

    def called(self, name: str) -> Working:
        """Return a copy whose last step starts with a name for the number."""
        last = self.steps[-1] if self.steps else shown(self.value.value)
        return replace(self, steps=(*self.steps[:-1], f"{name}: {last}"))

    def saying(self, step: str) -> Working:
        """Return a copy with one more step, in words."""
        return replace(self, steps=(*self.steps, step))

    def with_note(self, note: str) -> Working:
        """Return a copy with a note."""
        return replace(self, note=note)

    def after(self, *others: Working) -> Working:
        """Return a copy that starts with the rows and steps of others, such as those that it was selected from."""
        rows, steps = _together([*others, self])
        return replace(self, rows=rows, steps=steps)

    def _with(self, sign: str, by: Callable[[Any, Any], Any], other: Working | float) -> Working:
        second = other if isinstance(other, Working) else Working(Interval.exact(other))
        value = by(self.value, second.value)
        rows, steps = _together([self, second])
        step = f"{shown(self.value.value)} {sign} {shown(second.value.value)} = {shown(value.value)}"
        return Working(value, rows, (*steps, step), draw=lambda: list(map(by, self.draws(), second.draws())))


def _rounding(value: Interval, rows: tuple[SourceRow, ...]) -> Draws:
    """Draw evenly what a number may have been before it was rounded, seeded by its rows."""
    step = (value.high - value.low) / 256
    steps = [value.low + (place + 0.5) * step for place in range(256)]  # a byte a draw: a quarter of the time of floats
    return list(map(steps.__getitem__, Random(repr(rows)).randbytes(DRAWS)))


def total(workings: Sequence[Working]) -> Working:
    """Return the sum, as one step."""
    found = _sum(workings)
    terms = " + ".join(shown(working.value.value) for working in workings)
    return replace(found, steps=(*found.steps, f"{terms} = {shown(found.value.value)}"))


def mean(workings: Sequence[Working]) -> Working:
    """Return the arithmetic mean, as one step."""
    found = _sum(workings)
    quotient = found / len(workings)
    step = f"mean of the {len(workings)}: {shown(quotient.value.value)}"
    return replace(quotient, steps=(*found.steps, step))


def _sum(workings: Sequence[Working]) -> Working:
    value = sum((working.value for working in workings), Interval.exact(0.0))
    return Working(
        value,
        *_together(workings),
        draw=lambda: reduce(lambda sums, each: list(map(add, sums, each.draws())), workings, [0.0] * DRAWS),
    )


def count(number: int, of: Sequence[Working], what: str) -> Working:
    """Return a count and its total as one step, such as "9 of 20 are infeasible"."""
    rows, steps = _together(of)
    return Working(Interval.exact(number), rows, (*steps, f"{number} of {len(of)} {what}"))


def shown(value: float) -> str:
    """Format a number for display, with at least five significant figures."""
    size = abs(value)
    if size and not 1e-3 <= size < 1e12:
        return f"{value:.5g}".replace("e+", "e")
    if size >= 1e4:
        return f"{value:,.2f}".rstrip("0").rstrip(".")
    if size >= 100:
        return f"{value:.2f}".rstrip("0").rstrip(".")
    return f"{value:.5g}"


def _together(workings: Iterable[Working]) -> tuple[tuple[SourceRow, ...], tuple[str, ...]]:
    """Return the rows and steps of all, each once, in order."""
    rows: dict[SourceRow, None] = {}
    steps: dict[str, None] = {}
    for working in workings:
        rows.update(dict.fromkeys(working.rows))
        steps.update(dict.fromkeys(working.steps))
    return tuple(rows), tuple(steps)
