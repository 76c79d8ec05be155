"""True days: one number for one question, whichever command is asked, and what a measurement says of other machines."""

from __future__ import annotations

import csv
import io
import re
from functools import cache
from pathlib import Path
from typing import Any, get_args

import pytest

from repro import models
from repro.money.days import DaysAsked, ModelDays, TrainingDays
from repro.money.measurements import Measurement
from repro.paper.gpus import by_name, paper_gpus
from repro.paper.measured_days import measured_days
from repro.paper.tables import cells
from repro.predict.traces import Stack
from tests.support.command_line import answer, record, refusal, repro, results_folder

STACKS: tuple[Stack, ...] = get_args(Stack)
H100 = by_name()["H100"]
Place = tuple[str, int]


@cache
def days_of(model: str, stack: Stack) -> dict[Place, TrainingDays]:
    """The days on each of the paper's machines."""
    known = ModelDays(model, DaysAsked(stack=stack))
    return {(row.gpu, row.gpus): row for row in known.everywhere(map(by_name().__getitem__, paper_gpus()))}


def of(rows: list[dict[str, Any]]) -> dict[Place, tuple[float, str]]:
    """Days and origin in the rows of a command, by machine."""
    return {(row["gpu"], row["gpus"]): (row["days"], row["origin"]) for row in rows if row["gpu"] in paper_gpus()}


# --- One number for one question ---


@pytest.mark.parametrize("stack", STACKS)
@pytest.mark.parametrize("model", models.IDS)
def test_all_advice_gives_the_same_days_of_every_machine(model: str, stack: Stack) -> None:
    known = {place: (row.days.value, row.origin) for place, row in days_of(model, stack).items()}
    assert of(answer("cost", model, "--stack", stack)["rows"]) == known
    assert of(answer("cost", model, "--stack", stack, "--terms", "rent")["rows"]) == known


@pytest.mark.parametrize("stack", STACKS)
def test_the_fastest_of_table_1_by_true_days_is_that_of_all_advice(stack: Stack) -> None:
    names = {models.find(model).name: model for model in models.IDS}
    for row in answer("table", "1", "--by", "true", "--stack", stack):
        known = days_of(names[row["model"]], stack).get((row["gpu"], row["gpus"]))
        if row["days"] is None:
            assert known is None or row["fastest_days"] == pytest.approx(known.days.value, rel=0.006)
            continue
        assert known is not None
        fastest = row["fastest_days"] or row["days"]
        assert fastest == pytest.approx(known.days.value, rel=0.011 if row["fastest_days"] is None else 0.006), row
        assert row["fastest_days"] is None or row["fastest_days"] < row["days"]


@pytest.mark.parametrize("stack", STACKS)
@pytest.mark.parametrize("model", models.IDS)
def test_predict_gives_the_days_that_advice_gives(model: str, stack: Stack) -> None:
    known = {place: row.days.value for place, row in days_of(model, stack).items()}
    rows = [row for row in answer("predict", "--models", model, "--stack", stack) if row["table"] == "1"]
    assert {(row["gpu"], row["gpus"]): row["days"] for row in rows if row["days"]} == known
    for gpu, gpus in [(gpu, gpus) for gpu in paper_gpus() for gpus in (1, 8)]:
        first = answer("predict", "--models", model, "--stack", stack, "--gpu", gpu, "--gpus", str(gpus))[0]
        assert first["days"] == known.get((gpu, gpus))


@pytest.mark.parametrize("stack", STACKS)
def test_who_can_train_what_rests_on_the_days_that_advice_gives(stack: Stack) -> None:
    rows = answer("survey", "--train", "--stack", stack)["rows"]
    ids = {models.find(id).name: id for id in models.IDS}
    assert len(rows) == 27
    for row in rows:
        known = days_of(ids[row["model"]], stack)
        best = min((each for (gpu, _), each in known.items() if gpu == row["gpu"]), key=lambda each: each.days.value)
        assert (row["everything_days"], row["everything_origin"]) == (best.days.value, best.origin)


