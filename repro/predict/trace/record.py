"""Recording of a module's real forward and backward pass as operators, on fake tensors of a fake CPU: nothing is
computed.

In CPU builds, a backward pass on a fake `cuda` device aborts the process, and autocast for CUDA switches itself off. So
the CPU's autocast is used, and a mode of ours casts what CUDA's keeps in fp32.
"""

from __future__ import annotations

import weakref
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate, count
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from repro.console import UserError

from .operators import Operator, Phase, bytes_of, classify, has_kernel, read_of

# Functions that the recipes call and whose arguments CUDA's autocast casts to fp32 (torch's autocast reference).
_IN_FP32 = {"layer_norm", "pow", "rsqrt", "exp", "softplus", "reciprocal"}
_SOFTMAX = (torch.softmax, Tensor.softmax, nn.functional.softmax)


class AsOnCuda(TorchFunctionMode):
    """A mode that casts arguments to fp32 where CUDA's autocast does and the CPU's does not. It also uses the fused
    dropout, which stores a byte per element, while the CPU's dropout stores a whole element."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is nn.functional.dropout:
            return _dropout(*args, **(kwargs or {}))
        if torch.is_autocast_enabled("cpu"):
            if func in _SOFTMAX:
                return _softmax(*args, **(kwargs or {}))
            if func is nn.functional.cross_entropy:
                return _cross_entropy(*args, **(kwargs or {}))
            if getattr(func, "__name__", "") in _IN_FP32:
                args = tuple(_upcast(argument) for argument in args)
        return func(*args, **(kwargs or {}))


def _dropout(x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    return torch.native_dropout(x, p, True)[0] if training and p > 0 else x


def _softmax(x: Tensor, dim: int, dtype: torch.dtype | None = None, **_: Any) -> Tensor:
    """Return the softmax, in fp32 unless `dtype` is given. CUDA's kernel reads fp16 directly; bf16 is cast first."""
    wanted = dtype or torch.float32
    if x.dtype is torch.float16 and wanted is torch.float32:
        return torch._softmax(x, dim, True)
    return torch._softmax(x.to(wanted), dim, False)


def _cross_entropy(x: Tensor, target: Tensor, **_: Any) -> Tensor:
    """Return the loss: its log-softmax in the precision of the logits, despite autocast, and the rest in fp32."""
    return nn.functional.nll_loss(torch.log_softmax(x, 1, x.dtype).float(), target)


def _upcast(value: Any) -> Any:
    return value.float() if isinstance(value, Tensor) and value.dtype in (torch.float16, torch.bfloat16) else value


@dataclass
class Recording:
    """Operators in order, and bytes of live tensors other than weights, gradients and inputs.

    `head` and `body` are the peaks before and after the backward pass enters the layers, `returned` that while outputs
    are copied. `kept` are the storages of the weights' gradients. `units` are the costs of the rest of the model and of
    each call of a layer, in order, whose indices the operators have: `saved` at the end of the forward pass, `copies`
    half-precision copies of weights, `inputs` a layer's input, `returned` copies of outputs; and the numbers of
    `parameters`, of those `frozen`, and of `tensors` to train. `kinds` are the units' classes with the shapes of their
    weights.
    """

    operators: list[Operator] = field(default_factory=list)
    head: float = 0.0
    returned: float = 0.0
    body: float = 0.0
    kept: frozenset[int] = frozenset()
    units: list[defaultdict[str, float]] = field(default_factory=lambda: [defaultdict(float)])
    kinds: list[Any] = field(default_factory=lambda: ["rest"])

    @property
    def saved(self) -> float:
        return sum(unit["saved"] for unit in self.units)


