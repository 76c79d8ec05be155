"""`repro predict`: predict days of training on GPUs of other machines, from traces of the real model code."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from dataclasses import replace
from statistics import median
from typing import Any, cast, get_args

from .. import models
from ..console import DATA, UserError, say
from ..formats import FOR_MACHINES, Format, add_format, count_if_given, listing, network, path, prose, render
from ..models.recipe import Recipe
from ..paper.arithmetic import paper_gpu
from ..paper.gpus import Gpu, OwnGpu, paper_gpus
from ..paper.own_gpu import own_gpu
from ..paper.tables import TABLES, Place, all_cells
from ..predict import calibration, own, report, scores, traces
from ..predict.calibration import here, load_probes
from ..predict.forecast import forecast, predicted, ranked
from ..predict.hardware import Machine, gpu_named
from ..predict.modern import row as modern_row
from ..predict.modern import table_1, today
from ..predict.report import Comparison, accuracy_text, compared_trials
from ..record import Record
from ..run.plan import Methods, ModernMethods, settings_for
from ..run.projection import projections
from ..run.reading import Joined, Reading, add_measured, read
from ..run.reading import measured as read_measured
from ..validity import Answer, disturbance
from .own_models import add_models
from .printout import answered


def options(parser: argparse.ArgumentParser) -> None:
    add_models(parser, "recipes, by id (default: all nine)")
    parser.add_argument(
        "--gpu",
        metavar="NAME|FILE",
        help="a GPU of the catalogue, such as 'RTX 4090', or a TOML file that describes one of your own; without it: "
        "Tables 1 and 4",
    )
    parser.add_argument(
        "--probes", type=path, metavar="FILE", help="a machine that repro calibrate measured, in place of --gpu"
    )
    parser.add_argument("--gpus", metavar="N", help="GPUs of each node (default: 1)")
    parser.add_argument("--nodes", metavar="N", help="nodes (default: 1)")
    parser.add_argument("--network", metavar="25Gb/s", help="speed of the network between nodes (default: 200Gb/s)")
    parser.add_argument(
        "--methods",
        choices=get_args(Methods),
        help="settings to predict (default: all); modern: also with the parts of today's training software, see "
        "docs/modern.md, without --gpu for Table 1",
    )
    add_measured(
        parser, "put this run beside the tables, or beside --gpu or --probes; of one GPU: project it to --gpus"
    )
    parser.add_argument("--validate", action="store_true", help="print the errors of the predictions")
    add_format(parser)


def main(given: argparse.Namespace) -> int:
    if given.validate:
        return _validate(given)
    if given.measured is not None and given.methods is not None:
        raise UserError(f"--methods {given.methods} changes nothing beside --measured, whose trials say their settings")
    runs = read_measured(given.measured) if given.measured is not None else None  # it may describe models
    wanted = [models.find(id) for id in models.listed(given.models, models.find_traced)]
    gpus, nodes = (count_if_given(getattr(given, name), f"--{name}") or 1 for name in ("gpus", "nodes"))
    methods = cast(Methods, given.methods or "all")
    if given.probes is not None:
        if given.gpu is not None or given.nodes is not None or given.network is not None:
            raise UserError("--probes names a machine of one node: leave --gpu, --nodes and --network out")
        probes = load_probes(given.probes)
        machine, fitted = here(probes, gpus, None)
        device = probes.device
        if probes.warning:
            say(probes.warning)
    elif given.gpu is not None:
        machine = Machine(own_gpu(given.gpu) or gpu_named(given.gpu), gpus, nodes)
        if given.network is not None:
            if nodes == 1:
                raise UserError(f"--network {given.network} is between nodes: say how many with --nodes")
            machine = replace(machine, network=network(given.network, "--network"))
        fitted, device = calibration.calibrations()[calibration.EVERYTHING], machine.gpu.called
    elif given.gpus is not None or given.nodes is not None or given.network is not None:
        raise UserError("--gpus, --nodes and --network are of GPUs of one kind: name it with --gpu, as in --gpu A100")
    elif methods in get_args(ModernMethods):
        models.listed(given.models, models.find_of_paper)
        return _modern_table(given.format, {recipe.name for recipe in wanted})
    elif given.methods is not None:
        raise UserError(f"--methods {methods} needs --gpu: Tables 1 and 4 say which settings their cells had")
    else:
        models.listed(given.models, models.find_of_paper)
        return _tables(given.format, {recipe.name for recipe in wanted}, runs)
    if runs is not None:
        known = machine.gpu if given.probes is None else probes
        return _beside(given.format, runs, machine, fitted, wanted, device, known)
    return _machine(given.format, machine, fitted, wanted, methods)


def _machine(
    format: Format,
    machine: Machine,
    fitted: calibration.Calibration,
    wanted: Sequence[Recipe],
    methods: Methods,
) -> int:
    """Print the search space of each recipe on one machine, the fastest first."""
    stack, why = _traced_for(None)
    stacks = {recipe.id: own.stack() if models.is_own(recipe.id) else stack for recipe in wanted}
    if all(models.is_own(recipe.id) for recipe in wanted):
        stack, why = own.stack(), "what is installed here, of your own model"
    found = []
    for recipe in wanted:
        settings = settings_for(recipe, methods, machine.gpu, machine.world)
        group = [forecast(recipe, machine, each, fitted, stack) for each in settings]
        if methods in get_args(ModernMethods):
            both = today(recipe, machine, fitted, stack)
            group += [both.free_lunch, both.exact, *([both.all] if methods == "modern" else [])]
        found.append(list({each.settings: each for each in ranked(group)}.values()))
    if format in FOR_MACHINES:
        print(render([report.row(each, stacks[each.recipe]) for group in found for each in group], format))
        return 0
    answer = "\n".join(report.sentence(group) for group in found)
    best = [report.fastest(group) for group in found]
    rest = [f"The fastest of each:\n\n{render(best, format)}"] if len(found) > 1 else []
    rest += [render([report.line(each) for each in group], format) for group in found]
    about = f"Predicted, not measured, {report.traced(stack, why)}"
    if stack != traces.PAPER_STACK:
        paper = traces.PAPER_STACK.transformers
        about += f"\nWithout --gpu, Tables 1 and 4 are predicted from the paper's traces, of transformers {paper}."
    if isinstance(machine.gpu, OwnGpu):
        about += f"\n{machine.gpu.note}"
    print(answered(answer, [*rest, prose(about, format)], format))
    return 0


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
    shown = [{key: value for key, value in row.items() if key != "origin"} for row in rows]
    about = (
        f"Predicted, not measured, {report.from_traces(traces.shipped()[-1])}: the fastest settings of the search on "
        "each machine, in true days, without parts and with those that are predicted to bring something. What parts do "
        "follows from the models' code and from their sources (docs/modern.md); no record with parts was measured on a "
        "GPU yet. A dash is infeasible."
    )
    print(answered(answer, [render(shown, format), prose(about, format)], format))
    return 0


def _beside(
    format: Format,
    runs: Joined,
    machine: Machine,
    fitted: calibration.Calibration,
    wanted: Sequence[Recipe],
    device: str,
    known: Gpu | calibration.Probes,
) -> int:
    """Print the trials measured on this machine, each with its prediction by the traces of its run's stack; where one
    device of it was measured alone, what that projects."""
    ids = {recipe.id for recipe in wanted}
    found, rows = list[Comparison](), list[dict[str, Any]]()
    sources: dict[str, list[str]] = {}
    for run in runs.runs:
        stack, why = _traced_for(run)
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
            sources.setdefault(report.traced(stack, why), []).append(str(run.folder))
    if not found and machine.nodes == 1:
        projected = projections((each for each in runs.records if each.recipe in ids), device, machine.gpus, known)
        if groups := [
            group for recipe in wanted if (group := [each for each in projected if each.recipe == recipe.id])
        ]:
            return _projected(format, machine, fitted, groups, _traced_for(None)[0])
    if not found:
        where = f"{f'{machine.nodes} nodes of ' if machine.nodes > 1 else ''}{machine.gpus} x {device}"
        raise UserError(f"{runs.name} has no trial of these models that ran on {where}: {_had(runs.records)}")
    if format in FOR_MACHINES:
        print(render(rows, format))
        return 0
    predicted_from = [
        f"{f'Trials of {listing(folders)} are predicted' if len(sources) > 1 else 'Predicted'} {source}"
        for source, folders in sources.items()
    ]
    about = "\n".join(
        (
            f"Steps in true seconds, and by the authors' clock. {' '.join(predicted_from)}",
            *(f"Disturbed: {one}." for one in _disturbed(each.record for each in found)),
        )
    )
    table = render([report.beside_line(row) for row in rows], format)
    print(answered(accuracy_text(found), [table, prose(about, format)], format))
    return 0


def _projected(
    format: Format,
    machine: Machine,
    fitted: calibration.Calibration,
    groups: Sequence[Sequence[Record]],
    stack: traces.Traced,
) -> int:
    """Print each recipe's settings on this machine, the fastest first: projected from one measured device where its
    records allow that, else predicted."""
    tables = []
    for group in groups:
        recipe, by_settings = group[0].recipe_and_settings[0], {record.settings: record for record in group}
        traced = own.stack() if models.is_own(recipe.id) else stack
        settings = settings_for(recipe, "all", machine.gpu, machine.world)
        settings += [ran for record in group if (ran := record.recipe_and_settings[1]) not in settings]
        predicted = ranked(forecast(recipe, machine, each, fitted, traced) for each in settings)
        tables.append(report.projected_rows(predicted, by_settings))
    if format in FOR_MACHINES:
        print(render([row for rows in tables for row in rows], format))
        return 0
    answer = "\n".join(map(report.projected_sentence, tables))
    about = (
        "Projected: one device was measured, and the communication with the others is modelled (docs/projection.md). "
        "Predicted: nothing was measured."
    )
    print(answered(answer, [*(render(rows, format) for rows in tables), prose(about, format)], format))
    return 0


def _disturbed(records: Iterable[Record]) -> list[str]:
    """Describe the trials that ran disturbed, so that they show neither the GPU's speed nor what fits."""
    return [f"{record.id}, {disturbance(record)}" for record in records if Answer.of(record) is Answer.DISTURBED]


