"""`repro predict` without a machine: Tables 1 and 4, with parts of modern training, and the errors of predictions."""

from __future__ import annotations

from statistics import median
from typing import Any

from ..console import DATA, UserError
from ..formats import FOR_MACHINES, Format, by_machine, counted, from_to, listing, render, were
from ..money.days import DaysAsked, ModelDays
from ..money.measurements import WHOSE
from ..paper.arithmetic import paper_gpu, recipe_of
from ..paper.settings import NAIVE
from ..paper.tables import Cell, all_cells, cells
from ..predict import fits, report, scores, traces
from ..predict.forecast import ranked
from ..predict.hardware import Machine
from ..predict.today import row as modern_row
from ..predict.today import table_1
from ..printout import people
from ..record import Record
from ..released.results import Archive
from ..run.reading import read


def tables(format: Format, names: set[str], asked: DaysAsked, archive: Archive | None) -> str:
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
        if archive:
            further = {(cell.printed.table, *cell.place): cell.days for cell in archive.cells}
            for row in rows:
                row["released_days"] = further[row["table"], row["model"], row["gpu"], row["gpus"]]
        return render(rows, format)
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
    return people(answer, report.grid(rows), notes, format)


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


def modern_table(format: Format, names: set[str]) -> str:
    """Return the days that Table 1 is predicted to take with free lunch and with modern settings."""
    found = table_1(names)
    rows = [
        {"origin": "predicted", "model": cell.model, "gpus": cell.gpus, "gpu": cell.gpu, "printed": cell.printed}
        | modern_row(each)
        for cell, each in found
    ]
    if format in FOR_MACHINES:
        return render(rows, format)
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
    return people(answer, by_machine(shown), notes, format)


def validate(format: Format, every: bool) -> str:
    """Return how far off predictions are of what no fit had seen."""
    known = fits.fitted_constants()
    errors = known[fits.EVERYTHING].errors
    rows = scores.scored(known, _kept_records())
    if format in FOR_MACHINES:
        return render([scores.full_row(each, errors) for each in rows], format)
    parts = [people(scores.sentence(rows, errors), scores.summary(rows, errors), scores.NOTES, format)]
    more = {
        "Targets:": scores.target_rows(rows, errors),
        "Furthest off:": scores.worst(rows),
        "Public times of a training step, in seconds:": scores.public_times(known[fits.EVERYTHING]),
        "Fitted, of all constants (repro/predict/constants.py):": scores.fitted_rows(known),
        "Where 8 of 10 measured days lie:": scores.interval_rows(errors),
    }
    parts += [f"{title}\n\n{render(table, format)}" for title, table in more.items() if every]
    return "\n\n".join(parts)


def _kept_records() -> dict[str, list[Record]]:
    """Return the records of single GPUs in results/, by folder, and those of contributors that are no copies of these;
    none where only the package is installed."""
    from ..verify.contribute import listed, raw_times  # with claims, which no other prediction needs

    folders = sorted(file.parent for file in DATA.glob("results/h[12]00/*/trials.jsonl"))
    found = {folder.relative_to(DATA).as_posix(): list(read(folder).records) for folder in folders}
    ours = {raw_times(record) for records in found.values() for record in records}
    for row in listed(DATA / "results"):
        records = read(DATA / "results" / row.folder).records
        found[f"results/{row.folder}"] = [record for record in records if raw_times(record) not in ours]
    return found
