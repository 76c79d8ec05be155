"""Recording of a script's training steps: its operators by micro-step, and the bytes that are live on its fake GPU."""

from __future__ import annotations

import weakref
from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

from repro.predict.parts import FUSED_LOGIT
from repro.predict.trace.operators import Operator, Phase, bytes_of, classify, has_kernel, read_of
from repro.predict.trace.record import Recording
from repro.predict.trace.trace import fused

from .place import where

_HALF = (torch.float16, torch.bfloat16)
_RAGGED = ("nonzero", "masked_select", "_unique2", "unique_dim", "unique_consecutive")
_VOCABULARY = 1000  # classes from which a loss is worth a fused kernel
_UNCOUNTED = ("_fft", "_linalg", "_cdist", "grid_sampler", "_ctc_loss")
SMALL = 1 << 20  # elements of a tensor whose values are kept
STEPS = 3  # the script ends at this optimizer step


class EndOfPlan(BaseException):
    """Ends the script after its last recorded step."""


Costs = dict[str, list[float]]  # by `phase/kind/unit`: a fixed part, and what scales with the micro batch


@dataclass
class Period:
    """What ran up to the end of one backward pass."""

    operators: list[Operator] = field(default_factory=list)
    examples: float = 0.0
    tokens: float = 0.0
    products: float = 0.0  # FLOPs forward
    compiled: float = 0.0  # those of compiled code
    recomputed: set[int] = field(default_factory=set)  # the places of operators that checkpointing runs again
    scores: set[float] = field(default_factory=set)  # the elements of attention's scores, outside of a fused kernel
    logits: set[float] = field(default_factory=set)  # of a vocabulary, outside of a fused loss
    repeats: bool = False  # its model was not run again, as it was run with the same shapes before


