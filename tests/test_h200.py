"""The kept runs on an H200: commands read them, none is compared with the paper, and their page follows from them."""

from __future__ import annotations

import csv
import json
from collections import Counter, defaultdict
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from statistics import mean, median
from typing import Any

import pytest

from repro import models
from repro.paper.settings import Settings
from repro.predict.memory import variant_of
from repro.predict.time import stretches
from repro.predict.traces import find, nearest
from repro.record import Record
from repro.run.reading import read
from tests.command_line import ROOT, answer, repro

HOME = ROOT / "results" / "h200"
FOLDERS = sorted(each.parent for each in HOME.glob("*/trials.jsonl"))
MEASURED = tuple(chain.from_iterable(("--measured", str(folder)) for folder in FOLDERS))
RUNS = [read(folder) for folder in FOLDERS]
RECORDS = [record for run in RUNS for record in run.records]
RAN = [record for record in RECORDS if record.status == "ok"]
LATER = {record.id for folder in ("free-lunch", "flash") for record in read(HOME / folder).records}  # of another H200
PAGE = (HOME / "README.md").read_text()
PROSE = " ".join(PAGE.split())
QUEUE = {False: 620, True: 460}  # kernels by the traces' count, not compiled and compiled: results/h100
FREE_LUNCH = Settings.parse("free_lunch")


def rows(name: str) -> list[dict[str, str]]:
    with (HOME / name).open() as file:
        return list(csv.DictReader(file))


def label(recipe: str, settings: str) -> str:
    return f"{models.find(recipe).name} {settings.replace('_', ' ')}"


def line(*cells: str) -> str:
    return f"| {' | '.join(cells)} |\n"


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
    cells = f"{true:.1f}", f"{authors:.1f}", f"{authors / true:.2f}", f"{peak / 2**30:.0f} GiB"
    assert line(label(one.recipe, one.settings), str(one.batch.micro_batch), *cells) in PAGE


def test_the_page_judges_the_predictions_made_before() -> None:
    with (ROOT / "results/predicted/h200.csv").open() as file:
        predicted = {(row["recipe"], row["settings"]): row for row in csv.DictReader(file)}
    pairs = [(one, predicted[one.recipe, one.settings]) for one in RECORDS if one.id not in LATER]
    feasible = sum((row["feasible"] == "True") == (one.status == "ok") for one, row in pairs)
    ran = [(one, row) for one, row in pairs if one.status == "ok"]
    sizes = sum(int(row["micro_batch"]) == one.batch.micro_batch for one, row in ran)
    error = median(abs(float(row["days"]) / (one.derived.true_days or 0) - 1) for one, row in ran)
    assert f"right in {feasible} of {len(pairs)} trials, the micro batch in {sizes} of {len(ran)} that fit" in PROSE
    assert f"{error:.0%} off".replace("%", " %") in PROSE


def test_the_page_has_the_error_of_an_extrapolated_step() -> None:
    [one] = [one for one in RAN if one.observed.whole_steps]
    [whole] = one.observed.whole_steps or []
    extrapolated, synchronised, error = (
        one.derived.true_step or 0,
        one.derived.synchronised_step or 0,
        one.observed.extrapolation_error or 0,
    )
    assert error == pytest.approx(extrapolated / whole - 1)
    assert abs(error) < 0.05
    assert f"by the true clock {extrapolated:.2f} s, a whole step {whole:.2f} s" in PROSE
    assert f"The error is {100 * error:.1f} %" in PROSE
    assert f"it is +{100 * (synchronised / whole - 1):.1f} %" in PROSE
    assert f"{one.batch.accumulation} micro-steps" in PROSE


def test_the_page_has_what_the_harness_adds() -> None:
    by_hand, harness, recorded = rows("overhead.csv")
    assert f"{float(by_hand['median (ms)']):.2f} ms by hand and {float(harness['median (ms)']):.2f} ms in" in PROSE
    assert f": {float(harness['over by hand (%)']):.2f} %, where the goal is at most 2 %" in PROSE
    assert f"records {float(recorded['over by hand (%)']):.2f} %" in PROSE
    assert {float(row["losses differ by (%)"]) for row in (by_hand, harness, recorded)} == {0}
    assert f"the median of {harness['steps']} steps" in PROSE


def test_the_page_sums_the_kernels_of_a_micro_step_by_kind() -> None:
    *kernels, whole = [row for row in rows("kernels-convnext.csv") if row["part"] == "micro-step"]
    ms: dict[str, float] = defaultdict(float)
    launches = Counter[str]()
    for row in kernels:
        ms[row["kind"]] += float(row["ms"])
        launches[row["kind"]] += int(row["launches"])
    total = float(whole["ms"])
    assert sum(ms.values()) == pytest.approx(total)
    table = (line(kind, str(launches[kind]), f"{sum_:.1f}", f"{100 * sum_ / total:.0f} %") for kind, sum_ in ms.items())
    assert [each for each in table if each not in PAGE] == []
    assert f"{float(whole['unprofiled (ms)']):.1f} ms at micro batch 128" in PROSE
    assert f"add up to {total:.1f} ms and {int(whole['launches']):,} launches" in PROSE


