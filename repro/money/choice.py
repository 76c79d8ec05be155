"""The choice of an offer within budget and deadline, the audit's warnings about its days, and the gain from more GPUs.

The rule of scaling: a larger machine pays where it lowers the cost of an experiment, the machine's price times its days
over its lifespan, below that on every smaller one.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeVar

from .. import command, models
from ..console import UserError
from ..formats import Interval, bounds_text, days_read, deadline_text, money_text, short_days, sum_read
from ..paper.arithmetic import by_place
from ..paper.gpus import OfGpus
from ..predict import calibration
from ..predict.audit import audit
from ..predict.forecast import predicted
from ..predict.traces import PAPER_STACK, nearest_here, why_here
from .days import OF_PAPERS_STACK, Origin, TrainingDays, foretold
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


def answer(choice: Choice, model: str, warning: str | None = None) -> str:
    """Return the choice in one sentence, with its reason and, where there is one, a warning about its days."""
    best = choice.ranked[0]
    runs = "" if best.runs == 1 else f"{best.runs:,} runs of "
    audit = f"audit: {warning}" if warning else ""
    days = ", ".join(filter(None, [f"{best.origin}: {best.source}", bounds_text(best.bounds), audit]))
    return (
        f"{_taken(choice)}: {runs}{model} in {short_days(best.days)} ({days}), {choice.rule}; "
        f"{money_text(best.cost_per_experiment, best.currency)} an experiment."
    )


def brief(choice: Choice) -> str:
    """Return the choice in a few words, in lower case, to append to a sentence."""
    taken, best = _taken(choice), choice.ranked[0]
    between = f" ({bounds_text(best.bounds)})" if best.bounds else ""
    return f"{taken[0].lower()}{taken[1:]}, {short_days(best.days)}{between}"


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


INSTEAD = "with predicted days where the audit warns of the printed ones"


@dataclass(frozen=True)
class AuditWarning:
    """The reason why printed days are implausible, and the predicted days to use instead, None where there are none."""

    why: str
    instead: TrainingDays | None

    def message(self, predicted: float | None) -> str:
        """Return the reason with the days that are predicted instead, None where there are none."""
        return self.why if predicted is None else f"{self.why}, predicted {short_days(predicted)}"


def audit_warnings(model: str, machines: Iterable[TrainingDays | Offer]) -> dict[str, AuditWarning]:
    """Return those of these machines whose days are the paper's and implausible, such as 2 A100."""
    name, of_paper = models.find(model).name, {row.place: row for row in audit() if row.table == "1"}
    named = {row.machine: of_paper[name, row.gpu, row.gpus] for row in machines if row.origin == "expected"}
    fitted = calibration.calibrations()[calibration.EVERYTHING]
    return {
        machine: AuditWarning(
            f"{row.verdict}, {row.utilisation.value:.0%} of the peak",
            foretold(predicted(by_place("1")[row.place], fitted)),
        )
        for machine, row in named.items()
        if row.verdict != "plausible"
    }


def believed(days: Iterable[TrainingDays], warnings: Mapping[str, AuditWarning]) -> list[TrainingDays]:
    """Return the days, with predicted ones in place of those with a warning."""
    return [(warning.instead if (warning := warnings.get(row.machine)) is not None else None) or row for row in days]


def audit_warnings_text(warnings: Mapping[str, AuditWarning], days: Iterable[TrainingDays | Offer]) -> list[str]:
    """Return a sentence on the warnings, and one on the traces of predicted days, if there are any; else nothing."""
    listed = "; ".join(
        f"{machine}, {warning.message(warning.instead.days.value if warning.instead else None)}"
        for machine, warning in warnings.items()
    )
    found = [f"Printed days of one training that the audit warns of ({command()} audit): {listed}."] if listed else []
    if any(row.source.startswith(OF_PAPERS_STACK) for row in days) or any(
        warning.instead for warning in warnings.values()
    ):
        found.append(_traces_text())
    return found


def _traces_text() -> str:
    """Return a sentence on the traces of predicted days, and on where `repro predict` has others."""
    here = nearest_here()
    others = f"; {command()} predict --gpu takes those of {here.transformers}, {why_here()}"
    return (
        "Predicted days are from traces of the models of transformers "
        f"{PAPER_STACK.transformers}, as the paper's days beside them are{others if here != PAPER_STACK else ''}."
    )


Pays = Literal["yes", "no", "within bounds"]


@dataclass(frozen=True)
class Step(OfGpus):
    """A number of GPUs, compared with the fewest that train the model and with the next smaller machine.

    `efficiency` is the speed-up over the GPUs' ratio: 1 is proportional. Costs are in the requested currency, None
    without a price. `day_saved` is the increase of the machine's price for each day saved, None where none is.
    `day_saved` and `pays` are None for the smallest machine. `bounds` are those of predicted days.
    """

    gpu: str
    gpus: int
    days: Interval
    speedup: Interval
    efficiency: Interval
    cost: float | None
    experiment: Interval | None
    day_saved: float | None
    pays: Pays | None
    bounds: tuple[float, float] | None
    origin: Origin
    source: str


def steps(days: Sequence[TrainingDays], prices: PriceList, currency: str) -> list[Step]:
    """Return the steps of one GPU type, the fewest GPUs first; the days must be of one model."""
    found: list[Step] = []
    rows = sorted(days, key=lambda row: row.gpus)
    for row in rows:
        first, before = rows[0], found[-1] if found else None
        alone = row is first
        speedup = Interval.exact(1.0) if alone else first.days / row.days
        price = machine_price(row.gpu, row.gpus, prices, currency)
        experiment = None if price is None else (row.days * cost_a_day(price[0])).mapped(row.known)
        found.append(
            Step(
                gpu=row.gpu,
                gpus=row.gpus,
                days=row.days,
                speedup=speedup,
                efficiency=speedup * (first.gpus / row.gpus),
                cost=None if price is None else price[0],
                experiment=experiment,
                day_saved=None if price is None or before is None else _day_saved(before, row, price[0]),
                pays=None if experiment is None else _pays(found, experiment),
                bounds=row.bounds,
                origin=row.origin,
                source=row.source,
            )
        )
    return found


def steps_by_gpu(days: Sequence[TrainingDays], prices: PriceList, currency: str) -> dict[str, list[Step]]:
    """Return the steps of each GPU type."""
    names = dict.fromkeys(row.gpu for row in days)
    return {name: steps([row for row in days if row.gpu == name], prices, currency) for name in names}


def stops_instead(
    found: Mapping[str, Sequence[Step]], believed: Mapping[str, Sequence[Step]], warned: Container[str]
) -> dict[str, Step]:
    """Return where one more GPU stops paying by days without warnings, for GPU types where these decide."""
    instead = {}
    for name, steps in believed.items():
        best, other = stops(found[name]), stops(steps)
        if best and other and (best.machine in warned or other.gpus != best.gpus):
            instead[name] = other
    return instead


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
    saved = before.days.value - row.days.value
    return row.known((cost - before.cost) / saved) if before.cost is not None and saved > 0 else None
