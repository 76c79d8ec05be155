"""The options of `repro compare --against`, apart from what measures: two kept runs are compared without that."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import get_args

from ..compare.decision import FEWEST
from ..formats import count, path, seconds
from ..models.recipe import Scale
from ..options import Output, flag, option
from ..run.plan import Planned
from .custom_models import models_option

BUDGET, _OUT = 15 * 60.0, Path("results/upgrade")


@dataclass(frozen=True, kw_only=True)
class Against(Output):
    """The options of a check on this machine."""

    title = "another stack"
    about = "in place of BEFORE and AFTER, both interleaved on this machine"
    against: str | None = option(
        'a lock, or "torch==2.12.0 transformers==5.24.0"; against a baseline of --accept this stack is judged',
        "LOCK|REQUIREMENTS",
    )
    models: str | None = models_option("with --against: recipes, by id (default: those that show most in the budget)")
    methods: Planned | None = option("default naive and free lunch", choices=get_args(Planned))
    scale: Scale | None = option("size of the recipes (default: paper on GPUs, tiny on a CPU)", choices=get_args(Scale))
    gpus: str | None = option("GPUs to use, all of them for each trial", "all|N|0,1")
    budget: float = option(
        f"choose the trials that show most in this time (default {BUDGET / 60:g}m)", "20m", seconds, default=BUDGET
    )
    pairs: int | None = option(
        "starts of each stack, at most (default: as the budget allows)",
        "N",
        partial(count, least=FEWEST, why="fewer can call no change"),
    )
    out: Path = option(f"results folder (default {_OUT})", "DIR", path, default=_OUT)
    bisect: bool = flag(
        "where something regressed, find the package by swapping packages; each swap gets the budget again"
    )
    accept: bool = flag("keep the other stack's lock as this machine's baseline")
