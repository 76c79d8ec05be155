"""Audit of numbers of days: the FLOP/s that they imply, as a share of the GPU's peak."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any, Literal, get_args

from .. import models
from ..formats import SECONDS_A_DAY, Interval, first, from_to
from ..models.recipe import Recipe
from ..paper.arithmetic import by_place, paper_gpu, paper_peak, recipe_of, rounded_days, training_flops
from ..paper.gpus import Gpu, find, peak_flops
from ..paper.tables import AtPlace, Cell, all_cells
from ..record import Record
from .forecast import implied_true_days
from .traces import PAPER_STACK, Traced

Plausibility = Literal["impossible", "implausible", "plausible"]
WITHOUT_QUEUE = "The impossible cells, with the launch queue taken out"
IMPLAUSIBLE = 0.75  # the best trainings published reach 72 %: a GPT with FlashAttention-2, on A100 (arXiv:2307.08691)


@dataclass(frozen=True)
class Audited(AtPlace):
    """A number of days and what it implies. `table` is "1", "4" or "measured"; `clock` is the clock of measured days.

    `tflops` are model FLOP/s of each GPU, 1e12 a second; `peak_tflops` is the GPU's dense peak at the recipe's
    precision. `utilisation` is their ratio, with bounds from the rounding of the days. `clock_mhz` is the clock at
    which the GPU's units, all busy, would reach it (None if the boost clock is unknown). `corrected_utilisation` and
    `corrected_verdict` are of the true days that the printed ones imply, see `without_queue`; None if not requested, or
    unknown.
    """

    table: str
    model: str
    gpu: str
    gpus: int
    days: float
    precision: str
    tflops: float
    peak_tflops: float
    utilisation: Interval
    clock_mhz: float | None
    verdict: Plausibility
    clock: str = "authors"
    corrected_utilisation: float | None = None
    corrected_verdict: Plausibility | None = None

    @property
    def explained(self) -> bool:
        """Return whether the launch queue makes its days more plausible."""
        return self.corrected_verdict is not None and _ORDER[self.corrected_verdict] > _ORDER[self.verdict]

    @property
    def corrected_share(self) -> str | None:
        """Return `corrected_utilisation` in percent, as text."""
        return None if self.corrected_utilisation is None else f"{self.corrected_utilisation:.0%}"


_ORDER = {word: number for number, word in enumerate(get_args(Plausibility))}


def audit() -> list[Audited]:
    """Return every cell of Tables 1 and 4 that has days. fp32 recipes are in TF32 in Table 1, in fp32 in Table 4."""
    return [_cell(cell) for cell in all_cells() if cell.days is not None]


def without_queue(rows: Iterable[Audited], stack: Traced = PAPER_STACK) -> list[Audited]:
    """Return the cells with what they imply once the launch queue of a stack is removed from the authors' clock."""
    return [_without_queue(row, by_place(row.table)[row.place], stack) for row in rows]  # type: ignore[arg-type]


def _without_queue(row: Audited, cell: Cell, stack: Traced) -> Audited:
    days = rounded_days(cell)
    true = [implied_true_days(cell, each, stack) for each in (days.value, days.low, days.high)]
    if None in true:
        return row
    value, low, high = (row.tflops * row.days / row.peak_tflops / each for each in true)  # type: ignore[operator]
    share = Interval(value, high, low)  # more days mean less utilisation
    return replace(row, corrected_utilisation=share.value, corrected_verdict=verdict(share))


def audit_measured(records: Iterable[Record]) -> list[Audited]:
    """Return the days of records at the paper's scale, by the authors' clock and by the true one. Skip records without
    days, and GPUs whose peak is not known."""
    found = []
    for record in records:
        gpu = find(record.device)
        if record.scale != "paper" or record.origin != "measured" or gpu is None:
            continue
        recipe = models.find(record.recipe)
        peak = peak_flops(gpu, recipe.precision, record.as_run.in_tf32)
        place = ("measured", recipe.name, record.device, record.world)
        for clock, days in (("authors", record.derived.authors_days), ("true", record.derived.true_days)):
            if days is not None and peak is not None:
                found.append(_audited(place, Interval.exact(days), recipe, gpu, peak, record.as_run.in_tf32, clock))
    return found


