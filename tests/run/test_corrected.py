"""`repro table 1 --by true` and `table 4 --by true`: the days that one would really wait, and what was measured."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from benchmarks import measured_days as script
from repro.console import UserError
from repro.formats import render
from repro.paper.tables import TABLES, Table, cells, published_settings
from repro.predict.forecast import best_of_search
from repro.predict.traces import PAPER_STACK, shipped
from repro.record import Record
from repro.report.blocks import Grid, Report
from repro.report.markdown import markdown
from repro.report.sections import compose
from repro.run.corrected import corrected_table, summary
from tests.support.command_line import ROOT, answer, of_more_rounds, record, repro, results_folder

FIRST_RUNS = [ROOT / "results/h100/text", ROOT / "results/h100/vision"]
KEPT = list(csv.DictReader((ROOT / "expected/measured.csv").open()))
ON_H100 = "torch 2.11.0, timm 1.0.31"


@cache
def rows(table: Table) -> list[dict[str, Any]]:
    return answer("table", table, "--by", "true")


def place(row: dict[str, Any]) -> tuple[str, str, int]:
    return row["model"], row["gpu"], int(row["gpus"])


@pytest.mark.parametrize("table", TABLES)
def test_each_cell_has_days_with_interval_and_origin_beside_the_printed_ones(table: Table) -> None:
    found, printed = rows(table), answer("table", table)
    assert [place(row) for row in found] == [place(row) for row in printed]
    assert len(found) == 144
    assert [(row["printed_days"], row["printed_state"]) for row in found] == [
        (row["days"], row["state"]) for row in printed
    ]
    assert {row["origin"] for row in found} == {"predicted"}
    assert {row["stack"] for row in found} == {"torch 2.3.1, transformers 4.42.3"}
    assert [row["source"] for row in found] == [f"paper, Table {table}"] * 144
    for row in found:
        if row["feasible"]:
            assert 0 < row["days_low"] < row["days"] < row["days_high"]
            assert row["micro_batch"] > 0
        else:
            assert (row["days"], row["days_low"], row["days_high"], row["micro_batch"]) == (None,) * 4
            assert row["reason"]


@pytest.mark.parametrize("table", TABLES)
def test_the_authors_clock_shows_no_more_than_one_waits(table: Table) -> None:
    feasible = [row for row in rows(table) if row["feasible"]]
    assert feasible
    assert all(0 < row["authors_days"] <= 1.001 * row["days"] for row in feasible)


def test_table_1_is_of_appendix_j_and_table_4_of_naive_settings() -> None:
    readings = {row.place: {settings.id for settings in row.readings()} for row in published_settings()}
    found = {place(row): row for row in rows("1") if row["feasible"]}
    assert len(readings.keys() & found.keys()) > 130
    assert all(found[cell]["settings"] in readings[cell] for cell in readings.keys() & found.keys())
    assert {row["settings"] for row in rows("4") if row["feasible"]} == {"naive"}


@cache
def by_place(*options: str) -> dict[tuple[str, str, int], dict[str, Any]]:
    return {place(row): row for row in answer("table", "1", "--by", *options)}


def test_the_papers_choice_has_its_micro_batch_or_the_largest_that_fits() -> None:
    printed = {row.place: row.mbs for row in published_settings()}
    found = by_place("true")
    assert all(row["printed_micro_batch"] == printed.get(cell) for cell, row in found.items())
    smaller = {cell: row for cell, row in found.items() if row["feasible"] and row["micro_batch"] != printed.get(cell)}
    assert smaller.keys() == {("RoBERTa", "RTX 3090", 8), ("Mamba", "RTX 3090", 1), ("ConvNeXt", "A6000", 8)}
    assert all(row["micro_batch"] < row["printed_micro_batch"] for row in smaller.values())
    lines = " ".join(summary(corrected_table("1")))
    assert "is predicted not to fit in 3 cells" in lines
    assert "Mamba on 1 RTX 3090 at MBS 2, as 4 does not fit" in lines
    text = repro("table", "1", "--by", "true").stdout
    assert len(re.findall(r"[0-9]\*", text)) == 3
    assert "* is at the largest micro batch that fits, as Appendix J's does not in 3 cells." in text


def test_the_fastest_of_the_search_stands_beside_where_it_is_faster_by_1_percent() -> None:
    found, papers = by_place("true"), {one.place: one for one in cells("1")}
    beside = [row for row in found.values() if row["fastest_days"] is not None]
    assert 50 < len(beside) < 100
    assert all(row["days"] > 1.01 * row["fastest_days"] for row in beside)
    for cell, row in found.items():
        best = best_of_search(papers[cell], PAPER_STACK)
        assert (best.days is None) == (row["days"] is None), cell
        if best.days and row["fastest_days"] is None:
            assert best.days.value == pytest.approx(row["days"], rel=0.0101), cell
        elif best.days:
            assert (row["fastest_days"], row["fastest_settings"]) == (best.days.value, best.settings.id)
    assert {row["fastest_days"] for row in rows("4")} == {None}, "naive settings are of no search"


def test_by_the_authors_clock_each_cell_has_the_days_that_their_release_would_show() -> None:
    true, authors = by_place("true"), by_place("authors")
    for cell, row in authors.items():
        assert (row["by"], row["settings"], row["true_days"]) == ("authors", true[cell]["settings"], true[cell]["days"])
        assert row["authors_days"] == true[cell]["authors_days"] == pytest.approx(row["days"])
        if row["feasible"]:
            assert row["days_low"] < row["days"] < row["days_high"]
    text = repro("table", "1", "--by", "authors").stdout
    assert text.startswith("Table 1 by the authors' clock: the authors' clock shows 1.")


def test_the_stack_changes_predictions_and_is_named_beside_them() -> None:
    paper, today = by_place("true"), by_place("true", "--stack", "today")
    (of_paper,), (of_today,) = (
        {row["stack"] for row in found.values() if row["origin"] != "measured"} for found in (paper, today)
    )
    assert (of_paper, of_today) == ("torch 2.3.1, transformers 4.42.3", str(shipped()[-1]))
    convnext = "ConvNeXt", "H100", 1
    assert (round(paper[convnext]["days"]), round(today[convnext]["days"])) == (46, 77)
    same = ("printed_days", "measured_days", "measured_stack")
    assert [paper[convnext][name] for name in same] == [today[convnext][name] for name in same]
    assert f"; predicted is for {of_today} with" in repro("table", "1", "--by", "true", "--stack", "today").stdout


def test_infeasible_and_lost_cells_are_there_too() -> None:
    lost = next(row for row in rows("4") if row["printed_state"] == "lost")
    assert place(lost) == ("ConvNeXt", "H100", 1)
    assert lost["feasible"]
    infeasible = next(row for row in rows("1") if row["printed_state"] == "infeasible")
    assert (infeasible["feasible"], infeasible["settings"]) == (False, None)
    line = next(line for line in repro("table", "1", "--by", "true").stdout.splitlines() if "1 x RTX 3090" in line)
    assert line.split()[8] == "-"


@pytest.mark.parametrize("table", TABLES)
def test_what_other_stacks_took_stands_in_columns_of_its_own(table: Table) -> None:
    for row in rows(table):
        naive = table == "4"
        there = [
            kept
            for kept in KEPT
            if place(kept) == place(row) and (kept["settings"] == "naive" if naive else kept["settings"] != "naive")
        ]
        if row["measured_stack"] is None:
            assert (row["measured_days"], row["measured_source"]) == (None, None)
            continue
        (kept,) = [kept for kept in there if kept["source"] == row["measured_source"]]
        assert row["measured_stack"] == kept["stack"]
        assert row["measured_days"] == (None if kept["true_days"] == "-" else float(kept["true_days"]))
        assert (row["origin"], row["stack"]) == ("predicted", "torch 2.3.1, transformers 4.42.3")
    measured = {place(row) for row in rows(table) if row["measured_stack"]}
    assert {("ViT", "H100", 1), ("ConvNeXt", "H100", 1), ("Mamba", "H100", 1), ("RoBERTa", "H100", 1)} <= measured


def test_people_see_a_sentence_a_row_for_each_machine_and_where_the_days_are_from() -> None:
    title, table, notes = repro("table", "1", "--by", "true").stdout.strip().split("\n\n")
    assert title.startswith("Table 1 by true days: one waits 1.")
    assert "times the printed days in the median" in title
    assert len(table.splitlines()) == 19
    assert "torch 2.3.1, transformers 4.42.3 with Appendix J's settings" in notes


@pytest.mark.parametrize("table", TABLES)
def test_cells_whose_feasibility_differs_are_counted(table: Table) -> None:
    found = rows(table)
    output = " ".join(summary(corrected_table(table)))
    for state, feasible, words in (
        ("days", False, "printed with days and predicted infeasible"),
        ("infeasible", True, "printed as infeasible and predicted to train"),
    ):
        number = sum((row["printed_state"], row["feasible"]) == (state, feasible) for row in found)
        assert (f"{number} cell" in output and words in output) if number else words not in output


def test_markdown_and_latex_are_laid_out_alike() -> None:
    text = repro("table", "4", "--by", "true", "--format", "markdown").stdout
    assert "| Pythia-160M " in text
    assert text.startswith("Table 4 by true days: ")
    latex = repro("table", "4", "--by", "true", "--format", "latex").stdout
    assert latex.startswith(r"\begin{tabular}")
    assert latex.count(r"\end{tabular}") == 1
    assert "Pythia-160M" in latex


def test_the_measured_days_follow_from_the_kept_runs() -> None:
    again = "python -m benchmarks.measured_days --format csv > expected/measured.csv makes it"
    assert (ROOT / "expected/measured.csv").read_text() == render(script.rows(script.folders()), "csv") + "\n", again


def test_the_first_runs_have_thirteen_trials_with_days_and_two_out_of_memory() -> None:
    assert set(FIRST_RUNS) <= set(script.folders())
    found = list(csv.DictReader(io.StringIO(render(script.rows(FIRST_RUNS), "csv"))))
    assert len([row for row in found if row["true_days"] != "-"]) == 13
    assert [(row["model"], row["settings"]) for row in found if row["true_days"] == "-"] == [
        ("Pythia-2.8B", "naive"),
        ("Mamba", "naive"),
    ]
    for line in (FIRST_RUNS[1] / "trials.jsonl").read_text().splitlines():
        trial = json.loads(line)
        there = [row for row in found if row["source"] == f"results/h100/vision, {trial['id']}"]
        assert [float(row["true_days"]) for row in there] == (
            [round(trial["true_days"], 3)] if trial["true_days"] else []
        )


@pytest.fixture
def kept(tmp_path: Path) -> Callable[..., Path]:
    def folder(name: str, *records: Record) -> Path:
        environment = json.loads((FIRST_RUNS[1] / "environment.json").read_text())
        return results_folder(tmp_path / name, *records, **environment)

    return folder


def test_of_the_same_trial_on_the_same_stack_the_newer_counts(kept: Callable[..., Path]) -> None:
    trial: dict[str, Any] = {"gpu": "H100", "count": 1}
    old = kept("old", record("vit", "naive", 100.0, true_days=150.0, stack_started=1.0, **trial))
    new = kept("new", record("vit", "naive", 100.0, true_days=160.0, stack_started=2.0, **trial))
    for folders in ([old, new], [new, old]):
        (row,) = script.rows(folders)
        assert (row["true_days"], row["source"].split(", ")[0].split("/")[-1]) == ("160.000", "new")
    text = (new / "environment.json").read_text()
    (new / "environment.json").write_text(text.replace('"torch": "2.11.0"', '"torch": "2.12.0"'))
    assert [row["stack"] for row in script.rows([old, new])] == [ON_H100, ON_H100.replace("2.11.0", "2.12.0")]


def test_what_stands_for_no_cell_is_left_out(kept: Callable[..., Path]) -> None:
    hot = [{"throttle_reasons": 0x20, "processes": 1}]
    folder = kept(
        "run",
        record("vit", "naive", 100.0, gpu="H100", count=1, gpu_state=hot),
        record("vit", "naive", 100.0, gpu="H100", count=3),
        record("vit", "naive", 700.0, gpu="T4", count=1),
        record("vit", "naive", 0.5, gpu="H100", count=1, scale="tiny"),
        record("vit", "naive", 100.0, gpu="H100", count=2, nodes=2),
        record("vit", "free_lunch", None, gpu="H100", count=1, status="crashed"),
        record("roberta", "naive", 100.0, gpu="A100", count=8),
        of_more_rounds(record("roberta", "naive", 99.0, gpu="A100", count=8)),
    )
    assert [(row["model"], row["true_days"]) for row in script.rows([folder])] == [("RoBERTa", "99.000")]


def test_a_run_that_does_not_name_its_stack_is_refused(tmp_path: Path) -> None:
    folder = results_folder(tmp_path / "run", record("vit", "naive", 100.0, gpu="H100", count=1))
    with pytest.raises(UserError, match=r"environment\.json names no torch"):
        script.rows([folder])


@pytest.fixture(scope="module")
def published() -> Report:
    return compose()


def test_the_report_has_the_corrected_tables_in_a_part_of_their_own(published: Report) -> None:
    grids = [block for block in published.blocks if isinstance(block, Grid)][2:]
    assert [grid.title for grid in grids] == [
        f"Table {table}, corrected: predicted days that one would really wait (not the paper's numbers)"
        for table in TABLES
    ]
    for table, grid in zip(TABLES, grids, strict=True):
        cells = {row.place: row for row in corrected_table(table)}
        by_model = dict(grid.lines(grid.gpus))
        assert sum(map(len, by_model.values())) == 144
        one = cells["Pythia-1B", "H100", 8]
        if one.feasible:
            entry = by_model["Pythia-1B"][-1]
            assert (entry.text, entry.message) == (f"{one.shown} ({one.printed})", one.message)
            assert entry.below.split("\u2013") == one.interval.split("-")


def test_the_markdown_report_keeps_the_corrected_tables_apart(published: Report) -> None:
    text = markdown(published)
    part = text.split("\n## Days that one would really wait\n")[1].split("\n## ")[0]
    assert "### Table 1, corrected" in part
    assert "### Table 4, corrected" in part
    assert "predicted for the paper's stack, torch 2.3.1" in part
    assert ON_H100 in part
