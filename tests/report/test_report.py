"""The report: what a run found, in a page and in Markdown; where there is no run, the published numbers."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from html import unescape
from itertools import combinations, product
from pathlib import Path
from statistics import fmean
from typing import Any, get_args
from unittest.mock import ANY

import pytest

from repro import command
from repro.cli import parser
from repro.commands.run import parsed
from repro.console import UserError
from repro.machine import nvml
from repro.machine.devices import Device
from repro.machine.environment import Environment, RunGpu
from repro.money.days import DaysAsked, ModelDays
from repro.paper.arithmetic import paper_gpu
from repro.paper.gpus import find
from repro.paper.settings import NAIVE, search_space
from repro.paper.tables import cells
from repro.record import Status
from repro.report.again import run_words
from repro.report.blocks import (
    Bullets,
    Entry,
    Facts,
    Figure,
    Fold,
    Grid,
    Heading,
    Kind,
    Panel,
    Report,
    Row,
    Sentence,
    Table,
)
from repro.report.charts import Scale, beside, chart, looks
from repro.report.markdown import markdown
from repro.report.page import page
from repro.report.sections import compose
from repro.report.trials import legend, nearest_paper_gpu, notes, trial_rows
from repro.report.write import write
from repro.run.plan import Options
from repro.run.reading import read
from repro.steps import derive
from tests.support.command_line import ROOT, altered, of_more_rounds, process, record, refusal, repro, results_folder

KEPT = ROOT / "results" / "cpu-2-cores"


@pytest.fixture(scope="module")
def kept() -> Report:
    """The report of a whole run without a GPU."""
    return compose(read(KEPT))


@pytest.fixture(scope="module")
def on_gpus(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """The report of trials on A100, with a cell of every verdict."""
    folder = results_folder(
        tmp_path_factory.mktemp("gpus") / "run",
        record("pythia-1b", "naive", 30.0, true_days=41.5),
        record("pythia-1b", "free_lunch+zero_1", 14.0, true_days=18.2),
        record("pythia-1b", "free_lunch+zero_1", 10.0, count=8, true_days=12.0),
        record("pythia-160m", "free_lunch", 30.0, count=1),
        record("pythia-160m", "naive", 40.0, count=1),
        record("pythia-2.8b", "naive", 99.0, count=8),
        record("vit", "naive", None, count=1, status="out_of_memory", reason="<b>none</b> fits", remedy="offload"),
    )
    return compose(read(folder))


@pytest.fixture(scope="module")
def published() -> Report:
    return compose()


def figures(report: Report) -> list[Figure]:
    return [block for block in report.blocks if isinstance(block, Figure)]


def figure(report: Report, number: str) -> Figure:
    return next(figure for figure in figures(report) if figure.number == number)


def grids(report: Report) -> list[Grid]:
    return [block for block in report.blocks if isinstance(block, Grid)]


def lines(grid: Grid) -> dict[str, list[Entry]]:
    return dict(grid.lines(grid.gpus))


def places(report: Report) -> dict[str, Fold]:
    """The recipes on machines, each with its trials."""
    folds = [block for block in report.blocks if isinstance(block, Fold)]
    return {fold.title: fold for fold in folds if any(isinstance(block, Table) for block in fold.blocks)}


def trials(place: Fold) -> list[dict[str, Any]]:
    return [row for block in place.blocks if isinstance(block, Table) for row in block.rows]


def says(place: Fold) -> str:
    return " ".join(block.text for block in place.blocks if isinstance(block, Sentence))


def sections(report: Report) -> list[str]:
    return [block.id for block in report.blocks if isinstance(block, Heading) and block.id]


def facts(report: Report) -> dict[str, str]:
    """The environment, and the commands that give the report again."""
    return {name: value for block in report.blocks if isinstance(block, Facts) for name, value in block.pairs}


def points(panel: Panel) -> dict[tuple[str, str], float]:
    return {(str(row.y), row.series): float(row.x) for row in panel.rows}


# The command


def test_a_report_is_written_beside_the_records_and_says_where(tmp_path: Path) -> None:
    folder = results_folder(tmp_path / "run", record("pythia-1b", "free_lunch+zero_1", 18.0))
    found = repro("report", str(folder))
    assert found.returncode == 0, found.stderr
    assert found.stderr.splitlines()[-1] == f"repro: the report is {folder / 'report.html'}"
    assert (folder / "report.html").read_text().startswith("<!doctype html>")
    assert (folder / "report.md").read_text().startswith("# Report of a run on 4 x A100\n\n> Of the 288 cells")


@pytest.mark.parametrize("folders", [["cpu-2-cores"], ["h100/text", "h100/vision"], []], ids=["cpu", "h100", "none"])
def test_the_terminal_has_the_answer_then_a_table_then_three_notes(folders: list[str], tmp_path: Path) -> None:
    words = [str(ROOT / "results" / folder) for folder in folders]
    text = repro("report", *words, "--out", str(tmp_path)).stdout
    answer, table, *rest = text.rstrip("\n").split("\n\n")
    assert max(map(len, table.splitlines())) <= 100
    rows = table[table.index("\n---") :].splitlines()[2:] if "\n---" in table else []
    assert 0 < len(rows) <= 20
    assert answer.splitlines() == compose(*(read(Path(word)) for word in words)).answer
    assert len(rest[-1].splitlines()) <= 3
    assert all(line.startswith("- ") for line in rest[-1].splitlines())


def test_the_published_numbers_open_with_what_was_found(published: Report, tmp_path: Path) -> None:
    assert repro("report", "--out", str(tmp_path / "new" / "place")).stdout.startswith("135 of the papers' 236 claims ")
    assert (tmp_path / "new" / "place" / "report.html").read_text() == page(published)
    claims, impossible, waited = published.answer
    assert claims == "135 of the papers' 236 claims hold and 39 differ."
    assert impossible == "14 of 231 printed numbers of days cannot be true."
    assert waited.startswith("Table 1 by true days: one waits ")
    assert sections(published)[:2] == ["differs", "audit"]
    differing = next(block for block in published.blocks if isinstance(block, Table))
    assert len(differing.rows) == 39
    assert {row["verdict"] for row in differing.rows} == {"differs"}
    every = [block for block in published.blocks if isinstance(block, Table) and block.folded and block.stacked]
    assert sum(len(block.rows) for block in every) == 236
    assert "0 reproduced" not in page(published)


def test_results_come_first_and_a_harmless_problem_of_the_folder_last(tmp_path: Path) -> None:
    trial = record("pythia-1b", "naive", 99.0)
    harmless = compose(read(results_folder(tmp_path / "harmless", trial)))
    folder = results_folder(tmp_path / "harmful", trial, record("vit", "naive", 90.0))
    kept = (folder / "trials.jsonl").read_text()
    (folder / "trials.jsonl").write_text(kept.replace('"count": 4', '"count": 3', 1))
    harmful = compose(read(folder))
    assert sections(harmless)[:3] == ["certificate", "why", "verdicts"]
    assert sections(harmless)[-1] == "wrong"
    assert "its options are none that this version has" in str(harmless.blocks[-1])
    assert sections(harmful)[0] == "wrong"
    assert "was tampered with or damaged" in page(harmful)


def test_why_cells_differ_stands_before_the_tables(on_gpus: Report) -> None:
    assert sections(on_gpus)[:5] == ["certificate", "why", "verdicts", "trials", "figures"]
    why = next(block for block in on_gpus.blocks if isinstance(block, Bullets))
    assert len(why.lines) == 5
    assert why.lines[0].startswith("Table 1, Pythia-160M on 1 A100: printed 14 days, measured 30.0 true days")


def test_a_run_on_a_cpu_has_no_empty_tables_of_the_paper(kept: Report) -> None:
    assert grids(kept) == []
    assert kept.answer[0].startswith("57 of 57 settings ran on this CPU at tiny scale: everything works here.")
    assert kept.answer[1].startswith("Without a GPU: 135 of the papers' 236 claims hold and 39 differ (claims); 14 of ")


def test_a_run_on_gpus_is_compared_with_a_lock_for_gpus() -> None:
    for folder in ("text", "vision"):
        packages = facts(compose(read(ROOT / "results" / "h100" / folder)))["packages"]
        assert re.fullmatch(r"not a lock: \d+ packages differ from (requirements|locks/volta)\.lock", packages)


def test_a_report_takes_under_two_seconds_of_a_processor_and_no_library_for_drawing(tmp_path: Path) -> None:
    code = (
        "import os, sys; from repro.cli import main\n"
        f"main(['report', {str(KEPT)!r}, '--out', {str(tmp_path)!r}])\n"
        "print({'altair', 'vl_convert', 'jinja2', 'torch', 'numpy'} & set(sys.modules), sum(os.times()[:4]))"
    )
    took = []
    for _ in range(3):
        found = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
        loaded, seconds = found.stdout.splitlines()[-1].split(") ")
        assert loaded == "set("
        took.append(float(seconds))
    assert min(took) < 2


def test_a_page_that_cannot_be_written_is_one_line(kept: Report, tmp_path: Path) -> None:
    (tmp_path / "report.html").mkdir()
    with pytest.raises(UserError, match="cannot write to "):
        write(kept, tmp_path)


def test_what_a_run_printed_comes_again_from_its_folder(tmp_path: Path) -> None:
    given = ("report", str(KEPT), "--out", str(tmp_path), "--format")
    as_json = json.loads(repro(*given, "json").stdout)
    assert (len(as_json["trials"]), len(as_json["verdicts"])) == (57, 288)
    assert repro(*given, "markdown").stdout == (tmp_path / "report.md").read_text()


def test_without_a_trial_csv_has_a_row_for_each_cell(tmp_path: Path) -> None:
    found = repro("report", "--out", str(tmp_path), "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(found.stdout)))
    assert len(rows) == 288
    assert {row["verdict"] for row in rows} == {"not_measured"}


def test_days_of_tiny_twins_stand_for_nothing_and_no_format_tells_them(tmp_path: Path) -> None:
    full, tiny = record("vit", "naive", 80.0), record("vit", "naive", 0.1, scale="tiny")
    output = ("report", str(results_folder(tmp_path, full, tiny)), "--format")
    clocks = ("authors", "true", "synchronised")
    for rows, nothing in (
        (list(csv.DictReader(io.StringIO(repro(*output, "csv").stdout))), ""),
        (json.loads(repro(*output, "json").stdout)["trials"], None),
    ):
        days = {row["scale"]: [row[f"{clock}_days"] for clock in clocks] for row in rows}
        assert [float(value) for value in days["paper"]] == pytest.approx([80.0] * 3)
        assert days["tiny"] == [nothing] * 3
        assert all(float(row[f"{clock}_step"]) > 0 for row in rows for clock in clocks)
    of_tiny, of_full = trial_rows([tiny, full], None)
    assert (of_tiny["true days"], of_tiny["authors' days"]) == (None, None)
    assert of_full["true days"] == pytest.approx(80.0)


def test_the_kept_report_is_what_the_front_door_writes(tmp_path: Path) -> None:
    kept = KEPT.relative_to(ROOT)
    process("report", str(kept), "--out", str(tmp_path), REPRO_COMMAND="./run_all.sh")
    same = (tmp_path / "report.md").read_text() == (KEPT / "report.md").read_text()
    assert same, f"./run_all.sh report {kept} brings it up to date"
    drawn = unescape((KEPT / "report.html").read_text())
    assert compose(read(KEPT)).answer[0] in drawn


@pytest.mark.parametrize(
    ("arguments", "output"),
    [
        (["nowhere"], "nowhere holds no trials, there is no such folder"),
        (["{empty}"], "empty/trials.jsonl is missing, where a run keeps its trials: name the results folder"),
        ([str(KEPT), "--out", "{file}/out"], "file is a file, not a folder; name another place"),
    ],
)
def test_bad_input_is_one_clear_line(arguments: list[str], output: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "empty").mkdir()
    places = {"empty": tmp_path / "empty", "file": tmp_path / "file"}
    assert output in refusal("report", *[argument.format(**places) for argument in arguments])


@pytest.mark.slow
def test_what_is_wrong_with_the_folder_is_in_the_report_and_on_stderr(tmp_path: Path) -> None:
    folder = results_folder(tmp_path, *(record("vit", "naive", 300.0 / count, count=count) for count in (1, 4)))
    kept = (folder / "trials.jsonl").read_text()
    (folder / "trials.jsonl").write_text(kept.replace('"count": 1', '"count": 3', 1))
    found = repro("report", str(folder))
    assert found.returncode == 0
    wrong = "trials.jsonl, line 1: vit/paper/1xA100/naive was tampered with or damaged: its id is "
    for text in (found.stderr, (folder / "report.md").read_text(), (folder / "report.html").read_text()):
        assert wrong in text


def test_a_run_that_only_began_is_reported_and_one_of_which_nothing_is_sound_is_not(tmp_path: Path) -> None:
    folder = shutil.copytree(KEPT, tmp_path / "run")
    trials = folder / "trials.jsonl"
    trials.write_text('{"id": ')
    (folder / "report.md").unlink()
    for _ in ("the first report", "one like it in its place"):
        assert "None of its trials was measured." in repro("report", str(folder)).stdout
    trials.write_text("no record\n")
    for _ in ("as it was", "without an environment"):
        found = repro("report", str(folder))
        assert (found.returncode, found.stdout) == (2, "")
        assert f"repro: {trials}, line 1: not a trial's record (" in found.stderr
        assert found.stderr.splitlines()[-1].startswith(f"repro: {folder} holds no trials that can be used: ")
        (folder / "environment.json").unlink(missing_ok=True)


def test_a_folder_in_place_of_the_trials_is_refused_as_by_the_run(
    tmp_path: Path,
) -> None:
    folder = shutil.copytree(KEPT, tmp_path / "run")
    trials = folder / "trials.jsonl"
    trials.unlink()
    trials.mkdir()
    (folder / "report.md").unlink()
    for words in (["report", str(folder)], ["table", "1", "--measured", str(folder)]):
        assert refusal(*words) == (
            f"repro: {trials} is no file, where a run keeps its trials: name the results folder of a run (its --out)\n"
        )
    assert f"{trials} is a folder" in refusal("run", "--processes", "1", "--out", str(folder))


@pytest.mark.parametrize(
    ("lose", "lack"),
    [
        (Path.unlink, "is missing"),
        (lambda trials: trials.write_text(""), "is empty"),
        (lambda trials: trials.write_text('\n{"id": '), "has no whole record"),
    ],
)
def test_a_report_of_trials_does_not_give_way_to_one_of_none(
    tmp_path: Path, lose: Callable[[Path], object], lack: str
) -> None:
    folder, other = shutil.copytree(KEPT, tmp_path / "run"), tmp_path / "other"
    (folder / "report.html").write_text("the page")
    lose(folder / "trials.jsonl")
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert refusal("report", str(folder)) == (
        f"repro: {folder / 'trials.jsonl'} {lack}: a report of no trial would take the place of "
        f"{folder / 'report.md'}, which says more; put the trials back, or name another folder with --out\n"
    )
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
    assert repro("report", str(folder), "--out", str(other)).returncode == 0
    assert (other / "report.md").is_file()


# What it says


def test_the_answer_counts_every_cell_of_tables_1_and_4(on_gpus: Report) -> None:
    assert on_gpus.answer == [
        "Of the 288 cells of Tables 1 and 4, 7 were compared by true days: 2 reproduced, 5 differing "
        "(1 faster, 2 slower, 2 feasibility differs); 281 were not measured.",
        "By the authors' clock, of 7 cells: 1 reproduced, 6 differing (3 faster, 1 slower, 2 feasibility differs).",
    ]


def test_a_run_that_stands_for_no_cell_says_why(tmp_path: Path) -> None:
    limited = record("pythia-1b", "naive", 100.0, count=1, memory=40 * 2**30)
    naive, best = (record("pythia-1b", settings, 30.0) for settings in ("naive", "free_lunch+zero_1"))
    for name, trials_, says_ in (
        ("neither", [limited], "Why not: a trial can be compared with a cell at the paper's scale, on one node"),
        ("one", [naive], "Why not of Table 1: a trial can be compared with a cell at the paper's scale"),
        ("both", [naive, best], ""),
    ):
        found = [note for note in compose(read(results_folder(tmp_path / name, *trials_))).notes if "Why not" in note]
        assert [note[: len(says_)] for note in found] == [says_] * bool(says_)


def test_a_cell_without_a_printed_number_is_counted_and_explained(tmp_path: Path) -> None:
    lost = record("convnext", "naive", 90.0, gpu="H100", count=1)
    report = compose(read(results_folder(tmp_path / "run", lost)))
    assert report.answer[0].endswith("287 were not measured, 1 had no printed number to compare with.")
    meanings = {kind: meaning for kind, _, meaning in grids(report)[1].legend}
    assert meanings["no_reference"] == "no reference: the paper's mark is lost, or its jobs had too little host memory"


def test_every_trial_is_there_in_at_most_8_columns(kept: Report, on_gpus: Report) -> None:
    found = {title: trials(place) for title, place in places(kept).items()}
    assert sum(map(len, found.values())) == 57
    assert list(found["Pythia-1B (tiny twin) on 2 x cpu"][0]) == ["settings", "status", "MBS", "step s", "peak GiB"]
    place = places(on_gpus)["Pythia-1B on 4 x A100"]
    assert {"true days", "authors' days", "paper, A100", "MFU"} < trials(place)[0].keys() | {"paper, A100"}
    assert "- out_of_memory, &lt;b>none&lt;/b> fits; offload (vit, 1 x A100, naive)" in markdown(on_gpus)
    for report in (kept, on_gpus, compose(*(read(ROOT / "results" / "h100" / each) for each in ("text", "vision")))):
        for each in places(report).values():
            assert all(len(row) <= 8 for row in trials(each))


def test_the_legend_explains_the_columns_that_are_there_and_no_other() -> None:
    (row,) = trial_rows([record("pythia-1b", "naive", 60.0)], "A100")
    assert [line.partition(":")[0] for line in legend([*row], "A100")] == ["MBS", "true days", "paper", "MFU"]
    of_a_gpu, of_a_cpu = legend(["peak GiB"], None)[0].split("; on a CPU ")
    assert "allocated" in of_a_gpu
    assert "with libraries and shared memory" in of_a_cpu


def test_a_cpu_s_and_several_nodes_trials_stand_for_no_cell(tmp_path: Path) -> None:
    run = [
        record("pythia-1b", "naive", 20.0, count=8),
        record("pythia-1b", "naive", 60.0, count=4, nodes=2, reason="slow", remedy="wait", true_days=90.0),
        record("pythia-1b", "naive", None, count=8, memory=2**30, status="out_of_memory", reason="full", remedy="more"),
        record("pythia-1b", "naive", 0.1, count=8, scale="tiny"),
    ]
    report = compose(read(results_folder(tmp_path / "run", *run)))
    assert report.title == "Report of a run on 8 x A100, 8 x A100 of 1GiB and 2 nodes of 4 x A100"
    assert len(places(report)) == len(run)
    assert [verdict.cell for verdict in report.verdicts if verdict.compared] == ["Table 4, Pythia-1B on 8 A100"]


def test_tiny_trials_full_ones_and_those_that_failed_share_a_table() -> None:
    run = [
        record("pythia-1b", "naive", 60.0),
        record("pythia-1b", "naive", 0.1, scale="tiny"),
        record("pythia-1b", "free_lunch", None, scale="tiny", status="crashed", reason="an error", remedy="see"),
    ]
    full, *others = trial_rows(run, None)
    assert all(row.keys() == full.keys() for row in others)
    assert (full["authors' days"], others[0]["authors' days"]) == (pytest.approx(60), None), "a twin has no days"


def test_what_was_not_tried_or_was_disturbed_is_not_called_infeasible(tmp_path: Path) -> None:
    untried = [
        record("pythia-1b", "naive", None, count=1, status="out_of_memory"),
        record("pythia-160m", "free_lunch", None, count=1, status="out_of_memory"),
    ]
    held = [
        record("vit", each.id, None, count=1, status="out_of_memory", gpu_state=[{"processes": 2}])
        for each in [NAIVE, *search_space(1)]
    ]
    report = compose(read(results_folder(tmp_path / "untried", *untried)))
    for number, wanted in (("3", {"infeasible", "not known"}), ("10", {"not known"})):
        panels = [panel for panel in figure(report, number).panels if panel.origin == "measured"]
        assert {row.series for panel in panels for row in panel.rows} == wanted
    report = compose(read(results_folder(tmp_path / "held", *held)))
    panels = [panel for panel in figure(report, "3").panels if panel.origin == "measured"]
    assert {row.series for panel in panels for row in panel.rows} == {"not known"}
    assert "10" not in {each.number for each in figures(report)}


def test_a_report_says_where_the_papers_numbers_are_from_if_not_from_repro(
    expected: Path, published: Report, tmp_path: Path
) -> None:
    said = f"The paper's numbers are those in {expected} (REPRO_EXPECTED), not those that come with repro."
    assert said in repro("report", "--out", str(tmp_path / "out")).stdout
    assert said in (tmp_path / "out" / "report.md").read_text()
    assert not any("REPRO_EXPECTED" in line for line in published.notes)


def test_the_audit_is_laid_out_like_table_1_below_its_causes(published: Report) -> None:
    table1, table4 = grids(published)[:2]
    entries = lines(table1)["Pythia-160M"]
    assert [entry.text for entry in entries[:4]] == ["115", "132", "197", "197"]
    assert {entry.kind for entry in entries[:4]} == {"impossible"}
    assert [entry.kind for entry in lines(table4)["Mamba"]] == ["no_days"] * 16
    for table in (table1, table4):
        assert len({symbol for _, symbol, _ in table.legend}) == 4, "no two swatches look alike"
    causes = [block for block in published.blocks if isinstance(block, Fold)]
    assert len(causes) == 3
    assert published.blocks.index(causes[0]) < published.blocks.index(table1)


def test_report_opens_with_a_sentence_for_each_clock_the_chosen_one_first(tmp_path: Path) -> None:
    run = record("pythia-1b", "naive", 20.0, true_days=41.0)
    folder = str(results_folder(tmp_path / "run", run))
    true = "Of the 288 cells of Tables 1 and 4, 1 was compared by true days: 1 reproduced, 0 differing; 287 were not"
    by_authors = "By the authors' clock, of 1 cell: 0 reproduced, 1 differing (1 faster)."
    text, drawn = (tmp_path / "run" / name for name in ("report.md", "report.html"))
    output = repro("report", folder).stdout
    assert output.startswith(f"{true} measured.\n{by_authors}\n")
    assert f"> {true} measured.\n>\n> {by_authors}\n" in text.read_text()
    assert by_authors in unescape(drawn.read_text())
    again = repro("report", folder, "--by", "authors")
    assert again.returncode == 0, "a report judges, and fails no one"
    assert "compared by the authors' clock: 0 reproduced, 1 differing (1 faster)" in again.stdout.splitlines()[0]
    assert again.stdout.splitlines()[1] == "By true days, of 1 cell: 1 reproduced, 0 differing."
    assert f"report {folder} --by authors" in text.read_text(), "the command that gives this report"
    assert f"claims --measured {folder} --by authors" in text.read_text()


def test_the_h100_report_has_the_true_days_and_small_beside_them_the_authors() -> None:
    report = compose(*(read(ROOT / "results" / "h100" / folder) for folder in ("text", "vision")))
    assert report.answer[0] == (
        "Of the 288 cells of Tables 1 and 4, 14 were compared by true days: 8 reproduced, 6 differing (6 slower); 273 "
        "were not measured, 1 had no printed number to compare with."
    )
    assert report.answer[1] == ("By the authors' clock, of 14 cells: 5 reproduced, 9 differing (7 faster, 2 slower).")
    stacks = [f"torch 2.11.0, transformers {version}, timm 1.0.31" for version in ("5.17.0", "5.23.0")]
    assert f"Measured on {' and on '.join(stacks)}; the printed days are of the paper's stack." in report.notes
    table_1, table_4 = grids(report)
    roberta = lines(table_1)["RoBERTa"][12]
    assert (roberta.text, roberta.below, roberta.beside, roberta.kind) == ("175", "248", "231", "slower")
    assert "by the authors' clock slower, 230.5 days" in roberta.message
    naive = lines(table_4)["Pythia-160M"][12]
    assert (naive.below, naive.beside) == ("55.5", "36.5")
    assert "42 (55.5 / 36.5) ▲" in markdown(report)
    assert '<b class="below">▲ 55.5</b><span class="beside">36.5</span>' in page(report)


def test_the_headline_counts_what_ran_uncompiled_and_not_what_did_not_run(tmp_path: Path) -> None:
    uncompiled = record("pythia-1b", "free_lunch", 20.0, compiled=False)
    full = record("pythia-1b", "free_lunch", None, count=8, status="out_of_memory", compiled=False)
    ended = uncompiled, record("pythia-1b", "naive", 40.0), full
    output = compose(read(results_folder(tmp_path / "run", *ended))).notes
    said = "The run has 3 trials at paper scale: 2 ok, 1 out of memory, 1 of them uncompiled, as compiling crashed."
    assert said in output


def test_the_verdicts_are_laid_out_like_table_1(on_gpus: Report) -> None:
    table1, table4 = grids(on_gpus)
    assert table1.gpus == ["RTX 3090", "A6000", "A100", "H100"]
    assert [len(entries) for table in (table1, table4) for entries in lines(table).values()] == [16] * 18
    entries = lines(table1)["Pythia-1B"]
    assert (entries[10].text, entries[10].below, entries[10].kind) == ("18", "18.2", "reproduced")
    assert (entries[11].text, entries[11].below, entries[11].kind) == ("9", "12", "slower")
    assert (entries[0].text, entries[0].below, entries[0].kind) == ("370", "", "not_measured")
    naive = lines(table4)
    assert (naive["Pythia-2.8B"][11].text, naive["Pythia-2.8B"][11].below) == ("-", "99")
    assert (naive["ViT"][8].text, naive["ViT"][8].below) == ("246", "-")
    symbols = {kind: symbol for kind, symbol, _ in (*table1.legend, *table4.legend)}
    assert set(symbols) == {"reproduced", "faster", "slower", "feasibility_differs", "not_measured"}
    assert len(set(symbols.values())) == 5, "no two verdicts are told apart by colour alone"


def test_a_measured_cell_is_explained_in_page_and_markdown(
    tmp_path: Path,
) -> None:
    nothing = record("mamba", "naive", None, status="out_of_memory", reason="nothing fits", remedy="offload")
    _, table_4 = grids(compose(read(results_folder(tmp_path, nothing))))
    assert lines(table_4)["Mamba"][10] == Entry("-", "-", "reproduced", "✓", ANY)
    assert table_4.caption.endswith(
        "; beside a verdict's symbol, true days here and, smaller or after a slash, days by the authors' clock, - "
        "where nothing fitted."
    )
    assert ("reproduced", "✓", "reproduced: days agree within the tolerance, or neither can train it") in table_4.legend


def test_days_and_steps_by_the_thousand_are_written_out(tmp_path: Path) -> None:
    run = [
        record("pythia-6.9b", "naive", 1234.4, gpu="H100", count=1),
        record("pythia-6.9b", "free_lunch", 2000.0, gpu="H100", count=1),
    ]
    report = compose(read(results_folder(tmp_path / "run", *run)))
    assert lines(grids(report)[1])["Pythia-6.9B"][12].below == "1234"
    (place,) = places(report).values()
    assert "the fastest apart from naive takes 1208 s a step by the true clock" in place.summary


def test_the_clocks_have_one_ratio(tmp_path: Path) -> None:
    """Of the authors' mean round to the true median round, one of which took long."""
    uneven = record("pythia-1b", "naive", 40.0, true_days=50.0)
    for times in uneven.times.device_times:
        times["with"][0] *= 9
    uneven.derived = derive(uneven, find("A100"))
    report = compose(read(results_folder(tmp_path / "run", uneven)))
    (place,) = places(report).values()
    (row,) = trials(place)
    assert row["authors' days"] / row["true days"] == pytest.approx(uneven.clocks_ratio) == pytest.approx(40 / 50)
    assert "authors' clock 0.80 of the true one" in place.summary


