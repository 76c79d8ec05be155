"""Projected trials: one rank of several is measured, its communication with the others is modelled."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from statistics import mean, median
from typing import Any

import pytest

from repro import models
from repro.formats import SECONDS_A_DAY, listing
from repro.paper.arithmetic import paper_gpu, recipe_of
from repro.paper.gpus import Gpu, find
from repro.paper.settings import NAIVE, Settings
from repro.paper.tables import Cell, cells
from repro.predict.fits import EVERYTHING, Probes, fitted_constants, here
from repro.predict.forecast import forecast, trace_of
from repro.predict.hardware import Machine, Probed
from repro.predict.launch_queue import authors_step
from repro.predict.observations import observations
from repro.predict.time import StepModel, TimedStep
from repro.predict.traces import nearest_here
from repro.record import Record, Status, Trial
from repro.report.sections import sentences
from repro.run.corrected import corrected_table
from repro.run.plan import Options
from repro.run.projection import Projection, _sizes
from repro.run.run import Run
from repro.run.verdict import Verdict, judge_tables
from repro.steps import derive
from repro.validity import contradiction
from tests.support.command_line import (
    altered,
    answer,
    documentation,
    process,
    record,
    repro,
    results_folder,
    trial_lines,
)

NO_SECONDS = {"without": 0.0, "with": 0.0, "update": 0.0}


def projected(model: str, settings: str, days: float, count: int = 4, seconds: dict[str, float] = NO_SECONDS) -> Record:
    """A sound record of rank 0 of several H100 whose own work takes so many days; `seconds` are of communication."""
    one = record(model, settings, days, gpu="H100", count=count)
    trial = Trial(one.recipe, one.scale, one.settings, one.device, one.count, measured_on=1)
    first = {clock: ranks[:1] for clock, ranks in vars(one.times).items()}
    states = (one.observed.gpu_state or [])[:1]
    found = altered(
        one,
        id=trial.id,
        origin="projected",
        measured_on=1,
        gpu_state=states,
        communication=seconds,
        sharing=NO_SECONDS,
        **first,
    )
    found.derived = derive(found, find(found.device))
    return found


def cell(days: int | None = 18, gpus: int = 4) -> Cell:
    return Cell("1", "Pythia-1B", "H100", gpus, days, "days" if days else "infeasible", "a test")


def verdict_of(*records: Record, days: int | None = 18) -> Verdict:
    return judge_tables(records, 0.15, cells=[cell(days)])[0]


ZERO_1 = "free_lunch+zero_1"  # Appendix J's settings of Pythia-1B on 4 H100


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
        {"sharing": None},
    ],
)
def test_a_record_that_hides_what_is_projected_is_left_out(forged: dict[str, Any]) -> None:
    sound = projected("pythia-1b", ZERO_1, 10.0)
    assert contradiction(sound) is None
    assert contradiction(replace(sound, **forged)) is not None


@pytest.mark.parametrize(("days", "word"), [(18.0, "reproduced"), (9.0, "faster"), (30.0, "slower")])
def test_a_projected_cell_is_judged_and_verifies_nothing(days: float, word: str) -> None:
    found = verdict_of(projected("pythia-1b", ZERO_1, days))
    assert (found.verdict, found.projected, found.compared) == (word, True, False)
    assert found.true.days == pytest.approx(days)


def test_a_cell_that_was_measured_is_judged_by_what_was_measured() -> None:
    found = verdict_of(projected("pythia-1b", ZERO_1, 18.0), record("pythia-1b", ZERO_1, 40.0, gpu="H100"))
    assert (found.verdict, found.compared) == ("slower", True)
    differs = verdict_of(projected("pythia-1b", ZERO_1, 18.0), days=None)
    assert (differs.verdict, differs.projected, differs.differs) == ("feasibility_differs", True, False)


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
        for row in answer("table", "1", "--by", "true", "--measured", str(folder))
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
    text = repro("table", "1", "--by", "true", "--measured", str(folder)).stdout
    assert "\n- 141 predicted, 2 measured and 1 projected; predicted is for " in text
    assert "≈▲ projected" in text


def test_a_report_shows_measured_and_projected_trials_apart(tmp_path: Path) -> None:
    both = record("pythia-1b", ZERO_1, 40.0, gpu="H100"), projected("pythia-1b", ZERO_1, 30.0)
    alone = projected("pythia-410m", "free_lunch+zero_1", 5.0, count=2)
    folder = str(results_folder(tmp_path / "run", *both, alone))
    text = repro("report", folder, "--format", "markdown").stdout
    assert "Pythia-1B on 4 x H100, projected" in text
    assert "### Pythia-1B on 4 x H100 (" in text
    assert "Report of a run on 4 x H100, projected to 2 x H100" in text
    assert "3 ok, 2 of them projected from one device." in text
    assert "### The cells that are projected, which verifies nothing, one by one" in text
    assert "≈" in text
    assert "a step of" in text
    assert "(-25%)" in text


H100 = find("H100")


def predicted(settings: str, count: int, micro_batch: int) -> TimedStep:
    """Return a predicted step of Pythia-1B on H100s."""
    assert H100 is not None
    (machine, constants), recipe, parsed = here(H100, count, None), models.find("pythia-1b"), Settings.parse(settings)
    trace = trace_of(recipe, machine, parsed, nearest_here())
    return StepModel(recipe, trace, parsed, machine, constants.rates).step(micro_batch)


def multiplied(base: Record, count: int = 8, known: Gpu | Probes | None = H100, **asked: Any) -> Record:
    """Return the projection of settings that shard nothing, from those on fewer devices."""
    assert known is not None
    trial = Trial(base.recipe, base.scale, base.settings, base.device, count, measured_on=1, **asked)
    found = Projection(known).multiplied(trial, base, find(base.device))
    assert found.id == trial.id
    assert (found.origin, found.measured_on, found.wall_seconds) == ("projected", 1, 0.0)
    assert contradiction(found) is None
    return found


def free_lunch(count: int = 1, days: float = 41.0, micro_batch: int = 16) -> Record:
    return record("pythia-1b", "free_lunch", days, gpu="H100", count=count, micro_batch=micro_batch)


@pytest.mark.parametrize(("measured", "sizes"), [(1, (16, 16)), (2, (16, 16)), (1, (256, 128)), (2, (256, 128))])
def test_without_sharding_a_measurement_takes_the_ratio_of_two_predictions(
    measured: int, sizes: tuple[int, int]
) -> None:
    base = free_lunch(measured, micro_batch=sizes[0])
    found = multiplied(base)
    steps = [predicted("free_lunch", count, size) for count, size in zip((measured, 8), sizes, strict=True)]
    assert (found.batch.micro_batch, found.batch.accumulation) == (sizes[1], 128 // sizes[1])
    assert found.communication is not None
    for clock in ("host", "device_times"):
        [times], theirs = getattr(found.times, clock), getattr(base.times, clock)[0]
        whole = mean(times["with"]) + found.communication["with"]
        assert whole / mean(theirs["with"]) == pytest.approx(steps[1].micro.seconds / steps[0].micro.seconds)
        assert mean(times["update"]) / mean(theirs["update"]) == pytest.approx(steps[1].update / steps[0].update)
    assert found.communication["without"] == found.communication["update"] == 0.0
    assert found.sharing == NO_SECONDS
    if measured == 1 and sizes[0] == sizes[1]:
        assert found.times == base.times, "each of several computes what one does"


def test_what_is_known_of_the_others_alone_is_no_part_of_a_projection() -> None:
    base = altered(
        free_lunch(2), mean_power=[300.0, 310.0], peak_memory=2**34, whole_steps=[1.0], extrapolation_error=0.1
    )
    found = multiplied(base).observed
    assert (len(found.gpu_state or []), found.mean_power, found.peak_memory) == (1, [300.0], 2**34)
    assert (found.whole_steps, found.extrapolation_error) == (None, None)
    halved = altered(free_lunch(micro_batch=256), peak_memory=2**34)
    assert multiplied(halved).observed.peak_memory is None, "it is of another micro batch"


def test_times_of_a_larger_micro_batch_by_the_authors_clock_are_scaled_from_it() -> None:
    usual, base = free_lunch(), free_lunch()
    base.batch = replace(base.batch, authors_micro_batch=32)
    base.derived = derive(base, H100)
    found = multiplied(base)
    assert found.batch.authors_micro_batch is None
    ratio = predicted("free_lunch", 1, 16).micro.seconds / predicted("free_lunch", 1, 32).micro.seconds
    assert mean(found.times.host[0]["with"]) == pytest.approx(ratio * mean(usual.times.host[0]["with"]))
    assert found.times.device_times == usual.times.device_times


def test_a_projected_micro_batch_is_of_the_kind_that_was_asked_for() -> None:
    found = Trial("roberta", "paper", "free_lunch", "H100", 8, measured_on=1)
    assert _sizes(replace(found, micro_batch=24)) == [24]
    assert _sizes(Trial("pythia-1b", "paper", "naive", "H100", 8, measured_on=1)) == [128, 64, 32, 16, 8, 4, 2, 1]


@pytest.mark.parametrize("status", ["out_of_memory", "crashed", "timed_out", "unsupported"])
def test_what_does_not_run_on_one_device_is_projected_to_run_on_no_more(status: Status) -> None:
    base = altered(record("pythia-1b", "naive", None, "H100", 1, status), reason="as it was")
    found = multiplied(base)
    assert (found.status, found.reason, found.communication) == (status, "as it was", None)


def test_a_projected_micro_batch_leaves_room_for_connecting_devices() -> None:
    assert H100 is not None
    limit = 80 * 2**30
    allowance = here(H100, 8, None)[1].allowance
    room = limit - allowance.context - allowance.group
    assert allowance.group > 2**28, "bytes that NCCL takes of each GPU"

    def size(peak: float, smaller: float = 2**30) -> int | None:
        peaks = [(8, int(smaller)), (16, int(peak))]
        return multiplied(altered(free_lunch(), full=[{"memory_bytes": limit}], peaks=peaks)).batch.micro_batch

    assert (size(room - 1), size(room + 1)) == (16, 8)
    assert multiplied(altered(free_lunch(), peaks=[(16, limit)])).batch.micro_batch == 16, "nothing ran out"
    full = altered(free_lunch(micro_batch=1), full=[{"memory_bytes": limit}], peaks=[(1, int(room + 1))])
    found = multiplied(full)
    assert (found.status, found.derived.true_step) == ("out_of_memory", None)
    assert found.reason == "connecting 8 devices has no room beside any micro batch up to 1"
    assert found.batch.peaks


def test_processes_of_a_cpu_are_projected_by_the_probes_of_each_number() -> None:
    """Two share the cores: each computes at half the speed."""
    alone = Probed(1e11, None, 1e11, 1e11, copy=1e10, host=1e10, launch=1e-6, ring=None, latency=0.0)
    shared = Probed(5e10, None, 5e10, 5e10, copy=5e9, host=1e10, launch=2e-6, ring=1e9, latency=0.0)
    probes = Probes("cpu", 2**33, None, {1: alone, 2: shared}, 1.0)
    base = record("vit", "naive", 1.0, gpu="cpu", count=1, scale="tiny", micro_batch=8)
    found = multiplied(base, 2, probes)
    [times], [theirs] = found.times.device_times, base.times.device_times
    assert times["without"][0] / theirs["without"][0] == pytest.approx(2.0)
    assert found.communication is not None
    assert found.communication["with"] > 0


def test_the_page_says_how_near_the_ratio_is_in_table_4() -> None:
    fitted, printed = fitted_constants(), {cell.place: cell for cell in cells("4") if cell.days}
    off: dict[int, list[float]] = {2: [], 4: [], 8: []}
    for (model, gpu, count), cell in printed.items():
        if count not in off or (one := printed.get((model, gpu, 1))) is None:
            continue
        recipe = recipe_of(model)
        alone, all_ = (
            forecast(recipe, Machine(paper_gpu(gpu), number), NAIVE, fitted[recipe.id]).authors_days
            for number in (1, count)
        )
        if alone and all_ and one.days and cell.days:
            off[count].append(abs(one.days * all_ / alone / cell.days - 1))
    said = listing([f"{median(each):.1%}".replace("%", " %") for each in off.values()])
    page = documentation("docs/prediction.md")
    assert f"prints for one GPU, multiplied like that, are {said} off in the median from those for 2, 4 and 8" in page


@pytest.mark.parametrize(
    ("settings", "always"), [("free_lunch+zero_1", False), ("free_lunch+zero_2", True), ("free_lunch+fsdp_3", True)]
)
def test_a_micro_step_communicates_where_gradients_are_sharded_alone(settings: str, always: bool) -> None:
    found = Projection(H100).complete(projected("pythia-1b", settings, 10.0), H100) if H100 else None
    assert found is not None
    assert found.communication is not None
    assert found.communication["with"] > 0
    assert found.communication["without"] == (found.communication["with"] if always else 0)


OFFLOADED = "free_lunch+zero_2+offloading"


def test_gpus_that_offload_share_the_memory_of_one_host() -> None:
    """In bf16 a micro-step of ZeRO 2 copies 2 bytes a weight to the host. An update moves 30 there, and 2 back. They
    are divided among the GPUs, whose parts together pass one memory."""
    assert H100 is not None
    weights = models.find("pythia-1b").parameters

    def shared(host: float, settings: str = OFFLOADED, count: int = 8) -> dict[str, float]:
        found = Projection(H100, host=host).complete(projected("pythia-1b", settings, 10.0, count=count), H100)
        assert contradiction(found) is None
        assert found.sharing is not None
        return found.sharing

    slow, slower, fewer = shared(1e9), shared(0.5e9), shared(1e9, count=4)
    assert slower["with"] - slow["with"] == pytest.approx(2 * weights / 1e9, rel=0.01)
    assert slower["update"] - slow["update"] == pytest.approx(32 * weights / 1e9, rel=0.01)
    assert fewer["with"] < slow["with"], "the copies of fewer GPUs take longer already"
    assert slow["without"] == slow["with"]
    assert shared(1e13) == NO_SECONDS, "the memory of this host is never what they wait for"
    assert shared(1e9, "free_lunch+zero_2") == NO_SECONDS


def test_the_page_says_how_few_printed_cells_offload_on_several_gpus() -> None:
    fitted = fitted_constants()[EVERYTHING]
    off: dict[bool, list[float]] = {True: [], False: []}  # of several GPUs, of one: printed over predicted days
    for each in observations():
        if each.cell is None or each.cell.table != "1":
            continue
        steps = (each.step(reading, each.micro_batch or 1, fitted.rates) for reading in each.readings)
        step = min(steps, key=lambda step: authors_step(step, fitted.queue))
        if step.settings.offloading:
            shown = authors_step(step, fitted.queue) * each.recipe.training_steps / SECONDS_A_DAY
            off[each.cell.gpus > 1].append(each.days / shown)
    several = sorted(off[True])
    numbers = f"{len(several) + len(off[False])} offload, {len(several)} of them on several GPUs"
    far = f"{len(several[1:])} of these {len(several)} take {several[1]:.1f} to {several[-1]:.1f} times as long"
    page = documentation("docs/prediction.md")
    assert numbers in page
    assert far in page


@pytest.mark.parametrize(
    ("gpu", "probed", "count", "measured"),
    [("H100", 2, 8, True), ("RTX A6000", 2, 4, False), ("RTX A6000", 4, 8, True)],
)
def test_communication_takes_the_link_measured_here_unless_it_is_a_bridge(
    gpu: str, probed: int, count: int, measured: bool
) -> None:
    """A bridge connects two GPUs: it says nothing of four."""

    def seconds(ring: float | None) -> float:
        known = find(gpu)
        assert known is not None
        probe = Probed(*(1e14,) * 4, copy=1e12, host=1e10, launch=1e-5, ring=ring, latency=0.0)
        links = Probes(known.name, 80 * 2**30, known.compute_capability, {probed: probe}, 1.0)
        one = projected("pythia-1b", "free_lunch+zero_1", 10.0, count=count)
        found = Projection(known, links if ring else None).complete(one, known)
        assert found.communication is not None
        return found.communication["with"]

    share = (count - 1) / count * 2 * 2 * models.find("pythia-1b").parameters
    assert seconds(1e9) == pytest.approx(share / 1e9 if measured else seconds(None), rel=0.01)
    assert seconds(None) != pytest.approx(share / 1e9, rel=0.5)


@pytest.mark.slow
def test_a_run_projects_after_it_measured_and_resumes_each_apart(tmp_path: Path) -> None:
    command = ["run", "--processes", "1", "--project", "2", "--models", "pythia-160m", "--methods", "all"]
    command += ["--steps", "2", "--out", str(tmp_path / "run")]
    command += ["--", "-k", "naive or (zero_1 and not offloading and not checkpointing)"]
    done = process(*command)
    assert done.returncode == 0, done.stderr
    measured, *others = map(json.loads, trial_lines(tmp_path / "run"))
    assert (measured["origin"], measured["count"], measured["measured_on"]) == ("measured", 1, None)
    assert measured["communication"] is None
    assert [beside["settings"] for beside in others] == ["naive", "free_lunch+zero_1"]
    for beside in others:
        assert (beside["origin"], beside["count"], beside["measured_on"]) == ("projected", 2, 1)
        assert beside["communication"]["with"] > 0
        assert beside["sharing"] == NO_SECONDS
        assert len(beside["device_times"]) == 1
        assert all(loss is not None for loss in beside["losses"])
    assert [beside["wall_seconds"] > 0 for beside in others] == [False, True], "what shards nothing does not run again"
    again = process(*command)
    assert again.returncode == 0, again.stderr
    assert len(trial_lines(tmp_path / "run")) == 3, "all were finished"


def test_what_was_measured_on_no_fewer_devices_is_not_projected_from_them(tmp_path: Path) -> None:
    options = Options(("vit",), "naive", "tiny", (1,), projected=(2,))
    with Run(tmp_path, options, []) as run:
        assert H100 is not None
        run.projection = Projection(H100)
        found = run.record(run.trials[1])
    assert found is not None
    assert found.status == "unsupported"
    assert "nothing is measured of these settings on fewer devices" in found.reason


def test_predict_corrects_what_it_predicts_of_four_gpus_by_the_one_that_was_measured() -> None:
    text = "results/h100/text"
    asked = ("predict", "--measured", text, "--models", "pythia-1b")
    rows = answer(*asked, "--gpu", "H100", "--gpus", "4")
    assert {row["origin"] for row in rows if row["days"]} == {"projected"}
    [one] = answer("cost", "pythia-1b", "--gpu", "H100", "--gpus", "4", "--measured", text)["rows"]
    assert (one["gpus"], one["days"]) == (4, rows[0]["days"])
    refused = repro(*asked, "--gpu", "A100", "--gpus", "4")
    assert refused.returncode == 2
    assert "has no trial of these models that ran on 4 x A100" in refused.stderr.splitlines()[-1]
