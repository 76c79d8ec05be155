"""A search of the N best predicted settings: which are measured, in which order, and what is said of the others."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from repro import models
from repro.machine.devices import Device
from repro.paper.arithmetic import recipe_of
from repro.paper.gpus import find
from repro.paper.settings import FREE_LUNCH, NAIVE, Settings, search_space
from repro.paper.tables import cells, published_settings
from repro.predict import forecast
from repro.predict.fits import fitted_constants, here, load_probes
from repro.predict.traces import nearest_here
from repro.record import Clock
from repro.run.best_predicted import choose_best
from repro.run.plan import Options
from repro.run.records import history
from repro.run.run import Run
from repro.run.settings_search import searches
from tests.support.command_line import ROOT, answer, documentation, process


def on(gpu: str, model: str, folder: Path, number: int = 3, clock: Clock = "true", **more: Any) -> Run:
    """Return a search of two recipes, the second Pythia-160M, on a GPU that is not here."""
    found = find(gpu)
    assert found is not None
    device = Device(0, 0, "GPU-0", gpu, found, 80 * 10**9, found.compute_capability)
    ids = (model, "pythia-160m")
    options = Options(ids, "all", "paper", (1,), search=str(number), clock=clock, **more)
    return Run(folder, options, [device])


def predicted(model: str, gpu: str, clock: Clock = "true") -> dict[Settings, forecast.Forecast]:
    """Return the predictions of the whole search on one GPU, the fastest first."""
    known = find(gpu)
    assert known is not None
    machine, constants = here(known, 1, None)
    found = (
        forecast.forecast(models.find(model), machine, each, constants, nearest_here(), papers_hosts=False)
        for each in [NAIVE, *search_space(1)]
    )
    return {each.settings: each for each in forecast.ranked(found, clock == "authors")}


@pytest.mark.parametrize("clock", ["true", "authors"])
def test_naive_free_lunch_and_the_best_predicted_are_measured_largest_first(
    clock: Clock, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with on("A100", "pythia-1b", tmp_path, clock=clock) as run:
        choose_best(run, 3)
        chosen = [trial.recipe_and_settings[1] for trial in run.chosen if trial.recipe == "pythia-1b"]
        assert run.trials[: len(run.chosen)] == run.chosen, "first of all"
        skipped = [each for each in run.records() if each.recipe == "pythia-1b"]
    found = predicted("pythia-1b", "A100", clock)
    best = [settings for settings in found if settings not in (NAIVE, FREE_LUNCH)][:3]
    assert set(chosen) == {NAIVE, FREE_LUNCH, *best}
    sizes = [found[settings].micro_batch for settings in chosen]
    assert sizes == sorted(sizes, reverse=True)
    assert len(set(sizes)) > 1
    said = capsys.readouterr().err
    names = f"{best[0].id}, {best[1].id} and {best[2].id}"
    assert f"pythia-1b on 1 x A100: {len(chosen)} of 13 settings are measured, largest micro batch first" in said
    assert f"the 3 best predicted ({names}); the others are predicted to take longer, or not to fit" in said
    assert len(skipped) == 13 - len(chosen)
    assert {(each.status, each.reason) for each in skipped} == {("skipped", "it is not among the 3 best predicted")}
    assert all(each.remedy == "--search exhaustive measures it" for each in skipped)
    assert all(each.as_run.asked_tf32 for each in skipped), "as verdicts ask of free lunch"


def test_what_is_not_predicted_to_fit_is_none_of_the_best(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with on("RTX 3090", "pythia-2.8b", tmp_path, number=12) as run:
        choose_best(run, 12)
        chosen = {trial.recipe_and_settings[1] for trial in run.chosen if trial.recipe == "pythia-2.8b"}
    fits = {settings for settings, each in predicted("pythia-2.8b", "RTX 3090").items() if each.feasible}
    assert 0 < len(fits) < 11
    assert chosen == {NAIVE, FREE_LUNCH, *fits}, "no more than fit"
    with on("RTX 3090", "pythia-6.9b", tmp_path / "limited", memory=2**30) as run:
        choose_best(run, 3)
    assert "the 3 best predicted (none is predicted to fit)" in capsys.readouterr().err


def test_what_a_gpu_cannot_run_takes_no_place_among_the_best(tmp_path: Path) -> None:
    """Pythia-1B is bf16, which Turing has not."""
    with on("T4", "pythia-1b", tmp_path) as run:
        choose_best(run, 3)
        left = Counter(trial.recipe for trial in run.chosen)
        assert left["pythia-1b"] == 13, "each says why"
        assert left["pythia-160m"] <= 5
        found = run.record(next(trial for trial in run.chosen if trial.recipe == "pythia-1b"))
    assert found is not None
    assert found.status == "unsupported"


def test_a_larger_number_goes_on_with_what_a_smaller_one_skipped(tmp_path: Path) -> None:
    left: list[set[str]] = []
    for number in (2, 2, 4):
        with on("A100", "vit", tmp_path, number) as run:
            choose_best(run, number)
            left.append({trial.id for trial in run.waiting})
            lines = len(history(tmp_path))
    assert left[0] == left[1] < left[2]
    assert lines == 2 * (26 - len(left[0])) - (len(left[2]) - len(left[0])), "each is said once for a number"


def test_a_spent_budget_predicts_and_probes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with on("A100", "vit", tmp_path, budget=0.0) as run:
        choose_best(run, 3)
        assert len(run.chosen) == 26
        assert run.records() == []
    assert "predicted" not in capsys.readouterr().err


@pytest.mark.slow
def test_a_run_measures_the_best_predicted_and_an_exhaustive_one_the_rest(tmp_path: Path) -> None:
    """Mamba: nothing of it is compiled."""
    folder = str(tmp_path / "run")
    common = ("run", "--models", "mamba", "--processes", "2", "--steps", "1", "--out", folder)
    done = process(*common, "--search", "2", CUDA_VISIBLE_DEVICES="")
    assert done.returncode == 0, done.stderr
    records = {record.settings: record for record in history(Path(folder))}
    assert set(records) == {"naive", *(settings.id for settings in search_space(2))}
    ran = [record for record in records.values() if record.status == "ok"]
    skipped = [record for record in records.values() if record.status == "skipped"]
    assert len(ran) in (3, 4)
    assert len(ran) + len(skipped) == len(records)
    assert {"naive", "free_lunch"} < {record.settings for record in ran}
    assert f"mamba on 2 x cpu: {len(ran)} of 23 settings are measured" in done.stderr
    assert f"{len(ran)} trials; about " in done.stderr
    assert f"{len(skipped)} not, as others were predicted to be faster" in (tmp_path / "run" / "report.md").read_text()
    [told] = answer("report", folder)["searches"]
    assert (told["tried"], told["skipped"]) == (len(ran), len(skipped))
    words = skipped[0].settings.replace("free_lunch", "").strip("+").replace("+", " and ")
    made_up = process(*common, "--methods", "all", "--", "-k", words, CUDA_VISIBLE_DEVICES="")
    assert made_up.returncode == 0, made_up.stderr
    assert {r.settings: r for r in history(Path(folder))}[skipped[0].settings].status == "ok"


PAGE = documentation("docs/prediction.md")


def test_the_page_says_how_often_the_papers_winner_is_among_the_best_predicted() -> None:
    fits = fitted_constants()
    places = {cell.place: cell for cell in cells("1") if cell.state == "days"}
    among: Counter[tuple[str, int]] = Counter()
    for row in published_settings():
        if (cell := places.get(row.place)) is None:
            continue
        for held_out, fold in (("recipe", recipe_of(cell.model).id), ("GPU", cell.gpu)):
            found = forecast.search(cell, fits[fold], by_authors=True)
            best = [each.settings for each in found if each.feasible and each.settings != FREE_LUNCH]
            for number in (3, 5):
                among[held_out, number] += not {FREE_LUNCH, *best[:number]}.isdisjoint(row.readings())
    share = {key: f"{found / len(places):.1%}".replace("%", " %") for key, found in among.items()}
    assert f"Of the {len(places)} cells with printed days, the settings of Appendix J" in PAGE
    assert f"best in {share['recipe', 5]} and {share['GPU', 5]}" in PAGE
    by_fold = f"{share['recipe', 3]} with the recipe held out and in {share['GPU', 3]} with the GPU held out"
    assert f"free lunch or among the 3 best predicted of the others in {by_fold}, among the 5 best" in PAGE


def test_the_page_says_how_near_the_best_predicted_are_on_a_cpu() -> None:
    slower: dict[int, list[float]] = {3: [], 5: []}
    for id in models.IDS:
        place = ROOT / "results" / "searches-2-cores" / id
        [search] = searches(history(place))
        machine, constants = here(load_probes(place / "probes.json"), 2, search.memory_limit)
        found = forecast.ranked(
            forecast.forecast(models.find(id, "tiny"), machine, each, constants, nearest_here(), papers_hosts=False)
            for each in search_space(2)
            if each != FREE_LUNCH
        )
        for number, off in slower.items():
            best = [FREE_LUNCH.id, *(each.settings.id for each in found[:number] if each.feasible)]
            off.append(min(search.steps[id] for id in best if id in search.steps) / min(search.steps.values()) - 1)
    equal = {number: sum(each == 0 for each in off) for number, off in slower.items()}
    low, high = (f"{each:.0%}".replace("%", " %") for each in (min(filter(None, slower[3])), max(slower[3])))
    longer = f"the fastest settings in {equal[3]}, else some that take {low} to {high} longer"
    assert f"the 3 best predicted have {longer}; with the 5 best in {equal[5]}." in PAGE
