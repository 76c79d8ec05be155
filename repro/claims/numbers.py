"""Numbers with their sources: rows of expected/ and of recipes, by names that formulas of claims.csv use.

Functions raise UserError where a file of expected/ is broken, or lacks the number.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from functools import partial
from typing import TypeVar

from .. import models
from ..datafile import absent
from ..formats import counted
from ..lab.specification import LabRun, lab_runs
from ..models.recipe import Images, Text
from ..models.vit import PATCH
from ..money import prices
from ..paper.arithmetic import by_place, recipe_of, training_flops
from ..paper.gpus import by_name, paper_gpus
from ..paper.settings import search_space
from ..paper.tables import COUNTS, Cell, Table, original_trainings, printed_recipes, quantities
from .working import SourceRow, Working, shown

Number = TypeVar("Number", bound=Callable[..., Working])

NAMES: dict[str, Callable[..., Working]] = {}  # by the name of a number, with its variable words in braces
_WORDS = {"model": "|".join(map(re.escape, models.NAMES)), "table": "[14]", "gpus": "[1-9]"}
_WORDS |= {"epochs": "[0-9]{1,3}", "several": "1|several"}
_COUNTS = ("gpus", "epochs")


def named(*names: str) -> Callable[[Number], Number]:
    """Return a decorator that gives a function's number these names; their words in braces are its arguments."""

    def register(function: Number) -> Number:
        NAMES.update(dict.fromkeys(names, function))
        return function

    return register


def find(name: str) -> Callable[[], Working] | None:
    """Return the number of that name, to be read when it is called; None for a name of none. A name with a slash is the
    id of a row of quantities.csv."""
    if "/" in name:
        return partial(quantity, name)
    for pattern, function in NAMES.items():
        words = re.sub(r"\{(\w+)\}", lambda word: f"(?P<{word[1]}>{_WORDS.get(word[1], '.+')})", pattern)
        if found := re.fullmatch(words, name):
            return partial(
                function, **{word: int(text) if word in _COUNTS else text for word, text in found.groupdict().items()}
            )
    return None


_READER: ContextVar[Callable[[Cell], Working] | None] = ContextVar("days", default=None)


@contextmanager
def days_read_by(reader: Callable[[Cell], Working]) -> Iterator[None]:
    """Take a cell's days from a reader in place of the printed ones, in what is computed meanwhile."""
    token = _READER.set(reader)
    try:
        yield
    finally:
        _READER.reset(token)


@named("days of {model} on {gpus} {gpu}, Table {table}")
def printed_days(table: Table, model: str, gpu: str, gpus: int) -> Working:
    """Return the days that Table 1 or 4 prints for a cell, or those of `days_read_by`."""
    cell = by_place(table)[model, gpu, gpus]
    if (reader := _READER.get()) is not None:
        return reader(cell)
    if cell.days is None:
        absent(f"table{table}.csv", "days", (model, gpu, gpus))
    return Working.read(cell.days, cell_row(cell), rounded_to=1)


def cell_row(cell: Cell) -> SourceRow:
    """Return the row of a cell of Table 1 or 4."""
    value = counted(cell.days, "day") if cell.days is not None else cell.state
    return SourceRow(f"table{cell.table}.csv", f"{cell.model} on {cell.machine}", value, cell.source)


@named("GPU-days of the original {model}")
def original(model: str) -> Working:
    """Return the GPU-days of a model's original training."""
    found = original_trainings()[model]
    if found.gpus is None or found.days is None:
        absent("figure6.csv", "GPUs and days", model)
    value = f"{found.gpus} {found.gpu} for {counted(found.days, 'day')}"
    days = Working.read(found.days, SourceRow("figure6.csv", model, value, found.source))
    return (days * found.gpus).called(f"GPU-days of the original {model}")


@named("GPUs of the original {model}")
def original_gpus(model: str) -> Working:
    """Return the number of GPUs of a model's original training."""
    found = original_trainings()[model]
    if found.gpus is None:
        absent("figure6.csv", "GPUs", model)
    return Working.read(found.gpus, SourceRow("figure6.csv", model, f"{found.gpus} {found.gpu}", found.source))


