"""Projected trials: one rank of several is measured, its communication with the others is modelled."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from repro import models
from repro.measure.launcher import ForkServer
from repro.measure.server import Job, Outcome
from repro.paper.gpus import find
from repro.paper.tables import Cell, published_settings
from repro.record import Record, Trial, WhatRan, derive
from repro.report.terminal import sentences
from repro.run.corrected import corrected_table
from repro.run.projection import Projection
from repro.run.results import TRIALS
from repro.run.verdict import Verdict, judge, judge_tables
from repro.validity import contradiction
from tests.command_line import altered, answer, process, record, refusal, repro, results_folder

NO_SECONDS = {"without": 0.0, "with": 0.0, "update": 0.0}


def projected(model: str, settings: str, days: float, count: int = 4, seconds: dict[str, float] = NO_SECONDS) -> Record:
    """A sound record of rank 0 of several H100 whose own work takes so many days; `seconds` are of communication."""
    one = record(model, settings, days, gpu="H100", count=count)
    trial = Trial(one.recipe, one.scale, one.settings, one.device, one.count, measured_on=1)
    first = {clock: ranks[:1] for clock, ranks in vars(one.times).items()}
    states = (one.observed.gpu_state or [])[:1]
    found = altered(
        one, id=trial.id, origin="projected", measured_on=1, gpu_state=states, communication=seconds, **first
    )
    found.derived = derive(found, find(found.device))
    return found


def cell(days: int | None = 18, gpus: int = 4) -> Cell:
    return Cell("1", "Pythia-1B", "H100", gpus, days, "days" if days else "infeasible", "a test")


def verdict_of(*records: Record, days: int | None = 18) -> Verdict:
    return judge([cell(days)], records, published_settings(), tolerance=0.15)[0]


ZERO_1 = "free_lunch+zero_1"  # Appendix J's settings of Pythia-1B on 4 H100


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--project", "9"], "--project 9: 9 is not from 2 to 8"),
        (["--project", "1,2"], "1 is not from 2 to 8"),
        (["--project", "two"], "--project"),
        (["--processes", "1,2", "--project", "2"], "all of them are measured here"),
        (["--project", "3"], "--project 3: no replication batch here divides by 3"),
        (["--project", "4", "--search", "guided"], "leave out --search guided"),
        (["--project", "4", "--models", "gan"], "gan"),
        (["--check-projection"], "--check-projection changes nothing without --project"),
    ],
)
def test_what_cannot_be_projected_is_refused_before_any_work(arguments: list[str], named: str, tmp_path: Path) -> None:
    assert named in refusal("run", "--out", str(tmp_path / "new"), *arguments)
    assert not (tmp_path / "new").exists()


def test_a_projected_trial_has_an_id_of_its_own() -> None:
    trial = Trial("pythia-1b", "paper", ZERO_1, "H100", 8)
    beside = replace(trial, measured_on=1)
    assert beside.id == f"{trial.id}/projected-from-1"
    assert (beside.ranks, beside.world) == (1, 8)


def test_what_a_record_derives_contains_the_communication_of_each_part() -> None:
    alone = projected("pythia-1b", ZERO_1, 10.0)
    both = projected("pythia-1b", ZERO_1, 10.0, seconds={"without": 1.0, "with": 2.0, "update": 3.0})
    assert alone.derived.true_step is not None
    assert both.derived.true_step is not None
    assert both.batch.accumulation is not None
    assert both.derived.true_step - alone.derived.true_step == pytest.approx(both.batch.accumulation - 1 + 2.0 + 3.0)
    assert both.times.device_times == alone.times.device_times, "what was measured stays beside what is modelled"
    assert contradiction(both) is None


@pytest.mark.parametrize(
    "forged",
    [
        {"origin": "measured"},
        {"measured_on": None},
        {"measured_on": 4},
        {"communication": None},
        {"communication": {"with": 0.0}},
        {"communication": NO_SECONDS | {"with": -1.0}},
    ],
)
def test_a_record_that_hides_what_is_projected_is_left_out(forged: dict[str, Any]) -> None:
    sound = projected("pythia-1b", ZERO_1, 10.0)
    assert contradiction(sound) is None
    assert contradiction(replace(sound, **forged)) is not None


@pytest.mark.parametrize(
    ("days", "word"), [(18.0, "projected_reproduced"), (9.0, "projected_faster"), (30.0, "projected_slower")]
)
def test_a_projected_cell_has_words_of_its_own_and_verifies_nothing(days: float, word: str) -> None:
    found = verdict_of(projected("pythia-1b", ZERO_1, days))
    assert (found.verdict, found.projected, found.compared) == (word, True, False)
    assert found.true.days == pytest.approx(days)


def test_a_cell_that_was_measured_is_judged_by_what_was_measured() -> None:
    found = verdict_of(projected("pythia-1b", ZERO_1, 18.0), record("pythia-1b", ZERO_1, 40.0, gpu="H100"))
    assert (found.verdict, found.compared) == ("slower", True)
    differs = verdict_of(projected("pythia-1b", ZERO_1, 18.0), days=None)
    assert differs.verdict == "projected_feasibility_differs"


def test_the_headline_counts_projected_cells_apart() -> None:
    records = [projected("pythia-1b", ZERO_1, 30.0), record("pythia-410m", "free_lunch", 25.0, gpu="H100", count=1)]
    quote, _ = sentences(judge_tables(records, 0.15))
    assert "1 was compared by true days: 1 reproduced, 0 differing; 286 were not measured" in quote
    assert "1 was projected, not measured: 0 reproduced, 1 differing (1 slower)" in quote


def test_the_corrected_table_takes_measured_then_projected_then_predicted_days(tmp_path: Path) -> None:
    folder = results_folder(
        tmp_path / "run",
        projected("pythia-1b", ZERO_1, 11.0),
        record("pythia-1b", "free_lunch", 41.0, gpu="H100", count=1),
        record("pythia-410m", "free_lunch+zero_1", 9.0, gpu="H100", count=2),
        projected("pythia-410m", "free_lunch+zero_1", 5.0, count=2),
    )
    rows = {
        (row["model"], row["gpu"], row["gpus"]): row
        for row in answer("table", "1", "--corrected", "--measured", str(folder))
    }
    days = {
        count: (row["origin"], row["days"])
        for (name, gpu, count), row in rows.items()
        if (name, gpu) == ("Pythia-1B", "H100")
    }
    assert days[1] == ("measured", pytest.approx(41.0))
    assert days[4] == ("projected", pytest.approx(11.0))
    predicted = {row.place: row for row in corrected_table("1")}["Pythia-1B", "H100", 8]
    assert days[8] == ("predicted", predicted.days)
    assert rows["Pythia-410M", "H100", 2]["origin"] == "measured"
    text = repro("table", "1", "--corrected", "--measured", str(folder)).stdout
    assert "Of 144 cells the days of 2 measured, 1 projected and 141 predicted." in text
    assert "11 projected" in text


def test_a_report_shows_measured_and_projected_trials_apart(tmp_path: Path) -> None:
    both = record("pythia-1b", ZERO_1, 40.0, gpu="H100"), projected("pythia-1b", ZERO_1, 30.0)
    alone = projected("pythia-410m", "free_lunch+zero_1", 5.0, count=2)
    folder = str(results_folder(tmp_path / "run", *both, alone))
    text = repro("report", folder, "--format", "markdown").stdout
    assert "Pythia-1B on 4 x H100, projected" in text
    assert "Pythia-1B on 4 x H100\n" in text
    assert "### Cells projected, which verifies nothing" in text
    assert "≈" in text
    printed = repro("report", folder).stdout
    assert "a step of" in printed
    assert "(-25%)" in printed


H100 = find("H100")


def test_without_sharding_one_device_stands_for_each_of_several() -> None:
    assert H100 is not None
    one = record("pythia-1b", "free_lunch", 41.0, gpu="H100", count=1, micro_batch=16)
    trial = Trial("pythia-1b", "paper", "free_lunch", "H100", 8, measured_on=1)
    found = Projection(H100).of_one(trial, one)
    assert found is not None
    complete = Projection(H100).complete(found, H100)
    assert contradiction(complete) is None
    assert (complete.id, complete.batch.micro_batch, complete.batch.accumulation) == (trial.id, 16, 8)
    assert complete.communication is not None
    assert complete.derived.true_step is not None
    assert one.derived.true_step is not None
    assert complete.communication["without"] == complete.communication["update"] == 0.0
    assert one.derived.true_step / 8 < complete.derived.true_step < one.derived.true_step / 4
    too_large = altered(one, micro_batch=256, accumulation=4)
    assert Projection(H100).of_one(trial, too_large) is None, "a share of the batch has no room for it"
    sharded = replace(trial, settings=ZERO_1)
    assert Projection(H100).of_one(sharded, replace(one, settings=ZERO_1)) is None
    assert Projection(H100).of_one(replace(trial, count=3), one) is None, "the batch does not divide by 3"
    on_cpu = replace(trial, device="cpu"), replace(one, device="cpu")
    assert Projection(H100).of_one(*on_cpu) is None, "one process had all cores"


# --- Ranks that run ---


@pytest.fixture(scope="module")
def ranks(fork_server: ForkServer, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., list[Outcome]]:
    """Calls a phase in all of `world` ranks, which join by gloo, or in the first of them, projected."""
    log = tmp_path_factory.mktemp("ranks") / "log"

    def call(phase: str, world: int, projected: bool, **arguments: Any) -> list[Outcome]:
        count = {"ranks": 1, "projected": True, "world": world} if projected else {"ranks": world}
        job: Any = {"call": phase, "arguments": arguments, "log": str(log), "timeout": 300.0} | count
        outcomes = fork_server.call(Job(**job))
        assert [outcome.status for outcome in outcomes] == ["ok"] * len(outcomes), outcomes[0].traceback
        return outcomes

    return call


def searched(outcomes: list[Outcome]) -> tuple[list[int], WhatRan]:
    """The micro batches that fitted, and what ran, of the first rank."""
    reports = outcomes[0].reports
    [ran] = (report.first_step.ran for report in reports if report.first_step is not None)
    return [report.fits for report in reports if report.fits is not None], ran


def test_a_projected_rank_gets_from_a_reduction_what_it_gave(ranks: Callable[..., list[Outcome]]) -> None:
    [outcome] = ranks("tests.ranks:exchanged", 4, True)
    assert outcome.value == {"scattered": [0.0, 1.0], "gathered": [1.0, 2.0] * 4, "reduced": 3.0}


@pytest.mark.parametrize(
    "settings",
    [
        "naive",
        "free_lunch+zero_2+offloading",
        "free_lunch+checkpointing+zero_3",
        "free_lunch+fsdp_3",
    ],
)
def test_a_projected_rank_holds_and_runs_what_each_of_two_does(
    ranks: Callable[..., list[Outcome]], settings: str
) -> None:
    model = {"recipe": "pythia-160m", "scale": "tiny", "settings": settings, "tf32": False}
    largest = models.find("pythia-160m", "tiny").batch_size // 2
    of_two, alone = (
        searched(ranks("repro.measure.phases:fit", 2, projected, start=1, largest=largest, **model))
        for projected in (False, True)
    )
    assert alone[0] == of_two[0]
    ran, beside = alone[1], of_two[1]
    assert (ran.weights_held, ran.moments_held) == (beside.weights_held, beside.moments_held)
    assert (ran.wrapper, ran.optimizer, ran.kernel_path) == (beside.wrapper, beside.optimizer, beside.kernel_path)
    if "zero_3" in settings or "fsdp" in settings:
        assert (ran.weights_held or 0) <= 0.55 * (ran.weights or 0)


@pytest.mark.slow
def test_a_run_projects_after_it_measured_and_resumes_each_apart(tmp_path: Path) -> None:
    command = ["run", "--processes", "1", "--project", "2", "--models", "pythia-160m", "--methods", "naive"]
    command += ["--steps", "2", "--out", str(tmp_path / "run")]
    done = process(*command)
    assert done.returncode == 0, done.stderr
    measured, beside = map(json.loads, (tmp_path / "run" / TRIALS).read_text().splitlines())
    assert (measured["origin"], measured["count"], measured["measured_on"]) == ("measured", 1, None)
    assert (beside["origin"], beside["count"], beside["measured_on"]) == ("projected", 2, 1)
    assert measured["communication"] is None
    assert beside["communication"]["with"] > 0
    assert len(beside["device_times"]) == 1
    assert all(loss is not None for loss in beside["losses"])
    again = process(*command)
    assert again.returncode == 0, again.stderr
    assert len((tmp_path / "run" / TRIALS).read_text().splitlines()) == 2, "both were finished"


def test_predict_takes_what_one_measured_gpu_projects_and_predicts_the_rest() -> None:
    """Free lunch shards nothing: each of four H100 does a fourth of what one did, and exchanges gradients on top."""
    text = "results/h100/text"
    rows = answer("predict", "--measured", text, "--gpu", "H100", "--gpus", "4", "--models", "pythia-1b")
    days = {row["settings"]: row["days"] for row in rows if row["origin"] == "projected"}
    assert days.keys() == {"naive", "free_lunch"}
    [one] = (
        row
        for row in answer("predict", "--measured", text, "--gpu", "H100", "--models", "pythia-1b")
        if row["settings"] == "free_lunch"
    )
    alone = one["measured_step"] * models.find("pythia-1b").training_steps / 86_400
    assert alone / 4 < days["free_lunch"] < 1.1 * alone / 4
    assert [row["days"] for row in rows] == sorted(row["days"] for row in rows)
    assert {row["origin"] for row in rows if "fsdp" in row["settings"] or "zero" in row["settings"]} == {"predicted"}
    refused = repro("predict", "--measured", text, "--gpu", "A100", "--gpus", "4", "--models", "pythia-1b")
    assert refused.returncode == 2
    assert "has no trial of these models that ran on 4 x A100" in refused.stderr.splitlines()[-1]
