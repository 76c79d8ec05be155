"""Options that say by which days a command answers, and for which software stack it predicts."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import get_args

from ..console import UserError, say
from ..formats import path
from ..predict.traces import Stack
from ..record import By
from ..run.reading import Reading, by_stack, measured, refuse_twice

_NONE = "none"


def add_by(parser: argparse.ArgumentParser, default: By = "true", printed: bool = True) -> None:
    """Add --by; without `printed` for a command that judges measurements, which printed days are none of."""
    choices = get_args(By) if printed else [by for by in get_args(By) if by != "printed"]
    parser.add_argument(
        "--by",
        choices=choices,
        default=default,
        help=f"the days to use: true ones{', the printed ones' if printed else ''}, or those by the authors' clock "
        f"(default: {default})",
    )


def add_stack(parser: argparse.ArgumentParser, default: Stack) -> None:
    """Add --stack, which changes predictions alone: a measurement keeps the stack that it was made with."""
    parser.add_argument(
        "--stack",
        choices=get_args(Stack),
        default=default,
        help="predict for the paper's software stack (torch 2.3.1, transformers 4.42.3) or for today's, the newest "
        f"traces (default: {default})",
    )


def add_measured_days(parser: argparse.ArgumentParser) -> None:
    """Add --measured, which adds days to those of expected/measured.csv, or leaves all measured ones out."""
    parser.add_argument(
        "--measured",
        action="append",
        type=_folder,
        metavar="DIR",
        help="add the days of this results folder to the measured ones that come with repro; several times for several "
        f"folders. {_NONE} leaves all measured days out (./{_NONE} is a folder of that name)",
    )


def _folder(text: str) -> Path | None:
    return None if text == _NONE else path(text)


def measured_days(given: argparse.Namespace) -> tuple[tuple[Reading, ...], bool]:
    """Return the runs that --measured names, and whether the measured days that come with repro count. Raise UserError
    for folders beside none, and beside printed days."""
    folders = given.measured or []
    named = [each for each in folders if each is not None]
    if named and None in folders:
        raise UserError(f"--measured {_NONE} leaves all measured days out: leave it or {named[0]} out")
    if folders and getattr(given, "by", "true") == "printed":
        raise UserError("--by printed takes the paper's days alone, which --measured does not change: leave one out")
    refuse_twice(named)
    joined = by_stack(measured([folder]).runs[0] for folder in named)
    for note in (note for runs in joined for note in runs.notes):
        say(note)
    return tuple(run for runs in joined for run in runs.runs), None not in folders
