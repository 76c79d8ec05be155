"""The rent-or-buy comment: its own arithmetic, and what its inputs give when they are put right.

It charges 1,024 hours for 44 minutes on 1,024 GPUs. Claims that end in `-of-44-minutes` take the 44 minutes.
"""

from __future__ import annotations

from dataclasses import replace
from math import ceil

from . import facts
from .registry import recomputes
from .working import Working, shown

_MINUTES_AN_HOUR, _HOURS_A_DAY = 60, 24


@recomputes("comment-gpu-hours")
def gpu_hours() -> Working:
    minutes = facts.quantity("comment/gpus") * facts.quantity("comment/minutes", rounded_to=1)
    found = (minutes / _MINUTES_AN_HOUR).called("GPU-hours of a run")
    days = found.value.value / _HOURS_A_DAY
    return found.told(f"that is also what one such card takes alone: {shown(days)} days without a pause")


@recomputes("comment-google-cost", provider="Google Cloud")
@recomputes("comment-exoscale-cost", provider="Exoscale")
def rent(provider: str) -> Working:
    """US dollars of a run of 1,024 GPU-hours."""
    return _rent(facts.quantity("comment/hours_charged"), provider)


@recomputes("comment-google-cost-of-44-minutes", provider="Google Cloud")
@recomputes("comment-exoscale-cost-of-44-minutes", provider="Exoscale")
def rent_of_44_minutes(provider: str) -> Working:
    return _rent(gpu_hours(), provider).told("1,024 GPUs for a whole hour are 1,024 GPU-hours")


def _rent(hours: Working, provider: str) -> Working:
    return (hours * facts.rental("V100", 1, provider, "on-demand")).called(f"USD of a run at {provider}")


@recomputes("comment-card-speed")
def card_speed() -> Working:
    """Single precision of the Quadro RTX 6000 over the V100's."""
    card, v100 = (facts.figure(gpu, "fp32_tflops", "TFLOP/s") for gpu in ("Quadro RTX 6000", "V100 32 GB"))
    return card / v100


@recomputes("comment-card-power")
def card_power() -> Working:
    """Board power of the Quadro RTX 6000 less that of the V100."""
    card, v100, pcie = (
        facts.figure(gpu, "board_power_w", "W") for gpu in ("Quadro RTX 6000", "V100 32 GB", "V100 32 GB PCIe")
    )
    return (card - v100).told(f"the PCIe part of the V100 takes {shown(pcie.value.value)} W, which is less")


@recomputes("comment-card-memory-over-16-gb")
@recomputes("comment-card-memory-under-32-gb")
def card_memory() -> Working:
    return facts.figure("Quadro RTX 6000", "memory_gb", "GB")


@recomputes("comment-system-cost")
def system() -> Working:
    return (facts.quantity("comment/card") + facts.quantity("comment/workstation")).called("USD to buy")


@recomputes("comment-electricity")
def electricity() -> Working:
    """Euros of a run of 1,024 hours on one card."""
    return _electricity(facts.quantity("comment/hours_charged"))


@recomputes("comment-electricity-of-44-minutes")
def electricity_of_44_minutes() -> Working:
    return _electricity(gpu_hours()).told("for the hours that one such card takes for the same work")


def _electricity(hours: Working) -> Working:
    energy = (hours * facts.quantity("comment/power")).called("kWh of a run")
    return (energy * facts.quantity("comment/electricity")).called("EUR of a run")


@recomputes("comment-break-even-equation")
def equation() -> Working:
    """Runs that cost as much rented as bought, by the comment's equation."""
    return _equation(rent("Exoscale"), facts.quantity("comment/electricity_a_run_usd"))


@recomputes("comment-break-even")
def break_even() -> Working:
    return _whole(equation())


@recomputes("comment-break-even-with-its-electricity")
def break_even_electricity() -> Working:
    """The same with the electricity that 1,024 hours take."""
    return _whole(_equation(rent("Exoscale"), _dollars(electricity())))


@recomputes("comment-break-even-of-44-minutes")
def break_even_of_44_minutes() -> Working:
    """The same with the rent and the electricity of 44 minutes."""
    electricity = _dollars(electricity_of_44_minutes())
    found = _whole(_equation(rent_of_44_minutes("Exoscale"), electricity))
    days = found.value.value * gpu_hours().value.value / _HOURS_A_DAY
    return found.told(f"they keep the one card busy for {shown(round(days))} days")


def _dollars(euros: Working) -> Working:
    """At the comment's own rate."""
    rate = facts.quantity("comment/electricity_a_run_usd") / facts.quantity("comment/electricity_a_run")
    return (euros * rate.called("USD a EUR")).called("USD of electricity a run")


def _equation(rented: Working, electricity: Working) -> Working:
    return (system() / (rented - electricity).called("USD saved a run")).called("runs that cost the same")


def _whole(runs: Working) -> Working:
    """The first run that buying makes cheaper."""
    value = runs.value.mapped(lambda bound: float(ceil(bound)))
    return replace(runs, value=value).saying(f"cheaper from run {shown(value.value)} on")
