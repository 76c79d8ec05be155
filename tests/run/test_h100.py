"""The kept runs on an H100, read by every command that reads a run: each folder by itself, and both as one."""

from __future__ import annotations

from itertools import chain
from typing import Any

import pytest

from repro.record import Record
from repro.run.reading import read
from tests.support.command_line import ROOT, answer, repro

TEXT, VISION = "results/h100/text", "results/h100/vision"
BOTH = ("--measured", TEXT, "--measured", VISION)
RECORDS = {folder: read(ROOT / folder).records for folder in (TEXT, VISION)}
RAN = [record for record in chain(*RECORDS.values()) if record.status == "ok"]
FULL = [record for record in chain(*RECORDS.values()) if record.status == "out_of_memory"]
Row = dict[str, Any]


def fastest(model: str) -> Record:
    """The trial of the least true days of a model, naive settings left out."""
    return min(
        (one for one in RAN if one.recipe == model and one.settings != "naive"),
        key=lambda one: one.derived.true_step or 0,
    )


# --- The records ---


def test_every_record_is_valid_and_what_is_missing_is_named() -> None:
    for folder, number, missing, first in (
        (TEXT, 11, "2 of the 13", "pythia-2.8b/paper/1xH100/free_lunch"),
        (VISION, 15, "13 of the 26", "pythia-160m/paper/1xH100/naive"),
    ):
        found = read(ROOT / folder)
        assert len(found.records) == number
        [trials] = map(str, found.problems)
        assert trials.startswith(
            f"trials.jsonl: {missing} trials that the last command asked for have no valid record, "
        )
        assert first in trials


def test_thirteen_trials_ran_and_two_ran_out_of_memory() -> None:
    assert len(RAN) == 13
    assert [one.id for one in FULL] == ["mamba/paper/1xH100/naive", "pythia-2.8b/paper/1xH100/naive"]
    assert all(one.batch.full for one in FULL), "what the GPU said of itself"


@pytest.mark.parametrize("one", RAN, ids=lambda one: one.id)
def test_device_time_is_the_time_that_passes(one: Record) -> None:
    assert one.derived.true_step == pytest.approx(one.derived.synchronised_step, rel=0.01)
    assert one.derived.utilisation is not None
    assert 0 < one.derived.utilisation < 0.7, "of the GPU's peak"


def test_the_authors_clock_shows_a_part_of_it() -> None:
    shares = [one.clocks_ratio or 0.0 for one in RAN]
    assert (min(shares), max(shares)) == pytest.approx((0.21, 0.94), abs=0.005)


@pytest.mark.parametrize("folder", [TEXT, VISION])
def test_a_folder_of_runs_keeps_its_report(folder: str) -> None:
    for name in ("report.md", "report.html"):
        assert "Report of a run on 1 x H100" in (ROOT / folder / name).read_text()


def test_beside_the_folders_of_runs_there_is_nothing() -> None:
    assert all((each / "trials.jsonl").is_file() for each in (ROOT / "results" / "h100").iterdir())


# --- Tables, verdicts, claims, audit ---


@pytest.mark.parametrize(("table", "cells"), [("1", 7), ("4", 8)])
def test_a_table_has_their_days_beside_the_papers(table: str, cells: int) -> None:
    rows = {row["model"]: row for row in answer("table", table, *BOTH) if row["verdict"] != "not_measured"}
    assert len(rows) == cells
    assert {(row["gpu"], row["gpus"]) for row in rows.values()} == {("H100", 1)}
    for row in rows.values():
        ran = [one for one in RAN if one.recipe == row["model"].lower() and one.settings == row["true_settings"]]
        assert [row["true_days"]] == ([one.derived.true_days for one in ran] or [None])
    if table == "4":
        assert rows["ConvNeXt"]["verdict"] == "no_reference", "the printed days are lost"
        assert {rows[model]["verdict"] for model in ("Pythia-2.8B", "Mamba")} == {"reproduced"}, (
            "infeasible, and so here"
        )


