"""Predictions compared with measurements that others published. No rate is fitted to these. Needs no torch: the traces
of their models are shipped, and tools/elsewhere.py makes them, or they are computed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, NoReturn

from repro.datafile import Count, Positive, read_csv
from repro.formats import SECONDS_A_DAY
from repro.paper.gpus import known_gpu
from repro.paper.settings import Settings

from .. import models
from ..models.decoders import Dimensions
from ..models.recipe import Images, Recipe, Text
from . import traces
from .decoders import Decoder
from .fits import Constants
from .hardware import Machine, gpu_named
from .launch_queue import authors_step
from .memory import variant_of
from .parts import adapted
from .time import StepModel
from .traces import Block, Trace, Variant

FOLDER = traces.FOLDER / "elsewhere"
# The recipe that each model resembles, except for its inputs and the class of its repeated layer, given here.
_LIKE = {
    "llm-foundry": ("pythia-1b", Text(sequence=2048, vocabulary=50_368), "GPT2Block"),
    "NVIDIA": ("roberta", Text(sequence=512, vocabulary=30_528), "BertLayer"),
    "gpt-neox": ("pythia-410m", Text(sequence=2048, vocabulary=50_304), "GPTNeoXLayer"),
    "repro": ("pythia-1b", Text(sequence=2048, vocabulary=32_000), "LlamaDecoderLayer"),
    "torchtitan": ("pythia-1b", Text(sequence=8192, vocabulary=128_256), "LlamaDecoderLayer"),
    "nanoGPT": ("pythia-1b", Text(sequence=1024, vocabulary=50_304), "LlamaDecoderLayer"),
    "llm.c": ("pythia-1b", Text(sequence=1024, vocabulary=50_304), "LlamaDecoderLayer"),
    "nanochat": ("pythia-1b", Text(sequence=2048, vocabulary=65_536), "LlamaDecoderLayer"),
}
# Models whose traces are computed: as Llamas with fused attention, and a feed-forward part of as many FLOPs.
COMPUTED = {
    "gpt2-124m": Decoder("llama", True, Dimensions(12, 768, 12, 12, 2048, 50_304, 64, 1024)),
    "nanochat-d20": Decoder("llama", False, Dimensions(20, 1280, 10, 10, 3413, 65_536, 128, 2048)),
}
# An update's memory traffic as a share of Adam's 100 bytes a weight. timm's SGD with Nesterov momentum moves 44, and 16
# more as torch 1.12 sets gradients to zero and adds to them. NVIDIA's LAMB moves 62 with gradients in half precision
# (optimization.py and run_pretraining.py at bae6e931): 8 to scale gradients before and after their exchange, 10 for
# three norms, 38 in its two kernels, 6 to copy weights to half precision.
_UPDATE = {"timm": 0.60, "NVIDIA": 0.62}
# NVIDIA reduces half-precision gradients after the backward pass, which cannot hide that: the same as ZeRO-1.
_EXCHANGED = Settings.parse("zero_1")


@dataclass(frozen=True)
class Published:
    """A training step, or a forward pass alone, that `who` measured. `measured` is in `unit`, of the whole machine, in
    micro-steps of `micro_batch` examples on each of `gpus`; `s` is of a step. `clock` is `authors` if the host did not
    wait for the GPU, as in the paper."""

    who: Literal[
        "timm", "llm-foundry", "NVIDIA", "academic-pretraining", "gpt-neox", "repro", "torchtitan", "nanoGPT", "llm.c",
        "nanochat",
    ]  # fmt: skip
    model: str
    gpu: str
    gpus: Count
    what: Literal["step", "forward"]
    settings: str
    compiled: Literal["yes", "no"]
    micro_batch: Count
    accumulation: Count
    measured: Positive
    unit: Literal["images/s", "tokens/s", "sequences/s", "days", "s"]
    clock: Literal["true", "authors"]
    source: str

    @property
    def variant(self) -> Variant:
        """Return the trace's variant. NVIDIA's apex level O2 is half precision throughout, like DeepSpeed."""
        return "half" if self.who == "NVIDIA" else variant_of(Settings.parse(self.settings))

    @property
    def examples(self) -> int:
        """Return the examples of a step, on all GPUs."""
        return self.gpus * self.micro_batch * self.accumulation

    @property
    def recipe(self) -> Recipe:
        """Return the model as a recipe whose batch is a step's examples. It has no builder, which
        tools/elsewhere.py adds. The authors' Pythia-1.4B is a recipe already."""
        if self.who == "academic-pretraining":
            return models.find(self.model)
        if self.who == "timm":
            like = models.find(self.model.partition("_")[0])
            like = replace(like, precision="fp16", inputs=Images(size=224, classes=1000))
        else:
            id, inputs, layer = _LIKE[self.who]
            precision: Literal["fp16", "bf16"] = "fp16" if self.who in ("NVIDIA", "gpt-neox") else "bf16"
            like = replace(models.find(id), precision=precision, inputs=inputs, layer=layer)
        compiles = self.compiled == "yes"
        return replace(like, id=self.model, batch_size=self.examples, compiles=compiles, build=_no_builder)

    @property
    def trace(self) -> Trace:
        """Return the shipped trace, or the computed one; for the authors' Pythia-1.4B, the recipe's. Raise UserError if
        there is none."""
        if self.model in COMPUTED:
            return COMPUTED[self.model].trace(self.model, self.variant)
        if self.who == "academic-pretraining":
            return traces.find(self.model, self.variant)
        return traces.find(self.model, self.variant, traces.nearest({}, FOLDER), folder=FOLDER)

    @property
    def seconds(self) -> float:
        """Return the measured seconds of the step, or of the forward pass."""
        recipe = self.recipe
        if self.unit == "s":
            return self.measured
        if self.unit == "days":
            return self.measured * SECONDS_A_DAY / recipe.training_steps
        units = recipe.inputs.sequence if self.unit == "tokens/s" and isinstance(recipe.inputs, Text) else 1
        return self.examples * units / self.measured


