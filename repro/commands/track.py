"""`repro track`: log what a results folder holds with a tracker."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from .. import datafile, files
from ..console import UserError, say
from ..formats import path, render
from ..options import Options, argument, option
from ..run.results import REPORT
from ..run.tracking import TRACKERS, failure, tracker


@dataclass(frozen=True, kw_only=True)
class Asked(Options):
    epilog = "Beside a run it logs the trials that have ended. Each call is one run of the tracker."
    folder: Path = argument("a run's results", "DIR", path)
    to: str = option("the tracker (default: tensorboard)", choices=TRACKERS, default="tensorboard")


def main(asked: Asked) -> int:
    from ..run.reading import begun
    from ..run.records import print_problems

    folder, reading = asked.folder, begun(asked.folder)
    print_problems(reading.problems, folder)
    report, verdicts = folder / REPORT, [verdict.row() for verdict in reading.verdicts]
    files.inside(folder, REPORT)  # a link would hand over a file of this user's, which the tracker may publish
    try:
        run = tracker(asked.to, folder, datafile.to_json(reading.environment))
        run.log(0, {f"cells/{word}": count for word, count in Counter(row["verdict"] for row in verdicts).items()})
        for number, record in enumerate(reading.records, 1):
            values = datafile.to_json(record.as_published)
            run.trial(number, {name: value for name, value in values.items() if isinstance(value, str | int | float)})
        run.text("verdicts", render(verdicts, "markdown"))
        run.text("report", files.read(report).decode() if report.is_file() else "The run has written no report yet.")
        run.finish()
    except Exception as error:  # whatever the tracker's library raises
        raise UserError(f"--to {asked.to}: {failure(error)}") from error
    say(f"tracked with {run.at}")
    return 0