def test_a_step_that_is_faster_than_the_gpu_can_be_is_reported(tmp_path: Path) -> None:
    possible, impossible = (
        record("pythia-1b", settings, days, gpu="A100", count=4)
        for settings, days in (("naive", 20.0), ("free_lunch", 5.0))
    )
    records = read(results_folder(tmp_path / "run", possible, impossible)).records
    (note,) = (note for note in notes(records) if "more than there is" in note)
    assert note.startswith(
        f"not_measured, by the true clock it made {impossible.derived.utilisation:.0%} of the GPU's dense"
    )
    assert "(pythia-1b, 4 x A100, free_lunch)" in note


def test_rounds_that_disagree_are_reported_and_so_are_the_clocks_of_a_cpu() -> None:
    quiet = record("vit", "naive", 1.0, gpu="cpu", count=1, scale="tiny")
    assert not any("what else ran" in note for note in notes([quiet]))
    slow = record("vit", "naive", 1.0, gpu="cpu", count=1, scale="tiny", true_days=1.0)
    tripled = [{part: [3 * seconds for seconds in times] for part, times in slow.times.device_times[0].items()}]
    slow = altered(slow, host=tripled, device_times=tripled)
    uneven = record("pythia-1b", "naive", 40.0)
    assert uneven.batch.accumulation is not None
    for times in uneven.times.device_times:
        times["with"][1] *= 3 * uneven.batch.accumulation
    for one, device in ((slow, None), (uneven, find("A100"))):
        one.derived = derive(one, device)
        assert any(note.startswith("its steps took ") for note in notes([one]))


