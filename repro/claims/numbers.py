"""Numbers with their sources: rows of expected/ and of recipes, by names that formulas of claims.csv use.

Functions raise UserError where a file of expected/ is broken, or lacks the number.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, partial
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
_WORDS = {"model": "|".join(map(re.escape, models.names())), "table": "[14]", "gpus": "[1-9]"}
_WORDS |= {"epochs": "[0-9]{1,3}", "several": "1|several", "usd": "[0-9]{1,9}", "board": "PCIe|SXM"}
_COUNTS = ("gpus", "epochs", "usd")


def named(name: str) -> Callable[[Number], Number]:
    """Return a decorator that gives a function's number this name; its words in braces are the arguments."""

    def register(function: Number) -> Number:
        NAMES[name] = function
        return function

    return register


def find(name: str) -> Callable[[], Working] | None:
    """Return the number of that name, to be read when it is called; None for a name of none. A name with a slash is the
    id of a row of quantities.csv."""
    if "/" in name:
        return partial(quantity, name)
    for pattern, function in _patterns():
        if found := pattern.fullmatch(name):
            words = {word: int(text) if word in _COUNTS else text for word, text in found.groupdict().items()}
            return partial(function, **words)
    return None


@cache
def _patterns() -> list[tuple[re.Pattern[str], Callable[..., Working]]]:
    """Return each name as a pattern, with a group for each of its words, and the function of its number."""
    return [
        (
            re.compile(re.sub(r"\{(\w+)\}", lambda word: f"(?P<{word[1]}>{_WORDS.get(word[1], '.+')})", name)),
            function,
        )
        for name, function in NAMES.items()
    ]


def _read(value: float, text: str, source: str, file: str, row: str, rounded_to: float = 0.0) -> Working:
    """Return a number that a row of a file states as this text."""
    return Working.read(value, SourceRow(file, row, text, source), rounded_to)


# --- The paper's days, models and settings ---

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
    found = original_trainings()[model]
    if found.gpus is None or found.days is None:
        absent("figure6.csv", "GPUs and days", model)
    text = f"{found.gpus} {found.gpu} for {counted(found.days, 'day')}"
    days = _read(found.days, text, found.source, "figure6.csv", model)
    return (days * found.gpus).called(f"GPU-days of the original {model}")


@named("GPUs of the original {model}")
def original_gpus(model: str) -> Working:
    found = original_trainings()[model]
    if found.gpus is None:
        absent("figure6.csv", "GPUs", model)
    return _read(found.gpus, f"{found.gpus} {found.gpu}", found.source, "figure6.csv", model)


@named("parameters of {model}")
def parameters(model: str) -> Working:
    number = recipe_of(model).parameters
    return _of_recipe(model, number, f"{number:,} parameters")


@named("parameters of {model} with 1,000 classes")
def original_parameters(model: str) -> Working:
    """Return the number of weights that a vision model has with the classes of the usual ImageNet."""
    recipe = recipe_of(model)
    if not isinstance(recipe.inputs, Images):
        absent("models/", "classes", model)
    number = recipe.parameters - (recipe.inputs.classes - 1000) * (recipe.width + 1)
    return _of_recipe(model, number, f"{number:,} parameters with 1,000 classes")


@named("FLOPs of {model}")
def flops(model: str) -> Working:
    recipe = recipe_of(model)
    text = f"{shown(recipe.flops_per_example)} FLOPs an example x {recipe.batch_size} x {recipe.training_steps} steps"
    return _of_recipe(model, training_flops(recipe), text)


@named("tokens of {model}")
def tokens(model: str) -> Working:
    """Return the tokens that a language model sees in its training."""
    recipe = recipe_of(model)
    if not isinstance(recipe.inputs, Text):
        absent("models/", "tokens", model)
    text = f"{recipe.training_steps} steps of {recipe.batch_size} x {recipe.inputs.sequence} tokens"
    steps = _of_recipe(model, recipe.training_steps, text, "the authors' release")
    return (steps * (recipe.batch_size * recipe.inputs.sequence)).called(f"tokens of {model}")


@named("image side of {model}, Table 3")
def image_side(model: str) -> Working:
    found = printed_recipes()[model]
    if found.image_size is None:
        absent("table3.csv", "image size", model)
    return _read(found.image_size, f"{found.image_size} pixels a side", found.source, "table3.csv", model)


@named("patch side of ViT")
def patch_side() -> Working:
    return _of_recipe("ViT", PATCH, f"patches of {PATCH} pixels a side", "ViT-L/16")


def _of_recipe(model: str, number: float, text: str, source: str = "closed form of the recipe's shape") -> Working:
    return _read(number, text, source, "models/", recipe_of(model).id)