class _Recorder(TorchDispatchMode):
    """A mode that records every operator. Storages get numbers, which are never reused; a weak reference to torch's
    Python object tells when one is freed."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.recording = Recording()
        self._numbers: dict[int, int] = {}
        self._references: dict[int, weakref.ref[Any]] = {}
        self._alive: dict[int, tuple[float, int]] = {}  # the bytes of storages and the units that made them
        self._count = count(1)
        self._weights = {self.storage(weight) for weight in [*module.parameters(), *module.buffers()]}
        self._begun, self._units = [-1], [0]  # autograd's number at which units begin or go on, and which
        self._unit = 0
        self.total = 0.0
        self.phase: Phase = "forward"
        self.in_layers = False

    def storage(self, tensor: Tensor) -> int:
        """Return the number of a tensor's storage."""
        storage = tensor.untyped_storage()
        address = storage._cdata
        if address not in self._numbers:
            number = self._numbers[address] = next(self._count)
            self._references[number] = weakref.ref(storage, partial(self._freed, address, number))
        return self._numbers[address]

    def _freed(self, address: int, number: int, _: object) -> None:
        del self._numbers[address], self._references[number]
        self._forget(number)

    def _forget(self, number: int) -> None:
        self.total -= self._alive.pop(number, (0.0, 0))[0]

    def ignore(self, tensor: Tensor) -> None:
        """Exclude a tensor that is no activation from the live bytes."""
        self._forget(self.storage(tensor))

    def enter(self, unit: int) -> None:
        """Begin a unit of the forward pass, or go on with the rest, 0."""
        self._unit = unit
        self._begun.append(_next_node())
        self._units.append(unit)

    def begin_backward(self) -> None:
        """End the forward pass, after which what is alive is saved."""
        for size, unit in self._alive.values():
            self.recording.units[unit]["saved"] += size
        self.phase, self._unit, self._last = "backward", 0, _next_node()

    def _running(self, read: list[Tensor]) -> int:
        """Return the unit that runs: in the backward pass the one whose forward pass made autograd's node. Nodes made
        since then are of a layer that recomputes itself. Copies of outputs are of the unit that made these."""
        if self.phase == "returned" and read:
            return self._alive.get(self.storage(read[0]), (0.0, 0))[1]
        node = torch._C._current_autograd_node() if self.phase == "backward" else None
        if node is not None and (number := node._sequence_nr()) < self._last:
            self._unit = self._units[bisect_right(self._begun, number) - 1]
        return self._unit

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.namespace == "prim":
            return func(*args, **(kwargs or {}))
        read = _tensors((args, kwargs))
        known = {self.storage(tensor) for tensor in read}
        try:
            out = func(*args, **(kwargs or {}))
        except Exception as error:
            raise UserError(f"cannot trace {func.name()}: {str(error).splitlines()[0]}") from error
        unit = self._running(read)
        written = _tensors(out)
        fresh = []
        for tensor in written:
            number = self.storage(tensor)
            if number not in known and number not in self._alive:
                size = float(tensor.untyped_storage().nbytes())
                self._alive[number] = (size, unit)
                self.total += size
                fresh.append(tensor)
                if self.phase == "returned":
                    self.recording.units[unit]["returned"] += size
        side = "returned" if self.phase == "returned" else "body" if self.in_layers else "head"
        setattr(self.recording, side, max(getattr(self.recording, side), self.total))
        self._note(func, args, read, written, fresh, unit)
        return out

    def _note(
        self, func: Any, args: Any, read: list[Tensor], written: list[Tensor], fresh: list[Tensor], unit: int
    ) -> None:
        name = func.name().split("::")[1].split(".")[0]
        mutates = func._schema.is_mutable
        if not (fresh or mutates) or not has_kernel(name):
            return
        kind, flops, fusable = classify(name, args, written)
        in_half = any(t.dtype in (torch.float16, torch.bfloat16) for t in read[-2:])
        outputs = written if mutates else fresh
        reads = {self.storage(t): read_of(name, t, args) for t in read}
        writes = {self.storage(t): bytes_of(t) for t in outputs}
        if name == "_to_copy" and self.storage(read[0]) in self._weights:
            self.recording.units[unit]["copies"] += sum(writes.values())
            kind, fusable = "weight_cast", False
        self.recording.operators.append(Operator(name, kind, in_half, flops, reads, writes, fusable, self.phase, unit))


def _next_node() -> int:
    number: int = torch._C._autograd._get_sequence_nr()
    return number


