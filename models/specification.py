"""Specifications of models of one's own: the word that a user gives, with the contents of files.

The word is a model, such as hf:llama.json, and behind an @ the numbers of its training, such as tokens=20B,batch=256.
"""

from __future__ import annotations

import ast
import hashlib
import json
import math
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from itertools import accumulate
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta

from repro import files, formats
from repro.console import UserError, suggest_names
from repro.datafile import Count, NotAsDeclaredError, Positive, parse, read_toml, table

from .recipe import Images, Optimizer, Precision, Recipe, Text

Source = Literal["python", "transformers", "timm"]
SPELLINGS = "hf:CONFIG.json, timm:NAME[:key=value,...], FILE.py[:NAME] or FILE.toml"
# What may stand behind the @, with its field and its parser.
KEYS: dict[str, tuple[str, Callable[[str, str], Any]]] = {
    "tokens": ("tokens", formats.amount),
    "images": ("images", formats.amount),
    "epochs": ("epochs", formats.amount),
    "dataset": ("dataset_size", formats.amount),
    "steps": ("training_steps", formats.count),
    "batch": ("batch_size", formats.count),
    "sequence": ("sequence", formats.count),
    "image": ("image_size", formats.count),
    "precision": ("precision", lambda text, _: text),
    "optimizer": ("optimizer", lambda text, _: text),
}
_LISTED = f"the keys are {', '.join(KEYS)}"
_PAIR = r"\s*[A-Za-z_]\w*="
_PYTHON = re.compile(r"(.*\.py)(?::([A-Za-z_]\w*))?$")

RATES = {"text": (3e-4, (0.9, 0.95)), "images": (1e-3, (0.9, 0.999))}  # learning rates, with the betas of Adam
_TINY = {"batch_size": 16, "sequence": 64}  # of tiny versions: as of the paper's recipes
# A name of the hub, owner/name or name alone; also within an address of its site.
_HUB = re.compile(
    r"hf:(?:https://huggingface\.co/)?([\w-][\w.-]*(?:/[\w.-]+)?)(?<!\.json)(?:/(?:tree|blob|resolve|raw)/.*)?"
)
_LENGTHS = ("training_steps", "tokens", "images", "epochs")
# Keys of a configuration that concern loading, or would execute code of others.
_LOADING = (
    *("torch_dtype", "dtype", "auto_map", "quantization_config", "transformers_version"),
    *("attn_implementation", "experts_implementation"),
)
# Keys that say how to run a model, with what transformers does without them: here methods and engines say it.
_RUNNING: dict[str, Any] = {"gradient_checkpointing": False, "gradient_checkpointing_kwargs": None, "return_dict": True}
_RUNNING |= {"use_return_dict": True, "output_attentions": False, "output_hidden_states": False, "torchscript": False}
_RUNNING |= {"chunk_size_feed_forward": 0, "pretraining_tp": 1}


@dataclass(frozen=True)
class Fields:
    """What a user gives of a recipe, behind the @ or in a file; None for the rest. `dataset_size` is in images, or for
    text in tokens."""

    name: str | None = None
    batch_size: Count | None = None
    training_steps: Count | None = None
    tokens: Positive | None = None
    images: Positive | None = None
    epochs: Positive | None = None
    dataset_size: Positive | None = None
    sequence: Count | None = None
    image_size: Count | None = None
    precision: Precision | None = None
    optimizer: Literal["Adam", "AdamW"] | None = None
    learning_rate: Positive | None = None
    schedule: Literal["cosine", "linear"] | None = None
    warmup_steps: Annotated[int, Meta(ge=0, description="a whole number")] | None = None
    clip: Positive | None = None
    flops_per_example: Annotated[int, Meta(ge=1, description="a whole number from 1 up")] | None = None
    compiles: bool | None = None

    def over(self, other: Fields) -> Fields:
        """Return the fields that are given here, and those of `other` for the rest. One length replaces another."""
        given = {each.name: asked for each in fields(self) if (asked := getattr(self, each.name)) is not None}
        if given.keys() & set(_LENGTHS):
            other = replace(other, **dict.fromkeys(_LENGTHS))
        return replace(other, **given)