@pytest.mark.parametrize("stack", STACKS)
@pytest.mark.parametrize("model", models.IDS)
def test_what_is_exported_takes_the_days_that_advice_gives(model: str, stack: Stack, tmp_path: Path) -> None:
    for (gpu, gpus), row in days_of(model, stack).items():
        out = str(tmp_path / f"{gpu}-{gpus}")
        asked = ("--models", model, "--gpu", gpu, "--gpus", str(gpus), "--stack", stack)
        output = repro("export", "--predicted", *asked, "--out", out).stdout
        [(days, origin)] = re.findall(r"a step, ([\d.]+) days \((\w+): ", output)
        assert (float(days), origin) == (float(f"{row.days.value:.3g}"), row.origin)


# --- What answers ---


def test_the_fastest_machine_within_the_budget_by_true_days_leads() -> None:
    found = answer("cost", "vit", "--budget", "40000")
    fits = [row for row in found["rows"] if row["price_usd"] <= 40_000]
    assert found["rows"][0]["days"] == min(row["days"] for row in fits)
    [one] = [row for row in fits if (row["gpu"], row["gpus"]) == ("H100", 1)]
    [two] = [row for row in fits if (row["gpu"], row["gpus"]) == ("A100", 2)]
    assert (one["days"], one["origin"], one["printed_days"]) == (34.256, "measured", 27)
    assert one["days"] < two["days"], "printed are 27 and 26"


def test_a_measurement_answers_for_its_own_stack_and_stands_beside_the_other() -> None:
    papers, todays = (days_of("vit", stack)["H100", 1] for stack in ("paper", "today"))
    assert (papers.days.value, papers.origin) == (34.4, "predicted")
    assert (todays.days.value, todays.origin) == (34.256, "measured")
    assert "on the paper's stack (transformers 4.42.3)" in papers.source
    assert "on today's stack (torch 2.11.0, timm 1.0.31)" in todays.source
    assert papers.measured == todays.measured == 34.256
    assert todays.predicted == 34.4
    assert papers.measured_on == "torch 2.11.0, timm 1.0.31"
    asked = ("predict", "--gpu", "H100", "--models", "vit", "--methods", "free-lunch")
    [row] = answer(*asked)
    assert (row["days"], row["origin"], row["predicted_days"]) == (34.256, "measured", pytest.approx(34.4, abs=0.05))
    assert "measured 34.3 days" in repro(*asked).stdout
    assert "predicted 34.4 days" in repro(*asked, "--stack", "paper").stdout
    assert "with free_lunch, on the paper's stack" in repro(*asked, "--stack", "paper").stdout
    [other] = answer(*asked, "--stack", "paper")
    assert (other["origin"], other["measured_days"], other["measured_on"]) == (
        "predicted",
        34.256,
        "torch 2.11.0, timm 1.0.31",
    )
    assert "on the other" in repro(*asked, "--stack", "paper").stdout


@pytest.mark.parametrize(
    ("stack", "whose"),
    [
        ("torch 2.3.1, transformers 4.42.3", "paper"),
        ("torch 2.3.1, timm 1.0.8", "paper"),
        ("torch 2.3.1, transformers 4.44.0", "today"),
        ("torch 2.4.0, transformers 4.42.3", "today"),
        ("unknown versions", "today"),
    ],
)
def test_a_measured_stack_is_the_papers_only_if_it_is_it(stack: str, whose: Stack) -> None:
    assert Measurement("H100", 1, "free_lunch", 1.0, 1.0, 8, stack, "run").on == whose


def measured(tmp_path: Path, name: str, days: float, torch: str, **more: Any) -> Path:
    packages = {"torch": torch, "transformers": "5.17.0"}
    one = record("pythia-1b", "free_lunch", days, **{"gpu": "A100", "count": 2, **more})
    return results_folder(tmp_path / name, one, packages=packages)


