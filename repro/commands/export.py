"""`repro export`: write a script and configurations that train a model with the best settings for a machine."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import get_args

from .. import command, files, models
from ..console import UserError
from ..datafile import NotAsDeclaredError
from ..export.configurations import configurations
from ..export.script import script
from ..export.training import SCRIPT, Training, fastest, measured
from ..formats import count_if_given, listing, path, shell_words, significant
from ..installation import installed
from ..models import custom
from ..models.recipe import Recipe
from ..money.days import DaysAsked
from ..paper.custom_gpu import custom_gpu
from ..predict.descriptions import describe
from ..predict.hardware import Machine, gpu_named
from ..run.plan import ModernMethods
from ..run.reading import measured as read_measured
from ..run.results import RECIPES
from .custom_models import add_models
from .day_options import add_by, add_measured_days, add_stack, measured_days


def options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "folder", nargs="?", type=path, metavar="DIR", help="results folder of a run: its fastest settings are exported"
    )
    add(
        "--predicted",
        action="store_true",
        help="in place of DIR: the settings that are the fastest by days that are known: measured, else projected, "
        "else predicted",
    )
    add_models(parser, "the recipe to train (default: the one of DIR)")
    add(
        "--methods",
        choices=get_args(ModernMethods),
        help="also settings with parts of today's training software, measured or predicted: see docs/own-model.md "
        "(default: without)",
    )
    add("--gpu", metavar="NAME", help="the GPU to train on (default: the one of DIR that is the fastest)")
    add(
        "--gpus", metavar="N", help="GPUs to train on, of each node (default: as many as are the fastest; predicted: 1)"
    )
    add_by(parser, printed=False)
    add_stack(parser, "today")
    add_measured_days(parser)
    add("--nodes", metavar="N", help="nodes to train on (default: 1); only for --predicted")
    add(
        "--out", required=True, type=path, metavar="FOLDER", help="folder for the files, none of which may be there yet"
    )


def main(given: argparse.Namespace) -> int:
    training = _training(given)
    written = {**custom.exported(training.recipe.id), **configurations(training), SCRIPT: script(training)}
    files.refuse_to_replace(given.out, written)  # a train.py may hold the user's data set
    for name, text in written.items():
        files.replace(given.out / name, text)
    print(_printed(training, given.out, list(written)))
    return 0


def _training(given: argparse.Namespace) -> Training:
    """Return the training that the options ask for."""
    gpus, nodes = (count_if_given(getattr(given, name), f"--{name}") for name in ("gpus", "nodes"))
    if given.predicted == (given.folder is not None):
        example = f"{command()} export --predicted --models pythia-1b --gpu H100 --out FOLDER"
        raise UserError(f"expected a results folder or --predicted, one of them, as in: {example}")
    if given.folder is not None:
        if nodes is not None:
            raise UserError("--nodes: a measured run says how many it had; leave it out")
        if given.measured is not None:
            raise UserError(f"--measured adds days to --predicted: the settings of {given.folder} are its own")
        model = _in_folder(_model(given, models.find), given.folder / RECIPES)
        return measured(read_measured([given.folder]), model, given.gpu, gpus, given.methods)
    model = _model(given, models.find_traced)
    if model is None or given.gpu is None:
        raise UserError(f"--predicted needs {'--models: which model?' if model is None else '--gpu: which GPU?'}")
    gpu = custom_gpu(given.gpu) or gpu_named(given.gpu)
    asked = DaysAsked(given.by, given.stack, *measured_days(given), given.methods)
    return fastest(models.find(model), Machine(gpu, gpus or 1, nodes or 1), asked)


def _model(given: argparse.Namespace, check: Callable[[str], Recipe]) -> str | None:
    """Return the id of the model; None without --models. Raise UserError for several."""
    ids = models.listed(given.models, check) if given.models is not None else (None,)
    if len(ids) > 1:
        raise UserError(f"--models {given.models}: expected one, as a script trains one model")
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
    asked = None if model is None else custom.specification_of(model)
    if asked is None or asked.source != "python":
        return model
    for each in there:
        as_there = replace(asked, fields=each.fields)
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