def test_whichever_ran_first_recipes_machines_and_settings_come_in_one_order(tmp_path: Path) -> None:
    run = [
        record("vit", "naive", 300.0, nodes=2),
        record("pythia-1b", "free_lunch+checkpointing", 20.0),
        record("pythia-1b", "free_lunch+flash+zero_1", 20.0),
        record("pythia-1b", "free_lunch+zero_1", 20.0),
        record("pythia-1b", "naive", 20.0),
        record("vit", "naive", 300.0, count=8),
        record("vit", "naive", 300.0, count=8, memory=2**30),
        record("vit", "naive", 300.0, count=1),
        record("pythia-160m", "naive", 20.0, count=1),
    ]
    report = compose(read(results_folder(tmp_path / "run", *run)))
    machines = ["1 x A100", "4 x A100", "8 x A100", "8 x A100 of 1GiB", "2 nodes of 4 x A100"]
    vit = [f"ViT on {machine}" for machine in machines if machine != "4 x A100"]
    assert [*places(report)] == ["Pythia-160M on 1 x A100", "Pythia-1B on 4 x A100", *vit]
    settings = [row["settings"] for row in trials(places(report)["Pythia-1B on 4 x A100"])]
    assert settings == ["naive", "free_lunch+zero_1", "free_lunch+flash+zero_1", "free_lunch+checkpointing"]
    (naive,) = (panel for panel in figure(report, "3").panels if panel.title == "Naive settings, here")
    assert [row.y for row in naive.rows] == ["Pythia-160M", "Pythia-1B", *["ViT"] * 4]
    assert list(naive.machines) == machines
    assert report.title == f"Report of a run on {', '.join(machines[:-1])} and {machines[-1]}"


