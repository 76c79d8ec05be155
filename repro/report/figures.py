"""The paper's figures and further ones, from measured records, printed numbers, or both."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from statistics import fmean

from .. import command, models
from ..claims.claim import listed as claims
from ..formats import counted, from_to
from ..money.breakeven import lifespan_years
from ..money.days import DaysAsked, ModelDays
from ..money.offers import cost_a_day
from ..money.prices import machine_price, price_list
from ..paper.arithmetic import (
    PYTHIA,
    analytic_days,
    by_place,
    gpu_days,
    paper_gpu,
    paper_peak,
    recipe_of,
    speedups,
    training_flops,
)
from ..paper.gpus import paper_gpus
from ..paper.settings import FREE_LUNCH, NAIVE, Settings, search_space
from ..paper.tables import COUNTS, Place, Table, analytic_peaks, published_settings, training_compute
from ..record import BY_CLOCK, Clock, OnMachine, Record
from ..run.settings_search import Search
from ..validity import feasible
from .blocks import Figure, Kind, Origin, Panel, Row

SEARCH = f"{command()} --gpus all --methods all"  # command that measures whole searches, which some figures need
Days = dict[tuple[str, int], float]


def of_run(searches: Sequence[Search]) -> list[Figure]:
    """Return the figures of which a run measured something, in the paper's order."""
    return [each for each in _figures(searches) if any("measured" in panel.origin for panel in each.panels)]


def of_published() -> list[Figure]:
    """Return all figures of the published numbers, in the paper's order."""
    *first, compute, methods = _figures(())
    return [*first, *_costs(), compute, methods]


def _figures(searches: Sequence[Search]) -> list[Figure]:
    drawn = (_speedups, _feasibility, gains, _spread, _gpu_days, _compute, _methods)
    return [draw(searches) for draw in drawn]


def of_searches(
    title: str,
    kind: Kind,
    x: str,
    rows: Sequence[Row],
    searches: Sequence[Search],
    reference: tuple[float, str] | None = None,
    y: str = "model",
    clock: Clock | None = None,
) -> list[Panel]:
    """Return a panel of rows that were measured, here or by the authors, by this clock (None: that of the searches), or
    none where there are no rows."""
    if not rows:
        return []
    if searches[0].origin == "released":
        return [Panel("released", title, kind, y, x, rows, "the authors' artifacts.tar", machines=machines(searches))]
    tiny = {search.scale == "tiny" for search in searches}
    source = f"trials.jsonl, {BY_CLOCK[clock or searches[0].clock]}"
    if tiny == {True}:
        source += "; tiny twins of the recipes, which say nothing of the paper's"
    elif True in tiny:
        source += "; some of the recipes are tiny twins"
    return [Panel("measured", title, kind, y, x, rows, source, reference, machines(searches))]


def in_order(found: Sequence[Search]) -> list[Search]:
    """Return the searches with recipes in the paper's order, each by machine, with naive settings before the others."""
    known = (*models.IDS, *models.OTHERS)
    recipes = [*known, *sorted({search.recipe for search in found} - {*known})]  # last those of one's own
    ordered = [replace(search, trials=tuple(sorted(search.trials, key=_by_settings))) for search in found]
    return sorted(ordered, key=lambda search: (recipes.index(search.recipe), search.scale, _by_size(search)))


def machines(found: Iterable[OnMachine]) -> list[str]:
    """Return the names of the machines by ascending count; those of several nodes or of limited memory come last."""
    return list(dict.fromkeys(one.machine for one in sorted(found, key=_by_size)))


def _by_size(one: OnMachine) -> tuple[str, int, int, int]:
    return one.device, one.nodes, one.memory_limit or 0, one.count


def _by_settings(trial: Record) -> tuple[int, bool]:
    """Return a sort key: settings outside the search space come last, flash attention after the same settings
    without."""
    settings = Settings.parse(trial.settings)
    space = [NAIVE, *search_space(trial.world)]
    return space.index(settings.base) if settings.base in space else len(space), settings.attention != "sdpa"


