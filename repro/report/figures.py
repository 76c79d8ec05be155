"""The paper's figures and further ones, from measured records, printed numbers, or both."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import fmean

from .. import models
from ..formats import counted, from_to
from ..money.breakeven import comment_cases, first_run, lifespan_years
from ..money.days import DaysAsked, ModelDays, TrainingDays
from ..money.offers import Costs, cheapest_to_own, cost_a_day, offers
from ..money.prices import gpu_prices, machine_price, price_list
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
from ..paper.settings import FREE_LUNCH, NAIVE, Settings
from ..paper.tables import (
    COUNTS,
    Cell,
    Place,
    PublishedSettings,
    Table,
    analytic_peaks,
    published_settings,
    training_compute,
)
from ..record import BY_CLOCK, Record
from ..run.settings_search import Search
from ..validity import feasible
from .panels import SEARCH, Curve, Figure, Mark, Origin, Panel, Point, Reference, State, Trade, measured_panels


def all_figures(searches: Sequence[Search]) -> list[Figure]:
    """Return all figures in the paper's order; without `searches` they show the published numbers only."""
    return [
        _speedups(searches),
        feasibility(searches),
        _gains(searches),
        _spread(searches),
        _gpu_days(searches),
        *costs(searches),
        _compute(searches),
        methods(searches),
    ]


def _speedups(searches: Sequence[Search]) -> Figure:
    """Return figure 2: speed-ups over naive settings."""
    published = [speedup for speedup in speedups() if speedup.model in PYTHIA]
    rows = []
    for speedup in published:
        note = f"{speedup.model}, {counted(speedup.gpus, 'GPU')}"
        analytic = speedup.naive_days / analytic_days(speedup.model, speedup.gpu, speedup.gpus)
        rows.append(Point(speedup.gpu, "best settings", speedup.ratio.value, note))
        rows.append(Point(speedup.gpu, "analytic estimate", analytic, note))
    measured = []
    for search in searches:
        for series, step in (("free lunch alone", search.free_lunch), ("best settings", search.best)):
            if search.naive is not None and step is not None:
                measured.append(Point(search.model, series, search.naive / step, search.machine))
    mean, optimistic = (
        fmean([row.value for row in rows if row.series == series]) for series in ("best settings", "analytic estimate")
    )
    says = (
        f"From the printed days: with the best settings a training step of Pythia is {mean:.1f} times as fast as with "
        f"naive ones, on average over the {len(published)} cells that have both; the analytic estimate promises "
        f"{optimistic:.1f} times."
    )
    here = [row.value for row in measured if row.series == "best settings" and row.group in PYTHIA]
    if here:
        says += f" Measured here, for Pythia: {_times(here)}."
    title = "Speed-ups over naive settings"
    x, naive = "times as fast as naive settings", Reference(1.0, "naive settings")
    return Figure(
        "2",
        title,
        says,
        [
            *measured_panels("Each recipe here", "strips", x, measured, searches, naive),
            Panel(
                "published",
                "Pythia on the paper's GPUs",
                "strips",
                x,
                rows,
                "Tables 1 and 4; section 3.1",
                naive,
                groups="GPU",
                notes="cell",
            ),
        ],
    )


def _times(ratios: Sequence[float]) -> str:
    """Return a ratio as text, or the mean and the range of several."""
    text = f"{fmean(ratios):.2f} times"
    if len(ratios) == 1:
        return text
    return f"{text} (mean of {len(ratios)} pairs of model and machine, {from_to(ratios, '.2f')})"


def _gains(searches: Sequence[Search]) -> Figure:
    """Return figures 4 and 11: what the best memory-saving settings gain over free lunch alone."""
    rows = [
        Point(f"{search.model}, {search.machine}", "faster" if search.gain > 0 else "slower", 100 * search.gain)
        for search in _whole(searches)
        if search.gain is not None
    ]
    says = (
        "What the best memory-saving settings take off the time of free lunch alone: 10 is a tenth less, -10 a tenth "
        "more, so that they are slower."
    )
    x = "% less training time (below 0: % more)"
    return Figure(
        "4, 11",
        "Gains of memory-saving settings",
        says,
        measured_panels("Where the whole space was searched", "bars", x, rows, searches, groups="place"),
        "The paper draws these gains and does not print the numbers behind them.",
        SEARCH,
    )


