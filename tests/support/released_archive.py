"""An archive such as the authors released, written without Tango: a workspace of results in a tgz in a tar."""

from __future__ import annotations

import gzip
import io
import pickle
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from repro import models
from repro.paper.settings import Settings
from repro.released.steps import Steps, every_setting, steps_of
from repro.steps import days_of_steps

Setting = tuple[str, str, int, Settings]
RECIPES, GPUS = ("vit",), ("A100", "H100")
_SECONDS = {"vit": 1.2}  # of a training step on one GPU with the fastest settings


def settings() -> list[Setting]:
    """The settings of the archive: those of a model on two GPUs, 164 in all."""
    return [each for each in every_setting() if each[0] in RECIPES and each[1] in GPUS]


def packed(*values: Any) -> bytes:
    """Values as Tango keeps a result: one gzip of pickles that share a memo."""
    buffer = io.BytesIO()
    pickler = pickle.Pickler(buffer, protocol=4)
    for value in ("001", False, *values):
        pickler.dump(value)
    return gzip.compress(buffer.getvalue())


def timing(step: float = 2.0, micro_batch: int = 16, compile_disabled: bool = False) -> dict[str, Any]:
    return {"micro_batch_size": micro_batch, "step_time": step, "compile_disabled": compile_disabled}


def results_of(setting: Setting, timed: dict[str, Any] | None, largest: int = 16) -> dict[str, bytes]:
    """The packed results of a setting's steps, by id; `timed` is None where nothing fits."""
    steps = steps_of(*setting)
    days = timed and days_of_steps(timed["step_time"], models.find(setting[0]).training_steps)
    return dict(zip(steps, map(packed, (largest if timed else 0, timed, days)), strict=True))


def results() -> dict[str, bytes]:
    """The results of all settings: each takes longer than the one before, and naive ones longest."""
    found = dict[str, bytes]()
    for number, setting in enumerate(settings()):
        recipe, _, count, chosen = setting
        slower = 1.5 if not chosen.free_lunch else 1 + number / 1000
        found |= results_of(setting, timing(_SECONDS[recipe] * slower / count))
    return found


def members(packed: Mapping[str, bytes]) -> Iterator[tuple[str, bytes]]:
    """The files of a workspace with these results, each of which has ended."""
    for id, content in packed.items():
        yield f"tango_workspace/cache/{id}/data.dill.gz", content
        yield f"tango_workspace/cache/{id}/cache-metadata.json", b"{}"


def tar(files: Iterator[tuple[str, bytes]], mode: str = "w") -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as out:  # type: ignore[call-overload]
        for name, content in files:
            header = tarfile.TarInfo(name)
            header.size = len(content)
            out.addfile(header, io.BytesIO(content))
    return buffer.getvalue()


def write(path: Path, packed: Mapping[str, bytes], **beside: bytes) -> Path:
    """Write artifacts.tar with these results, and files beside the workspace in it."""
    workspace = tar(members(packed), "w:gz")
    files = [("artifacts/tango_workspace.tgz", workspace), *((f"artifacts/{n}.csv", c) for n, c in beside.items())]
    path.write_bytes(tar(iter(files)))
    return path


def steps(setting: Setting) -> Steps:
    return steps_of(*setting)
