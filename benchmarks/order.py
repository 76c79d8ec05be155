"""What the list of `verify --budget` decides, held against other orders of the same runs: cells and claims decided for
the same money, over true days drawn from the intervals of the predictions, or equal to the printed ones."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from statistics import fmean
from typing import Any

from repro.commands.verify import cheapest
from repro.money.prices import price_list
from repro.paper.tables import Cell
from repro.verify.order import Limits, Orderer
from repro.verify.runs import SETTING_UP, Odds, Run, candidates, decides, deviation

from . import tell

SEED = 20241030
Verdicts = dict[Cell, bool]  # of each cell: whether it is decided


def drawn(runs: Sequence[Run], chance: random.Random) -> Verdicts:
    """Return the verdicts where each cell's true days come from the interval of its prediction."""

    def verdict(odds: Odds) -> bool:
        if odds.days is None or odds.cell.days is None:
            return chance.random() < odds.decides
        away = chance.gauss()
        return decides(odds.cell, odds.days.value * math.exp(away * deviation(odds.days, away > 0)))

    return {odds.cell: verdict(odds) for run in runs for odds in run.odds}


def printed(runs: Sequence[Run], chance: random.Random) -> Verdicts:
    """Return the verdicts where the paper is right."""
    return {odds.cell: decides(odds.cell, odds.cell.days) for run in runs for odds in run.odds}


def within(runs: Sequence[Run], limits: Limits) -> list[Run]:
    """Return the runs of an order that fit the budget, as they come; the first on a machine pays for setting it up."""
    assert limits.budget is not None
    taken, spent = list[Run](), 0.0
    for run in runs:
        new = run.machine not in {each.machine for each in taken}
        cost = limits.cost(run.machine, run.minutes + SETTING_UP * new)
        if spent + cost <= limits.budget:
            taken, spent = [*taken, run], spent + cost
    return taken


def decided(runs: Sequence[Run], verdicts: Verdicts, claims: dict[str, frozenset[Cell]]) -> int:
    """Return how many cells and claims these runs decide."""
    cells = {odds.cell for run in runs for odds in run.odds if verdicts[odds.cell]}
    return len(cells) + sum(of_claim <= cells for of_claim in claims.values())


def rows(budgets: Sequence[float] = (2.0, 5.0, 20.0), draws: int = 200) -> list[dict[str, Any]]:
    """Return for each budget in USD how much each order decides, in the mean over truths of both kinds."""
    prices, chance, found = price_list(None), random.Random(SEED), []
    every = candidates()
    offers = {machine: cheapest(machine, "USD", prices) for machine in {run.machine for run in every}}
    rents = {machine: rented[1] for machine, rented in offers.items() if rented}
    runs = [run for run in every if run.machine in rents]
    for budget in budgets:
        limits = Limits(rents, budget)
        orderer = Orderer(runs, limits)
        orders = {
            "verify": orderer.chosen(),
            "cheapest first": within(sorted(runs, key=lambda run: limits.cost(run.machine, run.minutes)), limits),
            "tables": within(runs, limits),
        }
        row: dict[str, Any] = {"budget (USD)": budget}
        for truth in (drawn, printed):
            truths = [truth(runs, chance) for _ in range(draws)]
            shuffled = [within(chance.sample(runs, len(runs)), limits) for _ in truths]
            lists = {name: [order] * draws for name, order in orders.items()} | {"random": shuffled}
            for name, taken in lists.items():
                scores = [decided(each, verdicts, orderer.claims) for each, verdicts in zip(taken, truths, strict=True)]
                row[f"{name}, {truth.__name__}"] = fmean(scores)
        found.append(row)
    return found


if __name__ == "__main__":
    tell(__doc__, rows)
