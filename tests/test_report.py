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
import sysconfig
from collections.abc import Callable
from dataclasses import replace
from html import unescape
from itertools import combinations, product
from pathlib import Path
from statistics import fmean
from typing import Any, get_args
from unittest.mock import ANY

import pytest
from altair import TopLevelSpec

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
from repro.record import Status, derive
from repro.report.charts import beside, svg, vega_lite
from repro.report.content import Content, Entry, compose, run_words
from repro.report.markdown import markdown
from repro.report.page import page
from repro.report.panels import Curve, Draw, Figure, Mark, Panel, Point, Span, Trade, described, looks, numbers
from repro.report.terminal import legend, nearest_paper_gpu, notes, report, summary, trial_rows
from repro.report.write import write
from repro.run.plan import Options
from repro.run.reading import read
from repro.run.verdict import judge_tables
from tests.command_line import ROOT, altered, drawing, of_more_rounds, process, record, refusal, repro, results_folder

KEPT = ROOT / "results" / "cpu-2-cores"


@pytest.fixture(scope="module")
def kept() -> Content:
    """The report of a whole run without a GPU."""
    return compose(read(KEPT))


@pytest.fixture(scope="module")
def on_gpus(tmp_path_factory: pytest.TempPathFactory) -> Content:
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
def published() -> Content:
    return compose()


@pytest.fixture(scope="module")
def pages(kept: Content, on_gpus: Content) -> tuple[str, str]:
    """Both runs' pages, which take some seconds to draw."""
    return page(kept), page(on_gpus)


def figure(content: Content, number: str) -> Figure:
    return next(figure for figure in content.figures if figure.number == number)


def points(panel: Panel) -> dict[tuple[str, str], float]:
    assert all(isinstance(row, Point) for row in panel.rows)
    return {(row.group, row.series): row.value for row in panel.rows if isinstance(row, Point)}


# The command


@pytest.mark.slow
def test_a_report_is_written_beside_the_records_and_says_where(tmp_path: Path) -> None:
    folder = results_folder(tmp_path / "run", record("pythia-1b", "free_lunch+zero_1", 18.0))
    with drawing():
        found = repro("report", str(folder))
    assert found.returncode == 0, found.stderr
    assert found.stderr.splitlines()[-1] == f"repro: the report is {folder / 'report.html'}"
    output = "Table 1: of 1 cell compared 1 is reproduced by true days and 1 by the authors' clock; 143 not measured"
    assert output in found.stdout
    assert (folder / "report.html").read_text().startswith("<!doctype html>")
    assert (folder / "report.md").read_text().startswith("# Report of a run on 4 x A100\n\n> Of the 288 cells")


@pytest.mark.slow
def test_without_a_run_it_reports_the_published_numbers(tmp_path: Path) -> None:
    with drawing():
        found = repro("report", "--out", str(tmp_path / "new" / "place"))
    assert found.returncode == 0, found.stderr
    assert "there is no run here, these are the published numbers alone" in found.stdout
    assert "144 not measured.\n" in found.stdout
    assert "0 had no printed number" not in found.stdout, "Table 4 has a cell whose mark is lost"
    assert "# Report on the published numbers" in (tmp_path / "new" / "place" / "report.md").read_text()
    assert (tmp_path / "new" / "place" / "report.html").is_file()


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
    assert [of_tiny[f"days ({clock})"] for clock in clocks] == [None] * 3
    assert of_full["days (true)"] == pytest.approx(80.0)


def test_what_a_run_printed_comes_again_from_its_folder(tmp_path: Path) -> None:
    given = ("report", str(KEPT), "--out", str(tmp_path), "--format")
    as_json = json.loads(repro(*given, "json").stdout)
    assert (len(as_json["trials"]), len(as_json["verdicts"])) == (57, 288)
    as_markdown = repro(*given, "markdown").stdout
    assert as_markdown == (tmp_path / "report.md").read_text()
    sections = re.findall(r"^## (.*)$", as_markdown, re.MULTILINE)
    assert sections == ["Verdicts", "Environment", "Trials", "Figures", "Run it again"]
    assert len(re.findall(r"^\*\*Figures? \d", as_markdown, re.MULTILINE)) == 6
    assert "| 1 x RTX 3090 | 41" in re.sub(" +", " ", as_markdown)


def test_the_kept_report_is_what_the_front_door_writes(tmp_path: Path) -> None:
    kept = KEPT.relative_to(ROOT)
    process("report", str(kept), "--out", str(tmp_path), REPRO_COMMAND="./run_all.sh")
    same = (tmp_path / "report.md").read_text() == (KEPT / "report.md").read_text()
    assert same, f"./run_all.sh report {kept} brings it up to date"


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
    (folder / "trials.jsonl").write_text(
        (folder / "trials.jsonl").read_text().replace('"true_days": 3', '"true_days": 9')
    )
    with drawing():
        found = repro("report", str(folder))
    assert found.returncode == 0
    wrong = "trials.jsonl, line 1: vit/paper/1xA100/naive was tampered with or damaged: true_days is 9"
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
            f"repro: {trials} is a folder, where a run keeps its trials in a file: move it, or name the results folder "
            "of a run (its --out)\n"
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


def test_where_the_drawing_libraries_are_missing_the_markdown_is_written_and_the_way_out_reported(
    tmp_path: Path,
) -> None:
    stack = tmp_path / "stack"
    stack.mkdir()
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if not entry.name.startswith(("altair", "vl_convert")):
            (stack / entry.name).symlink_to(entry)
    found = subprocess.run(
        [sys.executable, "-S", "-m", "repro", "report", str(KEPT), "--out", str(tmp_path / "out")],
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{stack}"},
        capture_output=True,
        text=True,
    )
    assert found.returncode == 0, found.stderr
    (line,) = found.stderr.splitlines()
    output = "install altair, vl-convert-python (set up with ./run_all.sh, or install it with pip), then run: "
    assert output in line
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["report.md"]


