"""A trial counts the kernels that its GPU runs, and goes on without a count where nothing can count them."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch._C._autograd import DeviceType

from repro import datafile
from repro.machine.packages import installed_packages
from repro.machine.support import Stack
from repro.measure.launcher import ForkServer
from repro.measure.probes import NotCountedError, launched, profiled
from repro.measure.trial import Bench, _take, run_trial
from repro.record import Record, Trial
from repro.trial_warnings import warnings
from repro.validity import contradiction
from tests.measure.test_trial import timed
from tests.support.command_line import altered


def event(name: str, device: DeviceType, named_range: bool | None = False) -> Any:
    """One of the profiler's; torch before 2.4 does not say what is a named range."""
    known = {} if named_range is None else {"is_user_annotation": lambda: named_range}
    return SimpleNamespace(name=lambda: name, device_type=lambda: device, **known)


def test_what_the_gpu_ran_counts_and_neither_calls_of_the_host_nor_named_ranges() -> None:
    events = [
        event("cudaLaunchKernel", DeviceType.CPU),
        event("ampere_sgemm_128x64_nn", DeviceType.CUDA),
        event("DistributedDataParallel.forward", DeviceType.CUDA, named_range=True),
        event("Memcpy DtoD (Device -> Device)", DeviceType.CUDA),
        event("Memset (Device)", DeviceType.CUDA, named_range=None),
        event("aten::mm", DeviceType.CPU),
    ]
    counted = [each.name() for each in launched(events)]
    assert counted == ["ampere_sgemm_128x64_nn", "Memcpy DtoD (Device -> Device)", "Memset (Device)"]


def test_without_a_gpu_the_work_is_done_and_the_failure_to_count_named() -> None:
    done: list[bool] = []
    with pytest.raises(NotCountedError, match="torch's profiler"):
        profiled(torch.device("cpu"), lambda: done.append(True))
    assert done == [True]


def test_a_cpu_trial_has_no_count_and_no_warning_of_it(fork_server: ForkServer, tmp_path: Path) -> None:
    bench = Bench(fork_server, Stack(installed_packages(), None), None, tmp_path)
    record = run_trial(Trial("pythia-160m", "tiny", "naive", "cpu", 2, steps=1, micro_batch=2), bench)
    assert (record.status, record.observed.launches, contradiction(record)) == ("ok", None, None), record.reason
    assert not any("launches" in warning for warning in warnings(record))


def taken(uncounted: str | None, folder: Path) -> Record:
    """The record of one rank's timing, of which the launches were counted or not."""

    trial = Trial("pythia-160m", "tiny", "naive", "H100", 1)
    record = altered(Record.of(trial, "ok"), micro_batch=4, accumulation=4)
    server: Any = None  # what it answered is here
    _take(
        [timed(0, uncounted=uncounted)], trial, Bench(server, Stack(installed_packages(), (9, 0)), None, folder), record
    )
    return record


def test_the_record_keeps_the_counts_of_a_micro_step_and_of_an_update(tmp_path: Path) -> None:
    record = taken(None, tmp_path)
    assert (record.observed.launches, warnings(record)) == ({"with": 700, "update": 90}, [])
    assert json.loads(json.dumps(datafile.to_json(record)))["launches"] == {"with": 700, "update": 90}


def test_a_profiler_that_fails_leaves_a_warning_and_the_measurement(tmp_path: Path) -> None:
    record = taken("torch's profiler saw no kernel", tmp_path)
    assert (record.status, record.observed.launches) == ("ok", None)
    assert record.derived.true_step is not None
    [warning] = warnings(record)
    assert warning.startswith("kernel launches were not counted: torch's profiler saw no kernel; ")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_runs_as_many_kernels_as_its_work_asks_for() -> None:
    device = torch.device("cuda")
    ones = torch.ones(1024, device=device)
    names = [each.name() for each in profiled(device, lambda: [ones.mul_(2) for _ in range(7)])]
    assert len(names) == 7, names
