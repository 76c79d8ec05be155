"""Description and tracing of recipes of one's own, in a process of their own: they run the user's code, and need torch.

python -m repro.predict.trace.custom reads a request as JSON on stdin and writes the answer into a file.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import traceback
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from functools import partial
from operator import mul
from pathlib import Path
from typing import Any

import torch
import torch.utils.checkpoint
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from repro.console import UserError
from repro.datafile import from_json
from repro.machine.processes import end_with
from repro.machine.stack import load as load_stack
from repro.predict import traces
from repro.predict.descriptions import ANSWER

from ... import models
from ...models import configured, specification
from ...models.custom import CustomModel, Described, Frozen
from ...models.mamba import scans_slowly
from ...models.recipe import Images, Optimizer, Recipe, Scale, Text
from ...models.specification import Specification
from .operators import classify
from .record import patched
from .trace import TOKENS, batch, data_checks, interpolation, is_sequential, make_real, trace, variants

_CAUSAL_HALVES, _RECOMPUTES = 0.5, 4 / 5  # what `classify` leaves out and adds of fused attention
_SAME_LOSS = 1e-3  # relative
_TORCH = str(Path(torch.__file__).parent)
_PRINTED = {name.lower() for name in models.names()}


def describe(asked: Specification) -> tuple[CustomModel, dict[str, str]]:
    """Return a recipe of one's own, and the hashes of the Python files that it comes from. Raise UserError for a model
    that cannot be built or trained."""
    load_stack()
    imports: dict[str, str] = {}
    if asked.source == "python":
        _, imports, digest = configured.load_file(asked, "paper")
        asked = replace(asked, digest=digest)
    elif asked.source == "timm":
        configured.check_timm_name(asked.place, asked.text)
    else:
        configured.head(asked.config, asked.text)
    return CustomModel(_described(asked, "paper", None), specification=asked), imports


def with_tiny(model: CustomModel) -> CustomModel:
    """Return a recipe of one's own with its tiny version, or with why it has none."""
    load_stack()
    asked, paper = model.specification, model.paper
    assert asked is not None
    if asked.source == "python":
        try:
            return replace(model, tiny=_described(asked, "tiny", None))
        except UserError as error:
            return replace(model, no_tiny=str(error))
    small = replace(asked, fields=specification.tiny(asked.fields, paper.text.sequence if paper.text else None))
    for config in _tiny_configs(asked, paper):
        try:
            found = _described(small, "tiny", config, paper)
        except UserError:
            continue
        if found.parameters < paper.parameters:
            return replace(model, tiny=found)
    source = "its configuration" if asked.source == "transformers" else "timm"
    return replace(model, no_tiny=f"none could be derived from {source}")


def _tiny_configs(asked: Specification, paper: Described) -> Iterable[dict[str, Any]]:
    assert paper.config is not None
    if asked.source == "transformers":
        return configured.tiny_configs(paper.config)
    assert paper.images is not None
    with torch.device("meta"):
        model = configured.timm_model(asked.place, paper.config, False)
    return configured.tiny_arguments(model.get_submodule("model"), paper.config, paper.images.size)


def _described(
    asked: Specification, scale: Scale, config: dict[str, Any] | None, like: Described | None = None
) -> Described:
    """Return the data of one scale: `config` is that of a tiny version, which is trained `like` the whole model."""
    if asked.source == "python":
        recipe = configured.load_file(asked, scale)[0]
        return _completed(asked, _with_fields(asked, recipe, scale))
    config = asked.config if config is None else config
    given = asked.fields
    if given.image_size is not None:
        config = config | {"img_size" if asked.source == "timm" else "image_size": given.image_size}
    family = config["model_type"] if asked.source == "transformers" else asked.place.partition(".")[0]
    make = partial(configured.build, asked, config)
    naive = _on_meta(asked, make, "eager")
    inputs = _inputs(asked, naive, config)
    recipe = Recipe(
        id=asked.id if like is None else like.id,
        scale=scale,
        name=asked.stem if like is None else like.name,
        family=family,
        inputs=inputs,
        width=_width(naive),
        flops_per_example=given.flops_per_example or 0,
        module=type(naive.get_submodule("model")).__module__,
        compiles=True if given.compiles is None else given.compiles,
        build=lambda kernels, attention: naive,
        **specification.training(asked.text, given, inputs, None if like is None else like.training_steps),
    )
    of_transformers = asked.source == "transformers"
    attention = _attention(asked, config, inputs, make, like is not None) if of_transformers else "sdpa"
    completed = _completed(asked, recipe, naive, _on_meta(asked, make, attention))
    built = str(configured.head(config, asked.text)) if of_transformers else ""
    return replace(completed, attention=attention, config=config, built=built)


