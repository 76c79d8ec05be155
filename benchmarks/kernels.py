"""Which kernels the GPU runs in one micro-step and one update of a recipe, how many of each kind, and how long they
take. The engine is built and compiled as a trial's is."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from repro import models
from repro.console import UserError
from repro.formats import render
from repro.machine import support
from repro.machine.devices import capability_of
from repro.machine.nvml import visible_devices
from repro.paper.settings import Settings

from . import Ask, options, warm_ranks

if TYPE_CHECKING:
    from repro.measure.rank import Rank
    from repro.models.recipe import Scale

METHODS = {"naive": Settings(free_lunch=False), "free-lunch": Settings(free_lunch=True)}
_WARM_UP = 3

# The first pattern that a kernel's name matches is its kind. Names are of CUDA's libraries, torch 2.11 and Inductor.
KINDS = (
    ("copies", r"memcpy|memset|copy|catarray|fillfunctor|nchwtonhwc|nhwctonchw|transpose_readwrite"),
    ("communication", r"nccl"),
    ("optimizer", r"multi_tensor_apply|fusedadam|fused_adam|lpnorm"),
    ("attention", r"flash|fmha|sdpa|attention"),
    ("scan", r"selective_scan|causal_conv1d"),
    ("depthwise convolution", r"depthwise|grouped_direct|dgrad2d|wgrad2d|conv2d_grouped|group_?conv"),
    ("convolution", r"conv|[fpwd]prop|dgrad|wgrad|winograd"),
    ("matrix product", r"gemm|gemv|nvjet|cutlass|cublas|splitk|_mm|xmma|matmul"),
    ("layer norm, compiled", r"triton.*(layer_norm|var_mean|rms_norm)"),
    ("reduction, compiled", r"triton_(per|red)"),
    ("pointwise, compiled", r"triton"),
    ("layer norm", r"layer_?norm|batch_?norm|gammabeta"),
    ("softmax and loss", r"softmax|nll_loss|cross_entropy"),
    ("embedding", r"embedding|index|gather|scatter|sort|radix"),
    ("reduction", r"reduce"),
    ("pointwise", r"elementwise|dropout"),
)


@dataclass(frozen=True)
class Kernel:
    """All launches of one kernel in a `part`, the micro-step or the update, and their milliseconds."""

    part: str
    name: str
    launches: int
    ms: float

    @property
    def kind(self) -> str:
        return kind_of(self.name)


def kind_of(name: str) -> str:
    """Return the kind of a kernel: the first pattern of KINDS that its name matches."""
    return next((kind for kind, pattern in KINDS if re.search(pattern, name.lower())), "other")


def profile(
    rank: Rank, recipe: str, scale: Scale, settings: str, micro_batch: int, compiled: bool, tf32: bool
) -> dict[str, Any]:
    """Warm up, time a step without the profiler, then profile a micro-step and an update. Return what ran by part and
    name as [part, name, launches, milliseconds], and the milliseconds of the timed parts."""
    from repro.measure import engine
    from repro.measure.batches import random_batch, to_device
    from repro.measure.clock import synchronised
    from repro.measure.jobs import SEED
    from repro.measure.probes import profiled

    model = models.find(recipe, scale)
    accumulation = max(1, model.batch_size // micro_batch)
    built = engine.build(model, Settings.parse(settings), rank, accumulation, compiled=compiled, tf32=tf32)
    batch = to_device(random_batch(model, micro_batch, SEED), rank)
    parts = {"micro-step": lambda: built.micro_step(batch, reduce=True), "update": lambda: built.update()}
    timed: dict[str, float] = {}
    for _ in range(_WARM_UP):
        for part, work in parts.items():
            timed[part] = 1e3 * synchronised(rank.device, work)
    found: dict[tuple[str, str], list[float]] = {}
    for part, work in parts.items():
        for event in profiled(rank.device, work):
            found.setdefault((part, event.name()), []).append(event.duration_ns() / 1e6)
    return {"timed": timed, "kernels": [[*key, len(times), sum(times)] for key, times in found.items()]}


def by_kind(kernels: Iterable[Kernel]) -> list[Kernel]:
    """Return the sums of kernels of one part and kind, under the kind's name, longest first within a part."""
    sums: dict[tuple[str, str], tuple[int, float]] = {}
    for each in kernels:
        launches, ms = sums.get((each.part, each.kind), (0, 0.0))
        sums[each.part, each.kind] = (launches + each.launches, ms + each.ms)
    return longest_first(Kernel(part, kind, *found) for (part, kind), found in sums.items())


def longest_first(kernels: Iterable[Kernel]) -> list[Kernel]:
    return sorted(kernels, key=lambda each: (each.part, -each.ms))


def rows(ask: Ask, recipe: str, scale: Scale, method: str, micro_batch: int, every_name: bool) -> list[dict[str, Any]]:
    """Profile one recipe. Return a row for each kind of kernel, or with `every_name` for each kernel, and one for each
    part as a whole, with its time without the profiler."""
    settings, model = METHODS[method], models.find(recipe, scale)
    [outcome] = ask(
        "benchmarks.kernels:profile",
        recipe=recipe,
        scale=scale,
        settings=settings.id,
        micro_batch=micro_batch,
        compiled=support.compiles(model, settings),
        tf32=settings.free_lunch and support.tf32_allowed(capability_of(visible_devices())),
    )
    kernels = [Kernel(*each) for each in outcome.value["kernels"]]
    found = []
    for part, timed in outcome.value["timed"].items():
        ran = [each for each in kernels if each.part == part]
        total = sum(each.ms for each in ran)
        shown = longest_first(ran) if every_name else by_kind(ran)
        whole = Kernel(part, "all", sum(each.launches for each in ran), total)
        for each in [*shown, whole]:
            found.append(
                {
                    "recipe": recipe,
                    "method": method,
                    "micro batch": micro_batch,
                    "part": part,
                    "kind": each.kind if every_name and each is not whole else each.name,
                    **({"kernel": "" if each is whole else each.name} if every_name else {}),
                    "launches": each.launches,
                    "ms": each.ms,
                    "share (%)": 100 * each.ms / total,
                    "unprofiled (ms)": timed if each is whole else None,
                }
            )
    return found


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--models", default="convnext", help="recipes, joined by commas")
    parser.add_argument("--methods", choices=sorted(METHODS), default="free-lunch")
    parser.add_argument("--micro-batch", type=int, default=128, metavar="N", help="examples of a micro-step")
    parser.add_argument("--scale", choices=("paper", "tiny"), default="paper")
    asked = parser.parse_args()
    try:
        recipes = models.listed(asked.models)
        if not visible_devices():
            raise UserError("benchmarks.kernels: no GPU here, and a CPU launches no kernels: run it where one is")
    except UserError as error:
        parser.error(str(error))
    every_name = asked.format in ("csv", "json")
    with warm_ranks() as ask:
        found = [
            row
            for recipe in recipes
            for row in rows(ask, recipe, asked.scale, asked.methods, asked.micro_batch, every_name)
        ]
    print(render(found, asked.format))


if __name__ == "__main__":
    main()
