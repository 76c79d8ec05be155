"""A CUDA GPU that is not there: torch's functions that a script calls, for tensors that have shapes and no values.

In CPU builds a backward pass on torch's own fake `cuda` tensors aborts the process. So they are on a fake CPU, and say
that they are on a GPU wherever the user's code asks. Where a script is planned for a CPU, they say that they are there,
and torch has no GPU.
"""

from __future__ import annotations

import contextlib
import inspect
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.optim.optimizer import _foreach_supported_types as in_optimizers
from torch.overrides import TorchFunctionMode
from torch.utils._foreach_utils import _foreach_supported_types as in_utilities
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map, tree_unflatten

from repro.predict.trace.record import AsOnCuda

from .place import where
from .recorder import SMALL, Recorder, is_on_host, keep_value, put

_CPU, _CUDA = torch.device("cpu"), torch.device("cuda", 0)
_FACTORIES = {
    *(torch.empty, torch.zeros, torch.ones, torch.full, torch.rand, torch.randn, torch.randint, torch.arange),
    *(torch.tensor, torch.as_tensor, torch.eye, torch.linspace, torch.randperm, torch.tril_indices),
}
_KNOWN = {torch.zeros, torch.ones, torch.full, torch.arange, torch.tensor, torch.tril_indices}
_FLIPS = {torch.logical_not, Tensor.logical_not, Tensor.__invert__, torch.bitwise_not}


class Reading(float):
    """A number that a script read of a tensor; a comparison with it is a branch that depends on data."""

    recorder: Recorder

    def _noted(self) -> float:
        if at := where():
            self.recorder.branches[at] += 1
        return float(self)

    def __lt__(self, other: Any) -> bool:
        return self._noted() < other

    def __gt__(self, other: Any) -> bool:
        return self._noted() > other

    def __le__(self, other: Any) -> bool:
        return self._noted() <= other

    def __ge__(self, other: Any) -> bool:
        return self._noted() >= other


def _is_cuda(device: Any) -> bool:
    return type(device) is int or (isinstance(device, str | torch.device) and str(device).startswith("cuda"))


