"""The answer for a recorded script: whether it fits, how long it takes, and what would make it faster."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from math import log2
from typing import Any, NoReturn

from repro.console import UserError
from repro.paper.gpus import AMPERE
from repro.paper.settings import Settings, Sharding
from repro.predict import traces
from repro.predict.constants import FUSED_ADAM_BYTES
from repro.predict.fits import Constants
from repro.predict.hardware import Machine
from repro.predict.memory import usable, workspace
from repro.predict.parts import REPLAYED, in_half
from repro.predict.time import StepModel
from repro.predict.traces import Block, Linear, Trace

from ..models.recipe import Images, Precision, Recipe

_SYNC = 20e-6  # seconds in which the host waits after the GPU has ended: a copy of a number, and its wake-up
_LAYERS = 12  # of a model, for FSDP: exchanges, and weights that are whole at a time
_GATHERED_LAYERS = 2
_STATE = ("weights", "gradients", "optimizer")
_FIXED = (*_STATE, "copies", "buckets")
_WORKERS = 4  # processes that load data, at least
_LARGER = 8  # times as large a micro batch, at most, where a step has one
_LEAST_GAIN = 1.002  # a change that gains less is not named


@dataclass(frozen=True)
class ScriptModel(StepModel):
    """The time model of a script, which may be compiled or use TF32, each without the other."""

    is_compiled: bool
    uses_tf32: bool
    tf32_convolutions: bool

    @property
    def compiled(self) -> bool:
        return self.is_compiled

    @property
    def tf32(self) -> bool:
        return self.uses_tf32

    def _speed(self, kind: str, backward: bool) -> float:
        if kind.startswith("convolution/fp32") and self.tf32_convolutions and not self.uses_tf32:
            return replace(self, uses_tf32=True)._speed(kind, backward)
        return super()._speed(kind, backward)

    def moving(self, moved: float) -> float:
        """Return the seconds in which eager code moves bytes."""
        return moved / self._bandwidth


@dataclass(frozen=True)
class Plan:
    """A script's recorded step on a machine, perhaps with changes. `micro` are the costs of a micro-step, of `examples`
    on each GPU; `more_saved` are bytes an example that it saves besides what was recorded."""

    recorded: dict[str, Any]
    machine: Machine
    constants: Constants
    precision: Precision
    compiled: bool
    tf32: bool
    micro: Block
    update_bytes: float
    examples: float
    micro_steps: float
    more_saved: float = 0.0

    @classmethod
    def of(cls, recorded: dict[str, Any], machine: Machine, constants: Constants) -> Plan:
        """Return the plan of a script as it is. Where a GPU has no bf16, fp16 takes its place."""
        lacks_bf16 = machine.capability is not None and machine.capability < AMPERE
        precision: Precision = "fp16" if lacks_bf16 and recorded["precision"] == "bf16" else recorded["precision"]
        moved = sum(sum(value) for key, value in recorded["update"].items() if key.endswith("memory/bytes"))
        examples = recorded["examples"] or 1.0
        return cls(
            recorded, machine, constants, precision, recorded["compiled"], recorded["tf32"],
            _block(recorded["micro"], recorded), moved, examples, recorded["micro_steps"],
        )  # fmt: skip

    @cached_property
    def model(self) -> ScriptModel:
        """Return the time model of this step, whose costs are those of one micro-step."""
        sharding: Sharding = "fsdp_3" if self.recorded["wrapped"] == "fsdp" else "none"
        recipe = Recipe(
            id="script", name="script", inputs=Images(1, 1), batch_size=1, training_steps=1, precision=self.precision,
            build=_no_model,
        )  # fmt: skip
        costs = dict(self.micro.costs)
        layers = Block("weights", 1, _LAYERS, {"parameters": costs.pop("parameters")})
        rest = replace(self.micro, costs=costs)
        trace = Trace("script", "paper", "custom", traces.of_stack("today"), (rest, layers))
        settings, rates = Settings(False, sharding=sharding), self.constants.rates
        convolutions = self.recorded["tf32_convolutions"]
        return ScriptModel(recipe, trace, settings, self.machine, rates, self.compiled, self.tf32, convolutions)

    @cached_property
    def parts(self) -> dict[str, float]:
        """Return the seconds of a step by part."""
        recorded, model, times = self.recorded, self.model, self.micro_steps
        alone = replace(model, machine=replace(self.machine, gpus=1, nodes=1)).micro_step(self.examples).stretches
        exchanges = min(recorded["reduces"], times)
        return {
            "compute": times * sum(each.compute for each in alone),
            "memory": times * sum(each.memory for each in alone),
            "launches": times * sum(each.launches for each in alone) + self.update_kernels * model.rates.launch,
            "communication": exchanges * model.exchange(),
            "update": model.moving(self.update_bytes / self._share),
            "synchronisations": _SYNC * sum(recorded["synchronisations"].values()),
        }

    @property
    def update_kernels(self) -> float:
        """Return the kernels of an update."""
        return sum(sum(value) for key, value in self.recorded["update"].items() if key.endswith("memory/kernels"))

    def waiting(self, workers: int) -> float:
        """Return the seconds of a step in which the GPU would wait for so many workers that load data, if they were as
        fast as here."""
        loading: float = self.recorded["loading"] * self.examples * self.micro_steps
        loading /= (self.recorded["examples"] or 1.0) * self.recorded["micro_steps"]
        return max(0.0, loading / workers - self.seconds) if workers else loading

    @property
    def _share(self) -> int:
        """Return among how many GPUs the state is sharded."""
        return self.machine.world if self.recorded["wrapped"] == "fsdp" else 1

    @cached_property
    def seconds(self) -> float:
        """Return the seconds of a step."""
        return sum(self.parts.values())

    @property
    def examples_a_second(self) -> float:
        return self.machine.world * self.examples * self.micro_steps / self.seconds

    def _stage(self, stage: str) -> tuple[float, float]:
        """Return the bytes at the peak of the micro-steps or the update: those that any micro batch needs, and an
        example's."""
        peak = self.recorded["peaks"].get(stage, {})
        state = sum(peak.get(kind, 0.0) for kind in _STATE)
        gathered = peak.get("weights", 0.0) * _GATHERED_LAYERS / _LAYERS if self._share > 1 else 0.0
        fixed = state / self._share + gathered + peak.get("copies", 0.0) + peak.get("buckets", 0.0)
        rest = sum(peak.values()) - sum(peak.get(kind, 0.0) for kind in _FIXED)
        if stage == "update":
            return fixed + rest / self._share, 0.0
        return fixed, self.constants.allowance.spread * (rest / (self.recorded["examples"] or 1.0) + self.more_saved)

    @property
    def _aside(self) -> float:
        return workspace(self.constants.allowance, self.machine.world)

    @property
    def peak(self) -> float:
        """Return the bytes of memory that the script needs at most on each GPU."""
        stages = (self._stage(stage) for stage in ("micro", "update"))
        return self._aside + max(fixed + each * self.examples for fixed, each in stages)

    @property
    def room(self) -> float:
        return usable(self.machine.gpu, self.constants.allowance)

    @property
    def fits(self) -> bool:
        return self.peak <= self.room

    @property
    def largest(self) -> int:
        """Return the largest micro batch that fits, 0 for none."""
        left = self.room - self._aside
        fixed, each = self._stage("micro")
        if self._stage("update")[0] > left or fixed > left:
            return 0
        return int((left - fixed) / each) if each else int(self.examples)

    @property
    def offloading(self) -> float:
        """Return the seconds that offloading states to the host would add to a step."""
        settings = replace(self.model.settings, sharding="zero_1", offloading=True)
        model = replace(self.model, settings=settings)
        return self.micro_steps * model.micro_step(self.examples).offload + model.update()

    def with_micro_batch(self, examples: float) -> Plan:
        """Return the same batch in micro-steps of so many examples, or a larger batch where it has less."""
        return replace(self, examples=examples, micro_steps=max(1.0, self.micro_steps * self.examples / examples))

    def changes(self) -> list[tuple[str, float]]:
        """Return the changes that help, the best first, each with how many times as fast it is."""
        now = self.examples_a_second
        found = [(name, plan.examples_a_second / now) for name, plan in self._changes() if plan.fits or not self.fits]
        more = max(_WORKERS, 2 * self.recorded["workers"])
        now, then = (self.seconds + self.waiting(workers) for workers in (self.recorded["workers"], more))
        found.append((f"data loading, as fast as on this machine: num_workers={more}", now / then))
        return sorted((each for each in found if each[1] >= _LEAST_GAIN), key=lambda each: -each[1])

    def _changes(self) -> Iterator[tuple[str, Plan]]:
        recorded, machine = self.recorded, self.machine
        if not self.compiled:
            yield "torch.compile(model)", replace(self, compiled=True)
        if self.precision == "fp32" and machine.has_tf32 and not self.tf32:
            yield "TF32: torch.set_float32_matmul_precision('high')", replace(self, tf32=True)
        if self.precision == "fp32" and machine.capability is not None and machine.capability >= AMPERE:
            half = replace(self, micro=in_half(self.micro, False), precision="bf16")
            yield "bf16: torch.autocast('cuda', torch.bfloat16)", half
        if "Adam" in recorded["optimizer"] and not recorded["fused"]:
            moved = min(self.update_bytes, FUSED_ADAM_BYTES * recorded["parameters"])
            yield f"fused optimizer: {recorded['optimizer']}(..., fused=True)", replace(self, update_bytes=moved)
        if (costs := recorded["with_fused_attention"]) is not None:
            fused = replace(self, micro=_block(costs, recorded))
            yield "fused attention: scaled_dot_product_attention", fused
        on_gpu = machine.capability is not None
        if on_gpu and (costs := recorded["with_fused_loss"]) is not None:
            yield "fused cross entropy (Liger's)", replace(self, micro=_block(costs, recorded))
        if on_gpu and self.compiled:
            yield "CUDA graphs: torch.compile(mode='reduce-overhead')", replace(self, micro=_replayed(self.micro))
        if self.fits and self.largest > self.examples:
            # Accumulated micro-steps make one; without them the batch itself grows.
            most = self.micro_steps if self.micro_steps > 1 else _LARGER
            doublings = int(log2(min(most, self.largest / self.examples)))
            times = 2**doublings if doublings else self.largest / self.examples
            larger = self.with_micro_batch(self.examples * times)
            yield f"larger micro batch: {larger.examples:.0f} in place of {self.examples:.0f}", larger
        if (costs := recorded["without_recomputation"]) is not None:
            saved = recorded["recomputed_bytes"] / self.examples
            yield "no checkpointing", replace(self, micro=_block(costs, recorded), more_saved=saved)


def _block(costs: dict[str, list[float]], recorded: dict[str, Any]) -> Block:
    """Return the costs of a micro-step of the script's own examples as costs that scale with them."""
    lines = {key: Linear(fixed, each / (recorded["examples"] or 1.0)) for key, (fixed, each) in costs.items()}
    weights = {name: Linear(float(recorded[name]), 0.0) for name in ("parameters", "tensors")}
    return Block("rest", 1, 1, lines | weights)


def _replayed(part: Block) -> Block:
    """Return a micro-step whose kernels are started in a graph."""
    costs = {key: line * REPLAYED if key.endswith("/kernels") else line for key, line in part.costs.items()}
    return replace(part, costs=costs)


def _no_model(kernels: bool, attention: str) -> NoReturn:
    raise UserError("a script has no recipe that builds its model")
