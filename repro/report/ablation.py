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
    def parts(self) -> tuple[str, ...]:
        return Settings.parse(self.whole.settings).parts

    def without(self, part: str) -> Record | None:
        """Return the record with all parts but one."""
        return self.by_parts.get(tuple(each for each in self.parts if each != part))

    @property
    def text(self) -> str:
        """Return the result as a sentence."""
        where = f"{self.usual.recipe}, {self.usual.machine}"
        usual, best = self.usual.derived.true_step, self.best.derived.true_step
        if self.best is self.usual or usual is None or best is None:
            return f"{where}: no part makes {self.usual.settings} faster here"
        named = [
            f"{kind} parts: {', '.join(parts)}"
            for kind in ("exact", "precision")
            if (parts := [each for each in Settings.parse(self.best.settings).parts if BY_NAME[each].kind == kind])
        ]
        return (
            f"{where}: modern takes {significant(best)} s a training step, {self.usual.settings} "
            f"{significant(usual)} s, {usual / best:.2f} times as long; {'; '.join(named)}"
        )


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
        whole = max(standing, key=lambda each: len(Settings.parse(each.settings).parts))
        ran = [each for each in standing if each.timed]
        candidates = ran if any(each.modern and each.modern.asked for each in ran) else [*ran, usual]
        best = min(candidates, key=lambda each: each.derived.true_step or math.inf)
        by_parts = {Settings.parse(each.settings).parts: each for each in (*group, usual)}
        unsupported = {each.modern.part: each for each in group if each.modern and each.status == "unsupported"}
        found.append(Ablation(usual, whole, best, by_parts, unsupported))
    return found


def ablation_rows(records: Iterable[Record]) -> list[dict[str, Any]]:
    """Return a row for each part of each ablation: first those that serve the model."""
    return [row for each in ablations(records) for row in _rows(each)]


def ablation_text(records: Iterable[Record]) -> list[str]:
    """Return the results as sentences, after the meaning of the table's columns."""
    return [LEGEND, *(f"{each.text}." for each in ablations(records))]


def _rows(each: Ablation) -> list[dict[str, Any]]:
    asked = each.whole.modern is not None and each.whole.modern.asked
    rows = []
    for part in each.parts:
        without = each.without(part)
        slower, reason = faster(without, each.whole) if without is not None else (False, "")
        rows.append(_row(each, part, "asked" if asked else "dropped" if slower else "kept", without, reason))
    rows += [_row(each, part, "unsupported", None, record.reason) for part, record in each.unsupported.items()]
    return rows


def _row(each: Ablation, part: str, here: str, without: Record | None, reason: str) -> dict[str, Any]:
    ran = each.whole if here != "unsupported" and each.whole.timed else None
    usual = without if without is not None and without.timed else None
    columns = beside(ran, usual)
    at = columns["at MBS"]
    predicted, predicted_usual = (peak_bytes(record, at) if record and at else None for record in (ran, usual))
    return {
        "model": each.usual.recipe,
        "machine": each.usual.machine,
        "part": part,
        "class": BY_NAME[part].kind,
        "library": BY_NAME[part].library,
        "here": here,
        **columns,
        "predicted GiB": predicted and predicted / GIB,
        "predicted GiB without": predicted_usual and predicted_usual / GIB,
        "reason": reason,
    }
