"""Mamba-2.8B, a selective state space model. Shape: state-spaces/mamba-2.8b; hyper-parameters: the paper's Table 3 and
the authors' release (apoorvkh/academic-pretraining v1.0.0)."""

from __future__ import annotations

import importlib
import inspect
import sys
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING

from .recipe import Kernels, Optimizer, Recipe, Scale, Schedule, Text

if TYPE_CHECKING:
    from torch import nn

KERNEL_PACKAGES = ("mamba_ssm", "causal_conv1d")
_FUSED = {"mamba_inner_fn": "mamba_ssm", "causal_conv1d_fn": "causal_conv1d"}  # without either the scan is slow
_KERNELS = ("mamba_inner_fn", "selective_scan_fn", "mamba_selective_scan", "causal_conv1d_fn")
_STATE, _CONVOLUTION, _EXPAND = 16, 4, 2  # the same for all model sizes


@dataclass(frozen=True)
class Shape:
    layers: int
    width: int
    vocabulary: int


def parameters(shape: Shape) -> int:
    """Count the weights: the embedding, shared with the head; in each layer four projections (the time step's with a
    bias), the convolution with a bias, the states' decay and skip, and a norm; the last norm."""
    inner, rank = _EXPAND * shape.width, ceil(shape.width / 16)
    projections = shape.width * 2 * inner + inner * (rank + 2 * _STATE) + (rank + 1) * inner + inner * shape.width
    layer = projections + inner * (_CONVOLUTION + 1) + inner * (_STATE + 1) + shape.width
    return shape.vocabulary * shape.width + shape.layers * layer + shape.width


def flops_per_example(shape: Shape, sequence: int) -> int:
    """Return the FLOPs of one sequence, forward and backward (three times the forward pass): per token and layer the
    four projections and the causal convolution, then the output head. Like all FLOP counts here it covers only matrix
    products and convolutions, not the scan: about 9 FLOPs per channel and state outside the tensor cores, 1 % more."""
    inner, rank = _EXPAND * shape.width, ceil(shape.width / 16)
    projections = 2 * (shape.width * 2 * inner + inner * (rank + 2 * _STATE) + rank * inner + inner * shape.width)
    convolution = 2 * inner * _CONVOLUTION
    head = 2 * shape.width * shape.vocabulary
    return 3 * sequence * (shape.layers * (projections + convolution) + head)


def _build(shape: Shape, custom_kernels: bool) -> nn.Module:
    """Build the model. transformers binds kernels when its Mamba module is first imported, and falls back silently: so
    they are chosen here, before that import. Raise RuntimeError if this process has bound the other kernels."""
    module = "transformers.models.mamba.modeling_mamba"
    if module in sys.modules and custom_kernels == bool(getattr(sys.modules[module], "_repro_slow", False)):
        raise RuntimeError(f"{module} is already bound to the other path: build Mamba in a fresh process")
    if not custom_kernels:
        for package in KERNEL_PACKAGES:
            sys.modules[package] = None  # type: ignore[assignment]  # makes its import fail
    from transformers import MambaConfig, MambaForCausalLM
    from transformers.models.mamba import modeling_mamba

    from .objective import LanguageModelling

    modeling_mamba._repro_slow = not custom_kernels
    if not custom_kernels and hasattr(modeling_mamba, "is_fast_path_available"):
        modeling_mamba.is_fast_path_available = False  # transformers before 5 reads this flag
    config = MambaConfig(
        vocab_size=shape.vocabulary,
        hidden_size=shape.width,
        num_hidden_layers=shape.layers,
        state_size=_STATE,
        conv_kernel=_CONVOLUTION,
        expand=_EXPAND,
        residual_in_fp32=True,
        use_cache=False,
    )
    return LanguageModelling(MambaForCausalLM(config))


def bound_kernels() -> dict[str, str]:
    """Return, for each of Mamba's kernels, the package it is bound to in this process, after a build; `transformers` is
    the slow reference implementation."""
    from transformers.models.mamba import modeling_mamba

    bound = {}
    for name in _KERNELS:
        function = getattr(modeling_mamba, name, None)
        if function is None:
            continue
        implementation = inspect.getclosurevars(function).nonlocals.get("implementation", function)
        bound[name] = (getattr(implementation, "__module__", None) or "unknown").split(".")[0]
    return bound


def runs_fused() -> bool:
    """Return whether all custom kernels run in this process, after a build: each may fall back by itself."""
    from transformers.models.mamba import modeling_mamba

    bound = bound_kernels()
    flag = getattr(modeling_mamba, "is_fast_path_available", True)  # only in transformers before 5
    return bool(flag) and all(bound.get(name) == package for name, package in _FUSED.items())


def import_errors() -> str:
    """Return the errors of importing the kernel packages, which transformers hides when it falls back."""
    found = []
    for package in KERNEL_PACKAGES:
        try:
            importlib.import_module(package)
        except Exception as error:  # packages built for another torch raise errors of any type
            found.append(f"{package}: {type(error).__name__}: {error}")
    return "; ".join(found) or "both packages can be imported"


def scans_slowly(model: nn.Module) -> bool:
    """Return whether a model of Mamba's kind runs its scan without mamba-ssm's kernel, to which transformers falls back
    in silence."""
    for module in {sys.modules[type(each).__module__] for each in model.modules()}:
        functions = {name: each for name, each in vars(module).items() if inspect.isfunction(each)}
        if "selective_scan_fn" in vars(module) and not getattr(module, "is_fast_path_available", True):
            return True  # transformers before 5
        for closed in (inspect.getclosurevars(each).nonlocals for each in functions.values()):
            if closed.get("package") == "mamba_ssm" and closed["implementation"] is closed["torch_function"]:
                return True
    return False


def _recipe(scale: Scale, shape: Shape, inputs: Text, batch_size: int) -> Recipe:
    return Recipe(
        id="mamba",
        scale=scale,
        name="Mamba",
        family="mamba",
        inputs=inputs,
        batch_size=batch_size,
        training_steps=572_204,
        precision="bf16",
        optimizer=Optimizer("AdamW", 8e-4, (0.9, 0.95)),
        schedule=Schedule("cosine", warmup_steps=57_220, floor=0.0125),
        clip=1.0,
        layer="MambaBlock",
        width=shape.width,
        parameters=parameters(shape),
        flops_per_example=flops_per_example(shape, inputs.sequence),
        build=lambda kernels, attention: _build(shape, kernels),
        # Its own module is imported only in a trial: it binds its kernels then, and each trial chooses its kernels.
        module="transformers.modeling_utils",
        compiles=False,
        attends=False,
        kernels=Kernels(("mamba-ssm", "causal-conv1d"), bound_kernels, runs_fused, import_errors),
    )


RECIPES = (
    _recipe("paper", Shape(layers=64, width=2560, vocabulary=50_280), Text(4096, vocabulary=50_265), batch_size=128),
    _recipe("tiny", Shape(layers=2, width=64, vocabulary=512), Text(32, vocabulary=512), batch_size=8),
)
