"""What interruptions cost a training that checkpoints: expected time in closed form, and how often to checkpoint.

Interruptions are Poisson, in training, checkpointing and restarting alike; each loses what came after the last
checkpoint, and then a restart takes its time. Times are in any one unit, the same for all.

Young: J. W. Young, A first order approximation to the optimum checkpoint interval, CACM 17 (1974) 530-531.
Daly: J. T. Daly, A higher order estimate of the optimum checkpoint interval for restart dumps, Future Generation
Computer Systems 22 (2006) 303-312.
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Interruptions:
    """`between` is the mean time between two, `checkpoint` what writing one takes, `restart` what coming back takes."""

    between: float
    checkpoint: float
    restart: float


@dataclass(frozen=True)
class Expectation:
    """The expected time from start to end, and the expected number of interruptions in it."""

    time: float
    interruptions: float


def young(faced: Interruptions) -> float:
    """The training between two checkpoints that Young's first order holds best."""
    return math.sqrt(2 * faced.checkpoint * faced.between)


def daly(faced: Interruptions) -> float:
    """The same by Daly's higher order; the mean time between interruptions where checkpoints are so
    slow that the series does not hold."""
    ratio = faced.checkpoint / (2 * faced.between)
    if ratio >= 1:
        return faced.between
    return young(faced) * (1 + math.sqrt(ratio) / 3 + ratio / 9) - faced.checkpoint


def expected(work: float, every: float, faced: Interruptions) -> Expectation:
    """For `work` of training with a checkpoint after `every` and at the end.

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
        attempts = math.exp(faced.restart / faced.between)
        return Expectation(faced.between * attempts * failures, attempts * failures)
    except OverflowError:
        return Expectation(math.inf, math.inf)
