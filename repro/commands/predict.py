"""`repro predict`: predict days of training on GPUs of other machines, from traces of the real model code."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, get_args

from .. import formats, models
from ..console import UserError, say
from ..formats import (
    FOR_MACHINES,
    Format,
    count,
    days_cell,
    days_text,
    listing,
    path,
    render,
)
from ..models.recipe import Recipe
from ..money.days import DaysAsked, ModelDays, SettingsDays
from ..options import Output, flag, given, option
from ..paper.custom_gpu import custom_gpu
from ..paper.gpus import CustomGpu, Gpu
from ..predict import fits, report, traces
from ..predict.fits import here, load_probes
from ..predict.forecast import Forecast, forecast, ranked
from ..predict.hardware import Machine, gpu_named
from ..predict.released import steps
from ..predict.report import Comparison, accuracy_text, compared_trials
from ..predict.today import today
from ..predict.traces import Stack
from ..printout import people
from ..released.results import Archive
from ..run.plan import Methods, ModernMethods, settings_for
from ..run.reading import Joined, join, measured
from ..validity import disturbance
from .custom_models import models_option
from .day_options import measured_days, more_days


def any_gpu(text: str, option: str) -> Gpu:
    """Parse the name of a GPU of the catalogue, or the file of one of the user's own."""
    return custom_gpu(text) or gpu_named(text)


@dataclass(frozen=True, kw_only=True)
class Asked(Output):
    models: str | None = models_option("recipes, by id (default: all nine)")
    gpu: Gpu | None = option(
        "a GPU of the catalogue, such as 'RTX 4090', or a TOML file that describes one of your own; without it: "
        "Tables 1 and 4",
        "NAME|FILE",
        any_gpu,
    )
    probes: Path | None = option("a machine that repro probe measured, in place of --gpu", "FILE", path)
    gpus: int | None = option("GPUs of each node (default: 1)", "N", count)
    nodes: int | None = option("nodes (default: 1)", "N", count)
    network: float | None = option("speed of the network between nodes (default: 200Gb/s)", "25Gb/s", formats.network)
    methods: Methods | None = option(
        "settings to predict (default: all); modern: also with the parts of today's training software, see "
        "docs/own-model.md, without --gpu for Table 1",
        choices=get_args(Methods),
    )
    measured: tuple[Path | None, ...] = more_days()
    stack: Stack | None = option(
        "predict for the paper's software stack, the default without --gpu, or for today's, the newest traces, the "
        "default with --gpu",
        choices=get_args(Stack),
    )
    took: str | None = option(
        "what a step took you (or the training: 7h; or 45000 tokens/s, 1.2 it/s): is it normal, and if not, why",
        "13.8s",
    )
    validate: bool = flag("print the errors of the predictions")


@dataclass(frozen=True)
class _Request:
    """The machine to predict for, with the constants of its GPU and its name in records; the models, and with which
    settings; the days that are asked for; how to print them; and the authors' raw days, which
    stand beside as a further column."""

    machine: Machine
    fitted: fits.Constants
    device: str
    wanted: Sequence[Recipe]
    methods: Methods
    days: DaysAsked
    format: Format
    every: bool
    archive: Archive | None = None

    @property
    def where(self) -> str:
        return f"{self.machine.nodes} nodes of " if self.machine.nodes > 1 else ""


def main(asked: Asked) -> str:
    if asked.validate:
        return _validate(asked)
    if asked.methods is not None and any(asked.measured):
        raise UserError(f"--methods {asked.methods} changes nothing beside --measured, whose trials say their settings")
    readings, shipped = measured_days(asked.measured)  # they may describe models
    archive = next((run.released for run in readings if run.released), None)
    readings = tuple(run for run in readings if not run.released)
    wanted = [models.find(id) for id in models.listed(asked.models, models.find_traced)]
    found = _machine(asked)
    days = DaysAsked("true", asked.stack or ("today" if found else "paper"), readings, shipped)
    if found is None:
        return _of_paper(asked, wanted, days, archive)
    request = _Request(*found, wanted, asked.methods or "all", days, asked.format, asked.all, archive)
    if asked.took is not None:
        return _took(request, asked.took, any(asked.measured))
    return _beside(request, join(*readings)) if readings else _predicted(request)


