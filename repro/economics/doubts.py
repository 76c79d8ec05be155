"""What the audit doubts of printed days that an answer on money stands on, and what is predicted instead."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import models

from .. import command
from ..audit import audit
from ..findings import by_place
from ..predict import calibration
from ..predict.tables import predicted
from ..predict.traces import PAPER_STACK, nearest_here, why_here
from .days import TrainingDays, foretold
from .offers import Offer
from .told import days_told

INSTEAD = "with predicted days where the audit doubts the printed ones"


@dataclass(frozen=True)
class Doubt:
    """Why printed days can hardly be true, and those predicted instead, None where there are none."""

    why: str
    instead: TrainingDays | None

    def told(self, predicted: float | None) -> str:
        """With what is predicted in place of the days that are told, None where nothing is."""
        return self.why if predicted is None else f"{self.why}, predicted {days_told(predicted)}"


def doubts(model: str, machines: Iterable[TrainingDays | Offer]) -> dict[str, Doubt]:
    """Those of these machines whose days are the paper's and can hardly be true, such as 2 A100."""
    name, of_paper = models.find(model).name, {row.place: row for row in audit() if row.table == "1"}
    named = {row.machine: of_paper[name, row.gpu, row.gpus] for row in machines if row.origin == "expected"}
    fitted = calibration.load()[calibration.EVERYTHING]
    return {
        machine: Doubt(
            f"{row.verdict}, {row.utilisation.value:.0%} of the peak",
            foretold(predicted(by_place("1")[row.place], fitted)),
        )
        for machine, row in named.items()
        if row.verdict != "plausible"
    }


def believed(days: Iterable[TrainingDays], doubts: Mapping[str, Doubt]) -> list[TrainingDays]:
    """The days, those that are doubted as they are predicted."""
    return [
        doubt.instead if (doubt := doubts.get(row.machine)) is not None and doubt.instead is not None else row
        for row in days
    ]


def told_doubts(doubts: Mapping[str, Doubt], days: Iterable[TrainingDays | Offer]) -> list[str]:
    """A sentence on them, and one on what the predicted days are from, of these or in place of doubted ones; none
    where there are none."""
    told = "; ".join(
        f"{machine}, {doubt.told(doubt.instead.days.value if doubt.instead else None)}"
        for machine, doubt in doubts.items()
    )
    found = [f"Printed days of one training that the audit doubts ({command()} audit): {told}."] if told else []
    if any(row.origin == "predicted" for row in days) or any(doubt.instead for doubt in doubts.values()):
        found.append(_told_traces())
    return found


def _told_traces() -> str:
    """Whose traces predicted days are from, and where `repro predict` has others."""
    here = nearest_here()
    others = f"; {command()} predict --gpu takes those of {here.transformers}, {why_here()}"
    return (
        "Predicted days are from traces of the models of transformers "
        f"{PAPER_STACK.transformers}, as the paper's days beside them are{others if here != PAPER_STACK else ''}."
    )
