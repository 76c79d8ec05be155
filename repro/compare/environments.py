"""How two environments differ: package by package, driver, GPUs, clocks, and whatever else may make a step slower."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..formats import tallied
from .side import Side, middle


@dataclass(frozen=True)
class Difference:
    """`before` and `after` are None where a side has none of it, or does not say."""

    what: str
    before: str | None
    after: str | None


def differences(before: Side, after: Side) -> list[Difference]:
    """Packages first. Where one side did not record its packages at all, that is one difference; what else a side does
    not say is left out."""
    found = []
    old, new = (side.environment.packages for side in (before, after))
    if old is not None and new is not None:
        found += _of(old, new)
    elif old != new:
        found.append(Difference("packages", *("not recorded" if known is None else "recorded" for known in (old, new))))
    machines = _machine(before), _machine(after)
    both = machines[0].keys() & machines[1].keys()
    found += _of(*({what: said for what, said in machine.items() if what in both} for machine in machines))
    variables = [known for side in (before, after) if (known := side.environment.variables) is not None]
    if len(variables) == 2:
        found += _of(*({f"variable {name}": value for name, value in known.items()} for known in variables))
    return found


def _of(before: Mapping[str, str], after: Mapping[str, str]) -> list[Difference]:
    return [
        Difference(name, before.get(name), after.get(name))
        for name in dict.fromkeys((*before, *after))
        if before.get(name) != after.get(name)
    ]


def _machine(side: Side) -> dict[str, str]:
    """What there is besides packages, in words; what a side does not say is left out."""
    known = side.environment
    found = {
        "Python": known.python,
        "driver": known.driver,
        "GPUs": None if known.gpus is None else tallied(gpu.driver_name for gpu in known.gpus),
        "GPU clock, MHz": _clock(side, "sm_mhz"),
        "memory clock, MHz": _clock(side, "memory_mhz"),
        "CPU": known.host.cpu or None,
        "kernel": known.host.kernel or None,
        "repro": known.commit or known.repro,
    }
    return {name: str(value) for name, value in found.items() if value is not None}


def _clock(side: Side, name: str) -> str | None:
    """The median of what the GPUs said while they worked."""
    clock = middle(state.get(name) for record in side.records for state in record.gpu_state or [] if state)
    return None if clock is None else f"{clock:.0f}"