def _traced_for(run: Reading | None) -> tuple[traces.Traced, str]:
    """Return the traces nearest to the stack of a run, or to the installed one, and the reason for the choice."""
    if run is not None and run.environment.packages:
        packages = run.environment.packages
        stack = traces.nearest(packages)
        return stack, traces.why_nearest(stack, packages, "what the run had")
    return traces.nearest_here(), traces.why_here()


def _had(records: Sequence[Record]) -> str:
    ran: dict[str, dict[str, None]] = {}
    for record in records:
        ran.setdefault(record.machine, {})[record.recipe] = None
    there = [f"{', '.join(ran[machine])} on {machine}" for machine in sorted(ran)]
    return f"it has {'; '.join(there) or 'none'}"


def _tables(format: Format, names: set[str], runs: Joined | None) -> int:
    fitted = calibration.calibrations()[calibration.EVERYTHING]
    measured: dict[tuple[str, Place], float | None] = {
        (verdict.table, verdict.place): verdict.authors.days  # predictions are for the authors' clock
        for verdict in (runs.verdicts if runs else ())
    }
    if runs and not any(days is not None for days in measured.values()):
        raise UserError(
            f"{runs.name} has measured days of no cell of Tables 1 and 4: with --gpu or --probes the trials of "
            "its machine stand beside their predictions"
        )
    listed = [cell for cell in all_cells() if cell.model in names]
    rows = [report.cell_row(cell, predicted(cell, fitted), measured.get((cell.table, cell.place))) for cell in listed]
    if format in FOR_MACHINES:
        print(render(rows, format))
        return 0
    for table in TABLES:
        what = "the best of the search" if table == "1" else "naive settings"
        grid = render(report.grid(row for row in rows if row["table"] == table), format)
        print(f"Table {table}, days with {what}: printed (predicted true days; by the authors' clock)\n\n{grid}\n")
    between = listing([f"{low:.2f} and {high:.2f} on {gpus}" for gpus, (low, high) in _intervals(fitted).items()])
    print(
        "A dash is infeasible, ? a mark that the copy at hand has lost; with --measured a measured number follows a "
        f"slash. The paper's days are by the authors' clock: 8 of 10 lie between {between} times what is predicted of "
        f"it. Predicted, not measured, {report.from_traces(traces.PAPER_STACK)}, which the printed days are of. "
        "With --gpu they are those nearest to what is installed here."
    )
    return 0


