"""Run of a user's script on a GPU that is not there, in a process of its own: it ends at its third optimizer step.

python -m repro.plan.child reads a request as JSON on stdin and writes what it recorded into a file.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import runpy
import shutil
import socket
import sys
import traceback
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.fsdp as fsdp
import torch.multiprocessing
import torch.utils.checkpoint as checkpoints
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.testing._internal.distributed.fake_pg import FakeStore

from repro.machine.processes import end_with
from repro.machine.stack import declare_torchvision_operators

from . import fake_cuda, place, steps
from . import recorder as recording
from .recorder import STEPS, EndOfPlan, Period, Recorder, put

_LARGEST_FILE = 2 << 30  # bytes of a file that the script writes
_COLLECTIVES = (
    *("all_reduce", "broadcast", "reduce", "barrier", "all_gather", "all_gather_into_tensor", "send", "recv"),
)
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_CHANGES = ("os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.truncate", "os.chmod", "os.symlink", "shutil.rmtree")


def _confine(scratch: str, work: str, samples: str | None, sockets: bool) -> None:
    """Have Python refuse what changes files outside the scratch folder and, where `sockets`, any connection. Files that
    the script opens in its folder and that are not there are copies of `samples`."""
    free = (scratch, "/dev/")

    def outside(path: Any) -> bool:
        if not isinstance(path, str | bytes | os.PathLike):
            return False
        return not os.path.realpath(os.fsdecode(path)).startswith(free)

    def check(event: str, args: Any) -> None:
        if event == "open" and isinstance(args[0], str | bytes | os.PathLike):
            writes = any(each in (args[1] or "") for each in "wax+") or (args[2] or 0) & _WRITES
            place = os.path.realpath(os.fsdecode(args[0]))
            if samples and not writes and place.startswith(f"{work}/") and not os.path.lexists(place):
                os.makedirs(os.path.dirname(place), exist_ok=True)
                shutil.copyfile(samples, place)
            if writes and outside(place):
                raise PermissionError(f"{place}: it writes outside its folder, which a plan refuses")
        elif event in _CHANGES and any(map(outside, args[:2] if event == "os.rename" else args[:1])):
            raise PermissionError(f"{args[0]}: it changes files outside its folder, which a plan refuses")
        elif sockets and event in ("socket.connect", "socket.getaddrinfo", "socket.sendto"):
            if event == "socket.connect" and getattr(args[0], "family", None) == socket.AF_UNIX:
                return
            raise ConnectionRefusedError("a plan has no network")

    sys.addaudithook(check)


def _patch_groups(recorder: Recorder, world: int) -> None:
    """Have one process stand for several: torch's fake process group, and collectives that do nothing."""
    start = dist.init_process_group
    put(dist, "init_process_group", lambda *args, **kwargs: start("fake", store=FakeStore(), rank=0, world_size=world))
    for name in _COLLECTIVES:
        setattr(dist, name, lambda *args, **kwargs: None)
    put(dist, "all_gather_object", lambda found, mine, *rest: found.__setitem__(slice(None), [mine] * len(found)))

    class Wrapped(nn.Module):
        """Stands for DistributedDataParallel and FSDP: the module itself, whose exchanges are counted."""

        kind = "ddp"

        def __init__(self, module: nn.Module, *args: Any, **kwargs: Any) -> None:
            super().__init__()
            self.module, self.require_backward_grad_sync = module, True
            recorder.wrapped = self.kind or recorder.wrapped
            weights = [weight for weight in module.parameters() if weight.requires_grad]
            if self.kind == "ddp":
                device = weights[0].device if weights else "cpu"
                self._buckets = torch.empty(sum(weight.numel() for weight in weights), device=device)
                if device != torch.device("cpu"):
                    recorder.count_as(self._buckets, "buckets")

        def forward(self, *args: Any, **kwargs: Any) -> Any:
            return self.module(*args, **kwargs)

        @contextlib.contextmanager
        def no_sync(self) -> Iterator[None]:
            self.require_backward_grad_sync = False
            yield
            self.require_backward_grad_sync = True

        def clip_grad_norm_(self, most: float, *args: Any) -> Any:
            return nn.utils.clip_grad_norm_(self.parameters(), most)

        def __getattr__(self, name: str) -> Any:
            try:
                return super().__getattr__(name)
            except AttributeError:
                return getattr(super().__getattr__("module"), name)

    class Parallel(Wrapped):
        kind = ""

    class Sharded(Wrapped):
        kind = "fsdp"

        def __init__(self, module: nn.Module, *args: Any, **kwargs: Any) -> None:
            super().__init__(module.to("cuda"))
            mixed = kwargs.get("mixed_precision")
            self._dtype = getattr(mixed, "param_dtype", None)

        def forward(self, *args: Any, **kwargs: Any) -> Any:
            with torch.autocast("cuda", dtype=self._dtype or torch.bfloat16, enabled=self._dtype is not None):
                return super().forward(*args, **kwargs)

    for owner, name, stands_for in (
        (nn.parallel, "DistributedDataParallel", Wrapped),
        (nn.parallel.distributed, "DistributedDataParallel", Wrapped),
        (nn.parallel, "DataParallel", Parallel),
        (nn, "DataParallel", Parallel),
        (fsdp, "FullyShardedDataParallel", Sharded),
    ):
        setattr(owner, name, stands_for)

    def fully_shard(module: nn.Module, *args: Any, mp_policy: Any = None, **kwargs: Any) -> nn.Module:
        recorder.wrapped = "fsdp"
        dtype = getattr(mp_policy, "param_dtype", None)
        if dtype in (torch.float16, torch.bfloat16):
            run = module.forward

            def forward(*given: Any, **named: Any) -> Any:
                with torch.autocast("cuda", dtype=dtype):
                    return run(*given, **named)

            put(module, "forward", forward)
        return module.to("cuda")

    def spawn(function: Any, args: Any = (), *_: Any, **__: Any) -> None:
        function(0, *args)

    put(torch.multiprocessing, "spawn", spawn)
    if hasattr(fsdp, "fully_shard"):
        put(fsdp, "fully_shard", fully_shard)