def _spread(searches: Sequence[Search]) -> Figure:
    """Return figure 5: the best memory-saving settings against the median and the worst of them."""
    panels: list[Panel] = []
    over_median, over_worst, over_free_lunch = list[float](), list[float](), list[float]()
    for search in _whole(searches):
        spread = search.spread
        if spread is None:
            continue
        rows = [
            Point(_beside_free_lunch(settings), _kind(settings), step / spread.best)
            for settings, step in sorted(search.steps.items(), key=lambda item: item[1])
        ]
        place = f"{search.model} on {search.machine}"
        title = f"{place}: {len(rows)} settings"
        x = "time, best saving memory = 1"
        panels += measured_panels(title, "bars", x, rows, [search], groups="settings")
        over_median.append(spread.median / spread.best)
        over_worst.append(spread.worst / spread.best)
        if search.free_lunch is not None:
            over_free_lunch.append(spread.median / search.free_lunch)
    says = "How much the choice of settings matters."
    if panels:
        says = (
            f"The best memory-saving settings are {_times(over_median)} as fast as the median of them and "
            f"{_times(over_worst)} as fast as the worst"
        )
        if over_free_lunch:
            says += f"; the median takes {_times(over_free_lunch)} as long as free lunch alone"
        says += "."
    return Figure(
        "5",
        "Best memory-saving settings against median and worst",
        says,
        panels,
        # The claims use the same averages; ours are over all searches here, of any model and number of GPUs.
        "The paper draws averages over its searches, of Pythia on several GPUs, and does not print the searches.",
        SEARCH,
    )


def _beside_free_lunch(settings: str) -> str:
    """Return the settings without free lunch, which all settings of a search have."""
    return settings.removeprefix(f"{FREE_LUNCH.id}+").replace("+", ", ").replace(FREE_LUNCH.id, "free lunch alone")


def _kind(settings: str) -> str:
    parsed = Settings.parse(settings)
    if not parsed.saves_memory:
        return "free lunch alone"
    return {"torch": "no sharding", "deepspeed": "ZeRO", "fsdp": "FSDP"}[parsed.library]


def _whole(searches: Iterable[Search]) -> list[Search]:
    return [search for search in searches if search.whole]


def _gpu_days(searches: Sequence[Search]) -> Figure:
    """Return figure 6: GPU-days against the original trainings."""
    rows = []
    for row in gpu_days():
        note = f"{row.ratio.value:.1f} x less" if row.ratio.value > 1 else f"{1 / row.ratio.value:.1f} x more"
        rows.append(Point(row.model, "original training", row.original, ""))
        rows.append(Point(row.model, "best settings, 8 A100", row.best.value, note))
    measured = [
        Point(search.model, search.machine, search.best_days * search.world)
        for search in searches
        if search.scale == "paper" and search.device != "cpu" and search.best_days is not None
    ]
    ratios = [row.ratio.value for row in gpu_days()]
    return Figure(
        "6",
        "GPU-days against the original trainings",
        f"From the printed days: between {min(ratios):.1f} and {max(ratios):.1f} times fewer GPU-days than the "
        "original trainings, which ran on other hardware: RoBERTa and ConvNeXt on V100, ViT on TPUv3 cores, Pythia on "
        "A100 of 40 GB.",
        [
            *measured_panels("Best settings here", "strips", "GPU-days", measured, searches),
            Panel("published", "Original and 8 A100", "pairs", "GPU-days", rows, "figure 6(a); Table 1"),
        ],
    )


