"""`repro rent`: on demand, reserved, and spot with its interruptions, in closed form and against a simulation."""

from __future__ import annotations

import random
import re
import statistics
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from repro.money.days import DaysAsked, ModelDays
from repro.money.prices import Rate, price_list
from repro.money.renting import Interruptions, Spot, daly, expected, given_hours, rent, rented_runs, serving, young
from repro.paper.gpus import by_name
from tests.command_line import answer, record, refusal, repro, results_folder
from tests.price_files import prices, rental_table

PRINTED = ("--by", "printed")
SPOT = ("--interrupted-every", "12h", "--checkpoint-time", "2m", "--restart-time", "10m")
RUN = ("rent", "--hours", "100", "--gpu", "RTX 4090")


def by_terms(*arguments: str) -> dict[str, dict[str, Any]]:
    return {f"{row['provider']} {row['terms']}": row for row in answer(*arguments)["rows"]}


# --- Prices ---


def test_the_papers_prices_per_gpu_hour() -> None:
    rows = answer("rent")["rows"]
    price = {(row["gpu"], row["gpus"], row["provider"], row["terms"]): row["price_per_gpu_hour"] for row in rows}
    assert price["RTX 4090", 1, "RunPod", "on-demand"] == 0.69
    assert price["RTX 4090", 2, "RunPod", "on-demand"] == 0.69
    assert price["RTX 4090", 1, "RunPod", "spot"] == 0.35
    assert price["V100 16 GB", 1, "AWS", "on-demand"] == 3.06
    assert price["V100", 1, "Google Cloud", "on-demand"] == 2.48
    assert price["V100", 1, "Exoscale", "on-demand"] == 1.375
    assert price["A100", 8, "AWS", "reserved"] == pytest.approx(650_000 / (5 * 365 * 24 * 8), abs=1e-4)
    assert all(row["currency"] == "USD" and row["source"] and row["quoted"] for row in rows)


def test_the_reserved_machine_stands_against_an_owned_one() -> None:
    notes = " ".join(answer("rent", "--gpu", "A100")["notes"])
    owned = "to own the machine costs 162,500 USD"
    for part in ("650,000 USD for 43,800 hours", owned, "at most 200,000 USD", "2024-09-21 (8 A100 to buy)"):
        assert part in notes


def test_old_prices_are_flagged_row_by_row() -> None:
    old = {row["quoted"]: row["old_price"] for row in answer("rent")["rows"]}
    assert old["2021-01-14"]
    assert old["2024-09-01"]


def test_a_run_costs_its_hours() -> None:
    rows = by_terms(*RUN)
    assert rows["RunPod on-demand"]["cost_usd"] == 69
    assert rows["RunPod on-demand"]["origin"] == "given"
    assert rows["RunPod spot"]["cost_usd"] == 35
    assert any("as if never interrupted" in note for note in answer(*RUN)["notes"])


def test_two_gpus_cost_twice_as_much_an_hour() -> None:
    assert by_terms(*RUN, "--gpus", "2")["RunPod on-demand"]["cost_usd"] == 138
    assert by_terms(*RUN, "--gpus", "4")["RunPod on-demand"]["cost_usd"] == 276


def test_a_models_days_are_rented_and_say_whose_they_are(tmp_path: Path) -> None:
    row = by_terms("rent", "--model", "pythia-1b", "--gpu", "A100", "--gpus", "8", *PRINTED)["AWS on-demand"]
    assert (row["days"], row["origin"]) == (9, "printed")
    assert row["cost_usd"] == pytest.approx(9 * 24 * 27.44705, abs=0.01)
    folder = results_folder(tmp_path / "out", record("pythia-1b", "free_lunch", 200.0, gpu="RTX 4090", count=1))
    asked = ("rent", "--model", "pythia-1b", "--gpu", "RTX 4090", "--gpus", "1")
    measured = by_terms(*asked, "--measured", str(folder))
    assert measured["RunPod on-demand"]["origin"] == "measured"
    assert measured["RunPod on-demand"]["cost_usd"] == pytest.approx(200 * 24 * 0.69)


