"""Seconds from sending a trial's job to a warm fork server to the first micro-step of it."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median
from typing import Any

from repro import models

from . import Ask, tell, warm_ranks

REPEATS = 5


def starts(ask: Ask, recipe: str, ranks: int, repeats: int = REPEATS) -> Iterator[float]:
    """Yield the seconds of the slowest rank to its first micro-step, for the search and for the timing of a trial."""
    common = {"recipe": recipe, "scale": "tiny", "settings": "naive", "tf32": False}
    timing = {"compiled": False, "micro_batch": 1, "accumulation": 1, "steps": 1, "check_extrapolation": False}
    for _ in range(repeats):
        for phase, arguments in (("fit", {"start": 1, "largest": 1}), ("measure", timing)):
            outcomes = ask(f"repro.measure.phases:{phase}", ranks=ranks, **common, **arguments)
            yield max(outcome.started for outcome in outcomes if outcome.started is not None)


def row(name: str, seconds: list[float]) -> dict[str, Any]:
    return {"recipe": name, "median (s)": median(seconds), "slowest (s)": max(seconds), "starts": len(seconds)}


def rows() -> list[dict[str, Any]]:
    found, everything = [], []
    with warm_ranks() as ask:
        for recipe in models.IDS:
            seconds = list(starts(ask, recipe, ranks=1))
            found.append(row(recipe, seconds))
            everything += seconds
        seconds = list(starts(ask, "pythia-1b", ranks=2))
    found.append(row("pythia-1b, 2 ranks", seconds))
    return [*found, row("all", everything + seconds)]


if __name__ == "__main__":
    tell(__doc__, rows)