def _on_meta(asked: Specification, make: Any, attention: str) -> nn.Module:
    """Return a model on the meta device. Raise UserError where it cannot be built."""
    try:
        with configured.quietly(), torch.device("meta"):
            found: nn.Module = make(attention)
    except UserError:
        raise
    except Exception as error:
        if attention == "eager" and asked.source == "transformers" and "attn" in str(error):
            return _on_meta(asked, make, "")
        raise UserError(f"{asked.text}: the model cannot be built: {configured.located(error)}") from error
    found.train()
    return found


def _inputs(asked: Specification, model: nn.Module, config: dict[str, Any]) -> Text | Images:
    """Return the inputs of a configured model."""
    given = asked.fields
    inner: Any = model.get_submodule("model")
    if asked.source == "timm":
        if not inner.num_classes:
            raise UserError(
                f"{asked.text}: the model has no classifier: name its classes, as timm:{asked.place}:num_classes=1000"
            )
        known = getattr(inner, "pretrained_cfg", None) or getattr(inner, "default_cfg", {})
        channels, *_, size = known.get("input_size") or (3, 224, 224)
        _refuse_channels(asked, config.get("in_chans", channels))
        return Images(config.get("img_size", size), inner.num_classes)
    found: Any = inner.config
    if inner.main_input_name == "pixel_values":
        _refuse_channels(asked, getattr(found, "num_channels", 3))
        size = getattr(found, "image_size", None)
        size = size if isinstance(size, list | tuple) else [size]
        if len({*size}) > 1:
            raise UserError(f"{asked.text}: its images are {size[0]} x {size[1]}, expected squares, as by image=224")
        return Images(size[0] or 224, found.num_labels)
    text = found.get_text_config()
    most = _positions(inner, text)
    if given.sequence is None and most is None:
        raise UserError(f"{asked.text} needs its length of sequence, @sequence=N: its configuration has none")
    sequence = given.sequence or most or 0
    if most is not None and sequence > most:
        raise UserError(f"{asked.text}: sequence={sequence}: the model has {most} positions; name at most these")
    return Text(sequence, text.vocab_size)


def _positions(model: nn.Module, config: Any) -> int | None:
    """Return how many positions a model has; those of RoBERTa's kind start after the padding id."""
    most = next(
        (
            number
            for name in (
                *("max_position_embeddings", "max_target_positions", "n_positions", "max_seq_len", "seq_length"),
                *("n_ctx", "context_length"),
            )
            if isinstance(number := getattr(config, name, None), int) and number > 0
        ),
        None,
    )
    if most is None:
        return None
    after = [
        module.padding_idx + 1
        for name, module in model.named_modules()
        if isinstance(module, nn.Embedding) and "position" in name and module.padding_idx is not None
    ]
    return most - max(after, default=0)


def _refuse_channels(asked: Specification, channels: int) -> None:
    if channels != 3:
        raise UserError(f"{asked.text}: its images have {channels} channels, expected 3: RGB")


def _width(model: nn.Module) -> int:
    """Return the hidden size that a configuration or timm's model names, else the most frequent size of a weight's
    last dimension."""
    inner: Any = next(model.children(), model)
    config = getattr(inner, "config", None)
    text = config.get_text_config() if config is not None and hasattr(config, "get_text_config") else config
    for known in (getattr(text, "hidden_size", None), getattr(inner, "num_features", None)):
        if isinstance(known, int):
            return known
    sizes = [weight.shape[-1] for weight in model.parameters() if weight.ndim]
    return max(set(sizes), key=lambda size: (sizes.count(size), size), default=1)


def _with_fields(asked: Specification, recipe: Recipe, scale: Scale) -> Recipe:
    """Return a Python file's recipe under its id, with what the numbers behind the @ replace."""
    given = asked.fields
    if not isinstance(recipe.inputs, Text | Images):
        raise UserError(f"{asked.text}: inputs is {recipe.inputs!r}, expected repro.Text or repro.Images")
    inputs = recipe.inputs
    if (given.sequence and isinstance(inputs, Text)) or (given.image_size and isinstance(inputs, Images)):
        key = "sequence" if isinstance(inputs, Text) else "image"
        raise UserError(f"{asked.text}: {key} changes nothing of a model that a Python file builds; change it there")
    batch_size = given.batch_size or recipe.batch_size
    length = replace(given, batch_size=batch_size)
    lengths = (given.training_steps, given.tokens, given.images, given.epochs)
    steps = specification.steps(asked.text, length, inputs) if any(lengths) else recipe.training_steps
    if scale == "tiny":
        batch_size, steps = recipe.batch_size, recipe.training_steps
    rate, betas = specification.RATES["text" if isinstance(inputs, Text) else "images"]
    optimizer = recipe.optimizer
    if optimizer is Recipe.optimizer:
        optimizer = Optimizer("AdamW", rate, betas)
    if given.optimizer is not None:
        optimizer = replace(optimizer, name=given.optimizer)
    warmup = recipe.schedule.warmup_steps if given.warmup_steps is None else given.warmup_steps
    kind = given.schedule or recipe.schedule.kind
    return replace(
        recipe,
        id=asked.id,
        scale=scale,
        name=recipe.name or asked.stem,
        family=recipe.family or asked.stem,
        batch_size=batch_size,
        training_steps=steps,
        precision=given.precision or recipe.precision or ("bf16" if isinstance(inputs, Text) else "fp32"),
        optimizer=replace(optimizer, rate=given.learning_rate or optimizer.rate),
        schedule=replace(recipe.schedule, kind=kind, warmup_steps=min(warmup, steps)),
        clip=given.clip or recipe.clip,
        flops_per_example=(given.flops_per_example if scale == "paper" else None) or recipe.flops_per_example,
        compiles=recipe.compiles if given.compiles is None else given.compiles,
        flash_attention=False,
        kernels=None,
    )


