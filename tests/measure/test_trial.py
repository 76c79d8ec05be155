"""A trial leaves one record: every raw time, the numbers that follow from them, and what became of it."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import mean, median
from types import SimpleNamespace
from typing import Any

import pytest

from repro import datafile, models
from repro.machine.build_cache import clean_build_caches
from repro.machine.packages import installed_packages
from repro.machine.support import Stack
from repro.measure.jobs import Ended, Job, Measured, RankOutcome, RankStatus
from repro.measure.launcher import ForkServer
from repro.measure.micro_batch import search
from repro.measure.outcomes import joint_status, largest_fitting, peaks
from repro.measure.trial import Bench, _go_uncompiled, _take, run_trial
from repro.paper import gpus
from repro.record import Record, Trial
from repro.steps import derive
from repro.trial_warnings import warnings
from repro.validity import disturbance, fits, larger_may_fit, undisturbed
from tests.support.command_line import PATIENCE, altered
from tests.support.scripted_server import ScriptedServer

PACKAGES = installed_packages()
DAY = 24 * 60 * 60
PYTHIA_STEPS = 143_000
find = models.find


def within(variables: dict[str, str], job: Job) -> Job:
    """A phase of a trial whose ranks see these environment variables."""
    arguments = job.arguments | {"phase": job.call.split(":")[1], "variables": variables}
    return replace(job, call="tests.support.ranks:in_environment", arguments=arguments)


def in_environment(server: ForkServer, variables: dict[str, str]) -> ScriptedServer:
    """A server whose ranks see these environment variables."""
    return ScriptedServer(lambda job: within(variables, job), server)


Measure = Callable[..., Record]


@pytest.fixture(scope="module")
def measure(fork_server: ForkServer, tmp_path_factory: pytest.TempPathFactory) -> Measure:
    """Runs a trial on tiny twins and CPU ranks; `variables` are the ranks' environment."""
    logs = tmp_path_factory.mktemp("logs")

    def measured(recipe: str, settings: str, count: int = 1, **known: Any) -> Record:
        packages, variables = known.pop("packages", PACKAGES), known.pop("variables", {})
        server = in_environment(fork_server, variables)
        record = run_trial(
            Trial(recipe, "tiny", settings, "cpu", count, **known), Bench(server, Stack(packages, None), None, logs)
        )
        if record.log:
            assert (logs / record.log).is_file()
        assert json.loads(json.dumps(datafile.to_json(record))) == datafile.to_json(record)
        return record

    return measured


def ok(record: Record) -> Record:
    assert record.status == "ok", f"{record.reason}\n{record.traceback}"
    return record


@pytest.fixture(scope="module")
def accumulated(measure: Measure) -> Record:
    """Two ranks that accumulate, whole steps timed as well."""
    return ok(measure("pythia-1b", "naive", 2, micro_batch=2, check_extrapolation=True))


@pytest.fixture(scope="module")
def sharded(measure: Measure) -> Record:
    """The same with all of it sharded, in two rounds."""
    return ok(measure("pythia-1b", "fsdp_3", 2, micro_batch=2, steps=2))


# --- What is measured ---


@pytest.mark.parametrize("clock", ["host", "device_times", "synchronised"])
def test_every_raw_time_of_every_rank_is_in_the_record(accumulated: Record, clock: str) -> None:
    ranks = getattr(accumulated.times, clock)
    assert len(ranks) == 2
    for parts in ranks:
        assert {name: len(times) for name, times in parts.items()} == {"without": 3, "with": 3, "update": 3}
        assert all(0 < seconds < 60 for times in parts.values() for seconds in times)


def test_a_trial_measures_as_many_rounds_as_asked(sharded: Record) -> None:
    assert {len(times) for parts in sharded.times.host for times in parts.values()} == {2}
    assert len(sharded.derived.step_rounds) == 2


def test_ranks_accumulate_up_to_the_replication_batch(accumulated: Record) -> None:
    assert (accumulated.batch.micro_batch, accumulated.batch.accumulation) == (2, 4)  # of 16 on two


def test_a_micro_batch_that_is_asked_for_is_taken_though_a_larger_one_fits(
    fork_server: ForkServer, tmp_path: Path
) -> None:
    server = ScriptedServer(server=fork_server)
    trial = Trial("pythia-1b", "tiny", "naive", "cpu", 1, micro_batch=4, steps=1)
    record = ok(run_trial(trial, Bench(server, Stack(PACKAGES, None), None, tmp_path)))
    assert (record.batch.micro_batch, record.batch.accumulation) == (4, 4)
    assert [size for size, _ in record.batch.peaks] == [4]
    assert server.jobs[-1].arguments["accumulation"] == 4, "whole steps have as many micro-steps as the record says"
    search, timing = (job.timeout for job in server.jobs)
    assert trial.timeout >= search > timing, "the time limit is that of both together"


