"""Figures that the paper does not have: when owning beats renting, and what more GPUs bring."""

from __future__ import annotations

from collections.abc import Iterable

import models

from ..economics.breakeven import spending
from ..economics.comment import reckonings
from ..economics.days import expected_days
from ..economics.pricelist import price_list
from ..economics.scaling import Step, steps, stops
from .panels import Curve, Figure, Panel, Reference

_RUNS = range(13)


def further() -> list[Figure]:
    """Break-even and scaling, from the papers' numbers."""
    return [_break_even(), _scaling()]


def _break_even() -> Figure:
    first, *mended = reckonings()
    panels, told = [], []
    for reckoned in (first, mended[1]):
        spent = spending(reckoned.case, _RUNS)
        rows = [Curve("owning", row.runs, row.owning) for row in spent]
        rows += [Curve("renting", row.runs, row.renting) for row in spent]
        title = reckoned.what[0].upper() + reckoned.what[1:]
        source = "rent-or-buy comment, quantities.csv and rental.csv"
        panels.append(Panel("computed", title, "lines", "runs of BERT", rows, source, y="US dollars spent"))
        told.append(f"from run {reckoned.answer.whole_runs} on ({reckoned.what})")
    says = f"A workstation against {first.provider}'s V100s by the hour. Owning is cheaper {', or '.join(told)}."
    return Figure("", "When owning beats renting", says, panels)


def _scaling() -> Figure:
    panels, told = [], []
    prices = price_list()
    for id in ("pythia-1b", "pythia-6.9b", "vit"):
        name = models.find(id).name
        by_gpu = list(_by_gpu(id))
        rows = [Curve(step.gpu, step.gpus, step.efficiency.value) for found in by_gpu for step in found]
        source = "Table 1; the days are rounded, which moves small ones"
        panels.append(
            Panel(
                "computed",
                name,
                "lines",
                "GPUs, log scale",
                rows,
                source,
                reference=Reference(1.0, "proportional"),
                y="parallel efficiency",
            )
        )
        last = [stop for found in by_gpu if (stop := stops(found)) is not None]
        told.append(f"{name} on {', '.join(f'{step.gpus} {step.gpu}' for step in last)}")
    says = (
        "Speed-up over the fewest GPUs that train the model, as a share of the GPUs' ratio: 1 is proportional. An "
        f"experiment is cheapest with {'; '.join(told)} (prices of {max(p.quoted for p in prices.gpus.values())})."
    )
    return Figure("", "What more GPUs bring", says, panels)


def _by_gpu(id: str) -> Iterable[list[Step]]:
    days = expected_days(id)
    for gpu in dict.fromkeys(row.gpu for row in days):
        yield steps([row for row in days if row.gpu == gpu], price_list(), "USD")
