"""`repro report`: write the results of a run as a page and as Markdown."""

from __future__ import annotations

import argparse
from pathlib import Path

from ..console import say
from ..formats import add_format, path
from .day_options import add_by

_PUBLISHED, _SEVERAL, _RELEASED = Path("results/published"), Path("results/report"), Path("results/released")


def options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "folders",
        nargs="*",
        type=path,
        metavar="DIR",
        help="a run's results, or those of several runs for one report (default: the published numbers alone)",
    )
    add(
        "--out",
        type=path,
        metavar="DIR",
        help=f"folder for report.html and report.md (default: the results' own folder; of several "
        f"{_SEVERAL}; without one {_PUBLISHED})",
    )
    add_by(parser, printed=False)
    add_format(parser)


def main(given: argparse.Namespace) -> int:
    from ..report.sections import compose
    from ..report.terminal import printed
    from ..report.write import refuse_to_lose, write
    from ..run.reading import begun, refuse_twice
    from ..run.records import print_problems

    refuse_twice(given.folders)
    found = [begun(folder, given.by) for folder in given.folders]
    report = compose(*found)
    out = given.out or (given.folders[0] if len(found) == 1 else _SEVERAL if found else _PUBLISHED)
    if found and found[0].released:
        out = given.out or _RELEASED
    elif found:
        refuse_to_lose(report, given.folders, out)
    written = write(report, out)
    print(printed(report, given.format), flush=True)
    for reading in found:
        print_problems(reading.problems, reading.folder)
    for note in report.runs.notes if report.runs else ():
        say(note)
    say(written)
    return 0
