"""`repro compare`: compare two runs, trial by trial."""

from __future__ import annotations

import argparse

from .. import command
from ..compare import report, side, trials
from ..compare.decision import ALPHA, SEPARATE_A_ROUND
from ..compare.side import read_side
from ..formats import add_format, path

_PLACES = (
    "BEFORE and AFTER: a results folder, a folder of such folders (each is one more process of its trials), "
    "pytest-benchmark's JSON of a run, or a baseline that repro upgrade-check --accept wrote.\n"
    "exit codes: 0 nothing regressed; 1 something regressed or broke; 2 usage; 3 inconclusive"
)


def options(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _PLACES
    parser.add_argument("before", type=path, metavar="BEFORE")
    parser.add_argument("after", type=path, metavar="AFTER")
    add_format(parser)


def main(given: argparse.Namespace) -> int:
    before, after = read_side(given.before), read_side(given.after)
    compared = trials.compare(before, after)
    notes = [
        "ratio: after over before, of seconds of a training step. Only starts of the stack are independent, so the "
        f"interval ({1 - ALPHA:.0%}, Mann-Whitney) is over starts, each the median of its processes, and the ratio the "
        "median of each start after over each before, which is not quite that of the two times. A call takes "
        f"{2 * SEPARATE_A_ROUND} starts a side, each half of which has to show it by itself; {command()} upgrade-check "
        "runs them interleaved."
    ]
    found = side.differences(before, after)
    only = trials.only_in(before, after), trials.only_in(after, before)
    print(report.report(compared, found, before.name, after.name, notes, given.format, *only))
    return report.exit_code(compared)