def test_the_cheapest_rent_is_by_true_days_and_the_printed_ones_stand_beside() -> None:
    found, printed = answer("rent", "--model", "pythia-1b"), answer("rent", "--model", "pythia-1b", *PRINTED)
    assert "2,991 USD in 152 days (printed: paper, Table 1)" in printed["answer"]
    beside = {(row["gpu"], row["gpus"]): row["printed_days"] for row in found["rows"]}
    for row in printed["rows"]:
        assert row["days"] == beside[row["gpu"], row["gpus"]]
    named = answer("rent", "--model", "pythia-1b", "--gpu", "RTX 4090")
    assert {row["printed_days"] for row in named["rows"]} == {None}
    assert {"measured", "projected", "predicted"} == {row["origin"] for row in found["rows"]}


def test_storage_is_paid_for_as_long_as_the_run_takes() -> None:
    row = by_terms(*RUN, "--storage", "900GB", "--storage-price", "0.07")["RunPod on-demand"]
    assert row["storage_usd"] == pytest.approx(900 * 0.07 * 100 / 730, abs=0.01)
    assert row["cost_usd"] == pytest.approx(69 + row["storage_usd"])


def test_the_cheapest_comes_first_and_of_equals_the_fastest() -> None:
    rows = answer(*RUN, *SPOT)["rows"]
    assert [row["terms"] for row in rows] == ["spot", "on-demand"]
    assert rows[0]["days"] > rows[1]["days"]
    slow, fast = given_hours("RTX 4090", 1, 200), given_hours("RTX 4090", 2, 100)
    rental = next(row for row in price_list().rentals if row.gpu == "RTX 4090" and row.terms == "on-demand")
    assert [row.run for row in rented_runs([slow, fast], [rental], "USD", [])] == [fast, slow]


def test_spot_is_called_the_cheapest_only_where_its_interruptions_are_computed() -> None:
    assert "RunPod, on-demand: 69.00 USD" in answer(*RUN)["answer"]
    assert "RunPod, spot: " in answer(*RUN, *SPOT)["answer"]


def test_the_interval_of_predicted_days_is_interrupted_as_they_are(tmp_path: Path) -> None:
    own = prices(tmp_path, rental_table("spot", gpu="A40", gpus=1))
    asked = ("rent", "--model", "pythia-1b", "--gpu", "A40", "--gpus", "1", "--prices", own)
    plain, faced = by_terms(*asked)["shop spot"], by_terms(*asked, *SPOT)["shop spot"]
    run = ModelDays("pythia-1b", DaysAsked()).on(by_name()["A40"], 1)
    assert run is not None
    assert (plain["days_low"], plain["days_high"]) == run.bounds
    for key in ("days_low", "days", "days_high"):
        assert faced[key] / plain[key] == pytest.approx(faced["days"] / plain["days"], rel=0.01)
        assert faced[key] > plain[key]
    output = f"{faced['days_low']:.0f} to {faced['days_high']:.0f} days"
    assert output in answer(*asked, *SPOT)["answer"]


def test_a_rent_is_reported_in_the_currency_asked_for() -> None:
    rental = next(row for row in price_list().rentals if row.gpu == "RTX 4090" and row.terms == "on-demand")
    rates = [Rate("EUR", "USD", 1.25, date(2026, 11, 1), "bank")]
    [row] = rented_runs([given_hours("RTX 4090", 1, 100)], [rental], "EUR", rates)
    assert (row.rent, row.price_per_gpu_hour) == pytest.approx((69 / 1.25, 0.69 / 1.25))


