"""What changed besides speed: the kernels that ran, what compile made, memory, start-up, numerics, and who else kept
the CPUs busy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..fairness import crowded
from ..formats import figures
from ..trial import Record
from .ratio import of_separate
from .rule import SMALLEST_CHANGE
from .side import middle, of_starts

# A warm-up holds the compilation and whatever the disk did; loss of half precision differs in its last digits.
_WARM_UP_SECONDS, _WARM_UP_CHANGE = 1.0, 0.2
_LOSS_CHANGE = 1e-3
_MIB = 2**20


@dataclass(frozen=True)
class Change:
    """One thing that is not as it was, both sides in words."""

    what: str
    before: str
    after: str

    def __str__(self) -> str:
        return f"{self.what}: {self.before}, then {self.after}"


def changes(before: Sequence[Record], after: Sequence[Record]) -> list[Change]:
    """Between the measured records of a trial on both sides; numbers are medians over processes. What one side does not
    record is no change."""
    words: list[tuple[str, Callable[[Record], str | None]]] = [
        ("kernel path", lambda record: record.kernel_path),
        ("precision", lambda record: record.ran_precision),
        ("wrapper", lambda record: record.wrapper),
        ("optimizer", lambda record: record.optimizer),
        ("compiled", lambda record: "yes" if record.compiled else "no"),
        ("TF32", lambda record: "on" if record.in_tf32 else "off"),
    ]
    graphs = [("graphs", "compiled"), ("graph breaks", "breaks"), ("recompilations", "recompilations")]
    words += [(what, _of_graphs(key)) for what, key in graphs]
    found = [Change(what, _said(before, say), _said(after, say)) for what, say in words]
    found = [change for change in found if change.before and change.after and change.before != change.after]
    found += _moved("peak memory", _peak_mib, before, after, SMALLEST_CHANGE, "MiB")
    found += _moved("compiling and warm-up", _compiling, before, after, _WARM_UP_CHANGE, "s")
    return found + _numerics(before[-1].losses, after[-1].losses) + _crowd(before, after)


def _by_chance(take: Callable[[Record], float | None], before: Sequence[Record], after: Sequence[Record]) -> bool:
    """Whether chance can have moved it: on a CPU the peak is what was resident, another 10 or 20 % in every start, and
    what compiles shares the cores with whatever else runs."""
    starts = [of_starts(side, take) for side in (before, after)]
    if before[-1].device != "cpu" or not all(starts):
        return False
    interval = of_separate(*starts).interval
    return interval is None or interval.low <= 1 <= interval.high


def _of_graphs(key: str) -> Callable[[Record], str | None]:
    return lambda record: str(record.graphs[key]) if record.graphs and key in record.graphs else None


def _moved(
    what: str,
    take: Callable[[Record], float | None],
    before: Sequence[Record],
    after: Sequence[Record],
    smallest: float,
    unit: str,
) -> list[Change]:
    old, new = (middle(map(take, side)) for side in (before, after))
    if not old or not new or abs(new / old - 1) <= smallest or _by_chance(take, before, after):
        return []
    return [Change(what, f"{figures(old)} {unit}", f"{figures(new)} {unit}")]


def _said(records: Sequence[Record], say: Callable[[Record], str | None]) -> str:
    return " or ".join(sorted(set(filter(None, map(say, records)))))  # in an order that the processes' does not change


def _peak_mib(record: Record) -> float | None:
    return None if record.peak_memory is None else record.peak_memory / _MIB


def _compiling(record: Record) -> float | None:
    seconds = record.warm_up_seconds
    return seconds if seconds is not None and seconds > _WARM_UP_SECONDS else None


def _numerics(before: Sequence[float | None] | None, after: Sequence[float | None] | None) -> list[Change]:
    """Loss of the first micro-steps, on the same data from the same seed: the first that differs by more than rounding.

    A stack that draws other weights from the seed differs, too: from the first on."""
    for step, (old, new) in enumerate(zip(before or (), after or (), strict=False), 1):
        if old is None and new is None:
            continue
        if old is None or new is None or abs(new - old) > _LOSS_CHANGE * abs(old):
            return [Change(f"loss of micro-step {step}", _loss(old), _loss(new))]
    return []


def _crowd(before: Sequence[Record], after: Sequence[Record]) -> list[Change]:
    """What may well be why one side was slower. Processes that took turns have no such number."""
    old, new = (middle(record.crowd for record in side) for side in (before, after))
    if old is None or new is None or crowded(abs(new - old)) is None:
        return []
    return [Change("CPUs that other processes kept busy", f"{old:.1f}", f"{new:.1f}")]


def _loss(loss: float | None) -> str:
    return "not finite" if loss is None else f"{loss:.5g}"
