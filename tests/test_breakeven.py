"""`repro breakeven`: when owning beats renting: the comment's sum, as it is and as it should be, and in general."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from repro.formats import Interval
from repro.money.breakeven import Case, break_even, spending
from tests.command_line import answer, record, refusal, results_folder
from tests.price_files import prices, rate_table, rental_table

TRUE = ("breakeven", "--model", "pythia-1b", "--gpu", "A100", "--gpus", "8")
MACHINE = (*TRUE, "--by", "printed")


def only(*arguments: str) -> dict[str, Any]:
    rows = answer("breakeven", *arguments)["rows"]
    assert len(rows) == 1
    return rows[0]


def case(resale: float = 0, rent: float = 2, running: float = 0) -> Case:
    return Case(*(Interval.exact(value) for value in (8000, resale, rent, running, 100)))


# --- The comment ---


def test_the_comments_six_runs_come_out_as_it_computes_them() -> None:
    row = answer("breakeven")["rows"][0]
    assert row["rent_a_run_usd"] == 1408
    assert (row["electricity_a_run"], row["electricity_currency"], row["electricity_a_run_usd"]) == (57, "EUR", 69)
    assert row["runs"] == pytest.approx(8000 / (1408 - 69), abs=1e-3)
    assert row["whole_runs"] == 6


def test_with_the_electricity_of_its_own_inputs_it_is_seven() -> None:
    row = answer("breakeven")["rows"][1]
    assert row["kwh_a_run"] == 512
    assert row["electricity_a_run"] == pytest.approx(1024 * 0.5 * 0.13)
    assert row["electricity_a_run_usd"] == pytest.approx(66.56 * 69 / 57, abs=0.01)
    assert row["whole_runs"] == 7


def test_with_its_gpu_hours_too_it_is_nine() -> None:
    row = answer("breakeven")["rows"][2]
    hours = 44 * 1024 / 60
    assert row["hours_a_run"] == pytest.approx(hours, abs=0.01)
    assert round(row["hours_a_run"]) == 751
    assert row["runs"] == pytest.approx(8000 / (hours * (1.375 - 0.5 * 0.13 * 69 / 57)), abs=1e-3)
    assert row["whole_runs"] == 9


def test_a_number_below_1_needs_no_nought() -> None:
    assert answer("breakeven", "--electricity", ".1...2") == answer("breakeven", "--electricity", "0.1..0.2")


def test_the_answer_has_all_three_and_the_notes_what_was_wrong() -> None:
    found = answer("breakeven")
    assert [f"from run {runs}" in found["answer"] for runs in (6, 7, 9)] == [True] * 3
    for part in ("66.56 EUR where it has 57", "751 GPU-hours where it charges 1,024", "69/57"):
        assert part in " ".join(found["notes"])


def test_what_is_reported_of_the_comment_are_the_inputs_that_were_computed_with(expected: Path) -> None:
    file = expected / "quantities.csv"
    file.write_text(file.read_text().replace("\ncomment/minutes,44,", "\ncomment/minutes,30,"))
    output = answer("breakeven")
    assert any("its 30 min on 1,024 GPUs are 512 GPU-hours" in note for note in output["notes"])
    assert any("30 min x 1,024 GPUs" in row["what"] for row in output["rows"])


def test_a_rent_that_the_comment_names_and_the_prices_lack_is_reported(expected: Path) -> None:
    file = expected / "rental.csv"
    file.write_text("".join(line for line in file.read_text().splitlines(keepends=True) if "Google Cloud" not in line))
    assert f"{file}: found no row for V100, 1, Google Cloud, on-demand" in refusal("breakeven")


def test_its_dearer_rent_is_computed_too() -> None:
    row = answer("breakeven")["rows"][3]
    assert (row["provider"], row["rent_per_hour_usd"], row["whole_runs"]) == ("Google Cloud", 2.48, 5)


# --- The general form ---


def test_owning_pays_where_both_have_spent_the_same() -> None:
    found = break_even(case(resale=2000, running=0.5), 5)
    assert found.runs.value == pytest.approx(40)
    assert found.whole_runs == 40
    assert found.utilisation.value == pytest.approx(4000 / (5 * 365 * 24))


def test_at_the_break_even_the_two_lines_of_the_plot_meet() -> None:
    given = case(resale=2000, running=0.5)
    before, at, after = spending(given, (39, 40, 41))
    assert before.owning > before.renting
    assert at.owning == at.renting
    assert after.owning < after.renting
    assert spending(given, (0,))[0].owning == 6000


@pytest.mark.parametrize(
    ("arguments", "output"),
    [
        (
            ["--machine", "0"],
            "for 0.00 USD pays against the rent (Exoscale) from run 1 on: both have cost the same after less than 1%",
        ),
        (
            ["--machine", "100", "--resale", "100"],
            "from run 1 on: both have cost the same after less than 1% of its lifespan",
        ),
        (["--machine", "0..5"], "from run 1 on: both have cost the same after less than 1% of"),
        (["--hours", "1"], "from run 6,172 on: both have cost the same after 14% of its lifespan in use"),
        (["--machine", "4000..7000", "--hours", "1"], "from run 4,243 on (3,086 to 5,400): both"),
    ],
)
def test_what_pays_from_the_start_pays_from_the_first_run_on(arguments: list[str], output: str) -> None:
    assert output in answer("breakeven", *arguments)["answer"]


def test_the_bounds_of_the_first_run_that_pays_are_runs_as_it_is() -> None:
    found = answer("breakeven", "--model", "pythia-6.9b", *MACHINE[3:])
    row = found["rows"][-1]
    assert (row["runs_low"], row["runs"], row["runs_high"]) == (6.101, 6.141, 6.181)
    assert "from run 7 on: both" in found["answer"], "6 do not pay anywhere within the bounds, and 7 do"
    assert "from run 6 on (4 to 6): both" in answer("breakeven", "--model", "pythia-6.9b", *TRUE[3:])["answer"]


def test_the_share_of_its_lifespan_is_reported_of_the_break_even_and_not_of_whole_runs() -> None:
    found = answer("breakeven", "--model", "pythia-2.8b", "--gpu", "A6000", "--by", "printed")
    assert found["rows"][0]["runs"] == 0.316, "a run takes half its lifespan"
    assert "from run 1 on: both have cost the same after 16% of its lifespan in use" in found["answer"]


def test_one_run_that_outlasts_the_machine_is_counted_as_one() -> None:
    long = ("breakeven", "--gpu", "A100", "--hours", "100000", "--machine", "100000", "--rent", "1")
    assert answer(*long)["answer"].endswith("within its lifespan: it would take 1 run.")


def test_where_electricity_costs_more_than_the_rent_owning_never_pays() -> None:
    found = break_even(case(rent=1, running=1), 5)
    assert math.isinf(found.runs.value)
    assert found.whole_runs is None
    assert "never pays" in answer("breakeven", "--rent", "0.05")["answer"]
    assert only("--rent", "0.05")["runs"] is None


@pytest.mark.parametrize(
    ("hour", "why"),
    [
        (("--rent", "0.05", "--electricity", "0.13"), "its electricity costs more."),
        (("--rent", "0.05", "--electricity", "0.1"), "its electricity costs as much."),
        (("--rent", "0", "--electricity", "0"), "neither an hour of it nor one rented costs anything."),
        (("--rent", "0", "--power", "0"), "neither an hour of it nor one rented costs anything."),
    ],
)
def test_why_owning_never_pays_is_reported_as_it_is(hour: tuple[str, ...], why: str) -> None:
    found = answer("breakeven", *hour)
    assert found["answer"].endswith(f"never pays against the rent (--rent): {why}")
    assert any("costs no less than the rent" in note for note in found["notes"])


def test_uncertain_inputs_bound_the_answer_at_their_corners() -> None:
    row = only("--machine", "7000..9000", "--rent", "1.2..1.6", "--power", "0.4..0.6", "--electricity", "0.1..0.2")
    hours = 44 * 1024 / 60
    assert row["runs_low"] == pytest.approx(7000 / (1.6 - 0.4 * 0.1) / hours, abs=1e-3)
    assert row["runs_high"] == pytest.approx(9000 / (1.2 - 0.6 * 0.2) / hours, abs=1e-3)
    assert row["runs"] == pytest.approx(8000 / (1.4 - 0.5 * 0.15) / hours, abs=1e-3)
    assert row["runs_low"] < row["runs"] < row["runs_high"]
    sold = only("--machine", "7000..9000", "--resale", "500..1500", "--rent", "1.4", "--electricity", "0")
    bounds = [sold[name] * 1.4 * hours for name in ("runs_low", "runs", "runs_high")]
    assert bounds == pytest.approx([5500, 7000, 8500], rel=1e-3)


def test_a_bound_at_which_owning_never_pays_is_reported() -> None:
    found = answer("breakeven", "--rent", "0.05..1", "--electricity", "0.2")
    assert found["rows"][0]["runs_high"] is None
    assert "to never" in found["answer"]


def test_resale_and_cooling_count() -> None:
    plain, sold, cooled = only("--rent", "1.375"), only("--resale", "2000"), only("--pue", "1.5")
    assert sold["runs"] == pytest.approx(plain["runs"] * 6000 / 8000, abs=1e-3)
    assert cooled["kwh_a_run"] == pytest.approx(plain["kwh_a_run"] * 1.5, abs=0.01)
    assert cooled["runs"] > plain["runs"]


def test_what_is_not_given_is_the_comments() -> None:
    assert only("--rent", "1.375")["runs"] == answer("breakeven")["rows"][2]["runs"]


def test_the_largest_and_the_smallest_numbers_that_are_read_give_numbers_again() -> None:
    least, most = f"0.{'0' * 19}1", "9" * 20
    never = only("--machine", most, "--rent", least, "--hours", least, "--electricity", "0")
    assert never["runs"] == pytest.approx(1e60)
    assert only("--machine", least, "--rent", most, "--hours", most, "--power", "100", "--pue", "10")["runs"] == 0


# --- A machine of ours ---


def test_a_models_machine_stands_against_every_rental_of_it_by_the_hour() -> None:
    found = answer(*MACHINE)
    rows = {row["provider"]: row for row in found["rows"]}
    assert set(rows) == {"AWS, on-demand", "RunPod, on-demand, in proportion"}
    row = rows["AWS, on-demand"]
    assert (row["machine_usd"], row["hours_a_run"], row["origin"]) == (162_500, 216, "printed")
    assert row["runs"] == pytest.approx(162_500 / (216 * 27.44705), abs=1e-3)
    assert row["runs_low"] < row["runs"] < row["runs_high"]  # the paper's days are rounded
    assert "against the least rent (RunPod, on-demand, in proportion) from run 53 on" in found["answer"]
    assert any("as often as the machine has GPUs" in note for note in found["notes"])


def test_a_break_even_is_by_true_days_with_the_printed_ones_beside() -> None:
    found, printed = answer(*TRUE), answer(*MACHINE)
    assert "hours of a run: predicted, free_lunch" in found["answer"]
    assert "on today's stack (transformers 5.23.0)" in found["answer"]
    for row, other in zip(found["rows"], printed["rows"], strict=True):
        assert (row["provider"], row["origin"], row["printed_days"]) == (other["provider"], "predicted", 9)
        assert row["runs"] * row["hours_a_run"] == pytest.approx(other["runs"] * other["hours_a_run"], rel=1e-3)
        assert row["hours_a_run"] == pytest.approx(24 * row["predicted_days"])


def test_spot_rents_are_left_out_for_what_they_cost_depends_on_interruptions() -> None:
    found = answer("breakeven", "--gpu", "RTX 4090", "--hours", "100", "--machine", "3000")
    assert [row["provider"] for row in found["rows"]] == ["RunPod, on-demand"]


def test_the_reserved_machine_is_dearer_than_an_owned_one_from_the_first_hour() -> None:
    note = next(note for note in answer(*MACHINE)["notes"] if "reserved" in note)
    for part in ("650,000 USD for 43,800 hours", "162,500 USD", "Owning costs less from the first hour"):
        assert part in note


def test_energy_is_the_board_power_of_the_gpus_until_it_is_measured(tmp_path: Path) -> None:
    board = answer(*MACHINE)
    assert board["rows"][0]["kwh_a_run"] == pytest.approx(8 * 0.4 * 216, abs=0.01)
    assert any("board power" in note for note in board["notes"])
    states = [{"power_w": 250.0 + rank} for rank in range(8)]
    trial = record("pythia-1b", "free_lunch", 10.0, gpu="A100", count=8, gpu_state=states)
    measured = answer(*TRUE, "--measured", str(results_folder(tmp_path / "out", trial)))
    assert measured["rows"][0]["kwh_a_run"] == pytest.approx(2.028 * 240, abs=0.01)
    assert measured["rows"][0]["origin"] == "measured"
    assert any("measured" in note and "Power" in note for note in measured["notes"])


def test_the_mean_power_of_the_timed_rounds_counts_before_one_reading(tmp_path: Path) -> None:
    states = [{"power_w": 900.0}] * 8
    trial = record("pythia-1b", "free_lunch", 10.0, gpu="A100", count=8, gpu_state=states, mean_power=[300.0] * 8)
    assert trial.derived.true_step is not None
    assert trial.derived.joules_per_step == pytest.approx(8 * 300 * trial.derived.true_step)
    measured = answer(*TRUE, "--measured", str(results_folder(tmp_path / "out", trial)))
    assert measured["rows"][0]["kwh_a_run"] == pytest.approx(2.4 * 240, abs=0.01)
    assert any("Power: measured by the energy counters" in note for note in measured["notes"])


@pytest.mark.parametrize(
    "states",
    [
        [*[{"power_w": 250.0}] * 7, {"power_w": None}],
        [*[{"power_w": 250.0}] * 7, None],
        [{"sm_mhz": 1410}] * 8,
    ],
    ids=["of one", "of its state", "of all"],
)
def test_power_that_a_gpu_did_not_tell_is_not_taken_for_measured(states: list[Any], tmp_path: Path) -> None:
    trial = record("pythia-1b", "free_lunch", 10.0, count=8, gpu_state=states)
    measured = answer(*TRUE, "--measured", str(results_folder(tmp_path / "out", trial)))
    assert measured["rows"][0]["kwh_a_run"] == pytest.approx(8 * 0.4 * 240, abs=0.01)


def test_where_nobody_knows_the_power_neither_electricity_nor_co2_is_computed_until_it_is_given(expected: Path) -> None:
    file = expected / "gpus.csv"
    text = file.read_text()
    assert ",312,312,1410,2039,400,NVLink 600" in text
    file.write_text(text.replace(",312,312,1410,2039,400,NVLink 600", ",312,312,1410,2039,,NVLink 600"))
    asked = (*MACHINE, "--electricity", "0.2", "--co2", "US")
    found = answer(*asked)
    output = "The power of A100 is unknown, and so {} not counted; give --power KW."
    assert output.format("electricity and CO2 are") in found["notes"]
    assert output.format("electricity is") in answer(*MACHINE, "--electricity", "0.2")["notes"]
    assert output.format("energy is") in answer(*MACHINE)["notes"]
    assert "pays, before electricity, against" in found["answer"]
    assert "before electricity" not in answer(*asked, "--power", "3.2")["answer"]
    row, given = found["rows"][0], answer(*asked, "--power", "3.2")["rows"][0]
    assert [row[name] for name in ("kwh_a_run", "electricity_a_run", "electricity_a_run_usd", "co2_kg_a_run")] == [
        None
    ] * 4
    assert row["runs"] == answer(*MACHINE)["rows"][0]["runs"] < given["runs"]
    assert given["electricity_a_run_usd"] == pytest.approx(3.2 * 216 * 0.2, abs=0.01)


def test_co2_is_of_a_region_or_of_a_number_and_names_its_source() -> None:
    of_us, of_number = answer(*MACHINE, "--co2", "us"), answer(*MACHINE, "--co2", "390")
    assert of_us["rows"][0]["co2_kg_a_run"] == pytest.approx(691.2 * 0.39, abs=0.01)
    assert of_us["rows"] == of_number["rows"]
    assert any("Energy Information Administration" in note for note in of_us["notes"])
    assert "CO2: 390 g a kWh, as given." in of_number["notes"]
    assert answer(*MACHINE)["rows"][0]["co2_kg_a_run"] is None


def test_a_price_of_the_machine_itself_leaves_none_in_proportion(tmp_path: Path) -> None:
    own = prices(tmp_path, rental_table(gpu="RTX 4090", gpus=2, provider="RunPod", price=0.2))
    machine = ("breakeven", "--gpu", "RTX 4090", "--gpus", "2", "--hours", "100", "--machine", "5000")
    rows = answer(*machine, "--prices", own)["rows"]
    assert [(row["provider"], row["rent_per_hour_usd"]) for row in rows] == [("RunPod, on-demand", 0.2)]


def test_the_comments_electricity_takes_a_rate_that_is_given(tmp_path: Path) -> None:
    mine = prices(tmp_path, rate_table("EUR", "GBP", 0.5))
    asked = ("breakeven", "--currency", "GBP", "--machine", "8000", "--rent", "1.5")
    (apart,) = answer(*asked)["rows"]
    (counted,) = answer(*asked, "--prices", mine)["rows"]
    assert "pays, before electricity, against" in answer(*asked)["answer"]
    assert apart["electricity_a_run_gbp"] is None
    assert counted["electricity_a_run_gbp"] == pytest.approx(counted["electricity_a_run"] / 2, abs=0.01)
    assert counted["runs"] > apart["runs"]


def test_a_rate_of_ones_own_goes_over_the_comments_and_the_note_says_which_it_was(tmp_path: Path) -> None:
    mine = prices(tmp_path, rate_table("EUR", "USD", 2.0))
    its, own = answer("breakeven", "--machine", "9000"), answer("breakeven", "--machine", "9000", "--prices", mine)
    assert its["rows"][0]["electricity_a_run_usd"] == pytest.approx(48.81 * 69 / 57, abs=0.01)
    assert own["rows"][0]["electricity_a_run_usd"] == pytest.approx(48.81 * 2, abs=0.01)
    assert "EUR become USD at the comment's own rate, 69/57." in its["notes"]
    assert any(note.startswith("EUR become USD at the rate in --prices, 2 (") for note in own["notes"])
    assert not any("comment's own rate" in note for note in own["notes"])
    assert own["rows"] == answer("breakeven", "--machine", "9000", "--electricity", "0.13EUR", "--prices", mine)["rows"]


def test_prices_that_change_nothing_of_the_comments_own_sum_are_refused(tmp_path: Path) -> None:
    output = "changes nothing of the comment's own sum: give an input of your own too, such as --machine SUM"
    assert output in refusal("breakeven", "--prices", prices(tmp_path, ""))
    mine = prices(tmp_path, rate_table("EUR", "GBP", 0.5))
    output = "changes nothing of the comment's workstation, as no [[rate]] of it is needed; --gpu NAME takes"
    assert output in refusal("breakeven", "--machine", "9000", "--prices", mine)


def test_a_rental_without_a_rate_is_said_to_be_left_out(tmp_path: Path) -> None:
    output = "Rentals left out: no rate from EUR to USD, a [[rate]] in --prices brings one"
    mine = prices(tmp_path, rental_table(currency="EUR"))
    assert f"{output}." in answer(*MACHINE, "--prices", mine)["notes"]
    assert f"{output}." not in answer(*MACHINE, "--prices", mine, "--rent", "20")["notes"]
    mine = prices(tmp_path, rental_table(gpu="RTX 3090", currency="EUR"))
    assert output in refusal("breakeven", "--gpu", "RTX 3090", "--gpus", "8", "--hours", "5", "--prices", mine)


def test_its_own_price_of_electricity_given_in_euros_changes_nothing() -> None:
    (given,) = answer("breakeven", "--electricity", "0.13EUR")["rows"]
    assert given["runs"] == answer("breakeven")["rows"][2]["runs"]


def test_old_prices_are_flagged_only_where_they_were_taken() -> None:
    asked = ("breakeven", "--gpu", "A100", "--gpus", "2", "--hours", "100")
    (ours,) = (note for note in answer(*asked)["notes"] if "older than a year" in note)
    assert "2 A100 to buy" in ours
    mine = answer(*asked, "--machine", "20000", "--rent", "3")["notes"]
    assert not any("older than a year" in note for note in mine)


def test_electricity_in_another_currency_stands_apart_until_a_rate_is_given(tmp_path: Path) -> None:
    plain, apart = answer(*MACHINE), answer(*MACHINE, "--electricity", "0.13EUR")
    row = apart["rows"][0]
    assert row["electricity_a_run"] == pytest.approx(691.2 * 0.13, abs=0.01)
    assert (row["electricity_currency"], row["electricity_a_run_usd"]) == ("EUR", None)
    assert row["runs"] == plain["rows"][0]["runs"]
    assert any("stands apart" in note and "no rate from EUR to USD" in note for note in apart["notes"])
    mine = prices(tmp_path, rate_table("EUR", "USD"))
    counted = answer(*MACHINE, "--electricity", "0.13EUR", "--prices", mine)["rows"][0]
    assert counted["electricity_a_run_usd"] == pytest.approx(691.2 * 0.13 * 1.25, abs=0.01)
    assert counted["runs"] > row["runs"]


# --- Bad input ---

BAD_INPUT = [
    (["--machine", "-5"], "--machine -5"),
    (["--machine", "5..3"], "--machine 5..3: expected the lower bound first, 3..5"),
    *(
        (["--machine", sum_], f"--machine {sum_}: expected a sum in plain digits such as 8000, 0.13EUR or, with bounds")
        for sum_ in ("nan", "inf", "8 000 USD", "8_000", "1e308", "1..inf", "USD", "")
    ),
    (["--resale", "9000"], "--resale 9000: expected no more than the machine costs, 8,000 USD"),
    (["--machine", "7000..9000", "--resale", "6000..8000"], "expected no more than the machine costs, 7,000 USD"),
    (["--resale", "nan"], "--resale nan: expected a sum"),
    (["--rent", "1_0"], "--rent 1_0: expected a sum"),
    (["--electricity", "inf EUR"], "--electricity inf EUR: expected a sum"),
    (["--machine", "9" * 21], "expected at most 20 digits on either side of the point"),
    (["--machine", "8000usd"], "--machine 8000usd: unknown currency 'usd'; did you mean USD"),
    (["--hours", "1e-300"], "--hours 1e-300: expected a number from 0 up in plain digits"),
    (["--power", "0_5"], "--power 0_5: expected a number from 0 up in plain digits"),
    (["--power", "500"], "--power 500: expected at most 100 kW; 500 W are 0.5"),
    (["--power", "0.5..101"], "--power 0.5..101: expected at most 100 kW"),
    (["--gpu", "A100", "--gpus", "64", "--hours", "5", "--power", "641"], "--power 641: expected at most 640 kW"),
    (["--rent", "1XYZ"], "no rate from XYZ to USD"),
    (["--rent", "1EUR"], "no rate from EUR to USD"),
    (["--hours", "\uff15"], "--hours \uff15: expected a number from 0 up"),  # a full-width 5
    (["--hours", "0"], "--hours 0: expected more than 0, such as 100"),
    (["--pue", "0.9"], "--pue 0.9: expected from 1, the machine itself, to 10"),
    (["--pue", "1.1..110"], "--pue 1.1..110: expected from 1, the machine itself, to 10"),
    (["--co2", "Atlantis"], "a region: world, US"),
    (["--model", "pythia-1b"], "--model needs --gpu"),
    (["--gpus", "2"], "--gpus needs --gpu"),
    (["--measured", "none"], "--measured needs --gpu"),
    (["--gpu", "A100", "--hours", "5", "--measured", "none"], "--measured needs --model ID"),
    (["--gpu", "A100", "--hours", "5", "--model", "pythia-1b"], "--model and --hours exclude each other"),
    (["--gpu", "A100"], "--gpu needs --model ID, or --hours H"),
    (["--gpu", "A10O", "--hours", "5"], "did you mean A10, A100?"),
    (["--gpu", "A100", "--gpus", "0", "--hours", "5"], "--gpus 0"),
    (["--gpu", "A100", "--gpus", "3", "--hours", "5"], "no price for a machine with 3 A100"),
    (["--gpu", "A100", "--gpus", "3", "--model", "pythia-1b"], "on 3 A100; known: 1, 2, 4, 8 A100\n"),
    (["--gpu", "T4", "--model", "pythia-6.9b"], "pythia-6.9b does not train on 1 T4"),
    (["--gpu", "T4", "--model", "vit", "--by", "printed"], "the paper prints no days of vit on 1 T4"),
    (["--gpu", "RTX 3090", "--hours", "5"], "no price in USD for renting 1 RTX 3090"),
    (["--currency", "EUR"], "the comment's sums are in USD"),
]


@pytest.mark.parametrize(("arguments", "output"), BAD_INPUT, ids=lambda value: " ".join(value)[-30:])
def test_bad_input_is_one_clear_line(arguments: list[str], output: str) -> None:
    assert output in refusal("breakeven", *arguments)
