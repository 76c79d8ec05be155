"""All numbers of a record that follow from its raw times: a trial fills them in, a reader checks them, but for the
utilisation, which goes by the catalogue too, and which it reckons anew."""

from __future__ import annotations

from typing import Any

import models

from . import extrapolate
from .extrapolate import Parts
from .gpus import Gpu, peak_flops
from .trial import Record


def reckoned(record: Record, gpu: Gpu | None) -> dict[str, Any]:
    """Field by field, steps in seconds. `gpu` is the device's catalogue entry; without one `utilisation` is None.

    The record must have an accumulation and the raw times of every rank. Raises KeyError, IndexError or ValueError
    where they are not complete.
    """
    assert record.accumulation is not None
    assert record.compared_accumulation is not None
    recipe, accumulation = models.find(record.recipe, record.scale), record.accumulation
    host, device, synchronised = (
        [Parts.of(times) for times in clock] for clock in (record.host, record.device_times, record.synchronised)
    )
    authors = extrapolate.authors_step(host[0], record.compared_accumulation)
    true = extrapolate.true_step(device, accumulation)
    waited = extrapolate.true_step(synchronised, accumulation)
    peak = peak_flops(gpu, recipe.precision, record.in_tf32)
    flops, count = recipe.flops_per_example * recipe.batch_size, record.world
    return {
        "authors_step": authors,
        "step_rounds": extrapolate.true_steps(device, accumulation),
        "true_step": true,
        "synchronised_step": waited,
        "authors_days": extrapolate.days(authors, recipe.training_steps),
        "true_days": extrapolate.days(true, recipe.training_steps),
        "synchronised_days": extrapolate.days(waited, recipe.training_steps),
        "examples_per_second": recipe.batch_size / true,
        "utilisation": extrapolate.utilisation(flops, true, count, peak) if peak else None,
    }
