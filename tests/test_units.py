"""Sizes, durations and numbers are read as people mean them, and told as they are read."""

from __future__ import annotations

import pytest

from repro import formats
from repro.console import UserError
from repro.formats import Interval
from repro.money import amounts


@pytest.mark.parametrize(
    ("given", "seconds"),
    [("90s", 90), ("1.5m", 90), ("2min", 120), ("4h", 14_400), ("2d", 172_800), (" 2 H ", 7_200), (".5h", 1_800)],
)
def test_a_duration_is_so_many_of_its_unit(given: str, seconds: float) -> None:
    assert formats.seconds(given, "--budget") == seconds


@pytest.mark.parametrize(
    ("seconds", "cell", "text"),
    [
        (20, "20 s", "20 s"),
        (600, "10 min", "10 min"),
        (2548.8, "42 min", "42 min"),
        (2550.05, "42 min", "42 min"),  # as its days rounded to three figures, which a row of a prediction has
        (26_000, "7 h 13 min", "7 h 13 min"),
        (86_399, "24 h 0 min", "24 h 0 min"),
        (86_400, "1", "1 day"),
        (3.5 * 86_400, "3.5", "3.5 days"),
    ],
)
def test_less_than_a_day_is_told_in_hours_and_minutes(seconds: float, cell: str, text: str) -> None:
    days = seconds / formats.SECONDS_A_DAY
    assert (formats.days_cell(days), formats.days_text(days)) == (cell, text)


@pytest.mark.parametrize(
    ("given", "size"),
    [("7B", 7), ("3kB", 3_000), ("5MB", 5_000_000), ("80GB", 80_000_000_000), ("1TB", 10**12),
     ("3KiB", 3_072), ("1.5MiB", 1_572_864), ("2GiB", 2_147_483_648), ("1TiB", 2**40)],
)  # fmt: skip
def test_a_size_is_in_powers_of_1000_or_with_an_i_of_1024(given: str, size: int) -> None:
    assert formats.bytes_(given, "--memory") == size


@pytest.mark.parametrize(
    ("seconds", "output"),
    [
        (0.4, "0 s"),
        (89, "89 s"),
        (90, "2 min"),
        (150, "2 min"),
        (5_399, "90 min"),
        (5_400, "1.5 h"),
        (86_400, "24.0 h"),
    ],
)
def test_a_duration_is_reported_in_the_unit_in_which_it_is_short(seconds: float, output: str) -> None:
    assert formats.duration(seconds) == output


@pytest.mark.parametrize(
    ("given", "read"),
    [
        ("0.13", Interval.exact(0.13)),
        ("0..4", Interval(2, 0, 4)),
        ("3..3", Interval.exact(3)),
        (" 0 ", Interval.exact(0)),
    ],
)
def test_of_bounds_the_middle_counts(given: str, read: Interval) -> None:
    assert amounts.interval(given, "--electricity") == read


@pytest.mark.parametrize("given", ["3..", "..3", "1..2..3", "-1", "1e3", "", "1_0", "½"])
def test_what_is_no_number_and_no_bounds_is_refused(given: str) -> None:
    with pytest.raises(UserError, match=r"expected a number from 0 up in plain digits such as 0.13, or bounds"):
        amounts.interval(given, "--electricity")


def test_bounds_in_the_wrong_order_are_reported_in_the_right_one() -> None:
    with pytest.raises(UserError, match=r"^--electricity 0\.2\.\.0\.1: expected the lower bound first, 0\.1\.\.0\.2$"):
        amounts.interval("0.2..0.1", "--electricity")


def test_a_number_has_up_to_20_digits_on_either_side_of_the_point() -> None:
    assert formats.number(f"{'9' * 20}.{'9' * 20}", "here") == pytest.approx(1e20)
    for given in ("9" * 21, f"0.{'9' * 21}"):
        with pytest.raises(UserError, match="here: expected at most 20 digits"):
            formats.number(given, "here")


def test_a_count_may_be_as_small_as_is_allowed_and_as_large_as_a_billion() -> None:
    assert [formats.count(given, "--steps", 3) for given in ("3", "+5", "1000000000")] == [3, 5, 10**9]
    for given in ("2", "1000000001", "1_000", "3.0", "٣"):
        with pytest.raises(UserError, match=r"--steps .*: expected a whole number from 3 to 1,000,000,000: so few"):
            formats.count(given, "--steps", 3, "so few")
