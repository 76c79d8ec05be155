"""Options that say by which days a command answers, and for which software stack it predicts."""

from __future__ import annotations

import argparse
from typing import Literal, get_args

By = Literal["true", "printed", "authors"]  # true days, the paper's printed ones, days by the authors' clock
Stack = Literal["paper", "today"]


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