def test_the_papers_days_stand_beside_machines_like_the_papers_alone() -> None:
    for other, output in (
        ({}, "41 (Table 4)"),
        ({"nodes": 2}, None),
        ({"memory": 2**30}, None),
        ({"scale": "tiny"}, None),
    ):
        given: dict[str, Any] = {"gpu": "L40S", **other}
        (row,) = trial_rows([record("pythia-1b", "naive", 60.0, **given)], "A100")
        assert row.get("paper, A100") == output


def test_a_gpu_stands_beside_the_papers_that_its_settings_are_of() -> None:
    """An RTX 4090's peak is an A6000's, its memory an RTX 3090's, whose settings a run takes."""
    for gpu, papers in (("RTX 4090", "RTX 3090"), ("L40S", "A6000"), ("H200", "H100"), ("A100", "A100")):
        assert nearest_paper_gpu([Device(0, 0, "GPU-0", gpu, find(gpu), 80 * 10**9, (8, 0))]) == papers
    assert nearest_paper_gpu([]) is None


def test_the_environment_names_machine_stack_and_lock(kept: Report) -> None:
    found = facts(kept)
    assert found["CPU"] == "AMD EPYC, 2 cores, 24 GiB"
    assert found["packages"] == "locks/cpu.lock, all as locked"
    assert "torch 2.13.0+cpu" in found["stack"]
    assert "torch 2.13.0+cpu, " in markdown(kept)
    assert re.search(r", commit [0-9a-f]{12}$", found["repro"]), "a whole hash breaks on a phone"