class FakeCuda(TorchFunctionMode):
    """A mode that makes tensors on the fake GPU, moves them there, and answers what is read of them."""

    def __init__(self, recorder: Recorder, gpu: dict[str, Any]) -> None:
        super().__init__()
        self.recorder = recorder
        self.device = _CUDA if gpu["capability"] else _CPU  # on which tensors compute that are not `on_host`
        self.default_cuda = False
        self._handlers: dict[Any, Callable[..., Any]] = {
            Tensor.to: self._to,
            Tensor.cuda: lambda x, *args, **kwargs: self.moved(x),
            Tensor.cpu: lambda x, *args, **kwargs: self._to(x, _CPU),
            Tensor.numpy: lambda x, *args, **kwargs: self._read(x).numpy(),
            Tensor.__array__: lambda x, *args, **kwargs: self._read(x).numpy(),
            Tensor.tolist: lambda x: self._read(x).tolist(),
            Tensor.item: self.item,
            Tensor.__float__: lambda x: float(self.item(x)),
            Tensor.__int__: lambda x: int(self.item(x)),
            Tensor.__index__: lambda x: int(self.item(x)),
            Tensor.__bool__: lambda x: bool(self.item(x)),
            Tensor.__format__: lambda x, spec: format(self.item(x), spec) if x.ndim == 0 else "tensor(...)",
            Tensor.__repr__: lambda x, **kwargs: f"tensor({float(self.item(x))})" if x.ndim == 0 else "tensor(...)",
            Tensor.pin_memory: lambda x, *args, **kwargs: x,
            Tensor.is_pinned: lambda x, *args, **kwargs: True,
            vars(torch._C.TensorBase)["is_cuda"].__get__: lambda x: x.device == _CUDA,
            Tensor.get_device: lambda x: -1 if x.device == _CPU else 0,
            torch.equal: lambda *args: True,
            torch.allclose: lambda *args, **kwargs: True,
        }

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        handler = self._handlers.get(func)
        if handler is not None and (func in (Tensor.to, Tensor.cuda, Tensor.pin_memory) or _is_fake(args)):
            return handler(*args, **kwargs)
        if func in (torch.device, torch._C._nn._parse_to):
            return self._named(func, args, kwargs)
        device = kwargs.get("device")
        if _is_cuda(device) or (device is None and self.default_cuda and func in _FACTORIES):
            return self._made(func, args, kwargs)
        if func is nn.functional.cross_entropy and _is_fake(args):
            return self._cross_entropy(args, kwargs)
        if func is nn.functional.scaled_dot_product_attention:
            # A GPU's fused kernel drops scores itself, a CPU's cannot. The fifth argument is by how many.
            args = (*args[:4], *(0.0 for _ in args[4:5]), *args[5:])
            kwargs = kwargs if len(args) > 4 else kwargs | {"dropout_p": 0.0}
        with self._torch():
            out = func(*args, **kwargs)
        if isinstance(out, FakeTensor) and out.dtype is torch.bool:
            given = next((each for each in args if isinstance(each, FakeTensor)), None)
            truth = getattr(given, "truth", False)
            put(out, "truth", func is torch.isfinite or func is Tensor.isfinite or truth is not (func in _FLIPS))
        return out

    def _named(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Return what torch makes of a name of a device; a number names a GPU, which torch refuses without one."""
        if args and type(args[0]) is int:
            args = (self.device, *args[1:])
        if type(kwargs.get("device")) is int:
            kwargs["device"] = self.device
        return func(*args, **kwargs)

    @contextlib.contextmanager
    def _torch(self) -> Any:
        self.recorder.inside += 1
        try:
            yield
        finally:
            self.recorder.inside -= 1

    def _cross_entropy(self, args: Any, kwargs: Any) -> Any:
        with self._torch():
            if len(args) == 2 and kwargs.keys() <= {"ignore_index"}:
                return nn.functional.cross_entropy(*args, **kwargs)
            logits = args[0].float() if torch.is_autocast_enabled("cpu") else args[0]
            weighted = torch.log_softmax(logits, 1 if logits.ndim > 1 else 0)
            if args[1].is_floating_point():
                return -(weighted * args[1]).sum(1).mean()
            reduction = kwargs.get("reduction", "mean")
            return nn.functional.nll_loss(weighted, args[1], reduction=reduction)

    def _made(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Return what a function that was asked for a tensor on the GPU makes."""
        if any(isinstance(leaf, Tensor) and not isinstance(leaf, FakeTensor) for leaf in tree_leaves(args)):
            kwargs.pop("device")
            kwargs.pop("pin_memory", None)
            return tree_map(lambda leaf: self.moved(leaf) if isinstance(leaf, Tensor) else leaf, func(*args, **kwargs))
        kwargs["device"] = "cpu"
        kwargs.pop("pin_memory", None)
        kwargs.pop("generator", None)
        with self._torch(), self.recorder.fake:
            out = func(*args, **kwargs)
        if isinstance(out, FakeTensor) and func in _KNOWN:
            keep_value(out, func, args, kwargs)
        for leaf in tree_leaves(out):
            if isinstance(leaf, FakeTensor):
                put(leaf, "on_host", False)
                self.recorder.count_as(leaf, "activations")
        return out

    def like(self, tensor: Tensor, on_host: bool) -> Tensor:
        """Return a fake tensor like another, not on the GPU yet or there."""
        with self._torch(), self.recorder.fake:
            found = torch.empty_strided(tuple(tensor.shape), tensor.stride(), dtype=tensor.dtype)
            found.requires_grad_(tensor.requires_grad)
        put(found, "on_host", on_host)
        return found

    def moved(self, tensor: Tensor) -> Tensor:
        """Return a tensor on the GPU: itself if it is there, else a fake one."""
        if not is_on_host(tensor):
            return tensor
        found = self.like(tensor, False)
        if not isinstance(tensor, FakeTensor) and tensor.numel() <= SMALL:
            put(found, "origin", tensor.detach())  # what is read of it, until it is changed
        self.recorder.count_as(found, "weights" if isinstance(tensor, nn.Parameter) else "activations")
        return found

    def _read(self, tensor: Tensor) -> Tensor:
        """Return what a script gets that copies a tensor to the CPU: ones of no memory, as it is not computed."""
        if not is_on_host(tensor):
            self.recorder.synchronised[where()] += 1
        if (origin := getattr(tensor, "origin", None)) is not None:
            return torch.clone(origin)
        found = torch.ones((), dtype=tensor.dtype).expand(tuple(tensor.shape))
        return found.contiguous() if tensor.numel() <= SMALL else found

    def item(self, tensor: Tensor) -> Any:
        found = self.recorder.value_of(tensor)
        return Reading(found) if isinstance(found, float) else found

    def _to(self, tensor: Tensor, *args: Any, **kwargs: Any) -> Any:
        copy, other = kwargs.pop("copy", False), args[0] if args else kwargs.get("other")
        if isinstance(other, Tensor):
            device, dtype, layout = other.device, other.dtype, None
        else:
            device, dtype, _, layout = self._named(torch._C._nn._parse_to, args, kwargs)
        if _is_cuda(device):
            tensor = self.moved(tensor)
        elif device == _CPU and self.device == _CUDA and not is_on_host(tensor):
            tensor = self._read(tensor)
        with self._torch():
            return tensor.to(dtype or tensor.dtype, copy=copy, memory_format=layout)


def _is_fake(args: Any) -> bool:
    return bool(args) and isinstance(args[0], FakeTensor)


class _Autocast(torch.amp.autocast):
    """Autocast of the fake GPU: the CPU's, beside which `AsOnCuda` casts what CUDA's casts."""

    def __init__(self, device_type: str = "cuda", dtype: Any = None, **more: Any) -> None:
        default = torch.float16 if device_type == "cuda" else torch.bfloat16
        super().__init__("cpu", dtype=dtype or default, **more)


class _CudaAutocast(_Autocast):
    def __init__(self, enabled: bool = True, dtype: Any = torch.float16, cache_enabled: bool = True) -> None:
        super().__init__("cuda", dtype=dtype, enabled=enabled, cache_enabled=cache_enabled)


class _Scaler:
    """A gradient scaler, whose steps always succeed."""

    def __init__(self, *args: Any, enabled: bool = True, **more: Any) -> None:
        self._enabled = enabled

    def scale(self, loss: Any) -> Any:
        return tree_map(lambda each: each * 1.0, loss) if self._enabled else loss

    def unscale_(self, optimizer: Any) -> None:
        weights = [w.grad for group in optimizer.param_groups for w in group["params"] if w.grad is not None]
        if self._enabled and weights:
            torch._foreach_mul_(weights, 1.0)

    def step(self, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        self.unscale_(optimizer)
        return optimizer.step(*args, **kwargs)

    def update(self, *args: Any) -> None: ...

    def is_enabled(self) -> bool:
        return self._enabled

    def get_scale(self) -> float:
        return 65536.0 if self._enabled else 1.0

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: Any) -> None: ...


class _Nothing:
    """An object whose methods do nothing: an event, a stream, a profiler."""

    def __init__(self, *args: Any, **kwargs: Any) -> None: ...

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **kwargs: self

    def elapsed_time(self, other: Any) -> float:
        return 1.0

    def query(self) -> bool:
        return True

    def is_capturing(self) -> bool:
        return False

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *error: Any) -> None: ...

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return args[0] if args and callable(args[0]) else self


