"""Whole epochs of a training with image files, which the lab's experiment times."""

from __future__ import annotations

import os
import tempfile
import time
from typing import Any

import torch

from repro import files
from repro.paper.settings import NAIVE

from .. import models
from ..models.recipe import Generation, Scale
from . import engine
from .batches import to_device
from .clock import wait
from .jobs import SEED
from .rank import Rank


def train(rank: Rank, scale: Scale, images: int, epochs: int, folder: str) -> dict[str, Any]:
    """Train the GAN for some epochs on `images` random images, which are in a file in `folder` and are drawn in a new
    order each epoch.

    Returns the seconds of reading and of training of every batch, by epoch, and of every epoch, all on the host, which
    waits for the device after each batch, as a program does that sums its losses.
    """
    described = models.find("gan", scale)
    inputs = described.inputs
    assert isinstance(inputs, Generation)
    built = engine.build(described, NAIVE, rank, 1, compiled=False, tf32=False)
    generator = torch.Generator().manual_seed(SEED)
    reading, training, seconds = [], [], []
    with _ImageFile(folder, images, inputs.size, generator) as file:

        def batch(chosen: torch.Tensor) -> tuple[float, float]:
            began = time.perf_counter()
            pixels = file.read(chosen)
            latents = torch.randn(len(chosen), inputs.latents, generator=generator)
            on_device = to_device({"pixels": pixels, "latents": latents}, rank)
            wait(rank.device)
            have = time.perf_counter()
            built.micro_step(on_device, reduce=True)
            built.update()
            wait(rank.device)
            end = time.perf_counter()
            return have - began, end - have

        def order() -> tuple[torch.Tensor, ...]:
            return torch.randperm(images, generator=generator).split(described.batch_size)

        with rank.timed():
            for _ in range(epochs):
                began = time.perf_counter()
                times = [batch(chosen) for chosen in order()]
                seconds.append(round(time.perf_counter() - began, 6))
                reading.append([round(read, 6) for read, _ in times])
                training.append([round(trained, 6) for _, trained in times])
    return {"reading": reading, "training": training, "seconds": seconds}


class _ImageFile:
    """Random RGB images of one byte per colour in a file without a name, which is dropped from the page cache. A
    context manager."""

    def __init__(self, folder: str, images: int, size: int, generator: torch.Generator) -> None:
        self._shape = (3, size, size)
        self._bytes = 3 * size**2
        self._file = tempfile.TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115
        for chunk in torch.arange(images).split(1024):
            colours = torch.randint(256, (len(chunk), self._bytes), generator=generator, dtype=torch.uint8)
            self._file.write(colours.numpy().tobytes())
        files.sync(self._file)
        os.posix_fadvise(self._file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

    def __enter__(self) -> _ImageFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def read(self, chosen: torch.Tensor) -> torch.Tensor:
        """Return these images, scaled to -1 to 1, by one read each, as for a folder of files. Nothing is decoded."""
        raw = b"".join(os.pread(self._file.fileno(), self._bytes, index * self._bytes) for index in chosen.tolist())
        pixels = torch.frombuffer(bytearray(raw), dtype=torch.uint8).view(len(chosen), *self._shape)
        return pixels.float().div_(127.5).sub_(1)
