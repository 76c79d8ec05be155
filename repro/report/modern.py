"""The ablation of modern settings: what each part brought in time and memory, on the machine of the run."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from ..formats import figures
from ..paper.settings import Settings
from ..parts import BY_NAME, excluded
from ..predict.modern import peak_bytes
from ..record import Record
from ..validity import Answer
from .methods import GIB, beside, id_with

ABLATION = "Modern settings: what each part brought"
LEGEND = (
    "here: kept, where the step became shorter by more than its rounds scatter as the part was added; of kept parts "
    "the row holds all of them against all but this one, of dropped ones the settings with the part against those "
    "before it. speed: above 1 where the part makes the step shorter, each at its own micro batch. peak GiB: at the "
    "largest micro batch that both fit, in the search for it, uncompiled. predicted GiB: the same, from the traces of "
    "the model's code, for a GPU of the catalogue. exact: the same arithmetic up to the order of sums; precision: the "
    "same algorithm in fewer bits. asked: parts that you named, whatever they bring."
)


@dataclass(frozen=True)
class Ablation:
    """The trials of modern training that start from the same settings on one machine: those `usual` settings, and the
    `best`, with all parts that were kept."""

    usual: Record
    best: Record
    by_parts: dict[tuple[str, ...], Record]
    tried: dict[str, Record]

    @property
    def kept(self) -> tuple[str, ...]:
        return Settings.parse(self.best.settings).parts

    def without(self, part: str) -> Record | None:
        """Return the record with all kept parts but one."""
        return self.by_parts.get(tuple(each for each in self.kept if each != part))

    @property
    def text(self) -> str:
        """Return the result as a sentence."""
        where = f"{self.usual.recipe}, {self.usual.machine}"
        usual, best = self.usual.derived.true_step, self.best.derived.true_step
        if not self.kept or usual is None or best is None:
            return f"{where}: no part makes {self.usual.settings} faster here"
        named = [
            f"{kind} parts: {', '.join(parts)}"
            for kind in ("exact", "precision")
            if (parts := [each for each in self.kept if BY_NAME[each].kind == kind])
        ]
        return (
            f"{where}: modern takes {figures(best)} s a training step, {self.usual.settings} {figures(usual)} s, "
            f"{usual / best:.2f} times as long; {'; '.join(named)}"
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
        usual = known.get(id)
        if usual is None or not Answer.of(usual).ran:
            continue
        ended = [each for each in group if each.modern and each.modern.stands() and Answer.of(each).ran]
        best = min(ended, key=lambda each: each.derived.true_step or math.inf, default=usual)
        by_parts = {Settings.parse(each.settings).parts: each for each in (*group, usual)}
        tried = {each.modern.added: each for each in group if each.modern and each.modern.added}
        found.append(Ablation(usual, best, by_parts, tried))
    return found


def ablation_rows(records: Iterable[Record]) -> list[dict[str, Any]]:
    """Return a row for each part of each ablation: first those that were kept."""
    return [row for each in ablations(records) for row in _rows(each)]


def ablation_text(records: Iterable[Record]) -> list[str]:
    """Return the results as sentences, the largest gain of each first, then what the checks of the training found."""
    found = ablations(records)
    checks = [
        f"{each.usual.recipe}, {each.usual.machine}, {name}: {record.modern.training}"
        for each in found
        for name, record in each.tried.items()
        if record.modern and record.modern.training
    ]
    asked = [
        f"{each.best.recipe}, {each.best.machine}, {each.best.settings}: {each.best.modern.training}"
        for each in found
        if each.best.modern and each.best.modern.outcome == "asked" and each.best.modern.training
    ]
    return [LEGEND, *(f"{line}." for line in [*(each.text for each in found), *checks, *asked])]


def _rows(each: Ablation) -> list[dict[str, Any]]:
    asked = each.best.modern is not None and each.best.modern.outcome == "asked"
    rows = [_row(each, part, "asked" if asked else "kept", each.best, each.without(part), "") for part in each.kept]
    by_settings = {record.settings: record for record in each.by_parts.values()}
    for part in BY_NAME:
        if part in each.kept:
            continue
        record = each.tried.get(part)
        if record is not None and record.modern is not None:
            here = record.status if record.modern.outcome is None else record.modern.outcome
            usual = by_settings.get(record.modern.beside)
            rows.append(_row(each, part, here.replace("_", " "), record, usual, record.modern.reason or record.reason))
        elif pair := excluded([*each.kept, part]):
            kept = next(name for name in pair if name != part)
            rows.append(_row(each, part, "excluded", None, None, f"{kept} is kept, which excludes it"))
    return rows


def _row(
    each: Ablation, part: str, here: str, record: Record | None, without: Record | None, why: str
) -> dict[str, Any]:
    ran = record if record is not None and Answer.of(record).ran else None
    usual = without if without is not None and Answer.of(without).ran else None
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
        "why": why,
    }