def quantity(id: str) -> Working:
    """Return a number of quantities.csv."""
    found = quantities()[id]
    row = SourceRow("quantities.csv", f"{id}: {found.what}", f"{shown(found.value)} {found.unit}", found.source)
    return Working.read(found.value, row, found.rounded_to or 0)


@named("price of {gpu}")
def price(gpu: str) -> Working:
    """Return the price of one GPU in US dollars."""
    found = prices.gpu_prices()[gpu]
    row = SourceRow("table5.csv", gpu, f"{shown(found.cost_usd)} USD", found.source)
    return Working.read(found.cost_usd, row, quantities()[f"rounding/{gpu}"].value)


@named("machine with {gpus} {gpu}")
def machine(gpu: str, gpus: int) -> Working:
    """Return the price in US dollars of a machine with its GPUs, around which section 4.1 puts a system."""
    found = prices.known_systems()[gpus]
    row = SourceRow("systems.csv", f"{found.system}, GPUs: {gpus}", f"{shown(found.cost_usd)} USD", found.source)
    system = Working.read(found.cost_usd, row, quantities()["rounding/system"].value)
    return (price(gpu) * gpus + system).called(f"USD of a machine with {gpus} {gpu}")


def machines() -> dict[tuple[str, int], tuple[Working, Working]]:
    """Return price and days of Pythia-1B for every machine of the paper, cheapest first: Figure 7."""
    found = {
        (gpu, gpus): (machine(gpu, gpus), printed_days("1", "Pythia-1B", gpu, gpus))
        for gpu in paper_gpus()
        for gpus in COUNTS
    }
    return dict(sorted(found.items(), key=lambda item: item[1][0].value.value))


@named("{part} of a desktop for {gpus} GPUs?")
def part(part: str, gpus: int) -> Working:
    """Return the price in US dollars of a desktop's part: Table 6."""
    found = prices.parts()[gpus, part]
    return Working.read(found.cost_usd, SourceRow("table6.csv", part, f"{found.cost_usd:.2f} USD", found.source))


@named("server for {gpus} GPUs")
def server(gpus: int) -> Working:
    """Return the price in US dollars of a server without its GPUs: Table 7."""
    found = prices.servers()[gpus]
    row = SourceRow("table7.csv", f"server, GPUs: {gpus}", f"{shown(found.cost_usd)} USD", found.source)
    return Working.read(found.cost_usd, row)


@named("rent of {gpus} {gpu} at {provider}, {terms}")
def rental(gpu: str, gpus: int, provider: str, terms: str) -> Working:
    """Return the price of renting an instance: of one hour, or of a whole reservation."""
    found = prices.known_rentals()[gpu, gpus, provider, terms]
    what = f"{gpus} {gpu} at {provider}, {terms}, {found.hours:g} h"
    row = SourceRow("rental.csv", what, f"{shown(found.price)} {found.currency}", found.source)
    return Working.read(found.price, row)


_TENTH = 0.1  # the lab report prints seconds to a tenth


def lab(resources: str, epochs: int) -> tuple[LabRun, SourceRow]:
    """Return a training run of the lab report, and its row."""
    run = lab_runs()[resources, epochs]
    return run, SourceRow("lab.csv", f"{resources}, {counted(epochs, 'epoch')}", f"{run.seconds} s", run.source)


@named("seconds of {resources}, {epochs} epochs?")
def seconds(resources: str, epochs: int) -> Working:
    """Return the seconds of a training run of the lab report."""
    run, row = lab(resources, epochs)
    return Working.read(run.seconds, row, _TENTH)


@named("last epoch of {resources}, {epochs} epochs?")
def last_epoch(resources: str, epochs: int) -> Working:
    """Return the seconds of the last epoch of a training run of the lab report."""
    run, row = lab(resources, epochs)
    row = replace(row, row=f"{row.row}, the last", value=f"{run.last_epoch_seconds} s")
    return Working.read(run.last_epoch_seconds, row, _TENTH)


@named("time stamps of {resources}, {epochs} epochs?")
def stamps(resources: str, epochs: int) -> Working:
    """Return the seconds between the local time stamps of a training run, each in whole seconds."""
    run, row = lab(resources, epochs)
    between = (run.ended - run.started).total_seconds()
    begun, ended = (
        Working.read(seconds, replace(row, value=f"{stamp}, local"), rounded_to=1)
        for seconds, stamp in ((0.0, run.started), (between, run.ended))
    )
    step = f"from {run.started} to {run.ended} the clock went on by {shown(between)} s"
    return replace(ended - begun, steps=(step,))