def test_one_gpu_by_the_hour_stands_for_more_where_that_is_known_and_a_reserved_one_nowhere() -> None:
    rental = next(row for row in price_list().rentals if row.gpu == "RTX 4090" and row.terms == "on-demand")
    other, reserved = replace(rental, provider="shop"), replace(rental, terms="reserved", hours=8760.0)
    assert serving([rental, other, reserved], "RTX 4090", 1) == [rental, other, reserved]
    assert serving([rental, other, reserved], "RTX 4090", 4) == [rental]
    assert not serving([rental], "RTX 3090", 1)
    assert not serving([replace(rental, gpus=2)], "RTX 4090", 4)


def test_a_machine_that_has_a_price_of_its_own_has_none_in_proportion() -> None:
    rental = next(row for row in price_list().rentals if row.gpu == "RTX 4090" and row.terms == "on-demand")
    for times in (2, 3, 4):
        whole = replace(rental, gpus=3, price=times * rental.price)
        assert serving([rental, whole], "RTX 4090", 3) == [whole]
        assert serving([rental, replace(whole, terms="spot")], "RTX 4090", 3)[1:] == [rental], "on other terms it has"
    rows = answer(*RUN, "--gpus", "2")["rows"]
    assert [(row["terms"], row["in_proportion"]) for row in rows] == [("spot", True), ("on-demand", False)]


def test_instances_of_one_gpu_are_no_machine_of_several() -> None:
    found = answer("rent", "--model", "pythia-1b", "--gpu", "A6000")
    assert {(row["provider"], row["gpus"]) for row in found["rows"]} == {("Verda", 1)}
    assert any("No other provider's price of one GPU stands for more" in note for note in found["notes"])
    assert "no price for renting 4 A6000; give one with --prices" in refusal(*RUN[:3], "--gpu", "A6000", "--gpus", "4")


@pytest.mark.parametrize(("hours", "terms"), [(100, 1), (8760, 1), (8761, 2), (3 * 8760, 3)])
def test_a_reserved_machine_is_paid_for_in_whole_terms(hours: float, terms: int) -> None:
    rental = next(row for row in price_list().rentals if row.gpu == "RTX 4090" and row.terms == "on-demand")
    term = replace(rental, terms="reserved", hours=8760.0, price=3000.5)
    assert rent(term, 1, hours) == terms * 3000.5
    foretold = replace(given_hours("RTX 4090", 1, hours), origin="predicted")
    assert [row.rent for row in rented_runs([foretold], [term], "USD", [])] == [terms * 3000.5], "known to the cent"


def test_a_run_as_long_as_a_term_pays_for_one_and_the_term_is_reported_to_the_hour_and_below(tmp_path: Path) -> None:
    term = rental_table("reserved", "770.4", gpus=1, provider="campus", price=98.5)
    own = ("--gpu", "A100", "--prices", prices(tmp_path, term))
    assert 770.4 / 24 * 24 > 770.4, "floats of the run's days make a little more of its hours"
    assert by_terms("rent", "--hours", "770.4", *own)["campus reserved"]["cost_usd"] == 98.5
    output = "98.50 USD for 770.4 hours, used or not"
    assert any(output in note for note in answer("rent", *own)["notes"])
    assert any(output in note for note in answer("breakeven", "--hours", "1", *own)["notes"])
    offers = answer("recommend", "--model", "vit", "--rent", *own[2:])["rows"]
    assert "rent, campus reserved for 770.4 h" in {row["terms"] for row in offers}


def test_a_rental_of_ones_own_replaces_that_of_the_same_terms_alone(tmp_path: Path) -> None:
    file = prices(tmp_path, rental_table(gpu="RTX 4090", gpus=1, provider="RunPod"))
    listed = price_list(Path(file)).rentals
    of_one = {row.terms: row.price for row in listed if (row.gpu, row.gpus) == ("RTX 4090", 1)}
    assert of_one == {"on-demand": 0.5, "spot": 0.35}
    two = answer(*RUN, "--gpus", "2", "--prices", file)
    assert [(row["terms"], row["price_per_gpu_hour_usd"]) for row in two["rows"]] == [
        ("spot", 0.35),
        ("on-demand", 0.5),
    ]
    assert all(row["in_proportion"] for row in two["rows"]), "ours of two GPUs is older than what one costs now"


