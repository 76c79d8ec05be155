"""`repro recommend`: which machine to buy or rent, by stated rules, as the paper's section 4.1 does."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from datetime import date
from operator import le
from pathlib import Path

import pytest

from repro.console import UserError
from repro.money.choice import beaten_by, choose, pareto_front
from repro.money.days import DaysAsked, ModelDays
from repro.money.offers import Offer, machine_price, owned
from repro.money.prices import Rate, in_proportion, old, price_list, worth
from repro.paper.gpus import catalogue
from repro.record import Record, Trial
from tests.command_line import ROOT, answer, of_more_rounds, record, refusal, repro, results_folder
from tests.price_files import gpu_table, prices, rate_table, rental_table, system_table

PYTHIA = ("recommend", "--model", "pythia-1b", "--by", "printed")
TRUE = ("recommend", "--model", "pythia-1b")


def offer(gpu: str, cost: float, days: float) -> Offer:
    return Offer(gpu, 1, None, "own", cost, days, 1, cost * days, "USD", "printed", "test", date(2024, 9, 21), None)


# --- Section 4.1 ---


def test_for_40k_the_paper_buys_8_rtx_3090_and_trains_in_30_days() -> None:
    best = answer(*PYTHIA, "--budget", "40000")["best"]
    assert (best["gpu"], best["gpus"], best["days"], best["cost_usd"]) == ("RTX 3090", 8, 30, 20_900)
    assert best["tier"] == "desktop"


@pytest.mark.parametrize("budget", ["40,000", "40k", "40K", "40,000.00"])
def test_a_budget_is_read_as_sums_are_reported_and_said(budget: str) -> None:
    assert "the fastest within the budget of 40,000 USD" in answer(*PYTHIA, "--budget", budget)["answer"]


@pytest.mark.parametrize("limit", [("--budget", "165000"), ("--deadline", "9d")])
def test_4_h100_are_better_than_8_a100(limit: tuple[str, str]) -> None:
    found = answer(*PYTHIA, *limit)
    rows = {(row["gpus"], row["gpu"]): row for row in found["rows"]}
    assert (found["best"]["gpus"], found["best"]["gpu"]) == (4, "H100")
    assert (rows[4, "H100"]["cost_usd"], rows[4, "H100"]["days"]) == (127_500, 8)
    assert (rows[8, "A100"]["cost_usd"], rows[8, "A100"]["days"]) == (162_500, 9)
    assert rows[8, "A100"]["beaten_by"] == "4 H100"
    assert not rows[8, "A100"]["pareto"]


def test_an_experiment_costs_about_800_on_a100_and_about_600_on_h100_over_five_years() -> None:
    rows = answer(*PYTHIA)["rows"]
    share = {(row["gpus"], row["gpu"]): row["cost_per_experiment_usd"] for row in rows}
    assert share[8, "A100"] == pytest.approx(162_500 * 9 / (5 * 365), abs=0.01)
    assert [round(share[gpus, "A100"], -2) for gpus in (1, 2, 4, 8)] == [800, 800, 800, 800]
    assert round(share[4, "H100"], -2) == round(share[1, "H100"], -2) == 600


def test_with_no_bounds_to_the_budget_8_h100_train_in_4_days() -> None:
    best = answer(*PYTHIA, "--budget", "1000000000")["best"]
    assert (best["gpus"], best["gpu"], best["days"], best["cost_usd"]) == (8, "H100", 4, 250_500)


def test_the_abstracts_two_rtx_3090_cost_about_4k() -> None:
    row = next(row for row in answer(*PYTHIA)["rows"] if (row["gpus"], row["gpu"]) == (2, "RTX 3090"))
    assert (row["cost_usd"], row["days"]) == (4_100, 109)


# --- The rules ---


def test_a_budget_alone_buys_the_fastest_a_deadline_alone_the_cheapest_both_the_cheapest_of_those_that_fit() -> None:
    offers = [offer("slow", 1, 100), offer("fair", 10, 30), offer("fast", 100, 5), offer("fastest", 101, 4)]
    assert choose(offers, 100, None).ranked[0].gpu == "fast"
    assert choose(offers, None, 30).ranked[0].gpu == "fair"
    assert choose(offers, 100, 30).ranked[0].gpu == "fair"
    for limits, rule in (
        ((100, None), "the fastest within the budget of 100 USD"),
        ((None, 30), "the cheapest within 30 days"),
        ((100, 30), "the cheapest within 30 days and the budget of 100 USD"),
        ((None, None), "the least cost per experiment, as no budget or deadline is given"),
    ):
        assert choose(offers, *limits).rule == rule


def test_with_neither_the_least_cost_per_experiment_on_the_pareto_front_is_chosen() -> None:
    found = answer(*PYTHIA)
    front = [row["cost_per_experiment_usd"] for row in found["pareto_front"]]
    assert found["best"]["cost_per_experiment_usd"] == min(front)
    assert (found["best"]["gpus"], found["best"]["gpu"]) == (2, "RTX 3090")
    beaten = [not row["pareto"] for row in found["rows"]]
    assert beaten == sorted(beaten), "what no other beats comes first"


def test_no_offer_of_the_front_is_beaten_and_every_other_is() -> None:
    offers = owned(ModelDays("pythia-1b", DaysAsked("printed")).everywhere(catalogue()), price_list(), "USD", 1)
    front = pareto_front(offers)
    assert [(o.gpus, o.gpu) for o in front] == [
        (1, "RTX 3090"),
        (2, "RTX 3090"),
        (2, "A6000"),
        (8, "RTX 3090"),
        (8, "A6000"),
        (2, "H100"),
        (4, "H100"),
        (8, "H100"),
    ]
    for one in offers:
        better = [other for other in offers if other != one and all(map(le, other.aims, one.aims))]
        assert bool(better) == (one not in front)
        assert beaten_by(one, offers) == min(better, key=lambda other: other.cost, default=None)


def test_equals_do_not_beat_each_other() -> None:
    twins = [offer("a", 10, 10), offer("b", 10, 10)]
    assert pareto_front(twins) == twins


def test_of_what_is_reported_the_same_the_sooner_done_comes_first_and_then_that_of_fewer_gpus() -> None:
    slow, fast = offer("slow", 3064.31, 16), offer("fast", 3064.32, 8)
    assert choose([slow, fast], None, 20).ranked == (fast, slow), "a cent decides nothing"
    dear, cheap = offer("dear", 90, 30.1), offer("cheap", 10, 30.2)
    assert choose([dear, cheap], 100, None).ranked == (cheap, dear)
    large, small = replace(fast, gpus=8), replace(fast, gpus=2, cost=3064.4)
    for limits in ((None, None), (4000, None), (None, 20)):
        assert choose([large, small], *limits).ranked == (small, large)
    assert pareto_front([large, small]) == [large, small]
    cheap, soon = offer("cheap", 10, 20), offer("soon", 20, 10)
    assert cheap.cost_per_experiment == soon.cost_per_experiment
    assert choose([cheap, soon], None, None).ranked == (soon, cheap)


def test_of_equals_the_order_is_the_names_whatever_that_of_the_offers() -> None:
    one, other = offer("A100", 10, 10), offer("H100", 10, 10)
    for limits in ((None, None), (100, None), (None, 20)):
        assert choose([one, other], *limits).ranked == choose([other, one], *limits).ranked == (one, other)


def test_predicted_days_and_what_they_cost_are_reported_to_three_figures_and_with_their_interval() -> None:
    for command, key in (("recommend", "cost_per_experiment_usd"), ("rent", "rent_usd")):
        terms = ("--rent",) if command == "recommend" else ()
        found = answer(command, "--model", "pythia-1b", *terms)
        rows = [row for row in found["rows"] if row["origin"] == "predicted" and "reserved" not in row["terms"]]
        assert {row["gpu"] for row in rows} == {"A6000", "A100"}
        for row in rows:
            assert row["days_low"] < row["days"] < row["days_high"]
            for number in (row["days"], row["days_low"], row["days_high"], row[key], row["cost_usd"]):
                assert number == float(f"{number:.3g}")
        others = [row["days_low"] for row in found["rows"] if row["origin"] in ("measured", "projected")]
        assert set(others) == {None}
        assert any("8 of 10 unseen cells of the paper" in note for note in found["notes"])
    printed = answer("rent", "--model", "pythia-1b", "--by", "printed")
    assert not any("8 of 10" in note for note in printed["notes"])
    one, seven = (
        {(row["gpu"], row["gpus"]): row["days"] for row in answer(*TRUE, "--rent", "--runs", runs)["rows"]}
        for runs in ("1", "7")
    )
    assert all(seven[place] == pytest.approx(7 * days, rel=0.005) for place, days in one.items())


def test_rows_are_ranked_best_first_and_say_what_fits() -> None:
    rows = answer(*PYTHIA, "--budget", "40000")["rows"]
    assert [row["rank"] for row in rows] == list(range(1, 17))
    fitting = [row for row in rows if row["fits"]]
    assert rows[: len(fitting)] == fitting
    for part in (fitting, rows[len(fitting) :]):
        assert [row["days"] for row in part] == sorted(row["days"] for row in part)
    assert all((row["cost_usd"] <= 40_000) == row["fits"] for row in rows)


def test_a_machine_is_bought_once_for_all_runs_and_the_deadline_is_for_all_of_them() -> None:
    one, four = answer(*PYTHIA, "--deadline", "40d"), answer(*PYTHIA, "--deadline", "40d", "--runs", "4")
    assert (one["best"]["gpus"], one["best"]["gpu"]) == (8, "RTX 3090")
    assert (four["best"]["gpus"], four["best"]["gpu"], four["best"]["days"]) == (4, "H100", 32)
    assert four["best"]["cost_usd"] == 127_500
    assert four["best"]["cost_per_experiment_usd"] == pytest.approx(127_500 * 8 / 1825, abs=0.01)


def test_rent_is_paid_for_every_run_and_a_reserved_machine_for_its_whole_term() -> None:
    def rows(*arguments: str) -> dict[str, float]:
        found = answer(*PYTHIA, "--rent", *arguments)["rows"]
        return {row["terms"]: row["cost_usd"] for row in found if (row["gpus"], row["gpu"]) == (8, "A100")}

    one, four = rows(), rows("--runs", "4")
    assert one["rent, AWS on-demand"] == pytest.approx(27.44705 * 9 * 24, abs=0.01)
    assert four["rent, AWS on-demand"] == pytest.approx(4 * one["rent, AWS on-demand"], abs=0.05)
    assert one["rent, AWS reserved for 43,800 h"] == four["rent, AWS reserved for 43,800 h"] == 650_000
    each = {
        row["cost_per_experiment_usd"]
        for runs in ("1", "4")
        for row in answer(*PYTHIA, "--rent", "--runs", runs)["rows"]
        if (row["gpus"], row["gpu"], row["terms"]) == (8, "A100", "rent, AWS on-demand")
    }
    assert each == {one["rent, AWS on-demand"]}, "an experiment costs what one run costs"


def test_an_experiment_on_a_reserved_machine_costs_its_share_of_the_term_and_the_notes_say_so() -> None:
    found = answer(*PYTHIA, "--rent")
    reserved = next(row for row in found["rows"] if "reserved" in row["terms"])
    assert reserved["cost_per_experiment_usd"] == pytest.approx(650_000 * 9 * 24 / 43_800, abs=0.01)
    assert "or its rent, of a reserved instance its share of the term." in found["notes"][0]


def test_either_holds_what_own_and_rent_hold() -> None:
    own, rent, either = (answer(*PYTHIA, option)["rows"] for option in ("--own", "--rent", "--either"))
    key = ("gpu", "gpus", "terms", "cost_usd")
    assert {tuple(row[k] for k in key) for row in either} == {tuple(row[k] for k in key) for row in own + rent}
    assert {row["terms"] for row in own} == {"own"}
    assert not any("spot" in row["terms"] for row in rent)


@pytest.mark.parametrize("model", ["pythia-1b", "pythia-6.9b"])
def test_a_rent_that_is_gone_does_not_rule_out_what_costs_less_an_experiment(model: str) -> None:
    own, either = (answer("recommend", "--model", model, terms) for terms in ("--own", "--either"))
    lasting = [row["cost_per_experiment_usd"] for row in either["rows"] if row["lasts"]]
    assert either["best"]["cost_per_experiment_usd"] == min(lasting)
    assert {k: v for k, v in either["best"].items() if k != "rank"} == {
        k: v for k, v in own["best"].items() if k != "rank"
    }


def test_machines_that_can_only_be_rented_are_reported_beside_those_to_buy(tmp_path: Path) -> None:
    found = answer(*PYTHIA, "--either", "--prices", prices(tmp_path, system_table(4, 9000, "EUR")))
    (output,) = (note for note in found["notes"] if "not here to buy" in note)
    assert "so not here to buy: 4 RTX 3090; 4 A6000; 4 A100; 4 H100;" in output
    assert any((row["gpus"], row["gpu"]) == (4, "A100") for row in found["rows"]), "for rent"


def test_a_price_for_one_gpu_stands_for_more_only_where_it_is_known_to_rise_in_proportion(tmp_path: Path) -> None:
    found = answer(*PYTHIA, "--rent", "--prices", prices(tmp_path, rental_table(gpus=1)))
    terms = {(row["gpus"], row["terms"]) for row in found["rows"] if row["gpu"] == "A100" and "AWS" not in row["terms"]}
    assert terms == {
        (1, "rent, shop on-demand"),
        (1, "rent, RunPod on-demand"),
        *((gpus, "rent, RunPod on-demand, in proportion") for gpus in (2, 4, 8)),
    }
    [note] = [note for note in found["notes"] if "In proportion" in note]
    assert "known of RunPod (thesis" in note
    assert "a [[rental]] in --prices" in note


def test_the_answer_is_one_sentence_with_cost_days_their_origin_and_the_rule() -> None:
    output = repro(*PYTHIA, "--budget", "40000").stdout.splitlines()[0]
    for part in ("8 RTX 3090", "20,900 USD", "30 days", "printed: paper, Table 1", "the fastest within", "40,000 USD"):
        assert part in output
    assert output.count(".") == 1
    assert output.endswith(".")


def test_a_machine_that_wears_out_before_the_training_ends_is_taken_only_where_all_do_and_that_leads() -> None:
    output = answer("recommend", "--model", "pythia-6.9b", "--budget", "5000", "--by", "printed")["answer"]
    assert output.startswith(
        "No machine that fits ends within the 5 years that it lasts; of these 2 RTX 3090 for 4,100"
    )
    assert "pythia-6.9b in 7,157 days" in output
    found = answer("recommend", "--model", "vit", "--runs", "100")
    assert found["best"]["days"] <= 5 * 365
    assert found["answer"].startswith("Buy ")
    assert "of those that end within the 5 years a machine lasts" in found["answer"]
    none = answer("recommend", "--model", "vit", "--runs", "1000")["answer"]
    assert none.startswith("No machine ends within")
    assert "of those that end" not in none + output
    lasts, worn = offer("lasts", 20, 5), offer("worn", 10, 2000)
    assert choose([worn, lasts], 100, None).rule == "the fastest within the budget of 100 USD", "it is the best anyway"


def test_each_offer_says_whether_it_lasts_until_the_runs_end() -> None:
    found = answer("recommend", "--model", "vit", "--runs", "100")
    assert {row["lasts"] for row in found["rows"]} == {True, False}
    assert [row["lasts"] for row in found["rows"]] == [row["days"] <= 5 * 365 for row in found["rows"]]
    rented = answer("recommend", "--model", "vit", "--runs", "1000", "--rent")
    assert {row["lasts"] for row in rented["rows"]} == {True}, "no machine that is rented is one's own to wear out"


# --- Days ---


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
    found = answer(*TRUE, "--measured", str(folder))
    rows = {(row["gpus"], row["gpu"]): row for row in found["rows"]}
    assert (rows[4, "H100"]["days"], rows[4, "H100"]["origin"]) == (9.25, "measured")
    assert str(folder) in rows[4, "H100"]["source"]
    assert (rows[1, "H100"]["days"], rows[1, "H100"]["origin"]) == (41.026, "measured"), "as expected/ has it"
    for gpus in (2, 8):
        row = rows[gpus, "H100"]
        nearest = rows[{2: 1, 8: 4}[gpus], "H100"]
        ratio = nearest["days"] / nearest["predicted_days"]
        assert (row["days"], row["origin"]) == (pytest.approx(row["predicted_days"] * ratio, rel=0.01), "projected")
    assert rows[4, "A100"]["origin"] == "predicted", "naive is none of Table 1's"
    assert any("8 H200" in note and "--prices" in note for note in found["notes"])
    assert not any("1 cpu" in note for note in found["notes"])


def test_measured_days_are_of_a_folder_by_the_bytes_of_its_name(tmp_path: Path) -> None:
    folder = results_folder(tmp_path / os.fsdecode(b"\xff"), record("pythia-1b", "free_lunch", 20.0))
    done = subprocess.run(
        [sys.executable, "-m", "repro", *TRUE, "--measured", folder],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
    )
    assert done.returncode == 0, done.stderr
    assert os.fsencode(folder) in done.stdout


def test_a_folder_that_measured_nothing_of_the_model_is_reported(tmp_path: Path) -> None:
    folder = results_folder(tmp_path / "out", record("pythia-1b", "naive", 1.0, gpu="cpu", count=1, scale="tiny"))
    found = repro(*TRUE, "--measured", str(folder))
    assert (found.returncode, found.stdout) == (2, "")
    assert "no finished trial of pythia-1b at the paper's scale" in found.stderr
    assert "holds no trials" in refusal(*TRUE, "--measured", str(tmp_path / "nowhere"))


# --- Prices of one's own ---


@pytest.mark.parametrize("mark", ["", "\ufeff"], ids=["plain", "as Windows saves it"])
def test_own_prices_replace_ours_and_the_others_stay(tmp_path: Path, mark: str) -> None:
    file = prices(tmp_path, mark + gpu_table(price="500") + gpu_table("H200", "30000"))
    rows = {(row["gpus"], row["gpu"]): row for row in answer(*PYTHIA, "--prices", file)["rows"]}
    assert rows[8, "RTX 3090"]["cost_usd"] == 8 * 500 + 10_500
    assert rows[8, "A100"]["cost_usd"] == 162_500


def test_a_gpu_without_a_price_gets_one_from_the_file(tmp_path: Path) -> None:
    folder = results_folder(tmp_path / "out", record("pythia-1b", "free_lunch", 3.5, gpu="H200", count=8))
    file = prices(tmp_path, gpu_table("NVIDIA H200", "40000"))
    best = answer(*TRUE, "--prices", file, "--measured", str(folder), "--deadline", "3.6d")["best"]
    assert (best["gpu"], best["cost_usd"], best["origin"]) == ("H200", 330_500, "measured")


@pytest.mark.parametrize("words", ["recommend", "recommend --rent", "scaling", "rent"])
def test_a_price_of_a_gpu_on_which_nothing_fits_is_not_passed_over_in_silence(tmp_path: Path, words: str) -> None:
    hired = rental_table(gpu="RTX 4090") + rental_table(gpu="T4")
    file = prices(tmp_path, gpu_table("RTX 4090") + gpu_table("T4") + hired)
    asked = (*words.split(), "--model", "pythia-1b", "--prices", file)
    output = "In --prices, but pythia-1b does not train there: "
    assert f"{output}T4." in answer(*asked)["notes"]
    printed = "In --prices, but the paper prints no days of pythia-1b there: RTX 4090 and T4."
    assert printed in answer(*asked, "--by", "printed")["notes"]
    if words in ("scaling", "rent"):  # of another GPU nobody asked
        assert not any(output in note for note in answer(*asked, "--gpu", "A100")["notes"])


@pytest.mark.parametrize("words", ["recommend", "scaling"])
def test_a_price_of_a_system_that_no_machine_has_is_not_passed_over_in_silence(tmp_path: Path, words: str) -> None:
    file = prices(tmp_path, "".join(system_table(gpus) for gpus in (1, 3, 8)))
    asked = (words, "--model", "pythia-6.9b", "--prices", file)
    output = "In --prices, but nobody knows how long pythia-6.9b takes there: machines with "
    assert f"{output}3 GPUs." in answer(*asked)["notes"]
    printed = "In --prices, but the paper prints no days of pythia-6.9b there: machines with 1 GPU and machines with 3"
    assert f"{printed} GPUs." in answer(*asked, "--by", "printed")["notes"]
    apart = ("--rent",) if words == "recommend" else ("--gpu", "A100")  # of machines to own, or of all, nobody asked
    assert not any(output in note for note in answer(*asked, *apart)["notes"])


@pytest.mark.parametrize("words", ["recommend --rent", "rent"])
def test_a_rent_of_so_many_gpus_that_nobody_knows_days_for_is_not_passed_over_in_silence(
    tmp_path: Path, words: str
) -> None:
    """Pythia-6.9B does not fit on one A100, so a price of one serves only where it stands for more."""
    hired = "".join(rental_table(gpus=gpus) for gpus in (1, 3, 8))
    asked = (*words.split(), "--model", "pythia-6.9b", "--prices", prices(tmp_path, hired))
    full, unknown = (
        f"In --prices, but {so}" for so in ("pythia-6.9b does not train there: ", "nobody knows how long ")
    )
    output = f"{unknown}pythia-6.9b takes there: "
    assert {f"{full}1 A100.", f"{output}3 A100."} <= {*answer(*asked)["notes"]}
    known = hired.replace('"shop"', f'"{next(iter(in_proportion()))}"')
    notes = answer(*asked[:-1], prices(tmp_path, known))["notes"]
    assert f"{output}3 A100." in notes
    assert not any(full in note for note in notes)
    of_many = prices(tmp_path, rental_table(gpu="L40S", gpus=3))
    asked = (*words.split(), "--model", "pythia-1b", "--prices", of_many)
    output = f"{unknown}pythia-1b takes there: "
    assert f"{output}3 L40S." in answer(*asked)["notes"], "predicted are days on 1, 2, 4 and 8 of them"


def test_what_the_price_file_says_of_rents_is_no_matter_to_who_buys(tmp_path: Path) -> None:
    file = prices(tmp_path, rental_table(gpu="RTX 4090"))
    assert not any("RTX 4090" in note for note in answer(*PYTHIA, "--prices", file)["notes"])


def test_of_a_model_that_is_not_the_papers_no_days_are_foretold(tmp_path: Path) -> None:
    folder = results_folder(tmp_path / "out", record("gan", "naive", 2.0, count=1))
    asked = ("recommend", "--model", "gan", "--measured", str(folder), "--prices", prices(tmp_path, gpu_table("T4")))
    assert "In --prices, but nobody knows how long gan takes there: T4." in answer(*asked)["notes"]


def test_the_price_file_that_the_docs_show_is_read_whole(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "prices.md").read_text().partition("```toml\n")[2].partition("```")[0]
    assert all(f"[[{section}]]" in text for section in ("gpu", "system", "rental", "rate"))
    found = answer(*TRUE, "--either", "--prices", prices(tmp_path, text))["rows"]
    cost = {row["terms"]: row["cost_usd"] for row in found if (row["gpus"], row["gpu"]) == (4, "RTX 4090")}
    assert cost["own"] == pytest.approx((4 * 1600 + 5000) * 1.15)
    assert cost["rent, the faculty reserved for 8,760 h"] == pytest.approx(9000 * 1.15)


def test_prices_older_than_a_year_are_flagged_and_newer_ones_are_not(tmp_path: Path) -> None:
    found = answer(*PYTHIA)
    assert all(row["old_price"] for row in found["rows"])
    assert any("older than a year" in note and "2024-09-21" in note for note in found["notes"])
    today = date.today().isoformat()
    systems = "".join(system_table(gpus, quoted=today) for gpus in (1, 2, 4, 8))
    fresh = "".join(gpu_table(name, "900", quoted=today) for name in ("RTX 3090", "A6000", "A100", "H100"))
    newer = answer(*PYTHIA, "--prices", prices(tmp_path, systems + fresh))
    assert not any(row["old_price"] for row in newer["rows"])
    assert not any("older than a year" in note for note in newer["notes"])


def test_a_machine_costs_its_gpus_and_one_system_each_in_its_own_currency(tmp_path: Path) -> None:
    text = gpu_table(price="900", currency='"EUR"') + system_table(8, 1000) + rate_table("EUR", "USD", 1.25)
    listed = price_list(Path(prices(tmp_path, text)))
    in_dollars, in_euros = (machine_price("RTX 3090", 8, listed, currency) for currency in ("USD", "EUR"))
    assert in_dollars
    assert in_euros
    assert in_dollars[0] == 8 * 900 * 1.25 + 1000
    assert in_euros[0] == pytest.approx(8 * 900 + 1000 / 1.25)


def test_a_machine_is_as_old_as_its_oldest_price(tmp_path: Path) -> None:
    system = system_table(8, 1000, quoted="2026-11-02")
    for text in (gpu_table(quoted="2026-11-01") + system, gpu_table(quoted="2026-11-03") + system):
        listed = price_list(Path(prices(tmp_path, text)))
        oldest = min(date(2026, 11, 2), listed.gpus["RTX 3090"].quoted)
        assert machine_price("RTX 3090", 8, listed, "USD") == (8 * 900 + 1000, oldest)


@pytest.mark.parametrize(
    "words",
    [
        "recommend --model pythia-1b",
        "recommend --model pythia-1b --rent",
        "scaling --model pythia-1b",
        "rent --gpu H100 --hours 9 --storage 1GB --storage-price 1EUR",
        "rent --gpu A100",  # what a reserved machine costs to own
        "breakeven --gpu RTX3090 --hours 9 --rent 1",
        "breakeven --gpu H100 --hours 9 --electricity 0.2EUR",
        "breakeven --machine 7000EUR",
    ],
)
def test_the_rate_between_two_currencies_is_reported_and_flagged_where_it_is_old(tmp_path: Path, words: str) -> None:
    for quoted in (str(date.today()), "2024-11-01"):
        euros = [gpu_table(name, currency='"EUR"') for name in ("RTX 3090", "A100")]
        text = "".join(euros) + rental_table(currency="EUR") + rate_table("EUR", "USD", quoted=quoted)
        notes = answer(*words.split(), "--prices", prices(tmp_path, text))["notes"]
        assert notes.count(f"EUR become USD at the rate in --prices, 1.25 (bank, {quoted}).") == 1
        flagged = any("older than a year" in note and f"{quoted} (the rate of EUR to USD)" in note for note in notes)
        assert flagged == (quoted == "2024-11-01")


def test_of_a_rate_that_no_sum_needed_nothing_is_said(tmp_path: Path) -> None:
    for words in (PYTHIA, ("rent", "--gpu", "H100", "--hours", "9")):
        found = answer(*words, "--prices", prices(tmp_path, rate_table("EUR", "USD")))
        assert not any("EUR" in note for note in found["notes"])


def test_a_price_is_old_from_a_year_and_a_day_on() -> None:
    assert not old(date(2024, 9, 21), date(2025, 9, 21))
    assert old(date(2024, 9, 21), date(2025, 9, 22))


def test_another_currency_needs_a_rate_and_is_never_mixed(tmp_path: Path) -> None:
    euros = gpu_table(price="800", currency='"EUR"')
    rate = rate_table("EUR", "USD")
    without = answer(*PYTHIA, "--prices", prices(tmp_path, euros))
    assert not any(row["gpu"] == "RTX 3090" for row in without["rows"])
    assert any("8 RTX 3090" in note for note in without["notes"])
    of_system = answer(*PYTHIA, "--prices", prices(tmp_path, system_table(8, currency="EUR")))
    assert {row["gpus"] for row in of_system["rows"]} == {1, 2, 4}
    rows = answer(*PYTHIA, "--prices", prices(tmp_path, euros + rate))["rows"]
    dollars = {(row["gpus"], row["gpu"]): row["cost_usd"] for row in rows}
    assert dollars[8, "RTX 3090"] == 8 * 800 * 1.25 + 10_500
    in_euros = answer(*PYTHIA, "--prices", prices(tmp_path, euros + rate), "--currency", "EUR", "--budget", "20000")
    assert in_euros["best"]["cost_eur"] == 8 * 800 + 10_500 / 1.25
    assert "EUR" in in_euros["answer"]
    assert "USD" not in in_euros["answer"]


def test_a_rental_without_a_rate_is_said_to_be_left_out_where_one_may_rent(tmp_path: Path) -> None:
    output = "Rentals left out: no rate from EUR to USD, a [[rate]] in --prices brings one."
    for terms, rate, said in (("--rent", False, 1), ("--either", False, 1), ("--own", False, 0), ("--rent", True, 0)):
        text = rental_table(currency="EUR") + (rate_table("EUR", "USD") if rate else "")
        assert answer(*PYTHIA, terms, "--prices", prices(tmp_path, text))["notes"].count(output) == said
    spot = prices(tmp_path, rental_table("spot", currency="EUR"))
    assert output not in answer(*PYTHIA, "--rent", "--prices", spot)["notes"], (
        "spot is left to rent, whatever its currency"
    )


def test_a_rate_works_both_ways_and_nothing_else_converts() -> None:
    rates = [Rate("EUR", "USD", 1.25, date(2026, 11, 1), "bank")]
    assert worth("EUR", "USD", rates) == 1.25
    assert worth("USD", "EUR", rates) == 0.8
    assert worth("CHF", "CHF", []) == 1
    assert worth("CHF", "USD", rates) is None


BROKEN = [
    (gpu_table().replace("price = 900\n", ""), ["[[gpu]] 1", "price is missing", "name, price, currency"]),
    (gpu_table() + gpu_table(price="-900"), ["[[gpu]] 2, price", "found -900", "above 0"]),
    (gpu_table() + gpu_table("GeForce RTX 3090"), ["[[gpu]] 2: expected RTX 3090 only once, and [[gpu]] 1 has it"]),
    (rate_table("EUR", "USD") + rate_table("USD", "EUR"), ["[[rate]] 2: expected EUR, USD only once"]),
    (gpu_table(price='"cheap"'), ["[[gpu]] 1, price", "found 'cheap'"]),
    (gpu_table(currency='"$"'), ["[[gpu]] 1, currency", "'$'", "expected three capital letters such as USD"]),
    (gpu_table(quoted='"yesterday"'), ["[[gpu]] 1, quoted", "expected a day such as 2024-09-21"]),
    (rate_table("USD", "USD"), ["[[rate]] 1, to", "found 'USD', expected another currency than from"]),
    (gpu_table("RTX 3900"), ["[[gpu]] 1, name", "unknown GPU 'RTX 3900'", "RTX 3090"]),
    *(
        (
            rental_table(terms),
            ["[[rental]] 1, terms:", f"found '{terms}', expected one of on-demand, reserved, spot"],
        )
        for terms in ("Spot", "On-Demand", "x")
    ),
    (rental_table("reserved"), ["[[rental]] 1, hours", "found 1, expected more than 1 as terms is reserved"]),
    (rental_table("spot", "2"), ["[[rental]] 1, hours", "found 2, expected 1 as terms is spot"]),
    (rental_table("on-demand", "0.5"), ["found 0.5, expected 1 as terms is on-demand"]),
    (gpu_table() + "colour = 1\n", ["[[gpu]] 1", "unknown key 'colour'"]),
    ("[[gpus]]\n", ["unknown key 'gpus'", "[[gpu]]"]),
    ('gpu = "A100"\n', ["write each as [[gpu]]"]),
    ("[[gpu\n", ["not TOML", "line 1"]),
    ("a = " + "[" * 100_000, ["nested too deep"]),
    (gpu_table(price="9" * 10_000), ["a number has thousands of digits"]),
    (
        gpu_table().replace("quoted =", f"quoted{'.a' * 5_000} ="),
        ["[[gpu]] 1, quoted: found more than can be shown, expected a day"],
    ),
    *(
        (table, [f"found {found}, expected a number above 0, from 1e-30 to 1e+30"])
        for table, found in (
            (gpu_table(price="1e308"), "1e+308"),
            (gpu_table(price="inf"), "inf"),
            (gpu_table(price="1" + "0" * 400), f"1{'0' * 59} ..."),
            (gpu_table(price="0x" + "f" * 10_000), "more than can be shown"),
            (rate_table("EUR", "USD").replace("1.25", "1e308"), "1e+308"),
            (rate_table("EUR", "USD").replace("1.25", "1e-320"), "1e-320"),
        )
    ),
    (
        rental_table().replace("gpus = 8", "gpus = 1" + "0" * 400),
        ["[[rental]] 1, gpus: found 1000", "expected a whole number from 1 up"],
    ),
    (gpu_table() + f"# {'a price ' * 200_000}", ["larger than 1,000,000 bytes"]),
]


@pytest.mark.parametrize(("text", "output"), BROKEN, ids=[output[-1] for _, output in BROKEN])
def test_a_broken_price_file_is_reported_with_its_place(text: str, output: list[str], tmp_path: Path) -> None:
    line = refusal(*PYTHIA, "--prices", prices(tmp_path, text))
    for part in ("my.toml", *output):
        assert part in line


def test_a_price_of_a_day_to_come_is_reported_with_todays(tmp_path: Path) -> None:
    before = date.today()
    line = refusal(*PYTHIA, "--prices", prices(tmp_path, gpu_table(quoted="9999-12-31")))
    days = {before, date.today()}  # two, where midnight passes meanwhile
    assert any(f"[[gpu]] 1, quoted: found 9999-12-31, expected a day up to today, {day}" in line for day in days)


def test_a_price_file_that_is_not_there_is_reported() -> None:
    assert "nowhere.toml: cannot be read" in refusal(*PYTHIA, "--prices", "nowhere.toml")


# --- What nothing meets, and other bad input ---


def test_a_deadline_that_nothing_meets_names_the_nearest_that_does() -> None:
    line = refusal(*PYTHIA, "--deadline", "3d")
    assert "within 3 days" in line
    assert "the nearest is 8 H100 in 4 days for 250,500 USD" in line


@pytest.mark.parametrize(
    ("deadline", "output"),
    [
        ("1h", "1 h"),
        ("90m", "90 min"),
        ("7s", "7 s"),
        ("13m", "13 min"),
        ("20h", "20 h"),
        ("12h", "0.5 days"),
        ("1d", "1 day"),
        ("31h", "1.29167 days"),
    ],
)
def test_a_deadline_is_reported_as_people_say_it(deadline: str, output: str) -> None:
    assert f" no machine trains it within {output}; " in refusal(*PYTHIA, "--deadline", deadline)


def test_a_budget_that_buys_nothing_names_the_cheapest() -> None:
    assert "the cheapest is 1 RTX 3090 in 370 days for 2,300 USD" in refusal(*PYTHIA, "--budget", "100")


@pytest.mark.parametrize(
    ("limits", "output"),
    [
        (["--deadline", "95h"], "within 3.95833 days; the nearest is 8 H100 in 4 days"),
        (["--budget", "22000", "--deadline", "713h"], "within 29.7083 days and the budget of 22,000 USD; the nearest"),
        (["--budget", "2299.8"], "within the budget of 2,299.8 USD; the cheapest is 1 RTX 3090 in 370 days for 2,300"),
        (["--budget", "0.001"], "within the budget of 0.001 USD"),
    ],
    ids=str,
)
def test_a_limit_is_not_rounded_to_what_would_meet_it(limits: list[str], output: str) -> None:
    assert output in refusal(*PYTHIA, *limits)


def test_what_exceeds_a_limit_is_not_rounded_to_what_would_meet_it() -> None:
    with pytest.raises(UserError, match=r"within 12 days; the nearest is 1 late in 12\.4 days for 10\.00 USD"):
        choose([offer("late", 10, 12.4)], None, 12)
    with pytest.raises(UserError, match=r"of 200 USD; the cheapest is 1 dear in 5 days for 200\.4 USD"):
        choose([offer("dear", 200.4, 5)], 200, None)
    far = [replace(offer("far", 200.4, 12.4), terms="rent, X on-demand")]
    for limits in ((None, 3), (9, None)):
        with pytest.raises(UserError, match=r" is 1 far \(rent, X on-demand\) in 12 days for 200 USD$"):
            choose(far, *limits)


def test_what_costs_the_budget_to_the_cent_is_within_it() -> None:
    asked = ("recommend", "--model", "pythia-410m", "--rent", "--by", "printed")
    found = answer(*asked, "--budget", f"{8 * 399 * 72 / 100}")  # floats make a little more of 8 x 3.99 x 72
    assert found["answer"].startswith("Rent 8 H100 (RunPod on-demand, in proportion) for 2,298 USD: pythia-410m")
    best = found["best"]
    assert (best["gpus"], best["gpu"], best["days"], best["cost_usd"]) == (8, "H100", 3, 2298.24)
    rows = answer(*PYTHIA, "--rent", "--budget", "5928.56")["rows"]  # 27.44705 x 216 h are 5928.5628
    assert all(row["fits"] == (row["cost_usd"] <= 5928.56) for row in rows)
    assert 5928.56 in {row["cost_usd"] for row in rows}


def test_limits_that_exclude_each_other_name_the_nearest_by_each() -> None:
    line = refusal(*PYTHIA, "--budget", "30000", "--deadline", "20d")
    assert "the nearest within the budget is 8 RTX 3090 in 30 days" in line
    assert "the cheapest in time is 2 H100 in 16 days for 61,500 USD" in line
    with pytest.raises(UserError, match="the fastest is 1 fast in 5 days for 100 USD, the cheapest 1 slow"):
        choose([offer("slow", 10, 100), offer("fast", 100, 5)], 1, 1)
    with pytest.raises(UserError, match="; the nearest within the budget is 1 slow in 100 days for 10"):
        choose([offer("slow", 10, 100)], 10, 1)
    with pytest.raises(UserError, match="; the cheapest in time is 1 fast in 5"):
        choose([offer("fast", 100, 5)], 1, 5)


BAD_INPUT = [
    *(
        (
            ["--budget", text],
            f"--budget {text}: expected a sum above 0 such as 40000, 40,000 or 40k, without a currency",
        )
        for text in ("-5", "0", "1e308", "8_000", "40,00", "0,400", "40,000k", "40.000,00", "$40k", "40000USD")
    ),
    (["--budget", "9" * 400], "expected at most 20 digits on either side of the point"),
    (["--budget", "much"], "--budget much"),
    (["--deadline", "-1d"], "--deadline -1d: expected a positive duration such as 30d"),
    (["--deadline", "soon"], "--deadline soon: expected a positive duration such as 30d"),
    (["--deadline", "30"], "--deadline 30: expected a positive duration such as 30d"),
    (["--deadline", "0d"], "--deadline 0d"),
    (["--runs", "0"], "--runs 0: expected a whole number from 1 to "),
    (["--currency", "US$"], "--currency: unknown currency 'US$'; expected three capital letters such as USD"),
    (["--currency", "XYZ"], "no machine that trains pythia-1b has a price in XYZ"),
    (["--currency", "EUR"], "no machine that trains pythia-1b has a price in EUR"),
    (["--own", "--rent"], "not allowed with"),
]


@pytest.mark.parametrize(("arguments", "output"), BAD_INPUT, ids=lambda value: " ".join(value)[:30])
def test_bad_input_is_one_clear_line(arguments: list[str], output: str) -> None:
    assert output in refusal(*PYTHIA, *arguments)


@pytest.mark.parametrize(
    ("asked", "output"),
    [
        ("pythia1b", "did you mean pythia-1b"),
        ("gan", "no days of it are printed or predicted"),
        ("gan --by printed", "gan is no model of the paper"),
        ("pythia-1.4b --by printed", "pythia-1.4b is no model of the paper, so no days of it are printed"),
    ],
)
def test_a_model_without_days_is_one_clear_line(asked: str, output: str) -> None:
    assert output in refusal("recommend", "--model", *asked.split())


def test_a_model_that_only_the_lab_has_is_not_offered_where_it_is_of_no_use() -> None:
    assert refusal("recommend", "--model", "gn").endswith("convnext, vit, pythia-1.4b\n")


# --- All four commands ---

COMMANDS = [
    [*PYTHIA, "--either"],
    ["rent"],
    ["rent", "--model", "pythia-1b"],
    ["breakeven"],
    ["breakeven", "--model", "pythia-1b", "--gpu", "A100", "--gpus", "8"],
    ["scaling", "--model", "pythia-1b"],
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_people_are_reported_the_answer_and_columns_that_machines_are_reported(command: list[str]) -> None:
    found = answer(*command)
    header = repro(*command, "--format", "markdown").stdout.split("\n\n")[1].splitlines()[0]
    names = {key.replace("_", " ") for key in found["rows"][0]}
    assert {cell.strip() for cell in header.strip("|").split("|")} <= names
    assert found["answer"].split(".")[0] in repro(*command).stdout.replace("\n", " ")
