"""Decide what a record says of its settings, what disturbed it, and whether it is to be believed."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import fields, replace

from . import models
from .console import UserError
from .formats import listing, tallied
from .machine.environment import Environment, RunGpu
from .machine.support import fits_papers_hosts
from .paper.gpus import find
from .paper.settings import Settings
from .record import AsRun, Record, Trial
from .steps import derive


def fits(record: Record) -> bool | None:
    """Return whether its settings fit the memory of the device; None where the record does not say, such as where other
    processes used the GPU."""
    if record.timed:
        return True
    ran_out = record.status == "out_of_memory" and not record.host_ran_out and disturbance(record) is None
    return False if ran_out else None


def feasible(record: Record) -> bool | None:
    """Return whether its settings can be trained on a machine such as the paper's; None where the record does not say.

    A host whose memory ran out counts only for settings for which the paper's hosts have too little, too.
    """
    of_host = record.host_ran_out and record.status not in ("ok", "interrupted", "not_measured", "skipped")
    if of_host and not fits_papers_hosts(*record.recipe_and_settings, record.world):
        return False
    return fits(record)


def is_final(record: Record) -> bool:
    """Return whether the same command may leave it as it is: what failed otherwise may be fixed by then."""
    return fits(record) is not None or record.status in ("skipped", "timed_out")


# NVML's clock event reasons. A power cap is left in: under load a board runs at its cap on both sides.
_THROTTLED = {0x8: "slowed by the hardware", 0x20: "too hot", 0x40: "too hot", 0x80: "short of power"}
_COUNTED = {"too_hot": "too hot", "short_of_power": "short of power"}  # shares of the timed rounds
_THROTTLED_SHARE = 0.01  # less does not show in a median
_TAKEN = 0.05  # of a GPU's memory: a desktop takes less, and what the driver keeps to itself
_BUSY = 0.25  # CPUs: one that another process needs is enough, as threads wait for each other at every operator


def disturbance(record: Record) -> str | None:
    """Describe why its speed, or that it does not fit, may not be what the machine can do; None where nothing is known
    that disturbed it. CPUs that other processes kept busy are a note beside it: `cpu_disturbance`."""
    if record.timed:
        return gpu_disturbance(record) or larger_may_fit(record)
    ran_out = record.status == "out_of_memory" and not record.host_ran_out
    return gpu_disturbance(record) if ran_out else None


def undisturbed(record: Record) -> bool:
    """Return whether it was timed, and nothing is known that disturbed the GPU."""
    return record.timed and disturbance(record) is None


def gpu_disturbance(record: Record) -> str | None:
    """Describe what disturbed the GPU as the record was timed, or as nothing fitted; None where nothing is known."""
    for state in filter(None, record.observed.gpu_state or []):
        if record.timed and (words := _throttled(state)):
            return f"the GPU throttled: {words}"
        if used := _used_by_others(state):
            return used
    return None


def _throttled(state: Mapping[str, float | None]) -> str | None:
    """Describe why a GPU throttled, by its counters over the timed rounds; one without counters, and an older record,
    tell by one look after the rounds. None where it did not."""
    if not _COUNTED.keys().isdisjoint(state):
        shares = {words: state.get(name) or 0.0 for name, words in _COUNTED.items()}
        words, share = max(shares.items(), key=lambda item: item[1])
        return f"{words}, {share:.0%} of the time" if share >= _THROTTLED_SHARE else None
    held = int(state.get("throttle_reasons") or 0)
    return next((words for bit, words in _THROTTLED.items() if held & bit), None)


def larger_may_fit(record: Record) -> str | None:
    """Describe why a larger micro batch than the one that ran may fit; None where nothing is known."""
    if not record.timed:
        return None
    used = next(filter(None, map(_used_by_others, record.batch.full)), None)
    return used and f"a larger micro batch ran out of memory as {used}"


def _used_by_others(state: Mapping[str, float | None]) -> str | None:
    """Describe another process on a GPU. The memory shows one in another container, which the driver does not list."""
    if int(state.get("processes") or 0) > 1:
        return "another process used the GPU"
    taken, total = (state.get(name) or 0.0 for name in ("taken_bytes", "memory_bytes"))
    return f"others had {taken / 1e9:.1f} GB of the GPU's memory" if taken > _TAKEN * total else None


def cpu_disturbance(cpus: float | None) -> str | None:
    """Describe how many CPUs other processes kept busy; None below 0.25 or where the system does not report it."""
    return f"other processes kept about {cpus:.1f} CPUs busy" if cpus is not None and cpus >= _BUSY else None


_MOST = 1e12  # of what follows from raw times: far more seconds, days or examples than any training has


# Optional end of an id, which no record field has.
_AS_TIMED = r"(/[0-9]+-rounds)?(/micro-batch-[0-9]+)?(/method-[0-9a-f]+)?"


def contradiction(record: Record) -> str | None:
    """Describe how the parts of a record contradict each other, as of none that a trial left; None where they agree.

    A record that was timed has the raw times of every rank. What follows from them is derived, whatever it says.
    """
    try:
        recipe = models.find(record.recipe, record.scale)
        settings = Settings.parse(record.settings)
    except UserError as error:
        return str(error)
    if record.modern is not None and record.modern.parts != settings.classes:
        return f"its settings are {record.settings}, and yet its parts are {json.dumps(record.modern.parts)}"
    trial = Trial(
        record.recipe,
        record.scale,
        record.settings,
        record.device,
        record.count,
        memory_limit=record.memory_limit,
        nodes=record.nodes,
        measured_on=record.measured_on,
    )
    if not re.fullmatch(re.escape(trial.id) + _AS_TIMED, record.id):
        return f"its id is {record.id}, what it says of itself makes {trial.id}"
    if record.status == "not_measured":
        return "its status is not_measured, which no trial leaves"
    if reason := _contradiction_of_projection(record):
        return reason
    if record.status != "ok":
        return None
    batch = record.batch
    for micro_batch, accumulation in (
        (batch.micro_batch, batch.accumulation),
        (batch.compared_micro_batch, batch.compared_accumulation),
    ):
        product = trial.world * (micro_batch or 0) * (accumulation or 0)
        if product != recipe.batch_size or (micro_batch or 0) < 0:
            what = f"{trial.world} devices x MBS {micro_batch} x GAS {accumulation}"
            return f"{what} is not the batch size, {recipe.batch_size}"
    if not record.as_run.wrapper or record.as_run.weights_held is None:
        return "it does not say what ran"
    return _contradiction_of_times(record)


def _contradiction_of_projection(record: Record) -> str | None:
    """Describe a contradiction in what a record says of devices that did not compute."""
    if record.origin == "released":
        return "its origin is released, which only the authors' archive has"
    if (record.origin == "projected") != (record.measured_on is not None):
        return f"its origin is {record.origin}, and yet measured_on is {json.dumps(record.measured_on)}"
    if record.measured_on is not None and not 0 < record.measured_on < record.world:
        return f"it is projected to {record.world} devices from {record.measured_on}"
    for name, modelled in (("communication", record.communication), ("sharing", record.sharing)):
        if (modelled is not None) != (record.origin == "projected" and record.status == "ok"):
            return f"its origin is {record.origin}, and yet {name} is {json.dumps(modelled)}"
        if modelled is not None and (set(modelled) != {"without", "with", "update"} or min(modelled.values()) < 0):
            return f"its modelled {name} is {json.dumps(modelled)}, not seconds of each part of a step"
    return None


def _contradiction_of_times(record: Record) -> str | None:
    """Describe what is wrong with the raw times; None where all else follows from them."""
    by_clock = {clock.name: getattr(record.times, clock.name) for clock in fields(record.times)}
    for name, ranks in by_clock.items():
        if len(ranks) != record.ranks:
            return f"{name} has the times of {len(ranks)} ranks, {record.ranks} took part"
    clocks = by_clock.values()
    if not all(time > 0 for clock in clocks for rank in clock for times in rank.values() for time in times):
        return "a raw time of it is not positive"
    rounds = sorted({len(times) for clock in clocks for rank in clock for times in rank.values()})
    if len(rounds) > 1:  # values derived from them take the number of the first rank
        return f"its raw times are of {listing([*map(str, rounds)])} rounds, every rank times as many of each part"
    try:
        derived = derive(record, None)
    except (KeyError, IndexError, ValueError, ArithmeticError):
        return "its raw times are not complete"
    steps = (*derived.step_rounds, derived.authors_step, derived.synchronised_step)
    found = (*steps, derived.examples_per_second, derived.joules_per_step)
    if not all(0 < value < _MOST for value in found if value is not None):
        return "its raw times or powers are beyond those of any machine"
    return None


_REMEDY = "put back the files that the run wrote, or run the same command again, which measures it"
_SAME_MEMORY = 0.02  # relative: pages that a GPU retires are not counted any more


def believed(record: Record, environment: Environment) -> Record:
    """Return the record where its run's environment supports it, else one of the same trial without numbers,
    `not_measured`, with the reason."""
    if (reason := _doubt(record, environment)) is None:
        return record
    found = Record.of(record, "not_measured", reason, _REMEDY, as_run=AsRun(asked_tf32=record.as_run.asked_tf32))
    return replace(found, commit=record.commit, stack_started=record.stack_started)


def _doubt(record: Record, environment: Environment) -> str | None:
    """Describe why the environment does not support a record; None where it does. A CPU's record stands for no cell:
    without an environment it is read as it is."""
    if record.device == "cpu":
        return None if environment == Environment() else _doubt_of_commit(record, environment)
    listed = [gpu for gpu in environment.gpus or [] if _name(gpu) == record.device]
    if len(listed) < (needed := record.count if record.measured_on is None else record.measured_on):
        there = f"lists {tallied(_name(gpu) for gpu in environment.gpus)}" if environment.gpus else "lists no GPU"
        return f"its machine is {needed} x {record.device}, and the run's environment {there}"
    if reason := _doubt_of_commit(record, environment):
        return reason
    sizes = [pair[1] for pair in record.batch.peaks if len(pair) == 2]
    memory, most = max(gpu.memory_bytes for gpu in listed), max([record.observed.peak_memory or 0, *sizes])
    if most > memory:
        return f"it took {most:,} bytes of a GPU that has {memory:,} by the run's environment"
    if record.status == "ok":
        return _doubt_of_gpu(record)
    if record.status == "out_of_memory" and not any(size > 0 for size in sizes):
        return _doubt_of_full_gpu(record, listed)
    return None


def _name(gpu: RunGpu) -> str:
    """Return the name of a listed GPU; the driver's, where the catalogue has another GPU of that name."""
    known = find(gpu.name)
    return gpu.name if known is None or known == find(gpu.driver_name) else f"unknown GPU ({gpu.driver_name})"