def _patch_checkpoints(recorder: Recorder) -> None:
    """Note that activations are checkpointed, and which operators compute them again."""
    run = checkpoints.checkpoint

    def checkpoint(function: Any, *args: Any, **kwargs: Any) -> Any:
        def noted(*given: Any, **named: Any) -> Any:
            again = recorder.phase == "backward"
            recorder.recomputing += again
            try:
                return function(*given, **named)
            finally:
                recorder.recomputing -= again

        recorder.checkpoints = True
        return run(noted, *args, **kwargs | {"preserve_rng_state": False, "use_reentrant": False})

    put(checkpoints, "checkpoint", checkpoint)


def _watch_steps(recorder: Recorder) -> dict[str, Any]:
    """Have the first optimizer that steps end steps. Return what is noted of it: itself, and its number of steps."""
    noted: dict[str, Any] = {}
    learning = Counter[tuple[str, int]]()
    backward = recorder.end_backward

    def ended() -> None:
        if (frame := next(place.frames(), None)) is not None:
            learning[frame.f_code.co_filename, frame.f_lineno] += 1
        backward()

    put(recorder, "end_backward", ended)

    def stepped(optimizer: Any, args: Any, kwargs: Any) -> None:
        if noted.setdefault("optimizer", optimizer) is not optimizer or not recorder.periods:
            return
        if len(recorder.steps) == STEPS - 1:
            noted["steps"] = _of_trainer() or steps.found(learning, recorder.batches)
        learning.clear()
        recorder.end_step()

    register_optimizer_step_post_hook(stepped)
    return noted


def _of_trainer() -> steps.Steps | None:
    """Return the steps of a trainer of transformers or Lightning that runs; None without one."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        owner = frame.f_locals.get("self")
        module = type(owner).__module__
        if module.startswith("transformers.trainer") and getattr(owner.state, "max_steps", 0) > 0:
            return steps.Steps(float(owner.state.max_steps), "the Trainer's max_steps or num_train_epochs")
        if "lightning" in module and 0 < (most := getattr(owner, "estimated_stepping_batches", 0)) < float("inf"):
            return steps.Steps(float(most), "Lightning's max_steps or max_epochs")
        frame = frame.f_back
    return None


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Run the script and return what was recorded, or its error's last line."""
    declare_torchvision_operators()
    script = Path(request["script"])
    place.ROOT = Path(request["root"])
    recorder = Recorder()
    mode = fake_cuda.install(recorder, request["gpu"], request["gpus"])
    _patch_groups(recorder, request["gpus"])
    _patch_checkpoints(recorder)
    noted = _watch_steps(recorder)
    sys.argv = [str(script), *request["arguments"]]
    ours = str(Path(__file__).resolve().parents[2])  # whose folders may be called as the script's modules are
    sys.path[:] = [str(script.parent), request["root"], *(each for each in sys.path[1:] if each != ours)]
    _confine(request["scratch"], request["root"], request["samples"], request["sockets"])
    error = ""
    try:
        with fake_cuda.modes(mode):
            runpy.run_path(str(script), run_name="__main__")
    except EndOfPlan:
        pass
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    except BaseException as failed:
        traceback.print_exc()
        error = _described(failed, place.ROOT)
    if len(recorder.steps) < STEPS:
        return {"failed": error, "steps_made": len(recorder.steps)}
    return _summary(recorder, noted)


