"""Who can train what: the days of each model on the GPUs that people may use, held against for how long they may."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Literal, get_args

from .. import models
from ..formats import counted, listing, significant
from ..money.amounts import deadline_text
from ..money.days import DaysAsked, ModelDays, Origin
from ..paper.arithmetic import days_at_peak, training_flops
from ..paper.gpus import by_name, peak_flops
from ..paper.settings import FREE_LUNCH, NAIVE
from ..paper.tables import Table, cells
from ..predict.hardware import Machine
from ..printout import Column
from .allocations import A_NODE, LASTS, Access, Change, access
from .counts import BASE, Answers, rounded, shown
from .questions import COUNTS

Level = Literal["naive", "free_lunch", "everything"]
LEVELS: tuple[Level, ...] = get_args(Level)
CALLED: dict[Level, str] = {"naive": "naively", "free_lunch": "with the free lunch", "everything": "with everything"}
ASKED = DaysAsked()


@dataclass(frozen=True)
class Days:
    """The days of a training with the fastest settings of a level, and where they are from."""

    days: float
    origin: Origin
    settings: str


@cache
def true_days(
    model: str, gpu: str, gpus: int, network: float | None, level: Level, asked: DaysAsked = ASKED
) -> Days | None:
    """Return the days of a model on these GPUs, by their `called` name, with the fastest settings of a level or of
    those below. None where nothing is known to fit, or the batch size does not divide."""
    below = None if level == "naive" else true_days(model, gpu, gpus, network, LEVELS[LEVELS.index(level) - 1], asked)
    if asked.by == "printed":
        found = _printed(model, gpu, gpus, level)
    else:
        found = _known(model, gpu, gpus, network, level, asked)
        if level == "everything" and found is not None:
            return found  # the fastest of all levels, as every answer has it
    return min(filter(None, (found, below)), key=lambda each: each.days, default=None)


def _printed(model: str, gpu: str, gpus: int, level: Level) -> Days | None:
    """Return the days of Table 4, of naive settings, or of Table 1; the paper prints none of the free lunch alone."""
    tables: dict[Level, Table] = {"naive": "4", "everything": "1"}
    if level not in tables:
        return None
    cell = next((each for each in cells(tables[level]) if each.place == (models.find(model).name, gpu, gpus)), None)
    return None if cell is None or cell.days is None else Days(cell.days, "printed", level)


def _known(model: str, gpu: str, gpus: int, network: float | None, level: Level, asked: DaysAsked) -> Days | None:
    known, nodes = _model_days(model, asked), max(1, gpus // A_NODE)
    if known.recipe.batch_size % gpus:
        return None
    machine = Machine(by_name()[gpu], gpus // nodes, nodes)
    if network is not None and nodes > 1:
        machine = replace(machine, network=network)
    if level == "everything":
        best = known.fastest(known.on_settings(machine))
    else:
        settings = NAIVE if level == "naive" else FREE_LUNCH
        rows = known.on_settings(machine, [known.forecast(machine, settings)])
        best = next(row for row in rows if row.settings == settings.id)
    return None if best is None or best.days is None else Days(best.days.value, best.origin, best.settings)


@cache
def _model_days(model: str, asked: DaysAsked) -> ModelDays:
    return ModelDays(model, asked)


_OVER_PEAK = 1.25  # boards clock above their data sheets


@cache
def _at_peak(model: str, gpu: str) -> float:
    """Return days below which no training on one GPU can be, by its peak: most predictions need not be made."""
    recipe = models.find(model)
    peak = peak_flops(by_name()[gpu], recipe.precision, True)
    return 0.0 if peak is None else days_at_peak(training_flops(recipe), peak * _OVER_PEAK, 1)


def in_time(model: str, access: Access, level: Level, asked: DaysAsked = ASKED) -> Days | None:
    """Return a training that is done within an allocation, found on the largest first; None where none is."""
    for each in access.allocations:
        if asked.by == "true" and each.days < _at_peak(model, each.gpu.called) / each.gpus:
            continue
        took = true_days(model, each.gpu.called, each.gpus, each.network, level, asked)
        if took is not None and took.days <= each.days:
            return took
    return None


def least(model: str, access: Access, asked: DaysAsked = ASKED) -> tuple[Level, Days] | None:
    """Return the least methods with which a model is trained in time, and that training; None where none suffice."""
    in_order = ((level, in_time(model, access, level, asked)) for level in LEVELS)
    return next(((level, took) for level, took in in_order if took is not None), None)


# By one change people who cannot train naively now could; the methods are one.
CHANGES: dict[Change | Literal["methods"], str] = {
    "methods": "the methods",
    "longer": "longer allocations",
    "gpus": "twice the GPUs at once",
}


@dataclass(frozen=True)
class Reach:
    """How many of `of` people can train a model: at each level, and naively after one change. Who did not say which
    GPUs there are counts as one who cannot.

    Each number is exact; what is shown is rounded unless `exact`. `origins` are those of days that decide for enough
    people.
    """

    model: str
    of: int
    at: Mapping[Level, int]
    changed: Mapping[Change, int]
    origins: frozenset[Origin]
    exact: bool

    def shown(self, level: Level | None = None) -> int | str:
        """Return the people who can train it at a level as shown, or all people."""
        return shown(rounded(self.of if level is None else self.at[level], self.exact))

    def gain(self, change: Change | Literal["methods"]) -> int | None:
        """Return how many more people than can naively one change alone reaches, as rounded."""
        reached = self.at["everything"] if change == "methods" else self.changed[change]
        return rounded(reached - self.at["naive"], self.exact)


def reach(answers: Answers, wanted: Sequence[str], asked: DaysAsked = ASKED) -> list[Reach]:
    """Return how many people can train each model."""
    now = [access(person) for person in answers.people]
    after: dict[Change, list[Access]] = {
        change: [access(person, change) for person in answers.people] for change in get_args(Change)
    }
    found = []
    for model in wanted:
        able = [least(model, each, asked) for each in now]
        at = {
            level: sum(each is not None and LEVELS.index(each[0]) <= place for each in able)
            for place, level in enumerate(LEVELS)
        }
        changed = {
            change: sum(
                (each is not None and each[0] == "naive") or in_time(model, more, "naive", asked) is not None
                for each, more in zip(able, reached, strict=True)  # no change makes less possible
            )
            for change, reached in after.items()
        }
        origin = Counter(each[1].origin for each in able if each is not None)
        origins = frozenset(each for each, people in origin.items() if answers.rounded(people))
        found.append(Reach(models.find(model).name, len(now), at, changed, origins, answers.exact))
    return found


def not_known(answers: Answers) -> int:
    """Return how many people's GPUs are not known, or have no card in the catalogue."""
    return sum(not access(person).known for person in answers.people)