def test_of_several_measurements_the_newest_stack_answers(tmp_path: Path) -> None:
    old, new = measured(tmp_path, "old", 50.0, "2.8.0"), measured(tmp_path, "new", 60.0, "2.12.0")
    asked = ("cost", "pythia-1b", "--gpu", "A100", "--gpus", "2")
    for folders in ((old, new), (new, old)):
        given = [word for folder in folders for word in ("--measured", str(folder))]
        found = answer(*asked, *given)
        assert (found["rows"][0]["measured_days"], found["rows"][0]["origin"]) == (60, "measured")
        assert "torch 2.12.0, transformers 5.17.0" in found["rows"][0]["source"]


def test_one_measured_count_corrects_the_others(tmp_path: Path) -> None:
    folder = measured(tmp_path, "run", 80.0, "2.12.0")
    rows = {row["gpus"]: row for row in answer(*COST, "--measured", str(folder))["rows"]}
    assert (rows[2]["days"], rows[2]["origin"]) == (80, "measured")
    for gpus in (1, 4, 8):
        expected = rows[gpus]["predicted_days"] * 80 / rows[2]["predicted_days"]
        assert (rows[gpus]["days"], rows[gpus]["origin"]) == (pytest.approx(expected, rel=0.01), "projected")
        assert "corrected by 2 A100 measured on torch 2.12.0" in rows[gpus]["source"]


COST = ("cost", "pythia-1b", "--gpu", "A100")


def test_what_a_run_projected_answers_before_predictions() -> None:
    one = Measurement("A100", 8, "free_lunch", 11.0, 11.0, 8, "torch 2.12.0", "run", "projected")
    known = ModelDays("pythia-1b", DaysAsked(trained=(one,)))
    found, other = (known.on(by_name()["A100"], gpus) for gpus in (8, 4))
    assert found is not None
    assert other is not None
    assert (found.days.value, found.origin) == (11, "projected")
    assert other.origin == "predicted", "nothing was measured"


# --- Options ---


def test_measured_none_leaves_all_measured_days_out(tmp_path: Path) -> None:
    asked = ("cost", "vit", "--gpu", "H100")
    rows = answer(*asked, "--measured", "none")["rows"]
    assert {row["origin"] for row in rows} == {"predicted"}
    assert {row["measured_days"] for row in rows} == {None}
    folder = results_folder(tmp_path / "none", record("vit", "free_lunch", 20.0, gpu="H100", count=2))
    found = repro(*asked, "--measured", "./none", "--format", "csv", cwd=tmp_path)
    origins = {row["gpus"]: row["origin"] for row in csv.DictReader(io.StringIO(found.stdout))}
    assert origins["2"] == "measured"
    beside = refusal(*asked, "--measured", "none", "--measured", str(folder))
    assert "--measured none leaves all measured days out: leave it or" in beside


def test_printed_days_recompute_the_paper_and_nothing_else() -> None:
    papers = {(cell.gpu, cell.gpus): cell.days for cell in cells("1") if cell.model == "Pythia-1B" and cell.days}
    rows = answer("cost", "pythia-1b", "--by", "printed")["rows"]
    assert {(row["gpu"], row["gpus"]): row["days"] for row in rows} == papers
    assert {row["origin"] for row in rows} == {"printed"}
    printed = answer("survey", "--train", "--by", "printed")["rows"]
    [one] = [row for row in printed if (row["model"], row["gpu"]) == ("Pythia-1B", "A100")]
    assert (one["naive_days"], one["everything_days"], one["everything_origin"]) == (21, 9, "printed")


def test_days_by_the_authors_clock_are_fewer_and_say_so() -> None:
    true, authors = (
        {row["gpus"]: row for row in answer("cost", "vit", "--gpu", "H100", "--by", by)["rows"]}
        for by in ("true", "authors")
    )
    assert authors[1]["days"] == 20.638
    assert all(authors[gpus]["days"] < row["days"] for gpus, row in true.items())
    assert "by the authors' clock" in authors[1]["source"]


def test_every_measured_day_of_ours_answers() -> None:
    """The fastest of each model and machine, except naive settings."""
    ids = {models.find(id).name: id for id in models.IDS}
    for row in measured_days().values():
        if row.true_days and row.settings != "naive":
            found = days_of(ids[row.model], "today")[row.gpu, row.gpus]
            assert (found.days.value, found.origin) == (row.true_days, "measured")