def _answering(value: Any) -> Callable[..., Any]:
    return lambda *args, **kwargs: value


def _queries(recorder: Recorder, gpu: dict[str, Any], world: int) -> dict[str, Any]:
    """Return what torch.cuda's functions answer, by name; a class stands for itself."""
    memory = int(gpu["memory_bytes"])
    capability = tuple(gpu["capability"])
    properties = SimpleNamespace(
        name=gpu["name"], total_memory=memory, major=capability[0], minor=capability[1], multi_processor_count=108,
        warp_size=32, max_threads_per_multi_processor=2048, is_integrated=False, regs_per_multiprocessor=65536,
    )  # fmt: skip
    used = lambda *args, **kwargs: int(sum(recorder.of.values()))  # noqa: E731
    values = {
        "is_available": True, "is_initialized": True, "is_bf16_supported": capability >= (8, 0),
        "device_count": world, "current_device": 0, "get_device_capability": capability,
        "get_device_name": gpu["name"], "get_device_properties": properties, "synchronize": None, "set_device": None,
        "empty_cache": None, "reset_peak_memory_stats": None, "reset_max_memory_allocated": None, "ipc_collect": None,
        "memory_summary": "", "memory_stats": {}, "utilization": 0, "init": None, "manual_seed": None,
        "manual_seed_all": None, "seed": None, "set_per_process_memory_fraction": None, "set_rng_state": None,
        "set_rng_state_all": None, "get_arch_list": [], "is_current_stream_capturing": False,
        "current_stream": _Nothing(),
        "default_stream": _Nothing(), "stream": _Nothing(), "device": _Nothing(), "initial_seed": 0,
        "mem_get_info": (memory, memory), "can_device_access_peer": True,
    }  # fmt: skip
    found: dict[str, Any] = {name: _answering(value) for name, value in values.items()}
    for name in ("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved"):
        found[name] = used
    found |= {
        "get_rng_state": lambda *args: torch.get_rng_state(),
        "get_rng_state_all": lambda: [torch.get_rng_state()],
    }
    return found | {"Event": _Nothing, "Stream": _Nothing, "CUDAGraph": _Nothing, "device": _Nothing}


