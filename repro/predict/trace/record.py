"""Recording of a module's real forward and backward pass as operators, on fake tensors of a fake CPU: nothing is
computed.

In CPU builds, a backward pass on a fake `cuda` device aborts the process, and autocast for CUDA switches itself off. So
the CPU's autocast is used, and a mode of ours casts what CUDA's keeps in fp32.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.multiprocessing.reductions import StorageWeakRef
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

    `saved` is at the end of the forward pass. `head` and `body` are the peaks before and after the backward pass enters
    the layers; `returned` is the peak while outputs are copied. `copies` are the half-precision copies of weights,
    `inputs` the inputs of layers that may be checkpointed, `kept` the storages of the weights' gradients.
    """

    operators: list[Operator] = field(default_factory=list)
    saved: float = 0.0
    head: float = 0.0
    returned: float = 0.0
    body: float = 0.0
    copies: float = 0.0
    inputs: float = 0.0
    kept: frozenset[int] = frozenset()


class _Recorder(TorchDispatchMode):
    """A mode that records every operator. A storage is identified by the address of the object that holds its data
    pointer; the address is not reused while we keep a weak reference."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.recording = Recording()
        self._names: dict[int, int] = {}
        self._alive: dict[int, tuple[StorageWeakRef, float]] = {}
        self._weights = {self._storage(weight) for weight in [*module.parameters(), *module.buffers()]}
        self.total = 0.0
        self.phase: Phase = "forward"
        self.in_layers = False

    def _storage(self, tensor: Tensor) -> int:
        """Return the number of a tensor's storage, which is never reused."""
        reference = StorageWeakRef(tensor.untyped_storage())
        name = self._names.get(reference.cdata)
        if name is None:
            name = self._names[reference.cdata] = len(self._names) + 1
            self._alive[name] = (reference, 0.0)
        return name

    def ignore(self, tensor: Tensor) -> None:
        """Exclude a tensor that is no activation from the live bytes."""
        name = self._storage(tensor)
        reference, size = self._alive[name]
        self._alive[name] = (reference, 0.0)
        self.total -= size

    def sweep(self) -> None:
        """Remove freed storages from the live bytes."""
        for name, (reference, size) in list(self._alive.items()):
            if size and reference.expired():
                self.total -= size
                self._alive[name] = (reference, 0.0)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.sweep()
        read = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        known = {self._storage(tensor) for tensor in read}
        try:
            out = func(*args, **(kwargs or {}))
        except Exception as error:
            raise UserError(f"cannot trace {func.name()}: {str(error).splitlines()[0]}") from error
        written = [leaf for leaf in tree_leaves(out) if isinstance(leaf, Tensor)]
        fresh = []
        for tensor in written:
            name = self._storage(tensor)
            if name not in known and self._alive[name][1] == 0.0:
                size = float(tensor.untyped_storage().nbytes())
                self._alive[name] = (self._alive[name][0], size)
                self.total += size
                fresh.append(tensor)
        side = "returned" if self.phase == "returned" else "body" if self.in_layers else "head"
        setattr(self.recording, side, max(getattr(self.recording, side), self.total))
        self._note(func, args, read, written, fresh)
        return out

    def _note(self, func: Any, args: Any, read: list[Tensor], written: list[Tensor], fresh: list[Tensor]) -> None:
        name = func.name().split("::")[1].split(".")[0]
        mutates = func._schema.is_mutable
        if not (fresh or mutates) or not has_kernel(name):
            return
        kind, flops, fusable = classify(name, args, written)
        half = any(t.dtype in (torch.float16, torch.bfloat16) for t in read[-2:])
        outputs = written if mutates else fresh
        reads = {self._storage(t): read_of(name, t, args) for t in read}
        writes = {self._storage(t): bytes_of(t) for t in outputs}
        if name == "_to_copy" and self._storage(read[0]) in self._weights:
            self.recording.copies += sum(writes.values())
            kind, fusable = "weight_cast", False
        self.recording.operators.append(Operator(name, kind, half, flops, reads, writes, fusable, self.phase))


def record(
    build: Callable[[], tuple[nn.Module, dict[str, Tensor]]],
    layer: str,
    autocast: torch.dtype | None,
    accelerate: bool = False,
) -> Recording:
    """Record the forward and backward pass of a module on its batch. `build` is called under fake tensors; `layer` is
    the class name of the repeated block; `accelerate` copies the output of `model` to fp32, as the library accelerate
    does. Raise UserError, which names the operator that cannot be traced."""
    with FakeTensorMode():
        module, batch = build()
        recorder = _Recorder(module)
        for value in batch.values():
            recorder.ignore(value)
        for weight in filter(attrgetter("requires_grad"), module.parameters()):
            weight.register_post_accumulate_grad_hook(lambda weight: recorder.ignore(weight.grad))
        _watch_layers(module, layer, recorder)
        if accelerate:
            module.get_submodule("model").register_forward_hook(partial(_copy_outputs, recorder))
        mixed = torch.autocast("cpu", dtype=autocast) if autocast else nullcontext()
        with recorder:
            with AsOnCuda(), mixed:
                loss = module(**batch)
            recorder.sweep()
            recorder.recording.saved = recorder.total
            recorder.phase = "backward"
            loss.backward()
            del loss
        recorder.sweep()
        recorder.recording.kept = frozenset(
            recorder._storage(w.grad) for w in module.parameters() if w.grad is not None
        )
    return recorder.recording


def _copy_outputs(recorder: _Recorder, model: nn.Module, inputs: Any, output: Mapping[str, Any]) -> None:
    """Copy the outputs as accelerate 0.32.0 does (`convert_outputs_to_fp32`): outputs and copies are all alive until
    the last copy is made. Of the copies only the loss is used."""
    recorder.phase = "returned"
    copies = [_upcast(leaf) for leaf in tree_leaves(dict(output))]
    del copies


def _watch_layers(module: nn.Module, layer: str, recorder: _Recorder) -> None:
    """Add up the bytes of the layers' inputs, and record when the backward pass enters the layers."""

    def entered(gradient: Tensor) -> None:
        recorder.in_layers = True

    def forward(_: nn.Module, inputs: Any, named: Any, output: Any) -> None:
        hidden, output = (
            next(leaf for leaf in tree_leaves(each) if isinstance(leaf, Tensor)) for each in ((inputs, named), output)
        )
        recorder.recording.inputs += hidden.numel() * hidden.element_size()
        output.register_hook(entered)

    for child in module.modules():
        if type(child).__name__ == layer:
            child.register_forward_hook(forward, with_kwargs=True)


@contextmanager
def patched(*changes: tuple[Any, str, Any]) -> Iterator[None]:
    """Set attributes (object, name, value) inside the context."""
    with ExitStack() as stack:
        for target, name, value in changes:
            stack.callback(setattr, target, name, getattr(target, name))
            setattr(target, name, value)
        yield