def _completed(
    asked: Specification, recipe: Recipe, naive: nn.Module | None = None, custom: nn.Module | None = None
) -> Described:
    """Return a recipe's data with what its model says: weights, width, layers, FLOPs, and whether it has attention."""
    naive = naive or _on_meta(asked, lambda _: recipe.build(False, "sdpa"), "")
    custom = custom or _on_meta(asked, lambda _: recipe.build(True, "sdpa"), "")
    if not isinstance(naive, nn.Module):
        raise UserError(f"{asked.text}: build returned {type(naive).__name__}, expected a torch.nn.Module")
    if not (parameters := sum(weight.numel() for weight in naive.parameters())):
        raise UserError(f"{asked.text}: the model has no weights")
    recipe = replace(recipe, layer=recipe.layer or configured.layer(naive))
    if lacking := {*recipe.layers} - {type(module).__name__ for module in naive.modules()}:
        raise UserError(f"{asked.text}: the model has no {', '.join(lacking)}; name its layers' class as layer")
    lengths = TOKENS if is_sequential(recipe, naive) else (None,)
    flops = _flops(asked, recipe, naive, lengths)
    fused = _fused_attention(asked, recipe, custom, lengths[0])
    reached = {name: weight.numel() for name, weight in naive.named_parameters()}
    frozen = Frozen(sum(reached[name] for name in _without_gradient(naive)), *map(_without_gradient, (naive, custom)))
    described = Described.of(
        replace(
            recipe,
            name=f"{recipe.name} (own)" if recipe.name.lower() in _PRINTED else recipe.name,
            width=recipe.width or _width(naive),
            parameters=parameters,
            flops_per_example=flops,
            attends=fused,
            custom_kernels=fused,
        )
    )
    return replace(described, frozen=frozen, slow_scan=scans_slowly(naive))


def _without_gradient(model: nn.Module) -> list[str]:
    """Return the weights to train that a backward pass did not reach."""
    return [name for name, weight in model.named_parameters() if weight.requires_grad and weight.grad is None]


class _Counter(TorchDispatchMode):
    """A counter of matrix products' and convolutions' FLOPs. Fused attention counts as its products do without fusion:
    over the whole square, and without the forward products that its backward pass repeats."""

    def __init__(self) -> None:
        super().__init__()
        self.flops = 0.0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        name = func.name().split("::")[1].split(".")[0]
        kind, flops, _ = classify(name, args, [leaf for leaf in tree_leaves(out) if isinstance(leaf, Tensor)])
        if kind == "attention":
            flops /= _CAUSAL_HALVES if any(each is True for each in args) else 1.0
            flops *= _RECOMPUTES if "backward" in name else 1.0
        self.flops += 0.0 if kind == "scan" else flops
        return out


class _Attention(TorchFunctionMode):
    """A mode that notes whether torch's fused attention was called."""

    called = False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.called = self.called or func is nn.functional.scaled_dot_product_attention
        return func(*args, **(kwargs or {}))