def _at(level: Level) -> Column:
    return Column(level, lambda each: each.shown(level), level.replace("_", " "))


def _more(change: Change | Literal["methods"]) -> Column:
    return Column(f"more_by_{change}", lambda each: shown(each.gain(change)), f"more by {CHANGES[change]}")


COLUMNS = [
    Column("model", lambda each: each.model, "model"),
    Column("of", lambda each: each.shown(), "people"),
    *map(_at, LEVELS),
    *map(_more, CHANGES),
    Column("origin", lambda each: " and ".join(sorted(each.origins)) or None, "origin"),
]


def headline(each: Reach) -> str:
    """Return how many people can train a model, with and without the methods."""
    with_, without = each.shown("everything"), each.shown("naive")
    return f"{with_} of {each.shown()} can train {each.model}; without the methods {without}."


def best_change(each: Reach) -> str:
    """Return which one change would reach most people more, for a model."""
    gains = {name: each.gain(name) for name in CHANGES}
    first = max(gains, key=lambda name: gains[name] or 0)
    if not gains[first]:
        return f"No one change lets {1 if each.exact else BASE} more people train {each.model} than can naively."
    others = [f"{CHANGES[name]} {shown(gain)}" for name, gain in gains.items() if name != first]
    return (
        f"Of one change to naive training, {CHANGES[first]} would reach most people more of {each.model}: "
        f"{gains[first]} ({'; '.join(others)})."
    )


# --- Without answers: what the paper takes for academic hardware (section 2) ---

PAPERS_GPUS = ("RTX 3090", "A6000", "A100")  # 1 to 8 of them
PAPERS_TIMES = {"days": LASTS["Days"], "weeks": LASTS["Weeks"]}


def papers_rows(wanted: Sequence[str], asked: DaysAsked = ASKED) -> list[dict[str, Any]]:
    """Return a row for each model and GPU of the paper's academic hardware: days at each level on the best number of
    GPUs, with their origin, and the least methods that suffice for days and for weeks."""
    lines = list[dict[str, Any]]()
    for model in wanted:
        for gpu in PAPERS_GPUS:
            line: dict[str, Any] = {"model": models.find(model).name, "gpu": gpu}
            fastest = {level: _fastest(model, gpu, level, asked) for level in LEVELS}
            for level, found in fastest.items():
                gpus, took = found or (None, None)
                line |= {f"{level}_days": took and took.days, f"{level}_gpus": gpus}
                line[f"{level}_origin"] = took and took.origin
            for long, days in PAPERS_TIMES.items():
                enough = (level for level, found in fastest.items() if found is not None and found[1].days <= days)
                line[f"within_{long}"] = next(enough, "no")
            lines.append(line)
    return lines


def _fastest(model: str, gpu: str, level: Level, asked: DaysAsked) -> tuple[int, Days] | None:
    """Return the number of these GPUs, up to 8, with the fewest days, and these days; None where nothing fits. Fewer
    GPUs than the best so far need not be predicted where their peak alone would take longer."""
    best: tuple[int, Days] | None = None
    for gpus in sorted((count for count in COUNTS if count <= A_NODE), reverse=True):
        if best and asked.by == "true" and best[1].days < _at_peak(model, gpu) / gpus:
            continue
        took = true_days(model, gpu, gpus, None, level, asked)
        if took is not None and (best is None or took.days <= best[1].days):
            best = gpus, took
    return best


def papers_table(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return a row for each model of `papers_rows`: days with everything on each GPU, and the least methods with which
    one of the GPUs suffices."""
    lines: dict[str, dict[str, Any]] = {}
    for row in rows:
        line = lines.setdefault(row["model"], {"model": row["model"]})
        days, gpus = row["everything_days"], row["everything_gpus"]
        line[row["gpu"]] = "-" if days is None else f"{significant(days)} on {gpus}"
    for model, line in lines.items():
        for long in PAPERS_TIMES:
            levels = {row[f"within_{long}"] for row in rows if row["model"] == model}
            line[f"in {long}"] = min(levels, key=(*LEVELS, "no").index).replace("_", " ")
    return list(lines.values())


def papers_sentence(table: Sequence[Mapping[str, Any]]) -> str:
    """Return how many of the models of `papers_table` are trained in days and in weeks."""
    able, naive = [], []
    for long, days in PAPERS_TIMES.items():
        levels = [line[f"in {long}"] for line in table]
        of = counted(len(levels), "model")
        able.append(f"{len(levels) - levels.count('no')} of {of} in {long} ({deadline_text(days)})")
        naive.append(str(levels.count("naive")))
    return (
        f"The paper's academic hardware, 1 to 8 {listing(PAPERS_GPUS)}, trains {' and '.join(able)}; without the "
        f"methods {' and '.join(naive)}."
    )
