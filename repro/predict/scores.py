"""How good predictions are, as people read it: what was to be reached first, then errors with a row a subset."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from repro.formats import Format, figures, render

from .validate import BASELINE, CLOCK, COUNTED, COVERAGE, ERRORS, INSIDE, SECONDS, SPLITS, TABLES, WORST, Score

_FOR_ALL = ("all", "plausible", "legible")  # subsets whose scores are told beside the targets, and of baselines
_Place = tuple[str, str, str, str]  # metric, table, split, subset


def for_people(scores: Sequence[Score], format: Format) -> str:
    """Every metric and baseline, and the errors of each subset; what else there is of subsets is left to machines."""
    found = {(each.metric, each.table, each.split, each.subset): each for each in scores}
    covered = [each for each in scores if each.metric in (COVERAGE, INSIDE) and each.subset in _FOR_ALL]
    aimed = [each for each in scores if each.target is not None]
    parts = ["What was to be reached, and how many printed days lie in the interval:"]
    parts += [render([_aimed(each) for each in (*aimed, *covered)], format), _met(aimed)]
    parts += ["What is counted:", render(_counts(found), format)]
    for split in SPLITS:
        parts += [f"Errors of days, {split}:", render(_errors(found, split), format)]
    parts += ["Errors of days that baselines predict:", render(_baselines(found), format)]
    parts += [
        "4 and 1: of Tables 4 and 1, whose printed days are held against the authors' clock; measured: true steps of "
        "the trials in expected/measured.csv; elsewhere: what others measured, expected/elsewhere.csv. --format csv "
        "and json have a row for each metric of each subset."
    ]
    return "\n\n".join(parts)


def _met(aimed: Sequence[Score]) -> str:
    """How many targets are met, and which are missed by how much."""
    missed = [
        f"; {each.metric} of table {each.table}, {each.split}: {_shown(each)}, target {_target(each)}"
        for each in aimed
        if not each.met
    ]
    return f"{len(aimed) - len(missed)} of {len(aimed)} targets are met{''.join(missed)}."


def _aimed(each: Score) -> dict[str, Any]:
    return {
        "metric": each.metric,
        "table": each.table,
        "split": each.split,
        "subset": each.subset,
        "value": _shown(each),
        "target": _target(each),
        "met": each.met,
    }


def _counts(found: Mapping[_Place, Score]) -> list[dict[str, Any]]:
    """What no subset tells more of: a column a split."""
    places = dict.fromkeys(
        (metric, table, subset)
        for metric, table, _, subset in found
        if metric not in (*ERRORS, COVERAGE, SECONDS, CLOCK, INSIDE) and WORST not in metric and subset in _FOR_ALL
    )
    return [
        {
            "metric": metric,
            "table": table,
            "subset": subset,
            **{split: _shown(found.get((metric, table, split, subset))) for split in SPLITS},
        }
        for metric, table, subset in places
    ]


def _errors(found: Mapping[_Place, Score], split: str) -> list[dict[str, Any]]:
    subsets = dict.fromkeys(subset for metric, _, _, subset in found if metric in ERRORS and BASELINE not in subset)
    return [{"subset": subset, **_metrics(found, split, subset)} for subset in subsets]


def _baselines(found: Mapping[_Place, Score]) -> list[dict[str, Any]]:
    places = dict.fromkeys((subset, split) for _, _, split, subset in found if BASELINE in subset)
    rows = []
    for place, split in places:
        subset, _, name = place.partition(BASELINE)
        if subset in _FOR_ALL:
            known = {"baseline": name, "split": split, "subset": subset}
            rows.append(known | _metrics(found, split, place))
    return rows


def _metrics(found: Mapping[_Place, Score], split: str, subset: str) -> dict[str, Any]:
    """Both tables' errors, a column each."""
    there = {(table, metric): found.get((metric, table, split, subset)) for table in TABLES for metric in ERRORS}
    cells = (there[table, ERRORS[0]] for table in TABLES)
    return {
        "4, 1: cells": ", ".join(str(each.cells) if each else "-" for each in cells),
        **{f"{table}: {metric}": _shown(each) for (table, metric), each in there.items()},
    }


def _shown(each: Score | None) -> str | None:
    if each is None:
        return None
    value = _number(each.metric, each.value)
    return f"{value} of {each.cells}" if each.metric in COUNTED else value


def _target(each: Score) -> str | None:
    return None if each.target is None else _number(each.metric, each.target)


def _number(metric: str, value: float) -> str:
    if metric in COUNTED:
        return f"{value:.0f}"
    if WORST in metric:
        return f"{value:.2f}x"
    return f"{figures(value)} s" if metric == SECONDS else f"{100 * value:.1f} %"
