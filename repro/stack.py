"""Imports the measured stack: torch first, then whatever of it is installed. Every process that trains passes here."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

from . import nvml
from .errors import one_line
from .packages import installed
from .rules import MODEL_MODULES

# Everything trials import, so that a trial forked from a process that holds it starts in milliseconds.
PRELOADED = (
    "torch._dynamo",
    "torch._inductor.compile_fx",
    "torch._inductor.lowering",
    "torch.distributed.fsdp",
    "torch.distributed.algorithms._checkpoint.checkpoint_wrapper",
    "torch.distributed.fsdp.sharded_grad_scaler",
    *MODEL_MODULES.values(),
    "transformers.loss.loss_utils",
    "deepspeed",
    "deepspeed.runtime.zero.stage3",
    "deepspeed.runtime.zero.muon.muon_optimizer",
)


def declare_torchvision_operators() -> None:
    """torchvision has no CPU build on PyPI, and its CUDA build cannot load its operators beside a CPU torch; its
    import, which timm's and transformers' need, then fails on `torchvision::nms does not exist`. Nothing here
    calls these operators: declaring their schemas first is all the import asks for."""
    import torch

    found = installed("torchvision")
    if torch.version.cuda is not None or found is None or "+cpu" in found or hasattr(torch.ops.torchvision, "nms"):
        return
    library = torch.library.Library("torchvision", "DEF")
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    declare_torchvision_operators.library = library  # type: ignore[attr-defined]  # dropped with its last reference


def load(modules: Iterable[str] = ()) -> dict[str, str]:
    """Imports torch, cures torchvision, then imports `modules`; returns those that do not import, each with the error:
    some versions lack them, and some packages are broken."""
    # The driver is asked through NVML: a CUDA context made here would be broken in every forked trial.
    os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
    # The compiler's worker processes start in the trial that needs them, not in every process that imports it.
    os.environ.setdefault("TORCH_WARM_POOL", "0")
    os.environ.setdefault("TORCH_TNT_IN_USE", "1")  # torch 2.3's word for it; its workers would start CUDA here
    # transformers and its hub client look for nothing online: models are built from numbers in their recipes.
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    if not _on_gpus():
        os.environ.setdefault("DS_ACCELERATOR", "cpu")
    declare_torchvision_operators()
    broken = {}
    for module in modules:
        try:
            importlib.import_module(module)
        except Exception as error:  # a broken package fails in its own way
            broken[module] = one_line(error)
    return broken


def _on_gpus() -> bool:
    """Whether what is imported here is to run on GPUs. torch would have to start CUDA to tell of a MIG slice."""
    import torch

    return torch.backends.cuda.is_built() and bool(nvml.visible_devices())


@contextlib.contextmanager
def answers_of_the_driver() -> Iterator[None]:
    """In here torch tells a GPU's compute capability without starting CUDA: DeepSpeed 0.14 and the compiler of torch
    2.3 ask for it when they are imported. More modules ask whether there is a GPU, which torch tells by NVML, but has
    to start CUDA for where it is a MIG slice. What a module binds in here for good asks torch itself ever after."""
    import torch

    devices = nvml.visible_devices()
    if not devices:
        yield
        return
    major, minor = devices[0].compute_capability
    told: dict[str, Any] = {
        "get_device_properties": SimpleNamespace(major=major, minor=minor),
        "current_device": 0,
    }
    if devices[0].sliced:
        told |= {"device_count": len(devices), "is_available": torch.backends.cuda.is_built()}
    own = {name: getattr(torch.cuda, name) for name in told}
    importing = True

    def in_place_of(name: str) -> Callable[..., Any]:
        return lambda *asked, **named: told[name] if importing else own[name](*asked, **named)

    for name in told:
        setattr(torch.cuda, name, in_place_of(name))
    try:
        yield
    finally:
        importing = False
        for name, function in own.items():
            setattr(torch.cuda, name, function)
        interface = sys.modules.get("torch._dynamo.device_interface")
        getattr(interface, "caching_worker_device_properties", {}).clear()  # trials ask for more, and for real


def preload(modules: Sequence[str]) -> dict[str, str]:
    """Imports what trials use, leaving the device untouched; returns what does not import, as `load` does."""
    load()
    with answers_of_the_driver():
        broken = load(modules)
    import torch

    if "deepspeed" in modules and "deepspeed" not in broken and not _on_gpus():
        import deepspeed

        # gloo carries DeepSpeed's collectives on a CPU: its shared-memory ones would be compiled first.
        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    with contextlib.suppress(AttributeError):
        if torch.cuda.is_initialized():
            raise RuntimeError("importing the stack initialised CUDA, and a trial cannot be forked after that")
    return broken
