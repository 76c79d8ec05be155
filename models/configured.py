"""Models from transformers' configurations, timm's names and Python files, their tiny versions and repeated blocks."""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import sys
import sysconfig
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from repro.console import ROOT, UserError, one_line, suggest_names

from .recipe import Recipe, Scale
from .specification import Specification, of_the_model

if TYPE_CHECKING:
    from torch import nn

_HEADS = {  # the mapping of transformers, and the ends of its classes' names
    "masked": ("MODEL_FOR_MASKED_LM_MAPPING_NAMES", ("ForMaskedLM",)),
    "causal": ("MODEL_FOR_CAUSAL_LM_MAPPING_NAMES", ("ForCausalLM", "LMHeadModel")),
    "image": ("MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES", ("ForImageClassification",)),
}
_ENDS = tuple(end for _, ends in _HEADS.values() for end in ends)
_IDS = ("pad_token_id", "bos_token_id", "eos_token_id", "sep_token_id", "cls_token_id", "mask_token_id")
_MOST_OF = 0.5  # of the weights: the repeated block contains at least this share


def head(config: dict[str, Any], text: str) -> tuple[str, str]:
    """Return the kind (masked, causal or image) and the class of a configuration's head: what `architectures` names,
    else what transformers has of the model type. Raise UserError where it has none of these."""
    from transformers import __version__
    from transformers.models.auto import modeling_auto
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

    model_type = config["model_type"]
    if model_type not in CONFIG_MAPPING_NAMES:
        meant = suggest_names(model_type, CONFIG_MAPPING_NAMES)
        hint = f"; did you mean {' or '.join(meant)}?" if meant else ""
        raise UserError(f"{text}: transformers {__version__} knows no model_type {model_type!r}{hint}")
    there = {
        kind: classes if isinstance(classes, tuple | list) else (classes,)
        for kind, (mapping, _) in _HEADS.items()
        if (classes := getattr(modeling_auto, mapping).get(model_type)) is not None
    }
    has = ", ".join(name for classes in there.values() for name in classes)
    asked = next(iter(config.get("architectures") or ()), None)
    for kind, classes in there.items():
        if asked in classes:
            return kind, str(asked)
    if not there:
        raise UserError(
            f"{text}: transformers {__version__} has no language-modelling, masked-LM or image-classification head for "
            f"{model_type}"
        )
    if isinstance(asked, str) and asked.endswith(_ENDS):
        raise UserError(f"{text}: transformers {__version__} has no {asked}; of {model_type} it has {has}")
    if config.get("is_decoder") and "causal" in there:
        return "causal", there["causal"][0]
    kind = next(iter(there))
    return kind, there[kind][0]


def transformers_config(config: dict[str, Any]) -> Any:
    """Return the configuration object of a plain configuration, without what is not the model's."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    kept = of_the_model(config)
    found = CONFIG_MAPPING[kept["model_type"]].from_dict(kept)
    for each in (found, found.get_text_config() if hasattr(found, "get_text_config") else found):
        each.use_cache = False
    return found


def transformers_model(config: dict[str, Any], attention: str) -> nn.Module:
    """Build a configuration's model in fp32 with an implementation of attention, where the model has it."""
    import transformers

    from .objective import ImageClassification, LanguageModelling
    from .pythia import custom_attention

    kind, name = head(config, config["model_type"])
    wanted = custom_attention("sdpa") if attention == "causal_sdpa" else attention
    model_class = getattr(transformers, name)
    found = transformers_config(config)
    model = model_class._from_config(found, attn_implementation=wanted) if wanted else model_class._from_config(found)
    return ImageClassification(model) if kind == "image" else LanguageModelling(model)


def attentions(config: dict[str, Any], sequence: int | None) -> list[str]:
    """Return the implementations that free lunch may take, the fastest first; "" is the model's own choice.

    Without a mask, causal attention runs in torch's fastest kernel. A sliding window needs one, if it is shorter than
    the sequence.
    """
    found = transformers_config(config)
    found = found.get_text_config() if hasattr(found, "get_text_config") else found
    window = getattr(found, "sliding_window", None)
    windowed = isinstance(window, int) and sequence is not None and window < sequence
    causal = head(config, config["model_type"])[0] == "causal"
    return ["causal_sdpa", "sdpa"] if causal and not windowed else ["sdpa"]


def timm_model(name: str, arguments: dict[str, Any], custom_kernels: bool) -> nn.Module:
    """Build a model of timm, with random weights."""
    import timm
    from timm.layers import set_fused_attn

    from .objective import ImageClassification

    set_fused_attn(custom_kernels)
    return ImageClassification(timm.create_model(name, pretrained=False, **arguments))


def check_timm_name(name: str, text: str) -> None:
    """Raise UserError for a name that timm does not know, with the nearest names."""
    import timm

    if not timm.is_model(name.partition(".")[0]):
        meant = suggest_names(name, timm.list_models())[:5]
        hint = f"did you mean {', '.join(meant)}?" if meant else "timm.list_models() lists them"
        raise UserError(f"{text}: timm {timm.__version__} knows no {name}; {hint}")