def test_the_page_has_what_depthwise_weight_gradients_take() -> None:
    kernels = [row for row in rows("kernels-convnext.csv") if row["part"] == "micro-step"]
    total = float(kernels[-1]["ms"])

    def one(name: str) -> tuple[float, int]:
        [row] = [row for row in kernels if name in row["kernel"]]
        return float(row["ms"]), int(row["launches"])

    (direct, thirty), (implicit, six) = one("wgrad2d_grouped_direct_kernel"), one("_g16_")
    assert f"One kernel takes {direct:.1f} ms, {direct / total:.0%}".replace("%", " %") in PROSE
    assert f"takes {implicit:.1f} ms in {six} launches" in PROSE
    assert f"{thirty} and {six} are the {thirty + six} blocks" in PROSE
    assert f"take {direct + implicit:.1f} ms, {(direct + implicit) / total:.0%}".replace("%", " %") in PROSE
    for name, words in (("dgrad2d_c1_k1", "takes {:.1f} ms, and the forward pass"), ("conv2d_c1_k1", "{:.1f} ms. So")):
        took, launches = one(name)
        assert launches == thirty + six
        assert words.format(took) in PROSE


@pytest.fixture(scope="module")
def tensors(in_ranks: Callable[..., list[Any]]) -> dict[str, int]:
    """How many tensors the parameters of these recipes are."""
    [found] = in_ranks("tensors", recipes=sorted({one.recipe for one in RAN}))
    return dict(found)


def test_the_page_has_the_launches_beside_those_that_the_traces_count(tensors: dict[str, int]) -> None:
    [*_, whole] = [row for row in rows("kernels-convnext.csv") if row["part"] == "micro-step"]
    counted = [
        (
            one.recipe,
            Settings.parse(one.settings),
            one.batch.micro_batch,
            one.as_run.compiled,
            (one.observed.launches or {})["with"],
        )
        for one in RAN
        if one.id not in LATER
    ]
    counted.append(("convnext", FREE_LUNCH, 128, True, int(whole["launches"])))
    stack = nearest(RUNS[0].environment.packages or {})
    assert f"the shipped trace of transformers {stack.transformers}" in PROSE
    once: dict[bool, list[float]] = {False: [], True: []}
    twice: dict[bool, list[float]] = {False: [], True: []}
    for recipe, settings, micro_batch, compiled, profiled in counted:
        assert micro_batch is not None
        work = stretches(find(recipe, variant_of(settings), stack), settings, micro_batch, compiled)
        traced = sum(each.kernels for each in work)
        copies = tensors[recipe]
        ratio = profiled / (traced + copies)
        cells = f"{profiled:,}", f"{traced:,.0f}", str(copies), f"{ratio:.2f}"
        assert line(label(recipe, settings.id), *cells) in PAGE
        once[compiled].append(ratio)
        twice[compiled].append(profiled / (traced + 2 * copies))
    least, most = ([f"{end(twice[key]):.2f}" for key in (False, True)] for end in (min, max))
    assert f"{least[0]} to {most[0]} not compiled and {least[1]} to {most[1]} compiled" in PROSE
    least, most = ([f"{QUEUE[key] * end(once[key]):,.0f}" for key in (False, True)] for end in (min, max))
    assert f"{least[0]} to {most[0]} launches not compiled, and {least[1]} to {most[1]} compiled" in PROSE


def test_a_gradient_takes_two_launches_in_the_profile(tensors: dict[str, int]) -> None:
    kernels = [row for row in rows("kernels-convnext.csv") if row["part"] == "micro-step"]
    for name in ("AUnaryFunctor<float, float, float, at::native::binary_internal::MulFunctor", "Memcpy DtoD"):
        assert sum(int(row["launches"]) for row in kernels if name in row["kernel"]) == tensors["convnext"]
    assert f"{tensors['convnext']} multiplications and {tensors['convnext']} copies on the device" in PROSE


def test_the_page_has_the_launches_that_were_queued_were_all_equally_long() -> None:
    queued = [
        (one.observed.launches or {})["with"]
        * (1 - mean(one.times.host[0]["with"]) / mean(one.times.device_times[0]["with"]))
        for one in RAN
        if one.id not in LATER
    ]
    assert f"scatters from {min(queued):,.0f} to {max(queued):,.0f}" in PROSE


def test_the_page_has_the_shares_that_depthwise_convolutions_reach() -> None:
    found = rows("depthwise.csv")
    shares, both = (
        {
            layout: [float(row[column]) for row in found if row["layout"] == f"channels {layout}"]
            for layout in ("last", "first")
        }
        for column in ("share of lanes", "both (ms)")
    )
    last, first = ((f"{min(each):.3f}", f"{max(each):.3f}") for each in (shares["last"], shares["first"]))
    assert f"{' to '.join(last)} of the lanes' FLOP/s channels last, and {' to '.join(first)} channels first" in PROSE
    faster = [one / other for one, other in zip(both["last"], both["first"], strict=True)]
    assert f"{min(faster):.1f} to {max(faster):.1f} times as fast" in PROSE