def _speedups(searches: Sequence[Search]) -> Figure:
    """Return figure 2: speed-ups over naive settings."""
    published = [speedup for speedup in speedups() if speedup.model in PYTHIA]
    series = {
        "best settings": [speedup.ratio.value for speedup in published],
        "analytic estimate": [each.naive_days / analytic_days(*each.place) for each in published],
    }
    rows = [
        Row(each.gpu, name, ratio, note=f"{each.model}, {counted(each.gpus, 'GPU')}")
        for each, *ratios in zip(published, *series.values(), strict=True)
        for name, ratio in zip(series, ratios, strict=True)
    ]
    measured = [
        Row(search.model, name, search.naive / step, note=search.machine)
        for search in searches
        for name, step in (("free lunch alone", search.free_lunch), ("best settings", search.best))
        if search.naive is not None and step is not None
    ]
    said = next(claim.published for claim in claims() if claim.id == "mean-speedup")
    mean, optimistic = map(fmean, series.values())
    says = (
        f"The paper says that the best settings are {said} times as fast as naive ones. Its printed days of Pythia "
        f"give {mean:.1f}, on average over the {len(published)} cells that have both; the analytic estimate promises "
        f"{optimistic:.1f} times."
    )
    if here := [float(row.x) for row in measured if row.series == "best settings" and row.y in PYTHIA]:
        says += f" Measured here, for Pythia: {_times(here)}."
    x, naive = "times as fast as naive settings", (1.0, "naive settings")
    title, source = "Pythia on the paper's GPUs", "Tables 1 and 4; section 3.1"
    printed = Panel("published", title, "dots", "GPU", x, rows, source, naive)
    panels = [*of_searches("Each recipe here", "dots", x, measured, searches, naive), printed]
    return Figure("2", "Speed-ups over naive settings", says, panels)


def _times(ratios: Sequence[float]) -> str:
    """Return a ratio as text, or the mean and the range of several."""
    text = f"{fmean(ratios):.2f} times"
    if len(ratios) == 1:
        return text
    return f"{text} (mean of {len(ratios)} pairs of model and machine, {from_to(ratios, '.2f')})"


def gains(searches: Sequence[Search]) -> Figure:
    """Return figures 4 and 11: what the best memory-saving settings gain over free lunch alone."""
    rows = [
        Row(f"{search.model}, {search.machine}", "faster" if search.gain > 0 else "slower", 100 * search.gain)
        for search in searches
        if search.whole and search.gain is not None
    ]
    says = (
        "What the best memory-saving settings take off the time of free lunch alone: 10 is a tenth less, -10 a tenth "
        "more, so that they are slower."
    )
    x, title = "% less training time (below 0: % more)", "Where the whole space was searched"
    panels = of_searches(title, "bars", x, rows, searches, y="place")
    lacking = "The paper draws these gains and does not print the numbers behind them."
    return Figure("4, 11", "Gains of memory-saving settings", says, panels, lacking, SEARCH)


def _spread(searches: Sequence[Search]) -> Figure:
    """Return figure 5: the best memory-saving settings against the median and the worst of them."""
    found = [(search, search.spread) for search in searches if search.whole and search.spread]
    panels: list[Panel] = []
    for search, spread in found:
        rows = [
            Row(_beside_free_lunch(settings), _kind(settings), step / spread.best)
            for settings, step in sorted(search.steps.items(), key=lambda item: item[1])
        ]
        title = f"{search.model} on {search.machine}: {len(rows)} settings"
        panels += of_searches(title, "bars", "time, best saving memory = 1", rows, [search], y="settings")
    says = "How much the choice of settings matters."
    if found:
        says = (
            f"The best memory-saving settings are {_times([each.median / each.best for _, each in found])} as fast as "
            f"the median of them and {_times([each.worst / each.best for _, each in found])} as fast as the worst"
        )
        if alone := [each.median / search.free_lunch for search, each in found if search.free_lunch is not None]:
            says += f"; the median takes {_times(alone)} as long as free lunch alone"
        says += "."
    # The claims use the same averages; ours are over all searches here, of any model and number of GPUs.
    lacking = "The paper draws averages over its searches, of Pythia on several GPUs, and does not print the searches."
    return Figure("5", "Best memory-saving settings against median and worst", says, panels, lacking, SEARCH)