def _doubt_of_commit(record: Record, environment: Environment) -> str | None:
    listed = list(dict.fromkeys([*environment.commits, environment.commit]))
    if record.commit in listed:
        return None
    commit, *commits = ("no known commit" if each is None else f"commit {each}" for each in (record.commit, *listed))
    return f"it was written by {commit}, and the run's environment lists {listing(commits)}"


def _doubt_of_gpu(record: Record) -> str | None:
    """Describe why a trial that was timed did not run on a GPU."""
    states = record.observed.gpu_state or []
    known = any(value is not None for state in states for value in (state or {}).values())
    if not known or len(states) != record.ranks:
        return "it does not say in which state the GPU of each rank was as it was timed"
    if any(
        host["with"] == device["with"]
        for host, device in zip(record.times.host, record.times.device_times, strict=True)
    ):
        return "its device's clock read exactly what the host's did, as on a CPU"
    if record.derived.utilisation is not None and record.derived.utilisation > 1:
        return (
            f"by the true clock it made {record.derived.utilisation:.0%} of the GPU's dense peak, more than there is: "
            "its clock is wrong, or its GPU's row in expected/gpus.csv"
        )
    return None


def _doubt_of_full_gpu(record: Record, listed: list[RunGpu]) -> str | None:
    """Describe why nothing shows that memory ran out of a listed GPU, where no micro batch fitted before."""
    states = [*record.batch.full, *filter(None, record.observed.gpu_state or [])]
    reported = [memory for state in states if (memory := state.get("memory_bytes"))]
    if not reported:
        return "it ran out of memory without what the GPU said of its memory, and without a size that fitted before"
    if any(abs(memory - gpu.memory_bytes) <= _SAME_MEMORY * gpu.memory_bytes for memory in reported for gpu in listed):
        return None
    sizes = listing(sorted({f"{gpu.memory_bytes:,}" for gpu in listed}))
    return (
        f"it ran out of the memory of a GPU of {reported[0]:,.0f} bytes, and the run's environment lists one of {sizes}"
    )