def _described(failed: BaseException, folder: Path) -> str:
    """Return an error as Python's last line, with the line of the script that it came from."""
    last = traceback.format_exception_only(failed)[-1].strip()
    frames = [each for each in traceback.extract_tb(failed.__traceback__) if each.filename.startswith(str(folder))]
    at = f"{Path(frames[-1].filename).relative_to(folder)}:{frames[-1].lineno}: " if frames else ""
    return f"{at}{last}"[:600]


def _summary(recorder: Recorder, noted: dict[str, Any]) -> dict[str, Any]:
    """Return what the steps cost, as JSON has it: the last step's micro-steps and its update."""
    *micro, update = recorder.steps[-1]
    found, products = noted["steps"], sum(period.products for period in micro)
    groups = noted["optimizer"].param_groups
    weights = [weight for group in groups for weight in group["params"]]

    def changed(operators_of: Any, is_possible: bool) -> Any:
        return _mean(recorder, micro, operators_of) if is_possible else None

    return {
        "micro": _mean(recorder, micro, lambda period: period.operators),
        "update": recorder.costs(update.operators),
        "with_fused_attention": changed(recording.with_fused_attention, any(each.scores for each in micro)),
        "with_fused_loss": changed(recording.with_fused_loss, any(each.logits for each in micro)),
        "without_recomputation": changed(recording.without_recomputation, recorder.checkpoints),
        "recomputed_bytes": sum(sum(micro[0].operators[number].writes.values()) for number in micro[0].recomputed),
        "micro_steps": len(micro),
        "examples": sum(period.examples for period in micro) / len(micro),
        "tokens": sum(period.tokens for period in micro) / len(micro),
        "parameters": float(sum(weight.numel() for weight in weights)),
        "tensors": len(weights),
        "precision": recorder.half_name or "fp32",
        "compiled": sum(period.compiled for period in micro) > products / 2 > 0,
        "tf32": torch.backends.cuda.matmul.allow_tf32 or torch.get_float32_matmul_precision() != "highest",
        "tf32_convolutions": torch.backends.cudnn.allow_tf32,
        "optimizer": type(noted["optimizer"]).__name__,
        "fused": any(group.get("fused") for group in groups),
        "peaks": recorder.peaks,
        "reduces": recorder.reduces,
        "wrapped": recorder.wrapped,
        "synchronisations": recorder.synchronised,
        "loading": recorder.loading,
        "workers": recorder.workers,
        "branches": recorder.branches,
        "untold": [*recorder.untold],
        "steps": None if found is None else [found.number, found.source],
        "on_gpu": recorder.of["weights"] > 0,
    }


def _mean(recorder: Recorder, micro: list[Period], operators_of: Any) -> dict[str, list[float]]:
    """Return the mean costs of micro-steps, of which many share their operators."""
    found: dict[str, list[float]] = {}
    known: dict[int, Any] = {}
    for period in micro:
        if id(period.operators) not in known:
            known[id(period.operators)] = recorder.costs(operators_of(period))
        for key, (fixed, each) in known[id(period.operators)].items():
            total = found.setdefault(key, [0.0, 0.0])
            total[0] += fixed / len(micro)
            total[1] += each / len(micro)
    return found


def main() -> None:
    end_with(os.getppid())
    code = 1
    request = json.load(sys.stdin)
    resource.setrlimit(resource.RLIMIT_FSIZE, (_LARGEST_FILE, _LARGEST_FILE))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.chdir(request["folder"])
    try:
        Path(request["answer"]).write_text(json.dumps(answer(request)))
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    main()
