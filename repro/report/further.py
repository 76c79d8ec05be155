"""Figures that the paper does not have: when owning beats renting, and what more GPUs bring."""

from __future__ import annotations

import models

from ..economics.breakeven import spending
from ..economics.comment import reckonings
from ..economics.days import expected_days
from ..economics.doubts import INSTEAD, believed, doubts
from ..economics.pricelist import price_list
from ..economics.scaling import Step, steps_by_gpu, stops, stops_instead
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
    panels, told, told_instead = [], [], []
    prices = price_list()
    for id in ("pythia-1b", "pythia-6.9b", "vit"):
        name = models.find(id).name
        days = expected_days(id)
        doubted, by_gpu = doubts(id, days), steps_by_gpu(days, prices, "USD")
        instead = stops_instead(by_gpu, steps_by_gpu(believed(days, doubted), prices, "USD"), doubted)
        rows = [Curve(step.gpu, step.gpus, step.efficiency.value) for found in by_gpu.values() for step in found]
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
        last = [stop for found in by_gpu.values() if (stop := stops(found)) is not None]
        told.append(_cheapest(name, last))
        told_instead += [_cheapest(name, list(instead.values()))] if instead else []
    says = (
        "Speed-up over the fewest GPUs that train the model, as a share of the GPUs' ratio: 1 is proportional. An "
        f"experiment is cheapest with {'; '.join(told)} (prices of {max(p.quoted for p in prices.gpus.values())})."
    )
    if told_instead:
        says += f" {INSTEAD.capitalize()}: {'; '.join(told_instead)}."
    return Figure("", "What more GPUs bring", says, panels)


def _cheapest(model: str, steps: list[Step]) -> str:
    return f"{model} on {', '.join(step.machine for step in steps)}"