def _cell(cell: Cell) -> Audited:
    recipe, gpu, tf32 = recipe_of(cell.model), paper_gpu(cell.gpu), cell.table == "1"
    peak = paper_peak(cell.gpu, recipe.precision, tf32)
    return _audited((cell.table, *cell.place), rounded_days(cell), recipe, gpu, peak, tf32)


def _audited(
    place: tuple[str, str, str, int],
    days: Interval,
    recipe: Recipe,
    gpu: Gpu,
    peak: float,
    tf32: bool,
    clock: str = "authors",
) -> Audited:
    rate = training_flops(recipe) / (days * float(SECONDS_A_DAY * place[3]))
    share = rate / peak
    precision = "TF32" if recipe.precision == "fp32" and tf32 else recipe.precision
    clock_mhz = share.value * gpu.boost_mhz if gpu.boost_mhz else None
    return Audited(
        *place, days.value, precision, rate.value / 1e12, peak / 1e12, share, clock_mhz, verdict(share), clock
    )


def verdict(utilisation: Interval) -> Plausibility:
    """Return the verdict. Days are impossible if no rounding of them brings them down to the peak."""
    if utilisation.low > 1:
        return "impossible"
    return "implausible" if utilisation.value > IMPLAUSIBLE else "plausible"


def summary(rows: Sequence[Audited]) -> str:
    """Return a sentence on how many days are impossible or implausible."""
    impossible, implausible = (sum(row.verdict == word for row in rows) for word in ("impossible", "implausible"))
    kind = "measured" if all(row.table == "measured" for row in rows) else "printed"
    return (
        f"{impossible} of {len(rows)} {kind} numbers of days are impossible, as they imply more FLOP/s than the GPU's "
        f"dense peak however they were rounded, and {implausible} are implausible: above {IMPLAUSIBLE:.0%} of it, "
        "beyond any published training."
    )


def queue_summary(rows: Sequence[Audited]) -> list[str]:
    """Describe how removing the launch queue changes the verdicts; empty if it was not removed."""
    known = [row for row in rows if row.corrected_utilisation is not None]
    lines = []
    for word, others in (("impossible", "possible"), ("implausible", "plausible")):
        found = [row for row in known if row.verdict == word]
        explained = [row for row in found if row.explained]
        if not found:
            continue
        line = (
            f"With the launch queue taken out, {len(explained)} of the {len(found)} {word} cells become {others}: "
            f"{median(row.utilisation.value for row in found):.0%} of the peak in the median becomes "
            f"{median(map(_corrected, found)):.0%} ({from_to([*map(_corrected, found)], '.0%')})"
        )
        if stay := [row for row in found if not row.explained]:
            line += f"; as {word} as before {'is' if len(stay) == 1 else 'are'} {first([*map(_named, stay)])}"
        lines.append(f"{line}.")
    return lines


def queue_rows(rows: Iterable[Audited]) -> list[dict[str, Any]]:
    """Return the impossible cells, before and after the launch queue is removed."""
    return [
        {
            "table": row.table,
            "model": row.model,
            "GPUs": f"{row.gpus} x {row.gpu}",
            "printed days": row.days,
            "of peak": f"{row.utilisation.value:.0%}",
            "of peak without the queue": row.corrected_share,
            "verdict": row.corrected_verdict,
        }
        for row in rows
        if row.verdict == "impossible" and row.corrected_verdict is not None
    ]


def _corrected(row: Audited) -> float:
    assert row.corrected_utilisation is not None
    return row.corrected_utilisation


def _named(row: Audited) -> str:
    return f"{row.model} on {row.machine} ({row.corrected_share})"