def _compute(searches: Sequence[Search]) -> Figure:
    """Return figure 9: FLOPs of a training, and throughput."""
    flops = []
    for row in training_compute().values():
        ours = training_flops(recipe_of(row.model))
        ratio = row.training_flops / ours
        flops.append(Point(row.model, "paper, figure 9", row.training_flops))
        flops.append(Point(row.model, "closed form", ours, _ratio(ratio)))
    peaks = []
    for peak in analytic_peaks().values():
        sheet = paper_peak(peak.gpu, "fp16") / 1e12
        ratio = peak.fp16_tflops / sheet
        peaks.append(Point(peak.gpu, "paper", peak.fp16_tflops))
        peaks.append(Point(peak.gpu, "data sheet", sheet, _ratio(ratio)))
    rates = [(search, rate) for search in searches if (rate := _rate(search)) is not None]
    unit, name = (1e12, "TFLOP/s") if any(rate >= 1e12 for _, rate in rates) else (1e9, "GFLOP/s")
    measured = [Point(search.model, search.machine, rate / unit) for search, rate in rates]
    return Figure(
        "9",
        "FLOPs and throughput",
        "FLOPs of each training, by the paper and by our closed forms, which a counted run confirms; the dense 16-bit "
        "peaks that the paper's analytic estimate takes, and the data sheets'.",
        [
            *measured_panels(
                "Fastest settings here", "strips", f"model {name} a device", measured, searches, clock="true"
            ),
            Panel("computed", "FLOPs of a training", "pairs", "FLOPs", flops, "figure 9(a); closed forms in models/"),
            Panel(
                "computed",
                "16-bit throughput of a GPU",
                "pairs",
                "TFLOP/s, dense",
                peaks,
                "authors' release v1.0.0; data sheets, see expected/gpus.csv",
                groups="GPU",
            ),
        ],
    )


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


def costs(searches: Sequence[Search]) -> list[Figure]:
    """Return figures 7, 12 and 13: costs of the machine and of an experiment, for one model and for all, with
    measurements."""
    true, published = (
        {model: {(row.gpu, row.gpus): row.days.value for row in _of_paper(model, asked)} for model in models.NAMES}
        for asked in (_TRUE, DaysAsked("printed"))
    )
    measured: dict[str, dict[tuple[str, int], float]] = {}
    priced = gpu_prices().keys()
    for search in searches:
        if search.best_days is None or not search.comparable_with_paper or search.device not in priced:
            continue
        measured.setdefault(search.model, {})[search.device, search.count] = search.best_days
    one = "Pythia-1B"
    prices = "section 4.1 and Table 5 for prices"

    def panel(model: str, title: str, each: bool, printed: bool = False) -> Panel:
        here = {} if printed else measured.get(model, {})
        rows = [*_trades((published if printed else true)[model], each), *_here(here, each)]
        x = "US dollars of an experiment" if each else "US dollars of the machine"
        origin: Origin = "published" if printed else "measured and predicted" if here else "predicted"
        source = "Table 1" if printed else f"true days, {_TRUE.text}"
        sources = f"{source}; {prices}" + (f"; trials.jsonl, {BY_CLOCK[searches[0].clock]}" if here else "")
        return Panel(origin, title, "trades", x, rows, sources, y="days of training")

    trades = {(trade.gpu, trade.gpus): trade for trade in _trades(true[one], each=False)}
    fastest = min(trades.values(), key=lambda trade: trade.days)
    says = (
        f"Cost of the machine, and of the days of its {lifespan_years():g} years that one training takes. The fastest "
        f"of the paper's machines for {one}, {fastest.gpus} {fastest.gpu}, costs ${fastest.cost:,.0f} and takes "
        f"{fastest.days:.0f} true days on today's stack, {published[one][fastest.gpu, fastest.gpus]:.0f} printed; "
        f"{_MARKS}."
    )
    return [
        Figure(
            "7",
            f"Cost against days, {one}",
            says,
            [
                panel(one, "Cost of the machine", False),
                panel(one, "Cost of an experiment", True),
                panel(one, "Cost of the machine, printed days", False, printed=True),
                panel(one, "Cost of an experiment, printed days", True, printed=True),
            ],
        ),
        Figure(
            "12",
            "Cost of the machine against days, all models",
            f"Both axes are logarithmic; {_MARKS}.",
            [panel(model, model, False) for model in models.NAMES],
        ),
        Figure(
            "13",
            "Cost of an experiment against days, all models",
            f"The machine's cost, spread evenly over {lifespan_years():g} years, times the days of the training; "
            f"{_MARKS}.",
            [panel(model, model, True) for model in models.NAMES],
        ),
    ]


_TRUE = DaysAsked()


def _of_paper(model: str, asked: DaysAsked) -> list[TrainingDays]:
    """Return a model's days on the paper's machines."""
    found = ModelDays(recipe_of(model).id, asked).everywhere(map(paper_gpu, paper_gpus()))
    return [row for row in found if row.gpu in paper_gpus() and row.gpus in COUNTS]