@dataclass(frozen=True)
class Specification:
    """Where a model comes from, with its contents: `place` is a file's absolute path or timm's name, `object` the name
    in a Python file, `config` a configuration or timm's arguments, `digest` a hash of a Python file and of what it
    imports from its folder. `text` is what the user wrote before the @, for messages."""

    text: str
    source: Source
    place: str
    fields: Fields
    object: str = ""
    config: dict[str, Any] = field(default_factory=dict)
    digest: str = ""

    @property
    def key(self) -> str:
        """Return the hash of all that makes the recipe, but not of where its file lies."""
        plain = asdict(self)
        plain["fields"]["layer"] = None  # an option of old versions: folders keep their ids
        del plain["text"]
        if self.source != "timm":
            del plain["place"]
        return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()

    @property
    def computed(self) -> bool:
        """Return whether the costs of the model are computed or shipped, not traced here."""
        return self.text.startswith("decoder:") or popular_id(self.text) is not None

    @property
    def stem(self) -> str:
        """Return a short name of the model."""
        return self.fields.name or self.object or (self.place if self.source == "timm" else Path(self.place).stem)

    @property
    def id(self) -> str:
        """Return the recipe's id: a short name and a hash, safe as a part of a file's name."""
        name = re.sub(r"[^a-z0-9._]+", "-", self.stem.lower()).strip("-._")[:40].rstrip("-._")
        return f"{name or 'model'}-{self.key[:8]}"


def split(listed: str) -> list[str]:
    """Return the models of a list. A comma in a path that exists, in brackets, or before key=value begins no other."""
    found, parts = list[str](), listed.split(",")
    while parts:
        texts = [*accumulate(parts, "{},{}".format)]
        whole = [text for text in texts if _exists(text)]
        ends = (text for text, after in zip(texts, [*parts[1:], ""], strict=True) if _ends(text, after))
        found.append(whole[-1] if whole else next(ends, texts[-1]))
        del parts[: found[-1].count(",") + 1]
    return found


def _exists(text: str) -> bool:
    """Return whether a text is a path that exists, with or without numbers behind it."""
    place, numbers = divided(text)
    return _names_file(place) and all(re.match(_PAIR, each) for each in numbers.split(",") if numbers)


def _ends(text: str, after: str) -> bool:
    """Return whether the comma between two texts begins another model."""
    depth = sum(map(text.count, "([{")) - sum(map(text.count, ")]}"))
    return depth <= 0 and not re.match(_PAIR, after)


def divided(text: str) -> tuple[str, str]:
    """Divide a text at the last @ before a key, else before another name and =, or at the end. Of a path that exists,
    all is the model."""
    for key in () if _names_file(text.strip()) else (rf"(?:{'|'.join(KEYS)})\b.*", rf"(?:{_PAIR}.*)?"):
        if found := re.fullmatch(f"(.+)@({key})", text.strip(), re.DOTALL):
            return found[1], found[2]
    return text.strip(), ""


def is_specification(text: str) -> bool:
    """Return whether a text names a model of one's own."""
    return _is_model(divided(text)[0])


def _is_model(text: str) -> bool:
    return (
        popular_id(text) is not None
        or text.startswith(("hf:", "timm:", "decoder:"))
        or text.endswith(".toml")
        or bool(_PYTHON.fullmatch(text))
    )


def popular_id(text: str) -> str | None:
    """Return the id of the popular model that a text names, in any case; None where it names none."""
    from . import popular

    return text.strip().lower() if text.strip().lower() in popular.listed() else None


def _names_file(text: str) -> bool:
    """Return whether a text names a model of one's own by a path that exists."""
    place = _PYTHON.sub(r"\1", text.removeprefix("hf:").removeprefix("decoder:"))
    return _is_model(text) and os.path.exists(os.path.expanduser(place))


def specification(text: str, given: Fields = Fields()) -> Specification:
    """Return the specification that a text makes, under fields that replace its own. Raise UserError where a key is
    unknown, or a file missing or broken."""
    text, numbers = divided(text)
    given = given.over(_fields(text, numbers))
    if id := popular_id(text):
        return of_popular(id, given)
    kind, _, rest = text.partition(":")
    if kind == "timm":
        name, _, arguments = rest.partition(":")
        if not name:
            raise UserError(f"{text}: expected timm:NAME, such as timm:vit_small_patch16_224")
        return Specification(text, "timm", name, given, config=_arguments(text, arguments))
    if kind == "decoder":
        return _of_decoder(text, rest, given)
    if kind == "hf":
        return _of_transformers(text, Path(os.path.expanduser(rest)), given)
    if text.endswith(".toml"):
        return _of_toml(text, given)
    found = _PYTHON.fullmatch(text)
    assert found is not None, "the caller asked is_specification"
    path = Path(os.path.expanduser(found[1]))
    digest = hashlib.sha256(contents_of(path, text)).hexdigest()
    return Specification(text, "python", str(path.absolute()), given, object=found[2] or "", digest=digest)