@named("clock change of {resources}, {epochs} epochs?")
def clock_change(resources: str, epochs: int) -> Working:
    """Return the seconds by which the clocks went forward during a training run."""
    run, row = lab(resources, epochs)
    change = run.clock_change_seconds
    return Working.read(change, replace(row, value=f"{shown(change)} s that the clocks went forward"))


def datasheet(gpu: str, field: str, unit: str) -> Working:
    """Return a number of a GPU's data sheet."""
    found = by_name()[gpu]
    value = getattr(found, field)
    if value is None:
        absent("gpus.csv", field, gpu)
    return Working.read(value, SourceRow("gpus.csv", f"{gpu}, {field}", f"{value:g} {unit}", found.source))


for _name, _field, _unit in (
    ("memory of {gpu}", "memory_gb", "GB"),
    ("bandwidth of {gpu}", "bandwidth_gb_s", "GB/s"),
    ("16-bit peak of {gpu}", "fp16_tflops", "TFLOP/s"),
    ("32-bit peak of {gpu}", "fp32_tflops", "TFLOP/s"),
    ("power of {gpu}", "board_power_w", "W"),
):
    NAMES[_name] = partial(datasheet, field=_field, unit=_unit)


def _closed_form(model: str, number: float, value: str) -> Working:
    return Working.read(number, SourceRow("models/", recipe_of(model).id, value, "closed form of the recipe's shape"))


@named("parameters of {model}")
def parameters(model: str) -> Working:
    """Return the model's number of weights."""
    number = recipe_of(model).parameters
    return _closed_form(model, number, f"{number:,} parameters")


@named("parameters of {model} with 1,000 classes")
def original_parameters(model: str) -> Working:
    """Return the number of weights that a vision model has with the classes of the usual ImageNet."""
    recipe = recipe_of(model)
    if not isinstance(recipe.inputs, Images):
        absent("models/", "classes", model)
    number = recipe.parameters - (recipe.inputs.classes - 1000) * (recipe.width + 1)
    return _closed_form(model, number, f"{number:,} parameters with 1,000 classes")


@named("FLOPs of {model}")
def flops(model: str) -> Working:
    """Return the FLOPs of a whole training."""
    recipe = recipe_of(model)
    value = f"{shown(recipe.flops_per_example)} FLOPs an example x {recipe.batch_size} x {recipe.training_steps} steps"
    return _closed_form(model, training_flops(recipe), value)


@named("tokens of {model}")
def tokens(model: str) -> Working:
    """Return the tokens that a language model sees in its training."""
    recipe = recipe_of(model)
    if not isinstance(recipe.inputs, Text):
        absent("models/", "tokens", model)
    value = f"{recipe.training_steps} steps of {recipe.batch_size} x {recipe.inputs.sequence} tokens"
    steps = Working.read(recipe.training_steps, SourceRow("models/", recipe.id, value, "the authors' release"))
    return (steps * (recipe.batch_size * recipe.inputs.sequence)).called(f"tokens of {model}")


@named("image side of {model}, Table 3")
def image_side(model: str) -> Working:
    """Return the pixels of a side of a vision model's images, as Table 3 prints them."""
    found = printed_recipes()[model]
    if found.image_size is None:
        absent("table3.csv", "image size", model)
    row = SourceRow("table3.csv", model, f"{found.image_size} pixels a side", found.source)
    return Working.read(found.image_size, row)


@named("patch side of ViT")
def patch_side() -> Working:
    return Working.read(PATCH, SourceRow("models/", "vit", f"patches of {PATCH} pixels a side", "ViT-L/16"))


@named("settings on {several} GPUs?")
def settings(several: str) -> Working:
    """Return the number of settings that Appendix F's rules leave on 1 GPU, or on several."""
    found = search_space(gpus := 1 if several == "1" else 2)
    row = SourceRow(
        "repro/paper/settings.py",
        f"search space on {counted(gpus, 'GPU')}",
        ", ".join(s.id for s in found),
        "paper, Appendix F",
    )
    return Working.read(len(found), row)