def from_file(specification: Specification, scale: Scale) -> Recipe:
    """Return the recipe that a Python file defines, at one scale. Raise UserError where the file has none, or has
    changed since the command began."""
    found, _, digest = load_file(specification, scale)
    if digest != specification.digest:
        raise UserError(f"{specification.place} changed after the command began: run it again")
    return found


def load_file(specification: Specification, scale: Scale) -> tuple[Recipe, dict[str, str], str]:
    """Import a Python file and return its recipe, with the hashes of it and of what it imports from its folder, by
    path, and a hash of all of these. Raise UserError where it has no recipe, and for an error of its own."""
    path = Path(specification.place)
    try:
        module, imports = _imported(path)
        found = _recipe_of(module, specification, scale)
    except UserError:
        raise
    except Exception as error:
        raise UserError(f"{specification.text}: {path.name} fails: {located(error)}") from error
    hashes = [imports[name] for name in sorted(imports)]
    digest = hashes[0] if len(hashes) == 1 else hashlib.sha256(" ".join(hashes).encode()).hexdigest()
    return found, imports, digest


_FILES: dict[str, tuple[ModuleType, dict[str, str]]] = {}  # by path: what `_imported` returned


def _imported(path: Path) -> tuple[ModuleType, dict[str, str]]:
    """Return a file as a module, which may import others of its folder, as a script may; and the hashes of these and
    of the file, by path."""
    if str(path) in _FILES:
        return _FILES[str(path)]
    name, before = f"repro_own_{path.stem}", {*sys.modules}
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    files = {getattr(sys.modules[each], "__file__", None) for each in {*sys.modules} - before}
    beside = {str(path), *(file for file in files if file and _is_beside(Path(file), path.parent))}
    hashes = {file: hashlib.sha256(Path(file).read_bytes()).hexdigest() for file in sorted(beside)}
    return _FILES.setdefault(str(path), (module, hashes))


def _is_beside(file: Path, folder: Path) -> bool:
    """Return whether a module lies in a folder, and is neither this project's nor an installed package's."""
    ours = (ROOT / "repro", (ROOT / "repro" / "models").resolve())
    return file.is_relative_to(folder) and "site-packages" not in file.parts and not any(map(file.is_relative_to, ours))


def _recipe_of(module: ModuleType, specification: Specification, scale: Scale) -> Recipe:
    text, name = specification.text, specification.object
    if name and not hasattr(module, name):
        raise UserError(f"{text}: {module.__file__} defines no {name}; it has {_names(_candidates(module))}")
    candidates = {name: getattr(module, name)} if name else _candidates(module)
    if len(candidates) != 1:
        if candidates:
            raise UserError(
                f"{text}: it has {_names(candidates)}; name one of them, as in {text}:{next(iter(candidates))}"
            )
        raise UserError(f"{text}: it has no recipe; define one, a repro.Recipe or a function that returns one")
    [found] = candidates.values()
    if callable(found):
        takes_scale = "scale" in inspect.signature(found).parameters
        if scale == "tiny" and not takes_scale:
            raise UserError("its function takes no scale, from which it could make one")
        found = found(scale=scale) if takes_scale else found()
    elif scale == "tiny":
        raise UserError("a recipe has one scale; a function that takes scale can return another")
    if not isinstance(found, Recipe):
        raise UserError(f"{text}: expected a repro.Recipe, found {type(found).__name__}")
    return found


def _candidates(module: ModuleType) -> dict[str, Any]:
    """Return a module's own recipes and functions that return one, by name."""

    def returns_one(each: Any) -> bool:
        return (
            inspect.isfunction(each)
            and each.__module__ == module.__name__
            and (each.__name__ == "recipe" or each.__annotations__.get("return") in (Recipe, "Recipe", "repro.Recipe"))
        )

    return {name: each for name, each in vars(module).items() if isinstance(each, Recipe) or returns_one(each)}


def _names(candidates: Iterable[str]) -> str:
    return ", ".join(candidates) or "no recipe"


def layer(model: nn.Module) -> str:
    """Return the class of the block to shard and to checkpoint: of transformers' `_no_split_modules` the one with most
    weights, else of the blocks that contain at least half of the weights the most repeated; "" where none repeats."""
    return next(iter(unsplit(model) or blocks(model)), "")


def unsplit(model: nn.Module) -> list[str]:
    """Return the repeated blocks among transformers' `_no_split_modules`, the one with most weights first."""
    found = dict(_blocks(model))
    named = {name for module in model.modules() for name in getattr(module, "_no_split_modules", None) or ()}
    return sorted(named & found.keys(), key=lambda name: (-found[name][1], name))


def blocks(model: nn.Module) -> list[str]:
    """Return the repeated blocks: first those that contain at least half of the weights, of these the most repeated."""
    found = dict(_blocks(model))
    total = sum(weight.numel() for weight in model.parameters())
    return sorted(found, key=lambda name: (found[name][1] < _MOST_OF * total, -found[name][0], name))


