"""What the audit doubts of printed days that an answer on money stands on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import models

from .. import command
from ..audit import audit
from ..findings import by_place
from ..predict import calibration
from ..predict.tables import predicted
from .days import TrainingDays
from .offers import Offer
from .told import days_told


def doubts(model: str, machines: Iterable[TrainingDays | Offer]) -> dict[str, str]:
    """Those of these machines whose days are the paper's and can hardly be true, such as 2 A100, and why, with
    the days that are predicted instead."""
    name, of_paper = models.find(model).name, {row.place: row for row in audit() if row.table == "1"}
    named = dict.fromkeys((row.gpu, row.gpus) for row in machines if row.origin == "expected")
    rows = [of_paper[name, *machine] for machine in named]
    found = {}
    for row in rows:
        if row.verdict != "plausible":
            days = predicted(by_place("1")[row.place], calibration.load()[calibration.EVERYTHING]).days
            instead = f", predicted {days_told(days.value)}" if days else ""
            found[f"{row.gpus} {row.gpu}"] = f"{row.verdict}, {row.utilisation.value:.0%} of the peak{instead}"
    return found


def told_doubts(doubts: Mapping[str, str]) -> list[str]:
    """A sentence on them; none where there are none."""
    told = "; ".join(f"{machine}, {why}" for machine, why in doubts.items())
    return [f"Printed days that the audit doubts ({command()} audit): {told}."] if told else []
