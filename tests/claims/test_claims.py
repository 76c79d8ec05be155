"""The papers' sentences: every one has a verdict, each verdict follows from rows and arithmetic that are shown."""

from __future__ import annotations

import csv
import io
import json
import re
import statistics
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from decimal import Decimal
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from repro.claims import Checked, check_all, formulas, numbers
from repro.claims.claim import Claim, Relation, judge, listed
from repro.claims.measured import MEASURED
from repro.claims.survey import SURVEYED
from repro.claims.working import SourceRow, Working, added, applied, mean, shown
from repro.console import UserError
from repro.datafile import expected_folder
from repro.formats import Interval
from repro.money.breakeven import comment_cases, first_run
from repro.money.prices import known_systems, parts, servers
from repro.paper.arithmetic import recipe_of
from repro.paper.settings import Settings, search_space
from repro.paper.tables import COUNTS, cells, published_settings, quantities
from repro.predict.traces import shipped
from repro.record import DEFAULT, Clock, Record, Status
from repro.report.markdown import markdown
from repro.report.sections import compose
from repro.run.corrected import corrected_table
from tests.support.command_line import ROOT, altered, answer, documentation, record, refusal, repro, results_folder

CHECKED = {checked.claim.id: checked for checked in check_all()}
PYTHIA = ("pythia-160m", "pythia-410m", "pythia-1b", "pythia-2.8b", "pythia-6.9b")


def check(id: str, records: Iterable[Record], clock: Clock = DEFAULT) -> Checked:
    """The verdict on one claim by these records."""
    (checked,) = check_all([*records], clock, ids=[id])
    return checked


def days_of(table: str) -> dict[tuple[str, str, str], int]:
    """Days as the file has them, read without the library."""
    with (expected_folder() / f"table{table}.csv").open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    return {(row["model"], row["gpu"], row["gpus"]): int(row["days"]) for row in rows if row["days"].isdecimal()}


# --- Data and functions ---


def test_the_systems_of_section_4_1_are_the_tables_rounded_to_their_unit() -> None:
    unit = quantities()["rounding/system"].value
    printed = {gpus: part.cost_usd for (gpus, name), part in parts().items() if name == "Total"}
    printed |= {gpus: server.cost_usd for gpus, server in servers().items()}
    assert {gpus: round(cost / unit) * unit for gpus, cost in printed.items()} == {
        gpus: system.cost_usd for gpus, system in known_systems().items()
    }


def test_every_checkable_claim_has_a_formula_or_one_function() -> None:
    by_function = {claim.id for claim in listed() if claim.not_checkable is None and claim.formula is None}
    assert set(MEASURED) | set(SURVEYED) == by_function


def test_all_five_papers_are_listed_and_each_claim_says_where_it_stands() -> None:
    counts = dict.fromkeys(("paper", "review", "comment", "lab", "thesis"), 0)
    for claim in listed():
        counts[claim.paper] += 1
        assert claim.where
        assert f"{claim.paper}, {claim.where}" == claim.source
    assert min(counts.values()) >= 15
    assert counts["paper"] >= 110


def test_an_id_of_another_paper_begins_with_its_name() -> None:
    for claim in listed():
        assert claim.paper == "paper" or claim.id.startswith(f"{claim.paper}-")


def test_the_precision_is_the_last_printed_place_but_of_what_words_alone_say() -> None:
    in_words = {"timed-passes", "comment-card-speed"}
    for claim in listed():
        if claim.precision is None or claim.id in in_words:
            continue
        digits, _, exponent = claim.published.partition("e")
        place = Decimal(digits).as_tuple().exponent if "." in digits else len(digits) - len(digits.rstrip("0"))
        place = 0 if digits == "0" else place
        assert claim.precision == pytest.approx(10.0 ** (int(place) + int(exponent or 0))), claim.id


# --- The verdict on a number ---


def claim(published: str, precision: float, relation: Relation = "equals") -> Claim:
    return Claim("a-claim", "paper, a test", "something", relation, published, precision, "x", None, None, None)


def verdict(published: str, precision: float, value: Interval, relation: Relation = "equals") -> str:
    return judge(claim(published, precision, relation), Working(value))[0]


@pytest.mark.parametrize(
    ("published", "precision", "value", "word"),
    [
        ("3", 1, Interval(2.97, 2.9, 3.1), "holds"),
        ("3.0", 0.1, Interval(2.67, 2.5, 2.8), "differs"),
        ("3.0", 0.1, Interval(2.96, 2.9, 3.1), "holds"),
        ("4.3", 0.1, Interval(4.37, 4.03, 4.90), "holds_by_rounding"),
        ("4.3", 0.1, Interval(4.37, 4.29, 4.90), "differs"),  # 4.3 is among the last 2 % of the draws
        ("3", 1, Interval.exact(2.86), "holds"),
        ("3", 1, Interval.exact(2.84), "differs"),  # more than 5 % off
        ("100000", 100_000, Interval.exact(127_500), "differs"),
        ("130000", 10_000, Interval.exact(127_500), "holds"),
        ("130000", 1_000, Interval.exact(127_500), "differs"),
        ("515.7", 0.1, Interval.exact(10313.0 / 20), "holds"),  # 515.65 stands on the edge and may round up
        ("108", 1, Interval.rounded(109), "differs"),  # both may be 108.5, which rounds to one of them alone
        ("109", 1, Interval.rounded(108), "differs"),
        ("0", 1, Interval.exact(8), "differs"),
    ],
)
def test_a_number_holds_if_it_rounds_to_the_published_one(
    published: str, precision: float, value: Interval, word: str
) -> None:
    assert verdict(published, precision, value) == word


def test_a_bound_holds_as_far_as_it_is_printed() -> None:
    assert verdict("40000", 10_000, Interval.exact(20_900), "at_most") == "holds"
    assert verdict("40000", 10_000, Interval.exact(40_001), "at_most") == "differs"
    assert verdict("40000", 10_000, Interval(40_500, 39_000, 42_000), "at_most") == "holds_by_rounding"
    assert verdict("5", 1, Interval.exact(5.97), "at_least") == "holds"
    assert verdict("6", 1, Interval.exact(5.97), "at_least") == "differs"


@pytest.mark.parametrize(
    ("published", "precision", "value", "relation", "reason"),
    [
        ("3", 1, 2.97, "equals", "2.97 rounds to 3 x"),
        ("3", 1, 3.0, "equals", "3 x, as published"),
        ("3", 1, 3.0, "at_most", "3 is at most 3 x"),
        ("57", 1, 66.56, "equals", "66.56 is not 57 x: 16.8 % off"),
        ("57.0", 0.1, 57.1, "equals", "57.1 is not 57 x: 0.2 % off"),
        ("5700.00", 0.01, 5700.1, "equals", "5700.1 is not 5700 x: 0.002 % off"),
        ("3", 1, 2.67, "equals", "2.67 rounds to 3 x, but 11.0 % off"),
    ],
)
def test_the_reason_has_both_numbers_and_how_far_apart_they_are(
    published: str, precision: float, value: float, relation: Relation, reason: str
) -> None:
    assert judge(claim(published, precision, relation), Working(Interval.exact(value)))[1] == reason


