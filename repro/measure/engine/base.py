"""The base of all engines: model construction, checkpointing, the optimizer and its schedule, a check of the shards."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn

from repro.machine import support
from repro.measure.rank import Rank
from repro.paper.settings import Settings

from ...models.recipe import Recipe, Schedule
from . import modern
from .hooks import Hooks, weights_to_train

HALF = {"fp16": torch.float16, "bf16": torch.bfloat16}
_ROOM_TO_DRAW = 0.8  # of a GPU's free memory
CHECKPOINT = "CheckpointWrapper"  # torch's class around a layer whose activations are recomputed


@dataclass(frozen=True)
class Held:
    """The number of elements that one rank holds between updates: weights, and one of Adam's two moments."""

    weights: int
    moments: int


class WrongWrapperError(RuntimeError):
    """An error where what runs differs from what the settings ask for."""


class Engine(ABC):
    """A model on its devices. After construction it is ready for the first micro-step.

    `wrapper` names the class that wraps the model, `precision` the one it computes in, `total` counts weights,
    `trained` those that get a gradient.
    `optimizer` is the one that steps, inside the library's wrapper if there is one.
    """

    wrapper: str
    optimizer: Any
    precision: str
    _own = False  # whether the optimizer is a method's

    def __init__(
        self,
        recipe: Recipe,
        settings: Settings,
        rank: Rank,
        accumulation: int,
        compiled: bool,
        tf32: bool,
    ) -> None:
        self.recipe, self.settings, self.rank = recipe, settings, rank
        self.accumulation = accumulation
        self.precision = settings.precision_of(recipe.precision)
        self.parts = settings.parts
        own = modern.methods(settings.parts, recipe, rank.device, self.precision)
        self.hooks = Hooks(settings.methods, rank.methods, own)
        set_tf32(tf32)
        self.module = self._module()
        self.total = sum(weight.numel() for weight in self.module.parameters())
        self.trained = weights_to_train(self.module)
        self._wrap(compiled)

    def _module(self) -> nn.Module:
        """Return the recipe's model in fp32, on the host for engines where each rank keeps only a share of it. There it
        is in DeepSpeed's half precision already if the GPU drew it: a host may lack the memory for both."""
        on_device, quickly = self.settings.library == "torch", self._draws_on_gpu()
        with torch.device(self.rank.device if on_device or quickly else "cpu"):
            kernels = support.uses_custom_kernels(self.recipe, self.settings, self.rank.cuda)
            module = self.hooks.module(self.recipe.build(kernels, self.settings.attention))
        if quickly and not on_device:
            if self.settings.library == "deepspeed":
                module.to(HALF.get(self.precision, torch.float32))  # as DeepSpeed does, in the host's memory
            module.to("cpu")
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        module.train()
        if self.settings.checkpointing:
            _checkpoint(module, self.recipe.layers, **modern.checkpoint_options(self.parts))
        return module

    def _draws_on_gpu(self) -> bool:
        """Return whether the GPU draws the weights, where it holds all of them and no other rank does so beside it: a
        host takes a minute for 6.9B. A projected rank's losses are compared with none, so its draw may be another."""
        if not (self.rank.cuda and self.rank.projected):
            return False
        return 4 * self.recipe.parameters < _ROOM_TO_DRAW * torch.cuda.mem_get_info()[0]

    def _own_optimizer(self, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer | None:
        """Return the optimizer of the settings' own methods; None without one."""
        made = self.hooks.optimizer([*parameters], self.recipe.optimizer)
        self._own = made is not None
        return made

    def _optimizer(self, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        """Return the methods' optimizer, else the recipe's."""
        known = [*parameters]
        return self._own_optimizer(known) or torch_optimizer(self.recipe, known)

    def peak_rate(self) -> None:
        """Have the next update take the peak learning rate. The schedule then sets its own again."""
        for group in self.optimizer.param_groups:
            group["lr"] = group.get("initial_lr", group["lr"])

    @abstractmethod
    def _wrap(self, compiled: bool) -> None:
        """Wrap `module`, and make the optimizer."""

    @abstractmethod
    def micro_step(self, batch: dict[str, torch.Tensor], reduce: bool) -> torch.Tensor:
        """Run forward and backward of one micro batch; return its mean loss, detached, without waiting for it.

        With `reduce` the gradients are reduced over the ranks. Settings that shard gradients always reduce.
        """

    @abstractmethod
    def update(self) -> None:
        """Clip the gradients, step the optimizer and the schedule, and clear the gradients."""

    @abstractmethod
    def skipped_updates(self) -> int:
        """Return how many updates were skipped because the scaled fp16 gradients overflowed. Waits for the device."""

    @abstractmethod
    def held(self) -> Held:
        """Return what this rank holds, after the first update."""

    @property
    def adam(self) -> torch.optim.Optimizer:
        """Return the innermost optimizer, which updates the weights."""
        found = self.optimizer
        while hasattr(found, "optimizer"):
            found = found.optimizer
        return found

    def check(self) -> None:
        """Raise WrongWrapperError unless this rank holds the share that the settings promise."""
        held, world, stage = self.held(), self.rank.world, self.settings.stage
        promised = Held(
            weights=_share(self.total, stage == 3 or self.settings.library == "fsdp", world),
            moments=_share(self.trained, stage >= 1, world),
        )
        for what in ("weights",) if self._own else ("weights", "moments"):  # another optimizer may have other states
            has, should = getattr(held, what), getattr(promised, what)
            # Shards are padded to equal sizes, tensor by tensor.
            if not 0.9 * should <= has <= 1.1 * should + 64 * world * len(list(self.module.parameters())):
                raise WrongWrapperError(
                    f"{self.wrapper} holds {has} {what} on rank {self.rank.index} of {world}, "
                    f"{self.settings.id} should hold about {should} of {self.total}"
                )


def _share(weights: int, sharded: bool, world: int) -> int:
    return math.ceil(weights / world) if sharded else weights


def set_tf32(on: bool) -> None:
    """Turn TF32 on or off in matrix products and convolutions. torch has it on in convolutions; naive needs it off."""
    torch.set_float32_matmul_precision("high" if on else "highest")
    torch.backends.cudnn.allow_tf32 = on


def runs_tf32(device: torch.device) -> bool:
    """Return whether fp32 matrix products run in TF32, which rounds 1 + 2^-12 to 1."""
    kept = torch.full((256, 256), 1 + 2**-12, device=device) @ torch.eye(256, device=device)
    return bool((kept != 1 + 2**-12).any())


def layers(module: nn.Module, names: Sequence[str]) -> list[nn.Module]:
    """Return the layers, whose classes are `names` or FSDP's subclasses of them. Raises WrongWrapperError if there are
    none."""
    found = [child for child in module.modules() if type(child).__name__.removeprefix("FSDP") in names]
    if not found:
        raise WrongWrapperError(f"{type(module).__name__} has no {' or '.join(names)} to shard or checkpoint")
    return found


def _checkpoint(module: nn.Module, names: Sequence[str], **options: Any) -> None:
    """Have these layers recompute their activations; `options` are those of torch's checkpoint."""
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
        apply_activation_checkpointing,
        checkpoint_wrapper,
    )

    wanted = layers(module, names)
    apply_activation_checkpointing(
        module,
        checkpoint_wrapper_fn=partial(checkpoint_wrapper, **options),
        check_fn=lambda child: type(child).__name__ in names,
    )
    wrapped = [child for child in module.modules() if type(child).__name__ == CHECKPOINT]
    if len(wrapped) != len(wanted):
        raise WrongWrapperError(f"{len(wrapped)} of {len(wanted)} {' and '.join(names)} are checkpointed")


def torch_optimizer(recipe: Recipe, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """Return the recipe's optimizer as the authors ran it: torch's own, not fused."""
    wanted = recipe.optimizer
    return getattr(torch.optim, wanted.name)(
        parameters, lr=wanted.rate, betas=wanted.betas, eps=wanted.eps, weight_decay=0.0
    )


def schedule(recipe: Recipe) -> Callable[[torch.optim.Optimizer], torch.optim.lr_scheduler.LambdaLR]:
    """Return a function that makes the recipe's learning-rate schedule for an optimizer."""
    return lambda optimizer: torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: rate_factor(recipe.schedule, step, recipe.training_steps)
    )


def rate_factor(schedule: Schedule, step: int, steps: int) -> float:
    """Return the learning rate at `step` of `steps`, as a fraction of the peak."""
    if step < schedule.warmup_steps:
        return step / schedule.warmup_steps
    progress = min(1.0, (step - schedule.warmup_steps) / max(1, steps - schedule.warmup_steps))
    left = 0.5 * (1 + math.cos(math.pi * progress)) if schedule.kind == "cosine" else 1 - progress
    return schedule.floor + (1 - schedule.floor) * left


def adam_moments(optimizer: torch.optim.Optimizer) -> int:
    """Return the number of elements of Adam's first moment on this rank."""
    return sum(local(state["exp_avg"]).numel() for state in optimizer.state.values() if "exp_avg" in state)


def local(tensor: Any) -> torch.Tensor:
    """Return this rank's shard of a distributed tensor, or the tensor itself."""
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor
