"""DeepSpeed's configuration of ZeRO, as in the authors' release (apoorvkh/academic-pretraining v1.0.0)."""

from __future__ import annotations

from typing import Any

from ..models.recipe import Recipe
from .settings import Settings


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