def test_a_page_that_is_not_drawn_does_not_stay_from_before(kept: Content, tmp_path: Path) -> None:
    (tmp_path / "report.html").write_text("of an earlier run")
    written = write(kept, tmp_path, draw=False)
    assert written.message.endswith(f"for the page with the figures run: {command()} report {tmp_path}")
    assert [path.name for path in tmp_path.iterdir()] == ["report.md"]
    spaced = write(kept, tmp_path / "my run", draw=False)
    assert spaced.message.endswith(f"{command()} report '{tmp_path}/my run'")


def test_a_page_of_before_that_cannot_be_removed_is_one_line(kept: Content, tmp_path: Path) -> None:
    (tmp_path / "report.html").mkdir()
    with pytest.raises(UserError, match="cannot write to "):
        write(kept, tmp_path, draw=False)


@pytest.mark.slow
def test_a_report_takes_a_few_seconds_and_no_torch(tmp_path: Path) -> None:
    code = (
        "import os, sys; from repro.cli import main\n"
        f"main(['report', {str(KEPT)!r}, '--out', {str(tmp_path)!r}])\n"
        "print({'altair', 'vl_convert', 'torch', 'pandas'} & set(sys.modules), sum(os.times()[:4]) < 12)"
    )
    found = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert found.stdout.splitlines()[-1] == "set() True"


# What it says


def test_the_headline_counts_every_cell_of_tables_1_and_4(on_gpus: Content, published: Content) -> None:
    headline = on_gpus.headline
    assert headline.quote == (
        "Of the 288 cells of Tables 1 and 4, 7 were compared by true days: 2 reproduced, 5 differing "
        "(1 faster, 2 slower, 2 feasibility differs); 281 were not measured."
    )
    assert headline.beside == (
        "By the authors' clock, of 7 cells: 1 reproduced, 6 differing (3 faster, 1 slower, 2 feasibility differs)."
    )
    assert (headline.compared, headline.reproduced, headline.differing, headline.not_measured) == (7, 2, 5, 281)
    assert published.headline.quote == "Of the 288 cells of Tables 1 and 4, none was compared; 288 were not measured."
    assert published.headline.beside == "", "where nothing was compared one sentence says so"


@pytest.mark.slow
def test_report_opens_with_a_sentence_for_each_clock_the_chosen_one_first(tmp_path: Path) -> None:
    run = record("pythia-1b", "naive", 20.0, true_days=41.0)
    folder = str(results_folder(tmp_path / "run", run))
    true = "Of the 288 cells of Tables 1 and 4, 1 was compared by true days: 1 reproduced, 0 differing; 287 were not"
    by_authors = "By the authors' clock, of 1 cell: 0 reproduced, 1 differing (1 faster)."
    text, drawn = (tmp_path / "run" / name for name in ("report.md", "report.html"))
    with drawing():
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
    content = compose(*(read(ROOT / "results" / "h100" / folder) for folder in ("text", "vision")))
    assert content.headline.quote == (
        "Of the 288 cells of Tables 1 and 4, 14 were compared by true days: 8 reproduced, 6 differing (6 slower); 273 "
        "were not measured, 1 had no printed number to compare with."
    )
    assert content.headline.beside == (
        "By the authors' clock, of 14 cells: 5 reproduced, 9 differing (7 faster, 2 slower)."
    )
    stacks = [f"torch 2.11.0, transformers {version}, timm 1.0.31" for version in ("5.17.0", "5.23.0")]
    assert (
        f"Measured on {' and on '.join(stacks)}; the printed days are of the paper's stack." in content.headline.behind
    )
    table_1, table_4 = content.grids
    roberta = dict(table_1.lines)["RoBERTa"][12]
    assert (roberta.text, roberta.below, roberta.beside, roberta.kind) == ("175", "248", "231", "slower")
    assert "by the authors' clock slower, 230.5 days" in roberta.message
    naive = dict(table_4.lines)["Pythia-160M"][12]
    assert (naive.below, naive.beside) == ("55.5", "36.5")
    assert "42 (55.5 / 36.5) ▲" in markdown(content)
    assert '<b class="below">▲ 55.5</b><span class="beside">36.5</span>' in page(content)


def test_the_headline_counts_what_ran_uncompiled_and_not_what_did_not_run(tmp_path: Path) -> None:
    uncompiled = record("pythia-1b", "free_lunch", 20.0, compiled=False)
    full = record("pythia-1b", "free_lunch", None, count=8, status="out_of_memory", compiled=False)
    ended = uncompiled, record("pythia-1b", "naive", 40.0), full
    output = compose(read(results_folder(tmp_path / "run", *ended))).headline.behind[-1]
    assert output == (
        "The run has 3 trials at paper scale: 2 ok, 1 out of memory, 1 of them uncompiled, as compiling crashed."
    )


def test_a_run_on_a_gpu_of_the_paper_that_stands_for_no_cell_says_why() -> None:
    name = "NVIDIA A100-SXM4-80GB"
    device = Device(0, 0, "GPU-0", name, find(name), 80 * 10**9, (8, 0))
    limited = replace(record("pythia-1b", "naive", 100.0, count=1), memory_limit=40 * 2**30)
    output = summary(judge_tables([limited], 0.15), [device], [limited])
    assert output[-1].startswith(
        "Why not: a trial can be compared with a cell at the paper's scale, on one node, with all of"
    )
    naive, best = (record("pythia-1b", settings, 30.0) for settings in ("naive", "free_lunch+zero_1"))
    of_one = summary(judge_tables([naive], 0.15), [device], [naive])
    assert of_one[-1].startswith("Why not of Table 1: a trial can be compared with a cell at the paper's scale")
    both = [naive, best]
    assert any(verdict.compared for verdict in judge_tables([best], 0.15))
    assert not any("Why not" in line for line in summary(judge_tables(both, 0.15), [device], both))


