"""`repro scaling`: days against number of GPUs, parallel efficiency, and where one more GPU stops paying."""

from __future__ import annotations

from datetime import date
from itertools import combinations
from pathlib import Path
from typing import Any, get_args

import pytest

from repro import models
from repro.formats import Interval
from repro.money.choice import steps, steps_by_gpu, stops
from repro.money.days import DaysAsked, ModelDays, TrainingDays
from repro.money.prices import GpuPrice, PriceList, SystemPrice, price_list
from repro.paper.gpus import by_name, catalogue
from repro.predict.traces import Stack
from tests.command_line import answer, record, refusal, repro, results_folder
from tests.price_files import gpu_table, prices, system_table

DAY = date(2026, 11, 1)


def scaled(days: dict[int, float], each: float = 1000.0, system: float = 0.001) -> Any:
    rows = [TrainingDays("A100", gpus, Interval.exact(value), "printed", "test") for gpus, value in days.items()]
    prices = PriceList(
        {"A100": GpuPrice("A100", each, "USD", DAY, "test")},
        {gpus: SystemPrice(gpus, system, "USD", DAY, "test") for gpus in days},
        (),
        (),
    )
    return steps(rows, prices, "USD")


def rows_of(gpu: str, *arguments: str, model: str = "pythia-1b") -> dict[int, dict[str, Any]]:
    by = () if arguments else ("--by", "printed")
    found = answer("scaling", "--model", model, "--gpu", gpu, *by, *arguments)["rows"]
    return {row["gpus"]: row for row in found}


def test_efficiency_is_held_against_the_count_that_uses_its_gpus_best() -> None:
    rows = rows_of("A6000")
    assert {gpus: row["days"] for gpus, row in rows.items()} == {1: 152, 2: 72, 4: 40, 8: 22}
    for gpus, row in rows.items():
        assert row["efficiency"] == pytest.approx(2 * 72 / (gpus * row["days"]), abs=1e-3)
        assert row["speedup"] == pytest.approx(2 * 72 / row["days"], abs=1e-3)
    assert rows[2]["efficiency"] == 1


def test_half_of_the_last_digit_is_rounded_up_as_people_do() -> None:
    assert pytest.approx(0.9412, abs=1e-4) == 32 / 34
    assert rows_of("H100")[1]["efficiency"] == 0.941


def test_its_bounds_are_those_of_the_rounded_days() -> None:
    rows = rows_of("H100")
    row, best = rows[8], rows[2]
    assert (best["efficiency_low"], best["efficiency_high"]) == (1, 1), "held against itself, however rounded"
    assert row["efficiency_low"] == pytest.approx(2 * 15.5 / 4.5 / 8, abs=1e-3)
    assert row["efficiency_high"] == pytest.approx(2 * 16.5 / 3.5 / 8, abs=1e-3)


def test_more_than_proportional_scaling_of_published_cells_is_reported_where_rounding_does_not_explain_it() -> None:
    found = answer("scaling", "--model", "pythia-1b", "--by", "printed")
    note = next(note for note in found["notes"] if "Each GPU does more than on fewer" in note)
    assert "2 RTX 3090" in note
    assert "8 H100" not in note  # 1.06, and between 0.93 and 1.23
    assert "8 A6000" not in note


@pytest.mark.parametrize("stack", get_args(Stack))
@pytest.mark.parametrize("model", models.IDS)
def test_no_speed_up_exceeds_the_number_of_gpus(model: str, stack: Stack) -> None:
    known = ModelDays(model, DaysAsked(stack=stack))
    for found in steps_by_gpu(known.everywhere(catalogue()), price_list(), "USD").values():
        for step in found:
            assert step.speedup.value <= step.run.gpus + 1e-9, step.run.machine
            assert step.efficiency.value <= 1
        for one, other in combinations(found, 2):
            ratio = one.run.days.value / other.run.days.value
            assert ratio == pytest.approx(other.speedup.value / one.speedup.value), "what is shown is what one waits"


@pytest.mark.parametrize("model", models.IDS)
def test_a_measurement_leaves_the_speed_ups_that_are_predicted(model: str) -> None:
    known, foretold = (ModelDays(model, DaysAsked(shipped=shipped)) for shipped in (True, False))
    rows = known.everywhere([by_name()["H100"]])
    for one, other in combinations(rows, 2):
        without = [foretold.on(by_name()["H100"], row.gpus) for row in (one, other)]
        assert without[0] is not None
        assert without[1] is not None
        ratio = without[0].days.value / without[1].days.value
        assert one.days.value / other.days.value == pytest.approx(ratio, rel=0.015), "to the figures that are shown"