def test_a_provider_of_ours_is_the_same_in_any_case(tmp_path: Path) -> None:
    file = prices(tmp_path, rental_table(gpus=1, provider="Runpod", price=1.5))
    found = answer("rent", "--model", "vit", "--gpu", "A100", "--prices", file, *PRINTED)
    hourly = {row["price_per_gpu_hour_usd"] for row in found["rows"] if row["provider"] == "RunPod"}
    assert hourly == {1.5}, "ours is replaced, of one GPU and of more"
    assert found["answer"].startswith("The cheapest is 2 A100 at RunPod, on-demand, in proportion: 1,872 USD")


def test_what_a_run_is_computed_with_is_listed_without_one_too() -> None:
    found = answer("rent", "--gpu", "RTX 4090", "--gpus", "4")
    assert [(row["gpus"], row["terms"]) for row in found["rows"]] == [(1, "on-demand"), (1, "spot")]
    assert any("as often as the machine has GPUs" in note for note in found["notes"])
    assert "4 RTX 4090 at RunPod, spot, in proportion" in answer(*RUN, "--gpus", "4", *SPOT)["answer"]


def test_a_number_of_gpus_alone_lists_every_machine_of_so_many_in_proportion_too() -> None:
    found = answer("rent", "--gpus", "8")
    offers = {(row["provider"], row["gpu"]) for row in found["rows"]}
    assert offers == {("AWS", "A100"), ("AWS", "H100"), ("RunPod", "A100"), ("RunPod", "H100"), ("RunPod", "RTX 4090")}
    assert any("as often as the machine has GPUs" in note for note in found["notes"])
    assert {row["provider"] for row in answer("rent", "--gpus", "4")["rows"]} == {"RunPod"}


def test_storage_is_kept_through_interruptions() -> None:
    row = by_terms(*RUN, *SPOT, "--storage", "900GB", "--storage-price", "0.07")["RunPod spot"]
    hours = Spot(Interruptions(12.0, 2 / 60, 10 / 60), "daly").expected(100.0).time
    assert row["storage_usd"] == pytest.approx(900 * 0.07 * hours / 730, abs=0.01)


# --- Interruptions ---


def simulated(work: float, every: float, faced: Interruptions, seed: int, runs: int) -> tuple[list[float], list[int]]:
    """Times and interruptions of runs that are played through, interruption by interruption."""
    chance = random.Random(seed)
    times, counts = [], []
    for _ in range(runs):
        clock, done, count = 0.0, 0.0, 0
        next_interruption = chance.expovariate(1 / faced.between)
        restarting = 0.0
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
                count += 1
                restarting = faced.restart
        times.append(clock)
        counts.append(count)
    return times, counts


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
    times, counts = simulated(work, every, faced, seed=7, runs=4000)
    output = expected(work, every, faced)
    for simulation, closed in ((times, output.time), (counts, output.interruptions)):
        error = statistics.stdev(simulation) / len(simulation) ** 0.5
        assert abs(statistics.mean(simulation) - closed) < 4 * error
        assert error < 0.05 * closed  # tight enough to tell a wrong form from a right one


def test_without_interruptions_only_the_checkpoints_are_added() -> None:
    output = expected(100.0, 10.0, Interruptions(1e9, 0.5, 1.0))
    assert output.time == pytest.approx(105, rel=1e-6)
    assert output.interruptions == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize(("between", "best"), [(24 * 60, 117), (6 * 60, 57), (15, 9.1)])
def test_dalys_optimum_is_the_one_he_prints(between: float, best: float) -> None:
    # His figures 3 to 5: a checkpoint takes 5 minutes.
    assert daly(Interruptions(between, 5, 10)) == pytest.approx(best, rel=0.006)