def test_the_commands_give_the_same_run_again(kept: Report) -> None:
    commands = [*facts(kept)]
    assert f"{command()} --processes 1,2 --out {KEPT}" in commands  # then everyone's
    assert f"{command()} report {KEPT}" in commands


@pytest.mark.slow
def test_a_folder_whose_name_is_no_utf_8_has_a_report_whose_commands_name_it(tmp_path: Path) -> None:
    folder = shutil.copytree(KEPT, tmp_path / os.fsdecode(b"it's \\ \xff"))
    done = process("report", str(folder), "--format", "markdown")
    assert done.returncode == 0, done.stderr
    output = re.search(r" report (.*)`: this report", (folder / "report.md").read_text(encoding="utf-8"))
    assert output is not None
    assert output[1] in unescape((folder / "report.html").read_text(encoding="utf-8"))
    named = subprocess.run(["bash", "-c", f"printf %s {output[1]}"], capture_output=True, check=True).stdout
    assert named == os.fsencode(folder)


def test_every_table_that_it_names_can_be_had_as_it_says(kept: Report, published: Report) -> None:
    for report in (kept, published):
        words, gives = next(each for each in facts(report).items() if " table 1" in each[0])
        given = shlex.split(words)[shlex.split(words).index("table") + 2 :]
        for table in re.findall(r"\b[1-7j]\b", gives):
            found = repro("table", table, *given)
            assert found.returncode == 0, found.stderr
    assert "5, 6, 7" in gives, "without a run those of prices too"


