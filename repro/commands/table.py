"""`repro table`: print a table of the paper, with measured values beside it."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict

from ..console import UserError
from ..formats import FOR_MACHINES, FORMATS, add_format, prose, render
from ..paper.tables import TABLES
from ..record import BY_DAYS, DAYS, Clock, add_clock, other
from ..report.tables import NUMBERS, Number, Rows, layout, rows
from ..run.reading import add_measured, measured


def options(parser: argparse.ArgumentParser) -> None:
    metavar = f"{{{','.join(NUMBERS)}}}"  # an error shows it as the help does
    parser.add_argument(
        "number", choices=NUMBERS, metavar=metavar, type=str.lower, help="as in the paper; j is Appendix J"
    )
    add_measured(parser, "put this run's values beside the paper's")
    parser.add_argument(
        "--corrected",
        action="store_true",
        help="Table 1 or 4 by the days that one would really wait: with --measured those that the run measured, else "
        "those it projected; else predicted for the paper's stack",
    )
    parser.add_argument(
        "--methods",
        choices=("modern",),
        help="with --corrected, Table 1 also by the days that today's software is predicted to take: docs/modern.md",
    )
    add_clock(parser)
    add_format(parser, (*FORMATS, "latex"))


def main(given: argparse.Namespace) -> int:
    if given.methods and not (given.corrected and given.number == "1"):
        raise UserError("--methods modern is a column of Table 1 alone: use it as in table 1 --corrected")
    if given.corrected:
        return _corrected(given)
    if given.measured is None:
        found = rows(given.number)
    else:
        runs = measured(given.measured, given.clock)
        found = rows(given.number, runs.records, runs.verdicts, given.clock)
    if given.format in FOR_MACHINES:
        print(render(found, given.format))
        return 0
    print(render(layout(given.number, found), given.format))
    if given.format != "latex":
        print(f"\n{prose(_note(given.number, given.measured is not None, found), given.format)}")
    return 0


def _corrected(given: argparse.Namespace) -> int:
    from ..run import corrected

    if given.number not in TABLES:
        raise UserError(f"table {given.number} --corrected: Tables 1 and 4 alone hold days; name one of them")
    modern = given.methods is not None
    if given.measured is None:
        found = corrected.corrected_table(given.number, modern=modern)
    else:
        runs = measured(given.measured, given.clock)
        found = corrected.corrected_table(
            given.number, runs.verdicts, f"that of {runs.name}", given.methods is not None
        )
    if given.format in FOR_MACHINES:
        print(render([asdict(row) for row in found], given.format))
        return 0
    tables = [render(corrected.layout(found), given.format)]
    if elsewhere := corrected.measured_elsewhere(found):
        tables.append(render(elsewhere, given.format))
    if given.format == "latex":
        print("\n\n".join(tables))
        return 0
    cells, *beside = tables
    beside = [f"{corrected.MEASURED_ELSEWHERE}:\n\n{table}" for table in beside]
    lines = [corrected.title(given.number), *corrected.summary(found)]
    note = f"{corrected.basis(given.number)} {corrected.MODERN}" if given.methods else corrected.basis(given.number)
    basis = prose(note, given.format)
    print("\n\n".join([*(prose(line, given.format) for line in lines), cells, basis, *beside]))
    return 0


def _note(number: Number, measured: bool, found: Rows) -> str:
    name = "Appendix J" if number == "j" else f"Table {number}"
    source = f"Source: paper, {name}; --format csv names each row's."
    if number not in TABLES:
        lost = "? is a mark that the copy at hand has lost. " if number == "j" else ""
        beside = "Columns that begin with measured are this run's, a dash was not measured. " if measured else ""
        return f"{lost}{beside}{source}"
    marks = "- infeasible with all settings tried, ? a mark that the copy at hand has lost"
    if not measured:
        return f"Days of training; {marks}. {source}"
    clock: Clock = found[0]["clock"]
    judged = [f"{BY_DAYS[each]} {_counts(row[f'{each}_verdict'] for row in found)}" for each in (clock, other(clock))]
    return (
        f"Days of training; {marks}; in brackets, where a cell was measured, {DAYS[clock]}, after the slash "
        f"{DAYS[other(clock)]}, - where nothing fitted. Of {len(found)} cells {'; '.join(judged)}. {source}"
    )


def _counts(verdicts: Iterable[str]) -> str:
    return ", ".join(f"{count} {verdict.replace('_', ' ')}" for verdict, count in Counter(verdicts).items())
