"""What else changed between two sides of a trial, besides its speed: a line each, with both sides."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..formats import significant
from ..record import Record
from .decision import SMALLEST_CHANGE
from .side import middle

# A warm-up includes compilation and disk access; half-precision losses differ in their last digits.
_WARM_UP_SECONDS, _WARM_UP_CHANGE = 1.0, 0.2
_LOSS_CHANGE = 1e-3
# On a CPU the peak is resident memory, which varies by 10 or 20 % from start to start; compiling shares the cores.
_CPU_CHANGE = 0.3
_MIB = 2**20

_WORDS: dict[str, Callable[[Record], object]] = {
    "kernel path": lambda record: record.as_run.kernel_path,
    "precision": lambda record: record.as_run.precision,
    "wrapper": lambda record: record.as_run.wrapper,
    "optimizer": lambda record: record.as_run.optimizer,
    "compiled": lambda record: "yes" if record.as_run.compiled else "no",
    "TF32": lambda record: "on" if record.as_run.in_tf32 else "off",
    "graphs": lambda record: (record.as_run.graphs or {}).get("compiled"),
    "graph breaks": lambda record: (record.as_run.graphs or {}).get("breaks"),
    "recompilations": lambda record: (record.as_run.graphs or {}).get("recompilations"),
}


def changes(before: Sequence[Record], after: Sequence[Record]) -> list[str]:
    """Return what else changed between the measured records of a trial; numbers are medians over processes. Nothing
    that only one side records is a change."""
    found = []
    for what, take in _WORDS.items():
        # Sorted, as the order of processes varies.
        values = ({str(value) for value in map(take, side) if value not in (None, "")} for side in (before, after))
        texts = [" or ".join(sorted(side)) for side in values]
        if all(texts) and texts[0] != texts[1]:
            found.append(f"{what}: {texts[0]}, then {texts[1]}")
    on_a_cpu = before[-1].device == "cpu"
    for what, unit, smallest, number in (
        ("peak memory", "MiB", SMALLEST_CHANGE, _peak_mib),
        ("compiling and warm-up", "s", _WARM_UP_CHANGE, _compiling),
    ):
        old, new = (middle(map(number, side)) for side in (before, after))
        if old and new and abs(new / old - 1) > (_CPU_CHANGE if on_a_cpu else smallest):
            found.append(f"{what}: {significant(old)} {unit}, then {significant(new)} {unit}")
    return found + _losses(before[-1].observed.losses, after[-1].observed.losses)


def _peak_mib(record: Record) -> float | None:
    return None if record.observed.peak_memory is None else record.observed.peak_memory / _MIB


def _compiling(record: Record) -> float | None:
    seconds = record.observed.warm_up_seconds
    return seconds if seconds is not None and seconds > _WARM_UP_SECONDS else None


def _losses(before: Sequence[float | None] | None, after: Sequence[float | None] | None) -> list[str]:
    """Return the first micro-step whose loss differs by more than rounding, on the same data from the same seed. A
    stack that draws other weights from the seed differs from the first micro-step on."""
    for step, (old, new) in enumerate(zip(before or (), after or (), strict=False), 1):
        if old is None and new is None:
            continue
        if old is None or new is None or abs(new - old) > _LOSS_CHANGE * abs(old):
            texts = ["not finite" if loss is None else f"{loss:.5g}" for loss in (old, new)]
            return [f"loss of micro-step {step}: {texts[0]}, then {texts[1]}"]
    return []
