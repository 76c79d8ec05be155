"""The engine of FSDP stages 2 and 3: torch's fully_shard on every layer, around its checkpoint if any, and the rest."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from . import modern
from .base import CHECKPOINT, HALF, Held, WrongWrapperError, adam_moments, layers, local, schedule
from .plain import FIRST_SCALE, PlainEngine


class FullyShardedEngine(PlainEngine):
    """An engine with FSDP. Stage 3 frees a layer's gathered weights after its forward pass, stage 2 keeps them until
    its backward pass. Both keep the weights outside of the layers, which the backward pass needs first, as in the
    authors' code and by torch's default.

    Mixed precision is as in the authors' wrapper: fp32 shards, gathered and reduced in half precision, under autocast.
    Offloading keeps shards, gradients and moments on the host in both stages, as FSDP always does. As in the authors'
    code, FSDP wraps a layer's checkpoint: inside of it, FSDP would gather once more and keep torch.compile from the
    layer.
    """

    def _wrap(self, compiled: bool) -> None:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler

        api = _fully_shard_module()
        self.rank.join()
        half = HALF.get(self.precision)
        policy = api.MixedPrecisionPolicy(param_dtype=half, reduce_dtype=half)
        offload = api.CPUOffloadPolicy(pin_memory=self.rank.cuda) if self.settings.offloading else api.OffloadPolicy()
        mesh = init_device_mesh(self.rank.device.type, (self.rank.world,))
        self.units = layers(self.module, [CHECKPOINT] if self.settings.checkpointing else self.recipe.layers)
        for module in [*self.units, self.module]:
            api.fully_shard(
                module,
                mesh=mesh,
                reshard_after_forward=self.settings.stage == 3 and module is not self.module,
                mp_policy=policy,
                offload_policy=offload,
            )
        sharded = [module for module in self.module.modules() if isinstance(module, api.FSDPModule)]
        if len(sharded) != len(self.units) + 1:
            raise WrongWrapperError(f"{len(sharded)} modules are FSDPModules, asked for {len(self.units) + 1}")
        self.wrapper = "FSDPModule"
        self.optimizer = self._optimizer(self.module.parameters())
        self.schedule = schedule(self.recipe)(self.optimizer)
        self.scaler = ShardedGradScaler(self.rank.device.type, FIRST_SCALE, enabled=self.precision == "fp16")
        self.parallel = self.module
        self.forward = modern.compiled(self.module, self.parts) if compiled else self.module

    def held(self) -> Held:
        return Held(sum(local(weight).numel() for weight in self.module.parameters()), adam_moments(self.adam))


def _fully_shard_module() -> Any:
    """Return torch's module with fully_shard: public since 2.6, composable since 2.4, which the rules require."""
    public = import_module("torch.distributed.fsdp")
    return public if hasattr(public, "fully_shard") else import_module("torch.distributed._composable.fsdp")
