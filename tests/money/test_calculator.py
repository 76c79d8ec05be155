"""`repro cost` without a model: when owning beats renting, by the comment's inputs, corrected, and by one's own."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from repro.formats import Interval
from repro.money.breakeven import Case, first_run
from tests.support.command_line import answer, refusal
from tests.support.price_files import prices, rate_table, storage_table

HOURS = 44 * 1024 / 60


def only(*arguments: str) -> dict[str, Any]:
    [row] = answer("cost", *arguments)["rows"]
    return row


def said(*arguments: str) -> str:
    return str(answer("cost", *arguments)["answer"])


# --- The comment ---


def test_the_comments_own_numbers_come_out() -> None:
    printed, electricity, both, dearer = answer("cost")["rows"]
    assert (printed["rent_a_run_usd"], printed["electricity_a_run_usd"]) == (1408, 69)
    assert (printed["runs"], printed["owning_pays_from_run"]) == (pytest.approx(8000 / (1408 - 69), abs=1e-3), 6)
    assert (electricity["kwh_a_run"], electricity["owning_pays_from_run"]) == (512, 7)
    assert electricity["electricity_a_run_usd"] == pytest.approx(66.56 * 69 / 57, abs=0.01)
    assert both["hours_a_run"] == pytest.approx(HOURS, abs=0.01)
    assert both["runs"] == pytest.approx(8000 / (HOURS * (1.375 - 0.5 * 0.13 * 69 / 57)), abs=1e-3)
    assert both["owning_pays_from_run"] == 9
    assert (dearer["provider"], dearer["rent_per_hour_usd"]) == ("Google Cloud", 2.48)
    assert dearer["owning_pays_from_run"] == 5


def test_the_answer_has_all_three_and_the_notes_what_was_wrong() -> None:
    found = answer("cost")
    assert found["answer"] == (
        "Owning pays from run 9, where the comment counts 6; with its electricity alone corrected from run 7."
    )
    for part in ("66.56 EUR where it has 57", "751 GPU-hours where it charges 1,024", "at its own rate, 1.21"):
        assert part in " ".join(found["notes"])


def test_the_notes_follow_the_inputs(expected: Path) -> None:
    file = expected / "quantities.csv"
    file.write_text(file.read_text().replace("\ncomment/minutes,44,", "\ncomment/minutes,30,"))
    assert any("Its 30 min on 1,024 GPUs are 512 GPU-hours" in note for note in answer("cost")["notes"])


def test_a_rent_that_the_comment_names_and_the_prices_lack_is_reported(expected: Path) -> None:
    file = expected / "rental.csv"
    file.write_text("".join(line for line in file.read_text().splitlines(keepends=True) if "Google Cloud" not in line))
    assert f"{file}: found no row for V100, 1, Google Cloud, on-demand" in refusal("cost")


# --- The general form ---


def case(**inputs: float) -> Case:
    values = {"machine": 8000.0, "rent": 2.0, "hours": 100.0, "kilowatts": 1.0} | inputs
    return Case(**{name: Interval.exact(value) for name, value in values.items()})


def test_owning_pays_where_both_have_spent_the_same() -> None:
    found = case(resale=2000, kwh=0.5)
    assert found.runs.value == pytest.approx((8000 - 2000) / (100 * (2.0 - 0.5)))
    assert found.utilisation == pytest.approx(4000 / (5 * 365 * 24))
    assert first_run(replace(found, rent=found.running).runs.value) is None
    assert math.isinf(case(rent=1, kwh=1).runs.value)


@pytest.mark.parametrize(
    ("words", "output"),
    [
        ("--machine 0", "Owning pays from run 1, after 0% of the 5 years that a machine lasts."),
        ("--machine 100 --resale 100", "Owning pays from run 1, after 0% of"),
        ("--hours 1", "Owning pays from run 6,172, after 14% of"),
        ("--machine 4000..7000 --hours 1", "Owning pays from run 4,243 (3,086 to 5,400), after "),
        (
            "--hours 100000 --machine 100000 --rent 1",
            "does not pay within the 5 years that a machine lasts: it would take 2",
        ),
        ("--rent 0.05", "Owning never pays: its electricity costs no less than the rent."),
        ("--rent 0 --electricity 0", "Owning never pays: "),
        ("--rent 0.05..1 --electricity 0.2", " to never)"),
    ],
)
def test_the_sentence_says_when_owning_pays(words: str, output: str) -> None:
    assert output in said(*words.split())


def test_uncertain_inputs_bound_the_answer_at_their_corners() -> None:
    row = only(*["--machine", "7000..9000", "--rent", "1.2..1.6", "--power", "0.4..0.6", "--electricity", "0.1..0.2"])
    assert row["runs_low"] == pytest.approx(7000 / (1.6 - 0.4 * 0.1) / HOURS, abs=1e-3)
    assert row["runs_high"] == pytest.approx(9000 / (1.2 - 0.6 * 0.2) / HOURS, abs=1e-3)
    assert row["runs"] == pytest.approx(8000 / (1.4 - 0.5 * 0.15) / HOURS, abs=1e-3)
    sold = only(*["--machine", "7000..9000", "--resale", "500..1500", "--rent", "1.4", "--electricity", "0"])
    bounds = [sold[name] * 1.4 * HOURS for name in ("runs_low", "runs", "runs_high")]
    assert bounds == pytest.approx([5500, 7000, 8500], rel=1e-3)


def test_resale_cooling_storage_and_co2_count(tmp_path: Path) -> None:
    plain, sold, cooled = only("--rent", "1.375"), only("--resale", "2000"), only("--pue", "1.5")
    assert plain["runs"] == answer("cost")["rows"][2]["runs"], "what is not given is the comment's"
    assert sold["runs"] == pytest.approx(plain["runs"] * 6000 / 8000, abs=1e-3)
    assert cooled["kwh_a_run"] == pytest.approx(plain["kwh_a_run"] * 1.5, abs=0.01)
    assert cooled["runs"] > plain["runs"]
    kept = only("--storage", "730GB", "--prices", prices(tmp_path, storage_table(0.07)))
    assert kept["rent_per_hour_usd"] == pytest.approx(1.375 + 0.07)
    assert answer("cost", "--co2", "390")["rows"][1]["co2_kg_a_run"] == pytest.approx(512 * 0.39, abs=0.01)
    assert plain["co2_kg_a_run"] is None


def test_the_largest_and_the_smallest_numbers_give_numbers_again() -> None:
    least, most = f"0.{'0' * 19}1", "9" * 20
    never = only("--machine", most, "--rent", least, "--hours", least, "--electricity", "0")
    assert never["runs"] == pytest.approx(1e60)
    assert only("--machine", least, "--rent", most, "--hours", most, "--power", "100", "--pue", "10")["runs"] == 0
    assert answer("cost", "--electricity", ".1...2") == answer("cost", "--electricity", "0.1..0.2")


def test_electricity_in_euros_takes_the_comments_rate_or_ones_own(tmp_path: Path) -> None:
    file = prices(tmp_path, rate_table("EUR", "USD", 2.0))
    its, own = only("--machine", "9000"), only("--machine", "9000", "--prices", file)
    assert its["electricity_a_run_usd"] == pytest.approx(48.81 * 69 / 57, abs=0.01)
    assert own["electricity_a_run_usd"] == pytest.approx(48.81 * 2, abs=0.01)
    assert own == only("--machine", "9000", "--electricity", "0.13EUR", "--prices", file)