class Recorder(TorchDispatchMode):
    """A mode that runs operators of fake tensors without computing, and records them."""

    def __init__(self) -> None:
        super().__init__()
        self.fake = FakeTensorMode(allow_non_fake_inputs=True)
        self.inside = 0  # torch's own code runs, for which fake tensors are on the CPU
        self.phase: Phase = "forward"
        self.compiling = 0
        self.recomputing = 0
        self.period, self.periods = Period(), list[Period]()
        self.steps: list[list[Period]] = []
        self.reduces = 0
        self.reads, self.synchronised = 0, Counter[str]()
        self.branches, self.untold = Counter[str](), Counter[str]()
        self.of: defaultdict[str, float] = defaultdict(float)
        self.peaks: dict[str, dict[str, float]] = {}
        self.stage = "micro"
        self.half_name = ""
        self.wrapped, self.checkpoints = "", False
        self.workers, self.loading = 0, 0.0  # of data loaders; the seconds that they took in this step
        self.batches: int | None = None  # of the data loader that was read last
        self._numbers: dict[int, int] = {}
        self._references: dict[int, weakref.ref[Any]] = {}
        self._alive: dict[int, tuple[float, str]] = {}
        self._count = count(1)
        self._began = 0  # the number at which this step began
        self._weights: set[int] = set()
        self._made_in_update: list[int] = []

    def storage(self, tensor: Tensor) -> int:
        """Return the number of a tensor's storage."""
        storage = tensor.untyped_storage()
        address = storage._cdata
        if address not in self._numbers:
            number = self._numbers[address] = next(self._count)

            def freed(_: object) -> None:
                del self._numbers[address], self._references[number]
                size, kind = self._alive.pop(number, (0.0, ""))
                self.of[kind] -= size
                self._weights.discard(number)

            self._references[number] = weakref.ref(storage, freed)
        return self._numbers[address]

    def count_as(self, tensor: Tensor, kind: str) -> None:
        """Count a tensor's storage as weights, gradients, optimizer, copies, buckets or activations."""
        number = self.storage(tensor)
        self._alive.setdefault(number, (float(tensor.untyped_storage().nbytes()), ""))
        self._recount(number, kind)
        if kind != "activations":
            self._weights.add(number)
        if self.stage == "update" and kind == "activations":
            self._made_in_update.append(number)
        total = sum(self.of.values())
        if total > sum(self.peaks.get(self.stage, {}).values()):
            self.peaks[self.stage] = dict(self.of)

    def _recount(self, number: int, kind: str) -> None:
        """Count a storage that is alive as of another kind."""
        size, before = self._alive[number]
        if before:
            self.of[before] -= size
        self._alive[number] = size, kind
        self.of[kind] += size

    def begin(self, exchanges: bool) -> None:
        """Begin a micro-step, whose gradients are perhaps exchanged with other GPUs."""
        self.stage = "micro"
        self.reduces += bool(self.wrapped) and exchanges

    def end_backward(self) -> None:
        """End a micro-step."""
        self.phase, self.stage = "forward", "update"
        if self.periods and self.period.repeats:
            full = next((each for each in reversed(self.periods) if not each.repeats), None)
            if full is not None:
                self.period = replace(full, repeats=True, examples=self.period.examples, tokens=self.period.tokens)
        self.periods.append(self.period)
        self.period = Period()

    def end_step(self) -> None:
        """End a step, with what ran since the last backward pass as its update; after the last, end the script."""
        for number in self._made_in_update:
            if number in self._alive and self._alive[number][1] == "activations":
                self._recount(number, "optimizer")
                self._weights.add(number)
        self._made_in_update = []
        for number, (_, kind) in self._alive.items():
            if kind == "activations" and number < self._began:  # older than this step, such as a mean of the weights
                self._recount(number, "weights")
        self._began = next(self._count)
        self.steps.append([*self.periods, self.period])
        if len(self.steps) >= STEPS:
            raise EndOfPlan
        self.periods, self.period, self.stage = [], Period(), "micro"
        self.peaks, self.synchronised, self.reduces, self.loading = {}, Counter(), 0, 0.0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        read = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        if func.namespace == "prim" or not any(isinstance(leaf, FakeTensor) for leaf in read):
            return func(*args, **kwargs)
        name = func.name().split("::")[1].split(".")[0]
        if name == "_local_scalar_dense":
            return self.value_of(read[0])
        if func.namespace == "c10d":
            return func(*args, **kwargs)
        known = {self.storage(tensor) for tensor in read}
        if func._schema.is_mutable:
            put(read[0], "origin", None)
        self.inside += 1
        try:
            if name.startswith("_fused_"):
                out = None
            else:
                if name.startswith("index") and any(_is_mask(leaf) for leaf in read):
                    args = self._whole(args)
                with self.fake:
                    out = self._ragged(name, read[0]) if name in _RAGGED else func(*args, **kwargs)
        finally:
            self.inside -= 1
        written = [leaf for leaf in tree_leaves(out) if isinstance(leaf, Tensor)]
        if isinstance(out, FakeTensor) and not func._schema.is_mutable:
            keep_value(out, func, args, kwargs)
        on_host = all(is_on_host(leaf) for leaf in read)
        for tensor in written:
            if not any(tensor is each for each in read):
                put(tensor, "on_host", on_host)
        if on_host:
            return out
        fresh = [tensor for tensor in written if self.storage(tensor) not in known]
        cast = name == "_to_copy" and self.storage(read[0]) in self._weights
        for tensor in fresh:
            if self.storage(tensor) not in self._alive:
                self.count_as(tensor, "copies" if cast and self.stage == "micro" else "activations")
        self._note(name, func._schema.is_mutable, args, read, written or read, fresh)
        return out

    def _note(
        self, name: str, mutates: bool, args: Any, read: list[Tensor], written: list[Tensor], fresh: list[Tensor]
    ) -> None:
        if not (fresh or mutates) or not has_kernel(name):
            return
        kind, flops, fusable = classify(name, args, written)
        if name.startswith("mkldnn_rnn_layer"):  # a CPU's LSTM: the input by two matrices, twice backward
            steps, batch = args[0].shape[:2]
            times = 4.0 if name.endswith("backward") else 2.0
            kind, flops = "matmul", times * steps * batch * (args[1].numel() + args[2].numel())
        if name.startswith(_UNCOUNTED):
            self.untold[f"the FLOPs of {name.strip('_')} at {where()}"] += 1
        half = any(tensor.dtype in _HALF for tensor in read[-2:])
        if half and kind == "matmul":
            self.half_name = "fp16" if read[-1].dtype is torch.float16 else "bf16"
        outputs = (read if name.startswith(("_foreach", "_fused")) else written) if mutates else fresh
        reads = {self.storage(tensor): read_of(name, tensor, args) for tensor in read}
        writes = {self.storage(tensor): bytes_of(tensor) for tensor in outputs}
        if mutates and name.startswith("_foreach"):  # the first list is written
            writes = {self.storage(each): bytes_of(each) for each in args[0] if isinstance(each, Tensor)}
        if name == "_to_copy" and self.storage(read[0]) in self._weights and self.stage == "micro":
            kind, fusable = "weight_cast", False
        if reads.keys() <= self._weights and writes.keys() <= self._weights:
            fusable = False
        if self.phase == "forward":
            self.period.products += flops
            self.period.compiled += flops if self.compiling else 0.0
        if kind == "batched" and self.phase == "forward" and _makes_scores(read, written):
            self.period.scores.add(float(written[0].numel()))
        if name == "_log_softmax" and read[0].shape[-1] >= _VOCABULARY:
            self.period.logits.add(float(read[0].numel()))
        if self.recomputing:
            self.period.recomputed.add(len(self.period.operators))
        self.period.operators.append(Operator(name, kind, half, flops, reads, writes, fusable, self.phase))

    def value_of(self, tensor: Tensor) -> Any:
        """Return what a script reads of a tensor of one element: 1, False, or a number that falls at each reading."""
        at = where()
        if not is_on_host(tensor):
            self.synchronised[at] += 1
        if (known := getattr(tensor, "origin", None)) is not None:
            return known.item()
        if tensor.dtype is torch.bool:
            if at:
                self.branches[at] += 1
            return bool(getattr(tensor, "truth", False))
        if not tensor.dtype.is_floating_point:
            return 1
        self.reads += 1
        return 0.99 ** (self.reads - 1)

    def _ragged(self, name: str, tensor: Tensor) -> Any:
        """Return the result of an operator whose shape depends on values: of known ones, or the largest that it can
        be."""
        number = self._taken(tensor, name.strip("_"))
        long = torch.long
        if name == "nonzero":
            return torch.empty(number, tensor.ndim, dtype=long)
        flat = torch.empty(number, dtype=tensor.dtype)
        return flat if name == "masked_select" else (flat, torch.empty_like(flat, dtype=long), flat.to(long))

    def _whole(self, args: Any) -> Any:
        """Return the arguments of an indexing with masks replaced by as many indices as they take."""
        x, indices, *rest = args
        found: list[Any] = []
        with self.fake:
            for each in indices:
                if isinstance(each, Tensor) and _is_mask(each):
                    number = self._taken(each, "a mask")
                    found += [torch.empty(number, dtype=torch.long) for _ in range(each.ndim)]
                else:
                    found.append(each)
        return (x, found, *rest)

    def _taken(self, tensor: Tensor, what: str) -> int:
        """Return how many elements of a tensor are true: all where its values are not known, which is noted."""
        if (known := getattr(tensor, "origin", None)) is not None and known.dtype is torch.bool:
            return int(known.sum())
        self.untold[f"{what} at {where()}, whose size depends on values, as if all were taken"] += 1
        return tensor.numel()

    def costs(self, operators: list[Operator]) -> Costs:
        """Return the costs of operators, which scale with the micro batch except for what moves weights."""
        found: Costs = defaultdict(lambda: [0.0, 0.0])
        for operator in operators:
            kind = operator.kind
            if kind not in ("memory", "weight_cast"):
                kind += "/half" if operator.in_half else "/fp32"
            place = f"{operator.phase}/{kind}"
            found[f"{place}/flops"][1] += operator.flops
            found[f"{place}/kernels"][0] += 1
            for moved in (operator.reads, operator.writes):
                for storage, size in moved.items():
                    found[f"{place}/bytes"][storage not in self._weights] += size
        for run, moved_bytes in fused(Recording(operators)):
            fixed = {*run[0].reads, *run[0].writes} <= self._weights
            found[f"{run[0].phase}/fused/bytes"][not fixed] += moved_bytes
            found[f"{run[0].phase}/fused/kernels"][0] += max(1, sum(operator.reduces for operator in run))
        return {key: value for key, value in found.items() if any(value)}


