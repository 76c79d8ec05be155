"""The ids that Tango gave the steps of each setting, computed without Tango: only they say what a result is of."""

from __future__ import annotations

import hashlib
import io
import itertools
import pickle
from collections.abc import Iterator
from typing import Any, NamedTuple

from .. import models
from ..paper.settings import NAIVE, Settings, search_space
from ..paper.tables import COUNTS

_MODELS = {id: id for id in models.IDS} | {"convnext": "convnext-xlarge-22k"}
_GPUS = {"RTX 3090": "geforce3090", "A6000": "a6000", "A100": "a100", "H100": "h100"}
_SHARDINGS = {"none": "", "fsdp_2": "fsdp_shard_grad_op", "fsdp_3": "fsdp_full_shard"}
_BASE58 = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
_PAIRS = [first + second for first in _BASE58 for second in _BASE58]
_HASH_LETTERS = 32


class Steps(NamedTuple):
    """The ids of the three steps of a setting: they find the largest micro batch, time a training step, and compute the
    days of the training."""

    largest: str
    timing: str
    days: str


class _Reference(tuple[str, str, str]):
    """An argument that Tango hashes as module, class and text: a configuration, or another step."""

    __slots__ = ()


class _ArgumentPickler(pickle.Pickler):
    def persistent_id(self, value: Any) -> Any:
        return tuple(value) if isinstance(value, _Reference) else None


def every_setting() -> Iterator[tuple[str, str, int, Settings]]:
    """Yield recipe, GPU, number of GPUs and settings of all that the authors ran: naive, and the search space."""
    for recipe, gpu, count in itertools.product(models.IDS, _GPUS, COUNTS):
        for settings in (NAIVE, *search_space(count)):
            yield recipe, gpu, count, settings


def steps_of(recipe: str, gpu: str, count: int, settings: Settings) -> Steps:
    """Return the ids of a setting's steps. The order of the arguments counts, and so does every space."""
    found = models.find(recipe)
    target = found.batch_size // count
    text = (
        f"TrainingConfig(num_nodes=1, gpus_per_node={count}, gpu_type={_GPUS[gpu]!r}, model={_MODELS[recipe]!r}, "
        f"free_lunch={settings.free_lunch}, activation_checkpointing={settings.checkpointing}, "
        f"sharding={_SHARDINGS.get(settings.sharding, settings.sharding)!r}, offloading={settings.offloading})"
    )
    config = _Reference(("", "TrainingConfig", text))
    largest = _id("find_largest_batch_size", config=config, limit=target)
    timing = _id(
        "benchmark_step_time",
        config=config,
        max_micro_batch_size=_step(largest),
        target_micro_batch_size=target,
        num_benchmarking_steps=3,
        trial=0,
    )
    days = _id("compute_training_days", benchmarking_results=_step(timing), num_steps=found.training_steps)
    return Steps(largest, timing, days)


def _step(id: str) -> _Reference:
    return _Reference(("tango.step", "WrapperStep", id))


def _id(name: str, **arguments: Any) -> str:
    """Return a step's name, its version, and the hash of a pickle of its arguments in base 58."""
    buffer = io.BytesIO()
    _ArgumentPickler(buffer, protocol=4).dump((("tango.format", "DillFormat"), "001", arguments))
    digest = hashlib.blake2b(buffer.getvalue()).digest()
    number, groups = int.from_bytes(digest, "big"), list[str]()
    while number:  # by groups of letters, as long numbers divide slowly
        number, group = divmod(number, len(_PAIRS) ** 4)
        groups += [_PAIRS[group // len(_PAIRS) ** at % len(_PAIRS)] for at in range(4)]
    letters = "".join(reversed(groups)).lstrip(_BASE58[0])
    zeros = len(digest) - len(digest.lstrip(b"\0"))  # each is a leading 1
    return f"{name}-001-{(_BASE58[0] * zeros + letters)[:_HASH_LETTERS]}"
