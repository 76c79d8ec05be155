"""The verdict on the predictions of 2026-11-25 follows from their file, which stays as it was, and from the H100's."""

from __future__ import annotations

import csv
import hashlib
import json
import re
import shutil
import subprocess
from statistics import median
from typing import Any

import pytest

from benchmarks import predicted
from tests.command_line import ROOT

SHA256 = "7bc34c4be8dce17a6bb8442dbf0512c2d816f671ca9a543e9afa844fe7af70e7"


def raw() -> list[tuple[dict[str, str], dict[str, Any]]]:
    """Each trial that was tried, as its line is, with the row that predicted it."""
    rows = {(row["recipe"], row["settings"]): row for row in csv.DictReader(predicted.PREDICTED.open())}
    lines = [line for folder in predicted.MEASURED for line in (folder / "trials.jsonl").read_text().splitlines()]
    records = [record for record in map(json.loads, lines) if record["status"] != "skipped"]
    return [(rows[record["recipe"], record["settings"]], record) for record in records]


def test_the_predictions_are_those_that_were_made_before_the_measurement() -> None:
    assert hashlib.sha256(predicted.PREDICTED.read_bytes()).hexdigest() == SHA256
    assert SHA256 in predicted.PAGE.read_text()


@pytest.mark.skipif(
    not (ROOT / ".git").exists() or (ROOT / ".git" / "shallow").exists() or shutil.which("git") is None,
    reason="no checkout with its history",
)
def test_no_commit_has_changed_the_predictions_since_the_measurement() -> None:
    command = ["git", "log", "-1", "--format=%ct", "--", str(predicted.PREDICTED)]
    committed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert int(committed) < min(record["stack_started"] for _, record in raw() if record.get("stack_started"))


def test_the_page_is_what_the_script_makes_of_the_files() -> None:
    assert predicted.PAGE.read_text() == predicted.page(predicted.judged())


def test_its_sums_are_those_of_the_raw_lines() -> None:
    ran = [(row, record) for row, record in raw() if record["status"] == "ok"]
    sizes = sum(int(row["micro_batch"]) == record["micro_batch"] for row, record in ran)
    feasible = sum((row["feasible"] == "True") == (record["status"] == "ok") for row, record in raw())
    page = predicted.PAGE.read_text()
    assert f"right in {feasible} of {len(raw())} trials" in page
    assert f"right in {sizes} of {len(ran)} that fit" in page
    for clock, words in (("true_step", "the true step"), ("authors_step", "the authors' clock")):
        error = median(abs(float(row["step_seconds"]) / record[clock] - 1) for row, record in ran)
        assert f"| the step, beside {words} | {100 * error:.0f} % off in the median |" in page


def test_it_has_a_line_of_each_trial() -> None:
    lines = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in predicted.PAGE.read_text().splitlines()
        if re.match(r"\| [a-z0-9.-]+ +\| (naive|free_lunch)", line)
    ]
    assert [line[:2] for line in lines] == [[record["recipe"], record["settings"]] for _, record in raw()]
    for line, (row, record) in zip(lines, raw(), strict=True):
        assert line[2:4] == ["yes" if row["feasible"] == "True" else "no", "yes" if record["status"] == "ok" else "no"]
        if record["status"] == "ok":
            assert [int(cell) for cell in line[4:6]] == [int(row["micro_batch"]), record["micro_batch"]]
            ratio = float(row["step_seconds"]) / record["true_step"]
            assert float(line[9]) == pytest.approx(ratio, abs=0.005)