def test_the_search_ends_at_the_largest_power_of_two_that_divides_the_share(
    fork_server: ForkServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A micro batch of 8 would leave 4 of a batch of 12 out."""
    monkeypatch.setattr(models, "find", lambda recipe, scale: replace(find(recipe, scale), batch_size=12))
    server = ScriptedServer(server=fork_server)
    record = ok(
        run_trial(
            Trial("vit", "tiny", "naive", "cpu", 1, steps=1), Bench(server, Stack(PACKAGES, None), None, tmp_path)
        )
    )
    assert [size for size, _ in record.batch.peaks] == [1, 2, 4]
    assert (record.batch.micro_batch, record.batch.accumulation) == (4, 3)


@pytest.mark.parametrize(
    ("start", "crashes", "tried"),
    [
        (1, False, [(1, 100)]),
        (50, False, [(50, 100), (25, 25), (20, 20), (10, 10)]),
        (50, True, [(50, 100), (1, 25)]),
    ],
)
def test_a_search_tries_the_divisors_of_the_share(start: int, crashes: bool, tried: list[tuple[int, int]]) -> None:
    """Of a model of one's own, with a batch of 100 of which 10 fit, or where anything but 1 crashes."""
    asked = []

    def attempt(start: int, largest: int) -> tuple[Ended, list[RankOutcome]]:
        asked.append((start, largest))
        fit = [each for each in (1, 2, 4, 5, 10) if start <= each <= largest]
        failed: Ended = "crashed" if crashes and start > 1 else "out_of_memory"
        return failed, [RankOutcome(0, failed, error="no more", fitted={each: each for each in fit})]

    record = Record.of(Trial("vit", "tiny", "naive", "cpu", 1), "ok")
    assert search(attempt, 100, start, record) == 10
    assert asked == tried


def test_what_ran_is_in_the_record(accumulated: Record, sharded: Record) -> None:
    assert accumulated.as_run.wrapper == "DistributedDataParallel"
    assert sharded.as_run.wrapper == "FSDPModule"
    for record in (accumulated, sharded):
        assert (record.as_run.asked_precision, record.as_run.precision) == ("bf16", "bf16")
        assert record.as_run.kernel_path == "eager attention"
        assert record.as_run.optimizer == "torch Adam (tensor by tensor)"
        assert (record.as_run.compiled, record.as_run.graphs, record.as_run.asked_tf32) == (False, None, False)
        assert record.observed.start_seconds is not None
        assert 0 < record.observed.start_seconds < record.wall_seconds
        assert record.observed.peak_memory is not None
        assert record.observed.peak_memory > 2**20
        assert record.stack_started is not None
    assert accumulated.stack_started == sharded.stack_started  # they are forked from one server


def test_each_rank_holds_its_share(accumulated: Record, sharded: Record) -> None:
    weights = accumulated.as_run.weights
    assert weights
    assert (accumulated.as_run.weights_held, accumulated.as_run.moments_held) == (weights, weights)
    assert sharded.as_run.weights == weights
    assert (sharded.as_run.weights_held, sharded.as_run.moments_held) == pytest.approx(
        (weights / 2, weights / 2), rel=0.01
    )


def test_custom_kernels_are_read_off_what_ran(measure: Measure) -> None:
    assert "scaled_dot_product" in ok(measure("pythia-1b", "free_lunch+zero_1", 2)).as_run.kernel_path
    mamba = ok(measure("mamba", "free_lunch", 2))
    assert mamba.as_run.kernel_path == "slow scan (transformers)"
    assert warnings(mamba)[0].startswith("a CPU has none of Mamba's custom kernels: ")


def test_the_optimizer_that_updates_is_read_off_what_ran_within_all_that_wraps_it(
    measure: Measure, in_ranks: Callable[..., list[Any]]
) -> None:
    assert ok(measure("mamba", "zero_1", 2)).as_run.optimizer == "torch AdamW (tensor by tensor)"
    [output] = in_ranks("ways_to_update")
    assert output == [
        "torch Adam (tensor by tensor)",
        "torch Adam (foreach)",
        "torch Adam (fused)",
        "torch AdamW (fused)",
    ]


def test_a_precision_that_cannot_run_is_reported(measure: Measure) -> None:
    record = ok(measure("pythia-160m", "zero_1", 2))
    assert (record.as_run.asked_precision, record.as_run.precision) == ("fp16", "bf16")
    assert warnings(record)[0].startswith("DeepSpeed refuses fp16 on a CPU: asked fp16, ran bf16")


def test_free_lunch_is_compiled_and_says_into_what(measure: Measure) -> None:
    record = ok(measure("vit", "free_lunch"))
    assert record.as_run.compiled
    assert record.as_run.graphs is not None
    assert record.as_run.graphs["compiled"] == 1
    assert record.as_run.compile_error == ""


def test_inputs_are_copied_outside_of_clocks_and_the_authors_sequence_is_first(
    in_ranks: Callable[..., list[Any]],
) -> None:
    known = {"recipe": "pythia-1b", "settings": "naive", "micro_batch": 2, "accumulation": 3, "steps": 2}
    both = in_ranks("played", 2, phase="measure", compiled=True, check_extrapolation=True, **known)
    for rank in both:
        assert rank["output"] == " ".join(
            [
                "copy alone copy reduce update copy wait ended",  # the warm-up, inputs in case its update is skipped
                *[
                    *["turn copy [ reduce ] [ update ]"] * 2,
                    "copy alone",  # so that the next ones add to its gradients
                    *["turn copy [ alone ]"] * 2,
                    "copy reduce update",
                ]
                * 2,  # unsynchronised and synchronised
                "copy reduce update",
                *["[ copy alone copy alone copy reduce update ]"] * 2,
            ]
        )
    assert [len(rank["inputs"]) for rank in both] == [1, 1]
    assert both[0]["inputs"] != both[1]["inputs"], "each rank has examples of its own"
    assert both[0]["losses"] == [1, 2, 3, 4], "those of the first micro-steps"
    assert both[0]["divisors"] == [3], "so that an update sees the mean over its micro-steps"
    assert both[0]["reports"]["authors"] == dict.fromkeys(("with", "update"), "by the host")
    for clock in ("host", "device"):
        assert both[0][clock] == dict.fromkeys(("without", "with", "update"), f"by the {clock}")
    assert both[0]["peak_memory"] == "allocated"


def test_on_a_gpu_events_time_the_device_and_nothing_waits_before_the_reading(
    in_ranks: Callable[..., list[Any]],
) -> None:
    [found] = in_ranks("clocked")
    assert found["parts"] == "event work event event work event wait read read"
    assert found["seconds"] == [1.5, 1.5]
    assert found["synchronised"] == "wait work wait"


def test_a_gpu_is_asked_for_its_state_halfway_through_its_work(in_ranks: Callable[..., list[Any]]) -> None:
    [found] = in_ranks("asked_at_work", seconds=8.0)
    assert found == {"output": {"local": 3}, "slept": [4.0], "during": [True]}


def test_the_search_takes_a_step_at_each_size_and_two_where_it_starts_above_1(
    in_ranks: Callable[..., list[Any]],
) -> None:
    known = {"recipe": "pythia-1b", "settings": "naive", "largest": 4}
    [from_1], [from_2] = (in_ranks("played", phase="fit", start=start, **known) for start in (1, 2))
    assert from_1["output"] == " ".join(["copy reduce update wait"] * 3), "a size fits once the device has done it"
    assert from_2["output"] == "copy reduce update reduce update wait copy reduce update wait"
    assert set(from_2["reports"]["fitted"].values()) == {"limited"}, "what a size took is counted as a limit counts it"


@pytest.mark.parametrize(
    ("phase", "arguments"),
    [
        ("fit", {"start": 1, "largest": 1}),
        ("measure", {"compiled": False, "micro_batch": 1, "accumulation": 1, "steps": 2, "check_extrapolation": False}),
    ],
)
def test_no_update_is_timed_or_looked_at_before_the_loss_scale_lets_one_through(
    in_ranks: Callable[..., list[Any]], phase: str, arguments: dict[str, Any]
) -> None:
    [found] = in_ranks("overflowing", phase=phase, **arguments)
    assert found["skipped"] >= 2
    assert not found["output"], "what the warm-up skips is no warning"


def test_what_the_loss_scale_skips_between_timed_updates_is_no_warning(in_ranks: Callable[..., list[Any]]) -> None:
    [found] = in_ranks("overflowing_when_accumulated")
    assert found == {"skipped": 2, "output": 0}, "both that clear what accumulated, none that is timed"


# --- What follows from it ---


def test_the_authors_clock_charges_reduction_to_every_micro_step(accumulated: Record) -> None:
    host, accumulation = accumulated.times.host[0], accumulated.batch.accumulation
    assert accumulation is not None
    step = mean(host["with"]) * accumulation + mean(host["update"])
    assert accumulated.derived.authors_step == pytest.approx(step)
    assert accumulated.derived.authors_days == pytest.approx(step * PYTHIA_STEPS / DAY)


@pytest.mark.parametrize(
    ("clock", "step", "days"),
    [
        ("device_times", "true_step", "true_days"),
        ("synchronised", "synchronised_step", "synchronised_days"),
    ],
)
def test_the_true_clock_charges_it_once_and_waits_for_the_slowest_rank(
    accumulated: Record, clock: str, step: str, days: str
) -> None:
    accumulation = accumulated.batch.accumulation
    assert accumulation is not None
    rounds = [
        max(
            (accumulation - 1) * parts["without"][number] + parts["with"][number] + parts["update"][number]
            for parts in getattr(accumulated.times, clock)
        )
        for number in range(3)
    ]
    assert getattr(accumulated.derived, step) == pytest.approx(median(rounds))
    assert getattr(accumulated.derived, days) == pytest.approx(median(rounds) * PYTHIA_STEPS / DAY)


def test_sharded_gradients_are_reduced_every_time(accumulated: Record, sharded: Record) -> None:
    assert (accumulated.as_run.reduction, sharded.as_run.reduction) == ("last micro-step", "every micro-step")
    accumulation = sharded.batch.accumulation
    assert accumulation == 4
    rounds = [
        max(
            (accumulation - 1) * parts["without"][number] + parts["with"][number] + parts["update"][number]
            for parts in sharded.times.device_times
        )
        for number in range(2)
    ]
    assert sharded.derived.step_rounds == pytest.approx(rounds)


def test_throughput_is_the_replication_batch_over_the_true_step(accumulated: Record) -> None:
    assert accumulated.derived.true_step is not None
    assert accumulated.derived.examples_per_second == pytest.approx(16 / accumulated.derived.true_step)


def test_utilisation_is_by_the_true_clock_over_the_peak_of_the_precision_that_ran() -> None:
    def found(device: str, recipe: str, tf32: bool) -> float | None:
        times = {name: {"without": [2.0], "with": [3.0], "update": [1.0]} for name in ("device_times", "synchronised")}
        record = altered(Record.of(Trial(recipe, "paper", "naive", device, 2), "ok"), accumulation=4, tf32=tf32)
        hurried = {"without": [1.0], "with": [1.0], "update": [1.0]}
        raw: dict[str, Any] = {name: [parts] * 2 for name, parts in (times | {"host": hurried}).items()}
        return derive(altered(record, **raw), gpus.find(device)).utilisation

    step, of_both = 3 * 2.0 + 3.0 + 1.0, 2e12
    pythia, vit = (models.find(id).flops_per_example * models.find(id).batch_size for id in ("pythia-1b", "vit"))
    assert found("A100", "pythia-1b", False) == pytest.approx(pythia / step / (312 * of_both))
    assert found("A100", "vit", False) == pytest.approx(vit / step / (19.5 * of_both))
    assert found("A100", "vit", True) == pytest.approx(vit / step / (156 * of_both))
    assert found("cpu", "vit", False) is None


def test_the_extrapolation_is_held_against_whole_steps(accumulated: Record, sharded: Record) -> None:
    assert accumulated.derived.true_step is not None
    assert accumulated.observed.whole_steps is not None
    assert len(accumulated.observed.whole_steps) == 3
    assert accumulated.observed.extrapolation_error == pytest.approx(
        accumulated.derived.true_step / median(accumulated.observed.whole_steps) - 1
    )
    assert (sharded.observed.whole_steps, sharded.observed.extrapolation_error) == (None, None)


def test_ranks_are_reported_as_one() -> None:
    def rank(status: RankStatus, *fits: tuple[int, int]) -> RankOutcome:
        return RankOutcome(0, status, fitted=dict(fits))

    tight, roomy = rank("out_of_memory", (1, 30), (2, 50)), rank("stopped", (1, 20), (2, 60), (4, 90))
    assert largest_fitting([roomy, tight]) == 2
    assert largest_fitting([roomy, rank("out_of_memory")]) == 0
    assert peaks([roomy, tight], 2) == peaks([tight, roomy], 2) == [[1, 30], [2, 60]]
    pairs: tuple[tuple[RankStatus, RankStatus, Ended], ...] = (
        ("crashed", "out_of_memory", "out_of_memory"),
        ("timed_out", "out_of_memory", "out_of_memory"),
        ("crashed", "timed_out", "timed_out"),
        ("stopped", "crashed", "crashed"),
        ("ok", "crashed", "crashed"),
        ("ok", "ok", "ok"),
    )
    for one, other, whole in pairs:
        assert joint_status([rank(one), rank(other)]) == joint_status([rank(other), rank(one)]) == whole


@pytest.mark.parametrize(
    ("end", "start", "searched", "found"),
    [
        ("out_of_memory", 1, [(1, 16)], 2),
        ("out_of_memory", 2, [(2, 16)], 2),
        ("out_of_memory", 16, [(16, 16), (8, 8), (4, 4), (2, 2)], 2),
        ("crashed", 1, [(1, 16)], 2),
        ("crashed", 16, [(16, 16), (1, 8)], 2),
        ("crashed", 4, [(4, 16), (1, 2)], 2),
        ("timed_out", 1, [(1, 16)], 0),
        ("timed_out", 16, [(16, 16)], 0),
    ],
)
def test_the_search_goes_up_from_its_start_and_where_that_does_not_fit_down(
    end: Ended, start: int, searched: list[tuple[int, int]], found: int
) -> None:
    """A micro batch of 2 fits, at 4 the search ends so. After a crash what is below may fit by far less."""
    asked = []

    def attempt(start: int, largest: int) -> tuple[Ended, list[RankOutcome]]:
        asked.append((start, largest))
        return search_of(end, start, largest)

    record = Record.of(Trial("vit", "tiny", "naive", "H100", 1), "ok")
    assert search(attempt, 16, start, record) == found
    assert asked == searched
    assert record.status == ("ok" if found else end)
    assert record.batch.search_crash == ("no more" if end == "crashed" else "")


def search_of(end: Ended, start: int, largest: int, taken: int = 0, **known: Any) -> tuple[Ended, list[RankOutcome]]:
    """An attempt of a search on a GPU of 80 bytes, `taken` of them by others: a micro batch of 1 takes 20, of 2 takes
    40, and what is larger ends so, and is `known` of its outcome."""
    fitted = {size: 20 * size for size in (1, 2) if start <= size <= largest}
    status: Ended = "ok" if fitted and largest <= 2 else end
    known |= {"gpu_memory": (80, taken), "fitted": fitted}
    return status, [RankOutcome(0, status, error="no more", traceback="here", **known)]


@pytest.mark.parametrize(
    ("device", "limit", "status"),
    [("H100", None, "ok"), ("H100", 100, "ok"), ("H100", 200, "ok"), ("cpu", None, "crashed"), ("cpu", 100, "crashed")],
)
def test_a_search_that_crashes_with_half_a_gpu_taken_has_found_what_fits(
    device: str, limit: int | None, status: Ended
) -> None:
    """Of 80 bytes or the limit, whichever is less. A CPU that had a crash of memory would have told."""
    record = Record.of(Trial("vit", "tiny", "naive", device, 1, limit), "ok")
    assert search(partial(search_of, "crashed"), 16, 1, record) == (2 if status == "ok" else 0)
    assert record.status == status


@pytest.mark.parametrize("start", [1, 2])
def test_a_search_that_crashes_far_from_the_end_of_the_memory_is_a_crash(start: int) -> None:
    """Of a network, of a killed rank: with the size before it as the largest, it would count as slow for good."""

    def attempt(start: int, largest: int) -> tuple[Ended, list[RankOutcome]]:
        status: Ended = "ok" if largest == 1 else "crashed"
        fitted = {1: 31} if start == 1 else {}
        return status, [RankOutcome(0, status, error="NCCL error", gpu_memory=(80, 0), fitted=fitted)]

    record = Record.of(Trial("vit", "tiny", "naive", "H100", 1), "ok")
    assert search(attempt, 16, start, record) == 0
    assert (record.status, record.reason, record.batch.search_crash) == ("crashed", "NCCL error", "")
    assert record.observed.gpu_state is None, "what else is on the GPU has no part in it"
    assert (fits(record), disturbance(record)) == (None, None)
    limited = Record.of(Trial("vit", "tiny", "naive", "H100", 1, memory_limit=70), "ok")
    assert search(attempt, 16, start, limited) == 1, "of what it may take it is the end"


def test_a_search_that_crashes_on_a_gpu_that_tells_of_no_memory_has_found_what_fits() -> None:
    crashed = RankOutcome(0, "crashed", error="cuDNN error", fitted={1: 31})
    record = Record.of(Trial("vit", "tiny", "naive", "H100", 1), "ok")
    assert search(lambda start, largest: ("crashed", [crashed]), 16, 1, record) == 1
    [warning] = warnings(record)
    assert warning.startswith("the search crashed above micro batch 1, near the end of the GPU's memory, ")
    assert warning.endswith(": cuDNN error; the log has the traceback")


def test_a_search_that_crashes_at_one_example_is_a_crash_of_nothing_that_fits() -> None:
    crashed = RankOutcome(0, "crashed", error="NCCL error", gpu_memory=(80, 0))
    record = Record.of(Trial("vit", "tiny", "naive", "H100", 1), "ok")
    assert search(lambda start, largest: ("crashed", [crashed]), 16, 1, record) == 0
    assert (record.status, record.reason) == ("crashed", "NCCL error")


def test_what_ends_a_search_below_a_crash_is_what_it_ends_by() -> None:
    def attempt(start: int, largest: int) -> tuple[Ended, list[RankOutcome]]:
        status: Ended = "crashed" if start == 16 else "out_of_memory"
        fitted = {1: 31} if start == 1 else {}
        return status, [RankOutcome(0, status, error="no more", gpu_memory=(80, 0), fitted=fitted)]

    record = Record.of(Trial("vit", "tiny", "naive", "H100", 1), "ok")
    assert search(attempt, 16, 16, record) == 1
    assert (record.status, record.batch.search_crash) == ("ok", "")


@pytest.mark.parametrize(
    ("taken", "processes", "beside"),
    [
        (0, 1, ""),
        (4, 1, ""),
        (5, 1, "others had 0.0 GB of the GPU's memory"),
        (0, 2, "another process used the GPU"),
    ],
)
@pytest.mark.parametrize("start", [1, 8])
def test_a_micro_batch_that_others_left_no_room_for_may_fit_another_time(
    taken: int, processes: int, beside: str, start: int
) -> None:
    record = Record.of(Trial("vit", "tiny", "naive", "H100", 1), "ok")
    attempt = partial(search_of, "out_of_memory", taken=taken, gpu_state={"processes": processes})
    assert search(attempt, 16, start, record) == 2
    output = f"a larger micro batch ran out of memory as {beside}" if beside else None
    assert (record.status, larger_may_fit(record), disturbance(record)) == ("ok", output, output)
    assert undisturbed(record) == (not beside)


def test_the_memory_of_the_host_does_not_go_by_the_micro_batch_in_a_search_either() -> None:
    for start, at in ((1, 4), (8, 8)):
        record = Record.of(Trial("vit", "tiny", "naive", "H100", 1), "ok")
        assert search(partial(search_of, "out_of_memory", of_host=True), 16, start, record) == 0
        assert (record.status, record.host_ran_out) == ("out_of_memory", True)
        assert record.reason == f"the host's memory ran out while searching at micro batch {at}: no more"
        assert (fits(record), disturbance(record)) == (None, None)


def test_a_gpu_that_others_filled_before_fits_nothing_for_their_sake() -> None:
    """Not even CUDA starts there, and so the GPU tells of no second process."""
    known: dict[str, Any] = {"gpu_state": {"processes": 1}, "gpu_memory": (80 * 10**9, 79 * 10**9)}
    error = "CUDA error: out of memory"
    full = RankOutcome(0, "out_of_memory", error=error, traceback="here", **known)
    record = Record.of(Trial("vit", "paper", "naive", "H100", 1), "ok")
    assert search(lambda start, largest: ("out_of_memory", [full]), 16, 1, record) == 0
    assert record.reason == "not even a micro batch of 1 fits; others had 79.0 GB of the GPU's memory"
    assert record.remedy == "run it again once no other process uses the GPU"
    assert (fits(record), disturbance(record)) == (None, "others had 79.0 GB of the GPU's memory")


def timed(
    number: int, graphs: dict[str, int] | None = None, skipped: int = 0, uncounted: str | None = None
) -> RankOutcome:
    """What a rank tells when it has measured."""
    times = {"without": [1.0] * 3, "with": [1.0] * 3, "update": [1.0] * 3}
    value = Measured(
        times,
        times,
        times,
        peak_memory=100 + number,
        warm_up=2.0 + number,
        whole_steps=[4.0 - number, 2.0 + number, 5.0],
        graphs=graphs,
        losses=[6.0 + number],
        skipped_updates=skipped,
        launches=None if number or uncounted else {"with": 700, "update": 90},
        uncounted=uncounted,
    )
    return RankOutcome(number, "ok", value)


def take(outcomes: list[RankOutcome], record: Record, folder: Path) -> None:
    """Puts what ranks told into a record that also checks its extrapolation."""
    trial = Trial(record.recipe, "tiny", record.settings, "cpu", record.count, check_extrapolation=True)
    server: Any = None  # what it told is here
    _take(outcomes, trial, Bench(server, Stack(PACKAGES, None), None, folder), record)


def test_the_rank_that_takes_most_tells_memory_warm_up_and_whole_steps(tmp_path: Path) -> None:
    record = altered(Record.of(Trial("pythia-1b", "tiny", "naive", "cpu", 2), "ok"), micro_batch=4, accumulation=2)
    take([timed(0), timed(1)], record, tmp_path)
    assert (record.observed.peak_memory, record.observed.warm_up_seconds) == (101, 3.0)
    assert record.observed.whole_steps == [4.0, 3.0, 5.0]
    assert (record.derived.true_step, record.observed.extrapolation_error) == (3.0, 3 / 4 - 1)
    assert (record.observed.losses, warnings(record)) == ([6.0], []), "the first rank's"


def test_timed_updates_that_the_loss_scale_skipped_are_reported(tmp_path: Path) -> None:
    record = altered(Record.of(Trial("pythia-160m", "tiny", "naive", "cpu", 2), "ok"), micro_batch=4, accumulation=2)
    take([timed(number, skipped=2) for number in range(2)], record, tmp_path)
    [warning] = warnings(record)
    assert warning.startswith("2 timed updates were skipped by the fp16 loss scale, and count too short; ")


def test_a_gpu_that_was_held_down_while_it_was_timed_is_reported(tmp_path: Path) -> None:
    record = altered(Record.of(Trial("pythia-160m", "tiny", "naive", "H100", 1), "ok"), micro_batch=4, accumulation=4)
    outcome = timed(0)
    outcome.value = replace(outcome.value, gpu_state={"throttle_reasons": 0, "too_hot": 0.25, "short_of_power": 0.0})
    server: Any = None  # what it told is here
    bench = Bench(server, Stack(PACKAGES, (9, 0)), None, tmp_path)
    _take([outcome], Trial("pythia-160m", "tiny", "naive", "H100", 1), bench, record)
    [warning] = warnings(record)
    assert warning.startswith("the GPU throttled: too hot, 25% of the time while it was timed: ")


@pytest.mark.parametrize(
    ("processes", "of_host", "ends", "remedy"),
    [
        (1, False, "fits", "needs more memory: "),
        (2, False, "fits; another process used the GPU", "run it again once no other process uses the GPU"),
        (2, True, "fits: no more", "needs more memory of the host: "),
    ],
)
def test_memory_that_ran_out_on_a_gpu_that_another_process_used_is_reported(
    processes: int, of_host: bool, ends: str, remedy: str
) -> None:
    def attempt(start: int, largest: int) -> tuple[Ended, list[RankOutcome]]:
        state: dict[str, float | None] = {"processes": processes, "throttle_reasons": 0x40}
        full = RankOutcome(0, "out_of_memory", error="no more", traceback="here", of_host=of_host, gpu_state=state)
        return "out_of_memory", [full]

    record = Record.of(Trial("vit", "tiny", "naive", "H100", 1), "ok")
    assert search(attempt, 16, 1, record) == 0
    assert (record.status, record.reason) == ("out_of_memory", f"not even a micro batch of 1 {ends}")
    assert record.remedy.startswith(remedy)
    assert (record.batch.full == []) == of_host, "the GPU had room"


def test_a_rank_that_was_killed_as_memory_ran_out_is_told_by_others() -> None:
    said = "the kernel killed the process, as the host's memory ran out"
    record = Record.of(Trial("vit", "tiny", "naive", "cpu", 1), "ok")
    assert (
        search(lambda start, largest: ("out_of_memory", [RankOutcome(0, "out_of_memory", error=said)]), 16, 1, record)
        == 0
    )
    assert (record.status, record.reason) == ("out_of_memory", f"not even a micro batch of 1 fits: {said}")
    assert (record.batch.full, record.observed.gpu_state) == ([], None)


def test_a_model_that_was_to_be_compiled_and_has_no_graph_is_no_measurement(tmp_path: Path) -> None:
    for graphs in (None, {"compiled": 0, "breaks": 3, "recompilations": 0}):
        record = altered(Record.of(Trial("vit", "tiny", "free_lunch", "cpu", 1), "ok"), micro_batch=4, accumulation=4)
        record.as_run = replace(record.as_run, compiled=True)
        take([timed(0, graphs)], record, tmp_path)
        assert (record.status, record.derived.authors_days, record.derived.true_days) == ("crashed", None, None)
        assert "the model ran uncompiled" in record.reason


# --- What cannot be measured ---


def test_what_the_stack_lacks_is_unsupported(measure: Measure) -> None:
    lacking = {name: version for name, version in PACKAGES.items() if name != "deepspeed"}
    record = measure("pythia-1b", "zero_1", packages=lacking)
    assert (record.status, record.reason) == ("unsupported", "deepspeed is not installed")
    assert "run_all.sh" in record.remedy
    assert record.times.host == []


def test_a_trial_over_its_time_is_timed_out(measure: Measure) -> None:
    record = measure("mamba", "naive", 2, timeout=0.5)
    assert (record.status, record.remedy) == ("timed_out", "raise --trial-timeout")
    assert record.reason == "the trial did not end within its time limit of 0.5 s"
    assert record.wall_seconds < 10
    assert (record.derived.true_days, record.derived.authors_days) == (None, None)


def test_a_crash_keeps_its_traceback(measure: Measure) -> None:
    record = measure("vit", "naive", 2, variables={"GLOO_SOCKET_IFNAME": "nowhere"})
    assert record.status == "crashed"
    assert "nowhere" in record.reason
    assert "\n" not in record.reason
    assert record.traceback.startswith("Traceback")
    assert "init_process_group" in record.traceback
    assert "traceback" in record.remedy


def test_a_search_that_crashes_where_it_was_reported_to_start_starts_once_more_at_1(
    fork_server: ForkServer, tmp_path: Path
) -> None:
    server = in_environment(fork_server, {"GLOO_SOCKET_IFNAME": "nowhere"})
    trial = Trial("vit", "tiny", "naive", "cpu", 2, micro_batch=8)
    record = run_trial(trial, Bench(server, Stack(PACKAGES, None), None, tmp_path))
    assert record.status == "crashed"
    assert [(job.arguments["start"], job.arguments["largest"]) for job in server.jobs] == [(8, 8), (1, 4)]


@pytest.mark.slow
def test_a_fork_server_that_dies_is_a_crash_with_the_end_of_its_log(tmp_path: Path) -> None:
    with ForkServer(tmp_path / "server.log", {"PYTHONHOME": str(tmp_path)}) as server:
        record = run_trial(
            Trial("vit", "tiny", "naive", "cpu", 1), Bench(server, Stack(PACKAGES, None), None, tmp_path)
        )
    assert (record.status, record.reason) == ("crashed", "the fork server ended with exit code 1")
    assert "encodings" in record.traceback  # what Python says where its library is not


def test_the_compilers_processes_are_gone_before_anything_is_timed(in_ranks: Callable[..., list[Any]]) -> None:
    before, after = in_ranks("compiler_processes")[0]
    assert before >= 1
    assert after == 0


@pytest.mark.nightly  # it compiles for long
def test_torch_compile_reaches_into_the_layers_that_fsdp_shards(measure: Measure) -> None:
    record = ok(measure("vit", "free_lunch+checkpointing+fsdp_3", 2))
    assert record.as_run.compiled
    assert record.as_run.graphs is not None
    assert record.as_run.graphs["layers"] == 2


def test_what_torch_compile_breaks_at_once_counts_as_left_as_it_was(in_ranks: Callable[..., list[Any]]) -> None:
    assert in_ranks("calls_a_graph")[0] == {"whole": True, "broken": False}


def test_graphs_their_breaks_and_what_is_compiled_again_are_counted(in_ranks: Callable[..., list[Any]]) -> None:
    """Two graphs, of which either type has its own."""
    assert in_ranks("graphs_made") == [{"compiled": 4, "breaks": 2, "recompilations": 2}]


def test_sharded_layers_that_are_left_as_they_were_are_reported(tmp_path: Path) -> None:
    record = altered(
        Record.of(Trial("roberta", "tiny", "free_lunch+fsdp_3", "cpu", 2), "ok"), micro_batch=4, accumulation=1
    )
    graphs = {"compiled": 2, "breaks": 4, "recompilations": 0, "layers": 0}
    take([timed(number, graphs) for number in range(2)], record, tmp_path)
    [warning] = warnings(record)
    assert warning.startswith("torch.compile left the sharded layers as they are")


@pytest.mark.parametrize(("count", "graphs", "output"), [(1, 18, True), (1, 1, False), (2, 1, False)])
def test_a_model_that_torch_compile_breaks_up_is_reported(
    count: int, graphs: int, output: bool, tmp_path: Path
) -> None:
    record = altered(
        Record.of(Trial("pythia-1b", "tiny", "free_lunch", "cpu", count), "ok"), micro_batch=4, accumulation=1
    )
    made = {"compiled": graphs, "breaks": 3, "recompilations": 0}  # DDP breaks around the model, not in it
    take([timed(number, made) for number in range(count)], record, tmp_path)
    said = f"torch.compile broke the model into {graphs} graphs: what lies between them ran uncompiled"
    assert [warning.partition(";")[0] for warning in warnings(record)] == ([said] if output else [])


def without_a_compiler(folder: Path) -> dict[str, str]:
    """Variables of a machine without a C++ compiler, and without what an earlier one compiled."""
    return {"PATH": "", "TORCHINDUCTOR_CACHE_DIR": str(folder)}


def test_what_cannot_be_compiled_is_measured_uncompiled_and_says_so(fork_server: ForkServer, tmp_path: Path) -> None:
    def fail_at_the_model(job: Job) -> Job | None:
        return within(without_a_compiler(tmp_path), job) if job.arguments.get("compiled") else None

    bench = Bench(ScriptedServer(fail_at_the_model, fork_server), Stack(PACKAGES, None), None, tmp_path)
    record = ok(run_trial(Trial("vit", "tiny", "free_lunch", "cpu", 1), bench))
    assert (record.as_run.compiled, record.as_run.graphs) == (False, None)
    warning = warnings(record)[0]
    assert warning.startswith("crashed while compiled, measured uncompiled: ")
    assert "\n" not in warning
    assert record.traceback.startswith("Traceback")


def test_convolutions_that_lack_memory_while_timing_are_tried_at_half_the_size(
    fork_server: ForkServer, tmp_path: Path
) -> None:
    def lack_engines(job: Job) -> list[RankOutcome] | None:
        if job.arguments.get("micro_batch", 0) <= 2:
            return None
        error = "RuntimeError: GET was unable to find an engine to execute this computation"
        return [RankOutcome(0, "crashed", error=error)]

    server = ScriptedServer(lack_engines, fork_server)
    record = ok(
        run_trial(Trial("convnext", "tiny", "naive", "cpu", 1), Bench(server, Stack(PACKAGES, None), None, tmp_path))
    )
    assert record.batch.micro_batch == 2
    assert record.batch.halvings > 0
    assert warnings(record)[0].startswith(f"timing ran out of memory at micro batch {2 << record.batch.halvings}, ")


def lacking_memory(server: ForkServer, of_host: bool) -> ScriptedServer:
    """One whose ranks run out of memory while they time more than a micro batch of 2: of that of the host beside their
    GPU, as the kernel tells, or of their own."""

    def script(job: Job) -> list[RankOutcome] | None:
        if job.arguments.get("micro_batch", 0) <= 2:
            return None
        error = "the kernel killed the process, as the host's memory ran out"
        return [RankOutcome(0, "out_of_memory", error=error, of_host=of_host)]

    return ScriptedServer(script, server)


def test_a_trial_ends_in_time_at_every_size_that_it_falls_back_to(fork_server: ForkServer, tmp_path: Path) -> None:
    server = lacking_memory(fork_server, of_host=False)
    trial, until = Trial("vit", "tiny", "naive", "cpu", 1, steps=1), time.monotonic() + 100
    ok(run_trial(trial, Bench(server, Stack(PACKAGES, None), None, tmp_path), until=until))
    assert [job.arguments.get("micro_batch") for job in server.jobs] == [None, 16, 8, 4, 2]
    limits = [job.timeout for job in server.jobs]
    assert limits == sorted(limits, reverse=True)
    assert limits[0] <= 100


def test_a_host_that_lacks_memory_while_timing_is_reported_as_such(fork_server: ForkServer, tmp_path: Path) -> None:
    trial = Trial("vit", "tiny", "naive", "cpu", 1)
    lacking = [lacking_memory(fork_server, of_host) for of_host in (True, False)]
    of_host, own = (run_trial(trial, Bench(server, Stack(PACKAGES, None), None, tmp_path)) for server in lacking)
    assert (of_host.status, of_host.host_ran_out, of_host.batch.halvings) == ("out_of_memory", True, 0)
    assert re.fullmatch(
        r"the host's memory ran out while timing micro batch \d+: the kernel killed the process, .* ran out",
        of_host.reason,
    )
    assert of_host.remedy.startswith("needs more memory of the host: ")
    assert (of_host.batch.micro_batch, of_host.derived.true_days, warnings(of_host)) == (None, None, [])
    assert (ok(own).batch.micro_batch, own.host_ran_out) == (2, False)


@pytest.mark.nightly  # it compiles for long
def test_what_a_killed_compiler_left_is_compiled_again(
    fork_server: ForkServer, in_ranks: Callable[..., list[Any]], tmp_path: Path
) -> None:
    def cut_short(job: Job) -> list[RankOutcome] | None:
        fails = job.arguments.get("compiled") and not server.cleaned
        return [RankOutcome(0, "crashed", error="OSError: file too short")] if fails else None

    server = ScriptedServer(cut_short, fork_server, removable=1)
    bench = Bench(server, Stack(PACKAGES, None), None, tmp_path)
    record = ok(run_trial(Trial("vit", "tiny", "free_lunch", "cpu", 1), bench))
    assert (record.as_run.compiled, record.as_run.compile_error, server.cleaned) == (True, "", 1)

    variables = {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache")}
    assert in_ranks("compiled_sum", variables=variables) == [3.0]
    cut = max((tmp_path / "cache").rglob("*.main.so"), key=lambda file: file.stat().st_size)
    cut.write_bytes(b"")
    with pytest.raises(AssertionError, match=r"rank 0: .*file too short"):
        in_ranks("compiled_sum", variables=variables)
    assert clean_build_caches(variables) == 1
    assert in_ranks("compiled_sum", variables=variables) == [3.0]
    assert cut.stat().st_size > 0


def test_where_nothing_can_be_compiled_free_lunch_is_unsupported(measure: Measure, tmp_path: Path) -> None:
    record = measure("vit", "free_lunch", variables=without_a_compiler(tmp_path))
    assert record.status == "unsupported"
    assert record.reason.startswith("torch.compile compiles nothing here: ")
    assert "C++ compiler" in record.remedy
    assert record.traceback.startswith("Traceback")
    assert record.derived.authors_step is None


def test_where_nothing_can_be_compiled_the_first_error_is_named() -> None:
    """What fails halfway through its import fails in another way at the next."""
    failed = [RankOutcome(0, "crashed", error="AssertionError: duplicate template name")]
    model = RankOutcome(0, "crashed", error="BackendCompilerFailed: no compiler")
    first = {"deepspeed": "no module", "torch._inductor.lowering": "UnicodeDecodeError: 'gb18030' codec"}
    for broken, named in ((first, "UnicodeDecodeError: 'gb18030' codec"), ({}, "BackendCompilerFailed: no compiler")):
        ranks: Any = SimpleNamespace(
            call=lambda *_: failed, bench=SimpleNamespace(server=SimpleNamespace(broken=broken))
        )
        record = Record.of(Trial("vit", "tiny", "free_lunch", "cpu", 1), "ok")
        assert not _go_uncompiled(ranks, record, model)
        assert record.reason == f"torch.compile compiles nothing here: {named}"


def test_tf32_that_is_asked_for_and_does_not_run_is_reported(fork_server: ForkServer, tmp_path: Path) -> None:
    known = {"recipe": "vit", "scale": "tiny", "settings": "naive", "start": 1, "largest": 1}
    for tf32 in (True, False):
        job = Job("repro.measure.phases:fit", known | {"tf32": tf32}, 1, str(tmp_path / "log"), timeout=PATIENCE)
        [outcome] = fork_server.call(job)
        assert outcome.as_run is not None
        assert not outcome.as_run.tf32, "a CPU has none"
        record = Record.of(Trial("vit", "tiny", "naive", "cpu", 1), "ok", as_run=outcome.as_run)
        assert [warning.partition(",")[0] for warning in warnings(record)] == ["asked for TF32"] * tf32


@pytest.mark.parametrize(
    ("search", "output"),
    [
        ("search_in_unasked_tf32", "in TF32 unasked"),
        ("search_with_another_share", "naive should hold about"),
        ("search_with_a_slow_scan", "slow reference"),
    ],
)
def test_what_runs_otherwise_than_asked_fits_nothing(
    fork_server: ForkServer, tmp_path: Path, search: str, output: str
) -> None:
    """Or the trial would take its crash for memory running out near the end, and time what fitted before."""
    [outcome] = fork_server.call(
        Job(f"tests.support.training:{search}", {}, 1, str(tmp_path / "log"), timeout=PATIENCE)
    )
    assert (outcome.status, output in outcome.error) == ("crashed", True), outcome.error
    assert not outcome.fitted