def test_a_cell_without_a_printed_number_is_reported_in_words_true_of_a_lost_mark_and_of_larger_hosts(
    tmp_path: Path,
) -> None:
    on_a_larger_host = [
        record("pythia-6.9b", each.id, 900.0, count=1)
        if each.offloading
        else record("pythia-6.9b", each.id, None, count=1, status="out_of_memory")
        for each in search_space(1)
    ]
    lost = record("convnext", "naive", 90.0, gpu="H100", count=1)
    content = compose(read(results_folder(tmp_path / "run", lost, *on_a_larger_host)))
    assert content.headline.quote.endswith(", 2 had no printed number to compare with.")
    assert all(
        line.endswith(" not measured, 1 had no printed number to compare with.") for line in content.headline.behind[:2]
    )
    meanings = {kind: meaning for kind, _, meaning in content.grids[0].kinds}
    assert meanings["no_reference"] == "no reference: the paper's mark is lost, or its jobs had too little host memory"


def test_the_verdicts_are_laid_out_like_table_1(on_gpus: Content) -> None:
    table1, table4 = on_gpus.grids
    assert table1.gpus == ["RTX 3090", "A6000", "A100", "H100"]
    assert [len(entries) for _, entries in table1.lines] == [len(entries) for _, entries in table4.lines] == [16] * 9
    entries = dict(table1.lines)["Pythia-1B"]
    assert (entries[10].text, entries[10].below, entries[10].kind) == ("18", "18.2", "reproduced")
    assert (entries[11].text, entries[11].below, entries[11].kind) == ("9", "12", "slower")
    assert (entries[0].text, entries[0].below, entries[0].kind) == ("370", "", "not_measured")
    naive = dict(table4.lines)
    assert (naive["Pythia-2.8B"][11].text, naive["Pythia-2.8B"][11].below) == ("-", "99")
    assert (naive["ViT"][8].text, naive["ViT"][8].below) == ("246", "-")
    symbols = {kind: symbol for kind, symbol, _ in (*table1.kinds, *table4.kinds)}
    assert set(symbols) == {"reproduced", "faster", "slower", "feasibility_differs", "not_measured"}
    assert len(set(symbols.values())) == 5, "no two verdicts are told apart by colour alone"


def test_of_a_measured_cell_is_said_where_its_days_stand_in_page_and_markdown_and_what_its_dash_is(
    tmp_path: Path,
) -> None:
    nothing = record("mamba", "naive", None, status="out_of_memory", reason="nothing fits", remedy="offload")
    _, table_4 = compose(read(results_folder(tmp_path, nothing))).grids
    assert dict(table_4.lines)["Mamba"][10] == Entry("-", "-", "reproduced", "✓", ANY)
    assert table_4.caption.endswith(
        "; beside a verdict's symbol, true days here and, smaller or after a slash, days by the authors' clock, - "
        "where nothing fitted."
    )
    assert ("reproduced", "✓", "reproduced: days agree within the tolerance, or neither can train it") in table_4.kinds


def test_days_and_steps_by_the_thousand_are_written_out(tmp_path: Path) -> None:
    run = [
        record("pythia-6.9b", "naive", 1234.4, gpu="H100", count=1),
        record("pythia-6.9b", "free_lunch", 2000.0, gpu="H100", count=1),
    ]
    content = compose(read(results_folder(tmp_path / "run", *run)))
    assert dict(content.grids[1].lines)["Pythia-6.9B"][12].below == "1234"
    (place,) = content.places
    assert "1208 s a training step" in " ".join(place.says)
    assert "the fastest apart from naive takes 1208 s a step by the true clock" in place.message


def test_the_clocks_have_one_ratio(tmp_path: Path) -> None:
    """Of the authors' mean round to the true median round, one of which took long."""
    uneven = record("pythia-1b", "naive", 40.0, true_days=50.0)
    for times in uneven.times.device_times:
        times["with"][0] *= 9
    uneven.derived = derive(uneven, find("A100"))
    content = compose(read(results_folder(tmp_path / "run", uneven)))
    (row,) = content.places[0].trials
    assert row["authors/true"] == uneven.clocks_ratio == pytest.approx(40 / 50)
    assert row["authors/true"] == pytest.approx(row["days (authors)"] / row["days (true)"])
    assert "authors' clock 0.80 of the true one" in content.places[0].message


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


def test_every_trial_is_there_with_its_status_and_both_clocks(kept: Content, on_gpus: Content) -> None:
    assert sum(len(place.trials) for place in kept.places) == 57
    searched = next(place for place in kept.places if len(place.trials) == 23)
    assert searched.title == "Pythia-1B (tiny twin) on 2 x cpu"
    assert searched.says[0] == "22 of the 22 settings of the paper's search were tried, and naive settings."
    for row in searched.trials:
        assert row["status"] == "ok"
        assert row["authors s"]
        assert row["true s"]
        assert row["authors/true"] is None, "a CPU has one clock"
    naive = next(place for place in on_gpus.places if place.title == "Pythia-1B on 4 x A100")
    assert naive.trials[0]["authors/true"] == pytest.approx(30 / 41.5)
    output = "reproduced with free_lunch+zero_1, 18.2 true days; by the authors' clock faster, 14.0 days."
    assert f"Table 1, Pythia-1B on 4 A100: {output}" in naive.says
    vit = next(place for place in on_gpus.places if place.title == "ViT on 1 x A100")
    assert vit.notes == ["naive: out_of_memory, <b>none</b> fits; offload"]


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
    content = compose(read(results_folder(tmp_path / "run", *run)))
    machines = ["1 x A100", "4 x A100", "8 x A100", "8 x A100 of 1GiB", "2 nodes of 4 x A100"]
    vit = [f"ViT on {machine}" for machine in machines if machine != "4 x A100"]
    assert [place.title for place in content.places] == ["Pythia-160M on 1 x A100", "Pythia-1B on 4 x A100", *vit]
    settings = [row["settings"] for row in content.places[1].trials]
    assert settings == ["naive", "free_lunch+zero_1", "free_lunch+flash+zero_1", "free_lunch+checkpointing"]
    (naive,) = (panel for panel in figure(content, "3").panels if panel.title == "Naive settings, here")
    assert [row.model for row in naive.rows if isinstance(row, Mark)] == ["Pythia-160M", "Pythia-1B", *["ViT"] * 4]
    drawn = svg(naive)
    columns = [drawn.index(f">{machine}</text>") for machine in machines]
    assert columns == sorted(columns)
    assert content.title == f"Report of a run on {', '.join(machines[:-1])} and {machines[-1]}"