def with_fused_attention(period: Period) -> list[Operator]:
    """Return a micro-step's operators with attention in a fused kernel: the scores are never in memory, so that what
    moves them alone is gone, and the products move the rest."""
    found = []
    for operator in period.operators:
        if not _touches(operator, period.scores):
            found.append(operator)
        elif operator.kind == "batched":
            reads, writes = (
                {storage: size for storage, size in moved.items() if not _is_of(size, period.scores)}
                for moved in (operator.reads, operator.writes)
            )
            found.append(replace(operator, kind="attention", reads=reads, writes=writes))
    return found


def with_fused_loss(period: Period) -> list[Operator]:
    """Return a micro-step's operators with the loss in a fused kernel, which moves a few bytes a logit."""
    moved = {-1: FUSED_LOGIT * sum(period.logits)}
    kernel = Operator("fused_cross_entropy", "memory", False, 0.0, moved, {}, False, "forward")
    kept = [each for each in period.operators if each.kind != "memory" or not _touches(each, period.logits)]
    return [*kept, kernel]


def _touches(operator: Operator, numbers: set[float]) -> bool:
    return any(_is_of(size, numbers) for moved in (operator.reads, operator.writes) for size in moved.values())


def _is_of(size: float, numbers: set[float]) -> bool:
    """Return whether a tensor of so many bytes may have one of these numbers of elements."""
    return any(size in (number, 2 * number, 4 * number) for number in numbers)


