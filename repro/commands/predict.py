"""`repro predict`: predict days of training on GPUs of other machines, from traces of the real model code."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from dataclasses import replace
from statistics import median
from typing import Any, cast, get_args

from .. import models
from ..console import DATA, UserError, say
from ..formats import (
    FOR_MACHINES,
    Format,
    by_machine,
    count_if_given,
    counted,
    from_to,
    listing,
    network,
    path,
    render,
    significant,
    were,
)
from ..models.recipe import Recipe
from ..money.days import WHOSE, DaysAsked, ModelDays, SettingsDays
from ..paper.arithmetic import paper_gpu, recipe_of
from ..paper.custom_gpu import custom_gpu
from ..paper.gpus import CustomGpu
from ..paper.settings import NAIVE
from ..paper.tables import Cell, all_cells, cells
from ..predict import fits, report, scores, traces
from ..predict.fits import here, load_probes
from ..predict.forecast import forecast, ranked
from ..predict.hardware import Machine, gpu_named
from ..predict.report import Comparison, accuracy_text, compared_trials
from ..predict.today import row as modern_row
from ..predict.today import table_1, today
from ..predict.traces import Stack
from ..printout import add_output, people
from ..record import Record
from ..run.plan import Methods, ModernMethods, settings_for
from ..run.reading import Joined, Reading, join, read
from ..validity import disturbance
from .custom_models import add_models
from .day_options import add_measured_days, measured_days


def options(parser: argparse.ArgumentParser) -> None:
    add_models(parser, "recipes, by id (default: all nine)")
    parser.add_argument(
        "--gpu",
        metavar="NAME|FILE",
        help="a GPU of the catalogue, such as 'RTX 4090', or a TOML file that describes one of your own; without it: "
        "Tables 1 and 4",
    )
    parser.add_argument(
        "--probes", type=path, metavar="FILE", help="a machine that repro probe measured, in place of --gpu"
    )
    parser.add_argument("--gpus", metavar="N", help="GPUs of each node (default: 1)")
    parser.add_argument("--nodes", metavar="N", help="nodes (default: 1)")
    parser.add_argument("--network", metavar="25Gb/s", help="speed of the network between nodes (default: 200Gb/s)")
    parser.add_argument(
        "--methods",
        choices=get_args(Methods),
        help="settings to predict (default: all); modern: also with the parts of today's training software, see "
        "docs/own-model.md, without --gpu for Table 1",
    )
    add_measured_days(parser)
    parser.add_argument(
        "--stack",
        choices=get_args(Stack),
        help="predict for the paper's software stack, the default without --gpu, or for today's, the newest traces, "
        "the default with --gpu",
    )
    parser.add_argument("--validate", action="store_true", help="print the errors of the predictions")
    add_output(parser)


def main(given: argparse.Namespace) -> int:
    if given.validate:
        return _validate(given)
    if given.methods is not None and any(given.measured or ()):
        raise UserError(f"--methods {given.methods} changes nothing beside --measured, whose trials say their settings")
    readings, shipped = measured_days(given)  # they may describe models
    runs = join(*readings) if readings else None
    wanted = [models.find(id) for id in models.listed(given.models, models.find_traced)]
    gpus, nodes = (count_if_given(getattr(given, name), f"--{name}") or 1 for name in ("gpus", "nodes"))
    methods = cast(Methods, given.methods or "all")
    of_machine = given.gpu is not None or given.probes is not None
    asked = DaysAsked("true", given.stack or ("today" if of_machine else "paper"), readings, shipped)
    if given.probes is not None:
        if given.gpu is not None or given.nodes is not None or given.network is not None:
            raise UserError("--probes names a machine of one node: leave --gpu, --nodes and --network out")
        probes = load_probes(given.probes)
        machine, fitted = here(probes, gpus, None)
        device = probes.device
        if probes.warning:
            say(probes.warning)
    elif given.gpu is not None:
        machine = Machine(custom_gpu(given.gpu) or gpu_named(given.gpu), gpus, nodes)
        if given.network is not None:
            if nodes == 1:
                raise UserError(f"--network {given.network} is between nodes: say how many with --nodes")
            machine = replace(machine, network=network(given.network, "--network"))
        fitted, device = fits.fitted_constants()[fits.EVERYTHING], machine.gpu.called
    elif given.gpus is not None or given.nodes is not None or given.network is not None:
        raise UserError("--gpus, --nodes and --network are of GPUs of one kind: name it with --gpu, as in --gpu A100")
    elif methods in get_args(ModernMethods):
        models.listed(given.models, models.find_of_paper)
        if given.stack is not None:
            raise UserError(
                f"--stack {given.stack}: the parts of --methods {methods} are predicted for today's stack alone"
            )
        return _modern_table(given.format, {recipe.name for recipe in wanted})
    elif given.methods is not None:
        raise UserError(f"--methods {methods} needs --gpu: Tables 1 and 4 say which settings their cells had")
    else:
        models.listed(given.models, models.find_of_paper)
        return _tables(given.format, {recipe.name for recipe in wanted}, asked)
    if runs is not None:
        return _beside(given.format, runs, machine, fitted, wanted, device, asked, given.all)
    return _machine(given.format, machine, fitted, wanted, methods, asked, given.all)


def _machine(
    format: Format,
    machine: Machine,
    fitted: fits.Constants,
    wanted: Sequence[Recipe],
    methods: Methods,
    asked: DaysAsked,
    every: bool,
) -> int:
    """Print the search space of a recipe on one machine, the fastest first, or the fastest of each of several; with
    `every` all of all."""
    found, sources = list[tuple[ModelDays, list[SettingsDays]]](), dict[str, None]()
    for recipe in wanted:
        known = ModelDays(recipe.id, asked)
        assert known.traced is not None
        settings = settings_for(recipe, methods, machine.gpu, machine.world)
        if methods == "all":
            settings += [each for each in known.measured_settings(machine) if each not in settings]
        group = [forecast(recipe, machine, each, fitted, known.traced) for each in settings]
        if methods in get_args(ModernMethods):
            both = today(recipe, machine, fitted, known.traced)
            group += [both.free_lunch, both.exact, *([both.all] if methods == "modern" else [])]
        found.append((known, [each for each in known.on_settings(machine, group) if each.forecast is not None]))
        sources[f"{known.stack}, {report.from_traces(known.traced)}"] = None
    if format in FOR_MACHINES:
        print(render([_row(each, known) for known, group in found for each in group], format))
        return 0
    several = len(found) > 1
    if several:
        trains = sum(group[0].feasible for _, group in found)
        where = f"{machine.nodes} nodes of " if machine.nodes > 1 else ""
        answer = f"{trains} of {len(found)} models train on {where}{machine.gpus} x {machine.gpu.name}."
    else:
        answer = _sentence(found[0][1], found[0][0])
    first = several and not every
    lines = [each for _, group in found for each in (group[:1] if first else _feasible(group))]
    signs = report.signs(each.origin for each in lines)
    notes = [f"Days are predicted for {listing(list(sources))}{f'; {signs}' if signs else ''}."]
    if first:
        notes.append("The fastest settings of each model are shown: --all shows all settings of each.")
    elif reasons := listing([*filter(None, (_infeasible(group) for _, group in found))]):
        notes.append(f"Infeasible: {reasons}.")
    if isinstance(machine.gpu, CustomGpu):
        notes.append(machine.gpu.note)
    elif not several and found[0][1][0].bounds:
        notes.append("8 of 10 unseen cells and trials lie in such an interval as is in brackets.")
    print(people(answer, _lines(lines, several), notes, format, every))
    return 0


def _feasible(group: Sequence[SettingsDays]) -> Sequence[SettingsDays]:
    """Return the settings that train, or the first of those of which none does."""
    return [each for each in group if each.feasible] or group[:1]


def _infeasible(group: Sequence[SettingsDays]) -> str:
    """Return why some settings do not train; empty where all do, or none, of which the answer says why."""
    return report.reasons([each.forecast for each in group if each.forecast]) if group[0].feasible else ""


def _modern_table(format: Format, names: set[str]) -> int:
    """Print the days that Table 1 is predicted to take with free lunch and with modern settings."""
    found = table_1(names)
    rows = [
        {"origin": "predicted", "model": cell.model, "gpus": cell.gpus, "gpu": cell.gpu, "printed": cell.printed}
        | modern_row(each)
        for cell, each in found
    ]
    if format in FOR_MACHINES:
        print(render(rows, format))
        return 0
    ratios = [each.speed for _, each in found if each.speed is not None]
    answer = (
        f"Free lunch is predicted to take {min(ratios):.2f} to {max(ratios):.2f} times as long as modern settings, "
        f"{median(ratios):.2f} in the median of {len(ratios)} cells of Table 1."
        if ratios
        else "Nothing of this is predicted to train."
    )
    shown = {(cell.model, cell.gpu, cell.gpus): f"{each.speed:.2f}" if each.speed else "-" for cell, each in found}
    notes = [
        "Numbers are the days of free lunch over those of modern settings, each the fastest of the search; a dash is "
        "infeasible.",
        f"They are predicted {report.from_traces(traces.shipped()[-1])}; no record with parts was measured on a GPU.",
        "csv and json have the days, the micro batches and the settings.",
    ]
    print(people(answer, by_machine(shown), notes, format))
    return 0


def _beside(
    format: Format,
    runs: Joined,
    machine: Machine,
    fitted: fits.Constants,
    wanted: Sequence[Recipe],
    device: str,
    asked: DaysAsked,
    every: bool,
) -> int:
    """Print the trials measured on this machine, each with its prediction by the traces of its run's stack; where
    another number of its GPUs was measured, its predictions corrected by that."""
    ids = {recipe.id for recipe in wanted}
    found, rows = list[Comparison](), list[dict[str, Any]]()
    sources: dict[str, list[str]] = {}
    for run in runs.runs:
        stack, reason = _traced_for(run)
        there = compared_trials(
            [record for record in run.records if record.recipe in ids and record.origin == "measured"],
            device,
            machine,
            fitted,
            stack,
        )
        found += there
        rows += [report.beside_row(each, stack) for each in there]
        if there:
            sources.setdefault(report.traced(stack, reason), []).append(str(run.folder))
    if not found and machine.probed is None and machine.nodes == 1:
        corrected = {each.recipe for each in runs.records if each.device == device and each.like_papers} & ids
        if corrected:
            of_them = [recipe for recipe in wanted if recipe.id in corrected]
            return _machine(format, machine, fitted, of_them, "all", asked, every)
    if not found:
        where = f"{f'{machine.nodes} nodes of ' if machine.nodes > 1 else ''}{machine.gpus} x {device}"
        raise UserError(f"{runs.name} has no trial of these models that ran on {where}: {_had(runs.records)}")
    if format in FOR_MACHINES:
        print(render(rows, format))
        return 0
    disturbed = [each for each in found if each.record.timed and disturbance(each.record)]
    predicted_from = [
        f"{f'trials of {listing(folders)} ' if len(sources) > 1 else ''}{source}" for source, folders in sources.items()
    ]
    notes = [f"Steps are in true seconds, predicted {'; '.join(predicted_from)}."]
    notes += _true_days(machine, {each.record.recipe for each in found}, asked)
    if disturbed:
        named = "; ".join(f"{each.record.id}, {disturbance(each.record)}" for each in disturbed)
        notes.append(f"Disturbed, so that they show neither the GPU's speed nor what fits: {named}.")
    print(people(accuracy_text(found), [report.beside_line(each) for each in found], notes, format, every))
    return 0


def _true_days(machine: Machine, recipes: Iterable[str], asked: DaysAsked) -> list[str]:
    """Return a sentence on the true days of each recipe on a machine of the catalogue, unless all are predicted."""
    if machine.probed is not None or machine.nodes > 1:
        return []
    known = ((models.find(id), ModelDays(id, asked).on(machine.gpu, machine.gpus)) for id in sorted(recipes))
    named = [
        f"{recipe.name} {days.origin} {significant(days.days.value)}"
        for recipe, days in known
        if days is not None and days.origin != "predicted"
    ]
    return [f"True days on {machine.gpus} x {machine.gpu.name}: {', '.join(named)}."] if named else []


def _traced_for(run: Reading | None) -> tuple[traces.Traced, str]:
    """Return the traces nearest to the stack of a run, or to the installed one, and the reason for the choice."""
    if run is not None and run.environment.packages:
        packages = run.environment.packages
        stack = traces.nearest(packages)
        return stack, traces.nearest_reason(stack, packages, "what the run had")
    return traces.nearest_here(), traces.here_reason()


def _had(records: Sequence[Record]) -> str:
    ran: dict[str, dict[str, None]] = {}
    for record in records:
        ran.setdefault(record.machine, {})[record.recipe] = None
    there = [f"{', '.join(ran[machine])} on {machine}" for machine in sorted(ran)]
    return f"it has {'; '.join(there) or 'none'}"


def _tables(format: Format, names: set[str], asked: DaysAsked) -> int:
    known = {recipe_of(model).id: ModelDays(recipe_of(model).id, asked) for model in sorted(names)}
    judged = [verdict for run in asked.runs for verdict in run.verdicts]
    if asked.runs and all(verdict.true.days is None for verdict in judged):
        raise UserError(
            f"{listing([str(run.folder) for run in asked.runs])} has measured days of no cell of Tables 1 and 4: with "
            "--gpu or --probes the trials of its machine stand beside their predictions"
        )
    there = all_cells() if format in FOR_MACHINES else cells("1")
    rows = [_cell(known[recipe_of(cell.model).id], cell) for cell in there if cell.model in names]
    if format in FOR_MACHINES:
        print(render(rows, format))
        return 0
    ratios = [
        row["predicted_authors_days"] / row["printed_days"]
        for row in rows
        if row["predicted_authors_days"] and row["printed_days"]
    ]
    answer = (
        f"Table 1 predicted for {WHOSE[asked.stack]} stack, with the fastest settings of the search: in the median the "
        f"authors' clock is to show {median(ratios):.2f} times the printed days ({from_to(ratios, '.2f')})."
        if ratios
        else "No cell of Table 1 has printed days and is predicted to train."
    )
    signs = report.signs(row["origin"] for row in rows)
    traced = report.from_traces(traces.of_stack(asked.stack))
    notes = [f"True days, predicted {traced}; a dash is infeasible{f'; {signs}' if signs else ''}."]
    if others := sum(row["measured_days"] is not None and row["origin"] != "measured" for row in rows):
        notes.append(
            f"{counted(others, 'cell')} {were(others)} measured on another stack: csv and json have these days."
        )
    notes.append("csv and json also have Table 4, the printed days and the intervals.")
    print(people(answer, report.grid(rows), notes, format))
    return 0


def _cell(known: ModelDays, cell: Cell) -> dict[str, Any]:
    """Return the days of a cell of Table 1 or 4: the true ones, and those that are printed, predicted and measured."""
    machine, naive = Machine(paper_gpu(cell.gpu), cell.gpus), cell.table == "4"
    foretold = [known.forecast(machine, NAIVE)] if naive else ranked(known.searched(machine))
    rows = known.on_settings(machine, foretold)
    best = next(row for row in rows if row.settings == NAIVE.id) if naive else known.fastest(rows)
    measured = known.measured(cell.gpu, cell.gpus, naive)
    return {
        **report.cell_row(cell, foretold[0]),
        "days": best.days.value if best and best.days else None,
        "origin": best.origin if best else "predicted",
        "measured_days": measured.true_days if measured else None,
        "measured_on": measured.stack if measured else None,
    }


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
    prediction only where another number stands before it."""
    rows = list(found)
    known = any(each.origin != "predicted" for each in rows)
    beside = any(each.elsewhere for each in rows)
    lines = []
    for each in rows:
        assert each.forecast is not None
        line = report.line(each.forecast)
        first = {"model": line["model"]} if several else {}
        first |= {"settings": each.settings if each.feasible else None, "MBS": each.micro_batch}
        first |= {"days": each.days and f"{significant(each.days.value)}{report.SIGNS[each.origin]}"}
        first |= {"on the other stack": each.elsewhere and each.elsewhere.true_days} if beside else {}
        left_out = ("model", "settings", "MBS", *(() if known else ("predicted",)))
        lines.append(first | {key: value for key, value in line.items() if key not in left_out})
    return lines


