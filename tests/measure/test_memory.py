"""A limit on a rank's memory is a real one, and the largest micro batch is what fits under it on every rank."""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import mean
from typing import Any

import pytest

from repro.machine import environment
from repro.machine.packages import installed_packages
from repro.measure.jobs import Job, RankOutcome
from repro.measure.launcher import ForkServer
from repro.measure.memory import is_out_of_memory, is_the_hosts
from repro.measure.trial import Bench, run_trial
from repro.record import Record, Trial
from repro.trial_warnings import warnings
from repro.validity import contradiction
from tests.support.command_line import PATIENCE
from tests.support.scripted_server import ScriptedServer

MIB = 2**20
TIGHT = 56 * MIB  # ConvNeXt on two ranks takes 29 to 37 MiB at a micro batch of 1, 65 to 77 at 8


def through(function: str, phases: tuple[str, ...] = ("fit", "measure"), **known: Any) -> Callable[[Job], Job]:
    """Has these phases of a trial run by tests.support.ranks's function."""

    def change(job: Job) -> Job:
        phase = job.call.split(":")[1]
        if phase not in phases:
            return job
        return replace(job, call=f"tests.support.ranks:{function}", arguments=job.arguments | {"phase": phase} | known)

    return change


@pytest.fixture
def measure(fork_server: ForkServer, tmp_path: Path) -> Callable[..., Record]:
    """Runs a trial of tiny ConvNeXt, naive, on two ranks: one thread each, which a busy machine slows least. Its
    weights are fp32: where a CPU multiplies bf16, the library for that takes 90 MiB, elsewhere nothing."""

    def measured(memory: int | None, change: Callable[[Job], Job] = lambda job: job) -> Record:
        stack = environment.stack([], installed_packages())
        bench = Bench(ScriptedServer(change, fork_server), stack, None, tmp_path)
        return run_trial(Trial("convnext", "tiny", "naive", "cpu", 2, memory), bench)

    return measured


@pytest.fixture
def allocate(fork_server: ForkServer, tmp_path: Path) -> Callable[..., list[RankOutcome]]:
    def allocated(megabytes: int, memory: int | None, ranks: int = 1, **arguments: Any) -> list[RankOutcome]:
        job = Job(
            call="tests.support.ranks:allocate",
            arguments={"megabytes": megabytes, **arguments},
            ranks=ranks,
            log=str(tmp_path / "log"),
            timeout=PATIENCE,
            memory=memory,
        )
        return fork_server.call(job)

    return allocated


# --- The limit ---


@pytest.mark.parametrize("by", ["torch", "python"])
@pytest.mark.parametrize(
    ("megabytes", "memory", "status"),
    [(128, 256 * MIB, "ok"), (512, 256 * MIB, "out_of_memory"), (512, None, "ok")],
)
def test_a_rank_gets_what_its_limit_allows_and_no_more(
    allocate: Callable[..., list[RankOutcome]], by: str, megabytes: int, memory: int | None, status: str
) -> None:
    [outcome] = allocate(megabytes, memory, by=by)
    assert outcome.status == status


@pytest.mark.parametrize(("by", "error"), [("torch", "RuntimeError"), ("python", "MemoryError")])
def test_more_than_any_machine_has_is_out_of_memory(
    allocate: Callable[..., list[RankOutcome]], by: str, error: str
) -> None:
    [outcome] = allocate(1 << 36, None, by=by)
    assert outcome.status == "out_of_memory"
    assert outcome.error.startswith(error)
    assert "allocate" in outcome.traceback


def test_each_rank_has_a_limit_of_its_own(allocate: Callable[..., list[RankOutcome]]) -> None:
    outcomes = allocate(200, 256 * MIB, ranks=3, by="torch")
    assert [(outcome.status, outcome.value) for outcome in outcomes] == [("ok", 3)] * 3


def test_the_rank_that_ran_out_says_so(allocate: Callable[..., list[RankOutcome]]) -> None:
    outcomes = allocate(384, 256 * MIB, ranks=2, by="torch", hungry=1)
    assert outcomes[1].status == "out_of_memory"
    assert outcomes[0].status != "ok"


def test_a_limit_leaves_room_for_a_backward_pass_and_threads_take_none_of_it(
    fork_server: ForkServer, tmp_path: Path
) -> None:
    job = Job("tests.support.ranks:goes_back", {}, 1, str(tmp_path / "log"), timeout=PATIENCE, memory=32 * MIB)
    [outcome] = fork_server.call(job)
    assert (outcome.status, outcome.value) == ("ok", True), outcome.error


def test_the_peak_is_what_was_held_since_the_start(fork_server: ForkServer, tmp_path: Path) -> None:
    [outcome] = fork_server.call(
        Job("tests.support.ranks:peaks", {"megabytes": 128}, 1, str(tmp_path / "log"), timeout=PATIENCE)
    )
    before, after = outcome.value
    assert before < 16
    assert after == pytest.approx(128, abs=16)