def install(recorder: Recorder, gpu: dict[str, Any], world: int) -> FakeCuda:
    """Have torch's functions answer for the fake device in this process, and return the mode to enter. A `gpu` without
    a compute capability is the CPU."""
    mode = FakeCuda(recorder, gpu)
    Reading.recorder = recorder
    if mode.device == _CUDA:
        _patch_cuda(mode, gpu, world)
        _patch_lists()
    put(torch._subclasses, "FakeTensor", _Nothing)  # by which transformers knows a tracing
    put(torch, "compile", _compile_of(recorder))
    put(torch, "save", lambda thing, file, *args, **kwargs: _write_nothing(file))
    _patch_tensors(mode)
    _patch_modules(mode)
    _patch_backward(recorder)
    _patch_loaders(recorder)
    return mode


def _patch_cuda(mode: FakeCuda, gpu: dict[str, Any], world: int) -> None:
    """Have torch answer that there are such GPUs, and cast and scale as it does for them."""
    for name, value in _queries(mode.recorder, gpu, world).items():
        setattr(torch.cuda, name, value)
    asked = {"is_available": True, "device_count": world, "current_accelerator": _CUDA, "current_stream": _Nothing()}
    for name, answer in asked.items():
        setattr(torch.accelerator, name, _answering(answer))
    for name in ("current_device_index", "current_device_idx", "set_device_index", "set_device_idx", "synchronize"):
        setattr(torch.accelerator, name, _answering(0))
    cuda_amp: Any = torch.cuda.amp
    for module in (torch, torch.amp, torch.amp.autocast_mode):
        put(module, "autocast", _Autocast)
    cuda_amp.autocast = cuda_amp.autocast_mode.autocast = _CudaAutocast
    cuda_amp.GradScaler = _Scaler
    put(torch.amp, "GradScaler", _Scaler)
    enabled, dtype_of = torch.is_autocast_enabled, torch.get_autocast_dtype
    torch.is_autocast_enabled = lambda *device: enabled("cpu")
    put(torch, "get_autocast_dtype", lambda device: dtype_of("cpu"))
    torch.get_autocast_gpu_dtype = lambda: dtype_of("cpu")
    torch.set_default_device = lambda device: setattr(mode, "default_cuda", _is_cuda(device))


def _write_nothing(file: Any) -> None:
    if hasattr(file, "write"):
        return
    with open(file, "wb"):
        pass


