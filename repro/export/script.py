"""train.py of an exported training: the user's data set, and the call that trains on it."""

from __future__ import annotations

import json
import re

from .. import __version__
from ..formats import significant
from ..models.recipe import Generation, Images, Text
from ..train.kept import STOPPED
from .training import Training

_MANY = "    torchrun --nproc-per-node {count} train.py          on the {count} GPUs of a node\n"
_SCRIPT = '''"""Trains {name} with {settings}, as exported by repro {version}.

    python train.py                                 on one GPU, or on the CPU
{many}
It trains on random data until `Examples` is replaced. It saves a checkpoint every --checkpoint-every, at the end, and
on SIGTERM, SIGHUP or Ctrl-C; the same command goes on from the last one. Exit code {stopped} means stopped and saved.
"""

from pathlib import Path

from repro.train import train  # before torch, which it sets up as measured
import torch

BATCH = {batch}


class Examples(torch.utils.data.Dataset):
    """PUT YOUR DATA SET HERE. An example is what the model's forward pass takes, by name, for one of a batch."""

    def __init__(self):
        generator = torch.Generator().manual_seed(1)
{made}

    def __len__(self):
        return 100 * BATCH

    def __getitem__(self, index):
        return {item}


if __name__ == "__main__":
    train(
        Examples,
        folder=Path(__file__).resolve().parent,
        recipe={recipe},
        scale={scale},
        settings={method},
        micro_batch={micro_batch},  # the largest that fits on {gpus} x {device}
        device={device},
        compiled={compiled},
        tf32={tf32},
        expected={expected},
    )
'''


def script(training: Training) -> str:
    """Return the script. Whatever a results folder says stays inside of literals."""
    recipe = training.recipe
    made, item = _data(recipe.inputs)
    return _SCRIPT.format(
        name=re.sub(r"[^\w .:+-]", "_", recipe.name, flags=re.ASCII),
        settings=training.settings.id,
        version=__version__,
        many=_MANY.format(count=training.count) if training.world > 1 else "",
        stopped=STOPPED,
        batch=recipe.batch_size,
        made="\n".join(f"        {line}" for line in made),
        item=item,
        recipe=_literal(recipe.id),
        scale=_literal(recipe.scale),
        method=_literal(training.settings.id),
        micro_batch=training.micro_batch,
        gpus=training.world,
        device=_literal(training.device),
        compiled=training.compiled,
        tf32=training.tf32,
        expected=_literal(
            f"{training.origin} on {training.world} x {training.device}: {significant(training.step_seconds, 4)} s"
        ),
    )


def _data(inputs: Text | Images | Generation) -> tuple[list[str], str]:
    """Return the lines that make 64 random examples, and the expression of one of them."""
    if isinstance(inputs, Text):
        made = [f"self.tokens = torch.randint({inputs.vocabulary}, (64, {inputs.sequence}), generator=generator)"]
        return made, '{"input_ids": self.tokens[index % 64], "labels": self.tokens[index % 64]}'
    pixels = f"self.pixels = torch.rand(64, 3, {inputs.size}, {inputs.size}, generator=generator)"
    if isinstance(inputs, Images):
        labels = f"self.labels = torch.randint({inputs.classes}, (64,), generator=generator)"
        return [pixels, labels], '{"pixels": self.pixels[index % 64], "labels": self.labels[index % 64]}'
    assert isinstance(inputs, Generation)
    latents = f"self.latents = torch.randn(64, {inputs.latents}, generator=generator)"
    return [pixels, latents], '{"pixels": 2 * self.pixels[index % 64] - 1, "latents": self.latents[index % 64]}'


def _literal(text: str) -> str:
    """Return a Python literal, in ASCII and on one line whatever the text holds."""
    return json.dumps(text) if text.isascii() else ascii(text)