def test_several_nodes_and_limited_memory_are_said_of_every_trial_and_no_other_verdict_is_theirs(
    tmp_path: Path,
) -> None:
    run = [
        record("pythia-1b", "naive", 20.0, count=8),
        record("pythia-1b", "naive", 60.0, count=4, nodes=2, reason="slow", remedy="wait", true_days=90.0),
        record("pythia-1b", "naive", None, count=8, memory=2**30, status="out_of_memory", reason="full", remedy="more"),
        record("pythia-1b", "naive", 0.1, count=8, scale="tiny"),
    ]
    folder = results_folder(tmp_path / "run", *run)
    content = compose(read(folder))
    assert content.title == "Report of a run on 8 x A100, 8 x A100 of 1GiB and 2 nodes of 4 x A100"
    says = {place.title: " ".join(place.says) for place in content.places}
    assert len(says) == len(run)
    assert [title for title, said in says.items() if "Table 4, " in said] == ["Pythia-1B on 8 x A100"]
    printed = repro("report", str(folder)).stdout
    trials = printed.partition("\nTRIALS\n")[2].partition("\n- Times")[0]
    assert [trials.count(machine) for machine in ("2 nodes of 4 x A100", "8 x A100 of 1GiB")] == [1, 1]
    assert "run with" not in trials, "the machine says the limit"
    assert "pythia-1b, 2 nodes of 4 x A100, naive" in printed
    assert "pythia-1b, 8 x A100 of 1GiB, naive" in printed


def test_the_papers_days_stand_beside_machines_like_the_papers_alone() -> None:
    for other, output in (
        ({}, "41 (Table 4)"),
        ({"nodes": 2}, None),
        ({"memory": 2**30}, None),
        ({"memory": 80 * 2**30, "gpu": "H200"}, "41 (Table 4)"),
        ({"memory": 77 * 2**30, "gpu": "H200"}, "41 (Table 4)"),
        ({"memory": 2**30, "gpu": "H200"}, None),
        ({"memory": 100 * 2**30, "gpu": "H200"}, None),
        ({"memory": 80 * 2**30, "gpu": "H200", "nodes": 2}, None),
        ({"scale": "tiny"}, None),
    ):
        given: dict[str, Any] = {"gpu": "L40S", **other}
        (row,) = trial_rows([record("pythia-1b", "naive", 60.0, **given)], "A100")
        assert row["paper, A100"] == output


def test_a_gpu_stands_beside_the_papers_that_its_settings_are_of() -> None:
    """An RTX 4090's peak is an A6000's, its memory an RTX 3090's, whose settings a run takes."""
    for gpu, papers in (("RTX 4090", "RTX 3090"), ("L40S", "A6000"), ("H200", "H100"), ("A100", "A100")):
        assert nearest_paper_gpu([Device(0, 0, "GPU-0", gpu, find(gpu), 80 * 10**9, (8, 0))]) == papers
    assert nearest_paper_gpu([]) is None


def test_the_legend_explains_the_columns_that_are_there_and_no_other(
    kept: Content, on_gpus: Content, pages: tuple[str, str], tmp_path: Path
) -> None:
    words = ["MBS:", "GAS:", "authors s,", "true: device time", "authors/true:", "examples/s:", "MFU:", "peak GiB:"]
    words += ["step s:", "paper's column"]
    of_a_cpu = [True] * 6 + [False, True, False, False]
    of_gpus = [True] * 8 + [False, True]
    for content, drawn, there in zip((kept, on_gpus), pages, (of_a_cpu, of_gpus), strict=True):
        output = "\n".join(content.legend)
        assert [word in output for word in words] == there
        assert all(line in unescape(drawn) for line in content.legend)
        assert output.count("true: device time") == 1, "the clocks' key comes once"
    printed = repro("report", str(KEPT), "--out", str(tmp_path)).stdout
    of_the_terminal = [True, True, False, False, False, True, False, True, True, False]
    assert [word in printed for word in words] == of_the_terminal


def test_what_a_cpu_had_resident_is_not_said_to_be_less_than_its_limit() -> None:
    """A tiny ViT on 2 CPUs had 46 MiB resident where its data were held to 40."""
    of_a_gpu, of_a_cpu = legend(["peak GiB"])[-1].split("; on a CPU ")
    assert "reserved, which is more" in of_a_gpu
    assert "the data segment, which has no libraries and no shared memory" in of_a_cpu


def test_tiny_trials_full_ones_and_those_that_failed_share_a_table() -> None:
    run = [
        record("pythia-1b", "naive", 60.0),
        record("pythia-1b", "naive", 0.1, scale="tiny"),
        record("pythia-1b", "free_lunch", None, scale="tiny", status="crashed", reason="an error", remedy="see"),
    ]
    for records in (run, run[1:]):
        full, *others = trial_rows(records, None)
        assert all(row.keys() == full.keys() for row in others)
        assert full["MFU"] is not None
        assert len(report(records, judge_tables(records, 0.15), None, "csv").splitlines()) == 1 + len(records)
    assert trial_rows(run, None)[0]["days (authors)"] == pytest.approx(60)
    assert trial_rows(run, None)[1]["days (authors)"] is None, "a twin has no days of the paper's training"


def test_the_environment_names_machine_stack_and_lock(kept: Content) -> None:
    facts = dict(kept.environments[0].facts)
    assert facts["CPU"] == "AMD EPYC, 2 cores, 24 GiB"
    assert facts["packages"] == "locks/cpu.lock, all as locked"
    assert "torch 2.13.0+cpu" in facts["stack"]
    assert ("torch", "2.13.0+cpu") in kept.environments[0].packages
    assert re.search(r", commit [0-9a-f]{12}$", facts["repro"]), "a whole hash breaks on a phone"


