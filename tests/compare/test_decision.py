"""The decision rule: exact intervals, and on simulated machines few false alarms and few misses."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterator, Sequence
from statistics import median
from typing import Any

import pytest

from repro.compare import decision
from repro.compare.budget import FORKS
from repro.compare.decision import (
    ALPHA,
    EARLY,
    FEWEST,
    FINAL,
    FIRST_LOOK,
    Pairs,
    _rank_sum_counts,
    _scores,
    _signed_rank_shares,
    decide,
    decide_apart,
    of_separate,
)
from repro.formats import Interval
from repro.validity import disturbance
from tests.support.command_line import record

WINDOWS = 200


def noisy(drawn: random.Random, count: int, ratio: float = 1.0, noise: float = 0.1) -> list[float]:
    return [ratio * drawn.lognormvariate(0, noise) for _ in range(count)]


def interval_of(pairs: Sequence[float], alpha: float = ALPHA) -> Interval:
    found = Pairs(pairs).interval(alpha)
    assert found is not None
    return found


# --- The intervals ---


def test_null_distributions_count_all_orders_one_by_one() -> None:
    us = [sum(ranks) - 6 for ranks in itertools.combinations(range(9), 4)]
    assert _rank_sum_counts(4, 5) == [us.count(value) for value in range(21)]
    sums = [sum(scores) for size in range(8) for scores in itertools.combinations([1, 2, 3, 4, 4, 4, 4], size)]
    assert _signed_rank_shares(7) == [sums.count(value) / 2**7 for value in range(23)]


@pytest.mark.parametrize("alpha", [FINAL.changed, FINAL.unchanged, EARLY.changed, EARLY.unchanged])
def test_an_interval_needs_pairs_that_can_attain_its_level(alpha: float) -> None:
    fewest = next(pairs for pairs in range(1, 99) if 2 / 2**pairs <= alpha)
    assert Pairs([2.0] * (fewest - 1)).interval(alpha) is None
    found = interval_of([2.0] * fewest, alpha)
    assert (found.low, found.high) == pytest.approx((2.0, 2.0))


def test_the_fewest_pairs_can_call_a_change_and_the_first_look_can_stop() -> None:
    calls = [decide([2.0] * pairs).call for pairs in (FEWEST - 1, FEWEST)]
    assert calls == ["inconclusive", "regressed"]
    assert [decide([2.0] * pairs).may_stop for pairs in (FIRST_LOOK - 1, FIRST_LOOK)] == [False, True]


def test_separate_runs_need_four_starts_a_side_for_an_interval() -> None:
    assert of_separate([1.0] * 4, [2.0] * 4)[1] is not None
    for few in (1, 3):
        assert of_separate([1.0] * few, [2.0] * 4)[1] is None


def test_an_interval_of_pairs_excludes_1_exactly_where_the_test_does() -> None:
    drawn = random.Random(4)
    for _ in range(300):
        ratios = noisy(drawn, 7, 1.1)
        found = interval_of(ratios)
        by_size = sorted(ratios, key=lambda value: abs(math.log(value)))
        above = sum(score for score, value in zip(_scores(7), by_size, strict=True) if value > 1)
        p = 2 * sum(_signed_rank_shares(7)[: min(above, 22 - above) + 1])
        assert (p <= ALPHA) == (found.low > 1 or found.high < 1)


def test_an_interval_of_separate_runs_excludes_1_exactly_where_the_test_does() -> None:
    drawn = random.Random(1)
    for _ in range(300):
        before, after = noisy(drawn, 7), noisy(drawn, 7, 1.08)
        _, found = of_separate(before, after)
        assert found is not None
        u = sum(b > a for a in before for b in after)
        p = 2 * sum(_rank_sum_counts(7, 7)[: min(u, 49 - u) + 1]) / math.comb(14, 7)
        assert (p <= ALPHA) == (found.low > 1 or found.high < 1)


def of_pairs_in_turn(before: Sequence[float], after: Sequence[float]) -> Interval:
    return interval_of([b / a for a, b in zip(before, after, strict=True)])


def of_runs_apart(before: Sequence[float], after: Sequence[float]) -> Interval:
    found = of_separate(before, after)[1]
    assert found is not None
    return found


@pytest.mark.parametrize("estimate", [of_pairs_in_turn, of_runs_apart])
def test_an_interval_holds_the_true_ratio_as_often_as_it_says(estimate: Callable[..., Interval]) -> None:
    drawn, held = random.Random(2), 0
    for _ in range(1000):
        found = estimate(noisy(drawn, 8, noise=0.05), noisy(drawn, 8, 1.1, noise=0.05))
        held += found.low <= 1.1 <= found.high
    assert held / 1000 >= 1 - ALPHA


@pytest.mark.parametrize("estimate", [of_pairs_in_turn, of_runs_apart])
def test_faster_is_judged_as_slower_is(estimate: Callable[..., Interval]) -> None:
    before, after = [1.0, 1.1, 1.05, 1.2, 1.0, 1.0, 1.02], [1.3, 1.2, 1.4, 1.3, 1.25, 1.1, 1.2]
    there, back = estimate(before, after), estimate(after, before)
    assert there.value == pytest.approx(1 / back.value)
    assert (there.low, there.high) == pytest.approx((1 / back.high, 1 / back.low))


def test_the_estimate_is_the_median_of_means_where_no_score_is_capped_out() -> None:
    ratios = [math.exp(each) for each in (0.01, 0.02, 0.04, 0.05, 0.08)]
    assert math.log(Pairs(ratios).value) == pytest.approx(0.04, abs=0.005)


def test_nothing_is_no_ratio() -> None:
    for nothing in (lambda: Pairs([]), lambda: of_separate([1.0], []), lambda: of_separate([], [1.0])):
        with pytest.raises(ValueError, match="no samples to compare"):
            nothing()


# --- The rule ---


def around(value: float, spread: float, pairs: int = 18) -> list[float]:
    """Ratios evenly within `spread` of a value, on logarithms."""
    return [value * math.exp(spread * (2 * place / (pairs - 1) - 1)) for place in range(pairs)]


@pytest.mark.parametrize(
    ("ratios", "call"),
    [
        pytest.param(around(1.05, 0.03), "regressed", id="slower"),
        pytest.param(around(1 / 1.05, 0.03), "improved", id="faster"),
        pytest.param(around(1.031, 0.001), "regressed", id="just beyond 3 %"),
        pytest.param(around(1.029, 0.0005), "unchanged", id="surely below 3 %"),
        pytest.param(around(1.029, 0.01), "inconclusive", id="about 3 %"),
        pytest.param(around(1.0, 0.03), "unchanged", id="the same"),
        pytest.param(around(1.05, 0.2), "inconclusive", id="slower by noise"),
        pytest.param(around(1.0, 0.2), "inconclusive", id="noise"),
    ],
)
def test_a_call_follows_from_interval_and_size(ratios: list[float], call: str) -> None:
    assert decide(ratios).call == call


def test_a_change_needs_the_stricter_level() -> None:
    drawn = random.Random(3)
    while True:
        ratios = noisy(drawn, 12, 1.08, 0.12)
        strict, loose = interval_of(ratios, FINAL.changed), interval_of(ratios, FINAL.unchanged)
        if strict.low < 1 < loose.low:
            break
    assert decide(ratios).call == "inconclusive"


def test_a_reason_tells_estimate_interval_and_pairs() -> None:
    assert decide([1.1] * 12).reason == "10.0% slower (99.5% interval +10.0% to +10.0%) in 12 pairs"
    same = "the same (95% interval +0.0% to +0.0%) in 12 pairs: a change of 3% is excluded"
    assert decide([1.0] * 12).reason == same
    few = "10.0% slower (too few for an interval) in 1 pair: neither a change beyond 3% nor within it; "
    assert decide([1.1]).reason == f"{few}at least 8 more pairs would decide it"


def test_the_pairs_that_would_decide_it_do_so_as_often_as_not() -> None:
    decided = []
    for seed in range(300):
        drawn = random.Random(seed)
        ratios = noisy(drawn, 18, 1.06, 0.07)
        found = decide(ratios)
        if found.call == "inconclusive":
            more = int(found.reason.split("; about ")[1].split()[0]) if "about" in found.reason else 1000
            decided.append(decide([*ratios, *noisy(drawn, min(more, 100), 1.06, 0.07)]).call != "inconclusive")
    assert len(decided) > 50
    assert 0.4 < sum(decided) / len(decided) < 0.95


def test_a_ratio_at_the_limit_asks_for_no_number_of_pairs() -> None:
    assert "more than 1000 more pairs would decide it" in decide(around(1.0299, 0.1)).reason


def test_a_check_stops_early_by_stricter_levels_that_the_final_call_confirms() -> None:
    drawn, stopped, went_on = random.Random(5), 0, 0
    for _ in range(200):
        ratios = noisy(drawn, 14, 1.04, 0.03)
        found, early = decide(ratios), decision._call(Pairs(ratios), EARLY)
        assert found.may_stop == (early != "inconclusive")
        stopped += found.may_stop
        went_on += found.call != "inconclusive" and not found.may_stop
        assert not found.may_stop or found.call == early
    assert stopped
    assert went_on


# --- Runs that were not interleaved ---


@pytest.mark.parametrize(
    ("ratio", "drift", "call"),
    [
        (1.2, 0.1, "regressed"),
        (1 / 1.2, 0.1, "improved"),
        (1.08, 0.1, "inconclusive"),
        (1.08, 0.05, "regressed"),
        (1.0, 0.1, "inconclusive"),
    ],
)
def test_runs_apart_change_beyond_the_drift_alone(ratio: float, drift: float, call: str) -> None:
    drawn = random.Random(1)
    found = decide_apart(noisy(drawn, 10, noise=0.01), noisy(drawn, 10, ratio, noise=0.01), drift)
    assert (found.call, found.interleaved) == (call, False)
    assert "not interleaved" in found.reason
    assert f"an allowance of {drift:.0%} for drift from run to run (--drift)" in found.reason


def test_one_start_a_side_gives_the_difference_alone() -> None:
    found = decide_apart([1.0], [3.0], 0.1)
    assert (found.call, found.interval) == ("inconclusive", None)
    assert found.ratio == pytest.approx(3.0)
    assert found.reason.startswith(
        "200.0% slower (too few for an interval), not interleaved; it would have to lie beyond "
    )


def test_drift_from_day_to_day_is_no_change_and_more_runs_do_not_cure_it() -> None:
    def called(drift: float, starts: int) -> float:
        found = []
        for seed in range(WINDOWS):
            drawn = random.Random(seed)
            before, after = (noisy(drawn, starts, day, 0.01) for day in noisy(drawn, 2, noise=0.03))
            found.append(decide_apart(before, after, drift).call != "inconclusive")
        return sum(found) / WINDOWS

    assert called(0.0, 10) < called(0.0, 40), "which is what an allowance is for"
    assert called(0.1, 10) <= called(0.1, 40) <= 0.025


# --- Simulated machines ---

Machine = Callable[[random.Random], Iterator[float]]


def quiet(drawn: random.Random) -> Iterator[float]:
    """Each process within 1.5 %."""
    while True:
        yield drawn.lognormvariate(0, 0.015)


def drifting(drawn: random.Random) -> Iterator[float]:
    """A neighbour comes and goes: the level wanders by 1.5 % a process and may be 30 % off."""
    level = 0.0
    while True:
        level = 0.97 * level + drawn.gauss(0, 0.015)
        yield math.exp(level + drawn.gauss(0, 0.01))


def bimodal(drawn: random.Random) -> Iterator[float]:
    """One process in three lays its memory out badly, and is 3 % slower for it."""
    while True:
        yield drawn.lognormvariate(0, 0.008) * (1.03 if drawn.random() < 1 / 3 else 1.0)


def with_outliers(drawn: random.Random) -> Iterator[float]:
    """One process in twenty meets something that costs it 10 to 80 %."""
    while True:
        yield drawn.lognormvariate(0, 0.012) * (1 + drawn.uniform(0.1, 0.8) * (drawn.random() < 1 / 20))


MACHINES = [quiet, drifting, bimodal, with_outliers]


def interleaved(machine: Machine, slowdown: float, seed: int, pairs: int, forks: int) -> list[float]:
    """The ratios of pairs on this machine, its processes interleaved as the command interleaves them."""
    noise, found = machine(random.Random(seed)), []
    for start in range(pairs):
        ratios = []
        for fork in range(start * forks, (start + 1) * forks):
            taken = {side: next(noise) for side in ((0, 1), (1, 0))[fork % 2]}
            ratios.append(taken[1] * (1 + slowdown) / taken[0])
        found.append(median(ratios))
    return found


def share(calls: set[str], machine: Machine, slowdown: float, pairs: int, forks: int) -> float:
    windows = (interleaved(machine, slowdown, seed, pairs, forks) for seed in range(WINDOWS))
    return sum(decide(window).call in calls for window in windows) / WINDOWS


@pytest.mark.parametrize("forks", [FORKS, 1], ids=["on a CPU", "on a GPU"])
@pytest.mark.parametrize("machine", MACHINES)
def test_5_and_10_percent_slower_are_found_with_18_pairs(machine: Machine, forks: int) -> None:
    for slowdown in (0.05, 0.10):
        assert share({"regressed"}, machine, slowdown, 18, forks) >= (0.9 if machine is with_outliers else 0.97)


@pytest.mark.parametrize("forks", [FORKS, 1], ids=["on a CPU", "on a GPU"])
@pytest.mark.parametrize("machine", MACHINES)
def test_the_same_stack_is_unchanged_and_changed_once_in_200_at_most(machine: Machine, forks: int) -> None:
    assert share({"regressed", "improved"}, machine, 0.0, 18, forks) <= 0.005
    assert share({"unchanged"}, machine, 0.0, 18, forks) >= 0.9


# --- Samples ---


@pytest.mark.parametrize(
    ("state", "why"),
    [
        ({"throttle_reasons": 0x40}, "the GPU throttled: too hot"),
        ({"throttle_reasons": 0x80 | 0x4}, "the GPU throttled: short of power"),
        ({"throttle_reasons": 0x4}, None),
        ({"throttle_reasons": 0, "too_hot": 0.2, "short_of_power": 0.0}, "the GPU throttled: too hot, 20% of the time"),
        ({"throttle_reasons": 0x40, "too_hot": 0.001}, None),
        ({"throttle_reasons": 0x1, "processes": 1}, None),
        ({"throttle_reasons": 0, "processes": 2}, "another process used the GPU"),
        ({"throttle_reasons": None, "processes": None}, None),
        (None, None),
    ],
)
def test_samples_of_a_gpu_that_was_held_down_or_shared_are_not_fair(state: Any, why: str | None) -> None:
    assert disturbance(record("pythia-1b", "naive", 60.0, gpu_state=[None, state])) == why
    assert disturbance(record("pythia-1b", "naive", 60.0)) is None
