"""`repro cost MODEL`: what a run costs on each machine, owned and rented, and which machine to take."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any, get_args

import pytest

from repro import models
from repro.console import UserError
from repro.formats import Interval
from repro.money.days import DaysAsked, ModelDays, TrainingDays
from repro.money.offers import Costs, Offer, Option, cheapest_to_own, choose, offers
from repro.money.prices import GpuPrice, PriceList, SystemPrice, price_list
from repro.paper.gpus import by_name, catalogue
from repro.predict.traces import Stack
from repro.record import Record, Trial
from tests.support.command_line import ROOT, answer, of_more_rounds, record, refusal, repro, results_folder
from tests.support.price_files import (
    gpu_table,
    prices,
    rate_table,
    rental_table,
    spot_table,
    storage_table,
    system_table,
)

TRUE = ("cost", "pythia-1b")
PRINTED = (*TRUE, "--by", "printed")
Rows = dict[tuple[int, str], dict[str, Any]]


def rows_of(*words: str) -> Rows:
    return {(row["gpus"], row["gpu"]): row for row in answer(*words)["rows"]}


def warnings(*words: str) -> str:
    done = repro(*words)
    assert done.returncode == 0
    return done.stderr


# --- What people see ---


def test_the_sentence_names_machine_price_days_and_rule() -> None:
    assert answer("cost", "vit", "--budget", "40000")["answer"] == (
        "Buy 1 H100 for 31,000 USD: ViT in 34 days, the fastest within 40,000 USD."
    )
    assert answer(*TRUE, "--terms", "rent")["answer"] == (
        "Rent 1 H100 at RunPod: Pythia-1B for 3,929 USD in 41 days, the least cost of a run; owning pays from run 8."
    )


def test_rows_beyond_twenty_wait_for_all(tmp_path: Path) -> None:
    file = prices(tmp_path, "".join(gpu_table(name) for name in ("RTX 4090", "L40S", "A40", "RTX 5090")))
    asked = (*TRUE, "--prices", file, "--terms", "rent")
    few, every = (repro(*asked, *more).stdout.split("\n\n") for more in ((), ("--all",)))
    rows = len(answer(*asked)["rows"])
    assert rows > 20
    assert few[2] == f"{rows - 20} more rows: --all shows all."
    assert [sum(line[0].isdigit() for line in table.splitlines()) for table in (few[1], every[1])] == [20, rows]


# --- Section 4.1 ---


def test_for_40k_the_paper_buys_8_rtx_3090() -> None:
    assert answer(*PRINTED, "--budget", "40000")["answer"] == (
        "Buy 8 RTX 3090 for 20,900 USD: Pythia-1B in 30 days, the fastest within 40,000 USD."
    )


@pytest.mark.parametrize("limit", [("--budget", "165000"), ("--deadline", "9d")])
def test_4_h100_are_better_than_8_a100(limit: tuple[str, str]) -> None:
    found = answer(*PRINTED, *limit)
    rows = {(row["gpus"], row["gpu"]): row for row in found["rows"]}
    assert found["rows"][0]["machine"] == "4 H100"
    assert (rows[4, "H100"]["price_usd"], rows[4, "H100"]["days"]) == (127_500, 8)
    assert (rows[8, "A100"]["price_usd"], rows[8, "A100"]["days"]) == (162_500, 9)


def test_a_run_costs_about_800_on_a100_and_600_on_h100() -> None:
    rows = rows_of(*PRINTED)
    assert rows[8, "A100"]["own_a_run_usd"] == pytest.approx(162_500 * 9 / (5 * 365), abs=0.01)
    assert [round(rows[gpus, "A100"]["own_a_run_usd"], -2) for gpus in (1, 2, 4, 8)] == [800] * 4
    assert round(rows[4, "H100"]["own_a_run_usd"], -2) == round(rows[1, "H100"]["own_a_run_usd"], -2) == 600


def test_without_limits_8_h100_train_in_4_days() -> None:
    first = answer(*PRINTED, "--budget", "1000000000")["rows"][0]
    assert (first["machine"], first["days"], first["price_usd"]) == ("8 H100", 4, 250_500)


# --- The rules ---


def option(name: str, cost: float, days: float, gpus: int = 1, a_run: float | None = None) -> Option:
    run = TrainingDays(name, gpus, Interval.exact(days), "printed", "test")
    offer = Offer(run, cost, date(2024, 9, 21), Interval.exact(0), Interval.exact(cost * days), None, None, 1.0)
    return Option(offer, True, cost, cost * days if a_run is None else a_run, days, "USD")


@pytest.mark.parametrize(
    ("budget", "deadline", "best", "rule"),
    [
        (100, None, "fast", "the fastest within 100 USD"),
        (None, 30, "fair", "the cheapest within 30 days"),
        (100, 30, "fair", "the cheapest within 30 days and 100 USD"),
        (None, None, "slow", "the least cost of a run"),
    ],
)
def test_each_limit_has_its_rule(budget: float | None, deadline: float | None, best: str, rule: str) -> None:
    listed = [option("slow", 1, 100), option("fair", 10, 30), option("fast", 100, 5), option("fastest", 101, 4)]
    chosen = choose(listed, budget, deadline)
    assert (chosen.ranked[0].offer.run.gpu, chosen.rule) == (best, rule)


def test_equal_numbers_as_printed_leave_the_choice_to_the_next() -> None:
    slow, fast = option("slow", 3064.31, 16), option("fast", 3064.32, 8)
    assert choose([slow, fast], None, 20).ranked == (fast, slow), "a cent decides nothing"
    dear, cheap = option("dear", 90, 30.1), option("cheap", 10, 30.2)
    assert choose([dear, cheap], 100, None).ranked == (cheap, dear)
    large, small = option("A100", 3064.32, 8, gpus=8), option("A100", 3064.4, 8, gpus=2)
    for limits in ((None, None), (4000, None), (None, 20)):
        assert choose([large, small], *limits).ranked == (small, large)
    one, other = option("A100", 10, 10), option("H100", 10, 10)
    assert choose([one, other], 100, None).ranked == choose([other, one], 100, None).ranked == (one, other)


def test_rows_that_fit_come_first_and_are_counted() -> None:
    found = answer(*PRINTED, "--budget", "40000")
    fits = [row["fits"] for row in found["rows"]]
    assert fits == sorted(fits, reverse=True)
    assert all((row["price_usd"] <= 40_000) == row["fits"] for row in found["rows"])
    assert f"The first {sum(fits)} of 16 machines fit." in found["notes"]
    days = [row["days"] for row in found["rows"] if row["fits"]]
    assert days == sorted(days)


def test_a_machine_is_bought_once_for_all_runs() -> None:
    one, four = answer(*PRINTED, "--deadline", "40d"), answer(*PRINTED, "--deadline", "40d", "--runs", "4")
    assert one["rows"][0]["machine"] == "8 RTX 3090"
    assert four["answer"].startswith("Buy 4 H100 for 127,500 USD: 4 runs of Pythia-1B in 32 days, the cheapest")
    assert four["rows"][0]["own_a_run_usd"] == pytest.approx(127_500 * 8 / 1825, abs=0.01)


def test_rent_is_paid_for_every_run() -> None:
    one, four = (rows_of(*PRINTED, "--runs", runs)[8, "H100"] for runs in ("1", "4"))
    assert one["rent_usd"] == pytest.approx(8 * 3.99 * 4 * 24)
    assert four["rent_usd"] == pytest.approx(4 * one["rent_usd"])
    assert four["rent_a_run_usd"] == one["rent_a_run_usd"]


def test_either_takes_what_costs_less_for_the_limit() -> None:
    assert answer(*TRUE, "--terms", "either", "--deadline", "60d")["answer"].startswith("Rent 1 H100 at RunPod")
    many = answer(*TRUE, "--terms", "either", "--deadline", "5000d", "--runs", "100")
    assert many["answer"].startswith("Buy ")
    assert many["terms"] == "own"
    assert answer(*TRUE, "--terms", "either")["rows"][0]["machine"] == answer(*TRUE)["rows"][0]["machine"]


@pytest.mark.parametrize(
    ("runs", "output"),
    [
        ("100", ", of those that end within the 5 years that a machine lasts."),
        ("1000", ", but it takes longer than the 5"),
    ],
)
def test_a_machine_that_wears_out_is_taken_only_where_all_do(runs: str, output: str) -> None:
    found = answer("cost", "vit", "--runs", runs)
    assert output in found["answer"]
    assert [row["lasts"] for row in found["rows"]] == sorted((row["lasts"] for row in found["rows"]), reverse=True)


# --- Owning against renting, and more GPUs ---


def test_owning_pays_where_both_have_spent_the_same() -> None:
    row = rows_of(*PRINTED)[8, "A100"]
    assert (row["provider"], row["rent_a_run_usd"]) == ("RunPod", pytest.approx(8 * 1.79 * 216))
    assert row["owning_pays_from_run"] == 53, "162,500 / (216 h x 14.32)"
    with_power = rows_of(*PRINTED, "--electricity", "0.5")[8, "A100"]
    kwh = 8 * 0.4 * 216
    assert with_power["electricity_a_run_usd"] == pytest.approx(kwh * 0.5, abs=0.01)
    assert with_power["own_a_run_usd"] == pytest.approx(row["own_a_run_usd"] + kwh * 0.5, abs=0.01)
    assert with_power["owning_pays_from_run"] == 60, "162,500 / (3,093.12 - 345.6)"


def test_owning_that_pays_after_its_lifespan_never_pays() -> None:
    row = rows_of(*TRUE, "--electricity", "9")[1, "A100"]
    assert row["owning_pays_from_run"] is None
    shown = next(line for line in repro(*TRUE, "--electricity", "9").stdout.splitlines() if line.startswith("1 A100"))
    assert "never" in shown


def scaled(days: dict[int, float], each: float = 1000.0, system: float = 0.001) -> list[Offer]:
    runs = [TrainingDays("A100", gpus, Interval.exact(value), "printed", "test") for gpus, value in days.items()]
    day = date(2026, 11, 1)
    listed = PriceList(
        {"A100": GpuPrice("A100", each, "USD", day, "test")},
        {gpus: SystemPrice(gpus, system, "USD", day, "test") for gpus in days if gpus < 16},
        (),
    )
    return offers(runs, Costs(listed))


@pytest.mark.parametrize(
    ("days", "system", "pay"),
    [
        ({1: 100, 2: 40, 4: 30}, 0.001, ["yes", "no", None]),
        ({1: 100, 2: 60, 4: 20}, 0.001, ["yes", "yes", None]),
        ({1: 80, 2: 40, 4: 20, 8: 10}, 500, ["yes", "yes", "yes", None]),
        ({1: 100, 2: 40, 16: 1}, 0.001, ["yes", None, None]),
    ],
    ids=["until two", "over two", "a shared system", "of 16 no price"],
)
def test_more_gpus_pay_while_a_run_becomes_cheaper(days: dict[int, float], system: float, pay: list[Any]) -> None:
    assert [each.more_pay for each in scaled(days, system=system)] == pay


def test_what_the_bounds_of_days_leave_open_is_unsure() -> None:
    rows = rows_of(*PRINTED)
    assert [rows[gpus, "A100"]["more_gpus_pay"] for gpus in (1, 2, 4)] == ["unsure"] * 3
    assert [rows[gpus, "RTX 3090"]["more_gpus_pay"] for gpus in (1, 2)] == ["yes", "no"], "section 4.1"
    best = cheapest_to_own(scaled({1: 100, 2: 40, 4: 30}))
    assert best is not None
    assert best.own is not None
    assert best.run.gpus == 2
    assert best.own.value == pytest.approx(2000 * 40 / (5 * 365), rel=1e-5)


@pytest.mark.parametrize("stack", get_args(Stack))
@pytest.mark.parametrize("model", models.IDS)
def test_no_speed_up_exceeds_the_number_of_gpus(model: str, stack: Stack) -> None:
    for offer in offers(ModelDays(model, DaysAsked(stack=stack)).everywhere(catalogue()), Costs(price_list())):
        assert offer.speedup <= offer.run.gpus + 1e-9, offer.run.machine


def test_efficiency_is_held_against_the_count_that_uses_its_gpus_best() -> None:
    rows = rows_of(*PRINTED, "--gpu", "A6000")
    assert {gpus: row["days"] for (gpus, _), row in rows.items()} == {1: 152, 2: 72, 4: 40, 8: 22}
    for (gpus, _), row in rows.items():
        assert row["speedup"] == pytest.approx(2 * 72 / row["days"], abs=1e-3)
        assert row["efficiency"] == pytest.approx(2 * 72 / (gpus * row["days"]), abs=1e-3)


@pytest.mark.parametrize("model", models.IDS)
def test_a_measurement_leaves_the_speed_ups_that_are_predicted(model: str) -> None:
    known, foretold = (ModelDays(model, DaysAsked(shipped=shipped)) for shipped in (True, False))
    first, *others = known.everywhere([by_name()["H100"]])
    for other in others:
        without = [foretold.on(by_name()["H100"], row.gpus) for row in (first, other)]
        assert without[0]
        assert without[1]
        ratio = without[0].days.value / without[1].days.value
        assert first.days.value / other.days.value == pytest.approx(ratio, rel=0.015), "to the figures that are shown"


# --- Days ---


def test_predicted_numbers_have_three_figures_and_an_interval() -> None:
    rows = answer(*TRUE)["rows"]
    for row in rows:
        if row["origin"] != "predicted":
            assert row["days_low"] is None
            continue
        assert row["days_low"] < row["days"] < row["days_high"]
        assert row["own_low_a_run_usd"] < row["own_a_run_usd"] < row["own_high_a_run_usd"]
        for name in ("days", "days_low", "days_high", "own_a_run_usd", "rent_usd"):
            assert row[name] is None or row[name] == float(f"{row[name]:.3g}")
    assert {row["origin"] for row in rows} == {"measured", "projected", "predicted"}


def _of_two_nodes(one: Record) -> Record:
    """The same in half as many devices on each of two nodes."""
    return replace(one, count=1, nodes=2, id=Trial(one.recipe, "paper", one.settings, one.device, 1, nodes=2).id)


def test_measured_days_answer_and_correct_the_other_counts(tmp_path: Path) -> None:
    folder = results_folder(
        tmp_path / "out",
        record("pythia-1b", "naive", 6.0, gpu="H100", count=4),
        record("pythia-1b", "naive", 17.5, gpu="A100", count=4),
        record("pythia-1b", "free_lunch", 4.5, gpu="H100", count=4, true_days=7.25),
        # the last that was measured of one settings stands, also where it is slower
        of_more_rounds(record("pythia-1b", "free_lunch", 4.5, gpu="H100", count=4, true_days=9.25)),
        # of several settings the one that is done first, whatever the authors' clock says of it
        record("pythia-1b", "free_lunch+checkpointing", 3.0, gpu="H100", count=4, true_days=12.5),
        record("pythia-1b", "free_lunch+zero_1", None, gpu="H100", count=4, status="out_of_memory"),
        replace(record("pythia-1b", "free_lunch", 12.0, gpu="H100", count=2), memory_limit=2**30),
        _of_two_nodes(record("pythia-1b", "free_lunch", 12.0, gpu="H100", count=2)),
        record("pythia-1b", "naive", 900.0, gpu="cpu", count=1),
        record("pythia-160m", "free_lunch", 1.0, gpu="H100", count=8),
        record("pythia-1b", "free_lunch", 3.5, gpu="H200", count=8),
    )
    rows = rows_of(*TRUE, "--measured", str(folder))
    assert (rows[4, "H100"]["days"], rows[4, "H100"]["origin"]) == (9.25, "measured")
    assert str(folder) in rows[4, "H100"]["source"]
    assert (rows[1, "H100"]["days"], rows[1, "H100"]["origin"]) == (41.026, "measured"), "as expected/ has it"
    for gpus, nearest in ((2, rows[1, "H100"]), (8, rows[4, "H100"])):
        row = rows[gpus, "H100"]
        ratio = nearest["days"] / nearest["predicted_days"]
        assert (row["days"], row["origin"]) == (pytest.approx(row["predicted_days"] * ratio, rel=0.01), "projected")
    assert rows[4, "A100"]["origin"] == "predicted", "naive is none of Table 1's"
    assert rows[8, "H200"]["price_usd"] is None
    assert (1, "cpu") not in rows
    assert rows[8, "H200"]["origin"] == "measured"


def test_a_folder_is_named_by_the_bytes_of_its_name(tmp_path: Path) -> None:
    folder = results_folder(tmp_path / os.fsdecode(b"\xff"), record("pythia-1b", "free_lunch", 20.0))
    done = subprocess.run(
        [sys.executable, "-m", "repro", *TRUE, "--measured", folder, "--format", "csv"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
    )
    assert done.returncode == 0, done.stderr
    assert os.fsencode(folder) in done.stdout


def test_a_folder_that_measured_nothing_of_the_model_is_refused(tmp_path: Path) -> None:
    folder = results_folder(tmp_path / "out", record("pythia-1b", "naive", 1.0, gpu="cpu", count=1, scale="tiny"))
    found = repro(*TRUE, "--measured", str(folder))
    assert (found.returncode, found.stdout) == (2, "")
    assert "no finished trial of pythia-1b at the paper's scale" in found.stderr
    assert "holds no trials" in refusal(*TRUE, "--measured", str(tmp_path / "nowhere"))


def test_a_model_that_is_not_the_papers_has_measured_days_alone(tmp_path: Path) -> None:
    folder = str(results_folder(tmp_path / "out", record("gan", "naive", 2.0, gpu="A100", count=1)))
    assert [row["days"] for row in answer("cost", "gan", "--measured", folder)["rows"]] == [2.0]
    found = repro("cost", "gan", "--measured", folder, "--gpu", "T4")
    assert (found.returncode, found.stdout) == (2, "")
    assert found.stderr.endswith("nobody knows how long gan takes on T4; known: 1 A100\n")


def test_power_is_measured_else_the_boards(tmp_path: Path) -> None:
    states: list[dict[str, float | None]] = [{"power_w": 250.0 + rank} for rank in range(8)]
    for given, kilowatts in ((states, 2.028), ([*states[:7], {"power_w": None}], 8 * 0.4)):
        trial = record("pythia-1b", "free_lunch", 10.0, gpu="A100", count=8, gpu_state=given)
        folder = results_folder(tmp_path / str(kilowatts), trial)
        row = rows_of(*TRUE, "--measured", str(folder), "--electricity", "1")[8, "A100"]
        assert row["electricity_a_run_usd"] == pytest.approx(kilowatts * 240, abs=0.01)
    rounds = record("pythia-1b", "free_lunch", 10.0, gpu="A100", count=8, gpu_state=states, mean_power=[300.0] * 8)
    folder = results_folder(tmp_path / "rounds", rounds)
    row = rows_of(*TRUE, "--measured", str(folder), "--electricity", "1")[8, "A100"]
    assert row["electricity_a_run_usd"] == pytest.approx(2.4 * 240, abs=0.01), "the mean of the timed rounds"


def test_the_power_of_each_part_counts_as_long_as_the_part_lasts_in_a_step() -> None:
    known: dict[str, Any] = {"gpu": "A100", "count": 1, "mean_power": [300.0]}
    own = [{"without": 400.0, "with": 400.0, "update": 100.0}]
    usual, measured = (record("pythia-1b", "naive", 10.0, **known, part_power=each) for each in (None, own))
    micro_steps, step = usual.batch.accumulation, usual.derived.true_step
    assert micro_steps is not None
    assert step is not None
    assert micro_steps > 1
    assert usual.derived.joules_per_step == pytest.approx(300 * step)
    watts = (400 * micro_steps + 100) / (micro_steps + 1)  # an update lasts as long as a micro-step here
    assert measured.derived.joules_per_step == pytest.approx(watts * step)


def test_unknown_power_leaves_the_cost_of_owning_out(expected: Path) -> None:
    file = expected / "gpus.csv"
    text = file.read_text()
    assert ",312,312,1410,2039,400,NVLink 600" in text
    file.write_text(text.replace(",312,312,1410,2039,400,NVLink 600", ",312,312,1410,2039,,NVLink 600"))
    asked = (*PRINTED, "--gpu", "A100", "--terms", "rent")
    row = rows_of(*asked, "--electricity", "0.2")[8, "A100"]
    assert (row["price_usd"], row["own_a_run_usd"], row["owning_pays_from_run"]) == (162_500, None, None)
    assert "the power of A100 is unknown" in warnings(*asked, "--electricity", "0.2")
    assert rows_of(*asked)[8, "A100"]["own_a_run_usd"]


# --- Renting ---


def test_the_cheapest_rental_of_a_machine_is_its_row(tmp_path: Path) -> None:
    assert rows_of(*PRINTED)[8, "A100"]["provider"] == "RunPod", "8 x 1.79 is less than AWS's 27.45"
    term = rental_table("reserved", "770.4", gpus=8, provider="campus", price=98.5)
    row = rows_of(*PRINTED, "--prices", prices(tmp_path, term), "--runs", "4")[8, "A100"]
    assert (row["provider"], row["rent_terms"], row["rent_usd"]) == ("campus", "reserved", 2 * 98.5), (
        "864 h are two terms"
    )
    assert row["owning_pays_from_run"] is None, "a term has no cost of a run"


def test_spot_instances_count_with_their_interruptions(tmp_path: Path) -> None:
    file = prices(tmp_path, spot_table())
    asked = (*TRUE, "--gpu", "A6000", "--gpus", "1", "--terms", "rent", "--prices", file)
    [plain] = answer(*asked)["rows"]
    [faced] = answer(*asked, "--interrupted-every", "12h")["rows"]
    assert (plain["rent_at"], faced["rent_at"]) == ("Verda", "Verda, spot")
    assert answer(*asked, "--interrupted-every", "12h")["answer"].startswith("Rent 1 A6000 at Verda, spot: Pythia-1B")
    assert faced["rent_days"] > faced["days"] == plain["rent_days"]
    assert faced["rent_usd"] == pytest.approx(faced["rent_days"] * 24 * 0.41, rel=0.01)
    [never] = answer(*asked, "--interrupted-every", "3m")["rows"]
    assert never["rent_terms"] == "on-demand", "a run that is not to be expected to end is none"
    assert "Spot instances count with --interrupted-every." in answer(*asked)["notes"]


def test_a_deadline_is_held_against_expected_days(tmp_path: Path) -> None:
    file = prices(tmp_path, spot_table() + rental_table("spot", gpus=8, price=1))
    asked = (*PRINTED, "--gpu", "A100", "--terms", "rent", "--prices", file, "--interrupted-every", "5h")
    row = rows_of(*asked)[8, "A100"]
    assert (row["provider"], row["days"]) == ("shop", 9)
    assert "8 A100 at shop, spot in 10.4677 days" in refusal(*asked, "--deadline", "9d", "--gpus", "8")


def test_storage_is_paid_for_as_long_as_the_run_takes(tmp_path: Path) -> None:
    file = prices(tmp_path, storage_table(0.07))
    plain, kept = (rows_of(*PRINTED, *more)[8, "A100"] for more in ((), ("--storage", "900GB", "--prices", file)))
    assert kept["rent_usd"] - plain["rent_usd"] == pytest.approx(900 * 0.07 * 216 / 730, abs=0.02)
    assert kept["own_a_run_usd"] == plain["own_a_run_usd"]
    assert "--storage 1GB needs the price of a GB and month: [[storage]]" in refusal(*TRUE, "--storage", "1GB")


def test_one_gpu_stands_for_more_only_where_prices_rise_in_proportion(tmp_path: Path) -> None:
    rows = rows_of(*PRINTED, "--prices", prices(tmp_path, rental_table(gpus=1, price=0.5)))
    assert [rows[gpus, "A100"]["provider"] for gpus in (1, 2, 4, 8)] == ["shop", *["RunPod"] * 3]
    own = prices(tmp_path, rental_table(gpus=1, provider="Runpod", price=1.5))
    rows = rows_of(*PRINTED, "--prices", own)
    assert rows[8, "A100"]["rent_usd"] == pytest.approx(8 * 1.5 * 216), "ours is replaced, of one GPU and of more"


def test_what_costs_the_budget_to_the_cent_is_within_it() -> None:
    asked = ("cost", "pythia-410m", "--terms", "rent", "--by", "printed")
    found = answer(*asked, "--budget", f"{8 * 399 * 72 / 100}")  # floats make a little more of 8 x 3.99 x 72
    assert found["answer"].startswith("Rent 8 H100 at RunPod: Pythia-410M for 2,298 USD in 3 days")
    assert found["rows"][0]["rent_usd"] == 2298.24


# --- What nothing meets, and other bad input ---


@pytest.mark.parametrize(
    ("limits", "output"),
    [
        ("--deadline 3d", "within 3 days; the fastest is 8 H100 in 4 days for 250,500 USD\n"),
        ("--budget 100", "within 100 USD; the cheapest is 1 RTX 3090 in 370 days for 2,300 USD\n"),
        ("--budget 2299.8", "within 2,299.8 USD; the cheapest is 1 RTX 3090 in 370 days for 2,300 USD\n"),
        ("--deadline 95h", "within 3.95833 days; the fastest is 8 H100 in 4 days"),
        ("--deadline 90m", "within 90 min; "),
        ("--budget 30000 --deadline 20d", "the fastest within the budget is 8 RTX 3090 in 30 days for 20,900 USD, "),
        ("--budget 30000 --deadline 20d", "the cheapest in time is 2 H100 in 16 days for 61,500 USD\n"),
    ],
)
def test_limits_that_nothing_meets_name_the_nearest(limits: str, output: str) -> None:
    assert output in refusal(*PRINTED, *limits.split())


def test_what_exceeds_a_limit_is_not_rounded_to_what_would_meet_it() -> None:
    with pytest.raises(UserError, match=r"within 12 days; the fastest is 1 late in 12\.4 days for 10\.00 USD"):
        choose([option("late", 10, 12.4)], None, 12)
    with pytest.raises(UserError, match=r"within 200 USD; the cheapest is 1 dear in 5 days for 200\.4 USD"):
        choose([option("dear", 200.4, 5)], 200, None)


BAD_INPUT = [
    *(
        (f"--budget {text}", f"--budget {text}: expected a sum above 0 such as 40000, 40,000 or 40k")
        for text in ("-5", "0", "1e308", "8_000", "40,00", "40.000,00", "40000USD")
    ),
    ("--deadline soon", "--deadline soon: expected a positive duration such as 90s"),
    ("--deadline 30", "--deadline 30: expected a positive duration such as 90s"),
    ("--runs 0", "--runs 0: expected a whole number from 1 to "),
    ("--gpus 100001", "--gpus 100001: expected a whole number from 1 to 100,000"),
    ("--gpu A1000", "did you mean A100"),
    ("--gpu quantum", "repro list gpus lists those we know"),
    ("--gpu A100 --gpus 3", "on 3 A100; known: 1 A100, 2 A100, 4 A100 and 8 A100"),
    ("--by printed --gpu T4", "the paper prints no days of pythia-1b on T4"),
    ("--currency US$", "--currency: unknown currency 'US$'; expected three capital letters such as USD"),
    ("--currency usd", "unknown currency 'usd'; did you mean USD"),
    (
        "--currency EUR",
        "no machine that trains Pythia-1B has a price in EUR; rentals left out: no rate from USD to EUR",
    ),
    ("--terms loan", "invalid choice: 'loan'"),
    ("--electricity 0.2EUR", "--electricity 0.2EUR: no rate from EUR to USD; give a [[rate]] in --prices"),
    ("--interrupted-every 3h", "--interrupted-every needs the times of a restart and a checkpoint: [[spot]]"),
    ("--machine 8000", "--machine is an input of the calculator, which takes no MODEL"),
    ("--hours 3", "--hours is an input of the calculator"),
]


@pytest.mark.parametrize(("words", "output"), BAD_INPUT)
def test_bad_input_is_one_clear_line(words: str, output: str) -> None:
    assert output in refusal(*TRUE, *words.split())


def test_checkpoints_slower_than_interruptions_are_refused(tmp_path: Path) -> None:
    asked = (*TRUE, "--interrupted-every", "1h", "--prices")
    slow = prices(tmp_path, spot_table(checkpoint="60m"))
    assert "expected more than a checkpoint takes, 60 min" in refusal(*asked, slow)
    without = prices(tmp_path, spot_table(checkpoint=""))
    assert "needs checkpoint in [[spot]] of --prices, or --measured with a folder of train.py" in refusal(
        *asked, without
    )


@pytest.mark.parametrize(
    ("asked", "output"),
    [
        ("pythia1b", "did you mean pythia-1b"),
        ("gan", "no days of it are printed or predicted"),
        ("gan --by printed", "gan is no model of the paper"),
        ("pythia-1.4b --by printed", "pythia-1.4b is no model of the paper, so no days of it are printed"),
        ("pythia-6.9b --gpus 1", "pythia-6.9b does not train on 1 GPUs; known: 2 RTX 3090"),
        ("pythia-6.9b --gpu T4 --gpus 1", "pythia-6.9b does not train on 1 T4; known: "),
    ],
)
def test_a_model_without_days_is_one_clear_line(asked: str, output: str) -> None:
    assert output in refusal("cost", *asked.split())


@pytest.mark.parametrize(
    "option", ["--gpu A100", "--budget 3", "--terms rent", "--runs 2", "--interrupted-every 3h", "--by printed"]
)
def test_an_option_of_models_needs_one(option: str) -> None:
    assert f"{option.split()[0]} needs a MODEL, such as " in refusal("cost", *option.split())


# --- Prices of one's own ---


def test_own_prices_replace_ours_and_the_others_stay(tmp_path: Path) -> None:
    text = "\ufeff" + gpu_table(price="500") + gpu_table("H200", "30000")  # as Windows saves it
    rows = rows_of(*PRINTED, "--prices", prices(tmp_path, text))
    assert rows[8, "RTX 3090"]["price_usd"] == 8 * 500 + 10_500
    assert rows[8, "A100"]["price_usd"] == 162_500


def test_a_gpu_without_a_price_gets_one_from_the_file(tmp_path: Path) -> None:
    folder = results_folder(tmp_path / "out", record("pythia-1b", "free_lunch", 3.5, gpu="H200", count=8))
    file = prices(tmp_path, gpu_table("NVIDIA H200", "40000"))
    first = answer(*TRUE, "--prices", file, "--measured", str(folder), "--deadline", "3.6d")["rows"][0]
    assert (first["gpu"], first["price_usd"], first["origin"]) == ("H200", 330_500, "measured")


def test_the_price_file_that_the_docs_show_is_read_whole(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "own-prices.toml").read_text()
    assert all(f"[[{section}]]" in text for section in ("gpu", "system", "rental", "rate"))
    more = ("--interrupted-every", "12h", "--storage", "1GB")
    row = rows_of(*TRUE, "--prices", prices(tmp_path, text), *more)[4, "RTX 4090"]
    assert row["price_usd"] == pytest.approx((4 * 1600 + 5000) * 1.15)


def test_prices_older_than_a_year_are_flagged_and_newer_ones_are_not(tmp_path: Path) -> None:
    late = "older than a year, since 2024-09-21: prices of "
    assert late in warnings(*PRINTED)
    today = date.today().isoformat()
    systems = "".join(system_table(gpus, quoted=today) for gpus in (1, 2, 4, 8))
    fresh = "".join(gpu_table(name, "900", quoted=today) for name in ("RTX 3090", "A6000", "A100", "H100"))
    assert warnings(*PRINTED, "--prices", prices(tmp_path, systems + fresh)) == ""
    assert f"{late}systems; --prices" in warnings(*PRINTED, "--prices", prices(tmp_path, fresh))
    rate = rate_table("EUR", "USD", quoted="2024-11-01")
    output = warnings(*PRINTED, "--prices", prices(tmp_path, systems + fresh + rate))
    assert "since 2024-11-01: prices of the rate of EUR to USD" in output


def test_another_currency_needs_a_rate_and_is_never_mixed(tmp_path: Path) -> None:
    euros, rate = gpu_table(price="800", currency='"EUR"'), rate_table("EUR", "USD")
    assert rows_of(*PRINTED, "--prices", prices(tmp_path, euros))[8, "RTX 3090"]["price_usd"] is None
    system = rows_of(*PRINTED, "--prices", prices(tmp_path, system_table(8, currency="EUR")))
    assert {gpus for (gpus, _), row in system.items() if row["price_usd"]} == {1, 2, 4}
    file = prices(tmp_path, euros + rate)
    assert rows_of(*PRINTED, "--prices", file)[8, "RTX 3090"]["price_usd"] == 8 * 800 * 1.25 + 10_500
    found = answer(*PRINTED, "--prices", file, "--currency", "EUR", "--budget", "20000")
    assert found["rows"][0]["price_eur"] == 8 * 800 + 10_500 / 1.25
    assert "EUR" in found["answer"]
    assert "USD" not in found["answer"]


def test_a_rental_without_a_rate_is_said_to_be_left_out(tmp_path: Path) -> None:
    output = "rentals left out: no rate from EUR to USD, a [[rate]] in --prices brings one"
    assert output in warnings(*PRINTED, "--prices", prices(tmp_path, rental_table(currency="EUR")))
    with_rate = rental_table(currency="EUR") + rate_table("EUR", "USD")
    assert output not in warnings(*PRINTED, "--prices", prices(tmp_path, with_rate))
    rows = rows_of(*PRINTED, "--prices", prices(tmp_path, with_rate))
    assert rows[8, "A100"]["rent_usd"] == pytest.approx(0.5 * 1.25 * 216)


def test_a_bar_in_ones_own_prices_divides_no_column_of_markdown(tmp_path: Path) -> None:
    file = prices(tmp_path, rental_table(provider="a | friend"))
    shown = repro(*PRINTED, "--gpu", "A100", "--gpus", "8", "--prices", file, "--format", "markdown").stdout
    assert r"a \| friend" in shown.split("\n\n")[1]


def test_machines_are_told_the_answer_and_every_column() -> None:
    found = answer(*TRUE, "--terms", "either")
    assert {"rule", "terms", "currency", "notes"} <= found.keys()
    assert found["answer"] in repro(*TRUE, "--terms", "either").stdout
    heading = repro(*TRUE, "--format", "csv").stdout.splitlines()[0]
    assert heading.split(",") == list(found["rows"][0])
