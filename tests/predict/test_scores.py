"""How wrong predictions are: one list of measured and predicted numbers, held out, and what is said of it."""

from __future__ import annotations

import re
import statistics
from collections import Counter

import pytest

from repro.paper.tables import cells
from repro.predict import fits, scores
from repro.predict.forecast import search
from repro.predict.scores import CLOCK, FORWARD, STEP, TRAINING, WAYS, Scored
from tests.support.command_line import ROOT, answer, documentation, repro

FITS = fits.fitted_constants()
ERRORS = FITS[fits.EVERYTHING].errors


@pytest.fixture(scope="module")
def unseen() -> list[Scored]:
    return scores.unseen(FITS)


@pytest.fixture(scope="module")
def rows() -> list[dict[str, object]]:
    return answer("predict", "--validate")


def test_every_cell_and_trial_is_held_out_by_recipe_and_by_gpu(unseen: list[Scored]) -> None:
    numbers = Counter((each.of, each.held_out) for each in unseen)
    for way in WAYS:
        assert numbers["days of Table 1", way] == 140
        assert numbers["days of Table 4", way] == 91
        assert numbers[STEP, way] == numbers[CLOCK, way] == 13
    assert numbers[TRAINING, "all"] == 32
    assert numbers[FORWARD, "all"] == 25


def test_a_cell_is_predicted_by_the_fit_that_had_not_seen_it(unseen: list[Scored]) -> None:
    there = {
        each.held_out: each
        for each in unseen
        if (each.of, each.what, each.machine.gpu.called, each.machine.gpus) == ("days of Table 4", "ViT", "A100", 1)
    }
    [cell] = [each for each in cells("4") if (each.model, each.gpu, each.gpus) == ("ViT", "A100", 1)]
    folds: tuple[tuple[scores.HeldOut, str], ...] = (("recipe", "vit"), ("GPU", "A100"))
    for way, fold in folds:
        days, of_all = (search(cell, FITS[each], by_authors=True)[0].authors_days for each in (fold, fits.EVERYTHING))
        assert there[way].predicted == days != of_all
        assert there[way].measured == cell.days


def test_the_four_targets_are_met() -> None:
    text = repro("predict", "--validate").stdout
    assert text.startswith("A true step is predicted ")
    assert "4 of 4 targets are met." in text.splitlines()[0]


def test_targets_are_means_of_both_ways_of_holding_out(unseen: list[Scored]) -> None:
    found = {each.what: each for each in scores.targets(unseen, ERRORS)}
    for of, most in ((STEP, 0.05), ("days of Table 1", 0.12), ("days of Table 4", 0.105)):
        medians = [
            statistics.median(abs(each.predicted / each.measured - 1) for each in unseen if _is(each, of, way))
            for way in WAYS
        ]
        target = found[f"{of}: median error"]
        assert target.value == pytest.approx(statistics.fmean(medians))
        assert target.target == most
        assert target.met == (target.value <= most)


def _is(each: Scored, of: str, way: str) -> bool:
    return (each.of, each.held_out) == (of, way)


def test_rows_added_later_do_not_count_towards_the_trainings_of_others(unseen: list[Scored]) -> None:
    *_, trainings = scores.targets(unseen, ERRORS)
    assert trainings.shown.endswith(" of 23")


def test_the_shipped_errors_are_those_of_the_list(unseen: list[Scored]) -> None:
    assert scores.errors_of(unseen) == ERRORS


def test_intervals_hold_about_8_of_10_and_are_given_for_measured_kinds(unseen: list[Scored]) -> None:
    assert set(ERRORS.intervals) == {f"{name} with HBM" for name in ("Ampere", "Hopper", "Volta")} | {
        "Ampere with GDDR"
    }
    for stacked in (True, False):
        for way in WAYS:
            ours = [
                each for each in unseen if each.of != CLOCK and each.held_out == way and each.machine.stacked == stacked
            ]
            assert 0.78 <= statistics.fmean(each.inside(ERRORS) for each in ours) < 0.92


def test_intervals_are_no_wider_than_those_of_27_fitted_numbers() -> None:
    for kind, (low, high) in ERRORS.intervals.items():
        before = 1.360 / 0.839 if kind.endswith("HBM") else 1.431 / 0.770
        assert high / low <= before


def test_programs_get_a_row_for_each_measurement_with_its_source(rows: list[dict[str, object]]) -> None:
    assert list(rows[0]) == [
        "what", "model_and_settings", "machine", "held_out", "measured", "predicted", "ratio", "in_interval", "source",
    ]  # fmt: skip
    assert all(row["source"] for row in rows)
    assert {row["what"] for row in rows} >= {scores.RECORD, scores.BEFORE}
    h200 = [row for row in rows if row["what"] == scores.RECORD]
    assert {str(row["source"]).split("/")[1] for row in h200} == {"h200"}
    assert len(h200) == 11
    assert sum(row["what"] == scores.BEFORE for row in rows) == 23


def test_all_shows_at_most_seven_fitted_numbers_and_the_ten_worst() -> None:
    lines = repro("predict", "--validate", "--all").stdout.splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("fitted number"))
    fitted = [line.split()[0] for line in lines[start + 2 : lines.index("", start)]]
    assert "papers_compiled" in fitted
    assert len(fitted) <= 7
    worst = next(number for number, line in enumerate(lines) if line == "Furthest off:")
    assert lines.index("", worst + 2) - worst == 2 + 2 + 10


def test_the_documents_have_the_scores_that_are_printed(unseen: list[Scored]) -> None:
    page = documentation("docs/prediction.md")
    output = repro("predict", "--validate", "--all", "--format", "markdown").stdout
    worst = output[output.index("Furthest off:") : output.index("Fitted, of all")]
    for line in output.replace(worst, "").splitlines():
        if line.startswith("| "):
            assert re.sub(" +", " ", line) in page
    assert scores.sentence(unseen, ERRORS).split(" of 13")[0] in page


def test_the_readme_leads_with_the_error_of_the_true_step(unseen: list[Scored]) -> None:
    [step, *_] = scores.targets(unseen, ERRORS)
    assert f"{100 * step.value:.1f} % off in the median" in documentation("README.md")


def test_the_documents_say_what_was_predicted_before_it_was_measured(rows: list[dict[str, object]]) -> None:
    page = " ".join((ROOT / "results" / "predicted" / "README.md").read_text().split())
    for gpu in ("H100", "H200"):
        there = [row for row in rows if row["what"] == scores.BEFORE and str(row["machine"]) == f"1 x {gpu}"]
        error = statistics.median(abs(float(str(row["ratio"])) - 1) for row in there)
        assert f"{100 * error:.0f} % off in the median of {len(there)} trials on one {gpu}" in page