def published() -> list[Published]:
    """Return every row of expected/elsewhere.csv. Raise UserError if it is broken."""
    key = ("model", "gpu", "gpus", "what", "settings", "compiled", "micro_batch")
    return list(read_csv(Published, "elsewhere.csv", key, known_gpu).values())


def predicted_seconds(row: Published, constants: Constants) -> float:
    """Predict the seconds of the step, or of the forward pass, by the clock of the measurement."""
    recipe, machine, rates = row.recipe, Machine(gpu_named(row.gpu), row.gpus), constants.rates
    settings = Settings.parse(row.settings)
    trace = adapted(recipe, row.trace, settings.parts, recipe.compiles)
    trace = _forward(trace) if row.what == "forward" else trace
    taken = StepModel(recipe, trace, settings, machine, rates).step(row.micro_batch)
    if row.who == "NVIDIA":
        exchanged = StepModel(recipe, trace, _EXCHANGED, machine, rates).exchange()
        taken = replace(taken, micro=replace(taken.micro, communication=exchanged))
    update = 0.0 if row.what == "forward" else _UPDATE.get(row.who, 1.0) * taken.update
    taken = replace(taken, update=update)
    return taken.seconds if row.clock == "true" else authors_step(taken, constants.queue)


def _no_builder(custom_kernels: bool, attention: str) -> NoReturn:
    raise RuntimeError("a model that others measured is built by tools/elsewhere.py alone")


def _forward(trace: Trace) -> Trace:
    """Return the trace without its backward pass."""

    def kept(part: Block) -> Block:
        return replace(part, costs={key: cost for key, cost in part.costs.items() if not key.startswith("backward/")})

    return replace(trace, parts=tuple(map(kept, trace.parts)))
