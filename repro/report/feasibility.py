"""What can be trained at all, and with which methods: figures 3 and 10."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import models

from ..expected import COUNTS, Cell, Place, PublishedSettings, Table, published_settings
from ..findings import PYTHIA, by_place
from ..gpus import paper_gpus
from ..search import Search, ran_out
from ..settings import FREE_LUNCH, NAIVE
from ..trial import Record
from .panels import SEARCH, Figure, Mark, Panel, State, measured_panels


def feasibility(searches: Sequence[Search]) -> Figure:
    """Figure 3: which models naive settings can train, and which the best ones."""
    panels, infeasible = [], {}
    tables: dict[Table, str] = {"4": "Naive settings", "1": "Best settings"}
    for table, title in tables.items():
        measured, naive = [], table == "4"
        for search in searches:
            tried = [each for each in search.standing.values() if (each.settings == NAIVE.id) == naive]
            if tried:
                measured.append(Mark(search.model, search.machine, _outcome(tried, naive or search.whole)))
        panels += measured_panels(f"{title}, here", "grid", "", measured, searches)
        there = by_place(table)
        rows = [
            Mark(model, gpu, _any_feasible(there[model, gpu, count] for count in COUNTS if count > 1))
            for model in PYTHIA
            for gpu in paper_gpus()
        ]
        infeasible[table] = sum(row.state == "infeasible" for row in rows)
        panels.append(Panel("published", f"{title}, 2 or more GPUs", "grid", "", rows, f"Table {table}"))
    says = (
        f"As printed, Pythia on 2 or more GPUs: naive settings cannot train {infeasible['4']} of the {len(rows)} pairs "
        f"of model and GPU, the best settings {infeasible['1'] or 'none'}."
    )
    return Figure("3", "What can be trained at all", says, sorted(panels, key=lambda panel: panel.origin))


def methods(searches: Sequence[Search]) -> Figure:
    """Figure 10: the least that is enough for each model on each machine."""
    naive, best = by_place("4"), by_place("1")
    settings = {row.place: row for row in published_settings()}
    measured = [
        Mark(search.model, search.machine, _least_measured(search))
        for search in searches
        if any(trial.status in ("ok", "out_of_memory") for trial in search.trials)
    ]
    panels = measured_panels("Each recipe here", "grid", "", measured, searches)
    for title, counts in (("1 GPU", COUNTS[:1]), ("2 or more GPUs", COUNTS[1:])):
        rows = [
            Mark(model, gpu, _least_published([(model, gpu, count) for count in counts], naive, best, settings))
            for model in models.NAMES
            for gpu in paper_gpus()
        ]
        panels.append(Panel("published", title, "grid", "", rows, "Tables 1 and 4, Appendix J"))
    return Figure(
        "10",
        "Which methods a model needs",
        "The least that is known to be enough: naive settings, free lunch alone, or memory-saving methods beside it.",
        panels,
        "The paper prints the fastest settings alone. Where those save memory, or their mark is lost, as of Mamba on "
        "several A100, nothing says whether free lunch would have been enough.",
        SEARCH,
    )


def _least_published(
    places: Sequence[Place],
    naive: Mapping[Place, Cell],
    best: Mapping[Place, Cell],
    settings: dict[Place, PublishedSettings],
) -> State:
    if any(naive[place].state == "days" for place in places):
        return "naive"
    if any(place in settings and settings[place].readings() == [FREE_LUNCH] for place in places):
        return "free lunch"
    if any(best[place].state == "days" for place in places):
        return "memory saving"
    return "lost" if any(naive[place].state == "lost" for place in places) else "infeasible"


def _least_measured(search: Search) -> State:
    if search.naive is not None:
        return "naive"
    if search.free_lunch is not None:
        return "free lunch"
    if search.best is not None:
        return "memory saving"
    tried = search.standing.get(NAIVE.id)
    return "infeasible" if search.whole and tried and ran_out(tried) else "not known"


def _any_feasible(there: Iterable[Cell]) -> State:
    states = {cell.state for cell in there}
    if "days" in states:
        return "feasible"
    return "lost" if "lost" in states else "infeasible"


def _outcome(tried: Sequence[Record], whole: bool) -> State:
    if any(record.status == "ok" for record in tried):
        return "feasible"
    return "infeasible" if whole and all(map(ran_out, tried)) else "not known"
