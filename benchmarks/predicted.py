"""Predictions for an H100, made before anybody had measured one, beside what one H100 measured.

Reads results/predicted/h100.csv, which stays as it was predicted, and the runs of results/h100/text and
results/h100/vision. `python -m benchmarks.predicted` writes results/predicted/verdict.md.
"""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

from repro import files
from repro.console import ROOT
from repro.formats import figures, render, yes
from repro.record import Record
from repro.run.reading import read
from repro.validity import Answer

FOLDER = ROOT / "results" / "predicted"
PREDICTED, PAGE = FOLDER / "h100.csv", FOLDER / "verdict.md"
MEASURED = tuple(ROOT / "results" / "h100" / name for name in ("text", "vision"))


@dataclass(frozen=True)
class Prediction:
    """A row of the file: a recipe under settings on one H100. What does not fit has no micro batch, step or days."""

    feasible: bool
    micro_batch: int | None
    step: float | None
    days: tuple[float, float] | None


@dataclass(frozen=True)
class Judged:
    """A trial that was measured, and its prediction."""

    record: Record
    predicted: Prediction

    @property
    def feasible_as_predicted(self) -> bool:
        return self.predicted.feasible == Answer.of(self.record).ran

    def ratio(self, seconds: float | None) -> float | None:
        """Return the predicted step over a measured one."""
        return None if self.predicted.step is None or seconds is None else self.predicted.step / seconds

    def inside(self, days: float | None) -> bool | None:
        """Return True where measured days lie in the predicted interval; None where either is not known."""
        if self.predicted.days is None or days is None:
            return None
        low, high = self.predicted.days
        return low <= days <= high


def predictions(file: Path = PREDICTED) -> dict[tuple[str, str], Prediction]:
    """Return the predictions of the file, by recipe and settings."""
    with file.open(newline="") as rows:
        return {
            (row["recipe"], row["settings"]): Prediction(
                row["feasible"] == "True",
                int(row["micro_batch"]) if row["micro_batch"] else None,
                float(row["step_seconds"]) if row["step_seconds"] else None,
                (float(row["days_low"]), float(row["days_high"])) if row["days_low"] else None,
            )
            for row in csv.DictReader(rows)
        }


def judged() -> list[Judged]:
    """Return the trials that ran, or ran out of memory that was all theirs, with their predictions."""
    known = predictions()
    found = [record for folder in MEASURED for record in read(folder).records]
    tried = [each for each in found if Answer.of(each) in (Answer.RAN, Answer.DISTURBED, Answer.DOES_NOT_FIT)]
    return [Judged(record, known[record.recipe, record.settings]) for record in tried]


def page(found: Sequence[Judged]) -> str:
    """Return the page, in Markdown."""
    ran = [each for each in found if Answer.of(each.record).ran]
    sizes = sum(each.predicted.micro_batch == each.record.batch.micro_batch for each in ran)
    feasible = sum(each.feasible_as_predicted for each in found)
    true = [(each, each.ratio(each.record.derived.true_step)) for each in ran]
    authors = [(each, each.ratio(each.record.derived.authors_step)) for each in ran]
    started = min(each.record.stack_started for each in ran if each.record.stack_started is not None)
    measured = datetime.fromtimestamp(started, UTC)
    farthest = sorted(true, key=lambda pair: _error(pair[1]), reverse=True)[:3]
    worst = ", ".join(f"{each.record.recipe} {each.record.settings} ({ratio:.2f})" for each, ratio in farthest)
    return f"""# Predicted, then measured: one H100

[h100.csv](h100.csv) holds what was predicted on 2026-11-25, before anybody had measured. [text](../h100/text/README.md)
and [vision](../h100/vision/README.md) hold what one H100 measured from {measured:%Y-%m-%d %H:%M} UTC on. The file of
predictions has not been touched since: its SHA-256 is `{hashlib.sha256(PREDICTED.read_bytes()).hexdigest()}`.
`python -m benchmarks.predicted` writes this page.

| what was predicted | how good it was |
|---|---|
| whether the settings fit at all | right in {feasible} of {len(found)} trials |
| the largest micro batch | right in {sizes} of {len(ran)} that fit |
| the step, beside the true step | {_median_error(true)} off in the median |
| the step, beside the authors' clock | {_median_error(authors)} off in the median |
| the interval of days, beside the true days | {_inside(ran, "true_days")} inside |
| the same, beside the days by the authors' clock | {_inside(ran, "authors_days")} inside |

Predicted over true steps are furthest from 1 for {worst}.
The model of cost was fitted to the days that the paper printed, which are by the authors' clock and of another stack.

{render([_row(each) for each in found], "markdown")}

Steps are seconds of a whole training step. MBS is the micro batch. A dash: it did not fit, or was not predicted to.
"""


def _row(each: Judged) -> dict[str, str | None]:
    record, predicted = each.record, each.predicted
    true, authors = each.ratio(record.derived.true_step), each.ratio(record.derived.authors_step)
    return {
        "recipe": record.recipe,
        "settings": record.settings,
        "fits: predicted": yes(predicted.feasible),
        "measured": yes(Answer.of(record).ran),
        "MBS: predicted": _shown(predicted.micro_batch),
        "measured ": _shown(record.batch.micro_batch),
        "step: predicted": _seconds(predicted.step),
        "true": _seconds(record.derived.true_step),
        "authors' clock": _seconds(record.derived.authors_step),
        "predicted/true": None if true is None else f"{true:.2f}",
        "predicted/authors'": None if authors is None else f"{authors:.2f}",
    }


def _shown(number: int | None) -> str | None:
    return None if number is None else str(number)


def _seconds(step: float | None) -> str | None:
    return None if step is None else figures(step)


def _error(ratio: float | None) -> float:
    assert ratio is not None, "what ran was predicted to run"
    return abs(ratio - 1)


def _median_error(ratios: Iterable[tuple[Judged, float | None]]) -> str:
    return f"{median(_error(ratio) for _, ratio in ratios):.0%}".replace("%", " %")


def _inside(ran: Iterable[Judged], days: str) -> str:
    answers = [each.inside(getattr(each.record.derived, days)) for each in ran]
    known = [answer for answer in answers if answer is not None]
    return f"{sum(known)} of {len(known)}"


if __name__ == "__main__":
    files.replace(PAGE, page(judged()))
