"""Settings with methods of one's own or parts of modern training, held against the same settings without them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from ..formats import significant
from ..paper.settings import Settings
from ..parts import BY_NAME
from ..predict.today import peak_bytes
from ..record import Record
from ..run.parts_search import faster
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


# --- The ablation of modern settings: what each part brought in time and memory, on the machine of the run ---

ABLATION = "Modern settings: what each part brought"
PARTS_LEGEND = (
    "Each row holds all parts that serve the model against all but this one. here: dropped, where the step is shorter "
    "without the part by more than its rounds scatter. speed: above 1 where the part makes the step shorter, each at "
    "its own micro batch. peak GiB: at the largest micro batch that both fit, in the search for it, uncompiled. "
    "predicted GiB: the same, from the traces of the model's code, for a GPU of the catalogue. exact: the same "
    "arithmetic up to the order of sums; precision: the same algorithm in fewer bits. asked: parts that you named, "
    "whatever they bring."
)


@dataclass(frozen=True)
class Ablation:
    """The trials of modern training that start from the same `usual` settings on one machine: the `whole`, with all
    parts that serve the model, the `best` of those that stand, and by its parts each record."""

    usual: Record
    whole: Record
    best: Record
    by_parts: dict[tuple[str, ...], Record]
    unsupported: dict[str, Record]

    @property
    def text(self) -> str:
        """Return the result as a sentence."""
        where = f"{self.usual.recipe}, {self.usual.machine}"
        usual, best = self.usual.derived.true_step, self.best.derived.true_step
        if self.best is self.usual or usual is None or best is None:
            return f"{where}: no part makes {self.usual.settings} faster here."
        named = [
            f"{kind} parts: {', '.join(parts)}"
            for kind in ("exact", "precision")
            if (parts := [each for each in _parts(self.best) if BY_NAME[each].kind == kind])
        ]
        return (
            f"{where}: modern takes {significant(best)} s a training step, {self.usual.settings} "
            f"{significant(usual)} s, {usual / best:.2f} times as long; {'; '.join(named)}."
        )

    def rows(self) -> list[dict[str, Any]]:
        """Return a row for each part: first those that serve the model, each against all others without it."""
        rows = []
        for part in _parts(self.whole):
            without = self.by_parts.get(tuple(each for each in _parts(self.whole) if each != part))
            slower, reason = faster(without, self.whole) if without is not None else (False, "")
            here = "asked" if _asked(self.whole) else "dropped" if slower else "kept"
            rows.append(self._row(part, here, self.whole, without, reason))
        return rows + [
            self._row(part, "unsupported", None, None, record.reason) for part, record in self.unsupported.items()
        ]

    def _row(self, part: str, here: str, whole: Record | None, without: Record | None, reason: str) -> dict[str, Any]:
        ran = [each if each is not None and each.timed else None for each in (whole, without)]
        columns = beside(*ran)
        at = columns["at MBS"]
        predicted, predicted_without = (peak_bytes(record, at) if record and at else None for record in ran)
        return {
            "model": self.usual.recipe,
            "machine": self.usual.machine,
            "part": part,
            "class": BY_NAME[part].kind,
            "library": BY_NAME[part].library,
            "here": here,
            **columns,
            "predicted GiB": predicted and predicted / GIB,
            "predicted GiB without": predicted_without and predicted_without / GIB,
            "reason": reason,
        }


def _parts(record: Record) -> tuple[str, ...]:
    return Settings.parse(record.settings).parts


def _asked(record: Record) -> bool:
    """Return whether a user named the parts, whatever they bring."""
    return record.modern is not None and record.modern.asked


def ablations(records: Iterable[Record]) -> list[Ablation]:
    """Return the ablation of each search for modern settings, and of parts that a user named."""
    groups: dict[str, list[Record]] = {}
    known = {record.id: record for record in records}
    for record in known.values():
        if record.modern is not None:
            base = replace(Settings.parse(record.settings), parts=())
            groups.setdefault(id_with(record, base), []).append(record)
    found = []
    for id, group in groups.items():
        usual, standing = known.get(id), [each for each in group if each.modern and each.modern.stands()]
        if usual is None or not usual.timed or not standing:
            continue
        whole = max(standing, key=lambda each: len(_parts(each)))
        ran = [each for each in standing if each.timed]
        candidates = ran if any(map(_asked, ran)) else [*ran, usual]
        best = min(candidates, key=lambda each: each.derived.true_step or math.inf)
        by_parts = {_parts(each): each for each in (*group, usual)}
        unsupported = {each.modern.part: each for each in group if each.modern and each.status == "unsupported"}
        found.append(Ablation(usual, whole, best, by_parts, unsupported))
    return found