def _validate(asked: Asked) -> str:
    """Return how far off predictions are: of the authors' raw results where --measured names these."""
    if asked.measured and (archive := measured([each for each in asked.measured if each]).released):
        from ..report import released

        return released.validated(steps(archive.records), asked.format, asked.all)
    more = (each.name for each in fields(asked) if each.name not in ("validate", "all", "format"))
    if useless := given(asked, more):
        raise UserError(f"{useless[0]} changes nothing of --validate: leave one of them out")
    from . import predict_paper

    return predict_paper.validate(asked.format, asked.all)


def _of_paper(asked: Asked, wanted: Sequence[Recipe], days: DaysAsked, archive: Archive | None) -> str:
    """Return Tables 1 and 4 as they are predicted, or Table 1 with parts of modern training."""
    from . import predict_paper

    if asked.took is not None:
        raise UserError(f"--took {asked.took}: name the GPU with --gpu, and one of --models")
    models.listed(asked.models, models.find_of_paper)
    names = {recipe.name for recipe in wanted}
    if asked.methods is None:
        return predict_paper.tables(asked.format, names, days, archive)
    if asked.methods not in get_args(ModernMethods):
        raise UserError(f"--methods {asked.methods} needs --gpu: Tables 1 and 4 say which settings their cells had")
    if asked.stack is not None:
        parts = f"the parts of --methods {asked.methods} are predicted for today's stack alone"
        raise UserError(f"--stack {asked.stack}: {parts}")
    return predict_paper.modern_table(asked.format, names)


def _machine(asked: Asked) -> tuple[Machine, fits.Constants, str] | None:
    """Return the machine that is named, with the constants of its GPU and its name in records; None without one."""
    gpus, nodes = asked.gpus or 1, asked.nodes or 1
    if asked.probes is not None:
        if given(asked, ("gpu", "nodes", "network")):
            raise UserError("--probes names a machine of one node: leave --gpu, --nodes and --network out")
        probes = load_probes(asked.probes)
        if probes.warning:
            say(probes.warning)
        return *here(probes, gpus, None), probes.device
    if asked.gpu is None:
        if given(asked, ("gpus", "nodes", "network")):
            raise UserError(
                "--gpus, --nodes and --network are of GPUs of one kind: name it with --gpu, as in --gpu A100"
            )
        return None
    machine = Machine(asked.gpu, gpus, nodes)
    if asked.network is not None:
        if nodes == 1:
            raise UserError("--network is between nodes: say how many with --nodes")
        machine = replace(machine, network=asked.network)
    return machine, fits.fitted_constants()[fits.EVERYTHING], machine.gpu.called


def _searched(request: _Request, recipe: Recipe, known: ModelDays) -> list[Forecast]:
    """Predict all settings of a recipe that are asked for."""
    machine, methods = request.machine, request.methods
    assert known.traced is not None
    settings = settings_for(recipe, methods, machine.gpu, machine.world)
    if methods == "all":
        settings += [each for each in known.measured_settings(machine) if each not in settings]
    group = [forecast(recipe, machine, each, request.fitted, known.traced) for each in settings]
    if methods in get_args(ModernMethods):
        both = today(recipe, machine, request.fitted, known.traced)
        group += [both.free_lunch, both.exact, *([both.all] if methods == "modern" else [])]
    return group


def _took(request: _Request, text: str, with_runs: bool) -> str:
    """Return whether a measured speed is normal for a model with the fastest settings, and what explains it best."""
    if len(request.wanted) != 1 or with_runs:
        raise UserError(f"--took {text} is of one training: name one of --models, and leave --measured out")
    [recipe], known = request.wanted, ModelDays(request.wanted[0].id, request.days)
    best = ranked(_searched(request, recipe, known))[0]
    if best.step is None:
        raise UserError(f"--took {text}: {report.sentence([best], known.stack)}")
    from . import took

    return took.answer(text, recipe, best, request.fitted, known, request.format, request.every)


