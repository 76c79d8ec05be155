"""`repro predict`: days of training on GPUs that are not here, from traces of the real model code."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, get_args

import models

from ..errors import UserError
from ..expected import Cell, Table, cells
from ..findings import Place
from ..formats import add_format, figures, render
from ..plan import Methods, settings_for
from ..predict import calibration, traces
from ..predict.beside import beside, told
from ..predict.forecast import Forecast, forecast, ranked
from ..predict.here import here
from ..predict.machine import Machine, gpu_named
from ..predict.probed import load
from ..predict.tables import predicted
from ..reading import Reading
from ..reading import measured as read_measured
from ..stack import installed
from ..trial import Record
from ..units import path

_TABLES: tuple[Table, ...] = ("1", "4")


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--models", default=",".join(models.IDS), metavar="ID,...", help="recipes, by id")
    parser.add_argument("--gpu", help="a GPU of the catalogue, such as 'RTX 4090'; without it: Tables 1 and 4")
    parser.add_argument(
        "--probes", type=path, metavar="FILE", help="a machine that repro calibrate measured, in place of --gpu"
    )
    parser.add_argument("--gpus", type=int, default=1, metavar="N", help="GPUs of each node (default: 1)")
    parser.add_argument("--nodes", type=int, default=1, metavar="N", help="nodes (default: 1)")
    parser.add_argument("--methods", choices=get_args(Methods), default="all", help="settings (default: all)")
    parser.add_argument(
        "--measured", type=path, metavar="DIR", help="put this run beside the tables, or beside --gpu or --probes"
    )
    work = parser.add_mutually_exclusive_group()
    work.add_argument("--validate", action="store_true", help="print the errors of the predictions")
    work.add_argument(
        "--fit", action="store_true", help="fit the rates to expected/ again, and to a run (--measured), 3 minutes"
    )
    work.add_argument("--rebuild-traces", action="store_true", help="trace every recipe on the installed stack")
    add_format(parser)


def main(given: argparse.Namespace) -> int:
    for work, do in (("rebuild_traces", _rebuild), ("fit", _fit), ("validate", _validate)):
        if getattr(given, work):
            _refuse_others(given, work)
            return do(given)
    for option in ("gpus", "nodes"):
        if getattr(given, option) < 1:
            raise UserError(f"--{option} {getattr(given, option)}: expected at least 1")
    wanted = [models.find_of_paper(id) for id in given.models.split(",")]
    if given.probes is not None:
        if given.gpu is not None or given.nodes != 1:
            raise UserError("--probes names a machine of one node: leave --gpu and --nodes out")
        probes = load(given.probes)
        return _machine(given, *here(probes, given.gpus, None), wanted, probes.device)
    if given.gpu is None:
        if given.gpus != 1 or given.nodes != 1:
            raise UserError("--gpus and --nodes count GPUs of one kind: name it with --gpu, as in --gpu A100")
        if given.methods != "all":
            raise UserError(f"--methods {given.methods} needs --gpu: Tables 1 and 4 say which settings their cells had")
        return _tables(given, {recipe.name for recipe in wanted})
    gpu = gpu_named(given.gpu)
    machine = Machine(gpu, given.gpus, given.nodes)
    return _machine(given, machine, calibration.load()[calibration.EVERYTHING], wanted, gpu.paper_name or gpu.name)


def _refuse_others(given: argparse.Namespace, work: str) -> None:
    """Options that `work` would leave out without a word."""
    plain = argparse.ArgumentParser()
    options(plain)
    for name, value in vars(plain.parse_args([])).items():
        taken = {work, "format" if work == "validate" else "measured" if work == "fit" else ""}
        if name not in taken and getattr(given, name) != value:
            option, alone = name.replace("_", "-"), work.replace("_", "-")
            raise UserError(f"--{option} changes nothing of --{alone}: leave one of them out")


def _machine(
    given: argparse.Namespace,
    machine: Machine,
    fitted: calibration.Calibration,
    wanted: Sequence[Any],
    device: str,
) -> int:
    stack = traces.nearest(installed("transformers"))
    if given.measured is not None:
        return _beside(given, machine, fitted, {recipe.id for recipe in wanted}, device)
    found = []
    for recipe in wanted:
        settings = settings_for(recipe, given.methods, machine.gpu, machine.world)
        found.append(ranked(forecast(recipe, machine, each, fitted, stack) for each in settings))
    every = [each for group in found for each in group]
    if given.format in ("json", "csv"):
        print(render([_row(each, stack) for each in every], given.format))
        return 0
    for group in found:
        print(render([_people(each) for each in group], given.format))
        print(f"\n{_best(group)}\n")
    print(_note(stack))
    return 0


def _beside(
    given: argparse.Namespace, machine: Machine, fitted: calibration.Calibration, ids: set[str], device: str
) -> int:
    """What a run measured on this machine, with its prediction."""
    run = read_measured(given.measured)
    stack = _traced_for(run)
    found = beside([record for record in run.records if record.recipe in ids], device, machine, fitted, stack)
    if not found:
        raise UserError(
            f"{given.measured} has no trial of these models on {machine.gpus} x {device} with all of its memory: "
            f"{_had(run.records)}"
        )
    rows = [
        {
            "origin": "predicted and measured",
            "model": each.record.recipe,
            "scale": each.record.scale,
            "gpu": device,
            "gpus": machine.gpus,
            "settings": each.record.settings,
            "status": each.record.status,
            "predicted_micro_batch": each.forecast.micro_batch or None,
            "measured_micro_batch": each.record.micro_batch,
            "predicted_step": each.forecast.step and each.forecast.step.total,
            "measured_step": each.record.authors_step,
            "predicted_over_measured": each.ratio,
            "inside_interval": each.inside,
            "traced_transformers": stack,
        }
        for each in found
    ]
    if given.format in ("json", "csv"):
        print(render(rows, given.format))
        return 0
    shown = [key for key in rows[0] if key not in ("origin", "gpu", "gpus", "traced_transformers")]
    print(render([{key.replace("_", " "): row[key] for key in shown} for row in rows], given.format))
    print(f"\n{told(found)} Steps in seconds, by the authors' clock. Predicted {_traced(stack)}")
    return 0


def _traced_for(run: Reading) -> str:
    """The traces nearest to the stack of a run."""
    return traces.nearest(run.environment.get("packages", {}).get("transformers") or installed("transformers"))


def _had(records: Sequence[Record]) -> str:
    there = sorted({f"{record.count} x {record.device}" for record in records})
    return f"it has some on {', '.join(there)}"


def _tables(given: argparse.Namespace, names: set[str]) -> int:
    fitted = calibration.load()[calibration.EVERYTHING]
    measured: dict[tuple[str, Place], float | None] = {
        (verdict.table, (verdict.model, verdict.gpu, verdict.gpus)): verdict.measured_days
        for verdict in (read_measured(given.measured).verdicts if given.measured else ())
    }
    listed = [cell for table in _TABLES for cell in cells(table) if cell.model in names]
    rows = [
        _cell(cell, predicted(cell, fitted), measured.get((cell.table, (cell.model, cell.gpu, cell.gpus))))
        for cell in listed
    ]
    if given.format in ("json", "csv"):
        print(render(rows, given.format))
        return 0
    for table in _TABLES:
        what = "the best of the search" if table == "1" else "naive settings"
        print(f"Table {table}, days with {what}: expected (predicted)\n")
        print(render(_layout([row for row in rows if row["table"] == table]), given.format), end="\n\n")
    low, high = fitted.interval
    print(
        f"- infeasible, ? a mark that the copy at hand has lost; with --measured a measured number follows a slash. "
        f"8 of 10 plausible cells lie between {low:.2f} and {high:.2f} times their prediction. "
        f"{_note(traces.PAPER_STACK)}"
    )
    return 0


def _cell(cell: Cell, best: Forecast, measured: float | None) -> dict[str, Any]:
    return {
        "table": cell.table,
        "model": cell.model,
        "gpu": cell.gpu,
        "gpus": cell.gpus,
        "state": cell.state,
        "expected_days": cell.days,
        "predicted_days": best.days and best.days.value,
        "predicted_low": best.days and best.days.low,
        "predicted_high": best.days and best.days.high,
        "predicted_settings": best.settings.id if best.feasible else None,
        "predicted_micro_batch": best.micro_batch or None,
        "measured_days": measured,
        "source": cell.source,
    }


def _layout(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    lines: dict[str, dict[str, Any]] = {}
    for row in rows:
        line = lines.setdefault(row["model"], {"model": row["model"]})
        expected = {"days": str(row["expected_days"]), "infeasible": "-", "lost": "?"}[row["state"]]
        found = "-" if row["predicted_days"] is None else figures(row["predicted_days"])
        measured = "" if row["measured_days"] is None else f" / {figures(row['measured_days'])}"
        line[f"{row['gpus']} x {row['gpu']}"] = f"{expected} ({found}){measured}"
    return list(lines.values())


def _row(each: Forecast, stack: str) -> dict[str, Any]:
    """Everything that was predicted: memory in bytes of one GPU, times in seconds of a training step."""
    memory = asdict(each.memory) if each.memory else dict.fromkeys(_MEMORY)
    seconds = asdict(each.step) if each.step else dict.fromkeys(_SECONDS)
    return {
        "origin": "predicted",
        "model": each.recipe,
        "gpu": each.machine.gpu.name,
        "gpus": each.machine.gpus,
        "nodes": each.machine.nodes,
        "settings": each.settings.id,
        "feasible": each.feasible,
        "reason": each.reason,
        "micro_batch": each.micro_batch or None,
        "accumulation": each.accumulation,
        "days": each.days and each.days.value,
        "days_low": each.days and each.days.low,
        "days_high": each.days and each.days.high,
        "utilisation": each.utilisation,
        "peak_memory": each.memory and each.memory.peak,
        **{f"memory_{part}": value for part, value in memory.items()},
        "step_seconds": each.step and each.step.total,
        **{f"seconds_{part}": value for part, value in seconds.items()},
        "traced_transformers": stack,
    }


_MEMORY = ("weights", "gradients", "optimizer", "activations", "buckets", "workspace")
_SECONDS = ("compute", "memory", "launches", "communication", "offload", "update")


def _people(each: Forecast) -> dict[str, Any]:
    memory, step = each.memory, each.step
    return {
        "model": each.recipe,
        "settings": each.settings.id,
        "MBS": each.micro_batch or None,
        "predicted days": each.days and each.days.value,
        "of peak": None if each.utilisation is None else f"{each.utilisation:.0%}",
        "memory (GB)": memory and memory.peak / 1e9,
        "of it activations": memory and memory.activations / 1e9,
        **{f"{part} (%)": step and 100 * getattr(step, part) / step.total for part in _SECONDS},
    }


def _best(group: Sequence[Forecast]) -> str:
    best = group[0]
    cell = f"{models.find(best.recipe).name} on {best.machine.world} x {best.machine.gpu.name}"
    if best.days is None:
        return f"{cell}: predicted infeasible with every settings above: {best.reason}."
    return (
        f"{cell}: predicted {figures(best.days.value)} days "
        f"({figures(best.days.low)} to {figures(best.days.high)}, as 8 of 10 of the paper's plausible cells) "
        f"with {best.settings.id}."
    )


def _note(stack: str) -> str:
    return f"Predicted, not measured, {_traced(stack)}"


def _traced(stack: str) -> str:
    traced = {package: version.partition("+")[0] for package, version in traces.versions(stack).items()}
    of = ", ".join(f"{package} {version}" for package, version in sorted(traced.items()) if package != "transformers")
    whose = ", the paper's" if stack == traces.PAPER_STACK else ""
    note = f"from traces of the models of transformers {stack}{whose} ({of})"
    here = {package: (installed(package) or version).partition("+")[0] for package, version in traced.items()}
    others = [f"{package} {here[package]}" for package in sorted(traced) if here[package] != traced[package]]
    if stack == traces.PAPER_STACK or not others:
        return f"{note}."
    return f"{note}; installed is {', '.join(others)}, which repro predict --rebuild-traces can trace."


def _rebuild(given: argparse.Namespace) -> int:
    try:
        from ..predict.trace import all_traces
    except ImportError as error:
        raise UserError(f"tracing needs the stack ({error.name} is missing): set up with ./run_all.sh") from None
    found = []
    for each in all_traces():
        print(f"{each.recipe} {each.variant}", file=sys.stderr)
        found.append(each)
    print(f"{len(found)} traces in {traces.save(found)}")
    return 0


def _fit(given: argparse.Namespace) -> int:
    from ..predict.fit import fit_all, measured_observations, observations

    def progress(name: str) -> None:
        print("fitting everything" if name == calibration.EVERYTHING else f"fitting without {name}", file=sys.stderr)

    seen = observations()
    if given.measured is not None:
        run = read_measured(given.measured)
        added = measured_observations(run.records, _traced_for(run))
        if not added:
            raise UserError(f"{given.measured} has no trial at the paper's scale on a GPU of the catalogue to fit to")
        seen += added
    fits = fit_all(seen, progress)
    calibration.save(fits)
    print(f"{len(fits)} fits to {len(seen)} cells and trials in {calibration.FILE}")
    return 0


def _validate(given: argparse.Namespace) -> int:
    from ..predict.validate import validate

    scores = validate(calibration.load())
    if given.format in ("json", "csv"):
        print(render([asdict(score) for score in scores], given.format))
        return 0
    print(render([asdict(score) for score in scores], given.format))
    missed = [score for score in scores if score.met is False]
    print(
        f"\n{sum(score.met is True for score in scores)} of {sum(score.met is not None for score in scores)} targets "
        "are met" + "".join(f"; {_miss(score)}" for score in missed) + "."
    )
    return 0


def _miss(score: Any) -> str:
    return f"{score.metric} of table {score.table}, {score.split}: {score.value:.3g}, target {score.target:g}"
