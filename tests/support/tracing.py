"""What ranks run for the tests of traces, called by name. What a function returns is JSON."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import nn

from repro import models
from repro.console import UserError
from repro.measure.engine.base import _checkpoint
from repro.measure.rank import Rank
from repro.models.recipe import Recipe, Text
from repro.predict import traces
from repro.predict.trace import trace as tracing
from repro.predict.trace.operators import Operator
from repro.predict.trace.record import Recording, patched, record
from repro.predict.trace.trace import fused


def extrapolated_and_recorded(
    rank: Rank, recipe: str, variant: traces.Variant, examples: int
) -> dict[str, list[float]]:
    """Every cost of a model, from two micro batches, and from a record of this one."""
    described = models.find(recipe)
    line = tracing.trace(described, variant)
    recorded = _total(described, variant, examples)
    return {key: [line.total(key).at(examples), value] for key, value in recorded.items()}


def _total(recipe: Recipe, variant: traces.Variant, examples: int) -> traces.Costs:
    """The costs of a whole model at that micro batch, with nothing extrapolated."""
    _, units = tracing._measured(recipe, variant, tracing._meta(recipe, variant), examples)
    return {key: sum(unit.get(key, 0.0) for unit in units) for key in set().union(*units)}


def checkpointed_saved(rank: Rank, recipe: str, examples: int) -> dict[str, float]:
    """Bytes saved for the backward pass by a model whose layers are really checkpointed."""
    described = models.find(recipe)
    module = tracing._meta(described, "custom")
    _checkpoint(module, described.layers)

    def build() -> tuple[nn.Module, dict[str, torch.Tensor]]:
        tracing.make_real(module, None)
        return module, tracing.batch(described, examples, None, None)

    with patched(*tracing._patches(described, "custom")):
        recording = record(build, described.layers, torch.float16)
    return {"saved": recording.saved, "peak": max(recording.head, recording.body)}


def moved_by_hand(rank: Rank, name: str, reads: float) -> list[float]:
    """Bytes of two loops: the first, of the forward pass, reads so many and writes 10, a dropout also a mask of 2; the
    second, of the backward pass, reads what that wrote, and writes 10 to keep."""
    written = {1: 10.0} | ({2: 2.0} if name == "native_dropout" else {})
    operators = [
        Operator(name, "memory", True, 0.0, {0: reads}, written, fusable=True, phase="forward"),
        Operator("mm", "matmul", True, 1.0, {8: 1.0}, {9: 1.0}, fusable=False, phase="forward"),
        Operator("mul", "memory", True, 0.0, written, {3: 10.0}, fusable=True, phase="backward"),
    ]
    return [moved for _, moved in fused(Recording(operators, kept=frozenset({3})))]


def traced_again(rank: Rank, recipe: str, variant: traces.Variant) -> list[dict[str, list[float]] | None]:
    """The costs of all layers of a trace made here, and of the one shipped for these transformers and timm, None where
    there is none; whichever torch made them, which decides no cost."""
    made = tracing.trace(models.find(recipe), variant)
    known = [traces.load(stack) for stack in traces.shipped() if replace(stack, torch=made.stack.torch) == made.stack]
    shipped: list[traces.Trace | None] = [each[made.recipe, made.scale, made.variant] for each in known] or [None]
    keys = sorted({key for part in made.parts for key in part.costs} - {"head", "body"})  # peaks are the rest's

    def totals(each: traces.Trace | None) -> dict[str, list[float]] | None:
        return None if each is None else {key: [each.total(key).fixed, each.total(key).per_example] for key in keys}

    return [*map(totals, (made, *shipped))]


class Attends(nn.Module):
    """One head's scores over what it gets, (examples, tokens, width), with dropout; nothing but their squares' size."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.layer(x)
        weights = torch.softmax(x @ x.transpose(1, 2), -1)
        return (nn.functional.dropout(weights, 0.1) @ x).float().sum()