def _compile_of(recorder: Recorder) -> Any:
    def compiling(function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            recorder.compiling += 1
            try:
                return function(*args, **kwargs)
            finally:
                recorder.compiling -= 1

        return run

    def compiled(model: Any = None, **options: Any) -> Any:
        if model is None:
            return lambda function: compiled(function, **options)
        if isinstance(model, nn.Module):
            put(model, "forward", compiling(model.forward))
            object.__setattr__(model, "_orig_mod", model)
            return model
        return compiling(model)

    put(nn.Module, "compile", lambda self, *args, **kwargs: compiled(self) and None)
    return compiled


def _patch_tensors(mode: FakeCuda) -> None:
    """Have fake tensors answer for their device, and parameters be fake from the start: they are never computed."""
    recorder = mode.recorder

    def device(tensor: Any) -> torch.device:
        if tensor.fake_mode.in_kernel_invocation:
            return torch.device("meta")
        return _CPU if recorder.inside or is_on_host(tensor) else mode.device

    put(FakeTensor, "device", property(device, lambda tensor, value: None))
    make: Any = nn.Parameter.__new__

    def parameter(cls: Any, data: Any = None, requires_grad: bool = True) -> Any:
        real = isinstance(data, Tensor) and not isinstance(data, FakeTensor) and data.device.type == "cpu"
        weight = make(cls, mode.like(data, True) if real and cls is nn.Parameter else data, requires_grad)
        if isinstance(weight, FakeTensor):
            put(weight, "on_host", mode.device == _CUDA and is_on_host(data))
            if not is_on_host(weight):
                recorder.count_as(weight, "weights")
        return weight

    put(nn.Parameter, "__new__", parameter)


def _patch_lists() -> None:
    """Have torch update weights in lists of tensors, as it does on a GPU."""
    for supported in (in_optimizers, in_utilities):
        supported.append(FakeTensor)
    group: Any = torch._C._group_tensors_by_device_and_dtype

    def grouped(lists: Any, with_indices: bool = False) -> Any:
        found = {}
        for (device, dtype), (tensors, indices) in group(lists, with_indices).items():
            first = next((each for each in tensors[0] if isinstance(each, FakeTensor)), None)
            on_gpu = first is not None and not is_on_host(first)
            found[_CUDA if on_gpu else device, dtype] = (tensors, indices)
        return found

    put(torch._C, "_group_tensors_by_device_and_dtype", grouped)


def _watch_gradients(recorder: Recorder, model: nn.Module) -> None:
    """Have gradients counted as such when they are ready: copies of weights that a model makes are its weights, too."""

    def count(weight: Any) -> None:
        if weight.grad is not None and not is_on_host(weight.grad):
            recorder.count_as(weight.grad, "gradients")

    for weight in model.parameters():
        if weight.requires_grad and not getattr(weight, "is_watched", False):
            put(weight, "is_watched", True)
            weight.register_post_accumulate_grad_hook(count)


def _patch_modules(mode: FakeCuda) -> None:
    """Have modules move and cast their weights as they are: torch's own way replaces fake tensors by others."""

    def changed(tensor: Any, function: Callable[[Tensor], Tensor], kind: str) -> Any:
        with torch.no_grad():
            found: Any = function(tensor)
        if isinstance(tensor, FakeTensor):
            if found.dtype is not tensor.dtype:
                with mode._torch():
                    tensor.data = found
            put(tensor, "on_host", is_on_host(found))
            found = tensor
        if not is_on_host(found):
            mode.recorder.count_as(found, kind)
        return found

    def apply(self: nn.Module, function: Any, recurse: bool = True) -> nn.Module:
        if recurse:
            for child in self.children():
                child._apply(function)
        held: Any
        for held in (self._parameters, self._buffers):
            for name, tensor in held.items():
                if tensor is not None:
                    held[name] = changed(tensor, function, "weights")
                    if tensor.grad is not None:
                        changed(tensor.grad, function, "gradients")
        return self

    put(nn.Module, "_apply", apply)
    _watch_calls(mode)


class _Again(torch.autograd.Function):
    """Stands for a pass of a model that ran with the same shapes before: it computes nothing, in both directions."""

    @staticmethod
    def forward(context: Any, weight: Tensor, *like: Tensor) -> Any:
        context.set_materialize_grads(False)  # else autograd makes real zeros for each output
        return tuple(each.detach() for each in like)

    @staticmethod
    def backward(context: Any, *gradients: Any) -> Any:
        return (None, *(None for _ in gradients))


def _watch_calls(mode: FakeCuda) -> None:
    """Note the examples of each outermost call of a module. One without gradients, or the third of a step and later,
    with shapes as before, is not run again."""
    recorder, call = mode.recorder, nn.Module.__call__
    known: dict[Any, Any] = {}
    state = SimpleNamespace(depth=0, largest=0)

    def again(model: nn.Module, key: Any) -> Any:
        leaves, tree = tree_flatten(known[key])
        fresh: list[Any] = [mode.like(leaf, False) if isinstance(leaf, FakeTensor) else leaf for leaf in leaves]
        if torch.is_grad_enabled():
            places = [at for at, leaf in enumerate(leaves) if isinstance(leaf, FakeTensor) and leaf.requires_grad]
            weight = next(weight for weight in model.parameters() if weight.requires_grad)
            for at, made in zip(places, _Again.apply(weight, *(fresh[at] for at in places)), strict=True):
                put(made, "on_host", False)
                fresh[at] = made
            recorder.period.repeats = True
        return tree_unflatten(fresh, tree)

    def run(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        if state.depth or recorder.phase == "backward":
            return call(self, *args, **kwargs)
        given = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor) and leaf.ndim]
        size = sum(weight.numel() for weight in self.parameters())
        if not given or not size or not isinstance(next(self.parameters()), FakeTensor):
            return call(self, *args, **kwargs)
        main, learns = size >= state.largest, torch.is_grad_enabled()
        if main and learns:
            recorder.begin(getattr(self, "require_backward_grad_sync", True))
            if size > state.largest:
                recorder.period.examples = recorder.period.tokens = 0.0
            state.largest = size
            recorder.period.examples += given[0].shape[0]
            if given[0].ndim == 2 and not given[0].is_floating_point():
                recorder.period.tokens += given[0].numel()
        key = (id(self), learns, self.training, tuple((tuple(each.shape), each.dtype) for each in given))
        full = sum(not each.repeats for each in recorder.periods)
        if key in known and main and (not learns or full >= 2):
            return again(self, key)
        if main and learns:
            _watch_gradients(recorder, self)
        state.depth += 1
        try:
            out = call(self, *args, **kwargs)
        finally:
            state.depth -= 1
        kept = tree_map(lambda leaf: mode.like(leaf, True) if isinstance(leaf, FakeTensor) else leaf, out)
        if any(isinstance(leaf, FakeTensor) for leaf in tree_leaves(kept)):
            known[key] = kept
        return out

    put(nn.Module, "__call__", run)


