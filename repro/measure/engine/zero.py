"""The engine of ZeRO stages 1 to 3: DeepSpeed with the authors' configuration."""

from __future__ import annotations

import torch

from repro.paper.deepspeed import configuration

from .base import HALF, Engine, Held, WrongWrapperError, adam_moments, schedule, torch_optimizer

_OPTIMIZERS = {1: "DeepSpeedZeroOptimizer", 2: "DeepSpeedZeroOptimizer", 3: "DeepSpeedZeroOptimizer_Stage3"}


class ZeroEngine(Engine):
    """An engine that computes in half precision throughout and keeps fp32 copies of the weights in its optimizer."""

    def _wrap(self, compiled: bool) -> None:
        import deepspeed

        self.rank.join()
        if self.precision == "fp16" and not self.rank.cuda:
            self.precision = "bf16"  # DeepSpeed refuses fp16 on a CPU
        client = self._own_optimizer(self.module.parameters())
        if client is None and not self.rank.cuda:
            client = torch_optimizer(self.recipe, self.module.parameters())
        config = configuration(
            self.recipe, self.settings, self.rank.cuda, self.precision, self.accumulation, client is not None
        )
        self.engine, self.optimizer, _, _ = deepspeed.initialize(
            model=self.module,
            model_parameters=self.module.parameters(),
            optimizer=client,
            lr_scheduler=schedule(self.recipe),
            config=config,
        )
        wanted, got = _OPTIMIZERS[self.settings.stage], type(self.optimizer).__name__
        stage = self.engine.zero_optimization_stage()
        if got != wanted or stage != self.settings.stage:
            raise WrongWrapperError(f"asked for {wanted} in stage {self.settings.stage}, got {got} in stage {stage}")
        self.wrapper = f"DeepSpeedEngine({got})"

    def micro_step(self, batch: dict[str, torch.Tensor], reduce: bool) -> torch.Tensor:
        self.engine.set_gradient_accumulation_boundary(reduce)
        half = HALF.get(self.precision, torch.float32)
        loss = self.engine(
            **{name: value.to(half) if value.is_floating_point() else value for name, value in batch.items()}
        )
        self.engine.backward(loss)
        return loss.detach()

    def update(self) -> None:
        self.engine.step()

    def skipped_updates(self) -> int:
        return self.engine.skipped_steps

    def held(self) -> Held:
        return Held(
            sum(getattr(weight, "ds_tensor", weight).numel() for weight in self.module.parameters()),
            adam_moments(self.adam),
        )
