"""The engine of ZeRO stages 1 to 3: DeepSpeed with the authors' configuration (apoorvkh/academic-pretraining
v1.0.0)."""

from __future__ import annotations

from typing import Any

import torch

from repro.paper.settings import Settings

from ...models.recipe import Recipe
from .base import HALF, Engine, Held, WrongWrapperError, adam_moments, schedule, torch_optimizer

_OPTIMIZERS = {1: "DeepSpeedZeroOptimizer", 2: "DeepSpeedZeroOptimizer", 3: "DeepSpeedZeroOptimizer_Stage3"}


def configuration(
    recipe: Recipe, settings: Settings, cuda: bool, precision: str, accumulation: int, client: bool = False
) -> dict[str, Any]:
    """Return DeepSpeed's configuration, for its own Adam or a `client` optimizer. Its micro batch size has no effect,
    as micro-steps are called one by one."""
    config: dict[str, Any] = {
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": accumulation,
        "steps_per_print": 2**62,
        "zero_optimization": _zero(recipe, settings, cuda),
        "gradient_clipping": recipe.clip or 0.0,  # without it newer versions clip to 1.0
    }
    if precision == "fp16":
        config["fp16"] = {
            "enabled": True,
            "loss_scale": 0,
            "loss_scale_window": 1000,
            "initial_scale_power": 16,
            "hysteresis": 2,
            "min_loss_scale": 1,
        }
    if precision == "bf16":
        config["bf16"] = {"enabled": True}
    if cuda and not client:
        wanted = recipe.optimizer
        config["optimizer"] = {
            "type": "Adam",
            "params": {
                "lr": wanted.rate,
                "betas": list(wanted.betas),
                "eps": wanted.eps,
                "weight_decay": 0.0,
                "adam_w_mode": wanted.name == "AdamW",
            },
        }
    else:
        # On a CPU torch's Adam replaces DeepSpeed's, which would have to be compiled first.
        config |= {"zero_allow_untested_optimizer": True, "zero_force_ds_cpu_optimizer": False}
    return config


def _zero(recipe: Recipe, settings: Settings, cuda: bool) -> dict[str, Any]:
    """Return the part of the configuration on the stage and offloading."""
    zero: dict[str, Any] = {"stage": settings.stage}
    if settings.stage == 2:
        zero |= {
            "allgather_partitions": True,
            "allgather_bucket_size": int(2e8),
            "overlap_comm": cuda,
            "reduce_scatter": True,
            "reduce_bucket_size": int(2e8),
            "contiguous_gradients": True,
        }
    if settings.stage == 3:
        zero |= {
            "overlap_comm": cuda,
            "contiguous_gradients": True,
            "sub_group_size": int(1e9),
            # transformers fills these in from the model's width, where the authors' configuration says "auto".
            "reduce_bucket_size": recipe.width**2,
            "stage3_prefetch_bucket_size": int(0.9 * recipe.width**2),
            "stage3_param_persistence_threshold": 10 * recipe.width,
            "stage3_max_live_parameters": int(1e9),
            "stage3_max_reuse_distance": int(1e9),
        }
    if settings.offloading:
        host = {"device": "cpu", "pin_memory": cuda}
        zero["offload_optimizer"] = host
        if settings.stage == 3:
            zero["offload_param"] = dict(host)
    return zero


class ZeroEngine(Engine):
    """An engine that computes in half precision throughout and keeps fp32 copies of the weights in its optimizer."""

    def _wrap(self, compiled: bool) -> None:
        import deepspeed

        self.rank.join()
        if self.precision == "fp16" and not self.rank.cuda:
            self.precision = "bf16"
            self.warnings = ("DeepSpeed refuses fp16 on a CPU: asked fp16, ran bf16",)
        client = self._own_optimizer()
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
