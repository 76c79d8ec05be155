"""How two environments differ: package by package, driver, GPUs, clocks, and whatever else may make a step slower."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ..environment import Environment
from ..formats import tallied
from .side import Side, middle

Said = tuple[str, ...]  # several where the runs of a side differ, none where nobody says
_MACHINE: dict[str, Callable[[Environment], object]] = {
    "Python": lambda known: known.python,
    "driver": lambda known: known.driver,
    "GPUs": lambda known: None if known.gpus is None else tallied(gpu.driver_name for gpu in known.gpus),
    "CPU": lambda known: known.host.cpu or None,
    "CPU cores": lambda known: known.host.physical_cores,
    "kernel": lambda known: known.host.kernel or None,
    "repro": lambda known: known.commit or known.repro,
}
_CLOCKS = {"GPU clock, MHz": "sm_mhz", "memory clock, MHz": "memory_mhz"}
_OF_GPUS = ("driver", "GPUs")


@dataclass(frozen=True)
class Difference:
    """`before` and `after` are None where a side has none of it, or does not say: both, where neither says."""

    what: str
    before: str | None
    after: str | None


def differences(before: Side, after: Side) -> list[Difference]:
    """Packages first, and last what neither side says. Where one side did not record its packages at all, that is one
    difference; what else a side does not say is left out. What the runs of a side do not agree on is a difference,
    too."""
    found = []
    old, new = (side.environment.versions for side in (before, after))
    if old is not None and new is not None:
        found += _of(*({name: (version,) for name, version in known.items()} for known in (old, new)))
    elif old != new:
        found.append(Difference("packages", *("not recorded" if known is None else "recorded" for known in (old, new))))
    machines = _machine(before), _machine(after)
    both = {what for what in machines[0] if all(machine[what] for machine in machines)}
    found += _of(*({what: said for what, said in machine.items() if what in both} for machine in machines))
    here, there = _variables(before), _variables(after)
    if here is not None and there is not None:
        found += _of(here, there)
    missing = ["packages"] if old is new is None else []
    missing += [what for what in _MACHINE if not any(machine[what] for machine in machines)]
    missing += ["variables"] if here is there is None else []
    on_gpus = any(record.device != "cpu" for side in (before, after) for record in side.records)
    return found + [Difference(what, None, None) for what in missing if on_gpus or what not in _OF_GPUS]


def _of(before: Mapping[str, Said], after: Mapping[str, Said]) -> list[Difference]:
    pairs = {what: (before.get(what, ()), after.get(what, ())) for what in (*before, *after)}
    return [
        Difference(what, *("; ".join(said) if said else None for said in pair))
        for what, pair in pairs.items()
        if pair[0] != pair[1] or len(pair[0]) > 1
    ]


def _machine(side: Side) -> dict[str, Said]:
    """What there is besides packages, in words."""
    found = {what: side.said(take) for what, take in _MACHINE.items()}
    # A folder's environment is its last run's: what was measured before is of the commit that its record says.
    commits = tuple(sorted({record.commit for record in side.records if record.commit}))
    found["repro"] = commits or found["repro"]
    return found | {what: _clock(side, name) for what, name in _CLOCKS.items()}


def _variables(side: Side) -> dict[str, Said] | None:
    """None where no run says."""
    known = [each.variables for each in side.environments if each.variables is not None]
    names = sorted({name for each in known for name in each})
    told = {f"variable {name}": tuple(sorted({each.get(name, "not set") for each in known})) for name in names}
    return told if known else None


def _clock(side: Side, name: str) -> Said:
    """The median of what the GPUs said while they worked."""
    clock = middle(state.get(name) for record in side.records for state in record.gpu_state or [] if state)
    return () if clock is None else (f"{clock:.0f}",)
