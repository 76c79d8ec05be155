"""Models from transformers' configurations, timm's names and Python files, their tiny versions and layers."""

from __future__ import annotations

import hashlib
import importlib.util
import sys
import sysconfig
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from inspect import isfunction, signature
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from repro.console import ROOT, UserError, one_line, suggest_names

from .recipe import Recipe, Scale
from .specification import Specification, of_the_model

if TYPE_CHECKING:
    from torch import nn

# The heads with a loss that is known here: transformers' mapping, how its classes' names end, and the kind.
_HEADS: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES", ("ForConditionalGeneration",), "text"),
    ("MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES", ("ForConditionalGeneration",), "other"),
    ("MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES", ("ForConditionalGeneration",), "text"),
    ("MODEL_FOR_MASKED_LM_MAPPING_NAMES", ("ForMaskedLM",), "text"),
    ("MODEL_FOR_CAUSAL_LM_MAPPING_NAMES", ("ForCausalLM", "LMHeadModel"), "causal"),
    ("MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES", ("ForImageClassification",), "image"),
    ("MODEL_MAPPING_NAMES", ("Model",), "other"),
)
_IDS = ("pad_token_id", "bos_token_id", "eos_token_id", "sep_token_id", "cls_token_id", "mask_token_id")


@dataclass(frozen=True)
class Head:
    """The class of a configured model, and how it is trained: `kind` is causal or text for a language model with its
    own loss, image for an image classifier, other for a class with neither: the mean of its outputs stands in for a
    loss. `asked` is the class that `architectures` names where transformers lacks it."""

    model: Any
    kind: str
    asked: str = ""

    def __str__(self) -> str:
        name = self.model.__name__ + (f" in place of {self.asked}" if self.asked else "")
        return name + (" (the mean of its outputs stands in for a loss)" if self.kind == "other" else "")


def head(config: dict[str, Any], text: str) -> Head:
    """Return the class that `architectures` names. Where transformers lacks it, as with an alias of the hub's own code,
    or none is named, return transformers' class of that kind, or for the model type, which takes the whole of the
    configuration. Raise UserError where there is none, or where it reads other than text or images."""
    import transformers
    from transformers.models.auto import modeling_auto
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING, CONFIG_MAPPING_NAMES

    model_type, of = config["model_type"], f"{text}: transformers {transformers.__version__}"
    if model_type not in CONFIG_MAPPING_NAMES:
        meant = suggest_names(model_type, CONFIG_MAPPING_NAMES)
        hint = f"; did you mean {' or '.join(meant)}?" if meant else ""
        raise UserError(f"{of} knows no model_type {model_type!r}{hint}")
    known: dict[str, tuple[str, tuple[str, ...]]] = {}
    for mapping, ends, kind in _HEADS:
        classes = getattr(modeling_auto, mapping, {}).get(model_type, ())
        for name in (classes,) if isinstance(classes, str) else classes:
            known.setdefault(name, (kind, ends))
    whole = CONFIG_MAPPING[model_type]
    parts = {whole, *whole.sub_configs.values()}
    asked = next(iter(config.get("architectures") or ()), "")
    found = getattr(transformers, asked, None) if isinstance(asked, str) and asked in dir(transformers) else None
    if getattr(found, "config_class", None) in parts and hasattr(found, "main_input_name"):
        return _readable(Head(found, known.get(asked, ("other",))[0]), text)
    ends = next((ends for _, ends, _ in _HEADS if str(asked).endswith(ends)), ())
    of_kind = [name for name, (_, mine) in known.items() if not ends or mine == ends]
    if not of_kind:
        has = ", ".join(known) or "no class"
        raise UserError(f"{of} has no {asked or 'class'}; of {model_type} it has {has}")
    encodes = getattr(whole(), "is_encoder_decoder", False)
    if config.get("is_decoder") and not ends:
        of_kind.sort(key=lambda name: known[name][0] != "causal")
    candidates = [Head(getattr(transformers, name), known[name][0], str(asked)) for name in of_kind]
    takes_all = [
        each
        for each in candidates
        if each.model.config_class is whole and not (encodes and each.kind == "causal" and not ends)
    ]
    return _readable((takes_all or candidates)[0], text)


