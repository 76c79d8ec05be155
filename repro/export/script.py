"""The script train.py: the lines of a template that a training's recipe and settings need, with their values."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from .. import __version__, models
from ..console import ROOT
from ..machine.support import uses_custom_kernels
from ..models.recipe import Generation, Images, Text
from .training import Training

STOPPED = 75  # its exit code where it was asked to stop, and saved a checkpoint
_TEMPLATE = Path(__file__).with_name("train.template")
_HALF = {"fp16": "torch.float16", "bf16": "torch.bfloat16"}
_CHECKPOINT = "CheckpointWrapper"  # torch's class around a layer whose activations are recomputed


def script(training: Training) -> str:
    """Return the script. Every value of it that is text is written as a literal."""
    return _filled(_needed(_TEMPLATE.read_text(encoding="utf-8"), _parts(training)), _values(training))


def _needed(template: str, parts: set[str]) -> str:
    """Return the lines of a template outside of parts that are not needed. `#<a, b-c>` begins a part that is needed
    with a, or with both b and c, and `#</>` ends it."""
    kept, open = list[str](), list[bool]()
    for line in template.splitlines(keepends=True):
        if begins := re.fullmatch(r"\s*#<([a-z0-9, -]+)>\n", line):
            open.append(any(set(each.split("-")) <= parts for each in begins[1].split(", ")))
        elif line.strip() == "#</>":
            open.pop()
        elif all(open):
            kept.append(line)
    return "".join(kept)


def _filled(text: str, values: dict[str, Any]) -> str:
    """Replace every @name@ by its value."""
    return re.sub("@([a-z0-9_]+)@", lambda found: str(values[found[1]]), text)


def _parts(training: Training) -> set[str]:
    """Return the names of the parts of the template that a training needs."""
    recipe, settings = training.recipe, training.settings
    engine = {"torch": {"torch", "plain"}, "fsdp": {"torch", "fsdp"}, "deepspeed": {"zero"}}[settings.library]
    half = recipe.precision != "fp32"
    scaled = recipe.precision == "fp16" and settings.library != "deepspeed"
    has = {
        "half": half,
        "full": not half,
        "fp16": recipe.precision == "fp16",
        "scaler": scaled,
        "unscaled": not scaled,
        "cast": half and not isinstance(recipe.inputs, Text),
        "clip": recipe.clip is not None,
        "checkpointing": settings.checkpointing,
        "compiled": training.compiled,
        "several": training.world > 1,
        "own": models.is_own(recipe.id),
        "layers": settings.checkpointing or settings.library == "fsdp",
        "modern": bool(settings.parts),
        "usual": not settings.parts,
        "overlap": settings.stage >= 2,
        "text": isinstance(recipe.inputs, Text),
        "images": isinstance(recipe.inputs, Images),
        "generation": isinstance(recipe.inputs, Generation),
        recipe.schedule.kind: True,
    }
    return engine | {name for name, needed in has.items() if needed}


def _values(training: Training) -> dict[str, Any]:
    """Return the values in the template."""
    recipe, settings, inputs = training.recipe, training.settings, training.recipe.inputs
    fsdp, half, parts = settings.library == "fsdp", _HALF.get(recipe.precision), _parts(training)
    offload = "CPUOffloadPolicy" if settings.offloading else "OffloadPolicy"
    kernels = {cuda: uses_custom_kernels(recipe, settings, cuda) for cuda in (False, True)}
    model = "torch.compile(model)" if training.compiled else "model"
    if training.compiled and settings.parts:
        model = "modern.compiled(model, PARTS)"
    scaler = "ShardedGradScaler" if fsdp else "torch.amp.GradScaler"
    return {
        "name": re.sub(r"[^\w .:+-]", "_", recipe.name, flags=re.ASCII),
        "method": settings.id,
        "version": __version__,
        "root": _literal(str(ROOT)),
        "preloaded": '("deepspeed",)' if settings.library == "deepspeed" else "()",
        "recipe": _literal(recipe.id),
        "scale": _literal(recipe.scale),
        "settings": _literal(settings.id),
        "layer": _literal(recipe.layer),
        "parts": settings.parts,
        "precision": _literal(recipe.precision),
        "sharded": _literal(_CHECKPOINT) if settings.checkpointing else "LAYER",
        "batch": recipe.batch_size,
        "micro_batch": _micro_batch(training),
        "steps": f"{recipe.training_steps:_}",
        "gpus": training.world,
        "count": training.count,
        "device": _literal(training.device),
        "step": f"{training.step_seconds:.4g}",
        "origin": _literal(training.origin),
        "dtype": _dtype(training),
        "half": "PRECISION" if half else None,
        "optimizer": recipe.optimizer.name,
        "rate": recipe.optimizer.rate,
        "betas": recipe.optimizer.betas,
        "eps": recipe.optimizer.eps,
        "warmup": recipe.schedule.warmup_steps,
        "floor": recipe.schedule.floor,
        "clip": recipe.clip,
        "kernels": "CUDA" if kernels[True] and not kernels[False] else kernels[True],
        "attention": _literal(settings.attention),
        "tf32": training.tf32,
        "stopped": STOPPED,
        "vocabulary": getattr(inputs, "vocabulary", None),
        "sequence": getattr(inputs, "sequence", None),
        "size": getattr(inputs, "size", None),
        "classes": getattr(inputs, "classes", None),
        "latents": getattr(inputs, "latents", None),
        "policies": f"{offload}, MixedPrecisionPolicy",
        "reshard": "child is not module" if settings.stage == 3 else False,
        "offload": "CPUOffloadPolicy(pin_memory=CUDA)" if settings.offloading else "OffloadPolicy()",
        "scaler": scaler,
        "scaled": "scaler.scale(loss / accumulation)" if "scaler" in parts else "(loss / accumulation)",
        "forward": model,
        "wrapper": _literal("FSDPModule") if fsdp else "type(model).__name__",
        "others": '{"schedule": schedule, "scaler": scaler}' if "scaler" in parts else '{"schedule": schedule}',
    }


def _literal(text: str) -> str:
    """Return a Python literal, in ASCII and on one line whatever the text holds."""
    return json.dumps(text) if text.isascii() else ascii(text)


def _micro_batch(training: Training) -> str:
    """Return the micro batch; on a CPU that of a GPU would take the host's memory."""
    size = str(training.micro_batch)
    return size if training.device == "cpu" or size == "1" else f"{size} if CUDA else 1"


def _dtype(training: Training) -> str | None:
    dtype = _HALF.get(training.recipe.precision)
    if training.settings.library == "deepspeed" and training.recipe.precision == "fp16":
        return f"{dtype} if CUDA else torch.bfloat16"  # DeepSpeed has no fp16 on a CPU
    return dtype
