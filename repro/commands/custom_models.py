"""Options that describe a model of one's own, and the registration of such models at a command's start."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from typing import Any, get_args

from .. import formats, models
from ..console import UserError, say
from ..models import custom
from ..models import specification as specifications
from ..models.custom import Described
from ..models.recipe import Precision, Recipe, Text
from ..models.specification import SPELLINGS, Fields, Specification, left_out

_COUNTS = ("batch_size", "training_steps", "sequence", "image_size")
_QUANTITIES = ("tokens", "images", "dataset_size")
_NAMES = (*_COUNTS, *_QUANTITIES, "epochs", "precision", "optimizer")


def add_models(parser: argparse.ArgumentParser, help: str, type: Callable[[str], str] = str) -> None:
    """Add --models, and the options of models of one's own."""
    parser.add_argument("--models", type=type, metavar="ID,...", help=f"{help}; or your own: {SPELLINGS}")
    _add_fields(parser)


def add_model(parser: argparse.ArgumentParser, help: str, required: bool = False, epochs: bool = True) -> None:
    """Add --model, and the options of a model of one's own; without --epochs where the command has that itself."""
    what = f"{help}; or your own: {SPELLINGS}"
    parser.add_argument("--model", type=models.typed, required=required, metavar="ID", help=what)
    _add_fields(parser, epochs)


def _add_fields(parser: argparse.ArgumentParser, epochs: bool = True) -> None:
    group = parser.add_argument_group("your own model", "see docs/own-model.md; they are of no other model")
    add = group.add_argument
    add("--batch-size", metavar="N", help="examples of a training step, on all GPUs together")
    add("--training-steps", metavar="N", help="length of the training; or one of the next three")
    add("--tokens", metavar="20B", help="its length in tokens, of text")
    add("--images", metavar="100M", help="its length in images")
    if epochs:
        add("--epochs", metavar="N", help="its length in epochs, of --dataset-size")
    add("--dataset-size", metavar="N", help="images of an epoch, or tokens of text")
    add("--sequence", metavar="N", help="tokens of an example (default: the model's positions)")
    add("--image-size", metavar="N", help="pixels of a side (default: the model's)")
    add("--precision", choices=get_args(Precision), help="default: bf16 for text, fp32 for images")
    add("--optimizer", choices=("Adam", "AdamW"), help="default: AdamW")


def register(given: argparse.Namespace) -> None:
    """Register the models of one's own that --models or --model names, and put their ids in place of their texts. Print
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
        custom.register(found)
        ids[text] = found.paper.id
        say(_summary(found.recipe("paper"), specification, found.paper))
    setattr(given, option, ",".join(ids.get(text, text) for text in texts))


def _refuse_fields(given: argparse.Namespace, option: str | None) -> None:
    """Raise UserError for an option of models of one's own, in a command that names none."""
    asked = [name for name in _NAMES if option is not None and getattr(given, name, None) is not None]
    if hasattr(given, "checkpoint_every"):  # rent has a use of its own for --epochs
        asked = [name for name in asked if name != "epochs"]
    if asked:
        raise UserError(f"{_option(asked[0])} describes a model of your own: name it with --{option}, as {SPELLINGS}")


def _texts(value: str) -> Iterator[str]:
    """Yield the models of a list: a comma in brackets, and one before key=value of timm, splits nothing."""
    text, depth = "", 0
    for part in value.split(","):
        opened = depth > 0
        depth += sum(map(part.count, "([{")) - sum(map(part.count, ")]}"))
        name, equals, _ = part.partition("=")
        if text and (opened or (equals and name.isidentifier() and text.startswith("timm:"))):
            text += f",{part}"
            continue
        if text:
            yield text
        text = part
    yield text


def _fields(given: argparse.Namespace) -> Fields:
    """Return the fields that options give."""
    found: dict[str, Any] = {name: getattr(given, name, None) for name in _NAMES}
    for name in _COUNTS:
        found[name] = formats.count_if_given(found[name], _option(name))
    for name in _QUANTITIES:
        if found[name] is not None:
            found[name] = formats.amount(found[name], _option(name))
    if hasattr(given, "checkpoint_every") and any(found[name] for name in ("training_steps", "tokens", "images")):
        found["epochs"] = None  # rent has a use of its own for it, with --checkpoint-every
    if found["epochs"] is not None:
        found["epochs"] = formats.positive(found["epochs"], _option("epochs"), "90")
    return Fields(**found)


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _summary(recipe: Recipe, specification: Specification, described: Described) -> str:
    """Return a line on a model, with the defaults that were taken and with what of it was left out."""
    inputs, given, frozen = recipe.inputs, specification.fields, described.frozen.weights
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
        + (f"; left out of its configuration, as no part of the model: {', '.join(ignored)}" if ignored else "")
    )


def _millions(weights: int) -> str:
    return f"{weights / 1e6:.2g} M" if weights >= 5e4 else f"{weights:,}"


def _default(given: object, otherwise: str = "default") -> str:
    return "" if given else f" ({otherwise})"