def test_the_commands_give_the_same_run_again(kept: Content) -> None:
    commands = [command for command, _ in kept.rerun]
    assert f"{command()} --processes 1,2 --out {KEPT}" in commands  # then everyone's
    assert f"{command()} report {KEPT}" in commands


@pytest.mark.slow
def test_a_folder_whose_name_is_no_utf_8_has_a_report_whose_commands_name_it(tmp_path: Path) -> None:
    folder = shutil.copytree(KEPT, tmp_path / os.fsdecode(b"it's \\ \xff"))
    with drawing():
        done = process("report", str(folder), "--format", "markdown")
    assert done.returncode == 0, done.stderr
    output = re.search(r" report (.*)`: this report", (folder / "report.md").read_text(encoding="utf-8"))
    assert output is not None
    assert output[1] in unescape((folder / "report.html").read_text(encoding="utf-8"))
    named = subprocess.run(["bash", "-c", f"printf %s {output[1]}"], capture_output=True, check=True).stdout
    assert named == os.fsencode(folder)


def test_every_table_that_it_names_can_be_had_as_it_says(kept: Content, published: Content) -> None:
    for content in (kept, published):
        words, says = next(each for each in content.rerun if " table 1" in each[0])
        given = shlex.split(words)[shlex.split(words).index("table") + 2 :]
        for table in re.findall(r"\b[1-7j]\b", says):
            found = repro("table", table, *given)
            assert found.returncode == 0, found.stderr
    assert "5, 6, 7" in says, "without a run those of prices too"


def test_a_report_says_where_the_papers_numbers_are_from_if_not_from_those_that_come_with_repro(
    expected: Path, published: Content, tmp_path: Path
) -> None:
    said = f"The paper's numbers are those in {expected} (REPRO_EXPECTED), not those that come with repro."
    assert said in repro("report", "--out", str(tmp_path / "out")).stdout
    assert said in (tmp_path / "out" / "report.md").read_text()
    assert not any("REPRO_EXPECTED" in line for line in published.headline.behind)


def test_of_a_folder_that_lost_its_environment_nothing_is_said_but_what_its_records_tell(tmp_path: Path) -> None:
    folder = results_folder(tmp_path / "run", record("pythia-1b", "naive", 160.0, count=1))
    text = repro("report", str(folder)).stdout
    assert "no GPU took part" not in text
    output = (folder / "report.md").read_text()
    assert "no GPU took part" not in output
    assert f"report {folder}`: this report" in output


def test_what_is_unsupported_was_not_tried(tmp_path: Path) -> None:
    run = [record("pythia-1b", each.id, None, count=1, status="unsupported") for each in search_space(1)[1:]]
    content = compose(read(results_folder(tmp_path / "run", record("pythia-1b", "free_lunch", 80.0, count=1), *run)))
    assert content.places[0].says[0] == "1 of the 12 settings of the paper's search was tried."


def test_what_was_not_tried_is_not_called_infeasible(tmp_path: Path) -> None:
    run = [
        record("pythia-1b", "naive", None, count=1, status="out_of_memory"),
        record("pythia-160m", "free_lunch", None, count=1, status="out_of_memory"),
    ]
    content = compose(read(results_folder(tmp_path / "run", *run)))
    for number in ("3", "10"):
        panels = [panel for panel in figure(content, number).panels if panel.origin == "measured"]
        states = {(row.model, panel.title): row.state for panel in panels for row in panel.rows}  # type: ignore[union-attr]
        wanted = {"infeasible", "not known"} if number == "3" else {"not known"}
        assert set(states.values()) == wanted, states


def test_what_ran_out_of_memory_that_another_process_held_is_not_called_infeasible(tmp_path: Path) -> None:
    """As its cell is not. Of a search that settles nothing no figure is drawn."""
    every = [NAIVE, *search_space(1)]
    run = [
        record("vit", each.id, None, count=1, status="out_of_memory", gpu_state=[{"processes": 2}]) for each in every
    ]
    content = compose(read(results_folder(tmp_path / "run", *run)))
    panels = [panel for panel in figure(content, "3").panels if panel.origin == "measured"]
    assert {row.state for panel in panels for row in panel.rows} == {"not known"}  # type: ignore[union-attr]
    assert "10" not in {each.number for each in content.figures}


def test_trials_of_other_rounds_are_reported_apart(tmp_path: Path) -> None:
    once = record("vit", "naive", 10.0, gpu="cpu", count=1, scale="tiny", busy_cpus=1.0)
    [place] = compose(read(results_folder(tmp_path / "run", once, of_more_rounds(once)))).places
    assert [row["settings"] for row in place.trials] == ["naive", "naive (9-rounds)"]
    [note] = place.notes
    assert note.startswith("naive, naive (9-rounds): other processes")


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


def test_the_audit_is_laid_out_like_table_1_with_its_causes(published: Content) -> None:
    table1, table4 = published.audit_grids
    entries = dict(table1.lines)["Pythia-160M"]
    assert [entry.text for entry in entries[:4]] == ["115", "132", "197", "197"]
    assert {entry.kind for entry in entries[:4]} == {"impossible"}
    assert [entry.kind for entry in dict(table4.lines)["Mamba"]] == ["no_days"] * 16
    for table in (table1, table4):
        assert len({symbol for _, symbol, _ in table.kinds}) == 4, "no two swatches look alike"
    assert len(published.causes) == 5


def test_the_claims_are_counted_and_those_that_differ_come_first(published: Content) -> None:
    assert re.match(r"Of \d+ claims \d+ hold, \d+ hold by rounding, \d+ differ, ", published.claims_text)
    title, differing = published.claims[0]
    assert title == "What differs"
    assert {row["verdict"] for row in differing} == {"differs"}
    every = [row for title, rows in published.claims[1:] for row in rows]
    assert published.claims_text.startswith(f"Of {len(every)} claims ")
    assert [row for row in every if row["verdict"] == "differs"] == differing


# Figures