def _beside_free_lunch(settings: str) -> str:
    """Return the settings without free lunch, which all settings of a search have."""
    return settings.removeprefix(f"{FREE_LUNCH.id}+").replace("+", ", ").replace(FREE_LUNCH.id, "free lunch alone")


def _kind(settings: str) -> str:
    parsed = Settings.parse(settings)
    if not parsed.saves_memory:
        return "free lunch alone"
    return {"torch": "no sharding", "deepspeed": "ZeRO", "fsdp": "FSDP"}[parsed.library]


def _gpu_days(searches: Sequence[Search]) -> Figure:
    """Return figure 6: GPU-days against the original trainings."""
    rows, ratios = list[Row](), [row.ratio.value for row in gpu_days()]
    for row, ratio in zip(gpu_days(), ratios, strict=True):
        label = f"{ratio:.1f} x less" if ratio > 1 else f"{1 / ratio:.1f} x more"
        rows.append(Row(row.model, "original training", row.original))
        rows.append(Row(row.model, "best settings, 8 A100", row.best.value, label=label))
    measured = [
        Row(search.model, search.machine, search.best_days * search.world)
        for search in searches
        if search.scale == "paper" and search.device != "cpu" and search.best_days is not None
    ]
    says = (
        f"From the printed days: between {min(ratios):.1f} and {max(ratios):.1f} times fewer GPU-days than the "
        "original trainings, which ran on other hardware: RoBERTa and ConvNeXt on V100, ViT on TPUv3 cores, Pythia on "
        "A100 of 40 GB."
    )
    printed = Panel("published", "Original and 8 A100", "dots", "model", "GPU-days", rows, "figure 6(a); Table 1")
    panels = [*of_searches("Best settings here", "dots", "GPU-days", measured, searches), printed]
    return Figure("6", "GPU-days against the original trainings", says, panels)


def _compute(searches: Sequence[Search]) -> Figure:
    """Return figure 9: FLOPs of a training, and throughput."""
    flops, peaks = list[Row](), list[Row]()
    for row in training_compute().values():
        ours = training_flops(recipe_of(row.model))
        flops.append(Row(row.model, "paper, figure 9", row.training_flops))
        flops.append(Row(row.model, "closed form", ours, label=_ratio(row.training_flops / ours)))
    for peak in analytic_peaks().values():
        sheet = paper_peak(peak.gpu, "fp16") / 1e12
        peaks.append(Row(peak.gpu, "paper", peak.fp16_tflops))
        peaks.append(Row(peak.gpu, "data sheet", sheet, label=_ratio(peak.fp16_tflops / sheet)))
    rates = [(search, rate) for search in searches if (rate := _rate(search)) is not None]
    unit, name = (1e12, "TFLOP/s") if any(rate >= 1e12 for _, rate in rates) else (1e9, "GFLOP/s")
    measured = [Row(search.model, search.machine, rate / unit) for search, rate in rates]
    says = (
        "FLOPs of each training, by the paper and by our closed forms, which a counted run confirms; the dense 16-bit "
        "peaks that the paper's analytic estimate takes, and the data sheets'."
    )
    of_flops = "figure 9(a); closed forms in models/"
    of_peaks = "authors' release v1.0.0; data sheets, see expected/gpus.csv"
    panels = [
        *of_searches("Fastest settings here", "dots", f"model {name} a device", measured, searches, clock="true"),
        Panel("computed", "FLOPs of a training", "dots", "model", "FLOPs", flops, of_flops),
        Panel("computed", "16-bit throughput of a GPU", "dots", "GPU", "TFLOP/s, dense", peaks, of_peaks),
    ]
    return Figure("9", "FLOPs and throughput", says, panels)


