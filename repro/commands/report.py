"""`repro report`: write the results of a run as a page and as Markdown."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..console import say
from ..formats import Format, path
from ..options import Options, argument, format_option, option
from ..record import Clock
from .day_options import by_option

_PUBLISHED, _SEVERAL, _RELEASED = Path("results/published"), Path("results/report"), Path("results/released")


@dataclass(frozen=True, kw_only=True)
class Asked(Options):
    folders: tuple[Path, ...] = argument(
        "a run's results, or those of several runs for one report (default: the published numbers alone)",
        "DIR",
        path,
        nargs="*",
    )
    out: Path | None = option(
        "folder for report.html and report.md (default: the results' own folder; of several "
        f"{_SEVERAL}; without one {_PUBLISHED})",
        "DIR",
        path,
    )
    by: Clock = by_option(printed=False)
    format: Format = format_option()


def main(asked: Asked) -> int:
    from ..report.sections import compose
    from ..report.terminal import printed
    from ..report.write import refuse_to_lose, write
    from ..run.reading import begun, refuse_twice
    from ..run.records import print_problems

    refuse_twice(asked.folders)
    found = [begun(folder, asked.by) for folder in asked.folders]
    report = compose(*found)
    out = asked.out or (asked.folders[0] if len(found) == 1 else _SEVERAL if found else _PUBLISHED)
    if found and found[0].released:
        out = asked.out or _RELEASED
    elif found:
        refuse_to_lose(report, asked.folders, out)
    written = write(report, out)
    print(printed(report, asked.format), flush=True)
    for reading in found:
        print_problems(reading.problems, reading.folder)
    for note in report.runs.notes if report.runs else ():
        say(note)
    say(written)
    return 0
