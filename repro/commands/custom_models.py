"""Options that describe a model of one's own, and the registration of such models at a command's start."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, get_args

from .. import formats, models
from ..console import UserError, say
from ..models import custom
from ..models import specification as specifications
from ..models.custom import CustomModel
from ..models.recipe import Precision, Text
from ..models.specification import SPELLINGS, Fields, Specification, left_out

_COUNTS = ("batch_size", "training_steps", "sequence", "image_size")
_QUANTITIES = ("tokens", "images", "dataset_size")
_NAMES = (*_COUNTS, *_QUANTITIES, "epochs", "precision", "optimizer")


def add_models(parser: argparse.ArgumentParser, help: str, type: Callable[[str], str] = str) -> None:
    """Add --models, and the options of models of one's own."""
    parser.add_argument("--models", type=type, metavar="ID,...", help=f"{help}; or your own: {SPELLINGS}")
    _add_fields(parser)


def add_model(parser: argparse.ArgumentParser, help: str) -> None:
    """Add MODEL, which may be left out, and the options of a model of one's own."""
    parser.add_argument(
        "model", nargs="?", type=models.typed, metavar="MODEL", help=f"{help}; or your own: {SPELLINGS}"
    )
    _add_fields(parser)


def _add_fields(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("your own model", "see docs/own-model.md; they are of no other model")
    add = group.add_argument
    add("--batch-size", metavar="N", help="examples of a training step, on all GPUs together")
    add("--training-steps", metavar="N", help="length of the training; or one of the next three")
    add("--tokens", metavar="20B", help="its length in tokens, of text")
    add("--images", metavar="100M", help="its length in images")
    add("--epochs", metavar="N", help="its length in epochs, of --dataset-size")
    add("--dataset-size", metavar="N", help="images of an epoch, or tokens of text")
    add("--sequence", metavar="N", help="tokens of an example (default: the model's positions)")
    add("--image-size", metavar="N", help="pixels of a side (default: the model's)")
    add("--precision", choices=get_args(Precision), help="default: bf16 for text, fp32 for images")
    add("--optimizer", choices=("Adam", "AdamW"), help="default: AdamW")


def register(given: argparse.Namespace) -> None:
    """Register the models of one's own that --models or MODEL names, and put their ids in place of their texts. Print
    a line on each to stderr. Raise UserError for the first thing that is wrong with them."""
    option = next((name for name in ("models", "model") if hasattr(given, name)), None)
    value = None if option is None else getattr(given, option)
    texts = list(_texts(value)) if isinstance(value, str) else []
    asked = [text for text in texts if specifications.is_specification(text.strip())]
    if not asked:
        _refuse_fields(given, option)
        return
    assert option is not None
    from ..predict.descriptions import describe

    fields, ids = _fields(given), dict[str, str]()
    for text in asked:
        specification = specifications.specification(text.strip(), fields)
        if specification.source != "python":
            specifications.missing(text.strip(), specification.fields)
        found = describe(specification)
        custom.register(found, partial(describe, specification, tiny=True))
        ids[text] = found.paper.id
        say(_summary(found, specification))
    setattr(given, option, ",".join(ids.get(text, text) for text in texts))


def _refuse_fields(given: argparse.Namespace, option: str | None) -> None:
    """Raise UserError for an option of models of one's own, in a command that names none."""
    asked = [name for name in _NAMES if option is not None and getattr(given, name, None) is not None]
    if asked:
        place = "MODEL" if option == "model" else f"--{option}"
        raise UserError(f"{_option(asked[0])} describes a model of your own: name it as {place}, {SPELLINGS}")


def _texts(value: str) -> Iterator[str]:
    """Yield the models of a list."""
    parts = value.split(",")
    while parts:
        number = _parts_of_first(parts)
        yield ",".join(parts[:number])
        parts = parts[number:]


def _parts_of_first(parts: Sequence[str]) -> int:
    """Return how many parts between commas name the first model: a comma in the path of a file that exists, in brackets
    of timm's, and before its key=value, splits nothing."""
    for number in range(len(parts), 1, -1):
        if specifications.names_file(",".join(parts[:number]).strip()):
            return number
    number = depth = 0
    for part in parts if parts[0].strip().startswith("timm:") else parts[:1]:
        name, equals, _ = part.partition("=")
        if number and not depth and not (equals and name.isidentifier()):
            break
        depth += sum(map(part.count, "([{")) - sum(map(part.count, ")]}"))
        number += 1
    return number


def _fields(given: argparse.Namespace) -> Fields:
    """Return the fields that options give."""
    found: dict[str, Any] = {name: getattr(given, name, None) for name in _NAMES}
    for name in _COUNTS:
        found[name] = formats.count_if_given(found[name], _option(name))
    for name in _QUANTITIES:
        if found[name] is not None:
            found[name] = formats.amount(found[name], _option(name))
    if found["epochs"] is not None:
        found["epochs"] = formats.positive(found["epochs"], _option("epochs"), "90")
    return Fields(**found)


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _summary(found: CustomModel, specification: Specification) -> str:
    """Return a line on a model, with the defaults that were taken and with what of it was left out."""
    recipe, described, given = found.recipe("paper"), found.paper, specification.fields
    inputs, frozen = recipe.inputs, described.frozen.weights
    ignored = left_out(specification.config) if specification.source == "transformers" else []
    sized = (
        f"sequence {inputs.sequence}{_default(given.sequence, 'its own')}"
        if isinstance(inputs, Text)
        else f"images of {inputs.size} x {inputs.size}{_default(given.image_size, 'its own')}"
    )
    optimizer = f"{recipe.optimizer.name}{_default(given.optimizer)}"
    return (
        f"{recipe.id}: {recipe.name}, {described.built + ', ' if described.built else ''}"
        f"{recipe.parameters / 1e9:.3g} B weights, {recipe.flops_per_example:.4g} FLOPs an "
        f"example; {optimizer}, {recipe.precision}{_default(given.precision)}, {sized}; shards "
        f"and checkpoints {' and '.join(recipe.layers)}; {recipe.training_steps:,} steps of "
        f"{recipe.batch_size:,}"
        + (f"; {_millions(frozen)} weights take no part, and are frozen" if frozen else "")
        + ("; its scan runs without mamba-ssm's kernel" if described.slow_scan else "")
        + (f"; left out of its configuration, as no part of the model: {', '.join(ignored)}" if ignored else "")
    )


def _millions(weights: int) -> str:
    return f"{formats.significant(weights / 1e6, 2)} M" if weights >= 5e4 else f"{weights:,}"


def _default(given: object, otherwise: str = "default") -> str:
    return "" if given else f" ({otherwise})"
