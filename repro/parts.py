"""The named parts of modern training: what each is, its class, what it needs, as data."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from .console import INSTALLED, UserError, suggest_names
from .formats import listing
from .installation import way_to_install

Class = Literal["exact", "precision"]
Engine = Literal["torch", "fsdp", "deepspeed"]
ALL: tuple[Engine, ...] = ("torch", "fsdp", "deepspeed")
_TEXT = ("pythia", "roberta", "mamba")
# What installs the packages that parts need beside the stack.
EXTRA = way_to_install("modern") if INSTALLED else "./run_all.sh --with-modern"


@dataclass(frozen=True)
class Modern:
    """What a trial of modern training was for: its parts, each with its class. `part` is the one that was left out of
    all that serve the model, or that is unsupported beside the others; empty where the trial is of all of them, or of
    the rest. A user `asked` for the parts by name."""

    parts: dict[str, str]
    part: str = ""
    asked: bool = False

    def stands(self, exact_only: bool = False) -> bool:
        """Return whether its settings are a result: no part was left out for comparison; if asked, all are exact."""
        return not self.part and not (exact_only and "precision" in self.parts.values())


@dataclass(frozen=True)
class Technique:
    """A part that is added to free lunch. `exact` ones do the same arithmetic up to the order of sums, `precision` ones
    the same algorithm in fewer bits.

    `families` are the paper's recipes that it serves, empty for all recipes; with `own` it also serves models of one's
    own that have what it changes. `engines` are the libraries that take it, `capability` is the least of a GPU, None
    where a CPU will do; `torch` the least version. `package` is what it needs of an extra.
    """

    name: str
    kind: Class
    library: str
    what: str
    source: str
    engines: tuple[Engine, ...] = ALL
    families: tuple[str, ...] = ()
    custom: bool = False
    capability: tuple[int, int] | None = None
    torch: tuple[int, ...] = (2, 0)
    package: str = ""


# In the order in which they are tried where nothing is predicted.
PARTS = (
    Technique(
        "bf16",
        "precision",
        "torch",
        "bf16 autocast in place of fp16 with its loss scale, and in vision recipes of fp32 and TF32",
        "docs.pytorch.org/docs/stable/amp.html",
    ),
    Technique(
        "bf16_weights",
        "precision",
        "torch",
        "weights, gradients and the residual stream in bf16; the optimizer keeps fp32 weights and moments",
        "Micikevicius et al. (2018), Mixed Precision Training, arXiv:1710.03740, section 3.1",
        engines=("torch",),
    ),
    Technique(
        "fused_attention",
        "exact",
        "torch",
        "scaled_dot_product_attention in place of matrices of scores, where a recipe's free lunch has none",
        "docs.pytorch.org: torch.nn.functional.scaled_dot_product_attention",
        families=("roberta",),
    ),
    Technique(
        "fused_cross_entropy",
        "exact",
        "liger-kernel",
        "output layer and cross entropy in chunks of tokens, gradients in the same pass: logits are never whole",
        "Hsu et al. (2024), Liger Kernel, arXiv:2410.10989, section 3.2",
        families=_TEXT,
        custom=True,
        capability=(8, 0),
        torch=(2, 5),
        package="liger-kernel",
    ),
    Technique(
        "channels_last",
        "exact",
        "torch",
        "weights and images of convolutions with the channels last in memory",
        "docs.pytorch.org/tutorials/intermediate/memory_format_tutorial.html",
        engines=("torch",),
        families=("convnext",),
        custom=True,
    ),
    Technique(
        "selective_checkpointing",
        "exact",
        "torch",
        "checkpointing keeps the results of matrix products and of attention, and recomputes all else",
        "docs.pytorch.org: torch.utils.checkpoint.create_selective_checkpoint_contexts",
        torch=(2, 5),
    ),
    Technique(
        "fp8",
        "precision",
        "torchao",
        "FP8 products in linear layers, scaled by tensor; the output layer keeps its precision",
        "github.com/pytorch/ao: torchao.float8.convert_to_float8_training",
        engines=("torch", "fsdp"),
        capability=(9, 0),  # Hopper
        torch=(2, 5),
        package="torchao",
    ),
    Technique(
        "no_wrapper",
        "exact",
        "torch",
        "no DistributedDataParallel on one device: no buckets, no copies of gradients",
        "docs.pytorch.org: torch.nn.parallel.DistributedDataParallel",
        engines=("torch",),
    ),
    Technique(
        "fused_adam",
        "exact",
        "torch",
        "Adam and AdamW that update all weights in one pass over memory",
        "docs.pytorch.org: torch.optim.Adam(fused=True)",
        engines=("torch", "fsdp"),
        torch=(2, 4),
    ),
    Technique(
        "cuda_graphs",
        "exact",
        "torch",
        "the compiled model as CUDA graphs: one launch in place of one for each kernel",
        "docs.pytorch.org: torch.compile(mode='reduce-overhead')",
        engines=("torch",),
        capability=(7, 0),
        torch=(2, 5),
    ),
)
BY_NAME = {part.name: part for part in PARTS}
NEED_COMPILED = {"cuda_graphs", "fp8"}  # in a model that cannot be compiled they would not run


def checked(names: Sequence[str], option: str) -> tuple[str, ...]:
    """Return the names of parts in the order of the table. Raise UserError for an unknown one, with the nearest names,
    and for one that is named twice."""
    for name in names:
        if name not in BY_NAME:
            near = suggest_names(name, BY_NAME)
            there = f"did you mean {' or '.join(near)}?" if near else f"the parts are {listing([*BY_NAME])}"
            raise UserError(f"{option}: no part is called {name!r}; {there}")
        if names.count(name) > 1:
            raise UserError(f"{option}: {name} is named twice; name each part once")
    return in_order(names)


def in_order(names: Iterable[str]) -> tuple[str, ...]:
    """Return known names in the order of the table."""
    known = {*names}
    return tuple(name for name in BY_NAME if name in known)


def exact(names: Iterable[str]) -> bool:
    """Return whether all of these parts are exact."""
    return all(BY_NAME[name].kind == "exact" for name in names)