def test_a_machine_is_as_old_as_its_older_price(tmp_path: Path) -> None:
    today = str(date.today())
    file = prices(tmp_path, gpu_table(quoted=today))
    asked = ("scaling", "--model", "pythia-1b", "--gpu", "RTX 3090", "--prices", file)
    late = "Prices older than a year: 2024-09-21 (the system around RTX 3090)."
    others = [
        ["recommend", *asked[1:3], "--prices", file],
        ["breakeven", *asked[1:], "--gpus", "2", "--rent", "1"],
    ]
    assert any(note.startswith(late) for note in answer(*asked)["notes"])
    for words in others:
        (note,) = (note for note in answer(*words)["notes"] if "older than a year" in note)
        assert "the system around " in note
        assert "(RTX 3090" not in note, "its price is of today"
    prices(tmp_path, gpu_table(quoted=today) + "".join(system_table(gpus, quoted=today) for gpus in (1, 2, 4, 8)))
    assert not any("older than a year" in note for note in answer(*asked)["notes"])


def test_a_model_that_one_gpu_cannot_train_is_held_against_the_fewest_that_can() -> None:
    rows = rows_of("A100", model="pythia-6.9b")
    assert list(rows) == [2, 4, 8]
    assert rows[8]["efficiency"] == 1
    assert rows[2]["efficiency"] == pytest.approx(8 * rows[8]["days"] / (2 * 488), abs=1e-3)


def test_a_larger_machine_pays_while_it_lowers_the_cost_of_an_experiment() -> None:
    found = scaled({1: 100, 2: 40, 4: 30})
    assert [step.pays for step in found] == [None, "yes", "no"]
    best = stops(found)
    assert best is not None
    assert best.run.gpus == 2
    assert best.experiment is not None
    assert best.experiment.value == pytest.approx(2000 * 40 / (5 * 365), rel=1e-5)


def test_a_larger_machine_is_held_against_the_next_smaller_one() -> None:
    found = scaled({1: 100, 2: 30, 4: 20})
    assert [step.pays for step in found] == [None, "yes", "no"], "four cost less than one, and more than two"


def test_proportional_scaling_never_stops_paying_while_the_system_is_shared() -> None:
    found = scaled({1: 80, 2: 40, 4: 20, 8: 10}, system=500)
    best = stops(found)
    assert best is not None
    assert best.run.gpus == 8
    assert all(step.pays == "yes" for step in found[1:])


def test_a_day_saved_costs_what_the_larger_machine_costs_more() -> None:
    assert scaled({1: 100, 2: 60})[1].day_saved == pytest.approx(1000 / 40)
    assert scaled({1: 100, 2: 100})[1].day_saved is None


def test_what_rounding_leaves_open_is_not_decided() -> None:
    rows = rows_of("A100")
    assert rows[8]["pays"] == "within bounds"
    output = answer("scaling", "--model", "pythia-1b", "--gpu", "A100", "--by", "printed")["answer"]
    assert "cheapest on 2" in output
    assert "within the days' bounds 1 and 8 may cost no more" in output


def test_the_bounds_of_predicted_days_are_their_interval_and_are_reported_as_such(tmp_path: Path) -> None:
    own = prices(tmp_path, gpu_table("A40", "1600"))
    asked = ("--model", "pythia-1b", "--gpu", "A40", "--prices", own)
    found = answer("scaling", *asked)
    assert {row["origin"] for row in found["rows"]} == {"predicted"}
    assert "(predicted, on today's stack)" in found["answer"]
    assert [row["pays"] for row in found["rows"]] == [None] + ["within bounds"] * (len(found["rows"]) - 1)
    assert "within the days' bounds 1 and 4 and 8 may cost no more" in found["answer"]
    assert "the 80 % interval of predicted ones" in found["notes"][1]
    for row in found["rows"]:
        assert row["days_low"] < row["days"] == float(f"{row['days']:.3g}") < row["days_high"]
        assert row["cost_per_experiment_usd"] == float(f"{row['cost_per_experiment_usd']:.3g}")


def test_an_experiment_costs_as_much_as_recommend_says_under_the_same_name() -> None:
    def costs(command: str) -> dict[tuple[str, int], float]:
        rows = answer(command, "--model", "pythia-1b")["rows"]
        return {(row["gpu"], row["gpus"]): row["cost_per_experiment_usd"] for row in rows}

    assert costs("scaling") == costs("recommend")


