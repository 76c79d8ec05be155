"""The paper's sentences on money: section 4.1, Appendix H, and what owning costs against renting."""

from __future__ import annotations

from ..units import DAYS_A_YEAR
from . import facts
from .registry import recomputes
from .working import Working, shown


@recomputes("title-100k", gpu="H100", gpus=4)
@recomputes("four-h100-cost", gpu="H100", gpus=4)
@recomputes("two-rtx-3090-cost", gpu="RTX 3090", gpus=2)
@recomputes("four-a100-cost", gpu="A100", gpus=4)
@recomputes("two-h100-cost", gpu="H100", gpus=2)
@recomputes("eight-a100-cost", gpu="A100", gpus=8)
@recomputes("eight-h100-cost", gpu="H100", gpus=8)
@recomputes("own-8-a100", gpu="A100", gpus=8)
@recomputes("review-four-h100-cost", gpu="H100", gpus=4)
@recomputes("review-eight-a100-cost", gpu="A100", gpus=8)
@recomputes("review-own-8-a100", gpu="A100", gpus=8)
def machine(gpu: str, gpus: int) -> Working:
    return facts.machine(gpu, gpus)


@recomputes("budget-40k-cost")
@recomputes("review-eight-rtx-3090-cost")
def eight_rtx_3090() -> Working:
    return facts.machine("RTX 3090", 8).told("$40k is a budget that holds it, no price")


@recomputes("budget-40k-days", budget=40_000)
@recomputes("review-budget-40k", budget=40_000)
@recomputes("review-budget-130k", budget=130_000)
def fastest_within(budget: float) -> Working:
    """The fewest days of Pythia-1B among the machines that the budget can buy."""
    within = [(*name, *numbers) for name, numbers in facts.machines().items() if numbers[0].value.value <= budget]
    gpu, gpus, cost, days = min(within, key=lambda machine: machine[3].value.value)
    others = [number for *_, its_cost, its_days in within for number in (its_cost, its_days)]
    return days.after(*others).saying(
        f"the fastest of the {len(within)} machines up to {shown(budget)} USD: {gpus} {gpu} at "
        f"{shown(cost.value.value)} USD, {shown(days.value.value)} days"
    )


@recomputes("four-h100-memory")
def half_the_memory() -> Working:
    """Memory of 4 H100 over that of 8 A100."""
    return facts.figure("H100", "memory_gb", "GB") * 4 / (facts.figure("A100", "memory_gb", "GB") * 8)


@recomputes("a100-run-cost", gpu="A100", gpus=8)
@recomputes("h100-run-cost", gpu="H100", gpus=4)
def run_cost(gpu: str, gpus: int) -> Working:
    """US dollars of one training of Pythia-1B: the machine's price, spread over the years that it lives."""
    lives = (facts.quantity("paper/lifespan") * DAYS_A_YEAR).called("days that a machine lives")
    return facts.machine(gpu, gpus) * facts.days("1", "Pythia-1B", gpu, gpus) / lives


@recomputes("rtx-3090-price", gpu="RTX 3090")
@recomputes("a6000-price", gpu="A6000")
@recomputes("a100-price", gpu="A100")
@recomputes("h100-price", gpu="H100")
def price(gpu: str) -> Working:
    return facts.price(gpu)


@recomputes("desktop-1-gpu", gpus=1)
@recomputes("desktop-2-gpus", gpus=2)
@recomputes("desktop-1-gpu-total", gpus=1)
@recomputes("desktop-2-gpus-total", gpus=2)
def desktop(gpus: int) -> Working:
    """The sum of Table 6's parts."""
    return facts.parts(gpus)


@recomputes("server-4-gpus", gpus=4)
def server(gpus: int) -> Working:
    return facts.server(gpus)


@recomputes("server-8-gpus")
def server_8_gpus() -> Working:
    """What is printed to $100 is right to the unit that all four systems of section 4.1 keep to."""
    cost, unit = server(8), facts.quantity("rounding/system").value.value
    rounded = round(cost.value.value / unit) * unit
    return cost.told(f"to the nearest {shown(unit)} USD, as the other systems are too, it is {shown(rounded)}")
