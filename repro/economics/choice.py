"""Which offer to take: within budget and deadline by a stated rule, and what no other offer beats."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from ..errors import UserError
from .offers import Offer, lifespan_years
from .told import bounds_told, days_read, days_told, deadline_told, limit_days_told, limit_told, sum_read, told


@dataclass(frozen=True)
class Choice:
    """The rule that chose, and all offers in its order: those that fit, so many, first, and first of all the best."""

    rule: str
    ranked: tuple[Offer, ...]
    fitting: int


class Priced(Protocol):
    """What costs something and takes days: `aims` are what is the better the lower, the first first."""

    @property
    def aims(self) -> tuple[float, ...]: ...


P = TypeVar("P", bound=Priced)


def beaten_by(offer: P, offers: Sequence[P]) -> P | None:
    """The cheapest offer that is in no aim worse, and better in one; None on the Pareto front."""
    better = [
        other
        for other in offers
        if other.aims != offer.aims and all(theirs <= ours for theirs, ours in zip(other.aims, offer.aims, strict=True))
    ]
    return min(better, key=lambda other: other.aims, default=None)


def pareto_front(offers: Sequence[Offer]) -> list[Offer]:
    """The offers that no other beats, the cheapest first."""
    return sorted((o for o in offers if beaten_by(o, offers) is None), key=lambda o: o.aims)


def choose(offers: Sequence[Offer], budget: float | None, deadline: float | None) -> Choice:
    """With a budget alone the fastest offer within it, as section 4.1 does; with a deadline the cheapest that meets it,
    within the budget too where there is one; with neither the least cost per experiment, what no other offer beats
    before the rest. What wears out before the runs end comes after what does not. Of what is told the same, the one
    that is sooner done comes first, or is cheaper, and then the one of fewer GPUs.

    The budget, in the offers' currency, and the deadline, in days, are for all runs together. Raises UserError where
    nothing fits, naming what is nearest.
    """
    budget_told = f"the budget of {limit_told(budget, offers[0].currency)}" if budget is not None else ""
    by_told = deadline_told(deadline) if deadline is not None else ""
    fits = [o for o in offers if (budget is None or o.cost <= budget) and (deadline is None or o.days <= deadline)]
    if not fits:
        raise UserError(_nearest(offers, budget, deadline, budget_told, by_told))
    if deadline is not None:
        rule = f"the cheapest within {by_told}" + (f" and {budget_told}" if budget_told else "")
    elif budget is not None:
        rule = f"the fastest within {budget_told}"
    else:
        rule = "the least cost per experiment, as no budget or deadline is given"
    front = pareto_front(offers) if budget is deadline is None else []

    def order(offer: Offer) -> tuple[float, ...]:
        """The best comes first."""
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


def answer(choice: Choice, model: str, doubt: str | None = None) -> str:
    """The choice in one sentence, with its reason, and a doubt about its days where there is one."""
    best = choice.ranked[0]
    runs = "" if best.runs == 1 else f"{best.runs:,} runs of "
    audit = f"audit: {doubt}" if doubt else ""
    days = ", ".join(filter(None, [f"{best.origin}: {best.source}", bounds_told(best.bounds), audit]))
    return (
        f"{_taken(choice)}: {runs}{model} in {days_told(best.days)} ({days}), {choice.rule}; "
        f"{told(best.cost_per_experiment, best.currency)} an experiment."
    )


def brief(choice: Choice) -> str:
    """The choice in a few words, to follow others."""
    taken, best = _taken(choice), choice.ranked[0]
    between = f" ({bounds_told(best.bounds)})" if best.bounds else ""
    return f"{taken[0].lower()}{taken[1:]}, {days_told(best.days)}{between}"


def _taken(choice: Choice) -> str:
    best = choice.ranked[0]
    terms = "" if best.owned else f" ({best.terms.removeprefix('rent, ')})"
    machine = f"{best.machine}{terms} for {told(best.cost, best.currency)}"
    if best.wears_out:
        fits = " that fits" if choice.fitting < len(choice.ranked) else ""
        return f"No machine{fits} ends within the {lifespan_years():g} years that it lasts; of these {machine}"
    return f"{'Buy' if best.owned else 'Rent'} {machine}"


def _nearest(
    offers: Sequence[Offer], budget: float | None, deadline: float | None, budget_told: str, by_told: str
) -> str:
    def short(offer: Offer) -> str:
        terms = "" if offer.owned else f" ({offer.terms})"
        late = deadline is not None and days_read(offer.days) <= deadline < offer.days
        dear = budget is not None and sum_read(offer.cost) <= budget < offer.cost
        days = (limit_days_told if late else days_told)(offer.days)
        return f"{offer.machine}{terms} in {days} for {(limit_told if dear else told)(offer.cost, offer.currency)}"

    # Nothing fits: of a budget alone nothing is affordable, of a deadline alone nothing in time.
    affordable = [o for o in offers if budget is None or o.cost <= budget]
    timely = [o for o in offers if deadline is None or o.days <= deadline]
    cheapest = min(timely, key=lambda o: (o.cost, o.days), default=None)
    fastest = min(affordable, key=lambda o: (o.days, o.cost), default=None)
    hints = []
    if fastest is not None:
        hints.append(f"the nearest{' within the budget' if budget_told else ''} is {short(fastest)}")
    if cheapest is not None:
        hints.append(f"the cheapest{' in time' if by_told else ''} is {short(cheapest)}")
    if not hints:
        hints = [f"the fastest is {short(min(offers, key=lambda o: (o.days, o.cost)))}"]
        hints.append(f"the cheapest {short(min(offers, key=lambda o: (o.cost, o.days)))}")
    limits = " and ".join(filter(None, (by_told, budget_told)))
    return f"no machine trains it within {limits}; {', '.join(hints)}"
