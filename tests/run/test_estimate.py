"""What a trial on a GPU is estimated to take follows from the H100's records, and comes near the seconds they took."""

from __future__ import annotations

from statistics import linear_regression, median

import pytest

from repro.paper.gpus import find
from repro.paper.settings import Settings
from repro.predict.memory import variant_of
from repro.predict.traces import find as find_trace
from repro.record import Record, Trial
from repro.run import estimate
from repro.run.reading import read
from tests.support.command_line import ROOT

FOLDERS = [ROOT / "results" / "h100" / name for name in ("text", "vision")]
RECORDS = [record for folder in FOLDERS for record in read(folder).records if record.status != "skipped"]
RAN = [record for record in RECORDS if record.status == "ok"]


def trial(record: Record) -> Trial:
    return Trial(record.recipe, record.scale, record.settings, record.device, record.count)


def beside_steps(record: Record) -> float:
    """Seconds that a trial took beside its steps, whose times it measured."""
    times = record.times.device_times[0]
    micro_step, update = median(times["without"]), median(times["update"])
    return record.wall_seconds - estimate.measuring(len(times["with"]), micro_step, update, len(record.batch.peaks))


def layers(record: Record) -> int:
    parts = find_trace(record.recipe, variant_of(Settings.parse(record.settings))).layers
    return sum(part.count for part in parts)


def test_the_kept_h100_trials_are_estimated_within_a_quarter_of_what_they_took() -> None:
    h100 = find("H100")
    assert len(RECORDS) == 15
    estimated = sum(estimate.estimate(trial(record), h100) for record in RECORDS)
    assert estimated == pytest.approx(sum(record.wall_seconds for record in RECORDS), rel=0.25)


def test_with_the_steps_that_they_measured_each_is_estimated_within_a_quarter() -> None:
    for record in RAN:
        beside = estimate.STARTING
        if record.as_run.compiled:
            beside += estimate.compiling_seconds(layers(record), Settings.parse(record.settings))
        if record.recipe != "convnext":  # its search without compiling takes longer than any other's
            seconds = record.wall_seconds - beside_steps(record) + beside
            assert seconds == pytest.approx(record.wall_seconds, rel=0.25), record.id


def test_starting_is_the_median_of_what_uncompiled_trials_took_beside_steps() -> None:
    found = [beside_steps(record) for record in RAN if not record.as_run.compiled]
    assert round(median(found), 1) == estimate.STARTING
    assert (round(min(found), 1), round(max(found), 1)) == (3.1, 12.4)


def test_compiling_is_a_line_over_layers_twice_as_high_where_they_are_checkpointed() -> None:
    compiled = [record for record in RAN if record.as_run.compiled]
    plain = [record for record in compiled if "checkpointing" not in record.settings]
    [checkpointed] = [record for record in compiled if record not in plain]
    slope, intercept = linear_regression(
        [layers(record) for record in plain], [beside_steps(record) - estimate.STARTING for record in plain]
    )
    assert (round(intercept, 1), round(slope, 2)) == (estimate.COMPILING, estimate.COMPILING_A_LAYER)
    took = beside_steps(checkpointed) - estimate.STARTING
    assert took / (intercept + slope * layers(checkpointed)) == pytest.approx(estimate.COMPILING_CHECKPOINTED, abs=0.1)