def _intervals(fitted: calibration.Calibration) -> dict[str, calibration.Factors]:
    """Return the interval of each kind of GPU with a column in the tables, by the names of its GPUs."""
    found: dict[calibration.Factors, list[str]] = {}
    for name in paper_gpus():
        interval = fitted.interval(Machine(paper_gpu(name), 1))
        assert interval is not None, "the paper has days of it"
        found.setdefault(interval, []).append(name)
    return {" and ".join(names): interval for interval, names in found.items()}


def _validate(given: argparse.Namespace) -> int:
    """Print how far off predictions are of what no fit had seen."""
    for name, value in vars(given).items():
        if name not in ("validate", "format") and value not in (None, False, "text"):
            raise UserError(f"--{name.replace('_', '-')} changes nothing of --validate: leave one of them out")
    fits = calibration.calibrations()
    errors = fits[calibration.EVERYTHING].errors
    rows = scores.scored(fits, _kept_records())
    if given.format in FOR_MACHINES:
        print(render([scores.full_row(each, errors) for each in rows], given.format))
        return 0
    answer = scores.sentence(rows, errors)
    tables = [
        ("", scores.target_rows(rows, errors)),
        (
            "Each measurement, predicted by a fit that had not seen its recipe, its GPU, or anything of its source:",
            scores.summary(rows, errors),
        ),
        ("Furthest off:", scores.worst(rows)),
        ("What does not depend on a rate, and the order of settings:", scores.counted(fits[calibration.EVERYTHING])),
        ("Fitted, of all constants (repro/predict/constants.py):", scores.fitted_rows(fits)),
        ("Where 8 of 10 measured days lie:", scores.interval_rows(errors)),
    ]
    parts = [f"{title}\n\n{render(table, given.format)}".lstrip() for title, table in tables]
    print(answered(answer, [*parts, prose(scores.ABOUT, given.format)], given.format))
    return 0


def _kept_records() -> dict[str, list[Record]]:
    """Return the records of single GPUs in results/, by folder; none where only the package is installed."""
    folders = sorted(file.parent for file in DATA.glob("results/h[12]00/*/trials.jsonl"))
    return {folder.relative_to(DATA).as_posix(): list(read(folder).records) for folder in folders}