def _predicted(request: _Request) -> str:
    """Return the search space of a recipe on one machine, the fastest first, or the fastest of each of several; with
    `every` all of all."""
    machine = request.machine
    found, sources = list[tuple[ModelDays, list[SettingsDays]]](), dict[str, None]()
    for recipe in request.wanted:
        known = ModelDays(recipe.id, request.days)
        assert known.traced is not None
        group = _searched(request, recipe, known)
        found.append((known, [each for each in known.on_settings(machine, group) if each.forecast is not None]))
        sources[f"{known.stack}, {report.from_traces(known.traced)}"] = None
    if request.format in FOR_MACHINES:
        rows = [_row(each, known) | _released(each, request.archive) for known, group in found for each in group]
        return render(rows, request.format)
    several = len(found) > 1
    if several:
        trains = sum(group[0].feasible for _, group in found)
        answer = f"{trains} of {len(found)} models train on {request.where}{machine.gpus} x {machine.gpu.name}."
    else:
        answer = _sentence(found[0][1], found[0][0])
    first = several and not request.every
    trained = [group[:1] if first else [each for each in group if each.feasible] or group[:1] for _, group in found]
    lines = [each for group in trained for each in group]
    signs = report.signs(each.origin for each in lines)
    notes = [f"Days are predicted for {listing(list(sources))}{f'; {signs}' if signs else ''}."]
    if first:
        notes.append("The fastest settings of each model are shown: --all shows all settings of each.")
    else:  # of what does not train with any settings the answer says why
        forecasts = [[each.forecast for each in group if each.forecast] for _, group in found if group[0].feasible]
        if reasons := listing([*filter(None, map(report.reasons, forecasts))]):
            notes.append(f"Infeasible: {reasons}.")
    notes += [f"{each}." for each in dict.fromkeys(_instead(line) for line in lines) if each]
    if isinstance(machine.gpu, CustomGpu):
        notes.append(machine.gpu.note)
    elif not several and found[0][1][0].bounds:
        notes.append("8 of 10 unseen cells and trials lie in such an interval as is in brackets.")
    table = [line | _released(each, request.archive) for line, each in zip(_lines(lines, several), lines, strict=True)]
    return people(answer, table, notes, request.format, request.every)


def _instead(each: SettingsDays) -> str:
    """Return what a prediction that trains does otherwise than asked; empty where it does as asked."""
    return each.forecast.reason if each.forecast and each.forecast.feasible else ""


def _released(each: SettingsDays, archive: Archive | None) -> dict[str, Any]:
    """Return a further column with the authors' raw days of these settings; none without their archive."""
    if archive is None or each.forecast is None:
        return {}
    machine = each.forecast.machine
    key = each.forecast.recipe, machine.gpu.called, machine.gpus, each.settings
    return {"released_days": archive.days.get(key) if machine.nodes == 1 else None}


def _beside(request: _Request, runs: Joined) -> str:
    """Return the trials measured on this machine, each with its prediction by the traces of its run's stack; where
    another number of its GPUs was measured, its predictions corrected by that."""
    machine, ids = request.machine, {recipe.id for recipe in request.wanted}
    found, rows = list[Comparison](), list[dict[str, Any]]()
    sources: dict[str, list[str]] = {}
    for run in runs.runs:
        stack = traces.nearest(run.environment.packages or {})
        of_it = [record for record in run.records if record.recipe in ids and record.origin == "measured"]
        there = compared_trials(of_it, request.device, machine, request.fitted, stack)
        found += there
        rows += [report.beside_row(each, stack) for each in there]
        if there:
            sources.setdefault(report.from_traces(stack), []).append(str(run.folder))
    if not found and machine.probed is None and machine.nodes == 1:
        corrected = {each.recipe for each in runs.records if each.device == request.device and each.like_papers} & ids
        if corrected:
            return _predicted(replace(request, wanted=[each for each in request.wanted if each.id in corrected]))
    if not found:
        ran = dict[str, dict[str, None]]()
        for each in runs.records:
            ran.setdefault(each.machine, {})[each.recipe] = None
        had = "; ".join(f"{', '.join(ran[name])} on {name}" for name in sorted(ran))
        raise UserError(
            f"{runs.name} has no trial of these models that ran on {request.where}{machine.gpus} x {request.device}: "
            f"it has {had or 'none'}"
        )
    if request.format in FOR_MACHINES:
        return render(rows, request.format)
    disturbed = [each for each in found if each.record.timed and disturbance(each.record)]
    predicted_from = [
        f"{f'trials of {listing(folders)} ' if len(sources) > 1 else ''}{source}" for source, folders in sources.items()
    ]
    notes = [f"Steps are in true seconds, predicted {'; '.join(predicted_from)}."]
    notes += _true_days(machine, {each.record.recipe for each in found}, request.days)
    if disturbed:
        named = "; ".join(f"{each.record.id}, {disturbance(each.record)}" for each in disturbed)
        notes.append(f"Disturbed, so that they show neither the GPU's speed nor what fits: {named}.")
    return people(
        accuracy_text(found), [report.beside_line(each) for each in found], notes, request.format, request.every
    )


