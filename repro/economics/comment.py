"""The rent-or-buy comment: BERT on a workstation with one card, against V100s by the hour.

Its sums are followed as it did them, and again with its own inputs: the electricity of its power and its price of a
kWh, which it has otherwise, and the GPU-hours of its minutes on so many GPUs, for which it charges an hour of each.
"""

from __future__ import annotations

from dataclasses import replace

from ..interval import Interval
from ..prices import rentals
from ..quantities import quantities
from .breakeven import Case, break_even
from .offers import lifespan_years
from .reckoning import Reckoned, Tariff, Use, reckon


def gpu_hours() -> Interval:
    """Of a run: its minutes on all of its GPUs."""
    return _its("gpus") * _its("minutes") / 60


def machine() -> Interval:
    """Card and workstation, in USD."""
    return _its("card") + _its("workstation")


def use() -> Use:
    """Its power, its price of a kWh in EUR, and its own rate: that by which it tells a run's electricity in USD."""
    rate = _its("electricity_a_run_usd").value / _its("electricity_a_run").value
    return Use(kilowatts=_its("power"), tariff=Tariff(_its("electricity"), "EUR", rate))


def rate_told() -> str:
    """By which rate its electricity comes to be in its currency."""
    dollars, euros = (f"{_its(name).value:g}" for name in ("electricity_a_run_usd", "electricity_a_run"))
    return f"EUR become USD at the comment's own rate, {dollars}/{euros}"


def rents() -> dict[str, Interval]:
    """USD per V100 and hour, by provider, the cheapest first: the comment's choice."""
    cited = [rentals()["V100", 1, provider, "on-demand"] for provider in ("Exoscale", "Google Cloud")]
    return {row.provider: Interval.exact(row.price) for row in sorted(cited, key=lambda row: row.price)}


def reckonings(grams: Interval | None = None) -> list[Reckoned]:
    """As the comment has it; with the electricity mended; with the GPU-hours mended too, for both its rents."""
    charged = _its("hours_charged")
    power, electricity, gpus, minutes = (
        f"{_its(name).value:,g}" for name in ("power", "electricity", "gpus", "minutes")
    )
    by_provider = rents()
    cheap, dear = by_provider
    taken = replace(use(), grams=grams)
    return [
        _as_printed(cheap, charged),
        *(
            reckon(what, provider, "comment", machine(), by_provider[provider], hours, taken)
            for what, provider, hours in (
                (f"electricity mended: {power} kW x hours x {electricity} EUR", cheap, charged),
                (f"GPU-hours mended too: {minutes} min x {gpus} GPUs", cheap, gpu_hours()),
                ("the same at its dearer rent", dear, gpu_hours()),
            )
        ),
    ]


def _as_printed(provider: str, hours: Interval) -> Reckoned:
    dollars = _its("electricity_a_run_usd")
    case = Case(machine(), Interval.exact(0.0), rents()[provider], dollars / hours, hours)
    return Reckoned(
        what="as the comment reckons",
        provider=provider,
        case=case,
        answer=break_even(case, lifespan_years()),
        energy=None,
        electricity=_its("electricity_a_run"),
        electricity_currency="EUR",
        converted=dollars,
        co2=None,
        origin="comment",
    )


def _its(name: str) -> Interval:
    """One of its numbers."""
    return Interval.exact(quantities()[f"comment/{name}"].value)