# --- Arithmetic that shows its working ---


def test_a_number_is_shown_in_five_figures_or_more() -> None:
    numbers = {
        4.67e20: "4.67e20",
        12_345.678: "12,345.68",
        100: "100",
        123.456: "123.46",
        1.23456: "1.2346",
        1e-4: "0.0001",
    }
    assert [*map(shown, numbers)] == [*numbers.values()]


def test_arithmetic_carries_its_rows_its_steps_and_its_bounds() -> None:
    days = Working.read(18, SourceRow("table1.csv", "a cell", "18 days", "paper"), rounded_to=1)
    gpus = Working.read(64, SourceRow("figure6.csv", "a model", "64 GPUs", "paper"))
    found = gpus * 3 / (days * 4).called("GPU-days")
    assert found.value == Interval(192 / 72, 192 / 74, 192 / 70)
    assert [row.file for row in found.rows] == ["figure6.csv", "table1.csv"]
    assert found.steps == ("64 x 3 = 192", "GPU-days: 18 x 4 = 72", "192 / 72 = 2.6667")


def test_differences_widen_and_sums_and_means_take_one_step() -> None:
    one, two = Working(Interval.rounded(1)), Working(Interval.rounded(2))
    assert (two - one).value == Interval(1, 0, 2)
    assert applied(added, [one, two], "1 + 2 =").steps == ("1 + 2 = 3",)
    assert mean([one, two]).steps == ("mean of the 2: 1.5",)
    assert mean([one, two]).value == Interval(1.5, 1, 2)


def read(value: float, name: str) -> Working:
    return Working.read(value, SourceRow("a.csv", name, f"{value}", "a test"), rounded_to=1)


def test_inputs_round_independently_and_the_same_row_always_alike() -> None:
    """The sum of two is spread as a triangle, whose central 95 % are 1 - sqrt(0.05) of its half width."""
    one, two = read(10, "one"), read(20, "two")
    half = 1 - 0.05**0.5
    for found in (one + two, applied(added, [one, two], ""), mean([one, two]) * 2):
        likely = found.central()
        assert [likely.low, likely.high] == pytest.approx([30 - half, 30 + half], abs=0.01)
    alike = (two - two).central()
    assert (alike.low, alike.high) == (0, 0)
    assert (one + two).draws() == (read(10, "one") + read(20, "two")).draws()
    whole = applied(round, [one + two], "").central()
    assert (whole.low, whole.high) == (29, 31)


# --- Formulas ---


def computed(formula: str) -> Working:
    return formulas.parse(formula, {"a-claim": lambda: read(10, "ten"), "another": lambda: read(2, "two")}).value()


@pytest.mark.parametrize(
    ("formula", "value", "step"),
    [
        ("1 + 2 * 3 - 4 / 2", 5, "7 - 2 = 5"),
        ("([a-claim] + [another]) ** 2", 144, "12 ** 2 = 144"),
        ("min(3, [another], 4)", 2, "min(3, 2, 4) = 2"),
        ("max(3, [another])", 3, "max(3, 2) = 3"),
        ("sum(3, [another], 4)", 9, "sum(3, 2, 4) = 9"),
        ("round(2.6)", 3, "round(2.6) = 3"),
        ("abs([another] - [a-claim])", 8, "max(-8, 8, 0) = 8"),
        ("half of it = [a-claim] / 2; twice that = [half of it] * 2", 10, "twice that: 5 x 2 = 10"),
        ("[tf32/mantissa]", 10, "tf32/mantissa: 10"),
        ("[memory of H100] * 2", 160, "80 x 2 = 160"),
    ],
)
def test_a_formula_is_arithmetic_on_named_numbers_and_shows_its_steps(formula: str, value: float, step: str) -> None:
    found = computed(formula)
    assert found.value.value == pytest.approx(value)
    assert found.steps[-1] == step


def test_a_formula_keeps_the_rows_and_the_rounding_of_its_numbers() -> None:
    found = computed("ratio = [a-claim] / [another]; [ratio] * 4")
    assert [row.row for row in found.rows] == ["ten", "two"]
    assert found.value == Interval(20, 4 * (9.5 / 2.5), 4 * (10.5 / 1.5))
    assert found.steps == ("ratio: 10 / 2 = 5", "5 x 4 = 20")
    assert computed("abs([another] - [another] * 1)").value == Interval(0, 0, 1), "it is never below 0"


@pytest.mark.parametrize(
    ("formula", "output"),
    [
        ("__import__('os').system('true')", "round, sum, abs, not __import__('os').system('true')"),
        ("open([a-claim])", "round, sum, abs, not open('a-claim')"),
        ("price * 2", "round, sum, abs, not price"),
        ("[a-claim].value", "round, sum, abs, not 'a-claim'.value"),
        ("[a-claim] ** [another]", "round, sum, abs, not 'a-claim' ** 'another'"),
        ("[a-claim] % 2", "round, sum, abs, not 'a-claim' % 2"),
        ("2 ** 99", "round, sum, abs, not 2 ** 99"),
        ("round([a-claim], 2)", "round, sum, abs, not round('a-claim', 2)"),
        ("max(default=1)", "round, sum, abs, not max(default=1)"),
        ("True", "round, sum, abs, not True"),
        ("[a-claim] +", "round, sum, abs, not [a-claim] +"),
        ("1" + "+1" * 9_999, "round, sum, abs, not 1+1"),
        ("[days of Pythia-2B on 4 A100, Table 1]", "a claim above, not [days of Pythia-2B on 4 A100, Table 1]"),
        ("[later] * 2; later = 3", "a claim above, not [later]"),
    ],
)
def test_a_formula_has_no_other_name_call_or_sign(formula: str, output: str) -> None:
    with pytest.raises(formulas.RefusedError) as refused:
        computed(formula)
    assert output in str(refused.value)


@pytest.mark.parametrize(
    ("old", "new", "output"),
    [
        ("[machine with 4 H100]", "eval(1)", "line 2, $.formula: found 'eval(1)', expected numbers, names"),
        ("[machine with 4 H100]", "[four-h100-days]", "expected the name of a number, a step or a claim above, not ["),
        ("{[v100s/fp32_tflops]}", "{[v100s]}", "line 181, $.note: found "),
        ("{[v100s/fp32_tflops]}", "{[v100s/fp32_tflops]:d}", "round, sum, abs, not [v100s/fp32_tflops]:d"),
        ("[fp32/mantissa] - [tf32/mantissa],-,-", "1,-,why", "$.not_checkable: found 'why', expected -, as"),
        ("[fp32/mantissa] -", "1 / ([tf32/mantissa] - [tf32/mantissa]) -", "the formula of tf32-bits: float division"),
        ("[fp32/mantissa] -", "1e300 * 1e300 -", "the formula of tf32-bits: the number is too large"),
    ],
)  # fmt: skip
def test_a_formula_that_is_none_is_reported_with_its_line(old: str, new: str, output: str, expected: Path) -> None:
    file = expected / "claims.csv"
    file.write_text(file.read_text().replace(old, new, 1))
    assert output in refusal("claims")


