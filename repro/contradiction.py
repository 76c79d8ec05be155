"""Why a record cannot be what a trial left: what it says of itself, and what follows from its raw times, disagree."""

from __future__ import annotations

import json
import math
import re
from typing import Any

import models

from .errors import UserError
from .formats import listing
from .reckon import reckoned
from .settings import Settings
from .trial import AS_TIMED, Record, Trial

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