def without_recomputation(period: Period) -> list[Operator]:
    """Return a micro-step's operators without those that checkpointing runs again."""
    return [each for number, each in enumerate(period.operators) if number not in period.recomputed]


def _makes_scores(read: list[Tensor], written: list[Tensor]) -> bool:
    """Return whether a product of each head is that of queries and keys: larger than either."""
    return written[0].numel() > max(tensor.numel() for tensor in read)


def put(owner: Any, name: str, value: Any) -> None:
    """Set an attribute that its class does not declare: torch's functions, and what is known of a tensor."""
    setattr(owner, name, value)


def is_on_host(tensor: Any) -> bool:
    """Return whether a tensor is not on the fake GPU."""
    return not isinstance(tensor, FakeTensor) or getattr(tensor, "on_host", True)


def keep_value(out: Any, func: Any, args: Any, kwargs: Any) -> None:
    """Compute a small tensor of whole numbers or truths, such as positions and masks, where all that it is made of is
    known: scripts and libraries decide by these what to run."""
    if out.is_floating_point() or out.is_complex() or out.numel() > SMALL:
        return
    leaves, tree = tree_flatten((args, kwargs))
    known = [getattr(leaf, "origin", None) if isinstance(leaf, FakeTensor) else leaf for leaf in leaves]
    if any(value is None and leaf is not None for value, leaf in zip(known, leaves, strict=True)):
        return
    given, named = tree_unflatten(known, tree)
    out.origin = func(*given, **named)


def _is_mask(leaf: Any) -> bool:
    return isinstance(leaf, Tensor) and leaf.dtype in (torch.bool, torch.uint8) and leaf.ndim > 0