def _true_days(machine: Machine, recipes: Iterable[str], asked: DaysAsked) -> list[str]:
    """Return a sentence on the true days of each recipe on a machine of the catalogue, unless all are predicted."""
    if machine.probed is not None or machine.nodes > 1:
        return []
    known = ((models.find(id), ModelDays(id, asked).on(machine.gpu, machine.gpus)) for id in sorted(recipes))
    named = [
        f"{recipe.name} {days.origin} {days_cell(days.days.value)}"
        for recipe, days in known
        if days is not None and days.origin != "predicted"
    ]
    return [f"True days on {machine.gpus} x {machine.gpu.name}: {', '.join(named)}."] if named else []


def _row(each: SettingsDays, known: ModelDays) -> dict[str, Any]:
    """Return all that is known of settings as a row."""
    assert each.forecast is not None
    assert known.traced is not None
    foretold, there = each.forecast, each.measurement or each.elsewhere
    row = report.row(foretold, known.traced)
    bounds = (each.days.low, each.days.high) if each.bounds and each.days else (None, None)
    return row | {
        "origin": each.origin,
        "feasible": each.feasible,
        "micro_batch": each.micro_batch,
        "days": each.days and each.days.value,
        "days_low": bounds[0],
        "days_high": bounds[1],
        "predicted_days": row["days"],
        "measured_days": there and there.true_days,
        "measured_on": there and there.stack,
        "source": each.source,
    }


def _lines(found: Iterable[SettingsDays], several: bool) -> list[dict[str, Any]]:
    """Return the values of settings that a table shows to people, with their models where these are `several`; the
    prediction only where another number stands before it, and their speed where one takes less than a day."""
    rows = list(found)
    known = any(each.origin != "predicted" for each in rows)
    beside = any(each.elsewhere for each in rows)
    short = any(each.days and each.days.value < 1 for each in rows)
    lines = []
    for each in rows:
        assert each.forecast is not None
        line = report.line(each.forecast)
        first = {"model": line["model"]} if several else {}
        first |= {"settings": each.settings if each.feasible else None, "MBS": each.micro_batch}
        first |= {"days": each.days and f"{days_cell(each.days.value)}{report.SIGNS[each.origin]}"}
        first |= {"speed": report.speed(each.forecast)} if short else {}
        first |= {"on the other stack": each.elsewhere and each.elsewhere.true_days} if beside else {}
        left_out = ("model", "settings", "MBS", *(() if known else ("predicted",)))
        lines.append(first | {key: value for key, value in line.items() if key not in left_out})
    return lines


def _sentence(rows: Sequence[SettingsDays], known: ModelDays) -> str:
    """Describe the fastest settings: what was measured or projected of them, and what is predicted."""
    best = rows[0]
    text = ""
    if best.origin != "predicted":
        days = days_text(best.days.value) if best.days else "out of memory"
        text = f"{best.origin} {days} ({best.source}); "
    return report.sentence([row.forecast for row in rows if row.forecast], known.stack, text)