def _ratio(ratio: float) -> str:
    """Return the paper's figure over ours as text, empty within rounding of it."""
    return "" if 0.9 < ratio < 1.1 else f"paper {ratio:.2g} x"


def _rate(search: Search) -> float | None:
    """Return the model FLOP/s of each device with the fastest settings, by the true clock."""
    rates = [
        trial.derived.examples_per_second for trial in search.standing.values() if trial.derived.examples_per_second
    ]
    flops = models.find(search.recipe, search.scale).flops_per_example
    return max(rates) * flops / search.world if rates else None


_MARKS = (
    "numbers count GPUs, and filled marks on the dotted line have no rival among the paper's that is both cheaper and "
    "faster"
)
_TRUE, _PRINTED = DaysAsked(), DaysAsked("printed")


def _costs() -> list[Figure]:
    """Return figures 7, 12 and 13: costs of the machine and of an experiment, for one model and for all."""
    one, machine, experiment = "Pythia-1B", "the machine", "an experiment"
    days = {(model, _TRUE): _of_paper(model, _TRUE) for model in models.names()}
    days[one, _PRINTED] = _of_paper(one, _PRINTED)

    def panel(title: str, model: str, of: str, asked: DaysAsked = _TRUE) -> Panel:
        rows = _trades(days[model, asked], of == experiment)
        x = f"US dollars of {of}"
        origin: Origin = "published" if asked is _PRINTED else "predicted"
        source = "Table 1" if asked is _PRINTED else _TRUE.text.rstrip(".")
        source += "; section 4.1 and Table 5 for prices"
        return Panel(origin, title, "marks", "days of training", x, rows, source)

    fastest, gpus, gpu = min((spent, gpus, gpu) for (gpu, gpus), spent in days[one, _TRUE].items())
    price = machine_price(gpu, gpus, price_list(), "USD")
    says = (
        f"Cost of the machine, and of the days of its {lifespan_years():g} years that one training takes. The fastest "
        f"of the paper's machines for {one}, {gpus} {gpu}, costs ${price[0] if price else 0:,.0f} and takes "
        f"{fastest:.0f} true days on today's stack, {days[one, _PRINTED][gpu, gpus]:.0f} printed; {_MARKS}."
    )
    spread = (
        f"The machine's cost, spread evenly over {lifespan_years():g} years, times the days of the training; {_MARKS}."
    )
    of_one = [
        panel(f"Cost of {of}{', printed days' if asked is _PRINTED else ''}", one, of, asked)
        for asked in (_TRUE, _PRINTED)
        for of in (machine, experiment)
    ]
    of_all = {of: [panel(model, model, of) for model in models.names()] for of in (machine, experiment)}
    return [
        Figure("7", f"Cost against days, {one}", says, of_one),
        Figure(
            "12",
            "Cost of the machine against days, all models",
            f"Both axes are logarithmic; {_MARKS}.",
            of_all[machine],
        ),
        Figure("13", "Cost of an experiment against days, all models", spread, of_all[experiment]),
    ]


def _of_paper(model: str, asked: DaysAsked) -> Days:
    """Return a model's days on the paper's machines."""
    found = ModelDays(recipe_of(model).id, asked).everywhere(map(paper_gpu, paper_gpus()))
    return {(row.gpu, row.gpus): row.days.value for row in found if row.gpu in paper_gpus() and row.gpus in COUNTS}


def _trades(days: Days, experiment: bool) -> list[Row]:
    """Return the machines that have a price, each with that or with the share of an experiment in it. The note says
    whether another is worse in neither cost nor days, and better in one of them."""
    prices, aims = price_list(), {}
    for (gpu, gpus), spent in days.items():
        if (price := machine_price(gpu, gpus, prices, "USD")) is not None:
            aims[gpu, gpus] = (cost_a_day(price[0]) * spent if experiment else price[0], spent)
    rows = []
    for (gpu, gpus), (cost, spent) in aims.items():
        others = (each for each in aims.values() if each != (cost, spent))
        beaten = any(its_cost <= cost and its_days <= spent for its_cost, its_days in others)
        rows.append(Row(spent, gpu, cost, label=str(gpus), note="yes" if beaten else "no"))
    return rows