def test_dalys_optimum_has_the_last_term_of_his_series() -> None:
    assert daly(Interruptions(2, 1, 1)) == pytest.approx(2 * (1 + 1 / 6 + 1 / 36) - 1)


def test_youngs_optimum_is_the_square_root_of_twice_the_product() -> None:
    assert young(Interruptions(720, 2, 10)) == pytest.approx(53.67, abs=0.01)


@pytest.mark.parametrize("between", [60.0, 720.0, 5000.0])
def test_no_other_interval_beats_dalys_by_much_and_young_is_no_better(between: float) -> None:
    faced, work = Interruptions(between, 2, 10), 1e6

    def time(every: float) -> float:
        return expected(work, every, faced).time

    best = min(time(daly(faced) * factor / 100) for factor in range(20, 500))
    assert time(daly(faced)) < best * 1.0005
    assert time(daly(faced)) <= time(young(faced)) * (1 + 1e-4)


def test_days_between_two_checkpoints_are_reported_in_all_their_minutes() -> None:
    seldom = ("--interrupted-every", "365d", "--checkpoint-time", "30m", "--restart-time", "1h")
    output = " ".join(answer(*RUN, *seldom)["notes"])
    assert "Best is a checkpoint every 5616 min by Young (1974), 5596 min by Daly (2006)." in output


def test_checkpoints_slower_than_interruptions_leave_daly_at_the_mean_time_between() -> None:
    assert daly(Interruptions(1, 3, 1)) == 1


def test_a_spot_run_has_expected_days_cost_and_interruptions() -> None:
    faced = Interruptions(12.0, 2 / 60, 10 / 60)
    output = Spot(faced, "daly").expected(100.0)
    row = by_terms(*RUN, *SPOT)["RunPod spot"]
    assert row["days"] == pytest.approx(output.time / 24, abs=1e-3)
    assert row["cost_usd"] == pytest.approx(output.time * 0.35, abs=0.01)
    assert row["interruptions"] == pytest.approx(output.interruptions, abs=0.01)
    assert row["checkpoint_every_h"] == pytest.approx(daly(faced), abs=1e-3)
    on_demand = by_terms(*RUN, *SPOT)["RunPod on-demand"]
    assert (on_demand["cost_usd"], on_demand["interruptions"]) == (69, None)


@pytest.mark.parametrize(
    ("plan", "every"),
    [(["young"], (2 * 2 / 60 * 12) ** 0.5), (["epoch", "--epochs", "20"], 5.0), (["90m"], 1.5)],
)
def test_checkpoints_are_written_as_asked(plan: list[str], every: float) -> None:
    row = by_terms(*RUN, *SPOT, "--checkpoint-every", *plan)["RunPod spot"]
    assert row["checkpoint_every_h"] == pytest.approx(every, abs=1e-3)


def test_a_run_that_is_saved_too_seldom_may_cost_more_on_spot() -> None:
    often = ("--interrupted-every", "3h", "--checkpoint-time", "2m", "--restart-time", "10m")
    rows = by_terms(*RUN, *often, "--checkpoint-every", "epoch", "--epochs", "10")
    assert rows["RunPod spot"]["cost_usd"] > rows["RunPod on-demand"]["cost_usd"]
    assert by_terms(*RUN, *often)["RunPod spot"]["cost_usd"] < rows["RunPod on-demand"]["cost_usd"]


def test_a_run_that_ends_before_its_first_checkpoint_does_not_wait_for_it() -> None:
    faced = Interruptions(1.0, 0.01, 0.1)
    assert expected(10.0, 10_000.0, faced) == expected(10.0, 10.0, faced)


HOPELESS = (
    "--interrupted-every",
    "1m",
    "--checkpoint-time",
    "30s",
    "--restart-time",
    "2m",
    "--checkpoint-every",
    "20h",
)


