"""`repro compare`: compare two runs trial by trial, or this software stack with another on this machine."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import get_args

from .. import command, formats
from ..compare import report, side, trials
from ..compare.decision import ALPHA, FEWEST
from ..compare.side import Side, read_side
from ..compare.trials import Compared
from ..console import UserError
from ..formats import path, percent, shell_words
from ..machine.packages import without_build
from ..models.recipe import Scale
from ..printout import add_output
from ..run.plan import Planned
from .custom_models import add_models

_HELP = (
    "BEFORE and AFTER: a results folder, or a folder of such folders (each is one more start of its trials). The "
    "folders before and after of --against are compared in its pairs.\n"
    "exit codes: 0 nothing regressed; 1 something regressed or broke; 2 usage, or a stack that cannot be built or "
    "imported; 3 inconclusive, or too little for --accept; 130 interrupted (the same command resumes)"
)
BUDGET, _OUT = "15m", "results/upgrade"
_FEW = 6  # packages that a command names


def options(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _HELP
    parser.add_argument("before", nargs="?", type=path, metavar="BEFORE")
    parser.add_argument("after", nargs="?", type=path, metavar="AFTER")
    parser.add_argument(
        "--drift",
        metavar="10%",
        help=f"what one stack may differ from itself from run to run (default {percent(trials.DRIFT)}%); the pairs of "
        "--against have none",
    )
    add_output(parser)
    group = parser.add_argument_group("another stack", "in place of BEFORE and AFTER, both interleaved on this machine")
    add = group.add_argument
    add(
        "--against",
        metavar="LOCK|REQUIREMENTS",
        help='a lock, or "torch==2.12.0 transformers==5.24.0"; against a baseline of --accept this stack is judged',
    )
    add_models(parser, "with --against: recipes, by id (default: those that show most in the budget)")
    add("--methods", choices=get_args(Planned), help="default naive and free lunch")
    add("--scale", choices=get_args(Scale), help="size of the recipes (default: paper on GPUs, tiny on a CPU)")
    add("--gpus", metavar="all|N|0,1", help="GPUs to use, all of them for each trial")
    add("--budget", metavar="20m", help=f"choose the trials that show most in this time (default {BUDGET})")
    add("--pairs", metavar="N", help="starts of each stack, at most (default: as the budget allows)")
    add("--out", type=path, metavar="DIR", help=f"results folder (default {_OUT})")
    add(
        "--bisect",
        action="store_true",
        help="where something regressed, find the package by swapping packages; each swap gets the budget again",
    )
    add("--accept", action="store_true", help="keep the other stack's lock as this machine's baseline")


def main(given: argparse.Namespace) -> int:
    if given.against is not None:
        return _against(given)
    if given.before is None or given.after is None:
        raise UserError("expected BEFORE and AFTER, two results, or --against LOCK, another software stack")
    of_against = ("models", "methods", "scale", "gpus", "budget", "pairs", "out", "bisect", "accept")
    if useless := [name for name in of_against if getattr(given, name) not in (None, False)]:
        raise UserError(
            f"--{useless[0]} changes nothing without --against: leave it out; BEFORE and AFTER are measured"
        )
    drift = trials.DRIFT if given.drift is None else _share(given.drift, "--drift")
    before, after = read_side(given.before), read_side(given.after)
    compared = trials.compare(before, after, drift=drift)
    found = side.differences(before, after)
    alone, notes = trials.alone(before, after), _notes(before, after, compared)
    print(report.report(compared, found, before.name, after.name, notes, given.format, alone, every=given.all))
    return report.exit_code(compared)


def _against(given: argparse.Namespace) -> int:
    from .against import Against, measure

    for name, value in (("BEFORE", given.before), ("--drift", given.drift)):
        if value is not None:
            raise UserError(f"{name} changes nothing with --against, which measures both stacks: leave one of them out")
    plain = {name: getattr(given, name) for name in Against.__dataclass_fields__}
    pairs = formats.count_if_given(given.pairs, "--pairs", FEWEST, "fewer can call no change")
    return measure(
        Against(**plain | {"pairs": pairs, "budget": given.budget or BUDGET, "out": given.out or path(_OUT)})
    )


def _share(text: str, option: str) -> float:
    """Parse a share in percent, from 0% to 100%."""
    share = formats.number(text.removesuffix("%"), f"{option} {text}") if text.endswith("%") else None
    if share is None or share > 100:
        raise UserError(f"{option} {text}: expected a share from 0% to 100%, such as 10%")
    return share / 100


def _notes(before: Side, after: Side, compared: Sequence[Compared]) -> list[str]:
    """Describe the ratios or, where runs that were not interleaved leave an answer open, what would decide it."""
    apart = [each.judged for each in compared if each.judged and not each.judged.interleaved]
    if any(each.call == "inconclusive" for each in apart):
        return [_deciding(before, after)]
    how = ", start by start as these runs were not interleaved" if apart else ""
    return [
        f"A ratio is after over before, of seconds of a training step, with its {percent(1 - ALPHA)} interval{how}."
    ]


def _deciding(before: Side, after: Side) -> str:
    """Return the command that interleaves the two stacks, with the packages of AFTER that differ where they are few."""
    old, new = (each.environment.packages for each in (before, after))
    if old is not None and old == new:
        return "Both sides have the same packages, so there is no upgrade to decide on."
    changed = [f"{name}=={without_build(to)}" for name, to in (new or {}).items() if (old or {}).get(name, to) != to]
    against = " ".join(changed) if 0 < len(changed) <= _FEW else f"the lock of the stack of {after.name}"
    words = shell_words(["compare", "--against", against])
    return f"To decide it, interleave both stacks: {command()} {words}, on the stack of {before.name}."
