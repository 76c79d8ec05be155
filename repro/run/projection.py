"""Projections: trials of which one device is measured, and what it would take longer with the others, modelled."""

from __future__ import annotations

from dataclasses import replace
from statistics import median

from ..paper.gpus import Gpu
from ..predict.constants import Rates
from ..predict.fits import Probes, here
from ..predict.forecast import trace_of
from ..predict.hardware import Machine
from ..predict.time import StepModel
from ..predict.traces import nearest_here
from ..record import Record, Trial, derive
from ..validity import Answer


class Projection:
    """What a run needs to know of machines with more devices than it measures on: `known` is the catalogue's GPU, whose
    links it has, or the probes of so many processes on this CPU; `links` are the probes of the GPUs here, where there
    are several, and `host` the bytes a second that the memory around them moves, where settings offload to it."""

    def __init__(self, known: Gpu | Probes, links: Probes | None = None, host: float | None = None) -> None:
        self._known, self._links, self._host = known, links, host

    def complete(self, record: Record, gpu: Gpu | None) -> Record:
        """Add the modelled seconds to a record that ran, and derive its values anew."""
        if not Answer.of(record).was_timed:
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

    def of_one(self, trial: Trial, one: Record | None) -> Record | None:
        """Return the record of a trial that shards nothing from that of the same settings on one device, where each of
        several devices does the same: it has the same micro batch, if its share of the batch is as large. None where
        that has to be measured."""
        recipe, settings = trial.recipe_and_settings
        if one is None or settings.library != "torch" or trial.check_extrapolation or recipe.batch_size % trial.world:
            return None
        if one.device == "cpu":  # each of several has a share of the cores
            return None
        answer, share = Answer.of(one), recipe.batch_size // trial.world
        found = replace(
            one,
            id=trial.id,
            count=trial.count,
            origin="projected",
            measured_on=trial.measured_on,
            wall_seconds=0.0,
        )
        if answer is Answer.DOES_NOT_FIT:
            return found
        micro_batch = one.batch.micro_batch
        if answer is not Answer.TIMED or micro_batch is None or (one.batch.compared_micro_batch or 0) > share:
            return None
        if share % micro_batch:
            return None
        if not self._leaves_room(one, trial.count):
            return None
        return replace(found, batch=replace(one.batch, accumulation=share // micro_batch))

    def _leaves_room(self, one: Record, count: int) -> bool:
        """Return whether connecting to others would still fit beside what one device took."""
        limits = [state["memory_bytes"] or 0.0 for state in one.batch.full if "memory_bytes" in state]
        if not limits or not one.batch.peaks:
            return True  # nothing ran out
        _, constants = here(self._known, count, None)
        room = min(limits) - constants.allowance.context - constants.allowance.group
        return max(size for _, size in one.batch.peaks) <= room