def _sentence(rows: Sequence[SettingsDays], known: ModelDays) -> str:
    """Describe the fastest settings: what was measured or projected of them, and what is predicted."""
    best = rows[0]
    text = ""
    if best.origin != "predicted":
        days = f"{significant(best.days.value)} days" if best.days else "out of memory"
        text = f"{best.origin} {days} ({best.source}); "
    return report.sentence([row.forecast for row in rows if row.forecast], known.stack, text)


def _validate(given: argparse.Namespace) -> int:
    """Print how far off predictions are of what no fit had seen."""
    for name, value in vars(given).items():
        if name not in ("validate", "all", "format") and value not in (None, False, "text"):
            raise UserError(f"--{name.replace('_', '-')} changes nothing of --validate: leave one of them out")
    known = fits.fitted_constants()
    errors = known[fits.EVERYTHING].errors
    rows = scores.scored(known, _kept_records())
    if given.format in FOR_MACHINES:
        print(render([scores.full_row(each, errors) for each in rows], given.format))
        return 0
    parts = [people(scores.sentence(rows, errors), scores.summary(rows, errors), scores.NOTES, given.format)]
    more = {
        "Targets:": scores.target_rows(rows, errors),
        "Furthest off:": scores.worst(rows),
        "What does not depend on a rate, and the order of settings:": scores.counted(known[fits.EVERYTHING]),
        "Fitted, of all constants (repro/predict/constants.py):": scores.fitted_rows(known),
        "Where 8 of 10 measured days lie:": scores.interval_rows(errors),
    }
    parts += [f"{title}\n\n{render(table, given.format)}" for title, table in more.items() if given.all]
    print("\n\n".join(parts))
    return 0


def _kept_records() -> dict[str, list[Record]]:
    """Return the records of single GPUs in results/, by folder; none where only the package is installed."""
    folders = sorted(file.parent for file in DATA.glob("results/h[12]00/*/trials.jsonl"))
    return {folder.relative_to(DATA).as_posix(): list(read(folder).records) for folder in folders}