class _NoCheckpoints(TorchFunctionMode):
    """A mode that raises UserError, which names the line, where torch.utils.checkpoint runs a part of the model: what
    that computes again would count as the model's, and settings with checkpointing would do it twice."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self._text = text

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        files = [(frame.f_code.co_filename, line) for frame, line in traceback.walk_stack(sys._getframe(1))]
        inside = next((at for at, (file, _) in enumerate(files) if file == torch.utils.checkpoint.__file__), None)
        if inside is not None:
            file, line = next(each for each in files[inside:] if not each[0].startswith(_TORCH))
            raise UserError(
                f"{self._text}: {Path(file).name}:{line}: it checkpoints activations itself: call the block directly, "
                "as settings with checkpointing do that"
            )
        return func(*args, **(kwargs or {}))


def _loss(asked: Specification, recipe: Recipe, model: nn.Module, tokens: int | None) -> Tensor:
    """Return the loss of one example on fake tensors. Raise UserError where it is no scalar."""
    make_real(model, None)
    try:
        with configured.quietly(), patched(*data_checks()), _NoCheckpoints(asked.text):
            loss = model(**batch(recipe, 1, tokens, None))
    except UserError:
        raise
    except Exception as error:
        raise UserError(f"{asked.text}: its forward pass fails: {configured.located(error)}") from error
    if not isinstance(loss, Tensor) or loss.ndim:
        found = f"a tensor of shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else type(loss).__name__
        raise UserError(f"{asked.text}: its forward pass returns {found}, expected the mean loss, a scalar tensor")
    return loss


def _flops(asked: Specification, recipe: Recipe, model: nn.Module, lengths: Sequence[int | None]) -> int:
    """Run one example forward and backward with eager attention. Return its FLOPs: the recipe's, or those counted."""
    counts = []
    for tokens in lengths:
        counter = _Counter()
        with FakeTensorMode(), counter:
            loss = _loss(asked, recipe, model, tokens)
            if loss.grad_fn is None:
                raise UserError(f"{asked.text}: its loss depends on no weight")
            loss.backward()
        counts.append(counter.flops)
    if recipe.flops_per_example:
        return recipe.flops_per_example
    if not counts[0]:
        raise UserError(f"{asked.text}: no matrix product was counted; give flops_per_example")
    if isinstance(recipe.inputs, Text) and lengths[0] is not None:
        counts = [sum(map(mul, counts, interpolation(lengths, recipe.inputs.sequence)))]
    return round(counts[0])


def _fused_attention(asked: Specification, recipe: Recipe, model: nn.Module, tokens: int | None) -> bool:
    """Return whether the model, built with custom kernels, calls torch's fused attention. Run it backward as well."""
    mode = _Attention()
    with FakeTensorMode(), mode:
        _loss(asked, recipe, model, tokens).backward()
    return mode.called


def _attention(asked: Specification, config: dict[str, Any], inputs: Text | Images, make: Any, small: bool) -> str:
    """Return the fastest implementation of attention that gives the same loss as eager attention in a tiny version; a
    model without such a version runs transformers' own mask."""
    candidates = configured.attentions(config, inputs.sequence if isinstance(inputs, Text) else None)
    with contextlib.suppress(Exception):  # no tiny version can be derived
        for attention in candidates:
            for tried in [config] if small else configured.tiny_configs(config):
                with_same = _same_loss(tried, inputs, attention)
                if with_same:
                    return attention
                if with_same is not None:
                    break
    with contextlib.suppress(UserError):
        _on_meta(asked, make, "sdpa")
        return "sdpa"
    return ""


def _same_loss(config: dict[str, Any], inputs: Text | Images, attention: str) -> bool | None:
    """Return whether both implementations give the same loss, on the CPU; None where the model cannot be built."""
    losses = []
    for each in ("eager", attention):
        torch.manual_seed(0)
        try:
            with configured.quietly():
                model = configured.transformers_model(config, each).eval()
                found: Any = model.get_submodule("model").config
                if isinstance(inputs, Text):
                    ids = torch.randint(5, found.get_text_config().vocab_size, (2, 32))
                    asked = {"input_ids": ids, "labels": ids}
                else:
                    pixels = torch.rand(2, 3, found.image_size, found.image_size)
                    asked = {"pixels": pixels, "labels": torch.zeros(2, dtype=torch.long)}
                losses.append(float(model(**asked)))
        except Exception:
            return None if each == "eager" else False
    return abs(losses[1] - losses[0]) <= _SAME_LOSS * abs(losses[0])


def answer(asked: dict[str, Any]) -> dict[str, Any]:
    """Answer a request: a specification to describe, a description to add the tiny version to, or a recipe to trace at
    one scale into a folder."""
    try:
        if "describe" in asked:
            found, imports = describe(from_json(Specification, asked["describe"]))
            return {"model": asdict(found), "imports": imports}
        if "tiny" in asked:
            return asked["tiny"] | {"model": asdict(with_tiny(from_json(CustomModel, asked["tiny"]["model"])))}
        load_stack()
        recipe = from_json(CustomModel, asked["trace"]).recipe(asked["scale"])
        with configured.quietly():
            traces.save([trace(recipe, variant) for variant in variants(recipe)], Path(asked["folder"]))
    except UserError as error:
        return {"error": str(error)}
    except Exception as error:
        return {"failed": configured.located(error)}
    return {}


def main() -> None:
    """Answer the request on stdin in a file of this folder."""
    end_with(os.getppid())
    place, code = Path(ANSWER).absolute(), 1
    try:
        place.write_text(json.dumps(answer(json.load(sys.stdin))))
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)  # nothing that a user's file leaves, such as a thread, keeps the answer back


if __name__ == "__main__":
    main()
