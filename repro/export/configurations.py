"""Configurations of the exported settings for other programs: transformers' Trainer, and DeepSpeed."""

from __future__ import annotations

from typing import Any

from ..formats import as_json
from ..models import custom
from ..models.recipe import Schedule
from ..paper import deepspeed
from .training import Training

DEEPSPEED = "deepspeed.json"


def configurations(training: Training) -> dict[str, str]:
    """Return the files by their names. The names of files in them are relative to their folder."""
    found = {"training_arguments.json": as_json(training_arguments(training)) + "\n"}
    if training.settings.library == "deepspeed":
        found[DEEPSPEED] = as_json(zero(training)) + "\n"
    return found


def training_arguments(training: Training) -> dict[str, Any]:
    """Return arguments of transformers' TrainingArguments. Its Trainer has no Adam beside AdamW, which without weight
    decay is the same."""
    recipe, settings = training.recipe, training.settings
    fsdp, known = settings.library == "fsdp", custom.registered(recipe.id)
    found: dict[str, Any] = {
        "output_dir": "trainer",
        "per_device_train_batch_size": training.micro_batch,
        "gradient_accumulation_steps": training.accumulation,
        "max_steps": recipe.training_steps,
        "optim": "adamw_torch",
        "learning_rate": recipe.optimizer.rate,
        "adam_beta1": recipe.optimizer.betas[0],
        "adam_beta2": recipe.optimizer.betas[1],
        "adam_epsilon": recipe.optimizer.eps,
        "weight_decay": 0.0,
        **_schedule(recipe.schedule),
        "max_grad_norm": recipe.clip or 0.0,
        "fp16": recipe.precision == "fp16",
        "bf16": recipe.precision == "bf16",
        "torch_compile": training.compiled,
        "gradient_checkpointing": settings.checkpointing and not fsdp,
        # Where others build the model, nothing has frozen the weights that no loss reaches.
        "ddp_find_unused_parameters": known is not None and known.paper.frozen.weights > 0,
        "save_strategy": "steps",
        "logging_steps": 10,
        "report_to": "none",
    }
    if training.device == "cpu":
        found["use_cpu"] = True
    else:
        found["tf32"] = training.tf32
    if settings.library == "deepspeed":
        found["deepspeed"] = DEEPSPEED
    if fsdp:
        found["fsdp"] = True
        found["fsdp_config"] = {
            "version": 2,
            "auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
            "transformer_layer_cls_to_wrap": recipe.layers,
            "reshard_after_forward": settings.stage == 3,
            "cpu_offload": settings.offloading,
            "activation_checkpointing": settings.checkpointing,
            "state_dict_type": "SHARDED_STATE_DICT",
        }
    return found


def _schedule(schedule: Schedule) -> dict[str, Any]:
    """Return the arguments for a learning-rate schedule, by transformers' names."""
    found: dict[str, Any] = {"lr_scheduler_type": schedule.kind, "warmup_steps": schedule.warmup_steps}
    if schedule.floor == 1:
        found["lr_scheduler_type"] = "constant_with_warmup"
    elif schedule.floor and schedule.kind == "cosine":
        found |= {"lr_scheduler_type": "cosine_with_min_lr", "lr_scheduler_kwargs": {"min_lr_rate": schedule.floor}}
    return found


def zero(training: Training) -> dict[str, Any]:
    """Return DeepSpeed's configuration, as measured on GPUs."""
    found = deepspeed.configuration(
        training.recipe, training.settings, True, training.recipe.precision, training.accumulation
    )
    return found | {"train_micro_batch_size_per_gpu": training.micro_batch}
