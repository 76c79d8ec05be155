"""The outcomes of a trial's ranks together: its status, whose failure it was, what fitted; and a failed record."""

from __future__ import annotations

from repro.machine.build_cache import disk_full
from repro.record import GpuState, Record, Status
from repro.validity import gpu_disturbance

from .jobs import RankOutcome

NOT_EVEN_1 = "not even a micro batch of 1 fits"
REMEDIES: dict[str, str] = {
    "out_of_memory": "needs more memory: activation checkpointing, sharding over more devices, or offloading, which "
    "takes the host's",
    "host": "needs more memory of the host: settings without offloading, more GPUs, fewer compilers at once "
    "(TORCHINDUCTOR_COMPILE_THREADS=1), or another host",
    "shared": "run it again once no other process uses the GPU",
    "timed_out": "raise --trial-timeout",
    "unsupported": "leave the part out",
    "disk": "free some space, or name a folder elsewhere in REPRO_CACHE or TMPDIR, and run the same command again",
    "crashed": "read the traceback in trials.jsonl and the log",
}


def joint_status(outcomes: list[RankOutcome]) -> Status:
    """Return the trial's status from its ranks', except those that were stopped for another's failure.

    Where one rank runs out of memory, another's collective may crash on its absence, so memory comes first.
    """
    statuses = {outcome.status for outcome in outcomes} - {"stopped"}
    order: tuple[Status, ...] = ("out_of_memory", "timed_out", "unsupported", "crashed", "ok")
    return next(status for status in order if status in statuses)


def first_failure(outcomes: list[RankOutcome]) -> RankOutcome:
    """Return the rank whose failure is the trial's: one that died without a report, else the first to fail."""
    status = joint_status(outcomes)
    failed = [outcome for outcome in outcomes if outcome.status == status]
    return min(failed, key=lambda outcome: outcome.failed)  # 0 for a rank that died


def largest_fitting(outcomes: list[RankOutcome]) -> int:
    """Return the largest micro batch that fits on all ranks, or 0: one out of memory stops the others."""
    return min(max(outcome.fitted, default=0) for outcome in outcomes)


def peaks(outcomes: list[RankOutcome], fitting: int) -> list[list[int]]:
    """Return the micro batches up to `fitting` and the bytes that they took, on the rank that took most."""
    found: dict[int, int] = {}
    for size, peak in (each for outcome in outcomes for each in outcome.fitted.items()):
        if size <= fitting:
            found[size] = max(peak, found.get(size, 0))
    return [[size, peak] for size, peak in sorted(found.items())]


def gpu_memory(outcome: RankOutcome) -> GpuState:
    """Return the memory of a rank's GPU, and how much was in use before the rank began; empty where unknown."""
    reported = outcome.gpu_memory
    return {} if reported is None else dict(zip(("memory_bytes", "taken_bytes"), reported, strict=True))


def full_gpu(failure: RankOutcome) -> list[GpuState]:
    """Return what a GPU reported as its memory ran out; empty where it did not."""
    state = gpu_memory(failure) | (failure.gpu_state or {})
    return [state] if state and failure.status == "out_of_memory" and not failure.of_host else []


def short_of_disk(failure: RankOutcome) -> str | None:
    """Return why a rank crashed where a disk was full, else None."""
    return disk_full(f"{failure.error}\n{failure.traceback}")


def fail(record: Record, status: Status, failure: RankOutcome, at: str = "") -> None:
    """Give the record a status that is not `ok`. `at` says when the host's memory ran out, unless at a micro batch of
    1."""
    record.status, record.host_ran_out = status, failure.of_host
    states = full_gpu(failure)
    if status == "out_of_memory" and failure.of_host and (memory := gpu_memory(failure)):
        states = [memory]  # records that the host has a GPU
    record.observed.gpu_state = [*states] or None
    record.remedy = REMEDIES["host" if failure.of_host else status]
    record.reason = NOT_EVEN_1 if status == "out_of_memory" else failure.error
    if at and failure.of_host:
        record.reason = f"the host's memory ran out {at}: {failure.error}"
    elif status == "out_of_memory" and (failure.of_host or not failure.traceback):  # a rank that was killed has none
        record.reason += f": {failure.error}"
    if status == "crashed" and (short := short_of_disk(failure)):
        record.reason, record.remedy = f"{short}: {failure.error}", REMEDIES["disk"]
    if (shared := gpu_disturbance(record)) and not failure.of_host:
        record.reason, record.remedy = f"{record.reason}; {shared}", REMEDIES["shared"]
    record.traceback = failure.traceback