def test_appendix_j_has_their_micro_batches() -> None:
    rows = [row for row in answer("table", "j", *BOTH) if row["measured_settings"]]
    assert len(rows) == 7
    for row in rows:
        [one] = [one for one in RAN if (one.recipe, one.settings) == (row["model"].lower(), row["measured_settings"])]
        assert (row["measured_mbs"], row["measured_gas"]) == (one.batch.micro_batch, one.batch.accumulation)


def test_table_3_has_the_size_of_what_was_built() -> None:
    rows = {row["model"]: row["measured_parameters"] for row in answer("table", "3", *BOTH)}
    assert [model for model, size in rows.items() if size is None] == ["Pythia-6.9B"]
    assert rows["ViT"] == 325_688_657


@pytest.mark.parametrize("folder", [TEXT, VISION])
def test_an_audit_finds_their_true_days_plausible(folder: str) -> None:
    rows = [
        row for row in answer("audit", "--measured", folder) if (row["table"], row["clock"]) == ("measured", "true")
    ]
    assert {row["days"] for row in rows} == {one.derived.true_days for one in RECORDS[folder] if one.status == "ok"}
    assert {row["verdict"] for row in rows} == {"plausible"}


def test_an_audit_finds_what_the_authors_clock_shows_of_some_impossible() -> None:
    rows = [row for row in answer("audit", *BOTH) if (row["table"], row["clock"]) == ("measured", "authors")]
    assert {row["model"] for row in rows if row["verdict"] == "impossible"} == {"Pythia-160M", "Pythia-1B", "ViT"}


# --- Predictions ---


@pytest.mark.parametrize(
    "machine", [("--gpu", "H100"), ("--probes", f"{TEXT}/probes.json")], ids=lambda words: words[0]
)
def test_each_trial_stands_beside_its_prediction(machine: tuple[str, ...]) -> None:
    rows = answer("predict", *machine, *BOTH)
    there = {(row["recipe"], row["settings"]): row for row in rows}
    assert len(there) == len(rows) == 15
    for one in (*RAN, *FULL):
        row = there[one.recipe, one.settings]
        assert (row["status"], row["measured_micro_batch"]) == (one.status, one.batch.micro_batch)


def test_the_papers_tables_are_predicted_beside_them() -> None:
    rows = [row for row in answer("predict", *BOTH) if row["measured_days"] is not None]
    assert len(rows) == 13
    assert {(row["gpu"], row["gpus"]) for row in rows} == {("H100", 1)}


# --- Comparisons ---


def test_the_two_runs_are_of_other_stacks() -> None:
    refused = repro("compare", TEXT, "results/h100")
    assert refused.returncode == 2
    assert refused.stderr.endswith("are runs of different packages: a side is one stack\n")


# --- Money ---


@pytest.mark.parametrize("model", ["pythia-1b", "vit"])
def test_cost_is_of_the_days_that_one_waits(model: str) -> None:
    rows = answer("cost", model, "--gpu", "H100", "--gpus", "1", *BOTH)["rows"]
    assert {row["origin"] for row in rows} == {"measured"}
    assert {row["days"] for row in rows} == {round(fastest(model).derived.true_days or 0, 3)}


def test_the_other_numbers_of_their_gpu_are_projected() -> None:
    rows = answer("cost", "mamba", "--gpu", "H100", *BOTH)["rows"]
    assert {row["gpus"]: row["origin"] for row in rows} == {1: "measured"} | dict.fromkeys((2, 4, 8), "projected")


def test_a_machine_of_ones_own_draws_the_power_that_was_measured() -> None:
    [row] = answer("cost", "roberta", "--gpu", "H100", "--gpus", "1", "--electricity", "1", *BOTH)["rows"]
    assert row["origin"] == "measured"
    assert row["source"].startswith(f"{TEXT}, free_lunch+checkpointing, on today's stack (torch 2.11.0, ")
    states = fastest("roberta").observed.gpu_state
    assert states
    assert states[0]
    watts = 1000 * row["electricity_a_run_usd"] / (24 * row["days"])
    assert watts == pytest.approx(states[0]["power_w"], rel=1e-3)
