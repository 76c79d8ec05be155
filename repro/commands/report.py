"""`repro report`: what a run found, as a page and as Markdown."""

from __future__ import annotations

import argparse
from pathlib import Path

from ..formats import add_format
from ..stderr import say
from ..units import path

_PUBLISHED = Path("results/published")


def options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("folder", nargs="?", type=path, metavar="DIR", help="a run's results (default: the published numbers alone)")
    add(
        "--out",
        type=path,
        metavar="DIR",
        help=f"folder for report.html and report.md (default: the results' own folder; without one {_PUBLISHED})",
    )
    add_format(parser)


def main(given: argparse.Namespace) -> int:
    from ..reading import begun, print_problems
    from ..report.content import compose
    from ..report.write import payload, refuse_to_lose, write

    reading = begun(given.folder) if given.folder else None
    content = compose(reading)
    out = given.out or given.folder or _PUBLISHED
    if reading:
        refuse_to_lose(content, reading.folder, out)
    written = write(content, out)
    records, devices = (reading.records, reading.devices) if reading else ((), None)
    print(payload(written, records, content.verdicts, devices, given.format), flush=True)
    if reading:
        print_problems(reading.problems, reading.folder)
    say(written.told)
    return 0
