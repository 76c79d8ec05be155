"""Settings with methods of one's own, held against the same settings without them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from ..formats import significant
from ..paper.settings import Settings
from ..record import Record
from .trials import GIB

_DIFFERS = 0.01  # relative: on a CPU the rounding of bf16 changed a loss of these steps by up to 4e-5
LEGEND = (
    "without: the same settings without the method, in the same run. speed: above 1 where the method is faster. peak "
    "GiB: at the largest micro batch that both fit, in the search for it, uncompiled. losses differ by: the largest "
    "relative difference of the losses below."
)


Pair = tuple[Record, Record | None]


def pairs(records: Iterable[Record]) -> list[Pair]:
    """Return each record with methods, and the record of the same trial without them, if any."""
    known = {record.id: record for record in records}
    found = []
    for record in known.values():
        settings = Settings.parse(record.settings)
        if settings.methods:
            found.append((record, known.get(id_with(record, replace(settings, methods=())))))
    return found


def id_with(record: Record, settings: Settings) -> str:
    """Return the id of a record's trial with these settings in place of its own, and without a method's digest."""
    return re.sub("/method-[0-9a-f]+$", "", record.id.replace(f"/{record.settings}", f"/{settings.id}", 1))


def method_row(record: Record, without: Record | None) -> dict[str, Any]:
    """Return the speed and memory of a trial with a method of one's own, and those without the method."""
    there = without if without is not None and without.timed else None
    change = _change(record, there)
    return {
        "model": record.recipe,
        "machine": record.machine,
        "settings": record.settings,
        "status": record.status,
        **beside(record, there),
        "losses differ by": None if change is None else _shown(change),
    }


def beside(record: Record | None, without: Record | None) -> dict[str, Any]:
    """Return the columns that compare the speed and memory of two records, of which either may be missing."""
    step, usual = (each.derived.true_step if each else None for each in (record, without))
    peak, usual_peak = ({pair[0]: pair[1] for pair in each.batch.peaks} if each else {} for each in (record, without))
    common = max(peak.keys() & usual_peak.keys(), default=None)  # the largest micro batch that both fitted
    return {
        "MBS": record.batch.micro_batch if record else None,
        "MBS without": without.batch.micro_batch if without else None,
        "step s": step,
        "step s without": usual,
        "speed": f"{usual / step:.3f}" if step and usual else None,
        "at MBS": common,
        "peak GiB": None if common is None else peak[common] / GIB,
        "peak GiB without": None if common is None else usual_peak[common] / GIB,
    }


def losses(record: Record, without: Record | None) -> str:
    """Return the losses with and without a method, side by side, and whether it changes the training; empty where not
    both recorded them."""
    change = _change(record, without)
    if change is None or without is None:
        return ""
    own, usual = (
        " ".join("nan" if loss is None else significant(loss, 5) for loss in each.observed.trained_losses or ())
        for each in (record, without)
    )
    verdict = "the method trains as without it" if change <= _DIFFERS else "the method changes the training"
    return (
        f"{record.recipe}, {record.machine}, {record.settings}: losses {own}; without {usual}; the largest difference "
        f"is {_shown(change)}: {verdict}."
    )


def _change(record: Record, without: Record | None) -> float | None:
    """Return the largest relative difference of the losses, infinite where only one of two is a number; None where not
    both recorded them."""
    if without is None or not record.observed.trained_losses or not without.observed.trained_losses:
        return None
    apart = []
    for own, usual in zip(record.observed.trained_losses, without.observed.trained_losses, strict=False):
        if own is None or usual is None:
            apart.append(0.0 if own is usual else float("inf"))
        else:
            apart.append(abs(own - usual) / abs(usual) if usual else float(own != usual))
    return max(apart)


def _shown(change: float) -> str:
    return f"{change:.2%}" if change >= 1e-4 or not change else "less than 0.01%"
