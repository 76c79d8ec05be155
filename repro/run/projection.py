"""Projections: trials on more devices than there are, from a measured rank of them, or from a trial on fewer.

Where settings shard, one rank runs beside others that do not exist, and its communication is modelled. Where they shard
nothing, each device does what it does with fewer: the measurement there is multiplied by the ratio of two predictions.
"""

from __future__ import annotations

from dataclasses import replace
from statistics import median

from .. import models
from ..models.recipe import divisors
from ..paper.gpus import Gpu
from ..predict.constants import Rates
from ..predict.fits import Probes, here
from ..predict.forecast import trace_of
from ..predict.hardware import Machine
from ..predict.time import StepModel
from ..predict.traces import nearest_here
from ..record import RawTimes, Record, Times, Trial
from ..steps import derive


class Projection:
    """What a run needs to know of machines with more devices than it measures on: `known` is the catalogue's GPU, whose
    links it has, or the probes of so many processes on this CPU; `links` are the probes of the GPUs here, where there
    are several, and `host` the bytes a second that the memory around them moves, where settings offload to it."""

    def __init__(self, known: Gpu | Probes, links: Probes | None = None, host: float | None = None) -> None:
        self._known, self._links, self._host = known, links, host

    def complete(self, record: Record, gpu: Gpu | None) -> Record:
        """Add the modelled seconds to a record of settings that shard, which ran, and derive its values anew."""
        if not record.timed:
            return record
        recipe, settings = record.recipe_and_settings
        machine, rates = self._machine(record.count, record.memory_limit)
        model = StepModel(recipe, trace_of(recipe, machine, settings, nearest_here()), settings, machine, rates)
        reducing = model.exchange()
        record.communication = {
            "without": reducing if settings.reduces_every_micro_step else 0.0,
            "with": reducing,
            "update": model.weight_exchange(),
        }
        copying = waiting = 0.0
        if settings.offloading:
            host = self._host or record.count * machine.bandwidth  # a CPU was probed by so many processes at once
            copying, waiting = model.sharing(host, median(record.times.device_times[0]["update"]))
        record.sharing = {"without": copying, "with": copying, "update": waiting}
        record.derived = derive(record, gpu)
        return record

    def _machine(self, count: int, limit: int | None) -> tuple[Machine, Rates]:
        """Return the machine of `count` devices and its rates. Its links are those measured here, if these are of the
        same kind: not a bridge, which connects no more than two."""
        known = self._known
        if self._links is not None and not isinstance(known, Probes):
            [(probed, measured)] = self._links.counts.items()
            if count == probed or probed > 2 or "bridge" not in known.link:
                known = replace(self._links, counts={count: measured})
        machine, constants = here(known, count, limit)
        return machine, constants.rates

    def group_bytes(self, count: int) -> int:
        """Return the bytes of a GPU that connecting `count` takes."""
        _, constants = here(self._known, count, None)
        return int(constants.allowance.group)

    def multiplied(self, trial: Trial, base: Record, gpu: Gpu | None) -> Record:
        """Return the record of a trial that shards nothing, from that of the same settings on fewer devices. Its micro
        batch is the largest that is no larger, divides a device's share of the batch, and leaves room for connecting
        more devices."""
        found = replace(
            base, id=trial.id, count=trial.count, origin="projected", measured_on=trial.measured_on, wall_seconds=0.0
        )
        if not base.timed:
            return found
        most = base.batch.micro_batch or 1
        sizes = (size for size in _sizes(trial) if size <= most and self._leaves_room(base, trial.count, size))
        if (size := next(sizes, None)) is None:
            reason = f"connecting {trial.count} devices has no room beside any micro batch up to {most}"
            found = Record.of(trial, "out_of_memory", reason, "shard, or take activation checkpointing")
            found.batch.peaks, found.batch.full = base.batch.peaks, base.batch.full
            return found
        accumulation = found.recipe_and_settings[0].batch_size // trial.world // size
        found.batch = replace(base.batch, micro_batch=size, accumulation=accumulation, authors_micro_batch=None)
        found.times, found.communication = self._scaled(base, trial, size)
        found.sharing = dict.fromkeys(found.communication, 0.0)
        seen = base.observed
        found.observed = replace(
            seen,
            gpu_state=seen.gpu_state and seen.gpu_state[:1],
            mean_power=seen.mean_power and seen.mean_power[:1],
            part_power=seen.part_power and seen.part_power[:1],
            peak_memory=seen.peak_memory if size == most else None,
            whole_steps=None,
            extrapolation_error=None,
        )
        found.derived = derive(found, gpu)
        return found

    def _scaled(self, base: Record, trial: Trial, size: int) -> tuple[RawTimes, dict[str, float]]:
        """Return the first rank's times, each part of a step multiplied by its prediction on all devices over that of
        what was measured; and of each part the communication on all devices, in proportion."""
        recipe, settings = trial.recipe_and_settings
        machine, rates = self._machine(trial.count, trial.memory_limit)
        fewer, their_rates = replace(machine, gpus=base.count), rates
        if isinstance(self._known, Probes):  # processes share the CPU's cores: each number of them was probed
            fewer, their_rates = self._machine(base.count, trial.memory_limit)
        trace = trace_of(recipe, machine, settings, nearest_here())
        model = StepModel(recipe, trace, settings, machine, rates)
        theirs = StepModel(recipe, trace, settings, fewer, their_rates)
        computing = model.micro_step(size).seconds - model.exchange()
        reducing = theirs.micro_step(base.batch.micro_batch or size).seconds
        of_authors = theirs.micro_step(base.batch.compared_micro_batch or size).seconds
        ratios = {
            "without": computing / (reducing - theirs.exchange()),
            "with": computing / reducing,
            "update": model.update() / theirs.update(),
        }
        exchanging = median(base.times.device_times[0]["with"]) * model.exchange() / reducing
        times = RawTimes(
            [_times(base.times.host[0], ratios | {"with": computing / of_authors})],
            [_times(base.times.device_times[0], ratios)],
            [_times(base.times.synchronised[0], ratios)],
        )
        return times, {"without": 0.0, "with": exchanging, "update": 0.0}

    def _leaves_room(self, base: Record, count: int, size: int) -> bool:
        """Return whether connecting `count` devices would fit beside what this micro batch took."""
        limits = [state["memory_bytes"] or 0.0 for state in base.batch.full if "memory_bytes" in state]
        if not limits:
            return True  # nothing ran out
        _, constants = here(self._known, count, None)
        room = min(limits) - constants.allowance.context - constants.allowance.group
        return all(took <= room for fitted, took in base.batch.peaks if fitted == size)


def _sizes(trial: Trial) -> list[int]:
    """Return the micro batches that a trial may have, largest first."""
    if trial.micro_batch is not None:
        return [trial.micro_batch]
    recipe, _ = trial.recipe_and_settings
    return divisors(models.micro_batch_limit(recipe, trial.world))[::-1]


def _times(measured: Times, ratios: dict[str, float]) -> Times:
    return {part: [ratios[part] * seconds for seconds in times] for part, times in measured.items()}