def _fields(text: str, numbers: str) -> Fields:
    """Return the fields that stand behind a model's @."""
    found = dict[str, Any]()
    for pair in numbers.split(",") if numbers else ():
        key, _, plain = pair.strip().partition("=")
        if key not in KEYS:
            raise UserError(f"{text}: unknown key {key!r} behind the @; {_LISTED}")
        name, parse = KEYS[key]
        if name in found:
            raise UserError(f"{text}: {key} is given twice")
        found[name] = parse(plain, f"{text}: {key}")
    return table(Fields, found, text)


def contents_of(path: Path, text: str) -> bytes:
    """Return the bytes of a file that a text names. Raise UserError where it cannot be read, which says of a name on
    the hub how to save its configuration."""
    try:
        return files.read(path, 2**26)
    except OSError as error:
        if isinstance(error, FileNotFoundError) and (hub := _HUB.fullmatch(text)):
            save = f"save https://huggingface.co/{hub[1]}/raw/main/config.json and name that file"
            raise UserError(f"{text}: there is no such file, and nothing is downloaded: {save}") from None
        raise UserError(f"{text}: {path} cannot be read ({error.strerror}); name a model's file") from None


def _arguments(text: str, arguments: str) -> dict[str, Any]:
    found = {}
    for pair in filter(None, re.split(r",(?=\w+=)", arguments)):
        key, equals, plain = pair.partition("=")
        if not equals or not re.fullmatch(r"[A-Za-z_]\w*", key):
            raise UserError(f"{text}: expected timm:NAME:key=value,..., found {pair!r}")
        try:
            found[key] = json.loads(json.dumps(ast.literal_eval(plain)))  # as other processes get it
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            found[key] = plain
    return found


def _of_transformers(text: str, path: Path, given: Fields) -> Specification:
    file = path / "config.json" if path.is_dir() else path
    try:
        config = parse(contents_of(file, text))
    except NotAsDeclaredError as error:
        raise UserError(f"{text}: {file} is {error}; name a transformers configuration") from None
    if not isinstance(config, dict) or not isinstance(config.get("model_type"), str):
        timms = config.get("architecture") if isinstance(config, dict) else None
        hint = f"; it is timm's: name it as timm:{timms}" if isinstance(timms, str) else ""
        raise UserError(f"{text}: {file} has no model_type, as every transformers configuration has{hint}")
    name = given.name or (file.absolute().parent.name if file.name == "config.json" else file.stem)
    return Specification(text, "transformers", str(file.absolute()), replace(given, name=name), config=config)


def of_popular(id: str, given: Fields) -> Specification:
    """Return the specification of a popular model, under fields that replace its own."""
    from . import popular

    known = popular.listed()[id]
    file = popular.FOLDER / known.file
    fields = given.over(Fields(**known.given))
    return Specification(id, "transformers", str(file), fields, config=parse(file.read_bytes()))


def _of_decoder(text: str, rest: str, given: Fields) -> Specification:
    """Return the specification of a decoder: of a configuration, or of its dimensions."""
    from . import decoders

    if "=" not in rest:
        found = _of_transformers(text, Path(os.path.expanduser(rest)), given)
        sequence = given.sequence or 1
        if decoders.recognised(found.config, sequence) is None:
            kind = found.config["model_type"]
            raise UserError(
                f"{text}: no decoder whose costs are computed (model_type {kind}; {', '.join(decoders.FAMILIES)} are, "
                "without biases or sliding windows): install repro to trace it, as hf:CONFIG.json"
            )
        return found
    pairs = [pair.partition("=") for pair in rest.split(",")]
    dimensions = {key.strip(): formats.count(number.strip(), f"{text}: {key.strip()}") for key, _, number in pairs}
    config = decoders.config_of(dimensions, given.sequence or 2048, text)
    return Specification(text, "transformers", "decoder", replace(given, name=given.name or "decoder"), config=config)


