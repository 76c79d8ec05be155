"""What more GPUs bring: days, parallel efficiency, the cost of an experiment, and where one more stops paying.

The rule: a larger machine pays where it lowers the cost of an experiment, the machine's price times its days over its
lifespan, below that on every smaller one. None pays beyond the number of GPUs where an experiment is cheapest: there
days are bought dearly.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from ..gpus import OfGpus
from ..interval import Interval
from .days import Origin, TrainingDays
from .offers import cost_a_day, machine_price
from .pricelist import PriceList

Pays = Literal["yes", "no", "within bounds"]


@dataclass(frozen=True)
class Step(OfGpus):
    """A number of GPUs, against the fewest that train the model and against the next smaller machine.

    `efficiency` is the speed-up over the GPUs' ratio: 1 is proportional. Costs are in the currency that was asked
    for, None without a price; `day_saved` and `pays` also for the smallest machine. `day_saved` is what each day less
    costs in the machine's price, None where no day is saved; `bounds` are those of predicted days.
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
    """The steps of one GPU type, the fewest GPUs first; their days must be of one model."""
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
    """The steps of each GPU type."""
    names = dict.fromkeys(row.gpu for row in days)
    return {name: steps([row for row in days if row.gpu == name], prices, currency) for name in names}


def stops_instead(
    found: Mapping[str, Sequence[Step]], believed: Mapping[str, Sequence[Step]], doubted: Container[str]
) -> dict[str, Step]:
    """Where one more stops paying by days that are not doubted, of those GPU types where doubted machines decide."""
    instead = {}
    for name, steps in believed.items():
        best, other = stops(found[name]), stops(steps)
        if best and other and (best.machine in doubted or other.gpus != best.gpus):
            instead[name] = other
    return instead


def stops(found: Sequence[Step]) -> Step | None:
    """Where one more GPU stops paying; None without prices."""
    priced = [step for step in found if step.experiment is not None]
    return min(priced, key=lambda step: step.experiment.value, default=None)  # type: ignore[union-attr]


def _pays(smaller: Sequence[Step], now: Interval) -> Pays | None:
    """Whether an experiment costs less than on the smaller machine on which it is cheapest."""
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
