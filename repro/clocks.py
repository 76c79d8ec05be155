"""The two clocks that every measurement is read by, and the one that is held against the paper.

True days come from device time: what one would wait. The authors' clock is the paper's: host time without
synchronisation, which ends when the last kernel is launched.
"""

from __future__ import annotations

import argparse
from typing import Literal, get_args

Clock = Literal["true", "authors"]
CLOCKS: tuple[Clock, ...] = get_args(Clock)
DEFAULT: Clock = "true"

DAYS: dict[Clock, str] = {"true": "true days", "authors": "days by the authors' clock"}
BY_DAYS: dict[Clock, str] = {"true": "by true days", "authors": "by the authors' clock"}
BY_CLOCK: dict[Clock, str] = {"true": "by the true clock", "authors": "by the authors' clock"}  # of seconds


def other(clock: Clock) -> Clock:
    """Return the clock that stands beside this one."""
    return "authors" if clock == "true" else "true"


def days_text(days: float, clock: Clock) -> str:
    """Name days by their clock: 8.2 true days, 1.7 days by the authors' clock."""
    return f"{days:.1f} {DAYS[clock]}"


def add_clock(parser: argparse.ArgumentParser) -> None:
    """Add --clock."""
    parser.add_argument(
        "--clock",
        choices=CLOCKS,
        default=DEFAULT,
        help="the days that are held against the printed ones: true, what one would wait (default), or the authors' "
        "clock, host time without synchronisation",
    )
