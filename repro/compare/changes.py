"""What changed besides speed: the kernels that ran, what compile made, memory, start-up, numerics."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..formats import figures
from ..trial import Record
from .rule import SMALLEST_CHANGE
from .side import middle

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
    """Between the measured records of a trial on both sides; numbers are medians over processes."""
    words: list[tuple[str, Callable[[Record], str]]] = [
        ("kernel path", lambda record: record.kernel_path or "not recorded"),
        ("precision", lambda record: record.ran_precision or "not recorded"),
        ("wrapper", lambda record: record.wrapper or "not recorded"),
        ("compiled", lambda record: "yes" if record.compiled else "no"),
        ("TF32", lambda record: "on" if record.tf32 else "off"),
    ]
    graphs = [("graphs", "compiled"), ("graph breaks", "breaks"), ("recompilations", "recompilations")]
    for what, key in graphs:
        words.append((what, lambda record, key=key: str((record.graphs or {}).get(key, "not recorded"))))  # type: ignore[misc]
    found = [Change(what, _said(before, say), _said(after, say)) for what, say in words]
    found = [change for change in found if change.before != change.after]
    for what, take, smallest, unit, name in (
        ("peak memory", lambda record: record.peak_memory, SMALLEST_CHANGE, _MIB, "MiB"),
        ("compiling and warm-up", _compiling, _WARM_UP_CHANGE, 1, "s"),
    ):
        numbers = [middle(map(take, side)) for side in (before, after)]  # type: ignore[arg-type]
        if all(numbers) and abs(numbers[1] / numbers[0] - 1) > smallest:  # type: ignore[operator]
            found.append(Change(what, *(f"{figures(number / unit)} {name}" for number in numbers)))  # type: ignore[operator]
    return found + _numerics(before[-1].losses, after[-1].losses)


def _said(records: Sequence[Record], say: Callable[[Record], str]) -> str:
    return " or ".join(dict.fromkeys(map(say, records)))


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


def _loss(loss: float | None) -> str:
    return "not finite" if loss is None else f"{loss:.5g}"
