"""The decision rule: exact intervals, and on simulated machines few false alarms and few misses."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean, median, stdev
from typing import Any

import pytest

from repro.compare import decision
from repro.compare.decision import (
    ALPHA,
    Ratio,
    _rank_sum_counts,
    _signed_rank_shares,
    of_pairs,
    of_separate,
    smallest_p_of_pairs,
    smallest_p_of_separate,
)
from repro.compare.upgrade import FORKS
from repro.formats import Interval
from repro.validity import disturbance
from tests.command_line import record

PROCESSES = 12  # a round
WINDOWS = 200


def paired(before: Sequence[float], after: Sequence[float]) -> Ratio:
    return of_pairs([b / a for a, b in zip(before, after, strict=True)])


# --- The interval ---


def test_the_smallest_attainable_p_is_that_of_all_orders_counted_one_by_one() -> None:
    for pairs in range(1, 8):
        signs = list(itertools.product((-1, 1), repeat=pairs))
        assert smallest_p_of_pairs(pairs) == pytest.approx(min(1, 2 / len(signs)))
    for size in range(1, 6):
        orders = list(itertools.combinations(range(2 * size), size))
        assert smallest_p_of_separate(size, size) == pytest.approx(min(1, 2 / len(orders)))


def test_the_null_distribution_is_that_of_all_orders_counted_one_by_one() -> None:
    us = [sum(ranks) - 6 for ranks in itertools.combinations(range(9), 4)]
    assert _rank_sum_counts(4, 5) == [us.count(value) for value in range(21)]
    sums = [sum(scores) for size in range(8) for scores in itertools.combinations([1, 2, 3, 3, 3, 3, 3], size)]
    assert _signed_rank_shares(7) == [sums.count(value) / 2**7 for value in range(19)]


def test_the_fewest_processes_are_those_that_attain_alpha() -> None:
    assert smallest_p_of_pairs(decision.PAIRS_A_ROUND) <= ALPHA < smallest_p_of_pairs(decision.PAIRS_A_ROUND - 1)
    fewest = decision.SEPARATE_A_ROUND
    assert smallest_p_of_separate(fewest, fewest) <= ALPHA < smallest_p_of_separate(fewest - 1, fewest - 1)
    assert of_pairs([2.0] * 5).interval is None
    assert of_pairs([2.0] * 6).interval is not None
    assert of_separate([1.0] * 3, [2.0] * 3).interval is None
    assert of_separate([1.0] * 4, [2.0] * 4).interval is not None


def test_an_interval_excludes_1_exactly_where_the_test_does() -> None:
    shuffled = random.Random(1)
    for _ in range(300):
        before = [shuffled.lognormvariate(0, 0.1) for _ in range(7)]
        after = [shuffled.lognormvariate(0.08, 0.1) for _ in range(7)]
        found = of_separate(before, after).interval
        assert found is not None
        u = sum(b > a for a in before for b in after)
        counts = _rank_sum_counts(7, 7)
        p = 2 * sum(counts[: min(u, 49 - u) + 1]) / math.comb(14, 7)
        assert (p <= ALPHA) == (found.low > 1 or found.high < 1)


def test_an_interval_of_pairs_excludes_1_exactly_where_the_test_does() -> None:
    shuffled = random.Random(4)
    for _ in range(300):
        after = [shuffled.lognormvariate(0.1, 0.1) for _ in range(7)]
        found = of_pairs(after).interval
        assert found is not None
        by_size = sorted(after, key=lambda value: abs(math.log(value)))
        scores = sum(min(rank, 3) for rank, value in enumerate(by_size, 1) if value > 1)
        p = 2 * sum(_signed_rank_shares(7)[: min(scores, 18 - scores) + 1])
        assert (p <= ALPHA) == (found.low > 1 or found.high < 1)


@pytest.mark.parametrize("estimate", [paired, of_separate])
def test_an_interval_holds_the_true_ratio_as_often_as_it_says(estimate: Callable[..., Ratio]) -> None:
    drawn, held = random.Random(2), 0
    for _ in range(1000):
        before = [drawn.lognormvariate(0, 0.05) for _ in range(8)]
        after = [1.1 * drawn.lognormvariate(0, 0.05) for _ in range(8)]
        interval = estimate(before, after).interval
        assert interval is not None
        held += interval.low <= 1.1 <= interval.high
    assert held / 1000 >= 1 - ALPHA


@pytest.mark.parametrize("estimate", [paired, of_separate])
def test_the_standard_error_is_how_far_the_value_strays(estimate: Callable[..., Ratio]) -> None:
    drawn = random.Random(1)
    found = [estimate(*([drawn.lognormvariate(0, 0.05) for _ in range(20)] for _ in range(2))) for _ in range(300)]
    strays = stdev(math.log(each.value) for each in found)
    assert fmean(each.standard_error for each in found) == pytest.approx(strays, rel=0.1)


def test_of_two_sides_the_smaller_says_how_many_samples_there_are_and_none_are_no_ratio() -> None:
    for before, after in (([1.0] * 4, [2.0] * 6), ([1.0] * 6, [2.0] * 4)):
        assert of_separate(before, after).samples == 4
    for nothing in (lambda: of_pairs([]), lambda: of_separate([1.0], []), lambda: of_separate([], [1.0])):
        with pytest.raises(ValueError, match="no samples to compare"):
            nothing()


def test_faster_is_judged_as_slower_is() -> None:
    before, after = [1.0, 1.1, 1.05, 1.2, 1.0, 1.0, 1.02], [1.3, 1.2, 1.4, 1.3, 1.25, 1.1, 1.2]
    for estimate in (paired, of_separate):
        there, back = estimate(before, after), estimate(after, before)
        assert there.value == pytest.approx(1 / back.value)
        assert there.interval is not None
        assert back.interval is not None
        assert there.interval.low == pytest.approx(1 / back.interval.high)
        assert decision.suspected(there, 0.03) == -decision.suspected(back, 0.03) == 1


# --- The rule ---


def exact(value: float, processes: int = PROCESSES) -> Ratio:
    return of_pairs([value] * processes)


def within(low: float, value: float, high: float) -> Ratio:
    return Ratio(value, Interval(value, low, high), PROCESSES, 0.001, 0.01)


def test_what_may_be_no_change_is_not_suspected_however_large_it_looks() -> None:
    found = [within(1.01, 1.1, 1.2), within(1.0, 1.1, 1.2), within(0.8, 0.9, 1.0), within(0.8, 0.9, 0.99)]
    assert [decision.suspected(each, 0.03) for each in found] == [1, 0, 0, -1]
    assert decision.suspected(within(1.01, 1.02, 1.03), decision.threshold(None)) == 0, "3 % without measured noise"
    assert decision.suspected(within(1.03, 1.04, 1.05), decision.threshold(None)) == 1


@pytest.mark.parametrize(
    ("found", "excluded"),
    [
        (within(0.98, 1.0, 1.02), True),
        (within(0.96, 0.99, 1.0), False),
        (within(1.0, 1.01, 1.04), False),
        (of_pairs([1.0] * 5), False),
    ],
)
def test_a_change_is_excluded_where_the_interval_leaves_no_room_for_one_either_way(
    found: Ratio, excluded: bool
) -> None:
    assert decision.settled(found) == excluded
    assert (decision.decide([found], found, 0.0).call == "unchanged") == excluded


def test_a_change_needs_a_second_round() -> None:
    slow = exact(1.1)
    assert decision.decide([slow], slow, 0.0).call == "inconclusive"
    assert "second round" in decision.decide([slow], slow, 0.0).reason
    found = decision.decide([slow, slow], slow, 0.0)
    assert (found.call, found.reason.split(" (")[0]) == ("regressed", "10.0% slower")
    found = decision.decide([exact(0.9)] * 2, exact(0.9), 0.0)
    assert (found.call, found.reason.split(" (")[0]) == ("improved", "10.0% faster")
    assert decision.decide([exact(1.0)], exact(1.0), 0.0).reason.startswith("the same (95% interval +0.0% to +0.0%)")


def test_rounds_that_disagree_are_inconclusive() -> None:
    found = decision.decide([exact(1.1), exact(1.0)], exact(1.05), 0.0)
    assert found.call == "inconclusive"
    assert found.reason.endswith("): above the threshold of 3.0% in only one of two rounds")
    found = decision.decide([exact(1.1), exact(0.9)], exact(1.0), 0.0)
    assert found.call == "inconclusive"
    assert found.reason.endswith("): slower in one round and faster in the other, both above the threshold of 3.0%")


def test_a_change_below_3_percent_is_none() -> None:
    assert decision.decide([exact(1.029)] * 2, exact(1.029), 0.0).call == "unchanged"
    assert decision.decide([exact(1.031)] * 2, exact(1.031), 0.0).call == "regressed"


def test_a_change_below_three_noise_floors_is_none() -> None:
    assert decision.threshold(0.02) == pytest.approx(0.06)
    assert decision.decide([exact(1.05)] * 2, exact(1.05), 0.02).call == "inconclusive"
    assert decision.decide([exact(1.07)] * 2, exact(1.07), 0.02).call == "regressed"


def test_a_noise_floor_is_how_far_a_stack_is_from_itself() -> None:
    for off in (1.01, 1 / 1.01):
        assert decision.noise_floor(exact(off)) == pytest.approx(0.01, rel=0.01)
    noisy = of_pairs([1.1, 0.83, 1.11, 1.2, 0.91, 0.9])
    assert decision.noise_floor(noisy) >= noisy.standard_error > 0


def test_too_few_processes_call_nothing() -> None:
    few = exact(2.0, processes=5)
    found = decision.decide([few, few], few, 0.0)
    assert found.call == "inconclusive"
    assert "0.062" in found.reason
    mixed = decision.decide([exact(2.0, processes=6), few], exact(2.0, processes=11), 0.0)
    assert mixed.call == "inconclusive"
    assert "with 5 samples a side no p below 0.062" in mixed.reason
    one = exact(2.0, processes=1)
    assert "with 1 sample a side" in decision.decide([one], one, 0.0).reason


def test_a_noisy_machine_makes_no_stack_unchanged() -> None:
    drawn = random.Random(3)
    before, after = ([drawn.lognormvariate(0, 0.2) for _ in range(PROCESSES)] for _ in range(2))
    found = paired(before, after)
    assert decision.decide([found, found], found, 0.1).call == "inconclusive"


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


@dataclass(frozen=True)
class Check:
    """How a check samples: starts a round, processes a start."""

    pairs: int
    forks: int


CHECKS = [Check(pairs=12, forks=FORKS), Check(pairs=12, forks=1)]  # on a CPU, and on a GPU


def called(check: Check, machine: Machine, slowdown: float, seed: int) -> str:
    """What the rule calls on this machine, its processes interleaved as the command interleaves them."""
    noise = machine(random.Random(seed))
    arms = ("before", "after", "again")
    ratios: dict[str, list[float]] = {"after": [], "again": []}
    for start in range(2 * check.pairs):
        forks: list[dict[str, float]] = []
        for fork in range(check.forks):
            order = arms[:: 1 if (start * check.forks + fork) % 2 == 0 else -1]
            forks.append({arm: next(noise) * (1 + slowdown if arm == "after" else 1.0) for arm in order})
        for arm, samples in ratios.items():
            samples.append(median(fork[arm] / fork["before"] for fork in forks))
    rounds = [of_pairs(ratios["after"][: check.pairs]), of_pairs(ratios["after"][check.pairs :])]
    return decision.decide(rounds, of_pairs(ratios["after"]), decision.noise_floor(of_pairs(ratios["again"]))).call


def share(calls: set[str], check: Check, machine: Machine, slowdown: float) -> float:
    return sum(called(check, machine, slowdown, seed) in calls for seed in range(WINDOWS)) / WINDOWS


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("machine", MACHINES)
def test_10_percent_slower_is_called_in_19_of_20_windows(check: Check, machine: Machine) -> None:
    assert share({"regressed"}, check, machine, 0.10) >= 19 / 20


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("machine", MACHINES)
def test_5_percent_slower_is_called_in_15_of_20_windows(check: Check, machine: Machine) -> None:
    assert share({"regressed"}, check, machine, 0.05) >= 15 / 20


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("machine", MACHINES)
def test_the_same_stack_is_called_changed_in_1_of_40_windows_at_most(check: Check, machine: Machine) -> None:
    assert share({"regressed", "improved"}, check, machine, 0.0) <= 1 / 40


def test_a_quiet_machine_excludes_a_change() -> None:
    assert share({"unchanged"}, CHECKS[0], quiet, 0.0) >= 15 / 20


def test_separate_runs_on_a_drifting_machine_are_why_stacks_are_interleaved() -> None:
    def far_apart(seed: int) -> float:
        noise = drifting(random.Random(seed))
        before, after = ([next(noise) for _ in range(PROCESSES)] for _ in range(2))
        return float(decision.suspected(of_separate(before, after), 0.03) != 0)

    assert sum(map(far_apart, range(WINDOWS))) / WINDOWS > 1 / 4


# --- Samples ---


@pytest.mark.parametrize(
    ("state", "why"),
    [
        ({"throttle_reasons": 0x40}, "the GPU throttled: too hot"),
        ({"throttle_reasons": 0x80 | 0x4}, "the GPU throttled: short of power"),
        ({"throttle_reasons": 0x4}, None),
        ({"throttle_reasons": 0x1, "processes": 1}, None),
        ({"throttle_reasons": 0, "processes": 2}, "another process used the GPU"),
        ({"throttle_reasons": None, "processes": None}, None),
        (None, None),
    ],
)
def test_samples_of_a_gpu_that_was_held_down_or_shared_are_not_fair(state: Any, why: str | None) -> None:
    assert disturbance(record("pythia-1b", "naive", 60.0, gpu_state=[None, state])) == why
    assert disturbance(record("pythia-1b", "naive", 60.0)) is None
