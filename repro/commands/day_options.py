"""Options that say by which days a command answers, and for which software stack it predicts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

from ..console import UserError, say
from ..formats import path
from ..options import option, several
from ..predict.traces import Stack
from ..record import By
from ..run.reading import Reading, by_stack, measured, refuse_twice

_NONE = "none"


def by_option(default: By = "true", printed: bool = True) -> Any:
    """Declare --by; without `printed` for a command that judges measurements, which printed days are none of."""
    return option(
        f"the days to use: true ones{', the printed ones' if printed else ''}, or those by the authors' clock "
        f"(default: {default})",
        choices=[by for by in get_args(By) if printed or by != "printed"],
        default=default,
    )


def stack_option(default: Stack) -> Any:
    """Declare --stack, which changes predictions alone: a measurement keeps the stack that it was made with."""
    return option(
        "predict for the paper's software stack (torch 2.3.1, transformers 4.42.3) or for today's, the newest "
        f"traces (default: {default})",
        choices=get_args(Stack),
        default=default,
    )


def measured_runs(help: str) -> Any:
    """Declare --measured of a command that holds runs against published numbers."""
    return several(f"{help}; several times for several folders", "DIR", path)


def more_days() -> Any:
    """Declare --measured of a command that answers in days: it adds days to those of expected/measured.csv, or leaves
    all measured ones out."""
    return several(
        "add the days of this results folder to the measured ones that come with repro; several times for several "
        f"folders. {_NONE} leaves all measured days out (./{_NONE} is a folder of that name)",
        "DIR",
        lambda text, option: None if text == _NONE else path(text, option),
    )


def measured_days(folders: Sequence[Path | None], by: By = "true") -> tuple[tuple[Reading, ...], bool]:
    """Return the runs that --measured names, and whether the measured days that come with repro count. Raise UserError
    for folders beside none, and beside printed days."""
    named = [each for each in folders if each is not None]
    if named and None in folders:
        raise UserError(f"--measured {_NONE} leaves all measured days out: leave it or {named[0]} out")
    if folders and by == "printed":
        raise UserError("--by printed takes the paper's days alone, which --measured does not change: leave one out")
    refuse_twice(named)
    joined = by_stack(measured([folder]).runs[0] for folder in named)
    for note in (note for runs in joined for note in runs.notes):
        say(note)
    return tuple(run for runs in joined for run in runs.runs), None not in folders
