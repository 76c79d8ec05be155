"""Interruptions of spot instances, in closed form and against a simulation."""

from __future__ import annotations

import math
import random
import statistics

import pytest

from repro.money.spot import Interruptions, daly, expected


def simulated(work: float, every: float, faced: Interruptions, seed: int, runs: int) -> list[float]:
    """Times of runs that are played through, interruption by interruption."""
    chance, times = random.Random(seed), []
    for _ in range(runs):
        clock, done, restarting = 0.0, 0.0, 0.0
        next_interruption = chance.expovariate(1 / faced.between)
        while done < work - 1e-9:
            stretch = min(every, work - done)
            needed = restarting or stretch + faced.checkpoint
            if clock + needed < next_interruption:
                clock += needed
                done += 0.0 if restarting else stretch
                restarting = 0.0
            else:
                clock = next_interruption
                next_interruption = clock + chance.expovariate(1 / faced.between)
                restarting = faced.restart
        times.append(clock)
    return times


@pytest.mark.parametrize(
    ("work", "every", "faced"),
    [
        (100.0, 1.0, Interruptions(12.0, 2 / 60, 10 / 60)),  # often saved
        (100.0, 7.0, Interruptions(12.0, 0.1, 0.5)),  # seldom saved, and the last stretch is shorter
        (10.0, 10.0, Interruptions(8.0, 0.25, 1.0)),  # saved at the end alone
        (30.0, 1.0, Interruptions(1.5, 0.2, 0.7)),  # interrupted all the time, also while restarting
    ],
)
def test_the_closed_form_is_what_a_simulation_gives(work: float, every: float, faced: Interruptions) -> None:
    times, closed = simulated(work, every, faced, seed=7, runs=4000), expected(work, every, faced)
    error = statistics.stdev(times) / len(times) ** 0.5
    assert abs(statistics.mean(times) - closed) < 4 * error
    assert error < 0.05 * closed  # tight enough to tell a wrong form from a right one


def test_without_interruptions_only_the_checkpoints_are_added() -> None:
    assert expected(100.0, 10.0, Interruptions(1e9, 0.5, 1.0)) == pytest.approx(105, rel=1e-6)


@pytest.mark.parametrize(("between", "best"), [(24 * 60, 117), (6 * 60, 57), (15, 9.1)])
def test_dalys_optimum_is_the_one_he_prints(between: float, best: float) -> None:
    # His figures 3 to 5: a checkpoint takes 5 minutes.
    assert daly(Interruptions(between, 5, 10)) == pytest.approx(best, rel=0.006)


def test_dalys_optimum_has_the_last_term_of_his_series() -> None:
    assert daly(Interruptions(2, 1, 1)) == pytest.approx(2 * (1 + 1 / 6 + 1 / 36) - 1)


@pytest.mark.parametrize("between", [60.0, 720.0, 5000.0])
def test_no_other_interval_beats_dalys_by_much(between: float) -> None:
    faced, work = Interruptions(between, 2, 10), 1e6
    best = min(expected(work, daly(faced) * factor / 100, faced) for factor in range(20, 500))
    assert expected(work, daly(faced), faced) < best * 1.0005


def test_checkpoints_slower_than_interruptions_leave_daly_at_the_mean_time_between() -> None:
    assert daly(Interruptions(1, 3, 1)) == 1


def test_a_run_that_ends_before_its_first_checkpoint_does_not_wait_for_it() -> None:
    faced = Interruptions(1.0, 0.01, 0.1)
    assert expected(10.0, 10_000.0, faced) == expected(10.0, 10.0, faced)


def test_a_time_beyond_floats_is_infinite() -> None:
    assert expected(1000.0, 1000.0, Interruptions(1.0, 0.1, 0.1)) == math.inf