@pytest.mark.parametrize("storage", [(), ("--storage", "900GB", "--storage-price", "0.07")], ids=["without", "with"])
def test_an_offer_on_which_the_run_never_ends_comes_last_and_has_no_days_and_no_cost(storage: tuple[str, ...]) -> None:
    output = answer("rent", "--model", "pythia-1b", *HOPELESS, *storage)
    costs = [row["cost_usd"] for row in output["rows"]]
    ending = [cost for cost in costs if cost is not None]
    assert costs == sorted(ending) + [None] * (len(costs) - len(ending))
    assert f"{ending[0]:,.0f} USD" in output["answer"]
    assert {row["days"] for row in output["rows"] if row["cost_usd"] is None} == {None}
    assert {row["terms"] for row in output["rows"] if row["cost_usd"] is None} == {"spot"}
    assert any("not to be expected to finish" in note for note in output["notes"])


def test_where_the_run_ends_on_no_offer_none_is_called_the_cheapest(tmp_path: Path) -> None:
    output = answer(*spot_alone(tmp_path), *HOPELESS)
    assert "None of these ends" in output["answer"]


def spot_alone(tmp_path: Path) -> tuple[str, ...]:
    own = prices(tmp_path, rental_table("spot", gpu="T4", gpus=1, provider="a friend", price=1))
    return "rent", "--hours", "100", "--gpu", "T4", "--prices", own


def test_a_bar_in_ones_own_prices_divides_no_column_of_markdown(tmp_path: Path) -> None:
    command = spot_alone(tmp_path)
    own = Path(command[-1])
    own.write_text(own.read_text().replace("a friend", "a | friend"))
    heading, rule, row = repro(*command, "--format", "markdown").stdout.split("\n\n")[1].splitlines()
    assert r"a \| friend" in row
    assert len({len(re.split(r"(?<!\\)\|", line)) for line in (heading, rule, row)}) == 1


@pytest.mark.parametrize("text", ["a\\nb", "a\\u001b[31mb", "a\\u2028b"])
def test_what_breaks_a_line_or_steers_a_terminal_is_no_name_of_a_provider(tmp_path: Path, text: str) -> None:
    command = spot_alone(tmp_path)
    own = Path(command[-1])
    own.write_text(own.read_text().replace("a friend", text))
    output = refusal(*command)
    assert output.startswith(f"repro: {own}, [[rental]] 1, provider: found 'a")
    assert output.endswith(", expected some text on one line\n")


def test_a_spot_price_that_is_the_only_one_is_taken_and_not_said_to_be_passed_over(tmp_path: Path) -> None:
    alone, beside = answer(*spot_alone(tmp_path)), answer(*RUN)
    assert "The cheapest is 1 T4 at a friend, spot" in alone["answer"]
    for found, passed_over in ((alone, False), (beside, True)):
        [note] = [note for note in found["notes"] if "as if never interrupted" in note]
        assert ("not taken for the cheapest" in note) == passed_over


def test_where_no_spot_price_serves_the_run_its_interruptions_are_said_to_change_nothing() -> None:
    asked = ("rent", "--model", "pythia-1b", "--gpu", "H100")
    plain, faced = answer(*asked), answer(*asked, *SPOT)
    assert plain["rows"] == faced["rows"]
    [note] = [note for note in faced["notes"] if note not in plain["notes"]]
    assert note.startswith(
        "No spot price serves the run: its interruptions and checkpoints change nothing; a [[rental]]"
    )
    assert not any("No spot price" in note for note in answer(*RUN, *SPOT)["notes"])


def test_half_a_cent_is_reported_as_a_whole_one_in_the_answer_and_in_the_rows() -> None:
    found = answer("rent", "--gpu", "V100", "--hours", "3")
    row = found["rows"][0]
    assert row["price_per_gpu_hour_usd"] * 3 == 4.125
    assert "4.13 USD" in found["answer"]
    assert row["rent_usd"] == row["cost_usd"] == 4.13


