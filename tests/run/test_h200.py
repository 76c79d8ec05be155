"""The kept runs on an H200: commands read them, none is compared with the paper, and their page has the days."""

from __future__ import annotations

import json
from itertools import chain
from pathlib import Path

import pytest

from repro import models
from repro.record import Record
from repro.run.reading import read
from tests.support.command_line import ROOT, answer, repro

HOME = ROOT / "results" / "h200"
FOLDERS = sorted(each.parent for each in HOME.glob("*/trials.jsonl"))
MEASURED = tuple(chain.from_iterable(("--measured", str(folder)) for folder in FOLDERS))
RUNS = [read(folder) for folder in FOLDERS]
RECORDS = [record for run in RUNS for record in run.records]
RAN = [record for record in RECORDS if record.status == "ok"]
PAGE = (HOME / "README.md").read_text()


# --- Commands ---


def test_thirteen_trials_are_of_one_h200_each_and_eleven_ran() -> None:
    assert len(RECORDS) == 13
    assert len(RAN) == 11
    assert {(one.device, one.count) for one in RECORDS} == {("H200", 1)}
    problems = [str(problem).partition(":")[0] for run in RUNS for problem in run.problems]
    assert problems == ["trials.jsonl"], "flash was stopped in its second trial"


def test_a_report_of_them_compares_no_cell(tmp_path: Path) -> None:
    done = repro("report", *map(str, FOLDERS), "--out", str(tmp_path), "--format", "json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert len(found["trials"]) == 13
    assert {row["verdict"] for row in found["verdicts"]} == {"not_measured"}
    assert "the paper has no H200" in (tmp_path / "report.md").read_text()


@pytest.mark.parametrize("table", ["1", "4"])
def test_no_cell_of_a_table_is_verified_by_them(table: str) -> None:
    assert {row["verdict"] for row in answer("table", table, *MEASURED)} == {"not_measured"}


def test_an_audit_finds_their_days_plausible() -> None:
    found = [row for row in answer("audit", *MEASURED) if row["table"] == "measured" and row["clock"] == "true"]
    assert {row["days"] for row in found} == {one.derived.true_days for one in RAN}
    assert {row["verdict"] for row in found} == {"plausible"}


def test_each_trial_stands_beside_its_prediction() -> None:
    found = answer("predict", "--gpu", "H200", *MEASURED)
    assert sorted((row["recipe"], row["status"]) for row in found) == sorted(
        (one.recipe, one.status) for one in RECORDS
    )
    for row in found:
        assert row["predicted_micro_batch"] == row["measured_micro_batch"]


# --- The page ---


@pytest.mark.parametrize("one", RAN, ids=lambda one: one.recipe + " " + one.settings)
def test_the_page_has_what_each_trial_measured(one: Record) -> None:
    true, authors, peak = one.derived.true_days or 0, one.derived.authors_days or 0, one.observed.peak_memory or 0
    name, size = f"{models.find(one.recipe).name} {one.settings.replace('_', ' ')}", one.batch.micro_batch
    assert f"| {name} | {size} | {true:.1f} | {authors:.1f} | {authors / true:.2f} | {peak / 2**30:.0f} GiB |\n" in PAGE