def _trades(days: dict[tuple[str, int], float], each: bool) -> list[Trade]:
    found = _priced(days, each)
    return [replace(trade, kind="beaten") if any(_beats(other, trade) for other in found) else trade for trade in found]


def _beats(one: Trade, other: Trade) -> bool:
    """Return whether one is worse in neither cost nor days, as printed, and better in one of them."""
    return one.aims != other.aims and all(ours <= theirs for ours, theirs in zip(one.aims, other.aims, strict=True))


def _here(days: dict[tuple[str, int], float], each: bool) -> list[Trade]:
    return [replace(trade, gpu=f"{trade.gpu}, here", kind="here") for trade in _priced(days, each)]


def _priced(days: dict[tuple[str, int], float], each: bool) -> list[Trade]:
    """Return the machines that have a price, each with that or with the share of an experiment in it."""
    prices, found = price_list(), []
    for (gpu, gpus), spent in days.items():
        price = machine_price(gpu, gpus, prices, "USD")
        if price is not None:
            cost = cost_a_day(price[0]) * spent if each else price[0]
            found.append(Trade(gpu, gpus, cost, spent, "best"))
    return found


def feasibility(searches: Sequence[Search]) -> Figure:
    """Return figure 3: the models that naive settings can train, and those that the best ones can."""
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
    """Return figure 10: the fewest methods that are enough for each model on each machine."""
    naive, best = by_place("4"), by_place("1")
    settings = {row.place: row for row in published_settings()}
    measured = [
        Mark(search.model, search.machine, _least_measured(search))
        for search in searches
        if any(feasible(trial) is not None for trial in search.trials)
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
    return "infeasible" if search.whole and tried and feasible(tried) is False else "not known"


def _any_feasible(there: Iterable[Cell]) -> State:
    states = {cell.state for cell in there}
    if "days" in states:
        return "feasible"
    return "lost" if "lost" in states else "infeasible"


def _outcome(tried: Sequence[Record], whole: bool) -> State:
    answers = {feasible(record) for record in tried}
    if True in answers:
        return "feasible"
    return "infeasible" if whole and answers <= {False} else "not known"


_RUNS = range(13)


def further() -> list[Figure]:
    """Return the figures of break-even and scaling, from the papers' numbers."""
    return [_break_even(), _scaling()]


def _break_even() -> Figure:
    first, *others = comment_cases()
    panels, sentences = [], []
    for computed in (first, others[1]):
        case = computed.case
        rows = [Curve("owning", runs, case.owning(runs)) for runs in _RUNS]
        rows += [Curve("renting", runs, case.renting(runs)) for runs in _RUNS]
        title = computed.what[0].upper() + computed.what[1:]
        source = "rent-or-buy comment, quantities.csv and rental.csv"
        panels.append(Panel("computed", title, "lines", "runs of BERT", rows, source, y="US dollars spent"))
        sentences.append(f"from run {first_run(case.runs.value)} on ({computed.what})")
    says = f"A workstation against {first.provider}'s V100s by the hour. Owning is cheaper {', or '.join(sentences)}."
    return Figure("", "When owning beats renting", says, panels)


def _scaling() -> Figure:
    panels, sentences = [], []
    prices = price_list()
    for id in ("pythia-1b", "pythia-6.9b", "vit"):
        name = models.find(id).name
        found = offers(_of_paper(name, _TRUE), Costs(prices))
        rows = [Curve(offer.run.gpu, offer.run.gpus, offer.efficiency) for offer in found]
        source = f"true days, {_TRUE.text}"
        panels.append(
            Panel(
                "predicted",
                name,
                "lines",
                "GPUs, log scale",
                rows,
                source,
                reference=Reference(1.0, "proportional"),
                y="parallel efficiency",
            )
        )
        by_gpu = [[offer for offer in found if offer.run.gpu == gpu] for gpu in paper_gpus()]
        cheapest = [best.run.machine for of_it in by_gpu if (best := cheapest_to_own(of_it)) is not None]
        sentences.append(f"{name} on {', '.join(cheapest)}")
    says = (
        "The fewest GPU-days of any number of these GPUs over those of this one: 1 is the best use of each GPU. An "
        f"experiment is cheapest with {'; '.join(sentences)} (prices of {max(p.quoted for p in prices.gpus.values())})."
    )
    return Figure("", "What more GPUs bring", says, panels)