def _feasibility(searches: Sequence[Search]) -> Figure:
    """Return figure 3: the models that naive settings can train, and those that the best ones can."""
    panels, infeasible = [], {}
    tables: dict[Table, str] = {"4": "Naive settings", "1": "Best settings"}
    for table, title in tables.items():
        measured, naive = [], table == "4"
        for search in searches:
            tried = [each for each in search.standing.values() if (each.settings == NAIVE.id) == naive]
            if tried:
                measured.append(Row(search.model, _outcome(tried, naive or search.whole), search.machine))
        panels += of_searches(f"{title}, here", "fields", "machine", measured, searches)
        there = by_place(table)
        rows = [
            Row(model, _any_feasible({there[model, gpu, count].state for count in COUNTS[1:]}), gpu)
            for model in PYTHIA
            for gpu in paper_gpus()
        ]
        infeasible[table] = sum(row.series == "infeasible" for row in rows)
        panels.append(Panel("published", f"{title}, 2 or more GPUs", "fields", "model", "GPU", rows, f"Table {table}"))
    says = (
        f"As printed, Pythia on 2 or more GPUs: naive settings cannot train {infeasible['4']} of the {len(rows)} pairs "
        f"of model and GPU, the best settings {infeasible['1'] or 'none'}."
    )
    return Figure("3", "What can be trained at all", says, sorted(panels, key=lambda panel: panel.origin))


def _any_feasible(states: Collection[str]) -> str:
    return "feasible" if "days" in states else "lost" if "lost" in states else "infeasible"


def _outcome(tried: Sequence[Record], whole: bool) -> str:
    answers = {feasible(record) for record in tried}
    if True in answers:
        return "feasible"
    return "infeasible" if whole and answers <= {False} else "not known"


def _methods(searches: Sequence[Search]) -> Figure:
    """Return figure 10: the fewest methods that are enough for each model on each machine."""
    measured = [
        Row(search.model, _least_measured(search), search.machine)
        for search in searches
        if any(feasible(trial) is not None for trial in search.trials)
    ]
    panels = of_searches("Each recipe here", "fields", "machine", measured, searches)
    for title, counts in (("1 GPU", COUNTS[:1]), ("2 or more GPUs", COUNTS[1:])):
        rows = [
            Row(model, _least_published([(model, gpu, count) for count in counts]), gpu)
            for model in models.names()
            for gpu in paper_gpus()
        ]
        panels.append(Panel("published", title, "fields", "model", "GPU", rows, "Tables 1 and 4, Appendix J"))
    says = "The least that is known to be enough: naive settings, free lunch alone, or memory-saving methods beside it."
    lacking = (
        "The paper prints the fastest settings alone. Where those save memory, or their mark is lost, as of Mamba on "
        "several A100, nothing says whether free lunch would have been enough."
    )
    return Figure("10", "Which methods a model needs", says, panels, lacking, SEARCH)


def _least_published(places: Sequence[Place]) -> str:
    naive, best = ({by_place(table)[place].state for place in places} for table in ("4", "1"))
    if "days" in naive:
        return "naive"
    if any(row.place in places and row.readings() == [FREE_LUNCH] for row in published_settings()):
        return "free lunch"
    if "days" in best:
        return "memory saving"
    return "lost" if "lost" in naive else "infeasible"


def _least_measured(search: Search) -> str:
    fewest = {"naive": search.naive, "free lunch": search.free_lunch, "memory saving": search.best}
    if found := next((methods for methods, step in fewest.items() if step is not None), None):
        return found
    tried = search.standing.get(NAIVE.id)
    return "infeasible" if search.whole and tried and feasible(tried) is False else "not known"