def record(
    build: Callable[[], tuple[nn.Module, dict[str, Tensor]]],
    layers: Iterable[str],
    autocast: torch.dtype | None,
    accelerate: bool = False,
) -> Recording:
    """Record the forward and backward pass of a module on its batch. `build` is called under fake tensors; `layers` are
    the class names of the layers; `accelerate` copies the output of `model` to fp32, as the library accelerate does.
    Raise UserError, which names the operator that cannot be traced."""
    with FakeTensorMode():
        module, batch = build()
        recorder = _Recorder(module)
        for value in batch.values():
            recorder.ignore(value)
        for weight in filter(attrgetter("requires_grad"), module.parameters()):
            weight.register_post_accumulate_grad_hook(lambda weight: recorder.ignore(weight.grad))
        units = _watch_layers(module, {*layers}, recorder)
        if accelerate:
            module.get_submodule("model").register_forward_hook(partial(_copy_outputs, recorder))
        mixed = torch.autocast("cpu", dtype=autocast) if autocast else nullcontext()
        with recorder:
            with AsOnCuda(), mixed:
                loss = module(**batch)
            recorder.begin_backward()
            loss.backward()
            del loss
        recording = recorder.recording
        recording.kept = frozenset(recorder.storage(w.grad) for w in module.parameters() if w.grad is not None)
    for name, weight in module.named_parameters():
        costs = recording.units[next((units[part] for part in _parents(name) if part in units), 0)]
        costs["parameters" if weight.requires_grad else "frozen"] += weight.numel()
        costs["tensors"] += weight.requires_grad
    return recording


def _parents(name: str) -> Iterator[str]:
    """Yield the names of the modules that contain a weight, the outermost first."""
    yield from accumulate(name.split(".")[:-1], "{}.{}".format)


def _copy_outputs(recorder: _Recorder, model: nn.Module, inputs: Any, output: Mapping[str, Any]) -> None:
    """Copy the outputs as accelerate 0.32.0 does (`convert_outputs_to_fp32`): outputs and copies are all alive until
    the last copy is made. Of the copies only the loss is used."""
    recorder.phase = "returned"
    copies = [_upcast(leaf) for leaf in tree_leaves(dict(output))]
    del copies


def _watch_layers(module: nn.Module, layers: set[str], recorder: _Recorder) -> dict[str, int]:
    """Make each call of a layer a unit, outside of other layers, and record when the backward pass enters the layers.
    Return, by the names of the layers, their first unit, filled in as the layers run."""
    recording, units, running = recorder.recording, dict[str, int](), list[nn.Module]()

    def entered(gradient: Tensor) -> None:
        recorder.in_layers = True

    def before(name: str, layer: nn.Module, inputs: Any) -> None:
        running.append(layer)
        if len(running) > 1 or recorder.phase == "backward":  # there it is recomputed
            return
        units.setdefault(name, len(recording.units))
        recorder.enter(len(recording.units))
        recording.units.append(defaultdict(float))
        recording.kinds.append((type(layer).__name__, *(tuple(weight.shape) for weight in layer.parameters())))

    def after(layer: nn.Module, inputs: Any, named: Any, output: Any) -> None:
        running.pop()
        if running or recorder.phase == "backward":
            return
        for hidden in _tensors((inputs, named))[:1]:
            recording.units[-1]["inputs"] += hidden.numel() * hidden.element_size()
        for hidden in _tensors(output)[:1]:
            if hidden.requires_grad:
                hidden.register_hook(entered)
        recorder.enter(0)

    for name, child in module.named_modules():
        if type(child).__name__ in layers:
            child.register_forward_pre_hook(partial(before, name))
            child.register_forward_hook(after, with_kwargs=True)
    return units


def _tensors(values: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(values) if isinstance(leaf, Tensor)]


@contextmanager
def patched(*changes: tuple[Any, str, Any]) -> Iterator[None]:
    """Set attributes (object, name, value) inside the context."""
    with ExitStack() as stack:
        for target, name, value in changes:
            stack.callback(setattr, target, name, getattr(target, name))
            setattr(target, name, value)
        yield