def of_the_model(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration, with those of its parts, without the keys that are not the model's."""
    return {
        key: of_the_model(each) if _is_part(key, each) else each
        for key, each in config.items()
        if not (key in _LOADING or key in _RUNNING or key.startswith("_"))
    }


def left_out(config: Mapping[str, Any], place: str = "") -> list[str]:
    """Return the keys of a configuration, and of its parts, that would change how the model runs, and are not the
    model's."""
    found = []
    for key, each in config.items():
        if _is_part(key, each):
            found += left_out(each, f"{place}{key}.")
        elif (name := key.lstrip("_")) in _RUNNING and each not in (None, _RUNNING[name]):
            found.append(place + key)
    return found


def _is_part(key: str, found: Any) -> bool:
    return isinstance(found, dict) and (key.endswith("config") or "model_type" in found)


def _of_toml(text: str, given: Fields) -> Specification:
    """Return the specification of a TOML file: the keys or the fields, and `model` as on the command line."""
    path = Path(os.path.expanduser(text))
    found = read_toml(path, "model", "a model's fields")
    known = {each.name: each.name for each in fields(Fields)} | {key: name for key, (name, _) in KEYS.items()}
    for key in found:
        if key not in (*known, "model"):
            meant = suggest_names(key, (*known, "model"))
            hint = f"did you mean {' or '.join(meant)}?" if meant else f"expected model, {', '.join(known)}"
            raise UserError(f"{path}: unknown key {key}; {hint}")
    plain = {known[key]: number for key, number in found.items() if key in known}
    for name in ("tokens", "images", "dataset_size"):
        if isinstance(plain.get(name), str):
            plain[name] = formats.amount(plain[name], f"{path}: {name}")
    there = table(Fields, plain, str(path))
    wanted = found.get("model", "missing")
    if not isinstance(wanted, str) or not is_specification(wanted) or divided(wanted)[0].endswith(".toml"):
        raise UserError(f"{path}: model is {str(wanted)[:60]!r}, expected FILE.py[:NAME], hf:CONFIG.json or timm:NAME")
    inner = specification(_beside(path, wanted), given.over(replace(there, name=there.name or path.stem)))
    return inner if inner.computed else replace(inner, text=text)


def _beside(path: Path, wanted: str) -> str:
    """Return a model's text with its file, if it has one, relative to the folder of the TOML file that names it."""
    if wanted.startswith("hf:"):
        return f"hf:{path.parent / wanted.removeprefix('hf:')}"
    return str(path.parent / wanted) if _PYTHON.fullmatch(divided(wanted)[0]) else wanted


def missing(text: str, given: Fields) -> None:
    """Raise UserError, which asks for what is missing, unless the batch size and the length are given."""
    lengths = [key for key, (name, _) in KEYS.items() if name in _LENGTHS and getattr(given, name) is not None]
    if len(lengths) > 1:
        raise UserError(f"{text}: {' and '.join(lengths)} exclude each other: each says how long the training is")
    wanted = []
    if given.batch_size is None:
        wanted.append("its batch size, batch=N")
    if not lengths:
        wanted.append("its length, tokens=20B, images=100M, steps=N, or epochs=N with dataset=N")
    elif given.epochs is not None and given.dataset_size is None:
        wanted.append("the size of an epoch, dataset=N")
    if wanted:
        asked = ", and ".join(wanted)
        raise UserError(f"{text} needs {asked}, as in hf:llama.json@tokens=20B,batch=256; {_LISTED}")


def steps(text: str, given: Fields, inputs: Text | Images) -> int:
    """Return the number of training steps that the given length makes."""
    missing(text, given)
    assert given.batch_size is not None
    if given.training_steps is not None:
        return given.training_steps
    length, unit, other = (inputs.sequence, "tokens", "images") if isinstance(inputs, Text) else (1, "images", "tokens")
    if getattr(given, other) is not None:
        raise UserError(f"{text}: this model reads no {other}: give {unit}")
    units = getattr(given, unit)
    if units is None:
        assert given.epochs is not None
        assert given.dataset_size is not None
        units = given.epochs * given.dataset_size
    return max(1, math.ceil(units / length / given.batch_size))


def training(text: str, given: Fields, inputs: Text | Images, like: int | None = None) -> dict[str, Any]:
    """Return how a configured model is trained, as fields of its recipe, in `like` steps or those that its length
    makes."""
    assert given.batch_size is not None
    kind = "text" if isinstance(inputs, Text) else "images"
    rate, betas = RATES[kind]
    number = steps(text, given, inputs) if like is None else like
    warmup = given.warmup_steps if given.warmup_steps is not None else max(1, number // 100)
    return {
        "batch_size": given.batch_size,
        "training_steps": number,
        "precision": given.precision or ("bf16" if kind == "text" else "fp32"),
        "optimizer": Optimizer(given.optimizer or "AdamW", given.learning_rate or rate, betas),
        "schedule": replace(Recipe.schedule, kind=given.schedule or "cosine", warmup_steps=min(warmup, number)),
        "clip": given.clip or 1.0,
    }


def tiny(given: Fields, sequence: int | None) -> Fields:
    """Return the fields of a tiny version."""
    length = None if sequence is None else min(sequence, _TINY["sequence"])
    return replace(given, batch_size=_TINY["batch_size"], sequence=length, image_size=None, flops_per_example=None)