def test_the_page_on_the_numbers_lists_every_name_that_a_formula_may_use() -> None:
    page = " ".join((ROOT / "expected" / "README.md").read_text().split())
    for name in numbers.NAMES:
        assert f"`{name.removesuffix('?')}`" in page


# --- What the papers say, against arithmetic by hand ---

BY_HAND = [
    # The paper
    ("two-rtx-3090-days", 109, "differs"),
    ("two-rtx-3090-cost", 2 * 1_300 + 1_500, "holds"),
    ("title-100k", 4 * 30_000 + 7_500, "differs"),
    ("title-100-days", 109, "differs"),
    ("pythia-1b-fewer-gpu-days", 192 / 72, "differs"),
    ("original-roberta", 1024, "holds"),
    ("clip-lag", 2, "differs"),
    ("configurations-benchmarked", 36 * ((12 + 1) + 3 * (22 + 1)), "holds"),
    ("four-a100-cost", 4 * 19_000 + 7_500, "holds_by_rounding"),
    ("two-h100-cost", 2 * 30_000 + 1_500, "holds"),
    ("two-h100-in-the-same-time", 16, "differs"),
    ("own-8-a100", 162_500, "holds"),
    ("rtx-3090-peak", 71, "holds"),
    ("a100-peak", 312, "holds"),
    ("tf32-bits", 23 - 10, "holds"),
    ("naive-infeasible", 9, "holds"),
    ("optimised-infeasible", 0, "holds"),
    ("naive-pythia-1b-on-4-a100", 41, "holds"),
    (
        "less-compute-on-8-a100",
        (32 / 16 + 96 / 48 + 192 / 72 + 576 / 280 + 1280 / 616 + 1024 / 400 + 384 / 64 + 240 / 56) / 8,
        "holds",
    ),
    ("budget-40k-cost", 8 * 1_300 + 10_500, "holds"),
    ("budget-40k-days", 30, "holds"),
    ("eight-a100-cost", 8 * 19_000 + 10_500, "holds"),
    ("eight-h100-cost", 8 * 30_000 + 10_500, "holds"),
    ("a100-run-cost", 162_500 * 9 / (5 * 365), "holds"),
    ("h100-run-cost", 127_500 * 8 / (5 * 365), "differs"),
    ("four-h100-memory", 320 / 640, "holds"),
    ("server-8-gpus", 10_673, "differs"),
    ("desktop-1-gpu-total", 99 + 109.95 + 329 + 102.49 + 139.99 + 99.99 + 139.99, "holds"),
    ("desktop-2-gpus-total", 247.93 + 109.95 + 329 + 252.52 + 139.99 + 99.99 + 276.91, "holds"),
    ("parameters-roberta", 355_412_057, "holds"),
    ("parameters-roberta-in-table-1", 355_412_057, "differs"),
    ("parameters-convnext-in-figure-6", 392_900_177, "differs"),
    ("vit-sequence", (224 // 16) ** 2, "differs"),
    ("table-3", 0, "holds"),
    ("largest-model-days", 32, "differs"),
    ("olmo-tokens", 3e12 / (143_000 * 1024 * 2049), "holds"),
    ("flops-pythia-1b", 1.282e13 * 1024 * 143_000, "holds"),
    ("flops-roberta", 1.166e12 * 8192 * 500_000, "holds"),
    ("flops-mamba", 6.78e13 * 128 * 572_204, "differs"),
    ("flops-convnext", 3.658e11 * 4096 * 311_940, "differs"),
    ("flops-vit", 3.692e11 * 4096 * 311_948, "holds"),
    ("search-space-1-gpu", 12, "holds"),
    ("search-space-more-gpus", 22, "holds"),
    ("appendix-j-batch-sizes", 0, "holds"),
    ("appendix-j-powers-of-two", 0, "holds"),
    ("appendix-j-leaves-out", 0, "holds"),
    ("largest-model-on-1-gpu", 0, "holds"),
    # The review
    ("review-eight-rtx-3090-cost", 20_900, "differs"),
    ("review-own-8-a100", 162_500, "differs"),
    ("review-saved-by-owning", 450_000, "holds"),
    ("review-budget-130k", 8, "holds"),  # 4 H100 at 127,500
    ("review-budget-160k", 1, "differs"),  # the same is cheaper than 8 A100 at 162,500, and faster
    ("review-under-50k", 30 - 22, "differs"),  # 8 A6000 at 48,900
    ("review-50k-to-100k", 0, "differs"),
    ("review-over-100k", 0, "holds"),
    # The comment
    ("comment-gpu-hours", 1024 * 44 / 60, "differs"),
    ("comment-google-cost", 1024 * 2.48, "holds"),
    ("comment-google-cost-of-44-minutes", 1024 * 44 / 60 * 2.48, "differs"),
    ("comment-exoscale-cost", 1024 * 1.375, "holds"),
    ("comment-exoscale-cost-of-44-minutes", 1024 * 44 / 60 * 1.375, "differs"),
    ("comment-electricity", 1024 * 0.5 * 0.13, "differs"),
    ("comment-electricity-of-44-minutes", 750.933 * 0.5 * 0.13, "differs"),
    ("comment-card-speed", 16.3 / 15.7, "holds"),
    ("comment-card-power", 295 - 300, "holds"),
    ("comment-break-even-equation", 8_000 / (1_408 - 69), "holds"),
    ("comment-break-even", 6, "holds"),  # 5.97
    ("comment-break-even-with-its-electricity", 7, "differs"),  # 8,000 / (1,408 - 80.57) is 6.03
    ("comment-break-even-of-44-minutes", 9, "differs"),  # 8,000 / (1,032.53 - 59.09) is 8.22
    # The lab
    ("lab-v100-double-precision", 7.8, "differs"),
    ("lab-t4-single-precision", 8.1, "holds"),
    ("lab-specification-ratio", 16.4 / 8.1, "holds"),
    ("lab-specification-ratio-in-single-precision", 15.7 / 8.1, "differs"),
    ("lab-observed-ratio", 1528.2 / 556.6, "holds"),
    ("lab-hypothesis-supported", 1528.2 / 556.6, "differs"),
    ("lab-prediction-t4-2-cpus", 20 * 1486.7, "holds"),
    ("lab-prediction-t4-16-cpus", 20 * 499.8, "holds"),
    ("lab-prediction-t4", 20 * 86.5, "holds"),
    ("lab-prediction-v100", 20 * 33.4, "holds"),
    ("lab-prediction-met-t4-2-cpus", 30522.1, "differs"),
    ("lab-prediction-met-v100", 556.6, "differs"),
    ("lab-rate-t4-16-cpus-1-epoch", 40597 / 499.5, "holds"),
    ("lab-rate-t4-20-epochs", 40597 / 75.9, "holds_by_rounding"),
    ("lab-epoch-v100", 556.6 / 20, "holds"),
    ("lab-t4-minutes", 1528.2 / 60, "differs"),
    ("lab-cpus-underestimated", 0, "holds"),
    ("lab-gpus-overestimated", 0, "holds"),
    # The thesis
    ("thesis-two-gpus", 2 * 0.69, "holds"),
    ("thesis-two-gpus-per-gpu-hour", 0.69, "differs"),
    ("thesis-cost-effective", 165.2 / 0.69 / (125 / 3.06), "holds"),
]


@pytest.mark.parametrize(("id", "value", "word"), BY_HAND)
def test_a_claim_recomputes_to_what_arithmetic_by_hand_gives(id: str, value: float, word: str) -> None:
    checked = CHECKED[id]
    assert checked.working is not None
    assert checked.working.value.value == pytest.approx(value, rel=2e-3)
    assert checked.verdict == word


def test_the_mean_speedup_is_that_of_the_44_pythia_cells() -> None:
    naive, best = days_of("4"), days_of("1")
    ratios = [naive[place] / best[place] for place in naive if place[0].startswith("Pythia")]
    low = [(naive[place] - 0.5) / (best[place] + 0.5) for place in naive if place[0].startswith("Pythia")]
    checked = CHECKED["mean-speedup"]
    assert checked.working is not None
    assert len(ratios) == 44
    assert checked.working.value.value == pytest.approx(statistics.mean(ratios))
    assert checked.working.value.low == pytest.approx(statistics.mean(low))
    assert (round(checked.working.value.value, 2), checked.verdict) == (4.37, "holds_by_rounding")
    assert len(checked.working.rows) == 2 * 44


@pytest.mark.parametrize(
    ("id", "h100", "value", "word"),
    [
        ("analytic-optimism", 756e12, 5.99, "holds"),
        ("analytic-optimism-with-sxm-peak", 989.4e12, 6.66, "differs"),
    ],
)
def test_the_analytic_estimate_is_6x_optimistic_with_the_peak_that_the_paper_took(
    id: str, h100: float, value: float, word: str
) -> None:
    flops = {"Pythia-160M": 2.9e20, "Pythia-410M": 8.2e20, "Pythia-1B": 1.9e21}
    peaks = {"RTX 3090": 71e12, "A6000": 154.8e12, "A100": 312e12, "H100": h100}
    ratios = [
        days / (flops[model] / (peaks[gpu] * int(gpus)) / 86_400)
        for (model, gpu, gpus), days in days_of("4").items()
        if model in flops
    ]
    checked = CHECKED[id]
    assert checked.working is not None
    assert checked.working.value.value == pytest.approx(statistics.mean(ratios))
    assert checked.working.value.value == pytest.approx(value, abs=0.005)
    assert checked.verdict == word


def test_the_night_of_summer_time_explains_the_hour_that_time_stamps_are_longer() -> None:
    checked = CHECKED["lab-stamps-t4-2-cpus-20-epochs"]
    assert checked.working is not None
    assert checked.working.value.value == 9 * 3600 + 28 * 60 + 42 - 3600
    assert checked.verdict == "holds_by_rounding"
    assert "34,122 s" in checked.reason
    others = [found for id, found in CHECKED.items() if id.startswith("lab-stamps") and found is not checked]
    assert len(others) == 7
    assert all(found.verdict.startswith("holds") and "clock" not in found.reason for found in others)


def test_the_comments_break_even_is_that_of_repro_cost() -> None:
    as_printed, electricity, gpu_hours, _ = (first_run(row.case.runs.value) for row in comment_cases())
    ids = ("comment-break-even", "comment-break-even-with-its-electricity", "comment-break-even-of-44-minutes")
    found = [CHECKED[id].row()["recomputed"] for id in ids]
    assert found == [as_printed, electricity, gpu_hours]


def test_the_page_on_the_paper_has_the_verdicts_as_they_are() -> None:
    counts = Counter(checked.verdict for checked in CHECKED.values())
    page = documentation("docs/artifact.md")
    assert f"`expected/claims.csv` lists {len(CHECKED)} of them" in page
    output = f"{counts['holds']} hold, {counts['holds_by_rounding']} by rounding, and {counts['differs']} differ"
    assert f"Without a run {output}:" in page


# --- What cannot be checked ---


def test_what_cannot_be_checked_is_listed_with_its_reason_and_without_a_number() -> None:
    found = [checked for checked in CHECKED.values() if checked.verdict == "not_checkable"]
    assert len(found) >= 35
    for checked in found:
        row = checked.row()
        assert checked.reason
        assert row["recomputed"] is row["low"] is row["high"] is None


def test_a_share_of_50_respondents_is_called_impossible_where_it_is() -> None:
    possible = {round(100 * people / 50) for people in range(51)}
    shares = [claim for claim in listed() if claim.unit == "%" and claim.published.isdecimal()]
    surveyed = [claim for claim in shares if claim.id.startswith("survey") and claim.id != "survey-data-center"]
    assert len(surveyed) >= 10
    for claim in surveyed:
        assert ("no whole number" in CHECKED[claim.id].reason) == (int(claim.published) not in possible), claim.id


def test_the_numbers_in_reasons_follow_from_the_papers() -> None:
    reasons = {claim.id: claim.not_checkable or "" for claim in listed()}
    an_hour = 650_000 / (5 * 365 * 24)
    for id in ("rent-8-a100", "review-rent-8-a100"):
        assert f"${an_hour:.2f} an hour, or ${an_hour / 8:.2f} a GPU-hour" in reasons[id]
    assert f"69 to 57 is {69 / 57:.2f}" in reasons["comment-electricity-in-dollars"]


# --- Tracing ---


def test_every_recomputed_number_names_the_rows_it_came_from() -> None:
    for checked in CHECKED.values():
        if checked.verdict in ("holds", "holds_by_rounding", "differs"):
            assert checked.working is not None
            assert checked.working.rows, checked.claim.id
            assert all(row.file and row.row and row.value and row.source for row in checked.working.rows)


def test_a_claim_shows_its_rows_and_its_arithmetic_step_by_step() -> None:
    output = repro("claims", "pythia-1b-fewer-gpu-days").stdout
    for part in ("3x fewer", "differs", "figure6.csv", "64 A100 40 GB for 3 days", "table1.csv", "18 days",
                 "paper, Table 1", "3 x 64 = 192", "18 x 4 = 72", "192 / 72 = 2.6667"):  # fmt: skip
        assert part in output
    row = answer("claims", "pythia-1b-fewer-gpu-days")[0]
    assert [used["file"] for used in row["rows"]] == ["figure6.csv", "table1.csv"]
    assert row["steps"][-1] == "192 / 72 = 2.6667"
    traced = list(csv.DictReader(io.StringIO(repro("claims", "comment-electricity", "--format", "csv").stdout)))
    assert [line["part"] for line in traced] == ["row"] * 3 + ["step"] * 2 + ["verdict"]
    assert traced[-1]["value"] == "differs"


def test_numbers_are_reported_as_people_write_them() -> None:
    output = repro("claims", "parameters-convnext-in-figure-6").stdout
    assert "Published: 350 million parameters, its last printed place 10,000,000." in output
    assert "0 is less than 1 machine:" in CHECKED["review-50k-to-100k"].reason
    everything = " ".join(f"{one.claim.text} {one.reason} {one.working}" for one in CHECKED.values())
    assert re.findall(r"(?<![\w.,-])1 (?:days|epochs|GPUs|machines|hours)\b", everything) == []
    assert "in Appendix J, 1 day in Table 1" in everything


def test_each_of_several_published_numbers_stands_with_its_own_unit() -> None:
    texts = {claim.text for claim in listed()}
    assert {"50 people; 35 institutions", "1 day; 1 GPU", "61 GB; 8 CPUs; 132 GB; 16 CPUs", "4; 8 to 16 GPUs"} <= texts
    assert "Published: -." in repro("claims", "original-resources").stdout


def test_an_unknown_claim_names_the_nearest() -> None:
    refused = refusal("claims", "mean-speedups")
    assert "unknown claim 'mean-speedups': did you mean mean-speedup? python -m repro claims lists all 236" in refused


# --- The command ---


def test_the_list_has_a_row_for_every_claim() -> None:
    rows = answer("claims")
    assert [row["id"] for row in rows] == [claim.id for claim in listed()]
    assert all({"id", "paper", "where", "statement", "unit", "verdict", "reason", "how"} <= set(row) for row in rows)
    assert all({"published", "recomputed", "low", "high"} <= set(row) for row in rows)
    by_id = {row["id"]: row for row in rows}
    assert by_id["mean-speedup"]["published"] == 4.3
    assert by_id["title-100k"]["off"] == pytest.approx(0.275)
    assert by_id["review-under-50k"]["off"] is None, "of 0"
    assert (
        4.02 < by_id["mean-speedup"]["low"] < by_id["mean-speedup"]["recomputed"] < by_id["mean-speedup"]["high"] < 4.91
    )
    assert by_id["survey-fine-tuning"]["published"] == "70 to 80"


def test_a_screen_has_the_answer_and_the_claims_that_differ_most() -> None:
    found = repro("claims")
    assert (found.returncode, found.stderr) == (0, ""), "what differs is a finding, no failure"
    first, table, left, _ = found.stdout.rstrip("\n").split("\n\n")
    differing = [one for one in CHECKED.values() if one.verdict == "differs"]
    assert first.startswith(f"Of {len(CHECKED)} claims 122 hold, 13 hold by rounding, {len(differing)} differ, ")
    shares = [abs(CHECKED[line.split()[0]].off or 0) for line in table.splitlines()[2:]]
    assert shares == sorted((abs(one.off or 0) for one in differing), reverse=True)[:20]
    assert left == f"{len(differing) - 20} more rows: --all shows all."
    assert re.search(r"^title-100k +100,000 USD +127,500 +\+27.5% +-$", table, re.MULTILINE)
    assert re.search(r"^review-under-50k +0 days +8 +- +18.3$", table, re.MULTILINE)


def test_all_shows_every_claim_with_its_verdict() -> None:
    for output in (repro("claims", "--all"), repro("claims", "--all", "--format", "markdown")):
        named = set(re.findall(r"^(?:\| )?([a-z0-9.-]+[a-z0-9]) ", output.stdout, re.MULTILINE))
        assert CHECKED.keys() <= named
    assert re.search(r"^four-h100-days +8 days +8 +✓ +13$", repro("claims", "--all").stdout, re.MULTILINE)


def test_a_claim_shows_its_formula() -> None:
    formula = "kWh of a run = [comment/hours_charged] * [comment/power]; EUR of a run = [kWh of a run] * "
    output = repro("claims", "comment-electricity").stdout
    assert f"Arithmetic: {formula}[comment/electricity], in numbers kWh of a run: 1024 x 0.5 = 512; " in output
    assert "\n1. kWh of a run: 1024 x 0.5 = 512\n" in repro("claims", "comment-electricity", "--all").stdout
    assert answer("claims", "comment-electricity")[0]["formula"].startswith(formula)


BROKEN = [
    ("mean-speedup,", "mean speedup,", "$.id: found 'mean speedup', expected lower-case words"),
    ("mean-speedup,", "title-100k,", "$.id: found 'title-100k', expected title-100k only once"),
    (",equals,4.3,", ",about,4.3,", "$.relation: found 'about', expected one of equals, at_most, at_least"),
    (",equals,4.3,", ",equals,four,", "$.published: found 'four', expected a number"),
    (",4.3,0.1,", ",4.3,0,", "$.precision: found '0', expected a number above 0"),
    (",equals,4.3,", ",equals,nan,", "$.published: found 'nan', expected a number"),
    (",4.3,0.1,", ",4.3,inf,", "$.precision: found 'inf', expected a number above 0"),
    (",4.3,0.1,", ",4.3,-,", "$.precision: found '-', expected a positive number, as the claim is"),
    (",60,10,%,-", ",about 60,-,%,-", "$.precision: found '-', expected a positive number, as the claim is"),
    ("timed-passes,", "timed-pass,", "/claims.csv: no function here checks the claim timed-pass; remove it"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "output"), BROKEN)
def test_a_broken_list_is_reported_in_one_line(old: str, new: str, output: str, expected: Path) -> None:
    file = expected / "claims.csv"
    assert file.read_text().count(old) == 1
    file.write_text(file.read_text().replace(old, new))
    assert output in refusal("claims")


@pytest.mark.parametrize(
    ("file", "old", "new", "output"),
    [
        ("lab.csv", "T4 node with 2 CPUs,-,2,1,", "XT4,-,2,1,", "no row for T4 node with 2 CPUs, 1,"),
        (
            "lab.csv",
            "T4 node with 2 CPUs,-,2,20,30522.1,29734.0,",
            "T4 node with 2 CPUs,-,2,20,30522.1,-,",
            "no predicted seconds for T4 node with 2 CPUs, 20,",
        ),
        ("rental.csv", "RTX 4090,1,RunPod,on", "RTX 4090,1,Run,on", "no row for RTX 4090, 1, RunPod, on-demand,"),
        ("quantities.csv", "lab/t4_tflops", "lab/tflops", "no row for lab/t4_tflops,"),
        ("table5.csv", "H100", "H200", "no row for H100,"),
    ],
)
def test_a_row_that_claims_need_and_a_file_lacks_is_reported_in_one_line(
    file: str, old: str, new: str, output: str, expected: Path
) -> None:
    text = (expected / file).read_text()
    assert f"\n{old}" in text
    (expected / file).write_text(text.replace(f"\n{old}", f"\n{new}", 1))
    assert f"{expected / file}: found {output}" in refusal("claims")


def test_a_table_4_without_days_is_reported_in_one_line(expected: Path, tmp_path: Path) -> None:
    file = expected / "table4.csv"
    file.write_text(re.sub("^([^,]+,[^,]+,[0-9]+),[0-9]+,", r"\1,-,", file.read_text(), flags=re.MULTILINE))
    for command in (("claims",), ("claims", "mean-speedup"), ("report", "--out", str(tmp_path / "out"))):
        assert f"{file}: found no days" in refusal(*command)


def test_a_paper_that_is_none_of_the_five_and_an_empty_list_are_reported(expected: Path) -> None:
    file = expected / "claims.csv"
    header, first, *_ = file.read_text().splitlines()
    file.write_text(f"{header}\n{first.replace('paper, title', 'newspaper, title')}\n")
    with pytest.raises(UserError, match=r"line 2, \$\.source: found 'newspaper, title', expected one of paper,"):
        listed()
    file.write_text(f"{header}\n")
    with pytest.raises(UserError, match=r"claims\.csv: found no row for a claim, expected one; restore it"):
        listed()


# --- Claims that need a run ---

NEED_A_RUN = {
    "table-1-cells",
    "table-4-cells",
    "timed-passes",
    "memory-saving-gain",
    "review-memory-saving-gain",
    "one-gpu-memory-saving",
    "best-over-median",
    "twice-as-long",
    "best-over-worst",
    "median-slower-than-free-lunch",
}


FOUR = ("RTX 3090", "A6000", "A100", "H100")


@cache
def search(
    *gpus: str, best: float = 10.0, counts: Iterable[int] = COUNTS, models: Iterable[str] = PYTHIA, factor: float = 1.0
) -> tuple[Record, ...]:
    """The whole search on these GPUs (default: the paper's four): free lunch alone takes 20 days, one memory-saving
    settings `best`, the others 30, but the last two 40, each times `factor`. The median is 30."""
    found = []
    for gpu, model, count in product(gpus or FOUR, models, counts):
        space = [settings.id for settings in search_space(count)]
        days = dict.fromkeys(space, 30.0) | {space[0]: 20.0, space[1]: best}
        days |= dict.fromkeys(space[-2:], 40.0)
        found += [record(model, settings, factor * number, gpu=gpu, count=count) for settings, number in days.items()]
    return tuple(found)


def test_without_a_run_they_name_the_command_that_measures_them() -> None:
    needing = {id for id, checked in CHECKED.items() if checked.verdict == "needs_measurement"}
    assert needing == NEED_A_RUN | SURVEYED.keys()
    for id in NEED_A_RUN:
        assert CHECKED[id].reason.startswith("python -m repro --gpus all")
        assert CHECKED[id].working is None


@pytest.mark.parametrize(
    ("id", "value"),
    [
        ("best-over-median", 30 / 10),
        ("twice-as-long", 30 / 10),
        ("best-over-worst", 40 / 10),
        ("median-slower-than-free-lunch", 30 / 20),
        ("memory-saving-gain", 50),
        ("one-gpu-memory-saving", 50),
    ],
)
def test_a_whole_search_on_the_papers_four_gpus_settles_its_claims(id: str, value: float) -> None:
    checked = check(id, search())
    assert checked.working is not None
    assert checked.working.value.value == pytest.approx(value)
    assert checked.verdict == "differs"
    assert "cells of RTX 3090, A6000, A100 and H100" in checked.reason
    assert any("Pythia-1B on" in step for step in checked.working.steps)
    assert checked.working.rows[0].file == "trials.jsonl"


def test_numbers_that_round_to_the_papers_hold() -> None:
    records = search(best=30 / 2.34)
    assert check("best-over-median", records).verdict == "holds"
    assert check("twice-as-long", search(best=30 / 2.09)).verdict == "holds"
    assert "2.34 rounds to 2 x, but 17.0 % off" in check("twice-as-long", records).reason
    assert check("best-over-median", search(best=30 / 2.36)).verdict == "differs"


def test_some_of_the_papers_gpus_leave_its_means_open_and_theirs_is_reported() -> None:
    checked = check("best-over-worst", [*search("H100", best=10), *search("A100", best=8)])
    assert checked.working is not None
    assert checked.working.value.value == pytest.approx((40 / 10 + 40 / 8) / 2)
    assert checked.verdict == "needs_measurement"
    assert "4.5 x, measured in 30 cells of H100 and A100; the paper's RTX 3090 and A6000 are missing" in checked.reason
    assert check("best-over-median", search("H100", best=30 / 2.3)).verdict == "needs_measurement", "as it might hold"


@pytest.mark.parametrize("id", ["best-over-worst", "memory-saving-gain", "one-gpu-memory-saving"])
def test_a_gpu_that_is_not_the_papers_settles_nothing_and_counts_where_no_other_does(id: str) -> None:
    checked = check(id, search("L40S", best=4))
    assert checked.verdict == "needs_measurement"
    assert "cells of L40S, none of the paper's GPUs; the paper's RTX 3090, A6000, A100 and H100 are" in checked.reason
    both = check("best-over-worst", [*search("L40S", best=5), *search("H100")])
    assert both.working is not None
    assert both.working.value.value == pytest.approx(4)
    begun = check("best-over-worst", [*search("L40S", best=5)[:-1], *search("H100", models=PYTHIA[:1])])
    assert "3 of the 15 cells of H100 are searched" in begun.reason


@pytest.mark.parametrize("otherwise", ["flash", "without TF32"])
def test_what_stands_for_no_cell_refutes_no_search(otherwise: str) -> None:
    records = [
        replace(each, settings=replace(Settings.parse(each.settings), attention="flash").id)
        if otherwise == "flash"
        else replace(each, as_run=replace(each.as_run, asked_tf32=False))
        for each in search(best=5)
    ]
    checked = check("best-over-median", records)
    assert checked.verdict == "needs_measurement"
    assert "they are of other models or settings" in checked.reason


def test_a_search_with_a_gap_says_what_is_missing_and_what_there_is_so_far() -> None:
    *records, last = search("H100", best=30 / 2.3)
    checked = check("best-over-median", records)
    assert checked.verdict == "needs_measurement"
    assert (
        f"14 of the 15 cells of H100 are searched: Pythia-6.9B on 8 H100 lacks 1 of 22 settings, first {last.settings}"
        in (checked.reason)
    )
    assert "--methods all" in checked.reason
    assert checked.working is not None
    assert checked.working.value.value == pytest.approx(2.3)


@pytest.mark.parametrize("status", ["crashed", "timed_out", "unsupported", "interrupted"])
def test_settings_that_ended_otherwise_are_missing(status: Status) -> None:
    *records, last = search("H100")
    gone = record(last.recipe, last.settings, None, gpu="H100", count=last.count, status=status)
    assert f"first {last.settings} ({status})" in check("best-over-worst", [*records, gone]).reason


def test_settings_out_of_memory_are_searched_and_have_no_days() -> None:
    *records, last = search()
    full = record(last.recipe, last.settings, None, gpu="H100", count=last.count, status="out_of_memory")
    checked = check("best-over-worst", [*records, full])
    assert checked.verdict == "differs"
    assert checked.working is not None
    assert checked.working.value.value == pytest.approx(4)  # one of the two with 40 days is left


def test_cells_where_free_lunch_alone_does_not_fit_are_left_out_as_in_the_figures() -> None:
    records = search(models=PYTHIA[:4])
    full = [record(PYTHIA[4], "free_lunch", None, *place, status="out_of_memory") for place in product(FOUR, COUNTS)]
    checked = check("best-over-median", [*records, *full])
    assert checked.verdict == "differs"
    assert "measured in 48 cells" in checked.reason
    nowhere = [
        record(id, "free_lunch", None, "H100", count, status="out_of_memory") for id in PYTHIA for count in COUNTS
    ]
    assert "free lunch alone ran out of memory in every cell" in check("best-over-median", nowhere).reason


def test_where_nothing_that_saves_memory_fits_the_reason_says_so() -> None:
    records = [
        record(id, each.id, None, "H100", count, status="out_of_memory")
        for id in PYTHIA
        for count in COUNTS[1:]
        for each in search_space(count)[1:]
    ]
    fits = [record(id, "free_lunch", 20.0, "H100", count) for id in PYTHIA for count in COUNTS[1:]]
    output = check("best-over-median", [*records, *fits]).reason
    assert "on H100 every memory-saving settings ran out of memory in every cell" in output


def test_what_differs_by_its_unit_or_its_budget_says_so() -> None:
    assert "to the nearest 500 USD, as the other systems are too" in CHECKED["server-8-gpus"].reason
    better = "8 A100 at 162,500 USD, above that budget, in 9 days; 4 H100 at 127,500 USD in 8 days"
    assert CHECKED["review-budget-160k"].reason.endswith(better)
    assert "own price, 162,500 USD, it would be 487,500" in CHECKED["review-saved-by-owning"].reason


def test_cells_where_free_lunch_alone_fits_and_nothing_else_have_no_median() -> None:
    alone = [each.id for each in search_space(2)[1:]]
    full = [record(PYTHIA[4], id, None, "H100", count, status="out_of_memory") for count in COUNTS[1:] for id in alone]
    fits = [record(PYTHIA[4], "free_lunch", 20.0, "H100", count) for count in COUNTS[1:]]
    checked = check("best-over-median", [*search("H100", counts=COUNTS[1:], models=PYTHIA[:4]), *fits, *full])
    assert checked.working is not None
    assert checked.working.value.value == pytest.approx(3)


def test_the_largest_gain_is_a_mean_over_models_or_numbers_of_gpus() -> None:
    slow = search(best=30, models=PYTHIA[:4])
    fast = search(best=4, models=PYTHIA[4:])
    checked = check("memory-saving-gain", [*slow, *fast])
    assert checked.working is not None
    # Pythia-6.9B saves 80 % on 2, 4 and 8; the mean over the models saves less.
    assert checked.working.value.value == pytest.approx(80)
    assert checked.verdict == "differs"


def test_the_largest_gain_of_some_gpus_refutes_the_paper_only_where_it_is_larger() -> None:
    id = "memory-saving-gain"
    lower = check(id, search("H100", best=10))
    assert lower.verdict == "needs_measurement"
    assert "50 %, measured in 20 cells of H100; the paper's RTX 3090, A6000 and A100 are missing" in lower.reason
    assert check(id, search("H100", best=5.8)).verdict == "needs_measurement", "as it may be more on the others"
    assert check(id, search("H100", best=5)).verdict == "differs"
    assert check(id, search(best=5.8)).verdict == "holds"
    assert check(id, search(best=10)).verdict == "differs"
    assert check("review-memory-saving-gain", search(best=5.8)).verdict == "holds"


def test_a_gain_that_is_a_mean_refutes_nothing_while_cells_of_it_are_missing() -> None:
    one = search("H100", best=4, counts=(8,), models=("pythia-1b",))
    checked = check("memory-saving-gain", one)
    assert checked.verdict == "needs_measurement"
    searched = (
        "1 of the 20 cells of H100 is searched: Pythia-160M on 1 H100 lacks 12 of 12 settings, first free_lunch; "
    )
    assert f"80 %, measured in 1 cell of H100; {searched}" in checked.reason
    # The bars that it is in end below the paper's 71 %.
    assert check("memory-saving-gain", [*one, *search(best=10)]).working.value.value < 71  # type: ignore[union-attr]


def test_memory_saving_on_one_gpu_hurts_where_every_gain_is_negative() -> None:
    assert check("one-gpu-memory-saving", search(best=20.1, counts=(1,))).verdict == "holds"
    helped = check("one-gpu-memory-saving", search("H100", best=19.9, counts=(1,), models=("pythia-1b",)))
    assert helped.verdict == "differs"  # one cell is enough
    for models in (("pythia-1b",), PYTHIA):
        hurt = check("one-gpu-memory-saving", search("H100", best=20.1, counts=(1,), models=models))
        assert hurt.verdict == "needs_measurement"


def test_the_clocks_are_compared_over_all_trials_on_gpus() -> None:
    ratios = (1.0, 1.4, 1.3)
    records = [
        record("vit", settings, 10.0, true_days=10.0 * ratio)
        for settings, ratio in zip(("naive", "free_lunch", "free_lunch+zero_1"), ratios, strict=True)
    ]
    apart = record("vit", "free_lunch+checkpointing", 10.0, true_days=90.0, micro_batch=2, authors_micro_batch=4)
    checked = check("timed-passes", [*records, apart, record("vit", "free_lunch", None, status="out_of_memory")])
    assert checked.working is not None
    assert checked.working.value.value == pytest.approx(1.3)
    assert (checked.verdict, "from 1 to 1.4" in checked.reason) == ("differs", True)
    assert check("timed-passes", records[:1]).verdict == "holds"


def test_one_cell_refutes_a_table_and_does_not_confirm_it() -> None:
    holds = check("table-4-cells", [record("pythia-1b", "naive", 41.0)])
    assert holds.verdict == "needs_measurement"
    assert "1 of its 143 cells were compared, and hold" in holds.reason
    differs = check("table-4-cells", [record("pythia-1b", "naive", 60.0)])
    assert differs.verdict == "differs"
    assert differs.working is not None
    assert "printed 41 days, measured 60.0" in differs.working.steps[0]
    other = check("table-1-cells", [record("pythia-1b", "naive", 60.0)])
    assert (other.verdict, "none of its 144 cells was compared" in other.reason) == ("needs_measurement", True)


def test_claims_go_by_true_days_and_say_what_the_authors_clock_gives() -> None:
    run = [record("pythia-1b", "naive", 41.0, true_days=60.0)]
    true, authors = check("table-4-cells", run), check("table-4-cells", run, "authors")
    assert true.verdict == "differs"
    assert true.reason.endswith("; by the authors' clock 0 cells (needs measurement)")
    assert authors.verdict == "needs_measurement"
    assert authors.reason.endswith("; by true days 1 cell (differs)")
    gain = search(best=20.1, counts=(1,))
    early = [altered(one, authors_step=one.derived.authors_step and one.derived.authors_step / 2) for one in gain]
    assert check("one-gpu-memory-saving", early).reason == check("one-gpu-memory-saving", gain).reason, "a ratio"


def test_a_claim_that_rests_on_days_has_its_number_by_true_days_beside() -> None:
    by_true = {id: one.by_true_days for id, one in CHECKED.items() if one.by_true_days}
    assert len(by_true) == 30
    assert {"eight-a100-days", "mean-speedup", "a100-run-cost", "review-budget-160k"} <= by_true.keys()
    assert by_true.keys().isdisjoint({"four-h100-cost", "naive-infeasible", "lab-t4-minutes", "review-50k-to-100k"})
    (cell,) = (row for row in corrected_table("1") if row.place == ("Pythia-1B", "A100", 8))
    days = by_true["eight-a100-days"]
    assert (days.value, days.origin) == (cell.days, "predicted for torch 2.3.1, transformers 4.42.3")
    assert cell.days is not None
    lifespan = 5 * 365
    assert by_true["a100-run-cost"].value == pytest.approx(
        numbers.machine("A100", 8).value.value * cell.days / lifespan
    )
    assert CHECKED["eight-a100-days"].verdict == "holds", "a claim is judged on the printed inputs"


def test_true_days_are_a_runs_where_it_measured_a_cell() -> None:
    published = next(row for row in published_settings() if row.place == ("Pythia-1B", "H100", 4))
    run = [record("pythia-1b", each.id, 12.0, gpu="H100", count=4, true_days=15.0) for each in published.readings()]
    found = check("four-h100-days", run).by_true_days
    assert found is not None
    assert found.origin == "measured"
    assert found.value == pytest.approx(15.0)


def test_true_days_of_claims_stand_in_every_output_with_their_stack() -> None:
    rows = {row["id"]: row for row in answer("claims", "--stack", "today")}
    row = rows["eight-a100-days"]
    assert (row["recomputed"], row["true_days"]) == (9, f"predicted for {shipped()[-1]}")
    assert rows["four-h100-cost"]["by_true_days"] is rows["four-h100-cost"]["true_days"] is None
    text = repro("claims", "--all").stdout
    assert "By true days: with days that one would really wait, predicted for torch 2.3.1" in text
    line = next(line for line in text.splitlines() if line.startswith("eight-a100-days"))
    assert line.split()[1:] == ["9", "days", "9", "✓", "15.5"]
    assert "By true days: 15.5 days, predicted for torch 2.3.1" in repro("claims", "eight-a100-days").stdout
    assert "recomputed 9 days (by true days 15.5 days)" in markdown(compose())


def test_claims_on_the_h100_are_reported_by_the_chosen_clock() -> None:
    folder = str(ROOT / "results" / "h100" / "text")

    def output(*clock: str) -> dict[str, Any]:
        return {row["id"]: row for row in answer("claims", "--measured", folder, *clock)}

    true, authors = output(), output("--by", "authors")
    assert (true["table-1-cells"]["recomputed"], authors["table-1-cells"]["recomputed"]) == (2, 4)
    assert "by the authors' clock 4 cells" in true["table-1-cells"]["reason"]
    assert "by true days 2 cells" in authors["table-1-cells"]["reason"]
    assert true["timed-passes"] == authors["timed-passes"], "it is of both"


def test_a_comparison_of_every_cell_confirms_a_table() -> None:
    records = [
        record(recipe_of(one.model).id, "naive", one.days, one.gpu, one.gpus, "ok" if one.days else "out_of_memory")
        for one in cells("4")
        if one.state != "lost"
    ]
    checked = check("table-4-cells", records)
    assert (checked.verdict, "143 of its 143 cells were compared" in checked.reason) == ("holds", True)
    assert check("table-4-cells", records[1:]).verdict == "needs_measurement"


@pytest.mark.parametrize(
    ("change", "output"),
    [
        ({"scale": "tiny"}, "of tiny recipes"),
        ({"gpu": "cpu"}, "of the CPU"),
        ({"memory_limit": 2**30}, "under a memory limit"),
        ({"nodes": 2}, "on several nodes"),
    ],
)
def test_records_that_cannot_stand_for_the_papers_do_not_count(change: dict[str, Any], output: str) -> None:
    given: dict[str, Any] = {"gpu": "H100", "count": 2}
    given |= {key: value for key, value in change.items() if key in ("scale", "gpu")}
    records = [record("pythia-1b", "free_lunch", 10.0, **given)]
    for name in ("memory_limit", "nodes"):
        if name in change:
            setattr(records[0], name, change[name])
    for id in NEED_A_RUN:
        checked = check(id, records)
        assert checked.verdict == "needs_measurement"
        assert f"none of the 1 records counts: 1 are {output}" in checked.reason
        assert checked.working is None


def test_a_run_of_which_nothing_counts_is_reported_with_the_way_out(tmp_path: Path) -> None:
    found = repro("claims", "--measured", "results/cpu-2-cores", "--format", "json")
    assert found.stderr == (
        "repro: results/cpu-2-cores: it settles no claim, as none of the 57 records counts: 57 are of tiny recipes, 57 "
        "are of the CPU; python -m repro --gpus all measures what does\n"
    )
    needing = [row for row in json.loads(found.stdout) if row["verdict"] == "needs_measurement"]
    needing = [row for row in needing if row["id"] not in SURVEYED]
    assert {row["id"] for row in needing} == NEED_A_RUN
    assert all("none of the 57 records counts" in row["reason"] for row in needing)
    assert all(row["recomputed"] is None for row in needing)
    counts = results_folder(tmp_path / "run", record("vit", "naive", 1.0, scale="tiny"), *search("H100", counts=(2,)))
    assert "settles no claim" not in repro("claims", "--measured", str(counts)).stderr


def test_a_results_folder_is_checked_from_the_command_line(tmp_path: Path) -> None:
    folder = results_folder(tmp_path / "run", *search("H100", counts=(1,), models=("pythia-1b",), factor=128.0))
    (claim,) = answer("claims", "one-gpu-memory-saving", "--measured", str(folder))
    assert (claim["verdict"], claim["recomputed"]) == ("differs", pytest.approx(50))
    assert claim["steps"][0] == "Pythia-1B on 1 H100, free_lunch+zero_1+offloading: 1 - 1280 / 2560 = 50 %"
    assert "trials.jsonl" in {row["file"] for row in claim["rows"]}


def test_a_damaged_folder_is_reported_and_its_sound_records_are_used(tmp_path: Path) -> None:
    folder = results_folder(tmp_path / "run", *search("H100", counts=(2, 4, 8), factor=100.0))
    lines = (folder / "trials.jsonl").read_text().splitlines(keepends=True)
    changed = json.loads(lines[1])
    changed["count"] = 3
    lines[1] = json.dumps(changed) + "\n"
    (folder / "trials.jsonl").write_text("".join([*lines, "no record\n", lines[2][:50]]))
    found = repro("claims", "best-over-median", "--measured", str(folder))
    assert found.returncode == 0
    assert "trials.jsonl, line 2: " in found.stderr
    assert "the record was left out" in found.stderr
    assert f"trials.jsonl, line {len(lines) + 1}: not a trial's record" in found.stderr
    assert "the last line is torn" in found.stderr
    assert "14 of the 15 cells of H100 are searched: Pythia-160M on 2 H100 lacks 1 of 22 settings" in found.stdout
