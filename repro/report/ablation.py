"""The ablation of modern settings: what each part brought in time and memory, on the machine of the run."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from ..formats import significant
from ..paper.settings import Settings
from ..parts import BY_NAME
from ..predict.today import peak_bytes
from ..record import Record
from ..run.parts_search import faster
from .methods import beside, id_with
from .trials import GIB

ABLATION = "Modern settings: what each part brought"
LEGEND = (
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
