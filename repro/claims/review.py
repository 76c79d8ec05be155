"""The review's advice that is not the paper's own: what budgets buy, what owning saves."""

from __future__ import annotations

from ..datafile import absent
from . import facts
from .registry import recomputes
from .working import Working, count, shown


@recomputes("review-saved-by-owning")
def saved() -> Working:
    """Renting less owning, both as the papers say them."""
    renting, machine = facts.rental("A100", 8, "AWS", "reserved"), facts.machine("A100", 8)
    more = shown(renting.value.value - machine.value.value)
    saving = renting - facts.quantity("paper/owned_8_a100")
    return saving.told(f"with the machine's own price, {shown(machine.value.value)} USD, it would be {more}")


@recomputes("review-budget-160k")
def cheaper_and_as_fast() -> Working:
    """Machines that cost less than 8 A100 and train Pythia-1B in as few days: none is what a balance can mean."""
    machines = facts.machines()
    cost, days = machines["A100", 8]
    better = {
        f"{gpus} {gpu} at {shown(its_cost.value.value)} USD in {shown(its_days.value.value)} days"
        for (gpu, gpus), (its_cost, its_days) in machines.items()
        if its_cost.value.value < cost.value.value and its_days.value.value <= days.value.value
    }
    numbers = [days.after(cost) for cost, days in machines.values()]
    found = count(len(better), numbers, "machines are cheaper than 8 A100 and as fast")
    here = f"8 A100 at {shown(cost.value.value)} USD, above that budget, in {shown(days.value.value)} days"
    return found.told(f"{here}; {' and '.join(sorted(better)) or 'no other'}")


@recomputes("review-under-50k", gpus=("RTX 3090",), least=0, most=50_000)
@recomputes("review-over-100k", gpus=("A100", "H100"), least=100_000, most=float("inf"))
def days_lost(gpus: tuple[str, ...], least: float, most: float) -> Working:
    """Days of Pythia-1B that the fastest advised machine in a range of prices takes more than the fastest of all."""
    within = {name: numbers for name, numbers in facts.machines().items() if least < numbers[0].value.value < most}
    advised = [days for (name, _), (_, days) in within.items() if name in gpus]
    if not advised:
        absent("table5.csv", "price that puts a machine in the range that the claim is of", " and ".join(gpus))
    fastest = min(within, key=lambda name: within[name][1].value.value)
    best, ours = within[fastest][1], min(advised, key=lambda days: days.value.value)
    lost = (ours - best).called(
        f"days more than {fastest[1]} {fastest[0]} at {shown(within[fastest][0].value.value)} USD"
    )
    return lost.after(*(cost for cost, _ in within.values()))


@recomputes("review-50k-to-100k")
def a6000_machines() -> Working:
    """Machines with A6000 at a price from $50k to $100k."""
    costs = {name: cost for name, (cost, _) in facts.machines().items() if name[0] == "A6000"}
    there = sum(50_000 <= cost.value.value <= 100_000 for cost in costs.values())
    dearest = max(cost.value.value for cost in costs.values())
    found = count(there, list(costs.values()), "machines with A6000 cost 50,000 to 100,000 USD")
    return found.told(f"the dearest of them costs {shown(dearest)} USD")


@recomputes("review-original-gpus")
def original_gpus() -> Working:
    return facts.original_gpus("Pythia-1B")
