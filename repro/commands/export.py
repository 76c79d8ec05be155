"""`repro export`: write a script and configurations that train a model with the best settings for a machine."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import get_args

from .. import command, files, models
from ..console import UserError
from ..datafile import NotAsDeclaredError
from ..export.configurations import configurations
from ..export.script import script
from ..export.training import SCRIPT, Training, fastest, measured
from ..formats import count, listing, path, shell_words, significant
from ..installation import installed
from ..models import custom
from ..models.recipe import Recipe
from ..money.days import DaysAsked
from ..options import Options, argument, flag, option
from ..paper.custom_gpu import custom_gpu
from ..predict.descriptions import describe
from ..predict.hardware import Machine, gpu_named
from ..predict.traces import Stack
from ..record import Clock
from ..run.plan import ModernMethods
from ..run.reading import measured as read_measured
from ..run.results import RECIPES
from .custom_models import models_option
from .day_options import by_option, measured_days, more_days, stack_option


@dataclass(frozen=True, kw_only=True)
class Asked(Options):
    folder: Path | None = argument("results folder of a run: its fastest settings are exported", "DIR", path, nargs="?")
    predicted: bool = flag(
        "in place of DIR: the settings that are the fastest by days that are known: measured, else projected, else "
        "predicted"
    )
    models: str | None = models_option("the recipe to train (default: the one of DIR)")
    methods: ModernMethods | None = option(
        "also settings with parts of today's training software, measured or predicted: see docs/own-model.md "
        "(default: without)",
        choices=get_args(ModernMethods),
    )
    gpu: str | None = option("the GPU to train on (default: the one of DIR that is the fastest)", "NAME")
    gpus: int | None = option(
        "GPUs to train on, of each node (default: as many as are the fastest; predicted: 1)", "N", count
    )
    by: Clock = by_option(printed=False)
    stack: Stack = stack_option("today")
    measured: tuple[Path | None, ...] = more_days()
    nodes: int | None = option("nodes to train on (default: 1); only for --predicted", "N", count)
    out: Path = option("folder for the files, none of which may be there yet", "FOLDER", path, required=True)


def main(asked: Asked) -> str:
    training = _training(asked)
    written = {**custom.exported(training.recipe.id), **configurations(training), SCRIPT: script(training)}
    files.refuse_to_replace(asked.out, written)  # a train.py may hold the user's data set
    for name, text in written.items():
        files.replace(asked.out / name, text)
    return _printed(training, asked.out, list(written))


def _training(asked: Asked) -> Training:
    """Return the training that the options ask for."""
    gpus, nodes = asked.gpus, asked.nodes
    if asked.predicted == (asked.folder is not None):
        example = f"{command()} export --predicted --models pythia-1b --gpu H100 --out FOLDER"
        raise UserError(f"expected a results folder or --predicted, one of them, as in: {example}")
    if asked.folder is not None:
        if nodes is not None:
            raise UserError("--nodes: a measured run says how many it had; leave it out")
        if asked.measured:
            raise UserError(f"--measured adds days to --predicted: the settings of {asked.folder} are its own")
        model = _in_folder(_model(asked, models.find), asked.folder / RECIPES)
        return measured(read_measured([asked.folder]), model, asked.gpu, gpus, asked.methods)
    model = _model(asked, models.find_traced)
    if model is None or asked.gpu is None:
        raise UserError(f"--predicted needs {'--models: which model?' if model is None else '--gpu: which GPU?'}")
    gpu = custom_gpu(asked.gpu) or gpu_named(asked.gpu)
    days = DaysAsked(asked.by, asked.stack, *measured_days(asked.measured), asked.methods)
    return fastest(models.find(model), Machine(gpu, gpus or 1, nodes or 1), days)


def _model(asked: Asked, check: Callable[[str], Recipe]) -> str | None:
    """Return the id of the model; None without --models. Raise UserError for several."""
    ids = models.listed(asked.models, check) if asked.models is not None else (None,)
    if len(ids) > 1:
        raise UserError(f"--models {asked.models}: expected one, as a script trains one model")
    return ids[0]


def _in_folder(model: str | None, recipes: Path) -> str | None:
    """Return the id that a results folder has for a model, and make its models known that can be built from it. A
    model of a FILE.py may have had numbers behind an @ there, which the folder has."""
    if not recipes.is_file():
        return model
    try:
        custom.register_buildable(recipes)
        there = custom.specifications(recipes)
    except NotAsDeclaredError as error:
        raise UserError(f"{recipes} describes no models ({error})") from None
    named = None if model is None else custom.specification_of(model)
    if named is None or named.source != "python":
        return model
    for each in there:
        as_there = replace(named, fields=each.fields)
        if as_there.id == each.id != model:
            custom.register(describe(as_there), partial(describe, as_there, tiny=True))
            return each.id
    return model


def _printed(training: Training, folder: Path, names: list[str]) -> str:
    """Return what was exported, the files, and the command that trains."""
    what = f"{training.recipe.name}{' (tiny)' if training.recipe.scale == 'tiny' else ''} with {training.settings.id}"
    batch = f"MBS {training.micro_batch}, GAS {training.accumulation}"
    step = f"{significant(training.step_seconds)} s a step"
    days = "" if training.recipe.scale == "tiny" else f", {significant(training.true_days)} days"
    start = shell_words(_start(training, folder))
    return (
        f"{what} on {training.machine}, {batch}: {step}{days} ({training.origin}: {training.source}).\n"
        f"Written to {folder}: {listing(names)}.\n\n"
        f"Train with random data, and then with your own in place of the class Examples of {SCRIPT}:\n\n"
        f"  {start} --max-steps 20"
    )


def _start(training: Training, folder: Path) -> list[object]:
    """Return the words of the command that trains. On several nodes, each node needs it."""
    python = Path(sys.executable) if installed("torch") else Path("python")
    if python.is_relative_to(Path.cwd()):
        python = python.relative_to(Path.cwd())
    if training.world == 1:
        return [python, folder / SCRIPT]
    nodes = ["--nnodes", training.nodes, "--rdzv-backend", "c10d", "--rdzv-endpoint", "FIRST_NODE:29500"]
    many = nodes if training.nodes > 1 else ["--standalone"]
    return [python, "-m", "torch.distributed.run", *many, "--nproc-per-node", training.count, folder / SCRIPT]