def test_what_is_unsupported_was_not_tried(tmp_path: Path) -> None:
    run = [record("pythia-1b", each.id, None, count=1, status="unsupported") for each in search_space(1)[1:]]
    report = compose(read(results_folder(tmp_path / "run", record("pythia-1b", "free_lunch", 80.0, count=1), *run)))
    [place] = places(report).values()
    assert says(place).startswith("1 of the 12 settings of the paper's search was tried.")


def test_trials_of_other_rounds_are_reported_apart(tmp_path: Path) -> None:
    once = record("vit", "naive", 10.0, gpu="cpu", count=1, scale="tiny", busy_cpus=1.0)
    report = compose(read(results_folder(tmp_path / "run", once, of_more_rounds(once))))
    [place] = places(report).values()
    assert [row["settings"] for row in trials(place)] == ["naive", "naive (9-rounds)"]
    [note] = [note for note in notes(report.runs.records if report.runs else ()) if note.startswith("other processes")]
    assert note.endswith("(vit, 1 x cpu, naive; vit, 1 x cpu, naive (9-rounds))")


def test_commands_are_as_people_call_the_program_here(tmp_path: Path) -> None:
    found = process("report", "--out", str(tmp_path), REPRO_COMMAND="'/my place/run_all.sh'")
    assert found.returncode == 0, found.stderr
    text = (tmp_path / "report.md").read_text()
    assert "'/my place/run_all.sh' report`" in text
    assert "'/my place/run_all.sh' --gpus all --methods all" in text
    assert "./run_all.sh" not in text


