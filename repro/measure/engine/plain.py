"""The engine without sharding: DistributedDataParallel, also on one device, as in the authors' trainings.

Their launcher (torchrunx 0.2.3) sets LOCAL_RANK for a single process as well, and accelerate 0.32.0 then wraps the
model. The wrapper's buckets take 4 bytes per weight.
"""

from __future__ import annotations

import math
from contextlib import nullcontext

import torch
from torch import nn

from . import modern
from .base import HALF, Engine, Held, adam_moments, schedule

FIRST_SCALE = 2.0**16  # torch's default


class PlainEngine(Engine):
    """An engine with torch's mixed precision: fp32 weights, autocast, and a scaled loss in fp16."""

    _graphed = False  # whether CUDA graphs run, which overwrite what they returned
    _separate = False  # whether each weight is known to have a gradient of its own

    def _wrap(self, compiled: bool) -> None:
        self.module.to(self.rank.device)
        if "bf16_weights" in self.parts:
            self.optimizer = modern.with_master_weights(self.module, self._optimizer)
        else:
            self.optimizer = self._optimizer(self.module.parameters())
        self.schedule = schedule(self.recipe)(self.optimizer)
        self.scaler = torch.amp.GradScaler(self.rank.device.type, FIRST_SCALE, enabled=self.precision == "fp16")
        self.rank.join()
        self.parallel = modern.distributed(self.module, self.parts, self.rank.local if self.rank.cuda else None)
        self._graphed = compiled and "cuda_graphs" in self.parts
        if self._graphed:
            modern.keep_gradients(self.module)
        self.wrapper = type(self.parallel).__name__
        self.forward = modern.compiled(self.parallel, self.parts) if compiled else self.parallel
        if compiled and (self.settings.checkpointing or self.hooks.change_the_graph):
            # DDPOptimizer splits graphs in a way that breaks checkpointing, which a method may use.
            torch._dynamo.config.optimize_ddp = False

    def micro_step(self, batch: dict[str, torch.Tensor], reduce: bool) -> torch.Tensor:
        alone = not reduce and isinstance(self.parallel, nn.parallel.DistributedDataParallel)
        if self._graphed:
            torch.compiler.cudagraph_mark_step_begin()
        with self.parallel.no_sync() if alone else nullcontext():  # type: ignore[operator]
            if "bf16_weights" in self.parts:
                loss = self.forward(**modern.in_bf16(batch))
            else:
                casts = self.precision in HALF
                with torch.autocast(self.rank.device.type, dtype=HALF.get(self.precision), enabled=casts):
                    loss = self.forward(**batch)
            self.scaler.scale(loss / self.accumulation).backward()
        if not self._separate:
            separate_gradients(self.module)
            self._separate = True
        return loss.detach().clone() if self._graphed else loss.detach()

    def update(self) -> None:
        if self.recipe.clip is not None:
            self.scaler.unscale_(self.optimizer)
            nn.utils.clip_grad_norm_(self.module.parameters(), self.recipe.clip)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.schedule.step()
        self.module.zero_grad(set_to_none=not self._graphed)

    def skipped_updates(self) -> int:
        if not self.scaler.is_enabled():
            return 0
        # Every skipped update halves the scale; it doubles again only after thousands.
        return round(math.log2(FIRST_SCALE / self.scaler.get_scale()))

    def held(self) -> Held:
        return Held(sum(weight.numel() for weight in self.module.parameters()), adam_moments(self.adam))


def separate_gradients(module: nn.Module) -> None:
    """Give each weight a gradient of its own, now and after later backward passes.

    A compiled backward pass may return one buffer as the gradients of several weights, such as those of two biases
    whose outputs are added (torch 2.11, Pythia on an H200): autograd then takes it as each one's gradient, and whatever
    is added, unscaled or clipped in place counts for each of them.
    """
    seen = set()
    for weight in module.parameters():
        if weight.grad is None:
            continue
        if weight.grad.data_ptr() in seen:
            weight.grad = weight.grad.clone()
            weight.register_hook(torch.clone)
        seen.add(weight.grad.data_ptr())