def _readable(head: Head, text: str) -> Head:
    """Return the head. Raise UserError where it needs inputs that are neither text nor images."""
    takes = signature(head.model.forward).parameters
    needs_both = head.kind == "other" and "input_ids" in takes and "pixel_values" in takes
    if head.model.main_input_name not in ("input_ids", "pixel_values") or needs_both:
        reads = "images together with text" if needs_both else head.model.main_input_name
        raise UserError(f"{text}: {head.model.__name__} reads {reads}, and models here read text or images")
    return head


def transformers_config(config: dict[str, Any]) -> Any:
    """Return the configuration object of a plain configuration, without what is not the model's."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    kept = of_the_model(config)
    found = CONFIG_MAPPING[kept["model_type"]].from_dict(kept)
    for each in (found, found.get_text_config()):
        each.use_cache = False
    if found.is_encoder_decoder and getattr(found, "decoder_start_token_id", None) is None:
        found.decoder_start_token_id = getattr(found, "pad_token_id", None) or 0
    return found


def transformers_model(config: dict[str, Any], attention: str) -> nn.Module:
    """Build a configuration's model in fp32 with an implementation of attention, where the model has it."""
    from .objective import ImageClassification, LanguageModelling, MeanOutput
    from .pythia import custom_attention

    chosen = head(config, config["model_type"])
    wanted = custom_attention("sdpa") if attention == "causal_sdpa" else attention
    found = transformers_config(config)
    if not isinstance(found, chosen.model.config_class):
        found = found.get_text_config()  # as transformers hands a part its own
    given = {"attn_implementation": wanted} if wanted else {}
    model = chosen.model._from_config(found, **given)
    text = model.config.get_text_config()
    if chosen.kind == "other" and getattr(text, "pad_token_id", None) is None:
        text.pad_token_id = 0  # classes of texts are read at the last token that is none
    wrapper = {"image": ImageClassification, "other": MeanOutput}.get(chosen.kind, LanguageModelling)
    return wrapper(model)


def attentions(config: dict[str, Any], sequence: int | None) -> list[str]:
    """Return the implementations that free lunch may take, the fastest first; "" is the model's own choice.

    Without a mask, causal attention runs in torch's fastest kernel. A sliding window needs one, if it is shorter than
    the sequence.
    """
    found = transformers_config(config).get_text_config()
    window = getattr(found, "sliding_window", None)
    windowed = isinstance(window, int) and sequence is not None and window < sequence
    causal = head(config, config["model_type"]).kind == "causal"
    return ["causal_sdpa", "sdpa"] if causal and not windowed else ["sdpa"]


def timm_model(name: str, arguments: dict[str, Any], custom_kernels: bool) -> nn.Module:
    """Build a model of timm, with random weights."""
    import timm
    from timm.layers import set_fused_attn

    from .objective import ImageClassification

    set_fused_attn(custom_kernels)
    return ImageClassification(timm.create_model(name, pretrained=False, **arguments))


def build(specification: Specification, config: dict[str, Any], attention: str) -> nn.Module:
    """Build the model of a configuration, or of a name of timm with arguments, with an implementation of attention."""
    if specification.source == "timm":
        return timm_model(specification.place, config, attention != "eager")
    return transformers_model(config, attention)


def check_timm_name(name: str, text: str) -> None:
    """Raise UserError for a name that timm does not know, with the nearest names."""
    import timm

    if not timm.is_model(name.partition(".")[0]):
        meant = suggest_names(name, timm.list_models())[:5]
        hint = f"did you mean {', '.join(meant)}?" if meant else "timm.list_models() lists them"
        raise UserError(f"{text}: timm {timm.__version__} knows no {name}; {hint}")


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
        takes_scale = "scale" in signature(found).parameters
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
            isfunction(each)
            and each.__module__ == module.__name__
            and (each.__name__ == "recipe" or each.__annotations__.get("return") in (Recipe, "Recipe", "repro.Recipe"))
        )

    return {name: each for name, each in vars(module).items() if isinstance(each, Recipe) or returns_one(each)}


def _names(candidates: Iterable[str]) -> str:
    return ", ".join(candidates) or "no recipe"


