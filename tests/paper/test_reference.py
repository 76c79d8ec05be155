"""The files of expected/ beside the training tables: every row has a source, and a broken one is one clear line."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path

import pytest

from repro.console import UserError
from repro.datafile import expected_folder
from repro.formats import Interval, mean
from repro.lab import specification
from repro.money import prices
from repro.money.prices import machine_price, price_list
from repro.paper import arithmetic, tables

READERS: list[tuple[str, Callable[[], object]]] = [
    ("figure6.csv", tables.original_trainings),
    ("figure9.csv", tables.training_compute),
    ("analytic_peaks.csv", tables.analytic_peaks),
    ("table5.csv", prices.gpu_prices),
    ("gpu_prices.csv", prices.other_gpu_prices),
    ("table6.csv", prices.parts),
    ("table7.csv", prices.servers),
    ("systems.csv", prices.known_systems),
    ("rental.csv", prices.known_rentals),
    ("quantities.csv", tables.quantities),
    ("lab.csv", specification.lab_runs),
]


@pytest.mark.parametrize("file", sorted(path.name for path in expected_folder().glob("*.csv")))
def test_every_row_names_its_source(file: str) -> None:
    with (expected_folder() / file).open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    assert rows
    assert all(row["source"].strip() for row in rows)


@pytest.mark.parametrize(("file", "read"), READERS)
def test_a_broken_value_is_reported_by_file_line_and_path(
    file: str, read: Callable[[], object], expected: Path
) -> None:
    with (expected / file).open(newline="") as lines:
        header, first, *rest = list(csv.reader(lines))
    first[header.index("source")] = " "
    with (expected / file).open("w", newline="") as lines:
        csv.writer(lines).writerows([header, first, *rest])
    with pytest.raises(UserError, match=rf"{file}, line 2, \$\.source: found ' '"):
        read()


def test_a_number_that_is_none_and_a_row_that_stands_twice_are_reported(expected: Path) -> None:
    file = expected / "systems.csv"
    good = file.read_text()
    file.write_text(good.replace(",1500,", ",cheap,"))
    with pytest.raises(UserError, match=r"line 3, \$\.cost_usd: found 'cheap', expected a number above 0"):
        prices.known_systems()
    file.write_text(good + good.splitlines()[1] + "\n")
    with pytest.raises(UserError, match=r"line 6, \$\.gpus: found '1', expected 1 only once, and line 2"):
        prices.known_systems()


def test_an_interval_keeps_the_bounds_of_what_was_rounded() -> None:
    days = Interval.rounded(10)
    assert days == Interval(10, 9.5, 10.5)
    assert days / Interval.rounded(5) == Interval(2, 9.5 / 5.5, 10.5 / 4.5)
    assert 20 / days == Interval(2, 20 / 10.5, 20 / 9.5)
    assert mean([days, days * 3]) == Interval(20, 19, 21)
    for one, more in ((days, Interval.rounded(11)), (Interval.rounded(11), days)):
        assert one.overlaps(more), "10.5 may be either"
    for one, more in ((days, Interval.rounded(12)), (Interval.rounded(12), days)):
        assert not one.overlaps(more)


def test_machines_cost_what_section_4_1_says() -> None:
    costs = [machine_price(gpu, gpus, price_list(), "USD") for gpu, gpus in (("A100", 4), ("RTX 3090", 1))]
    assert [cost and cost[0] for cost in costs] == [4 * 19_000 + 7_500, 2_300]


def test_speedups_are_reported_for_the_cells_that_both_tables_have() -> None:
    found = arithmetic.speedups()
    assert len(found) == 91
    pythia_1b = next(row for row in found if (row.model, row.gpu, row.gpus) == ("Pythia-1B", "A100", 4))
    assert (pythia_1b.naive_days, pythia_1b.best_days) == (41, 18)
    assert pythia_1b.ratio == Interval(41 / 18, 40.5 / 18.5, 41.5 / 17.5)


def test_gpu_days_leave_out_what_the_original_does_not_say() -> None:
    rows = {row.model: row for row in arithmetic.gpu_days()}
    assert "Mamba" not in rows
    assert rows["Pythia-1B"].original == 192
    assert rows["Pythia-1B"].ratio.value == pytest.approx(192 / 72)


def test_the_analytic_estimate_takes_the_papers_peaks() -> None:
    assert arithmetic.analytic_days("Pythia-1B", "H100", 2) == pytest.approx(1.9e21 / (2 * 756e12) / 86_400)
