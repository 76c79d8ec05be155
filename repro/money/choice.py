"""The choice of an offer within budget and deadline, and the gain from more GPUs.

The rule of scaling: a larger machine pays where it lowers the cost of an experiment, the machine's price times its days
over its lifespan, below that on every smaller one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeVar

from ..console import UserError
from ..formats import Interval, bounds_text, days_read, deadline_text, money_text, short_days, sum_read
from .days import TrainingDays
from .offers import Offer, cost_a_day, lifespan_years, machine_price
from .prices import PriceList


@dataclass(frozen=True)
class Choice:
    """The rule that chose, and all offers in its order: first the `fitting` ones that fit, with the best on top."""

    rule: str
    ranked: tuple[Offer, ...]
    fitting: int


class Priced(Protocol):
    """An offer that has a cost and takes days; `aims` are the numbers to minimise, the most important first."""

    @property
    def aims(self) -> tuple[float, ...]: ...


P = TypeVar("P", bound=Priced)


def beaten_by(offer: P, offers: Sequence[P]) -> P | None:
    """Return the cheapest offer that is worse in no aim and better in one; None on the Pareto front."""
    better = [
        other
        for other in offers
        if other.aims != offer.aims and all(theirs <= ours for theirs, ours in zip(other.aims, offer.aims, strict=True))
    ]
    return min(better, key=lambda other: other.aims, default=None)


def pareto_front(offers: Sequence[Offer]) -> list[Offer]:
    """Return the offers that no other beats, the cheapest first."""
    return sorted((o for o in offers if beaten_by(o, offers) is None), key=lambda o: o.aims)


def choose(offers: Sequence[Offer], budget: float | None, deadline: float | None) -> Choice:
    """Choose with a budget alone the fastest offer within it, as section 4.1 does; with a deadline the cheapest that
    meets it, within the budget too where there is one; with neither the least cost per experiment, with the Pareto
    front first. Machines that wear out before the runs end come last. Ties in the numbers as printed are resolved by
    days or cost, and then by fewer GPUs.

    Budget, in the offers' currency, and deadline, in days, are for all runs together. Raises UserError where nothing
    fits, naming the nearest offers.
    """
    budget_text = f"the budget of {money_text(budget, offers[0].currency, exact=True)}" if budget is not None else ""
    by_text = deadline_text(deadline) if deadline is not None else ""
    fits = [o for o in offers if (budget is None or o.cost <= budget) and (deadline is None or o.days <= deadline)]
    if not fits:
        raise UserError(_nearest(offers, budget, deadline, budget_text, by_text))
    if deadline is not None:
        rule = f"the cheapest within {by_text}" + (f" and {budget_text}" if budget_text else "")
    elif budget is not None:
        rule = f"the fastest within {budget_text}"
    else:
        rule = "the least cost per experiment, as no budget or deadline is given"
    front = pareto_front(offers) if budget is deadline is None else []

    def order(offer: Offer) -> tuple[float, ...]:
        """Return the sort key: the best comes first."""
        cost, days, experiment = offer.aims
        if deadline is not None:
            return offer.aims
        return (days, cost) if budget is not None else (offer not in front, experiment, days, cost)

    def lasting(offer: Offer) -> tuple[float | str, ...]:
        return offer.wears_out, *order(offer), offer.gpus, offer.gpu, offer.terms

    ranked = (*sorted(fits, key=lasting), *sorted((o for o in offers if o not in fits), key=lasting))
    if min(fits, key=order).wears_out and not ranked[0].wears_out:
        rule += f", of those that end within the {lifespan_years():g} years a machine lasts"
    return Choice(rule, ranked, len(fits))


def answer(choice: Choice, model: str) -> str:
    """Return the choice in one sentence, with its reason."""
    best = choice.ranked[0]
    runs = "" if best.runs == 1 else f"{best.runs:,} runs of "
    days = ", ".join(filter(None, [f"{best.origin}: {best.source}", bounds_text(best.bounds)]))
    return (
        f"{_taken(choice)}: {runs}{model} in {short_days(best.days)} ({days}), {choice.rule}; "
        f"{money_text(best.cost_per_experiment, best.currency)} an experiment."
    )


def _taken(choice: Choice) -> str:
    best = choice.ranked[0]
    terms = "" if best.owned else f" ({best.terms.removeprefix('rent, ')})"
    machine = f"{best.machine}{terms} for {money_text(best.cost, best.currency)}"
    if best.wears_out:
        fits = " that fits" if choice.fitting < len(choice.ranked) else ""
        return f"No machine{fits} ends within the {lifespan_years():g} years that it lasts; of these {machine}"
    return f"{'Buy' if best.owned else 'Rent'} {machine}"


def _nearest(
    offers: Sequence[Offer], budget: float | None, deadline: float | None, budget_text: str, by_text: str
) -> str:
    def short(offer: Offer) -> str:
        terms = "" if offer.owned else f" ({offer.terms})"
        late = deadline is not None and days_read(offer.days) <= deadline < offer.days
        dear = budget is not None and sum_read(offer.cost) <= budget < offer.cost
        cost = money_text(offer.cost, offer.currency, exact=dear)
        return f"{offer.machine}{terms} in {short_days(offer.days, exact=late)} for {cost}"

    # Nothing fits: with a budget alone nothing is affordable, with a deadline alone nothing is timely.
    affordable = [o for o in offers if budget is None or o.cost <= budget]
    timely = [o for o in offers if deadline is None or o.days <= deadline]
    cheapest = min(timely, key=lambda o: (o.cost, o.days), default=None)
    fastest = min(affordable, key=lambda o: (o.days, o.cost), default=None)
    hints = []
    if fastest is not None:
        hints.append(f"the nearest{' within the budget' if budget_text else ''} is {short(fastest)}")
    if cheapest is not None:
        hints.append(f"the cheapest{' in time' if by_text else ''} is {short(cheapest)}")
    if not hints:
        hints = [f"the fastest is {short(min(offers, key=lambda o: (o.days, o.cost)))}"]
        hints.append(f"the cheapest {short(min(offers, key=lambda o: (o.cost, o.days)))}")
    limits = " and ".join(filter(None, (by_text, budget_text)))
    return f"no machine trains it within {limits}; {', '.join(hints)}"


Pays = Literal["yes", "no", "within bounds"]


@dataclass(frozen=True)
class Step:
    """A number of GPUs, compared with the one that uses each GPU best and with the next smaller machine.

    `efficiency` is the fewest GPU-days of any number over those of this one: at most 1, also where few GPUs lack the
    memory that more of them have together. `speedup` is that of so many GPUs, at most their number. Costs are in the
    requested currency, None without a price. `day_saved` is the increase of the machine's price for each day saved,
    None where none is. `day_saved` and `pays` are None for the smallest machine.
    """

    run: TrainingDays
    efficiency: Interval
    cost: float | None
    experiment: Interval | None
    day_saved: float | None
    pays: Pays | None

    @property
    def speedup(self) -> Interval:
        return self.efficiency * self.run.gpus


def steps(days: Sequence[TrainingDays], prices: PriceList, currency: str) -> list[Step]:
    """Return the steps of one GPU type, the fewest GPUs first; the days must be of one model."""
    found: list[Step] = []
    rows = sorted(days, key=lambda row: row.gpus)
    best = min(rows, key=lambda row: row.gpus * row.days.value)
    for row in rows:
        before = found[-1] if found else None
        share = Interval.exact(1.0) if row is best else best.days / row.days * (best.gpus / row.gpus)
        price = machine_price(row.gpu, row.gpus, prices, currency)
        experiment = None if price is None else (row.days * cost_a_day(price[0])).mapped(row.known)
        found.append(
            Step(
                row,
                efficiency=share,
                cost=None if price is None else price[0],
                experiment=experiment,
                day_saved=None if price is None or before is None else _day_saved(before, row, price[0]),
                pays=None if experiment is None else _pays(found, experiment),
            )
        )
    return found


def steps_by_gpu(days: Sequence[TrainingDays], prices: PriceList, currency: str) -> dict[str, list[Step]]:
    """Return the steps of each GPU type."""
    names = dict.fromkeys(row.gpu for row in days)
    return {name: steps([row for row in days if row.gpu == name], prices, currency) for name in names}


def stops(found: Sequence[Step]) -> Step | None:
    """Return the step where one more GPU stops paying; None without prices."""
    priced = [step for step in found if step.experiment is not None]
    return min(priced, key=lambda step: step.experiment.value, default=None)  # type: ignore[union-attr]


def _pays(smaller: Sequence[Step], now: Interval) -> Pays | None:
    """Compare an experiment's cost with that on the cheapest smaller machine; None where there is none."""
    cheapest = stops(smaller)
    before = cheapest.experiment if cheapest else None
    if before is None:
        return None
    if now.overlaps(before):
        return "within bounds"
    return "yes" if now.value < before.value else "no"


def _day_saved(before: Step, row: TrainingDays, cost: float) -> float | None:
    saved = before.run.days.value - row.days.value
    return row.known((cost - before.cost) / saved) if before.cost is not None and saved > 0 else None