def _blocks(model: nn.Module) -> Iterator[tuple[str, tuple[int, int]]]:
    """Yield the classes of modules that a list or a sequence contains, with their number, of 2 or more, and weights."""
    from torch import nn

    counts: dict[str, tuple[int, int]] = {}
    for container in model.modules():
        if not isinstance(container, nn.ModuleList | nn.Sequential):
            continue
        for child in container:
            module = type(child).__module__
            if module.startswith("torch.nn.") and not module.endswith(".transformer"):  # it has whole layers
                continue
            count, weights = counts.get(type(child).__name__, (0, 0))
            mine = sum(weight.numel() for weight in child.parameters())
            counts[type(child).__name__] = count + 1, weights + mine
    yield from ((name, found) for name, found in counts.items() if found[0] > 1)


def tiny_configs(config: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield candidates for a tiny version of a transformers configuration: 2 layers, a width of 64, a small
    vocabulary, as far as it has such numbers; the first that can be built counts."""
    full = transformers_config(config)
    names = getattr(type(full), "attribute_map", {})

    def has(name: str) -> str | None:
        key = names.get(name, name)
        return key if isinstance(getattr(full, key, None), int) else None

    small = dict(config)
    for name, number in (
        *(("num_hidden_layers", 2), ("hidden_size", 64), ("num_attention_heads", 4), ("vocab_size", 512)),
        *(("intermediate_size", 128), ("embedding_size", 64), ("num_labels", 100)),
    ):
        if (key := has(name)) is not None:
            small[key] = number
    heads = getattr(full, "num_key_value_heads", None)
    if isinstance(heads, int):
        small["num_key_value_heads"] = 4 if heads >= getattr(full, "num_attention_heads", heads) else 2
    if isinstance(config.get("head_dim"), int):
        small["head_dim"] = 16
    if isinstance(getattr(full, "max_position_embeddings", None), int):
        small[names.get("max_position_embeddings", "max_position_embeddings")] = 66
    if isinstance(getattr(full, "image_size", None), int) and isinstance(getattr(full, "patch_size", None), int):
        small["image_size"] = 4 * full.patch_size
    small |= {name: index for index, name in enumerate(_IDS) if isinstance(getattr(full, name, None), int)}
    for name in ("id2label", "label2id", "layer_types", "mlp_layer_types"):
        if isinstance(small.get(name), list):
            small[name] = small[name][-2:]
        elif name.startswith(("id2", "label2")):
            small.pop(name, None)
    yield small
    for layers, widths in (("depths", "hidden_sizes"), ("depths", "embed_dim"), ("layer_depths", "hidden_sizes")):
        depths = getattr(full, layers, None)
        if isinstance(depths, list | tuple):
            staged = {**config, layers: [min(each, 2) for each in depths]}
            sizes = getattr(full, widths, None)
            if isinstance(sizes, list | tuple):
                least = min(sizes)
                yield {**staged, widths: [each * 32 // least for each in sizes]}
            yield staged


def tiny_arguments(model: nn.Module, arguments: dict[str, Any], size: int) -> Iterator[dict[str, Any]]:
    """Yield candidates for the arguments of a tiny version of a timm model."""
    few = {**arguments, "num_classes": 100}
    if hasattr(model, "blocks") and hasattr(model, "embed_dim"):
        small = {"depth": 2, "embed_dim": 64, "num_heads": 4}
        patch = getattr(getattr(model, "patch_embed", None), "patch_size", 16)
        yield {**few, **small, "img_size": min(size, 4 * (patch if isinstance(patch, int) else patch[0]))}
        yield {**few, **small}
    if hasattr(model, "stages"):
        yield {**few, "depths": (2, 2, 2, 2), "dims": (16, 32, 48, 64)}
    if hasattr(model, "layers"):
        yield {**few, "depths": (2, 2, 2, 2), "embed_dim": 32, "num_heads": (1, 2, 4, 8)}
    yield {**few, "layers": (2, 2, 2, 2)}


def located(error: BaseException) -> str:
    """Return an error's main line behind the line of the model that it came from: the innermost of one's own code, else
    of a package other than torch. Say what would be right where values decide, which are not computed here."""
    import torch
    from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException

    ours = (str(ROOT / "repro"), str(ROOT / "models"), str(Path(torch.__file__).parent))
    frames = [each for each in traceback.extract_tb(error.__traceback__) if not each.filename.startswith((*ours, "<"))]
    standard = sysconfig.get_paths()["stdlib"]
    own = [each for each in frames if not each.filename.startswith(standard) and "site-packages" not in each.filename]
    packages = [each for each in frames if "site-packages" in each.filename]
    words = one_line(error)
    if isinstance(error, DataDependentOutputException | DynamicOutputShapeException):
        words = f"what runs depends on values of a tensor ({words}): choose with torch.where, and keep shapes fixed"
    return f"{Path(place[-1].filename).name}:{place[-1].lineno}: {words}" if (place := own or packages) else words


@contextmanager
def quietly() -> Iterator[None]:
    """Keep the warnings of libraries off stderr."""
    import logging
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logging.disable(logging.WARNING)
        try:
            yield
        finally:
            logging.disable(logging.NOTSET)