@named("settings on {several} GPUs?")
def settings(several: str) -> Working:
    """Return the number of settings that Appendix F's rules leave on 1 GPU, or on several."""
    found = search_space(gpus := 1 if several == "1" else 2)
    row, text = f"search space on {counted(gpus, 'GPU')}", ", ".join(each.id for each in found)
    return _read(len(found), text, "paper, Appendix F", "repro/paper/settings.py", row)


# --- Money ---


@named("price of {gpu}")
def price(gpu: str) -> Working:
    found, unit = prices.gpu_prices()[gpu], quantities()[f"rounding/{gpu}"].value
    return _read(found.cost_usd, f"{shown(found.cost_usd)} USD", found.source, "table5.csv", gpu, unit)


@named("machine with {gpus} {gpu}")
def machine(gpu: str, gpus: int) -> Working:
    """Return the price in US dollars of a machine with its GPUs, around which section 4.1 puts a system."""
    found, unit = prices.known_systems()[gpus], quantities()["rounding/system"].value
    row = f"{found.system}, GPUs: {gpus}"
    system = _read(found.cost_usd, f"{shown(found.cost_usd)} USD", found.source, "systems.csv", row, unit)
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
    found = prices.parts()[gpus, part]
    return _read(found.cost_usd, f"{found.cost_usd:.2f} USD", found.source, "table6.csv", part)


@named("server for {gpus} GPUs")
def server(gpus: int) -> Working:
    found = prices.servers()[gpus]
    return _read(found.cost_usd, f"{shown(found.cost_usd)} USD", found.source, "table7.csv", f"server, GPUs: {gpus}")


@named("rent of {gpus} {gpu} at {provider}, {terms}")
def rental(gpu: str, gpus: int, provider: str, terms: str) -> Working:
    """Return the price of renting an instance: of one hour, or of a whole reservation."""
    found = prices.known_rentals()[gpu, gpus, provider, terms]
    row = f"{gpus} {gpu} at {provider}, {terms}, {found.hours:g} h"
    return _read(found.price, f"{shown(found.price)} {found.currency}", found.source, "rental.csv", row)


# --- The lab report ---

_TENTH = 0.1  # it prints seconds to a tenth


def _lab(run: LabRun, value: float, text: str, of: str = "", rounded_to: float = 0.0) -> Working:
    return _read(value, text, run.source, "lab.csv", f"{run.resources}, {counted(run.epochs, 'epoch')}{of}", rounded_to)


@named("seconds of {resources}, {epochs} epochs?")
def seconds(resources: str, epochs: int) -> Working:
    run = lab_runs()[resources, epochs]
    return _lab(run, run.seconds, f"{run.seconds} s", rounded_to=_TENTH)


@named("last epoch of {resources}, {epochs} epochs?")
def last_epoch(resources: str, epochs: int) -> Working:
    run = lab_runs()[resources, epochs]
    return _lab(run, run.last_epoch_seconds, f"{run.last_epoch_seconds} s", ", the last", _TENTH)


@named("time stamps of {resources}, {epochs} epochs?")
def stamps(resources: str, epochs: int) -> Working:
    """Return the seconds between the local time stamps of a training run, each in whole seconds."""
    run = lab_runs()[resources, epochs]
    between = (run.ended - run.started).total_seconds()
    begun, ended = (
        _lab(run, value, f"{stamp}, local", rounded_to=1) for value, stamp in ((0.0, run.started), (between, run.ended))
    )
    return (ended - begun).with_steps(f"from {run.started} to {run.ended} the clock went on by {shown(between)} s")


@named("clock change of {resources}, {epochs} epochs?")
def clock_change(resources: str, epochs: int) -> Working:
    run = lab_runs()[resources, epochs]
    change = run.clock_change_seconds
    return _lab(run, change, f"{shown(change)} s that the clocks went forward")


# --- GPUs, and the other quantities ---


def datasheet(gpu: str, field: str, unit: str) -> Working:
    """Return a number of a GPU's data sheet."""
    found = by_name()[gpu]
    value = getattr(found, field)
    if value is None:
        absent("gpus.csv", field, gpu)
    return _read(value, f"{value:g} {unit}", found.source, "gpus.csv", f"{gpu}, {field}")


for _name, _field, _unit in (
    ("memory of {gpu}", "memory_gb", "GB"),
    ("bandwidth of {gpu}", "bandwidth_gb_s", "GB/s"),
    ("16-bit peak of {gpu}", "fp16_tflops", "TFLOP/s"),
    ("32-bit peak of {gpu}", "fp32_tflops", "TFLOP/s"),
    ("power of {gpu}", "board_power_w", "W"),
):
    NAMES[_name] = partial(datasheet, field=_field, unit=_unit)


def quantity(id: str) -> Working:
    """Return a number of quantities.csv."""
    found = quantities()[id]
    text, row = f"{shown(found.value)} {found.unit}", f"{id}: {found.what}"
    return _read(found.value, text, found.source, "quantities.csv", row, found.rounded_to or 0)
