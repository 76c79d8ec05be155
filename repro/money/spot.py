"""The expected time of a training on spot instances, which are interrupted.

Interruptions are a Poisson process, in training, checkpointing and restarting alike. Each loses the work since the last
checkpoint, and then a restart takes its time. All times are in one unit, whichever.

Daly: J. T. Daly, A higher order estimate of the optimum checkpoint interval for restart dumps, Future Generation
Computer Systems 22 (2006) 303-312.
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Interruptions:
    """The mean time `between` two interruptions, the time to write a `checkpoint`, and the time to `restart`."""

    between: float
    checkpoint: float
    restart: float


def daly(faced: Interruptions) -> float:
    """Return the optimum training time between two checkpoints, by Daly's higher-order formula; the mean time between
    interruptions where checkpoints are too slow for the series."""
    ratio = faced.checkpoint / (2 * faced.between)
    if ratio >= 1:
        return faced.between
    first_order = math.sqrt(2 * faced.checkpoint * faced.between)
    return first_order * (1 + math.sqrt(ratio) / 3 + ratio / 9) - faced.checkpoint


def expected(work: float, every: float, faced: Interruptions) -> float:
    """Return the expected time from start to end of `work` of training, with a checkpoint after `every` and at the end.

    A stretch of length s (training and its checkpoint) ends when s passes without an interruption: Daly's complete
    model, M exp(R/M) (exp(s/M) - 1), with the last stretch as short as it is. Infinite where that exceeds a float.
    """
    stretches = max(math.ceil(work / every - 1e-9), 1)
    last = work - (stretches - 1) * every
    try:
        failures = sum(
            times * math.expm1((length + faced.checkpoint) / faced.between)
            for times, length in ((stretches - 1, every), (1, last))
            if times
        )
        return faced.between * math.exp(faced.restart / faced.between) * failures
    except OverflowError:
        return math.inf