class Chooses(nn.Module):
    """A cross entropy over what it gets, (examples, width), among many classes."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 1000, bias=False)

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(self.layer(x), labels)


def attention_on_cuda(rank: Rank, precision: str) -> dict[str, Any]:
    """Bytes a score that each operator on whole scores reads and writes under autocast, and what is left of them in
    each pass where torch.compile fuses, products left out."""
    tokens = 1024
    half = getattr(torch, precision)
    recording = record(lambda: (Attends(), {"x": torch.empty(1, tokens, 8)}), ["none"], half)
    scores = tokens * tokens
    left = {"forward": 0.0, "backward": 0.0}
    for run, moved in fused(recording):
        left[run[0].phase] += moved / scores
    return {"operators": _moved(recording, scores), "fused": left}


def cross_entropy_on_cuda(rank: Rank, precision: str) -> list[Any]:
    """Bytes a logit that each operator on whole logits reads and writes under autocast."""
    examples = 1024
    half = getattr(torch, precision)

    def build() -> tuple[nn.Module, dict[str, torch.Tensor]]:
        labels = torch.empty(examples, dtype=torch.long)
        return Chooses(), {"x": torch.empty(examples, 8), "labels": labels}

    return _moved(record(build, ["none"], half), examples * 1000)


def compiled_bytes(rank: Rank, recipe: str, examples: int) -> dict[str, list[float]]:
    """Bytes that the forward and the backward pass of a tiny recipe move: as recorded, with what torch.compile fuses
    fused; as torch.compile itself counts them; and as recorded without any fusion."""
    from torch._functorch import config as autograd
    from torch._inductor import config, metrics
    from torch._logging._internal import set_logs

    described = models.find(recipe, "tiny")
    assert isinstance(described.inputs, Text)
    model = tracing._meta(described, "custom")

    def build() -> tuple[nn.Module, dict[str, torch.Tensor]]:
        tracing.make_real(model, None)
        return model, tracing.batch(described, examples, None, None)

    with patched(*tracing._patches(described, "custom")):
        recording = record(build, described.layers, None)
    found = {"fused": [0.0, 0.0], "eager": [0.0, 0.0]}
    for each in recording.operators:
        moved = sum(each.reads.values()) + sum(each.writes.values())
        found["eager"][each.phase == "backward"] += moved
        if each.kind != "memory":
            found["fused"][each.phase == "backward"] += moved
    for run, moved in fused(recording):
        found["fused"][run[0].phase == "backward"] += moved

    set_logs(inductor_metrics=True)
    compiled = torch.compile(described.build(True, "sdpa").train())
    ids = torch.randint(0, 100, (examples, described.inputs.sequence))
    # It counts as it compiles: its graphs are made anew, and what a C++ compiler made of their code need not be.
    with config.patch(fx_graph_cache=False), autograd.patch(enable_autograd_cache=False):
        metrics.reset()
        loss = compiled(input_ids=ids, labels=ids)
        forward = metrics.num_bytes_accessed
        loss.backward()
    return {**found, "counted": [forward, metrics.num_bytes_accessed - forward]}


def cast_for_nobody(rank: Rank, recipe: str, variant: traces.Variant) -> list[float]:
    """Bytes a logit that the authors' stack moves, and holds, beyond this one, all else the same."""
    described = models.find(recipe, "tiny")
    assert isinstance(described.inputs, Text)
    traced: Any = tracing
    found = []
    for paper_stack in (replace(tracing.stack(), transformers="another"), tracing.stack()):
        traced.PAPER_STACK = paper_stack
        costs = _total(described, variant, 4)
        phases = ("forward", "returned", "backward")
        found.append((sum(costs.get(f"{phase}/memory/bytes", 0.0) for phase in phases), costs["returned"]))
    logits = 4 * described.inputs.sequence * described.inputs.vocabulary
    return [(theirs - ours) / logits for ours, theirs in zip(*found, strict=True)]


def _moved(recording: Recording, elements: int) -> list[Any]:
    """Operators in order: name, bytes an element read and written, rounded, of those that move as much."""
    found = [
        (each.name, round(sum(each.reads.values()) / elements, 1), round(sum(each.writes.values()) / elements, 1))
        for each in recording.operators
    ]
    return [each for each in found if each[1] + each[2] > 0.5]


def what_cannot_be_traced(rank: Rank) -> str:
    class Reads(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.empty(4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (self.weight * x).sum() * x.sum().item()

    try:
        record(lambda: (Reads(), {"x": torch.empty(4)}), ["Reads"], None)
    except UserError as error:
        return str(error)
    return "traced"
