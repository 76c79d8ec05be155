"""What others measured and published, beside what the model of cost predicts for it: nothing of it was fitted to.

The models are not the recipes, but are made of the same parts: timm's ViT and ConvNeXt in fp16 under autocast, and
llm-foundry's decoders, sharded as by FSDP's stage 3, which have as many weights as GPT-2's. Traces are made here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import models
from repro.datafile import Positive, records
from repro.gpus import known_gpu
from repro.interval import Interval
from repro.predict import calibration
from repro.predict.calibration import EVERYTHING
from repro.predict.machine import Machine, gpu_named
from repro.predict.memory import Moment, usable, workspace
from repro.predict.time import step
from repro.predict.traces import Part, Trace
from repro.recipe import Images, Recipe, Text
from repro.settings import Settings

from . import tell

if TYPE_CHECKING:
    from torch import nn

# Layers, width and heads: llm-foundry's scripts/train/yamls, and their README's 2,048 tokens.
_DECODERS = {
    "mpt-125m": (12, 768, 12),
    "mpt-350m": (24, 1024, 16),
    "mpt-760m": (24, 1536, 12),
    "mpt-1b": (24, 2048, 16),
    "mpt-3b": (32, 2560, 20),
    "mpt-7b": (32, 4096, 32),
}
_DECODERS_INPUTS = Text(sequence=2048, vocabulary=50_368)
# Of what Adam moves in an update: timm's SGD, with Nesterov's momentum, moves 44 bytes a weight, and 16 more as torch
# 1.12 sets gradients to zero and adds to them.
_SGD = 0.6


@dataclass(frozen=True)
class Measured:
    """A training step, or a forward pass alone, that `who` measured: `per_second` images or tokens of the whole
    machine, in micro-steps of `micro_batch` examples on each of `gpus`."""

    who: Literal["timm", "llm-foundry"]
    model: str
    gpu: str
    gpus: int
    what: Literal["step", "forward"]
    settings: str
    compiled: Literal["yes", "no"]
    micro_batch: int
    accumulation: int
    per_second: Positive
    source: str

    @property
    def seconds(self) -> float:
        examples = self.gpus * self.micro_batch * self.accumulation
        each = _DECODERS_INPUTS.sequence if self.who == "llm-foundry" else 1
        return examples * each / self.per_second


def published() -> list[Measured]:
    """Every row of expected/elsewhere.csv. Raises UserError where it is broken."""
    key = ("model", "gpu", "gpus", "what", "settings", "compiled", "micro_batch")
    return list(records(Measured, "elsewhere.csv", key, known_gpu).values())


def recipe(measured: Measured) -> Recipe:
    """What was run, as a recipe whose batch is all examples of a step; its optimizer is the model's that it is like."""
    batch = measured.gpus * measured.micro_batch * measured.accumulation
    compiles = measured.compiled == "yes"
    if measured.who == "llm-foundry":
        alike = replace(models.find("pythia-1b", "paper"), precision="bf16", inputs=_DECODERS_INPUTS, layer="GPT2Block")
        return replace(alike, batch_size=batch, compiles=compiles, build=lambda *_: _decoder(measured.model))
    alike = models.find(measured.model.partition("_")[0], "paper")
    alike = replace(alike, precision="fp16", inputs=Images(size=224, classes=1000))
    return replace(alike, batch_size=batch, compiles=compiles, build=lambda kernels, _: _timm(measured.model, kernels))


def predicted(measured: Measured, trace: Trace) -> Interval:
    """Seconds, and the bounds between which 8 of 10 unseen cells of the paper lay."""
    machine = Machine(gpu_named(measured.gpu), measured.gpus)
    fit = calibration.load()[EVERYTHING]
    if measured.what == "forward":
        trace = _forward(trace)
    taken = step(recipe(measured), trace, Settings.parse(measured.settings), machine, measured.micro_batch, fit.rates)
    seconds = taken.total
    if measured.what == "forward":
        seconds -= taken.update
    elif measured.who == "timm":
        seconds -= (1 - _SGD) * taken.update
    low, high = fit.interval(machine)
    return Interval(seconds, low * seconds, high * seconds)


def largest(measured: Measured, trace: Trace) -> int:
    """The micro batch that timm's search ends at, by the memory model: the largest power of two, or one and a half of
    one, that fits. Its trainings keep gradients from step to step and one moment, and have no buckets."""
    fp32, gpu = 4 * trace.parameters, gpu_named(measured.gpu)
    allowance = calibration.load()[EVERYTHING].allowance
    room = usable(gpu, allowance) - workspace(allowance, measured.gpus)
    peaks = (trace.total("saved") + trace.rest.cost(part) for part in ("head", "body"))
    moments = (Moment(fp32, fp32, fp32, activations, buckets=0.0, temporaries=0.0) for activations in peaks)
    most = min(moment.examples(room, allowance.spread) for moment in moments)
    power = 1 << (int(most).bit_length() - 1)
    return power * 3 // 2 if most >= 1.5 * power else power


def row(measured: Measured, trace: Trace) -> dict[str, Any]:
    seconds = predicted(measured, trace)
    searched = measured.who == "timm" and measured.what == "step"
    return {
        "who": measured.who,
        "model": measured.model,
        "gpu": measured.gpu,
        "gpus": measured.gpus,
        "what": measured.what,
        "settings": measured.settings,
        "compiled": measured.compiled,
        "mbs": measured.micro_batch,
        "largest predicted": largest(measured, trace) if searched else None,
        "measured (ms)": round(1e3 * measured.seconds, 1),
        "predicted (ms)": round(1e3 * seconds.value, 1),
        "predicted/measured": round(seconds.value / measured.seconds, 3),
        "inside the interval": seconds.overlaps(Interval.exact(measured.seconds)),
    }


def rows() -> list[dict[str, Any]]:
    traces = Traces()
    return [row(measured, traces.of(measured)) for measured in published()]


class Traces:
    """Traces of what was run, each made once: eager attention is another."""

    def __init__(self) -> None:
        self._made: dict[tuple[str, bool], Trace] = {}

    def of(self, measured: Measured) -> Trace:
        from repro.tracing.trace import trace

        naive = measured.settings == "naive"
        if (measured.model, naive) not in self._made:
            self._made[measured.model, naive] = trace(recipe(measured), "naive" if naive else "custom")
        return self._made[measured.model, naive]


def _forward(trace: Trace) -> Trace:
    def kept(part: Part) -> Part:
        return replace(part, costs={key: cost for key, cost in part.costs.items() if not key.startswith("backward/")})

    return replace(trace, parts=tuple(map(kept, trace.parts)))


def _decoder(name: str) -> nn.Module:
    from transformers import GPT2Config, GPT2LMHeadModel

    from models.objective import LanguageModelling
    from models.pythia import custom_attention

    layers, width, heads = _DECODERS[name]
    config = GPT2Config(
        vocab_size=_DECODERS_INPUTS.vocabulary,
        n_positions=_DECODERS_INPUTS.sequence,
        n_embd=width,
        n_layer=layers,
        n_head=heads,
        activation_function="gelu",
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        use_cache=False,
        attn_implementation=custom_attention("sdpa"),
    )
    return LanguageModelling(GPT2LMHeadModel(config))


def _timm(name: str, custom_kernels: bool) -> nn.Module:
    import timm
    from timm.layers import set_fused_attn

    from models.objective import ImageClassification

    set_fused_attn(custom_kernels)
    return ImageClassification(timm.create_model(name))


if __name__ == "__main__":
    tell(__doc__, rows)