@pytest.mark.parametrize(
    "words",
    [
        "--processes 1,2",
        "--processes 1 --trial-timeout 1h",
        "--processes 1 --by authors",
        "--processes 1 --models vit,roberta --methods all --search 3 --steps 5 --tolerance 0.2 --budget 90m",
        "--processes 2 --memory 2GiB --trial-timeout 30s",
        "--processes 2 --tolerance 0.00005 --budget 12d --trial-timeout 123456.7s",
        "--gpus 1 --with attention=flash",
        "--processes 1,2 --project 2 --models vit",
    ],
)
def test_a_runs_options_can_be_typed_again(words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    a100 = Device(0, 0, "GPU-0", "NVIDIA A100-SXM4-80GB", find("A100"), 80 * 10**9, (8, 0))
    monkeypatch.setattr(nvml, "visible_devices", lambda: [a100])

    def options_of(text: str) -> Options:
        return parsed(parser("run").parse_args(shlex.split(text))).options

    options = options_of(words)
    gpus = [RunGpu(a100.name, a100.driver_name, a100.memory_bytes)] if "--gpus" in words else []
    again = run_words(options, Environment(gpus=gpus), Path("results/local"))
    assert options_of(again) == options


def test_a_run_before_the_last_is_reported_with_as_many_gpus_as_it_took() -> None:
    of_last = Environment(gpus=[RunGpu("A100", "NVIDIA A100-SXM4-80GB", 80 * 10**9)])
    before = Options(("vit",), None, "paper", (1, 2, 4, 8))
    assert run_words(before, of_last, Path("results/local")).startswith("--gpus 8 ")


# Figures


def test_a_run_draws_what_it_measured_and_the_published_numbers_all_figures(kept: Report, published: Report) -> None:
    assert [each.number for each in figures(kept)] == ["2", "3", "4, 11", "5", "9", "10"]
    every = ["2", "3", "4, 11", "5", "6", "7", "12", "13", "9", "10"]
    assert [each.number for each in figures(published)] == every
    assert all(any("measured" in panel.origin for panel in each.panels) for each in figures(kept))
    for each in (*figures(kept), *figures(published)):
        assert each.panels or each.lacking, "a figure without numbers says what measures them"
        assert all(panel.rows and panel.source for panel in each.panels)
    kinds = {panel.kind for each in figures(published) for panel in each.panels}
    assert kinds | {"bars", "lines"} == set(get_args(Kind)), "lines are of the page in a browser"


def test_costs_are_those_of_the_machine_and_of_its_days(published: Report) -> None:
    true = ModelDays("pythia-1b", DaysAsked()).on(paper_gpu("H100"), 8)
    assert true is not None
    panels = figure(published, "7").panels
    assert [panel.origin for panel in panels] == ["predicted", "predicted", "published", "published"]
    for (machine, experiment), days in zip((panels[:2], panels[2:]), (true.days.value, 4.0), strict=True):
        eight = {(row.series, row.label): row for row in machine.rows}["H100", "8"]
        assert (eight.x, eight.y, eight.note) == (8 * 30_000 + 10_500, days, "no")
        each = {(row.series, row.label): row for row in experiment.rows}["H100", "8"]
        assert each.x == pytest.approx(250_500 * days / (5 * 365))
    assert [panel.title for panel in figure(published, "12").panels] == list(
        dict.fromkeys(cell.model for cell in cells("1"))
    )
    assert "The fastest of the paper's machines for Pythia-1B, 8 H100," in figure(published, "7").says


def test_no_machine_drawn_as_the_best_has_a_rival_both_cheaper_and_faster(published: Report) -> None:
    for number in ("7", "12", "13"):
        for panel in figure(published, number).panels:
            aims = [(float(row.x), float(row.y)) for row in panel.rows]
            for row, (cost, days) in zip(panel.rows, aims, strict=True):
                beaten = any(x <= cost and y <= days and (x, y) != (cost, days) for x, y in aims)
                assert row.note == ("yes" if beaten else "no")


def test_marks_stand_at_their_values_on_logarithmic_axes() -> None:
    rows = [Row(9.0, "A100", 1000.0, label="1", note="no"), Row(2.0, "H100", 3000.0, label="1", note="yes")]
    drawn = chart(Panel("computed", "Costs", "marks", "days", "cost", rows, "a file"))
    (dear, slow), (cheap, fast) = (
        map(float, found) for found in re.findall(r'transform="translate\(([\d.]+),([\d.]+)\)', drawn)
    )
    assert dear < cheap
    assert slow < fast, "more days are higher up"
    assert 'class="c3 hollow"' in drawn
    assert Scale(1, 100, 0, 10, log=True)(10) == pytest.approx(5)
    assert Scale(0, 10, 0, 100)(5) == 50


def test_the_parts_of_a_bar_are_joined_and_the_number_of_each_is_in_its_middle() -> None:
    parts = [Row("1", "Days", 3), Row("1", "Weeks", 20), Row("2", "Weeks", 9), Row("2", "Days", 0.4)]
    drawn = chart(Panel("answered", "Desktop GPUs", "bars", "number of GPUs", "people", parts, "answers"))
    bars = [tuple(map(float, found)) for found in re.findall(r'd="M([\d.]+),[\d.]+H([\d.]+)V', drawn)]
    assert bars[0][1] == bars[1][0], "weeks begin where days end"
    assert bars[2][1] == bars[3][0], "also where weeks were named first"
    middles = {found[1]: float(found[0]) for found in re.findall(r'<text x="([\d.]+)"[^>]*class="on">(\d+)<', drawn)}
    assert middles == {"3": ANY, "20": ANY, "9": ANY}, "the narrowest has no room"
    assert middles["20"] == pytest.approx(sum(bars[1]) / 2, abs=0.1)


def test_a_chart_of_each_kind_has_a_name_a_description_and_its_numbers(kept: Report, published: Report) -> None:
    panels = [panel for report in (kept, published) for each in figures(report) for panel in each.panels]
    peak = figure(published, "9").panels[-1].table[0]
    assert [*peak] == ["GPU", "series", "TFLOP/s, dense", "label"], "of the columns those that have something"
    days = [Row(103.0, "A100", 1, "103"), Row(52.0, "A100", 2, "52")]
    panels.append(Panel("predicted", "Days", "lines", "days", "GPUs", days, "traces", machines=["A100"]))
    assert {panel.kind for panel in panels} == set(get_args(Kind))
    for panel in panels:
        drawn = chart(panel)
        assert ' role="img" aria-labelledby="panel-name" aria-describedby="panel-text"><title id="panel-name">' in drawn
        assert "nan" not in drawn
        label = re.search("<title[^>]*>([^<]*)</title>", drawn)
        assert label
        assert panel.x in unescape(label[1]), "those who cannot see it are told its axes"
        assert [row[panel.x] for row in panel.table] == [row.x for row in panel.rows]
        if panel.kind != "fields":
            looks_ = looks((row.series for row in panel.rows), panel.machines)
            assert len({*looks_.values()}) == len(looks_), "no two of a panel look alike"


def test_a_series_looks_the_same_whatever_comes_first_and_is_beside_it() -> None:
    assert [*looks(["slower", "faster"], ())] == [*looks(["faster", "slower"], ())] == ["faster", "slower"]
    machines = ["1 x A100", "2 x A100", "4 x A100"]
    assert looks(machines, machines)["4 x A100"] == looks(["4 x A100"], machines)["4 x A100"]


def test_a_legend_names_means_and_the_dashed_line(published: Report, on_gpus: Report) -> None:
    (pythia,), (here, _) = figure(published, "2").panels, figure(on_gpus, "2").panels
    for panel, output in (
        (pythia, ["mean", "naive settings"]),
        (here, ["naive settings"]),  # one dot has no mean
    ):
        drawn = chart(panel)
        named = ("mean", "naive settings")
        assert [name for name in named if f"</i>{name}</span>" in drawn] == output


def test_figures_2_and_3_say_what_the_printed_days_give(published: Report) -> None:
    assert figure(published, "2").says.startswith(
        "The paper says that the best settings are 4.3 times as fast as naive ones. Its printed days of Pythia give 4.4"
    )
    assert "cannot train 9 of the 20 pairs of model and GPU, the best settings none" in figure(published, "3").says


def test_figures_without_printed_numbers_say_which_command_measures_them(published: Report) -> None:
    for number in ("4, 11", "5", "10"):
        assert figure(published, number).measured_by == f"{command()} --gpus all --methods all"
    assert figure(published, "5").panels == []
    # Its settings in Appendix J have lost their marks, which may have been those of free lunch alone.
    assert "or their mark is lost, as of Mamba on several A100," in figure(published, "10").lacking


def test_speed_ups_are_naive_days_over_the_best(published: Report, kept: Report) -> None:
    (panel,) = figure(published, "2").panels
    ratios = {(row.y, row.note): row.x for row in panel.rows if row.series == "best settings"}
    assert ratios["A100", "Pythia-1B, 4 GPUs"] == pytest.approx(41 / 18)
    assert len(ratios) == 44
    measured, _ = figure(kept, "2").panels
    assert (measured.origin, len(measured.rows)) == ("measured", 36)
    assert "tiny twins of the recipes, which say nothing of the paper's" in measured.source
    pythia = [float(row.x) for row in measured.rows if str(row.y).startswith("Pythia")]
    assert (
        f"Measured here, for Pythia: {fmean(pythia[1::2]):.2f} times (mean of 10 pairs of model and machine, "
        in figure(kept, "2").says
    )


def test_gains_and_spread_come_from_whole_searches_alone(kept: Report, on_gpus: Report) -> None:
    records = [record for record in read(KEPT).records if (record.recipe, record.count) == ("pythia-1b", 2)]
    steps = {
        r.settings: r.derived.true_step for r in records if r.settings != "naive" and r.derived.true_step is not None
    }
    saving = min(step for settings, step in steps.items() if settings != "free_lunch")
    (gain,) = points(figure(kept, "4, 11").panels[0]).values()
    assert gain == pytest.approx(100 * (1 - saving / steps["free_lunch"]))
    (spread,) = figure(kept, "5").panels
    assert max(points(spread).values()) == pytest.approx(max(steps.values()) / saving)
    assert len(spread.rows) == 22
    assert not {"4, 11", "5"} & {each.number for each in figures(on_gpus)}


def test_what_a_gain_below_zero_means_is_said_beside_it_and_on_the_axis(kept: Report, tmp_path: Path) -> None:
    days = {settings.id: 240.0 for settings in search_space(1)} | {"naive": 320.0, "free_lunch": 160.0}
    run = [record("pythia-1b", settings, spent, count=1) for settings, spent in days.items()]
    (panel,) = figure(compose(read(results_folder(tmp_path / "run", *run))), "4, 11").panels
    (line,) = panel.table
    assert line["% less training time (below 0: % more)"] == pytest.approx(-50)
    assert "% less training time (below 0: % more)" in chart(panel)
    assert "-10 a tenth more" in figure(kept, "4, 11").says


def test_free_lunch_with_flash_attention_is_free_lunch_alone(tmp_path: Path) -> None:
    space = [replace(settings, attention="flash").id for settings in search_space(1)]
    days = {"naive": None} | dict.fromkeys(space, 240.0) | {"free_lunch+flash": 160.0, space[1]: 120.0}
    ran: list[Status] = ["out_of_memory" if spent is None else "ok" for spent in days.values()]
    run = [
        record("pythia-1b", settings, spent, count=1, status=status)
        for (settings, spent), status in zip(days.items(), ran, strict=True)
    ]
    report = compose(read(results_folder(tmp_path / "run", *run)))
    [place] = places(report).values()
    assert says(place).startswith("12 of the 12 settings of the paper's search were tried, and naive settings.")
    assert list(points(figure(report, "4, 11").panels[0]).values()) == pytest.approx([25.0])
    assert "the median takes 1.50 times as long as free lunch alone" in figure(report, "5").says
    free = record("pythia-1b", "free_lunch+flash", 80.0, count=1)
    quick = [free if each.settings == free.settings else each for each in run]
    faster = figure(compose(read(results_folder(tmp_path / "quick", *quick))), "5")
    assert min(points(faster.panels[0]).values()) == pytest.approx(10 / 15)
    assert "2.00 times as fast as the worst" in faster.says
    assert "averages over its searches, of Pythia on several GPUs," in faster.lacking, "ours are over all of them"
    several = [record("pythia-1b", *each, count=2) for each in product([each.id for each in search_space(2)], [240.0])]
    output = figure(compose(read(results_folder(tmp_path / "several", *run, *several))), "5").says
    assert (
        "memory-saving settings are 1.50 times (mean of 2 pairs of model and machine, 1.00 to 2.00) as fast as the"
        in output
    )
    alone = compose(read(results_folder(tmp_path / "alone", *run[:2])))
    (mark,) = next(panel for panel in figure(alone, "10").panels if panel.origin == "measured").rows
    assert mark.series == "free lunch"


def test_gpu_days_are_held_against_the_original_trainings(published: Report) -> None:
    (panel,) = figure(published, "6").panels
    assert points(panel)["Pythia-1B", "original training"] == 64 * 3
    assert points(panel)["Pythia-1B", "best settings, 8 A100"] == 8 * 9
    assert "Mamba" not in {group for group, _ in points(panel)}, "its original does not say"


def test_flops_and_peaks_stand_beside_ours(published: Report) -> None:
    flops, peaks = figure(published, "9").panels
    ratio = points(flops)["ConvNeXt", "paper, figure 9"] / points(flops)["ConvNeXt", "closed form"]
    assert ratio == pytest.approx(3, rel=0.01)
    assert points(peaks)["H100", "data sheet"] == paper_gpu("H100").fp16_tflops


def test_of_settings_measured_again_throughput_and_gpu_days_are_those_that_stand(tmp_path: Path) -> None:
    first, again = (record("pythia-1b", "free_lunch", days) for days in (25.0, 18.0))
    alone = compose(read(results_folder(tmp_path / "alone", again)))
    both = compose(read(results_folder(tmp_path / "both", first, of_more_rounds(again))))
    on_a_cpu = record("pythia-1b", "free_lunch", 18.0, gpu="cpu", count=1)
    with_a_cpu = compose(read(results_folder(tmp_path / "cpu", again, on_a_cpu)))
    for number in ("6", "9"):
        assert figure(both, number).panels[0].rows == figure(alone, number).panels[0].rows
    assert figure(with_a_cpu, "6").panels[0].rows == figure(alone, "6").panels[0].rows, "a CPU has no GPU-days"


def test_a_number_stands_at_the_first_place_around_its_mark_that_is_clear() -> None:
    above, below = (7, -7), (7, 7)
    assert beside([(50, 50)]) == [above]
    assert beside([(0, 0), (100, 0), (0, 100)]) == [above] * 3, "far from each other"
    assert beside([(50, 50), (60, 42)]) == [below, above], "a mark stands above, another place is clear"
    assert beside([(50, 50), (50, 50)]) == [(0, -9), (0, 9)], "two marks at one place share no number's place"
    near = [(-13.0, 3.3), (0.0, 0.0), (-15.3, -26.4), (20.7, 8.7), (7.9, 6.8), (7.9, -4.9)]
    for own, (dx, dy) in zip(near, beside(near), strict=True):
        number = (own[0] + dx, own[1] + dy)
        assert min(near, key=lambda mark: math.dist(mark, number)) == own, "each number is nearest to its own mark"
    row = [(10.0 * number, 0.0) for number in range(6)]
    placed = [(x + dx, y + dy) for (x, y), (dx, dy) in zip(row, beside(row), strict=True)]
    assert min(max(abs(a - c), abs(b - d)) for (a, b), (c, d) in combinations(placed, 2)) >= 8


# The files


def test_the_page_is_whole_in_itself(kept: Report, on_gpus: Report, published: Report) -> None:
    for text in map(page, (kept, on_gpus, published)):
        assert "<script" not in text
        assert "@import" not in text
        assert not re.search(r"""(src|data)=["'](?!$)""", text)
        assert not re.search(r"url\((?!#)", text)
        assert not [link for link in re.findall(r'href="([^"]*)"', text) if not link.startswith("#")]
        ids = re.findall(r'\bid="([^"]*)"', text)
        assert len(ids) == len(set(ids))
        assert {link[1:] for link in re.findall(r'href="([^"]*)"', text)} <= set(ids)


def test_what_a_run_says_cannot_put_markup_into_the_page(on_gpus: Report) -> None:
    assert "<b>none</b> fits" not in page(on_gpus)
    assert "&lt;b&gt;none&lt;/b&gt; fits" in page(on_gpus)


def test_a_model_of_ones_own_begins_with_its_days_and_names_no_cell_of_the_paper(tmp_path: Path) -> None:
    output = repro("report", str(ROOT / "results" / "llama-h100"), "--out", str(tmp_path)).stdout
    assert output.startswith("llama-1a63bce6 takes 3.6 days on 1 x H100 with free_lunch settings.\n")
    assert "288 cells" not in output
    assert "of its 144 cells" not in output


def test_whole_steps_that_were_timed_too_are_one_note() -> None:
    whole, other = (record("vit", "naive", 10.0, count=count) for count in (1, 2))
    for one, error in ((whole, 0.01), (other, -0.03)):
        one.observed = replace(one.observed, extrapolation_error=error)
    said = "Whole training steps were timed too in 2 of 2 trials: the extrapolated step is -1.0% off in the median"
    assert notes([whole, other]) == [f"{said}, from -3.0% to +1.0%."]