def test_a_run_draws_what_it_measured_and_without_one_all_figures_are_there(kept: Content, published: Content) -> None:
    numbers = [[figure.number for figure in content.figures] for content in (kept, published)]
    assert numbers[0] == ["2", "3", "4, 11", "5", "9", "10"]
    assert numbers[1] == ["2", "3", "4, 11", "5", "6", "7", "12", "13", "9", "10", "", ""], "the last two are ours"
    assert all(any("measured" in panel.origin for panel in each.panels) for each in kept.figures)
    for content in (kept, published):
        for each in content.figures:
            assert each.panels or each.lacking, "a figure without numbers says what measures them"
            for panel in each.panels:
                assert panel.rows
                assert panel.source
    origins = {panel.origin for each in published.figures for panel in each.panels}
    assert origins == {"published", "computed", "predicted"}
    assert {panel.origin for each in kept.figures for panel in each.panels} == {"measured", "published", "computed"}
    by_us = {each.title for each in published.figures for panel in each.panels if panel.origin == "computed"}
    assert by_us == {"FLOPs and throughput", "When owning beats renting"}


def test_figures_that_the_paper_prints_no_numbers_for_say_which_command_measures_them(published: Content) -> None:
    for number in ("4, 11", "5", "10"):
        assert figure(published, number).measured_by == f"{command()} --gpus all --methods all"
    assert figure(published, "5").panels == []
    # Its settings in Appendix J have lost their marks, which may have been those of free lunch alone.
    assert "or their mark is lost, as of Mamba on several A100," in figure(published, "10").lacking


def test_speed_ups_are_naive_days_over_the_best(published: Content, kept: Content) -> None:
    (panel,) = figure(published, "2").panels
    ratios = {(row.group, row.note): row.value for row in panel.rows if row.series == "best settings"}  # type: ignore[union-attr]
    assert ratios["A100", "Pythia-1B, 4 GPUs"] == pytest.approx(41 / 18)
    assert len(ratios) == 44
    measured, _ = figure(kept, "2").panels
    assert (measured.origin, len(measured.rows)) == ("measured", 36)
    assert "tiny twins of the recipes, which say nothing of the paper's" in measured.source
    pythia = [row.value for row in measured.rows if isinstance(row, Point) and row.group.startswith("Pythia")]
    assert (
        f"Measured here, for Pythia: {fmean(pythia[1::2]):.2f} times (mean of 10 pairs of model and machine, "
        in figure(kept, "2").says
    )


def test_what_naive_settings_cannot_train_is_9_of_20(published: Content) -> None:
    assert "cannot train 9 of the 20 pairs of model and GPU, the best settings none" in figure(published, "3").says


def test_gains_and_spread_come_from_whole_searches_alone(kept: Content, on_gpus: Content) -> None:
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
    assert not {"4, 11", "5"} & {each.number for each in on_gpus.figures}


def test_what_a_gain_below_zero_means_is_said_beside_it_and_on_the_axis(kept: Content, tmp_path: Path) -> None:
    days = {settings.id: 240.0 for settings in search_space(1)} | {"naive": 320.0, "free_lunch": 160.0}
    run = [record("pythia-1b", settings, spent, count=1) for settings, spent in days.items()]
    (panel,) = figure(compose(read(results_folder(tmp_path / "run", *run))), "4, 11").panels
    assert described(panel).startswith("Bars by place: slower -50.")
    (line,) = numbers(panel)
    assert line["% less training time (below 0: % more)"] == pytest.approx(-50)
    assert "% less training time (below 0: % more)" in svg(panel)
    assert "-10 a tenth more" in figure(kept, "4, 11").says


def test_free_lunch_with_flash_attention_is_free_lunch_alone(tmp_path: Path) -> None:
    space = [replace(settings, attention="flash").id for settings in search_space(1)]
    days = {"naive": None} | dict.fromkeys(space, 240.0) | {"free_lunch+flash": 160.0, space[1]: 120.0}
    ran: list[Status] = ["out_of_memory" if spent is None else "ok" for spent in days.values()]
    run = [
        record("pythia-1b", settings, spent, count=1, status=status)
        for (settings, spent), status in zip(days.items(), ran, strict=True)
    ]
    content = compose(read(results_folder(tmp_path / "run", *run)))
    assert content.places[0].says[0] == "12 of the 12 settings of the paper's search were tried, and naive settings."
    assert list(points(figure(content, "4, 11").panels[0]).values()) == pytest.approx([25.0])
    assert "the median takes 1.50 times as long as free lunch alone" in figure(content, "5").says
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
    assert isinstance(mark, Mark)
    assert mark.state == "free lunch"


def test_gpu_days_are_held_against_the_original_trainings(published: Content) -> None:
    (panel,) = figure(published, "6").panels
    assert points(panel)["Pythia-1B", "original training"] == 64 * 3
    assert points(panel)["Pythia-1B", "best settings, 8 A100"] == 8 * 9
    assert "Mamba" not in {group for group, _ in points(panel)}, "its original does not say"


def test_costs_are_those_of_the_machine_and_of_its_days(published: Content, on_gpus: Content) -> None:
    true = ModelDays("pythia-1b", DaysAsked()).on(paper_gpu("H100"), 8)
    assert true is not None
    panels = figure(published, "7").panels
    assert [panel.origin for panel in panels] == ["predicted", "predicted", "published", "published"]
    for (machine, experiment), days in zip((panels[:2], panels[2:]), (true.days.value, 4.0), strict=True):
        eight = {(row.gpu, row.gpus): row for row in machine.rows if isinstance(row, Trade)}["H100", 8]
        assert (eight.cost, eight.days, eight.kind) == (8 * 30_000 + 10_500, days, "best")
        each = {(row.gpu, row.gpus): row for row in experiment.rows if isinstance(row, Trade)}["H100", 8]
        assert each.cost == pytest.approx(250_500 * days / (5 * 365))
    assert [panel.title for panel in figure(published, "12").panels] == list(
        dict.fromkeys(cell.model for cell in cells("1"))
    )
    both = figure(on_gpus, "7").panels[0]
    assert both.origin == "measured and predicted"
    here = {row.gpus: row.days for row in both.rows if isinstance(row, Trade) and row.kind == "here"}
    assert here == pytest.approx({4: 18.2, 8: 12.0})


