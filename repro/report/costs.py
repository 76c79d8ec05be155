"""Cost against days: figures 7, 12 and 13."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import models

from ..clocks import BY_CLOCK
from ..economics.choice import beaten_by
from ..economics.offers import cost_a_day, lifespan_years, machine_price
from ..economics.pricelist import price_list
from ..expected import cells
from ..prices import gpu_prices
from ..search import Search
from .panels import Figure, Origin, Panel, Trade

_MARKS = (
    "numbers count GPUs, and filled marks on the dotted line have no rival among the paper's that is both cheaper and "
    "faster"
)


def costs(searches: Sequence[Search]) -> list[Figure]:
    """Of the machine and of an experiment, for one model and for all; what was measured stands beside."""
    published = {
        model: {(cell.gpu, cell.gpus): float(cell.days) for cell in cells("1") if cell.model == model and cell.days}
        for model in models.NAMES
    }
    measured: dict[str, dict[tuple[str, int], float]] = {}
    priced = gpu_prices().keys()
    for search in searches:
        if search.best_days is None or not search.stands_for_paper or search.device not in priced:
            continue
        measured.setdefault(search.model, {})[search.device, search.count] = search.best_days
    one = "Pythia-1B"
    source = "Table 1; section 4.1 and Table 5 for prices"

    def panel(model: str, title: str, each: bool) -> Panel:
        rows = [*_trades(published[model], each), *_here(measured.get(model, {}), each)]
        x = "US dollars of an experiment" if each else "US dollars of the machine"
        origin: Origin = "measured and published" if model in measured else "published"
        sources = f"{source}; trials.jsonl, {BY_CLOCK[searches[0].clock]}" if model in measured else source
        return Panel(origin, title, "trades", x, rows, sources, y="days of training")

    trades = {(trade.gpu, trade.gpus): trade for trade in _trades(published[one], each=False)}
    fastest = min(trades.values(), key=lambda trade: trade.days)
    says = (
        f"Cost of the machine, and of the days of its {lifespan_years():g} years that one training takes. The paper's "
        f"fastest for {one}, {fastest.gpus} {fastest.gpu}, costs ${fastest.cost:,.0f} and takes {fastest.days:.0f} "
        f"days; {_MARKS}."
    )
    return [
        Figure(
            "7",
            f"Cost against days, {one}",
            says,
            [panel(one, "Cost of the machine", False), panel(one, "Cost of an experiment", True)],
        ),
        Figure(
            "12",
            "Cost of the machine against days, all models",
            f"Both axes are logarithmic; {_MARKS}.",
            [panel(model, model, False) for model in models.NAMES],
        ),
        Figure(
            "13",
            "Cost of an experiment against days, all models",
            f"The machine's cost, spread evenly over {lifespan_years():g} years, times the days of the training; "
            f"{_MARKS}.",
            [panel(model, model, True) for model in models.NAMES],
        ),
    ]


def _trades(days: dict[tuple[str, int], float], each: bool) -> list[Trade]:
    found = _priced(days, each)
    return [replace(trade, kind="beaten") if beaten_by(trade, found) else trade for trade in found]


def _here(days: dict[tuple[str, int], float], each: bool) -> list[Trade]:
    return [replace(trade, gpu=f"{trade.gpu}, here", kind="here") for trade in _priced(days, each)]


def _priced(days: dict[tuple[str, int], float], each: bool) -> list[Trade]:
    """The machines that have a price, each with that or with its share of an experiment."""
    prices, found = price_list(), []
    for (gpu, gpus), spent in days.items():
        price = machine_price(gpu, gpus, prices, "USD")
        if price is not None:
            cost = cost_a_day(price[0]) * spent if each else price[0]
            found.append(Trade(gpu, gpus, cost, spent, "best"))
    return found
