"""`repro audit`: which published numbers cannot be true."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from repro import models
from repro.formats import Interval
from repro.paper.gpus import find
from repro.paper.measured_days import measured_days
from repro.predict.audit import (
    IMPLAUSIBLE,
    audit,
    audit_measured,
    queue_summary,
    summary,
    verdict,
    without_queue,
)
from repro.report.causes import causes
from repro.steps import derive
from tests.support.command_line import ROOT, altered, answer, record, repro, results_folder

PYTHIA_1B_FLOPS = 1.282e13 * 1024 * 143_000


@cache
def rows(*arguments: str) -> list[dict[str, Any]]:
    return answer("audit", *arguments)


def test_every_cell_that_has_days_is_audited() -> None:
    found = rows()
    assert len(found) == 231
    assert Counter(row["table"] for row in found) == {"1": 140, "4": 91}
    for key in ("table", "model", "gpu", "gpus", "days", "utilisation", "verdict"):
        assert all(row[key] is not None for row in found)


def test_the_flops_that_a_cell_implies_are_the_whole_trainings_over_its_gpu_seconds() -> None:
    cell = next(row for row in audit() if (row.table, row.model, row.gpu, row.gpus) == ("1", "Pythia-1B", "A100", 4))
    assert cell.tflops == pytest.approx(PYTHIA_1B_FLOPS / (18 * 86_400 * 4) / 1e12, rel=2e-3)
    assert cell.utilisation.value == pytest.approx(cell.tflops / 312)
    assert cell.utilisation.low == pytest.approx(cell.utilisation.value * 18 / 18.5)
    assert cell.utilisation.high == pytest.approx(cell.utilisation.value * 18 / 17.5)
    assert cell.clock_mhz == pytest.approx(cell.utilisation.value * 1410)


def test_the_known_impossible_cells_are_found() -> None:
    """By a calculation by hand, with figures rounded a little otherwise."""
    shares = {(r.table, r.model, r.gpu, r.gpus): round(100 * r.utilisation.value) for r in audit()}
    assert [shares["1", "Pythia-160M", "RTX 3090", n] for n in (1, 2, 4, 8)] == [115, 132, 197, 197]
    assert [shares["1", "Pythia-1B", "RTX 3090", n] for n in (2, 8)] == [140, 127]
    assert {shares["1", "Pythia-1B", "A100", n] for n in (1, 2, 4, 8)} == {97}
    vision = [shares["4", model, "A100", n] for model in ("ConvNeXt", "ViT") for n in (1, 2, 4, 8)]
    assert (min(vision), max(vision)) == (109, 118)
    words = Counter((row.table, row.verdict) for row in audit())
    assert words["1", "impossible"] + words["1", "implausible"] == 30
    assert words["1", "impossible"] == 6
    assert words["4", "impossible"] == 8


def test_vision_is_tf32_in_table_1_and_fp32_in_table_4() -> None:
    found = {(r.table, r.model, r.gpu, r.gpus): r for r in audit()}
    assert (found["1", "ViT", "A100", 1].precision, found["1", "ViT", "A100", 1].peak_tflops) == ("TF32", 156)
    assert (found["4", "ViT", "A100", 1].precision, found["4", "ViT", "A100", 1].peak_tflops) == ("fp32", 19.5)
    half = {(row.model, row.precision) for row in found.values() if row.model in ("Pythia-160M", "Pythia-1B")}
    assert half == {("Pythia-160M", "fp16"), ("Pythia-1B", "bf16")}, "TF32 stands in for fp32 alone"


@pytest.mark.parametrize(
    ("share", "word"),
    [
        (Interval(1.05, 1.001, 1.1), "impossible"),
        (Interval(1.05, 0.999, 1.1), "implausible"),  # the rounding may have made it so
        (Interval(0.76, 0.74, 0.78), "implausible"),
        (Interval(0.75, 0.74, 0.78), "plausible"),
    ],
)
def test_a_cell_is_impossible_only_if_no_rounding_saves_it(share: Interval, word: str) -> None:
    assert verdict(share) == word


def test_measured_days_go_through_the_same_audit_by_both_clocks(tmp_path: Path) -> None:
    folder = results_folder(
        tmp_path / "run",
        record("pythia-1b", "free_lunch", 12.0, true_days=24.0, tf32=True),
        record("vit", "naive", 300.0, gpu="A100", count=1),
        record("vit", "free_lunch", 300.0, gpu="A100", count=2, tf32=True),
        record("roberta", "naive", 3.0, gpu="unknown GPU (Titan)", count=1),
        record("pythia-1b", "naive", 3.0, gpu="T4", count=1),  # in bf16, of which Turing has no peak
        record("roberta", "naive", None, status="out_of_memory"),
        record("mamba", "naive", 3.0, scale="tiny"),
    )
    found = [row for row in rows("--measured", str(folder)) if row["table"] == "measured"]
    pythia = {row["clock"]: row for row in found if row["model"] == "Pythia-1B"}
    assert pythia["authors"]["verdict"] == "impossible"
    assert pythia["true"]["verdict"] == "plausible"
    assert pythia["authors"]["utilisation"] == pytest.approx(2 * pythia["true"]["utilisation"])
    assert {(row["gpus"], row["precision"]) for row in found if row["model"] == "ViT"} == {(1, "fp32"), (2, "TF32")}
    assert {(row["model"], row["gpu"]) for row in found} == {("Pythia-1B", "A100"), ("ViT", "A100")}


def test_a_gpu_whose_boost_clock_nobody_prints_needs_no_clock() -> None:
    clocks = [row.clock_mhz for row in audit_measured([record("vit", "naive", 300.0, gpu="RTX 5090", count=1)])]
    assert clocks == [None, None]


def test_plausible_are_all_cells_with_days_that_no_verdict_questions() -> None:
    plausible = [row for row in audit() if row.verdict == "plausible"]
    assert len(plausible) == 140 - 30 + 91 - 15
    assert not [row for row in plausible if (row.table, *row.place[:2]) == ("4", "ViT", "A100")]


def test_gpus_of_several_nodes_all_count() -> None:
    one = record("pythia-1b", "free_lunch", 12.0)
    [authors, _], [same, _] = audit_measured([one]), audit_measured([replace(one, count=2, nodes=2)])
    assert same == authors
    assert same.gpus == 4


def test_a_measured_share_is_of_the_peak_of_what_ran_and_not_of_the_tf32_asked_for() -> None:
    asked = record("vit", "free_lunch", 300.0, tf32=True, ran_tf32=True)
    shares = [audit_measured([altered(asked, ran_tf32=ran)])[0] for ran in (True, False)]
    assert [(row.precision, row.peak_tflops) for row in shares] == [("TF32", 156), ("fp32", 19.5)]
    of_tf32, of_fp32 = (derive(altered(asked, ran_tf32=ran), find("A100")).utilisation for ran in (True, False))
    assert of_tf32 is not None
    assert of_fp32 == pytest.approx(of_tf32 * 156 / 19.5)


def test_measured_days_are_summed_up_under_that_name() -> None:
    sentence = summary(audit_measured([record("pythia-1b", "free_lunch", 12.0, true_days=24.0)]))
    assert sentence.startswith("1 of 2 measured numbers of days are impossible, as they ")


def test_the_evidence_is_computed_from_the_cells() -> None:
    output = " ".join(f"{cause.evidence_for} {cause.evidence_against}" for cause in causes(audit(), []))
    # Patches of 16 x 16 x 3 become 1024 numbers, 196 of them an image, in the forward pass and for the weights.
    patches = 2 * 2 * 196 * 768 * 1024 / models.find("vit").flops_per_example
    assert f"has {patches:.1%} of its FLOPs" in output


def test_the_evidence_counts_the_cells_that_it_names() -> None:
    """With three more impossible cells: one in half precision on H100, one on A100, and one in fp32 on H100."""
    more = {("4", "Pythia-160M", "H100", 8), ("4", "Pythia-160M", "A100", 8), ("4", "ViT", "H100", 8)}
    found = [
        replace(row, verdict="impossible") if (row.table, row.model, row.gpu, row.gpus) in more else row
        for row in audit()
    ]
    clock, boost, tf32 = (f"{each.evidence_for} {each.evidence_against}" for each in causes(found, []))
    scaled, unscaled = (
        [row.verdict != "plausible" for row in found if row.table == "1" and (row.precision == "fp16") == fp16]
        for fp16 in (True, False)
    )
    assert len(scaled) + len(unscaled) == 140
    assert f"in bf16 and TF32, {sum(unscaled)} of {len(unscaled)} cells of Table 1" in clock
    assert f"in fp16 {sum(scaled)} of {len(scaled)}" in clock
    assert "its cells of Table 1 have a median of 76% of peak, those of Pythia-6.9B 45%" in clock
    assert "6 of the 17 impossible cells are on the RTX 3090" in boost
    assert "the 11 impossible cells on A100 and H100 are no consumer board's" in boost
    vit = [row.utilisation.value for row in found if (row.table, row.model, row.gpu) == ("4", "ViT", "A100")]
    assert "8 of the 11 impossible cells of Table 4 are fp32 on A100" in tf32
    assert f"it stands at {min(vit):.0%} to {max(vit):.0%} all the same" in tf32


def test_where_consumer_boards_alone_are_impossible_no_other_is_held_against_it() -> None:
    boards = [row for row in audit() if row.gpu == "RTX 3090"]
    [against] = [cause.evidence_against for cause in causes(boards, []) if cause.cause.startswith("consumer boards")]
    assert against == "Pythia-160M on 4 would need 3344 MHz with every unit busy all the time"


def test_a_candidate_that_no_cell_speaks_of_is_left_out(expected: Path) -> None:
    table = expected / "table1.csv"
    table.write_text(re.sub(r"(RTX 3090,\d),\d+,", r"\1,9999,", table.read_text()))
    done = repro("audit", "--all")
    assert done.returncode == 0, done.stderr
    assert "did not run in fp32 alone" in done.stdout
    assert "consumer boards" not in done.stdout
    assert causes([], []) == []


def test_measured_clocks_are_evidence() -> None:
    records = [record("vit", "naive", 10.0, true_days=20.0), record("vit", "free_lunch", 9.0, true_days=10.0)]
    assert "50% to 90% of the true days in 2 trials" in causes(audit(), records)[0].evidence_for
    assert "true days in 1 trial" in causes(audit(), records[:1])[0].evidence_for
    assert "1 trials" not in causes(audit(), records[:1])[0].evidence_for
    silent = [record("vit", "naive", None, status="out_of_memory"), record("vit", "naive", 1.0, scale="tiny")]
    assert causes(audit(), [*records, *silent]) == causes(audit(), records)
    assert len(audit_measured(records)) == 4


def test_a_run_without_paper_scale_days_says_so() -> None:
    done = repro("audit", "--measured", str(ROOT / "results" / "cpu-2-cores"))
    assert done.returncode == 0
    assert "None of the 57 trials" in done.stdout
    assert "whose peak is known: python -m repro --gpus all." in done.stdout


def test_trials_that_cannot_be_audited_are_counted_beside_those_that_are(tmp_path: Path) -> None:
    known, unknown = record("pythia-1b", "free_lunch", 60.0), record("pythia-1b", "free_lunch", 60.0, gpu="Tesla T99")
    output = repro("audit", "--measured", str(results_folder(tmp_path / "run", known, unknown))).stdout
    assert output.count("\nmeasured ") == 2
    assert f"1 of the 2 trials in {tmp_path / 'run'} can be audited, which takes days at" in output
    assert "of the 1 trial" not in repro("audit", "--measured", str(results_folder(tmp_path / "one", known))).stdout


def test_pythia_160m_suffers_most_of_the_fp16_models_alone() -> None:
    shares: dict[tuple[str, str], list[float]] = {}
    for row in audit():
        if row.table == "1":
            shares.setdefault((row.precision, row.model), []).append(row.utilisation.value)
    middle = {name: median(found) for name, found in shares.items()}
    assert max(middle, key=lambda name: (name[0] == "fp16", middle[name])) == ("fp16", "Pythia-160M")
    assert max(middle, key=lambda name: middle[name]) == ("bf16", "Pythia-1B")
    assert "of the fp16 models the shallow Pythia-160M suffers most" in causes(audit(), ())[0].evidence_for


def test_each_cell_has_what_it_implies_without_the_launch_queue() -> None:
    found = rows()
    assert len(found) == 231
    for row in found:
        assert row["corrected_verdict"] in ("impossible", "implausible", "plausible")
        assert 0 < row["corrected_utilisation"] <= 1.001 * row["utilisation"], "one waits no less than is printed"
    impossible = [row for row in found if row["verdict"] == "impossible"]
    assert len(impossible) == 14
    assert sum(row["corrected_verdict"] != "impossible" for row in impossible) >= 12
    assert all(row["corrected_utilisation"] < 1 for row in impossible if row["table"] == "4")


def test_people_see_how_many_impossible_cells_the_launch_queue_explains() -> None:
    output = repro("audit", "--all").stdout
    before = [row for row in rows() if row["verdict"] == "impossible"]
    possible = sum(row["corrected_verdict"] != "impossible" for row in before)
    shares = [row["corrected_utilisation"] for row in before]
    assert f"With the launch queue taken out, {possible} of the 14 impossible cells become possible" in output
    assert f"({min(shares):.0%} to {max(shares):.0%})" in output
    assert f"{possible} of the 14 are possible" in repro("audit").stdout


def test_the_stack_decides_whose_launch_queue_is_taken_out() -> None:
    paper, today = rows(), rows("--stack", "today")
    assert [row["utilisation"] for row in paper] == [row["utilisation"] for row in today], "the printed days'"
    changed = [
        one["corrected_utilisation"] < other["corrected_utilisation"] for one, other in zip(paper, today, strict=True)
    ]
    assert 0 < sum(changed) < len(changed)
    assert "as predicted for today's stack" in repro("audit", "--stack", "today").stdout
    assert "as predicted for the paper's stack" in repro("audit").stdout


def test_a_cell_that_stays_impossible_without_the_queue_is_named() -> None:
    found = without_queue(audit())
    one = next(row for row in found if row.verdict == "impossible")
    stays = [
        replace(row, corrected_verdict="impossible", corrected_utilisation=1.06) if row is one else row for row in found
    ]
    line = next(line for line in queue_summary(stays) if " impossible cells " in line)
    assert "as impossible as before" in line
    assert f"{one.model} on {one.machine} (106%)" in line
    against = causes(stays, [])[0].evidence_against
    assert f"{one.model} on {one.machine}" in against
    assert "would still be above the peak" in against


def test_a_verdict_without_the_queue_minds_the_rounding_of_the_days() -> None:
    for row in without_queue(audit()):
        assert row.corrected_utilisation is not None
        if row.corrected_verdict == "impossible":
            assert row.corrected_utilisation > 1
        if row.corrected_utilisation > IMPLAUSIBLE:
            assert row.corrected_verdict != "plausible"


def test_one_of_the_three_causes_is_settled_by_the_kept_runs() -> None:
    found = causes(without_queue(audit()), [])
    assert [cause.decided for cause in found] == [True, False, False]
    clock = found[0]
    assert {"results/h100/text", "results/h100/vision"} <= set(clock.records)
    ratios = [trial.shown_by_authors_clock for trial in measured_days().values() if trial.shown_by_authors_clock]
    assert len(ratios) >= 13
    shown = (
        f"in {len(ratios)} trials on H100 the authors' clock shows {min(ratios):.0%} to {max(ratios):.0%} of the true"
    )
    assert shown in clock.settled_by
    assert "impossible cells become possible" in clock.settled_by
    output = repro("audit", "--all").stdout
    assert "Settled by: results/h100/text" in output
    assert output.count("Would settle it: ") == 2


def test_the_rows_that_the_queue_explains_name_the_settled_cause() -> None:
    order = ["impossible", "implausible", "plausible"]
    for row in rows():
        explained = order.index(row["corrected_verdict"]) > order.index(row["verdict"])
        assert (row["settled_cause"] == "the authors' clock does not synchronise with the GPU") == explained
        assert bool(row["settled_by"] and "results/h100/text" in row["settled_by"]) == explained


def test_without_measured_trials_no_cause_is_settled(expected: Path) -> None:
    file = expected / "measured.csv"
    file.write_text(file.read_text().splitlines()[0] + "\n")
    output = repro("audit", "--all").stdout
    assert "Settled by: " not in output
    assert "a run on any of the paper's GPUs" in output
    assert {row["settled_cause"] for row in answer("audit")} == {None}


def test_measured_days_have_no_queue_to_take_out(tmp_path: Path) -> None:
    folder = results_folder(tmp_path / "run", record("pythia-1b", "free_lunch", 12.0, true_days=24.0, tf32=True))
    found = [row for row in rows("--measured", str(folder)) if row["table"] == "measured"]
    assert len(found) == 2
    assert {(row["corrected_utilisation"], row["corrected_verdict"]) for row in found} == {(None, None)}
