"""From measured parts to a training step and to days, by the authors' clock and by the true one."""

import pytest

from repro.steps import StepTimes, authors_step, days_of_steps, true_step, true_steps, utilisation

# Two ranks, three rounds, in seconds.
FIRST = StepTimes(no_reduce=(1.0, 1.0, 1.0), reduce=(1.5, 1.5, 3.0), update=(0.5, 0.5, 0.5))
SECOND = StepTimes(no_reduce=(1.0, 2.0, 1.0), reduce=(1.5, 2.5, 1.5), update=(0.5, 0.5, 1.0))


def test_the_authors_reduce_in_every_micro_step_and_take_means() -> None:
    # mean(1.5, 1.5, 3) x 4 + 0.5, and mean(1.5, 2.5, 1.5) x 2 + mean(0.5, 0.5, 1)
    assert authors_step(FIRST, accumulation=4) == pytest.approx(8.5)
    assert authors_step(SECOND, accumulation=2) == pytest.approx(13 / 3)


def test_the_authors_clock_never_looks_at_micro_steps_without_reduction() -> None:
    slow = StepTimes(no_reduce=(99.0, 99.0, 99.0), reduce=FIRST.reduce, update=FIRST.update)
    assert authors_step(slow, accumulation=4) == authors_step(FIRST, accumulation=4)


def test_truly_one_micro_step_reduces_and_the_others_add_to_its_gradients() -> None:
    # 3 x without + with + update, round by round
    assert true_steps([FIRST], accumulation=4) == pytest.approx([5.0, 5.0, 6.5])


def test_without_accumulation_the_only_micro_step_reduces() -> None:
    assert true_steps([FIRST], accumulation=1) == pytest.approx([2.0, 2.0, 3.5])


def test_the_slowest_rank_decides_each_round() -> None:
    # The second rank's rounds are 5, 9, 5.5; the slowest of both are 5, 9 (second) and 6.5 (first).
    assert true_steps([FIRST, SECOND], 4) == pytest.approx([5.0, 9.0, 6.5])


def test_the_true_step_is_the_median_round() -> None:
    assert true_step([FIRST, SECOND], 4) == pytest.approx(6.5)
    assert true_step([FIRST], 4) == pytest.approx(5.0)


def test_parts_are_read_from_a_records_raw_times() -> None:
    raw = {"without": [1.0, 1.0, 1.0], "with": [1.5, 1.5, 3.0], "update": [0.5, 0.5, 0.5]}
    assert StepTimes.of(raw) == FIRST


def test_days_are_the_steps_of_the_whole_training() -> None:
    assert days_of_steps(6.0, training_steps=143_000) == pytest.approx(858_000 / 86_400)


def test_utilisation_is_of_the_peak_of_all_gpus() -> None:
    # 1.8e15 FLOPs in 10 s on 2 GPUs of 312 TFLOP/s
    assert utilisation(1.8e15, 10.0, count=2, peak=312e12) == pytest.approx(0.28846, rel=1e-4)
