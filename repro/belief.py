"""How far a record is believed: as far as the folder that it lies in supports it.

`contradiction` asks whether the parts of a record fit each other, this module whether the record fits its
environment.json and its device. Nothing is signed: docs/measuring.md says what cannot be found.
"""

from __future__ import annotations

from .environment import Environment, RunGpu
from .formats import listing, tallied
from .gpus import find
from .trial import Record

_REMEDY = "put back the environment.json that the run wrote, or run the same command again, which measures it"
_SAME_MEMORY = 0.02  # relative: pages that a GPU retires are not counted any more


def believed(record: Record, environment: Environment) -> Record:
    """Return the record, or, where its folder does not support it, one of the same trial that has no number: it is
    `not_measured`, and says why."""
    why = disbelief(record, environment)
    if why is None:
        return record
    return Record(
        record.id,
        record.recipe,
        record.scale,
        record.settings,
        record.device,
        record.count,
        "not_measured",
        why,
        _REMEDY,
        nodes=record.nodes,
        memory_limit=record.memory_limit,
        tf32=record.tf32,
        commit=record.commit,
        stack_started=record.stack_started,
    )


def disbelief(record: Record, environment: Environment) -> str | None:
    """Return why a folder with this environment.json does not support a record; None where it does. A CPU's record
    stands for no cell: without an environment.json it is read as it is."""
    if record.device == "cpu":
        return None if environment == Environment() else _of_another_commit(record, environment)
    listed = [gpu for gpu in environment.gpus or [] if _named(gpu) == record.device]
    if len(listed) < record.count:
        there = f"lists {tallied(_named(gpu) for gpu in environment.gpus)}" if environment.gpus else "lists no GPU"
        return f"its machine is {record.count} x {record.device}, and environment.json {there}"
    if why := _of_another_commit(record, environment):
        return why
    if record.crowd is not None:
        return "it says how busy other processes kept the CPUs, which only a trial on a CPU records"
    memory = max(gpu.memory_bytes for gpu in listed)
    most = max([record.peak_memory or 0, *(size for _, size in _pairs(record.peaks))])
    if most > memory:
        return f"it took {most:,} bytes of a GPU that has {memory:,} by environment.json"
    if record.status == "ok":
        return _of_no_gpu(record)
    if record.status == "out_of_memory":
        return _without_memory(record, listed)
    if record.status == "skipped" and not (record.bound and record.bound > 0):
        return "it was skipped without a bound: the seconds that a training step would have taken at best"
    return None


def _named(gpu: RunGpu) -> str:
    """The name of a GPU that environment.json lists; by the driver's name where the catalogue has another GPU of that
    name."""
    known = find(gpu.name)
    return gpu.name if known is None or known == find(gpu.driver_name) else f"unknown GPU ({gpu.driver_name})"


def _of_another_commit(record: Record, environment: Environment) -> str | None:
    listed = list(dict.fromkeys([*environment.commits, environment.commit]))
    if record.commit in listed:
        return None
    there = listing([_commit(each) for each in listed])
    return f"it was written by {_commit(record.commit)}, and environment.json lists {there}"


def _commit(commit: str | None) -> str:
    return "no known commit" if commit is None else f"commit {commit}"


def _of_no_gpu(record: Record) -> str | None:
    """Why a trial that was timed did not run on a GPU."""
    states = record.gpu_state or []
    known = any(value is not None for state in states for value in (state or {}).values())
    if not known or len(states) != record.world:
        return "it does not say in which state the GPU of each rank was as it was timed"
    if any(host["with"] == device["with"] for host, device in zip(record.host, record.device_times, strict=True)):
        return "its device's clock read exactly what the host's did, as on a CPU"
    if record.utilisation is not None and record.utilisation > 1:
        return (
            f"by the true clock it made {record.utilisation:.0%} of the GPU's dense peak, more than there is: its "
            "clock is wrong, or its GPU's row in expected/gpus.csv"
        )
    return None


def _without_memory(record: Record, listed: list[RunGpu]) -> str | None:
    """Why nothing shows that memory ran out: of the GPU that environment.json lists, no size fitted before, and the GPU
    did not say what it has."""
    if any(size > 0 for _, size in _pairs(record.peaks)):
        return None
    states = [*record.full, *filter(None, record.gpu_state or [])]
    said = [memory for state in states if (memory := state.get("memory_bytes"))]
    if not said:
        return "it ran out of memory without what the GPU said of its memory, and without a size that fitted before"
    if any(abs(memory - gpu.memory_bytes) <= _SAME_MEMORY * gpu.memory_bytes for memory in said for gpu in listed):
        return None
    sizes = listing(sorted({f"{gpu.memory_bytes:,}" for gpu in listed}))
    return f"it ran out of the memory of a GPU of {said[0]:,.0f} bytes, and environment.json lists one of {sizes}"


def _pairs(peaks: list[list[int]]) -> list[list[int]]:
    return [pair for pair in peaks if len(pair) == 2]
