"""The authors' raw results as records of an origin of their own, and the cells that follow from them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn

from .. import models
from ..console import UserError
from ..paper.settings import NAIVE, Settings
from ..paper.tables import AtPlace, Cell, PublishedSettings, all_cells
from ..record import AsRun, BatchSearch, Derived, Record, Trial
from ..steps import days_of_steps
from . import archive
from .archive import RefusedError
from .steps import every_setting, steps_of

_TIMING = {"micro_batch_size": int, "step_time": float, "compile_disabled": bool}


@dataclass(frozen=True)
class ReleasedCell(AtPlace):
    """A cell of Table 1 or 4 as it follows from the raw results. `fastest` are the records with the fewest days, of
    which a tie has several, and `next_days` are those of the next one. Of its settings `known` have a result, and
    `missing` have none."""

    model: str
    gpu: str
    gpus: int
    printed: Cell
    row: PublishedSettings | None
    fastest: tuple[Record, ...]
    next_days: float | None
    known: int
    missing: int

    @property
    def days(self) -> float | None:
        """Return the days by the authors' clock; None where nothing fits, or nothing is known."""
        return self.fastest[0].derived.authors_days if self.fastest else None

    @property
    def text(self) -> str:
        """Return the cell as the authors' script rounds it: a dash where nothing fits, a dot where nothing is known."""
        if not self.known:
            return "."
        return "-" if self.days is None else str(math.floor(self.days + 0.5))

    @property
    def differs(self) -> bool:
        """Return whether it is not what is printed; False where that is lost in our copy of the paper."""
        return self.known > 0 and self.printed.state != "lost" and self.text != self.printed.printed

    @property
    def settings(self) -> str:
        """Return the fastest settings, all of them where several tie."""
        return " = ".join(record.settings for record in self.fastest)

    @property
    def lead(self) -> float | None:
        """Return the share by which the next settings take longer, 0 for a tie; None where only one ran."""
        if len(self.fastest) > 1:
            return 0.0
        return None if self.days is None or self.next_days is None else self.next_days / self.days - 1

    @property
    def follows(self) -> bool | None:
        """Return whether Appendix J's settings and micro batch are the fastest; None without a row, or a result."""
        if self.row is None or not self.known:
            return None
        readings = {settings.id for settings in self.row.readings()}
        return any(each.settings in readings and each.batch.micro_batch == self.row.mbs for each in self.fastest)


@dataclass(frozen=True)
class Archive:
    """The authors' raw results. `missing` are settings without a result; `other` counts results of no known setting, by
    step, and `environment` has the commit and versions that may explain these."""

    path: Path
    records: tuple[Record, ...]
    missing: tuple[Trial, ...]
    other: Mapping[str, int]
    environment: tuple[str, ...]

    @cached_property
    def days(self) -> dict[tuple[str, str, int, str], float | None]:
        """Return the days of each recipe, GPU, number of GPUs and settings; None where nothing fits."""
        return {
            (each.recipe, each.device, each.count, each.settings): each.derived.authors_days for each in self.records
        }

    @cached_property
    def cells(self) -> tuple[ReleasedCell, ...]:
        """Return every cell of Tables 1 and 4."""
        there: dict[tuple[str, str, int, bool], list[Record]] = {}
        for record in self.records:
            there.setdefault(_key(record), []).append(record)
        lost = Counter(map(_key, self.missing))
        keys = [(cell, (*cell.place, cell.table == "4")) for cell in all_cells()]
        return tuple(_cell(cell, there.get(key, []), lost[key]) for cell, key in keys)


def read(path: Path) -> Archive:
    """Return the raw results in an archive. Raise UserError, which names the step, where one cannot be used."""
    packed = archive.read(path).results
    if not packed:
        raise UserError(f"{path} holds no results of a Tango workspace (cache/STEP): name the authors' artifacts.tar")
    records, missing, known = list[Record](), list[Trial](), set[str]()
    for recipe, gpu, count, settings in every_setting():
        steps = steps_of(recipe, gpu, count, settings)
        known |= {*steps}
        trial = Trial(recipe, "paper", settings.id, gpu, count)
        if all(step in packed for step in steps):
            largest, timing, days = (_value(path, step, packed[step]) for step in steps)
            try:
                records.append(_record(trial, settings, largest, timing, days))
            except RefusedError as error:
                _refuse(path, steps.timing, error)
        else:
            missing.append(trial)
    other = Counter(step.rsplit("-", 1)[0] for step in packed.keys() - known)
    environment = archive.environment(path) if other or not records else []
    return Archive(path, tuple(records), tuple(missing), other, tuple(environment))


def _value(path: Path, step: str, packed: bytes) -> Any:
    try:
        return archive.unpickle(packed)
    except RefusedError as error:
        _refuse(path, step, error)


def _refuse(path: Path, step: str, error: RefusedError) -> NoReturn:
    raise UserError(f"{path}: {step}: {error}; get the authors' artifacts.tar again") from error


def _record(trial: Trial, settings: Settings, largest: Any, timing: Any, days: Any) -> Record:
    """Return the record of a setting, out of memory where no micro batch could be timed. Raise RefusedError where its
    results are none of their types, or do not follow from each other."""
    recipe, record = models.find(trial.recipe), Record.of(trial, "ok")
    record.origin = "released"
    record.as_run = AsRun(asked_precision=recipe.precision, asked_tf32=settings.free_lunch)
    if type(largest) is not int or not 0 <= largest <= recipe.batch_size // trial.count:
        raise RefusedError("its largest micro batch is no number that the batch has room for")
    if timing is None and days is None:
        record.status = "out_of_memory"
        return record
    if type(timing) is not dict or {key: type(value) for key, value in timing.items()} != _TIMING:
        raise RefusedError(
            f"its timing is not {', '.join(f'{name} ({kind.__name__})' for name, kind in _TIMING.items())}"
        )
    micro_batch, step, steps = timing["micro_batch_size"], timing["step_time"], recipe.training_steps
    if not 0 < micro_batch <= largest or recipe.batch_size % (trial.count * micro_batch):
        raise RefusedError(f"its micro batch {micro_batch} is none that divides the batch and fits, up to {largest}")
    if not step > 0 or type(days) is not float or not math.isfinite(days) or days != days_of_steps(step, steps):
        raise RefusedError(f"its days do not follow from its step time, {step} s")
    record.as_run = AsRun(
        asked_precision=recipe.precision,
        compiled=settings.free_lunch and not timing["compile_disabled"],
        asked_tf32=settings.free_lunch,
    )
    record.batch = BatchSearch(micro_batch, recipe.batch_size // (trial.count * micro_batch))
    record.derived = Derived(authors_step=step, authors_days=days)
    return record


def _key(trial: Record | Trial) -> tuple[str, str, int, bool]:
    return models.find(trial.recipe).name, trial.device, trial.count, trial.settings == NAIVE.id


def _cell(cell: Cell, records: Sequence[Record], missing: int) -> ReleasedCell:
    ran = sorted({days for record in records if (days := record.derived.authors_days) is not None})
    fastest = tuple(record for record in records if ran and record.derived.authors_days == ran[0])
    return ReleasedCell(*cell.place, cell, cell.row, fastest, ran[1] if len(ran) > 1 else None, len(records), missing)