def test_two_rtx_3090_are_where_pythia_1b_stops_paying() -> None:
    rows = rows_of("RTX 3090")
    assert [rows[gpus]["pays"] for gpus in (2, 4)] == ["yes", "no"]
    output = answer("scaling", "--model", "pythia-1b", "--gpu", "RTX 3090", "--by", "printed")["answer"]
    assert "cheapest on 2" in output
    assert "more do not pay" in output


def test_the_largest_number_of_gpus_that_is_known_is_not_said_to_be_where_more_stop_paying() -> None:
    assert rows_of("A100", model="pythia-6.9b")[8]["pays"] == "yes"
    output = answer("scaling", "--model", "pythia-6.9b", "--gpu", "A100", "--by", "printed")["answer"]
    assert "cheapest on 8, at 6,856 USD; what it costs on more is not known." in output


def test_a_model_that_is_not_the_papers_has_the_days_that_were_measured_and_no_others(tmp_path: Path) -> None:
    folder = str(results_folder(tmp_path / "out", record("gan", "naive", 2.0, gpu="A100", count=1)))
    assert [row["days"] for row in answer("scaling", "--model", "gan", "--measured", folder)["rows"]] == [2.0]
    found = repro("scaling", "--model", "gan", "--measured", folder, "--gpu", "T4")
    assert (found.returncode, found.stdout) == (2, "")
    assert found.stderr.endswith("nobody knows how long gan takes on T4; known: A100\n")


def test_measured_days_are_exact_and_without_a_price_nothing_is_said_of_paying(tmp_path: Path) -> None:
    trials = [record("pythia-1b", "free_lunch", days, gpu="H200", count=gpus) for gpus, days in ((1, 80.0), (2, 44.0))]
    beyond = record("pythia-1b", "free_lunch", 60.0, gpu="A100", count=16)
    folder = results_folder(tmp_path / "out", *trials, beyond)
    rows = rows_of("H200", "--measured", str(folder))
    assert rows[2]["efficiency_low"] == rows[2]["efficiency_high"] == pytest.approx(20 / 11 / 2, abs=1e-3)
    assert (rows[2]["origin"], rows[2]["cost_usd"], rows[2]["pays"]) == ("measured", None, None)
    output = answer("scaling", "--model", "pythia-1b", "--gpu", "H200", "--measured", str(folder))["answer"]
    assert "without a price in USD" in output
    larger = rows_of("A100", "--measured", str(folder))[16]
    assert (larger["cost_usd"], larger["day_saved_usd"], larger["pays"]) == (None, None, None), "8 have a price"


def test_of_a_larger_machine_without_a_price_it_is_not_said_that_it_does_not_pay(tmp_path: Path) -> None:
    days = {1: 160.0, 2: 72.0, 4: 64.0, 8: 60.0, 16: 5.0}  # nobody prices a system for 16
    trials = [record("pythia-1b", "free_lunch", days[gpus], gpu="A100", count=gpus) for gpus in days]
    folder = str(results_folder(tmp_path / "out", *trials))
    output = answer("scaling", "--model", "pythia-1b", "--gpu", "A100", "--measured", folder)["answer"]
    assert "cheapest on 2, at 1,558 USD; more do not pay, and what it costs on 16 is not known." in output


def test_where_no_machine_has_a_price_in_the_currency_the_way_to_one_is_named() -> None:
    found = answer("scaling", "--model", "vit", "--gpu", "H100", "--currency", "CHF")
    assert "without a price in CHF it is not known where one more stops paying" in found["answer"]
    way_out = "give prices, or a [[rate]] to CHF, with --prices"
    assert f"Without a price in CHF, and so without costs: 1, 2, 4 and 8 H100; {way_out}." in found["notes"]
    assert not any("older than a year" in note for note in found["notes"]), "none was taken"
    assert not any("Without a price" in note for note in answer("scaling", "--model", "vit", "--gpu", "H100")["notes"])


BAD_INPUT = [
    (["--model", "pythia-2b"], "pythia-2.8b"),
    (
        ["--model", "gan"],
        "gan is no model of the paper, so no days of it are printed or predicted: it is one of pythia",
    ),
    (["--model", "gan", "--by", "printed"], "gan is no model of the paper"),
    (["--model", "pythia-1b", "--gpu", "A1000"], "did you mean A100"),
    (["--model", "pythia-1b", "--gpu", "T4"], "pythia-1b does not train on T4"),
    (["--model", "pythia-1b", "--currency", "DOLLAR"], "unknown currency 'DOLLAR'"),
]


@pytest.mark.parametrize(("arguments", "output"), BAD_INPUT, ids=lambda value: " ".join(value)[-30:])
def test_bad_input_is_one_clear_line(arguments: list[str], output: str) -> None:
    assert output in refusal("scaling", *arguments)