def _patch_backward(recorder: Recorder) -> None:
    run = torch.autograd.backward

    def backward(tensors: Any, *args: Any, **kwargs: Any) -> None:
        if recorder.phase == "backward":  # torch calls it again, for each mode
            run(tensors, *args, **kwargs)
            return
        recorder.phase = "backward"
        run(tensors, *args, **kwargs)
        recorder.end_backward()

    def of_tensor(
        self: Tensor, gradient: Any = None, retain_graph: Any = None, create_graph: bool = False, inputs: Any = None
    ) -> None:
        backward(self, gradient, retain_graph, create_graph, inputs=inputs)

    torch.autograd.backward = backward
    put(Tensor, "backward", of_tensor)


def _patch_loaders(recorder: Recorder) -> None:
    """Have data loaders read in this process, and time them; their workers are noted."""
    loaders = torch.utils.data.dataloader
    make, following = loaders.DataLoader.__init__, loaders._BaseDataLoaderIter.__next__
    declared = inspect.signature(make)

    def loader(self: Any, *args: Any, **kwargs: Any) -> None:
        given = declared.bind(self, *args, **kwargs).arguments
        recorder.workers = max(recorder.workers, given.pop("num_workers", 0))
        for name in ("prefetch_factor", "persistent_workers", "pin_memory", "multiprocessing_context"):
            given.pop(name, None)
        make(**given)

    def timed(self: Any) -> Any:
        began = time.perf_counter()
        try:
            return following(self)
        finally:
            recorder.loading += time.perf_counter() - began
            with contextlib.suppress(TypeError):  # of a data set without a length
                recorder.batches = len(self)

    put(loaders.DataLoader, "__init__", loader)
    put(loaders._BaseDataLoaderIter, "__next__", timed)


def modes(mode: FakeCuda) -> Any:
    """Return a context in which a script runs on the fake device."""
    stack = contextlib.ExitStack()
    stack.enter_context(mode.recorder)
    if mode.device == _CUDA:
        stack.enter_context(AsOnCuda())
    stack.enter_context(mode)
    return stack
