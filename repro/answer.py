"""Whether a record answers anything: not held down or disturbed, without contradiction, and supported by its folder."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

from . import models
from .console import UserError
from .machine.environment import Environment, RunGpu
from .paper.gpus import find
from .paper.settings import Settings
from .record import AS_TIMED, Record, Trial, reckoned
from .text import listing, tallied

# NVML's clock event reasons. A power cap is left in: under load a board runs at its cap on both sides.
_THROTTLED = {0x8: "slowed by the hardware", 0x20: "too hot", 0x40: "too hot", 0x80: "short of power"}
_TAKEN = 0.05  # of a GPU's memory: a desktop takes less, and what the driver keeps to itself
_CROWDED = 0.25  # CPUs: one that somebody else needs is enough, as threads wait for each other at every operator


def crowded(cpus: float | None) -> str | None:
    """That others kept so many CPUs busy, of those that something ran on, in a few words that trials share; None where
    that is little, or nobody tells."""
    if cpus is None or cpus < _CROWDED:
        return None
    return f"other processes kept about {cpus:.1f} CPUs busy"


def unfair(record: Record) -> str | None:
    """Why a measured record is no fair sample of a speed, or one that ran out of memory none of what fits, in a few
    words; None where it is one, or no GPU tells."""
    return disturbed(record) or crowded_out(record)


def disturbed(record: Record) -> str | None:
    """The same of the GPU as it was timed, or as nothing fitted."""
    for state in record.gpu_state or []:
        if state is None:
            continue
        held = int(state.get("throttle_reasons") or 0) if record.status == "ok" else 0
        for bit, words in _THROTTLED.items():
            if held & bit:
                return f"the GPU throttled: {words}"
        if used := _used_by_others(state):
            return used
    return None


def crowded_out(record: Record) -> str | None:
    """Why a larger micro batch than the one that ran may fit, in a few words; None where nothing says so."""
    if record.status != "ok":
        return None
    used = next(filter(None, map(_used_by_others, record.full)), None)
    return used and f"a larger micro batch ran out of memory as {used}"


def _used_by_others(state: Mapping[str, float | None]) -> str | None:
    """What else used a GPU: its processes do not tell of one that runs in another container."""
    if int(state.get("processes") or 0) > 1:
        return "another process used the GPU"
    taken, total = (state.get(name) or 0.0 for name in ("taken_bytes", "memory_bytes"))
    return f"others had {taken / 1e9:.1f} GB of the GPU's memory" if taken > _TAKEN * total else None


def shared(record: Record) -> bool:
    """Whether it ran out of a GPU's memory that was not all its own, and so tells nothing of what fits."""
    return record.status == "out_of_memory" and not record.host_ran_out and disturbed(record) is not None


def stands(record: Record) -> bool:
    """Whether it is the last word on its settings on its machine: they ran at the largest micro batch, or ran out of
    the GPU's memory, all of it theirs."""
    if record.status == "ok":
        return crowded_out(record) is None
    return record.status == "out_of_memory" and not record.host_ran_out and not shared(record)


_EXACT = 1e-6  # relative: JSON keeps every digit, so what follows from raw times follows to the last ones


def contradiction(record: Record) -> str | None:
    """Why a record cannot be what a trial left: its parts contradict each other. None for a sound one.

    Days, steps and rates must follow from the raw times, and these be there for every rank.
    """
    try:
        recipe = models.find(record.recipe, record.scale)
        Settings.parse(record.settings)
    except UserError as error:
        return str(error)
    trial = Trial(
        record.recipe,
        record.scale,
        record.settings,
        record.device,
        record.count,
        memory_limit=record.memory_limit,
        nodes=record.nodes,
    )
    if not re.fullmatch(re.escape(trial.id) + AS_TIMED, record.id):
        return f"its id is {record.id}, what it says of itself makes {trial.id}"
    if record.status == "not_measured":
        return "its status is not_measured, which no trial leaves"
    if record.status != "ok":
        told = [name for name in ("authors_step", "true_step", "true_days") if getattr(record, name) is not None]
        return f"its status is {record.status}, and yet it has {told[0]}" if told else None
    micro_batch, accumulation = record.micro_batch, record.accumulation
    if micro_batch is None or accumulation is None or trial.world * micro_batch * accumulation != recipe.batch_size:
        return (
            f"{trial.world} devices x MBS {micro_batch} x GAS {accumulation} is not the batch size, {recipe.batch_size}"
        )
    if not record.wrapper or record.weights_held is None:
        return "it does not say what ran"
    return _of_times(record)


def _of_times(record: Record) -> str | None:
    """The same of its raw times, and of what follows from them."""
    for name in ("host", "device_times", "synchronised"):
        if len(getattr(record, name)) != record.world:
            return f"{name} has the times of {len(getattr(record, name))} ranks, {record.world} took part"
    clocks = (record.host, record.device_times, record.synchronised)
    if not all(time > 0 for clock in clocks for rank in clock for times in rank.values() for time in times):
        return "a raw time of it is not positive"
    rounds = sorted({len(times) for clock in clocks for rank in clock for times in rank.values()})
    if len(rounds) > 1:  # what is reckoned from them goes by the first rank's
        return f"its raw times are of {listing([*map(str, rounds)])} rounds, every rank times as many of each part"
    try:
        numbers = reckoned(record, None)
    except (KeyError, IndexError, ValueError):
        return "its raw times are not complete"
    del numbers["utilisation"]  # it goes by the catalogue, too, in which a peak may have been mended since
    for name, value in numbers.items():
        told = getattr(record, name)
        if not _same(told, value):
            return f"{name} is {json.dumps(told)}, the raw times give {json.dumps(value)}"
    return None


def _same(told: Any, value: Any) -> bool:
    if isinstance(value, list):
        return len(told) == len(value) and all(map(_same, told, value))
    return isinstance(told, float) and math.isclose(told, value, rel_tol=_EXACT)


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