def test_marks_of_costs_stand_at_their_costs_and_days() -> None:
    rows = [Trade("A100", 1, 1000.0, 9.0, "best"), Trade("H100", 1, 3000.0, 2.0, "best")]
    drawn = vega_lite(Panel("computed", "Costs", "trades", "cost", rows, "a file", y="days"))
    fields = [[layer["encoding"][axis]["field"] for axis in ("x", "y")] for layer in drawn["layer"]]
    assert fields == [["cost", "days"]] * len(fields)


def test_costs_are_drawn_of_machines_as_the_paper_had_them_alone(tmp_path: Path) -> None:
    run = [
        record("pythia-1b", "free_lunch", 20.0),
        record("pythia-1b", "free_lunch+fsdp_3", 17.5, memory=2**30),
        record("pythia-1b", "free_lunch", 9.0, nodes=2),
        record("pythia-1b", "free_lunch", 0.1, count=2, scale="tiny"),
    ]
    drawn = figure(compose(read(results_folder(tmp_path / "run", *run))), "7").panels[0].rows
    here = {row.gpus: row.days for row in drawn if isinstance(row, Trade) and row.kind == "here"}
    assert here == pytest.approx({4: 20.0})


def test_the_best_and_the_fastest_are_said_to_be_the_papers_where_one_measured_here_beats_them(tmp_path: Path) -> None:
    content = compose(read(results_folder(tmp_path, record("pythia-1b", "free_lunch", 21.97, gpu="H100", count=1))))
    trades = [row for row in figure(content, "7").panels[0].rows if isinstance(row, Trade)]
    here = next(trade for trade in trades if trade.kind == "here")
    assert any(trade.kind == "best" and trade.cost > here.cost and trade.days > here.days for trade in trades)
    assert "The fastest of the paper's machines for Pythia-1B, 8 H100," in figure(content, "7").says
    for number in ("7", "12", "13"):
        assert "have no rival among the paper's that is both cheaper and faster" in figure(content, number).says


def test_no_machine_drawn_as_the_best_has_a_rival_both_cheaper_and_faster(published: Content) -> None:
    for number in ("7", "12", "13"):
        for panel in figure(published, number).panels:
            trades = [row for row in panel.rows if isinstance(row, Trade)]
            best = [trade for trade in trades if trade.kind == "best"]
            assert best
            for trade in trades:
                beaten = any(o.cost <= trade.cost and o.days <= trade.days and o != trade for o in best)
                assert beaten == (trade.kind == "beaten")


def test_flops_and_peaks_stand_beside_ours(published: Content) -> None:
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


def test_owning_and_renting_meet_where_the_break_even_is(published: Content) -> None:
    both = next(each for each in published.figures if each.title == "When owning beats renting")
    for panel, run in zip(both.panels, (6, 9), strict=True):
        spent = {(row.series, row.x): row.y for row in panel.rows if isinstance(row, Curve)}
        assert spent["owning", run] <= spent["renting", run]
        assert spent["owning", run - 1] > spent["renting", run - 1]
        assert f"from run {run} on" in both.says


def test_what_more_gpus_bring_is_their_speed_up_over_their_number(published: Content) -> None:
    found = next(each for each in published.figures if each.title == "What more GPUs bring")
    pythia = {(row.series, row.x): row.y for row in found.panels[0].rows if isinstance(row, Curve)}
    rows = ModelDays("pythia-1b", DaysAsked()).everywhere([paper_gpu("RTX 3090")])
    days = {row.gpus: row.days.value for row in rows if row.gpu == "RTX 3090"}
    assert pythia["RTX 3090", 8] == pytest.approx(min(gpus * each for gpus, each in days.items()) / (8 * days[8]))
    assert "Pythia-1B on 1 RTX 3090, 2 A6000, 1 A100, 1 H100; " in found.says, "as repro cost says"


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


def test_every_chart_is_valid_vega_lite(kept: Content, published: Content) -> None:
    panels = [panel for content in (kept, published) for each in content.figures for panel in each.panels]
    parts = [Point("1", "Days", 3), Point("1", "Weeks", 20), Point("2", "Days", 9)]  # as the survey's page has them
    shares = [Span("train", "answers", 60, 50, 70), Span("train", "paper", 75, 69.5, 80.5)]
    panels.append(Panel("answered", "Desktop GPUs", "stacks", "people", parts, "answers", y="number of GPUs"))
    panels.append(Panel("answered", "Shares", "spans", "% of people", shares, "answers", groups="share"))
    for draw in get_args(Draw):
        panel = next(panel for panel in panels if panel.draw == draw)
        TopLevelSpec.validate(vega_lite(panel))
        drawn = svg(panel)
        assert drawn.startswith("<svg ")
        assert ' role="img" aria-labelledby="panel-name" aria-describedby="panel-text"><title id="panel-name">' in drawn
        assert f'<desc id="panel-text">{described(panel).split(":")[0]}: ' in drawn
        assert "undefined" not in drawn
        assert "NaN" not in drawn
        label = re.search("<title[^>]*>([^<]*)</title>", drawn)
        assert label
        for axis in filter(None, (panel.x, panel.y)):
            assert axis in re.sub("&#?[a-z0-9]+;", "'", drawn)
            assert axis in unescape(label[1]), "those who cannot see it are told its axes"


def test_the_parts_of_a_bar_are_joined_and_the_number_of_each_is_in_its_middle() -> None:
    parts = [Point("1", "Days", 3), Point("1", "Weeks", 20), Point("2", "Weeks", 9), Point("2", "Days", 1)]
    panel = Panel("answered", "Desktop GPUs", "stacks", "people", parts, "answers", y="number of GPUs")
    drawn = {(row["group"], row["series"]): row for row in vega_lite(panel)["datasets"]["rows"]}
    spans = {key: (row["start"], row["middle"], row["end"], row["number"]) for key, row in drawn.items()}
    assert spans == {
        ("1", "Days"): (0, 1.5, 3, "3"),
        ("1", "Weeks"): (3, 13, 23, "20"),
        ("2", "Days"): (0, 0.5, 1, ""),
        ("2", "Weeks"): (1, 5.5, 10, "9"),
    }