def layer(model: nn.Module) -> str:
    """Return the classes of the layers to shard and to checkpoint: transformers' `_no_split_modules` that stand in a
    list, else those in the list that holds most weights; without a list the class that repeats with most weights."""
    from torch import nn

    def listed(kind: type[nn.Module], least: int) -> Iterator[list[nn.Module]]:
        for container in model.modules():
            found = [each for each in container.children() if _is_block(each)] if isinstance(container, kind) else []
            if len(found) >= least:
                yield found

    groups = [*listed(nn.ModuleList, 1)]
    named = {name for module in model.modules() for name in getattr(module, "_no_split_modules", None) or ()}
    unsplit = [each for group in groups for each in group if type(each).__name__ in named]
    inner = {module for each in unsplit for module in [*each.modules()][1:]}
    if classes := {type(each).__name__ for each in unsplit if each not in inner}:
        return ",".join(sorted(classes))
    if 2 * max(map(_weights, groups), default=0) < _weights([model]):
        groups += listed(nn.Sequential, 2)
    if not groups:
        alike: dict[type, list[nn.Module]] = {}
        for module in [*model.modules()][1:]:
            alike.setdefault(type(module), []).append(module)
        groups = [group for group in alike.values() if len(group) > 1 and _is_block(group[0])] or [*alike.values()]
    return ",".join(sorted({type(each).__name__ for group in [max(groups, key=_weights)] for each in group}))


def _is_block(module: nn.Module) -> bool:
    """Return whether a module is one of a model's own, or a whole layer of torch's."""
    place = type(module).__module__
    return not place.startswith("torch.nn.") or place.endswith(".transformer")


def _weights(modules: Iterable[nn.Module]) -> int:
    return sum(weight.numel() for weight in {weight: None for module in modules for weight in module.parameters()})


def tiny_configs(config: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield candidates for a tiny version of a transformers configuration: 2 layers, a width of 64, a small
    vocabulary, as far as it has such numbers; the first that can be built counts."""
    whole = transformers_config(config)
    names = getattr(type(whole), "attribute_map", {})

    def has(name: str) -> str | None:
        key = names.get(name, name)
        return key if isinstance(getattr(whole, key, None), int) else None

    small = dict(config)
    for name, number in (
        *(("num_hidden_layers", 2), ("hidden_size", 64), ("num_attention_heads", 4), ("vocab_size", 512)),
        *(("intermediate_size", 128), ("embedding_size", 64), ("num_labels", 100)),
    ):
        if (key := has(name)) is not None:
            small[key] = number
    heads = getattr(whole, "num_key_value_heads", None)
    if isinstance(heads, int):
        small["num_key_value_heads"] = 4 if heads >= getattr(whole, "num_attention_heads", heads) else 2
    if isinstance(config.get("head_dim"), int):
        small["head_dim"] = 16
    if isinstance(getattr(whole, "max_position_embeddings", None), int):
        small[names.get("max_position_embeddings", "max_position_embeddings")] = 66
    if isinstance(getattr(whole, "image_size", None), int) and isinstance(getattr(whole, "patch_size", None), int):
        small["image_size"] = 4 * whole.patch_size
    small |= {name: index for index, name in enumerate(_IDS) if isinstance(getattr(whole, name, None), int)}
    for name in ("id2label", "label2id", "layer_types", "mlp_layer_types"):
        if isinstance(small.get(name), list):
            small[name] = small[name][-2:]
        elif name.startswith(("id2", "label2")):
            small.pop(name, None)
    yield small
    for layers, widths in (("depths", "hidden_sizes"), ("depths", "embed_dim"), ("layer_depths", "hidden_sizes")):
        depths = getattr(whole, layers, None)
        if isinstance(depths, list | tuple):
            staged = {**config, layers: [min(each, 2) for each in depths]}
            sizes = getattr(whole, widths, None)
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
    users = [each for each in frames if not each.filename.startswith(standard) and "site-packages" not in each.filename]
    packages = [each for each in frames if "site-packages" in each.filename]
    words = one_line(error)
    if isinstance(error, DataDependentOutputException | DynamicOutputShapeException):
        words = f"what runs depends on values of a tensor ({words}): choose with torch.where, and keep shapes fixed"
    return f"{Path(place[-1].filename).name}:{place[-1].lineno}: {words}" if (place := users or packages) else words


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
