"""Projected ranks beside real ones: they find the same micro batch, hold the same shards, take the same memory, and
compute for as long. tests/projected.py compares all settings that shard; these are of every engine."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from repro import models
from repro.machine.support import Stack
from repro.measure.jobs import Job
from repro.measure.launcher import ForkServer
from repro.measure.trial import Bench
from repro.run.probe import host_bandwidth
from tests.projected import VARIABLES, compared, ranks_of, searched
from tests.support.command_line import PATIENCE

pytestmark = pytest.mark.slow
NIGHTLY = pytest.mark.nightly
_TRIES = 5
_NEAR = 0.15  # of computing time, relative


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkServer]:
    with ForkServer(tmp_path_factory.mktemp("server") / "server.log", VARIABLES) as server:
        yield server


def test_a_projected_rank_gets_from_a_reduction_what_it_gave(server: ForkServer, tmp_path: Path) -> None:
    log = str(tmp_path / "log")
    [outcome] = server.call(Job("tests.support.ranks:exchanged", {}, 1, log, timeout=PATIENCE, projected=True, world=4))
    assert outcome.value == {"scattered": [0.0, 1.0], "gathered": [1.0, 2.0] * 4, "reduced": 3.0}


def test_the_memory_around_gpus_is_measured_for_those_that_share_it(server: ForkServer, tmp_path: Path) -> None:
    bench = Bench(server, Stack({}, None), None, tmp_path)
    assert 1e8 < host_bandwidth(bench) < 1e12


@pytest.mark.parametrize(
    ("recipe", "settings"),
    [
        ("pythia-1b", "free_lunch+zero_2+offloading"),
        ("pythia-1b", "free_lunch+checkpointing+fsdp_3+offloading"),
        ("mamba", "free_lunch+zero_3+offloading"),
        ("vit", "free_lunch+fsdp_2+offloading"),
        pytest.param("pythia-1b", "free_lunch+zero_1", marks=NIGHTLY),
        pytest.param("pythia-1b", "free_lunch+checkpointing+zero_3", marks=NIGHTLY),
        pytest.param("pythia-1b", "free_lunch+fsdp_2", marks=NIGHTLY),
        pytest.param("mamba", "free_lunch+fsdp_3", marks=NIGHTLY),
        pytest.param("vit", "free_lunch+checkpointing+zero_2", marks=NIGHTLY),
    ],
)
def test_a_projected_rank_finds_holds_and_takes_what_the_first_of_two_does(
    server: ForkServer, tmp_path: Path, recipe: str, settings: str
) -> None:
    pair = compared(server, tmp_path / "log", recipe, settings, 2)
    assert pair.differences == []
    weights, held = pair.alone.as_run.weights or 0, pair.alone.as_run.weights_held or 0
    sharded = "zero_3" in settings or "fsdp" in settings
    assert held <= 0.55 * weights if sharded else held == weights


def test_within_a_memory_limit_a_projected_rank_ends_at_the_micro_batch_of_real_ones(
    server: ForkServer, tmp_path: Path
) -> None:
    """The limit is between what the two largest micro batches take on this machine."""
    search = partial(searched, server, tmp_path / "log", "convnext", "free_lunch+zero_1", 2)
    peaks = search(projected=False).peaks
    limit = (peaks[4] + peaks[8]) // 2
    real, alone = search(projected=False, memory=limit), search(projected=True, memory=limit)
    assert (max(peaks), real.largest, alone.largest) == (8, 4, 4)


@pytest.fixture(scope="module")
def computing(server: ForkServer, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., dict[str, Any]]:
    """Calls a few training steps in two real processes, or in the first of them, projected; returns what it found."""
    log = tmp_path_factory.mktemp("computing") / "log"

    def call(recipe: str, settings: str, projected: bool) -> dict[str, Any]:
        share = models.find(recipe, "tiny").batch_size // 2
        arguments = {"recipe": recipe, "settings": settings, "micro_batch": share, "steps": 8}
        outcome = server.call(
            Job("tests.support.ranks:computed", arguments, log=str(log), timeout=PATIENCE, **ranks_of(2, projected))
        )[0]
        assert outcome.status == "ok", outcome.traceback
        return dict(outcome.value)

    return call


@pytest.mark.nightly  # it is about time
@pytest.mark.alone
@pytest.mark.parametrize(
    ("recipe", "settings"),
    [
        ("pythia-1b", "free_lunch+zero_1"),
        ("pythia-1b", "free_lunch+zero_2+offloading"),
        ("pythia-1b", "free_lunch+checkpointing+zero_3"),
        ("pythia-1b", "free_lunch+checkpointing+fsdp_2"),
        ("pythia-160m", "free_lunch+fsdp_3+offloading"),  # fp16, whose scaler skips updates
    ],
)
def test_a_projected_rank_computes_for_as_long_as_a_real_one_that_waits_for_nobody(
    computing: Callable[..., dict[str, Any]], recipe: str, settings: str
) -> None:
    """It calls the same operators, and each takes as much CPU time. Tries go on while another program on the host of
    this machine slows one of them down."""
    real, alone = math.inf, math.inf
    for _ in range(_TRIES):
        both = [computing(recipe, settings, projected) for projected in (False, True)]
        for each in both:
            assert all(math.isfinite(loss) for loss in each["losses"])
            assert each["skipped"] == 0
        assert both[0]["operators"] == both[1]["operators"]
        real, alone = min(real, both[0]["seconds"]), min(alone, both[1]["seconds"])
        if alone == pytest.approx(real, rel=_NEAR):
            break
    assert alone == pytest.approx(real, rel=_NEAR)