def test_on_a_gpu_a_limit_is_its_allocators_share_and_peaks_are_the_allocators(
    fork_server: ForkServer, tmp_path: Path
) -> None:
    """Of the fourth GPU here, which has 4 GiB; the others have another size."""
    limits = [2**30, 2**33, None]
    [outcome] = fork_server.call(
        Job("tests.support.ranks:on_a_gpu", {"limits": limits}, 1, str(tmp_path / "log"), timeout=PATIENCE)
    )
    assert outcome.value == {
        "shares": [0.25, 1.0],
        "host_limited": False,
        "peaks_begin": 1,
        "limited": "reserved",
        "bytes": "allocated",
    }


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        OSError(errno.ENOMEM, "Cannot allocate memory"),
        RuntimeError(
            "[enforce fail at alloc_cpu.cpp:124] err == 0. DefaultCPUAllocator: can't allocate memory: you tried"
        ),
        RuntimeError("std::bad_alloc"),
        RuntimeError("unable to mmap 64 bytes from file </torch_1_2_3>: Cannot allocate memory (12)"),
        RuntimeError("could not create a memory object"),
        RuntimeError("Failed to allocate memory for requested buffer of size 64"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        RuntimeError("CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`"),
        RuntimeError("cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED"),
        RuntimeError("NCCL error in: NCCLUtils.cpp:9\nLast error:\nFailed to CUDA calloc async 64 bytes"),
        type("OutOfMemoryError", (RuntimeError,), {})("CUDA out of memory. Tried to allocate 2.00 GiB"),
        type("OutOfMemoryError", (RuntimeError,), {})("Allocation on device 0"),  # its type is enough
    ],
    ids=lambda error: type(error).__name__,
)
def test_running_out_of_memory_is_recognised_however_it_is_reported(error: Exception) -> None:
    assert is_out_of_memory(error)
    wrapped = ValueError("something failed")
    wrapped.__cause__ = error
    assert is_out_of_memory(wrapped)
    handling = ValueError("something failed while that was handled")
    handling.__context__ = error
    assert is_out_of_memory(handling)


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("mat1 and mat2 shapes cannot be multiplied (2x3 and 2x3)"),
        ValueError("memory"),
        ValueError("out of memory"),
        OSError(errno.ENOSPC, "No space left on device"),
        None,
    ],
)
def test_another_error_is_not_taken_for_it(error: Exception | None) -> None:
    assert not is_out_of_memory(error)


def pin_memory(error: Exception) -> Exception:
    """The error, as what pins memory raises it."""
    try:
        raise error
    except RuntimeError as raised:
        return raised


def asked_to_pin(error: Exception) -> Exception:
    """The error, as a line raises it that has torch pin what it allocates."""
    try:
        raise error  # torch.empty(size, pin_memory=True)
    except RuntimeError as raised:
        return raised


def called_to_pin(error: Exception) -> Exception:
    """The error, as something else raises it that pinning memory calls."""

    def fail() -> None:
        raise error

    def pin_memory() -> None:
        fail()

    try:
        pin_memory()
    except RuntimeError as raised:
        return raised
    raise AssertionError


def foreach_reduce(error: Exception) -> Exception:
    """The error, as FSDP raises it where it reduces gradients and hands them to the host."""
    try:
        raise error
    except RuntimeError as raised:
        return raised


CUDA_HAS_NONE = RuntimeError("CUDA error: out of memory")
OF_TORCH = type("OutOfMemoryError", (RuntimeError,), {})("CUDA out of memory. Tried to allocate 2.00 GiB")


@pytest.mark.parametrize(
    ("error", "hosts"),
    [
        (MemoryError(), True),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), True),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"), True),
        (RuntimeError("unable to mmap 64 bytes from file </torch_1_2_3>: Cannot allocate memory (12)"), True),
        (pin_memory(RuntimeError("CUDA error: out of memory")), True),
        (asked_to_pin(RuntimeError("CUDA error: out of memory")), True),
        (called_to_pin(RuntimeError("CUDA error: out of memory")), False),
        (CUDA_HAS_NONE, False),
        (OF_TORCH, False),
        (foreach_reduce(RuntimeError("CUDA error: out of memory")), True),
        (foreach_reduce(type("OutOfMemoryError", (RuntimeError,), {})("CUDA out of memory. Tried to allocate")), False),
        (RuntimeError("NCCL error in: NCCLUtils.cpp:9\nLast error:\nFailed to CUDA host alloc 64 bytes"), True),
        (RuntimeError("NCCL error in: NCCLUtils.cpp:9\nLast error:\nFailed to CUDA calloc async 64 bytes"), False),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), False),
        (pin_memory(RuntimeError("cannot pin a tensor of the GPU")), False),
        (None, False),
    ],
    ids=str,
)
def test_beside_a_gpu_it_is_reported_whose_memory_ran_out(error: Exception | None, hosts: bool) -> None:
    assert is_the_hosts(error) is hosts


# --- The largest micro batch ---


def test_with_less_memory_the_search_stops_at_a_smaller_micro_batch(measure: Callable[..., Record]) -> None:
    free, tight = measure(None), measure(TIGHT)
    assert (free.status, free.batch.micro_batch, free.batch.accumulation, free.memory_limit) == ("ok", 8, 1, None)
    assert (tight.status, tight.memory_limit) == ("ok", TIGHT)
    assert tight.batch.micro_batch in (1, 2, 4)
    assert tight.batch.accumulation == 8 // tight.batch.micro_batch
    assert tight.observed.peak_memory is not None
    assert free.observed.peak_memory is not None
    assert tight.observed.peak_memory < free.observed.peak_memory