def test_a_table_has_the_bounds_of_each_of_two_spans_in_a_line() -> None:
    shares = [Span("train", "answers", 60, 50, 70), Span("train", "paper", 75, 69.5, 80.5)]
    [line] = numbers(Panel("answered", "Shares", "spans", "% of people", shares, "answers", groups="share"))
    assert line == {
        "share": "train",
        "answers": 60,
        "answers from": 50,
        "answers to": 70,
        "paper": 75,
        "paper from": 69.5,
        "paper to": 80.5,
    }


def test_what_is_drawn_is_said_with_the_ends_of_every_series(published: Content, kept: Content) -> None:
    (pythia,) = figure(published, "2").panels
    assert described(pythia) == (
        "Dots by GPU: best settings 1.86 to 7.67, analytic estimate 2.27 to 11.5. A dashed line marks naive settings, "
        "1. The numbers follow as a table."
    )
    naive = next(panel for panel in figure(published, "3").panels if "Naive" in panel.title)
    assert described(naive).startswith("Fields by model and machine: feasible 11, infeasible 9.")


def test_all_that_a_panel_draws_is_in_its_table(kept: Content, on_gpus: Content) -> None:
    for panel in (panel for content in (kept, on_gpus) for each in content.figures for panel in each.panels):
        lines = numbers(panel)
        assert all(line.keys() == lines[0].keys() for line in lines)
        drawn = {"cost", "days", "value", "y", "state"}
        values = [value for row in panel.rows for name, value in vars(row).items() if name in drawn]
        there = [value for line in lines for value in line.values()]
        assert all(values.count(value) <= there.count(value) for value in values), panel.title
        assert {row.note for row in panel.rows if isinstance(row, Point)} - {""} <= set(there)
    flops = numbers(figure(kept, "9").panels[1])
    assert list(flops[6]) == ["model", "paper, figure 9", "closed form", "note"]
    assert (flops[6]["model"], flops[6]["note"]) == ("Mamba", "paper 0.17 x")
    machine = numbers(figure(on_gpus, "7").panels[0])[-1]
    assert (machine["GPU"], machine["GPUs"], machine["days of training"]) == ("A100, here", 8, pytest.approx(12))


def test_a_series_looks_the_same_whatever_comes_first_and_is_beside_it(kept: Content, on_gpus: Content) -> None:
    (slower,) = looks(["slower"], ()).values()
    for series in (["slower", "faster"], ["faster", "slower"], ["slower"]):
        bars = [Point(f"place {number}", name, number + 1.0) for number, name in enumerate(series)]
        drawn = svg(Panel("measured", "Gains", "bars", "%", bars, "trials.jsonl"))
        assert drawn.count(f'fill="{slower.colour}"') == 2, "the bar and its mark in the legend"
        assert list(looks(series, ())) == sorted(series)
    machines = ["1 x A100", "2 x A100", "4 x A100"]
    assert looks(machines, machines)["4 x A100"] == looks(["4 x A100"], machines)["4 x A100"]
    assert looks(["A100, here"], ())["A100, here"].colour == looks(["A100"], ())["A100"].colour
    assert len(set(looks(["H200, here", "B200, here"], ()).values())) == 2, "GPUs with a price that the paper has not"
    for panel in (panel for content in (kept, on_gpus) for each in content.figures for panel in each.panels):
        named = {row.gpu if isinstance(row, Trade) else row.series for row in panel.rows if not isinstance(row, Mark)}
        chosen = looks(named, panel.machines)
        assert len(set(chosen.values())) == len(named), "no two of a panel look alike"


def test_a_legend_names_means_and_the_dashed_line(published: Content, on_gpus: Content) -> None:
    (pythia,) = figure(published, "2").panels
    here, _ = figure(on_gpus, "2").panels
    scaling = next(each for each in published.figures if each.title == "What more GPUs bring").panels[0]
    for panel, output in (
        (pythia, ["mean", "naive settings"]),
        (here, ["naive settings"]),  # one dot has no mean
        (scaling, ["proportional"]),
    ):
        drawn = svg(panel)
        assert [name for name in ("mean", "naive settings", "proportional") if f">{name}</text>" in drawn] == output


# The files


def test_the_page_is_whole_in_itself(pages: tuple[str, str]) -> None:
    for text in pages:
        assert "<script" not in text
        assert "@import" not in text
        assert not re.search(r"""(src|data)=["'](?!$)""", text)
        assert not re.search(r"url\((?!#)", text)
        assert not [link for link in re.findall(r'href="([^"]*)"', text) if not link.startswith("#")]
        ids = re.findall(r'\bid="([^"]*)"', text)
        assert len(ids) == len(set(ids))
        assert {link[1:] for link in re.findall(r'href="([^"]*)"', text)} <= set(ids)


def test_what_a_run_says_cannot_put_markup_into_the_page(pages: tuple[str, str]) -> None:
    _, on_gpus = pages
    assert "<b>none</b> fits" not in on_gpus
    assert "&lt;b&gt;none&lt;/b&gt; fits" in on_gpus


def test_a_report_is_kept_beside_the_run_that_is_kept(kept: Content) -> None:
    assert f"> {kept.headline.quote}" in (KEPT / "report.md").read_text()
    assert kept.headline.quote in (KEPT / "report.html").read_text()


def test_a_model_of_ones_own_begins_with_its_days_and_names_no_cell_of_the_paper(tmp_path: Path) -> None:
    output = repro("report", str(ROOT / "results" / "llama-h100"), "--out", str(tmp_path)).stdout
    assert output.startswith("llama-1a63bce6 takes 3.6 days on 1 x H100 with free_lunch settings.\n")
    assert "288 cells" not in output
    assert "of its 144 cells" not in output
