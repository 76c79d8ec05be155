"""Projections: trials of which one device is measured, and the modelled communication with the others."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from statistics import median

from ..paper.gpus import Gpu
from ..predict.calibration import Probes, here
from ..predict.forecast import trace_of
from ..predict.time import exchange_seconds, update_exchange_seconds
from ..predict.traces import nearest_here
from ..record import Record, Trial, derive
from ..validity import Answer


class Projection:
    """What a run needs to know of machines with more devices than it measures on: `known` is the catalogue's GPU, whose
    links it has, or the probes of so many processes on this CPU."""

    def __init__(self, known: Gpu | Probes) -> None:
        self._known = known

    def complete(self, record: Record, gpu: Gpu | None) -> Record:
        """Add the modelled communication to a record that ran, and derive its values anew."""
        if not Answer.of(record).ran:
            return record
        record.communication = self._communication(record)
        record.derived = derive(record, gpu)
        return record

    def _communication(self, record: Record) -> dict[str, float]:
        """Return the seconds that each part of a step takes longer among all devices."""
        recipe, settings = record.recipe_and_settings
        machine, calibration = here(self._known, record.count, record.memory_limit)
        trace, rates = trace_of(recipe, machine, settings, nearest_here()), calibration.rates
        busy = median(record.times.device_times[0]["with"])
        assert record.batch.micro_batch is not None
        reducing = exchange_seconds(recipe, trace, settings, machine, record.batch.micro_batch, rates, busy)
        return {
            "without": reducing if settings.reduces_every_micro_step else 0.0,
            "with": reducing,
            "update": update_exchange_seconds(recipe, trace, settings, machine, rates),
        }

    def group_bytes(self, count: int) -> int:
        """Return the bytes of a GPU that connecting `count` takes."""
        _, calibration = here(self._known, count, None)
        return int(calibration.allowance.group)

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
        if answer is not Answer.RAN or micro_batch is None or (one.batch.compared_micro_batch or 0) > share:
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
        _, calibration = here(self._known, count, None)
        room = min(limits) - calibration.allowance.context - calibration.allowance.group
        return max(size for _, size in one.batch.peaks) <= room


def projections(records: Iterable[Record], device: str, count: int, known: Gpu | Probes) -> list[Record]:
    """Return the records of `count` devices that a run projected, or that follow from what one device measured, at the
    paper's scale. `known` is the catalogue's GPU, or the probes of the devices."""
    projection, found = Projection(known), dict[str, Record]()
    for record in records:
        trial = Trial(record.recipe, record.scale, record.settings, device, count, measured_on=1)
        if record.scale != "paper":
            continue
        if record.id == trial.id:
            answer = Answer.of(record)
            if answer.ran or answer is Answer.DOES_NOT_FIT:
                found[trial.id] = record
        elif record.id == replace(trial, count=1, measured_on=None).id and trial.id not in found:
            one = projection.of_one(trial, record)
            if one is not None:
                found[trial.id] = projection.complete(one, None if isinstance(known, Probes) else known)
    return list(found.values())