def test_where_not_even_one_example_fits_there_is_a_reason_and_a_remedy(
    fork_server: ForkServer, tmp_path: Path
) -> None:
    bench = Bench(fork_server, environment.stack([], installed_packages()), None, tmp_path)
    record = run_trial(Trial("pythia-160m", "paper", "naive", "cpu", 1, memory_limit=64 * MIB), bench)
    assert (record.status, record.reason) == ("out_of_memory", "not even a micro batch of 1 fits")
    assert "activation checkpointing, sharding" in record.remedy
    assert "allocate memory" in record.traceback
    assert (record.batch.micro_batch, record.times.host, record.derived.true_days) == (None, [], None)


def test_all_ranks_take_what_fits_on_the_tightest(measure: Callable[..., Record]) -> None:
    even = measure(256 * MIB)
    uneven = measure(256 * MIB, change=through("beside_another", megabytes=200, hungry=1))
    assert (even.status, even.batch.micro_batch) == ("ok", 8)
    assert uneven.status == "ok", uneven.reason
    assert uneven.batch.micro_batch in (1, 2, 4)
    assert len(uneven.times.host) == 2


def test_timing_that_runs_out_of_memory_is_halved_until_it_fits(measure: Callable[..., Record]) -> None:
    record = measure(256 * MIB, change=through("greedy", ("measure",), megabytes=80))
    assert record.status == "ok", record.reason
    assert (record.batch.micro_batch, record.batch.accumulation, record.batch.halvings) == (2, 4, 2)
    [halved] = [each for each in warnings(record) if each.startswith("timing")]
    assert halved == "timing ran out of memory at micro batch 8, which the search had fitted, so it used 2"


@pytest.mark.parametrize(("starting", "halved"), [(8, 8), (4, 4)])
def test_what_has_no_memory_to_add_gradients_is_timed_as_the_authors_did(
    measure: Callable[..., Record], starting: int, halved: int
) -> None:
    record = measure(None, change=through("hoarding", ("measure",), starting=starting, adding=2))
    assert record.status == "ok", record.reason
    assert (record.batch.authors_micro_batch, record.batch.micro_batch, record.batch.accumulation) == (starting, 2, 4)
    step = mean(record.times.host[0]["with"]) * 8 / starting + mean(record.times.host[0]["update"])
    assert record.derived.authors_step == pytest.approx(step)
    assert [sorted(times) for times in record.times.host] == [["update", "with"]] * 2
    rounds = [
        max(3 * times["without"][n] + times["with"][n] + times["update"][n] for times in record.times.device_times)
        for n in range(3)
    ]
    assert record.derived.step_rounds == pytest.approx(rounds)
    assert contradiction(record) is None
    output = f"timing ran out of memory at micro batch 8, which the search had fitted, so it used {halved}"
    of_sizes = [each for each in warnings(record) if each.startswith(("timing", "the authors' clock"))]
    assert of_sizes == [
        *([output] if halved < 8 else []),
        f"the authors' clock has micro batch {starting}, the others 2, so their ratio is omitted: accumulated "
        f"gradients, which the authors' timing never keeps, leave no room for {starting}",
    ]


def test_what_has_no_memory_to_add_to_gradients_of_one_example_is_out_of_memory(
    measure: Callable[..., Record],
) -> None:
    record = measure(None, change=through("hoarding", ("measure",), starting=8, adding=0))
    assert (record.status, record.batch.authors_micro_batch, record.times.host) == ("out_of_memory", None, [])
    assert contradiction(record) is None


def test_timing_for_which_nothing_fits_is_out_of_memory(measure: Callable[..., Record]) -> None:
    record = measure(256 * MIB, change=through("greedy", ("measure",), megabytes=300))
    assert record.status == "out_of_memory"
    assert "sharding" in record.remedy
    assert (record.batch.micro_batch, record.derived.true_days) == (None, None)


def test_a_library_that_dies_of_too_little_memory_is_out_of_memory(measure: Callable[..., Record]) -> None:
    record = measure(TIGHT, change=through("brittle"))
    assert record.status == "ok", record.reason
    assert record.batch.micro_batch in (1, 2, 4)


def test_a_library_that_dies_in_any_case_is_a_crash(measure: Callable[..., Record]) -> None:
    record = measure(TIGHT, change=through("broken"))
    assert (record.status, record.reason) == ("crashed", "the process was killed by SIGSEGV")


@pytest.mark.parametrize(
    ("killed", "output"), [(True, "the process was killed by SIGSEGV"), (False, "ValueError: broken")]
)
def test_the_rank_that_failed_first_is_reported_and_not_what_others_say_of_it(
    measure: Callable[..., Record], killed: bool, output: str
) -> None:
    record = measure(None, change=through("broken_second", killed=killed))
    assert (record.status, record.reason) == ("crashed", output)