@pytest.mark.parametrize(("hours", "output"), [("300", "13 days"), ("324", "14 days"), ("222", "9.3 days")])
def test_half_a_day_is_reported_as_a_whole_one_and_half_a_tenth_as_one(hours: str, output: str) -> None:
    assert f" USD in {output} (" in answer("rent", "--gpu", "V100", "--hours", hours)["answer"]


# --- Bad input ---

BAD_INPUT = [
    (["--gpu", "RTX 4900"], "did you mean RTX 4090"),
    (["--gpu", "quantum"], "repro gpus lists those we know"),
    (["--gpus", "0"], "--gpus 0: expected a whole number from 1 to "),
    (["--hours", "10"], "--hours needs --gpu"),
    (["--hours", "-3", "--gpu", "T4"], "--hours -3"),
    (["--hours", "10h", "--gpu", "T4"], "--hours 10h: expected a positive number in plain digits such as 100"),
    (["--hours", "10", "--gpu", "T4"], "no price for renting 1 T4"),
    (["--model", "pythia-1b", "--hours", "3"], "exclude each other"),
    (["--model", "pythia-1b", "--gpu", "T4"], "pythia-1b does not train on T4"),
    (
        ["--model", "pythia-6.9b", "--gpus", "1"],
        "pythia-6.9b does not train on 1 GPU; known: 2, 4, 8 GPUs",
    ),
    (["--hours", "3", "--gpu", "RTX 4090", "--measured", "none"], "--measured needs --model ID"),
    (["--storage", "1GB"], "--storage needs a run"),
    (["--storage-price", "0.07"], "--storage-price needs a run"),
    (["--currency", "USD"], "--currency needs a run"),
    ([*RUN[1:], "--storage", "1GB", "--storage-price", "1..2"], "--storage-price 1..2: expected one sum such as 0.07"),
    (["--measured", "none"], "--measured needs a run"),
    (["--checkpoint-every", "daly"], "--checkpoint-every needs a run"),
    ([*RUN[1:], "--checkpoint-every", "daly"], "--restart-time are missing"),
    *(
        (
            [*RUN[1:], "--interrupted-every", "1h", "--checkpoint-time", slow, "--restart-time", "1m"],
            f"--checkpoint-time {slow}: expected less than --interrupted-every 1h, as most checkpoints would be",
        )
        for slow in ("60m", "3h")
    ),
    ([*RUN[1:], *SPOT, "--epochs", "5"], "--epochs 5 needs --checkpoint-every epoch"),
    (["--interrupted-every", "3h"], "--interrupted-every needs a run"),
    ([*RUN[1:], "--interrupted-every", "3h"], "--checkpoint-time, --restart-time are missing"),
    ([*RUN[1:], *SPOT, "--checkpoint-every", "epoch"], "needs --epochs N"),
    ([*RUN[1:], *SPOT, "--checkpoint-every", "often"], "--checkpoint-every often"),
    ([*RUN[1:], "--storage", "1GB"], "come together"),
    ([*RUN[1:], "--storage", "1GB", "--storage-price", "0.07EUR"], "no rate from EUR to USD"),
    ([*RUN[1:], "--storage", "1GB", "--storage-price", "inf"], "--storage-price inf: expected a sum"),
    (["--gpus", "100001"], "--gpus 100001: expected a whole number from 1 to 100,000"),
    ([*RUN[1:], "--currency", "EUR"], "no rate from USD to EUR"),
    ([*RUN[1:], "--currency", "usd"], "unknown currency 'usd'; did you mean USD"),
    ([*RUN[1:], "--currency", "euro"], "unknown currency 'euro'"),
]


@pytest.mark.parametrize(("arguments", "output"), BAD_INPUT, ids=lambda value: " ".join(value)[-30:])
def test_bad_input_is_one_clear_line(arguments: list[str], output: str) -> None:
    assert output in refusal("rent", *arguments)
