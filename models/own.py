"""Recipes of your own: from a Python file, a TOML file, a transformers configuration or a timm name.

A command registers them at its start, by a text such as hf:llama.json and options, under an id that contains a hash of
both. Other processes get the same specification, and build the model from it. What a results folder holds of a recipe
is plain data, which describes the model and cannot build it.
"""

from __future__ import annotations

import ast
import hashlib
import json
import math
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args, get_type_hints

from repro import files
from repro.console import UserError, suggest_names
from repro.datafile import NotAsDeclaredError, load, value

from .recipe import Images, Optimizer, Precision, Recipe, Scale, Schedule, Text

if TYPE_CHECKING:
    from torch import nn

Source = Literal["python", "transformers", "timm"]
SPELLINGS = "FILE.py[:NAME], FILE.toml, hf:CONFIG.json or timm:NAME[:key=value,...]"
_ID = re.compile(r"[a-z0-9][a-z0-9._-]{0,39}-[0-9a-f]{8}")
EXPORTED, EXPORTED_CODE = "model.json", "model.py"
_TINY = {"batch_size": 16, "sequence": 64}  # of tiny versions: as of the paper's recipes
_LENGTHS = ("training_steps", "tokens", "images", "epochs")


@dataclass(frozen=True)
class Fields:
    """What a user gives of a recipe, by options or in a file; None for the rest. `dataset_size` is in images, or for
    text in tokens."""

    name: str | None = None
    batch_size: int | None = None
    training_steps: int | None = None
    tokens: float | None = None
    images: float | None = None
    epochs: float | None = None
    dataset_size: float | None = None
    sequence: int | None = None
    image_size: int | None = None
    precision: Precision | None = None
    optimizer: Literal["Adam", "AdamW"] | None = None
    learning_rate: float | None = None
    schedule: Literal["cosine", "linear"] | None = None
    warmup_steps: int | None = None
    clip: float | None = None
    layer: str | None = None
    flops_per_example: int | None = None
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
    imports from its folder. `text` is what the user wrote, for messages."""

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
        del plain["text"]
        if self.source != "timm":
            del plain["place"]
        return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()

    @property
    def stem(self) -> str:
        """Return a short name of the model."""
        return self.fields.name or self.object or (self.place if self.source == "timm" else Path(self.place).stem)

    @property
    def id(self) -> str:
        """Return the recipe's id: a short name and a hash, safe as a part of a file's name."""
        name = re.sub(r"[^a-z0-9._]+", "-", self.stem.lower()).strip("-._")[:40].rstrip("-._")
        return f"{name or 'model'}-{self.key[:8]}"


@dataclass(frozen=True)
class Described:
    """A recipe as plain data: all fields but `build`; of `text` and `images` one is given. Of a configured model
    `attention` is the implementation that free lunch takes, and `config` what builds it at this scale."""

    id: str
    scale: Scale
    name: str
    family: str
    batch_size: int
    training_steps: int
    precision: Precision
    optimizer: Optimizer
    schedule: Schedule
    clip: float | None
    layer: str
    width: int
    parameters: int
    flops_per_example: int
    text: Text | None = None
    images: Images | None = None
    block: str = ""
    module: str = ""
    compiles: bool = True
    attends: bool = True
    custom_kernels: bool = True
    attention: str = ""
    config: dict[str, Any] | None = None

    @classmethod
    def of(cls, recipe: Recipe, attention: str = "", config: dict[str, Any] | None = None) -> Described:
        """Return a recipe's data."""
        known = {each.name: getattr(recipe, each.name) for each in fields(cls) if hasattr(recipe, each.name)}
        inputs = recipe.inputs
        return cls(
            **known,
            text=inputs if isinstance(inputs, Text) else None,
            images=inputs if isinstance(inputs, Images) else None,
            attention=attention,
            config=config,
        )

    def recipe(self, build: Any) -> Recipe:
        """Return the recipe that has this data."""
        names = {each.name for each in fields(Recipe)}
        known = {each.name: getattr(self, each.name) for each in fields(self) if each.name in names}
        inputs = self.text or self.images
        assert inputs is not None
        return Recipe(**known, inputs=inputs, build=build)

    @property
    def plain(self) -> Described:
        """Return the data without what only building needs."""
        return replace(self, attention="", config=None)

    @property
    def problem(self) -> str:
        """Describe what no recipe of one's own has; empty where it is one."""
        counts = [self.batch_size, self.training_steps, self.width, self.parameters, self.flops_per_example]
        counts += [number for each in (self.text, self.images) if each is not None for number in asdict(each).values()]
        if not _ID.fullmatch(self.id):
            return f"{self.id!r} is no id of an own model"
        if (self.text is None) == (self.images is None):
            return f"{self.id} needs one of text and images"
        if any(not 0 < number < 10**30 for number in counts):
            return f"a number of {self.id} is not positive"
        return ""


@dataclass(frozen=True)
class Own:
    """A recipe of one's own with the specification that builds it, None where it was read from a results folder.
    `tiny` is its tiny version; without one, `no_tiny` says why."""

    paper: Described
    tiny: Described | None = None
    no_tiny: str = ""
    specification: Specification | None = None

    def recipe(self, scale: Scale) -> Recipe:
        """Return the recipe. Raise UserError where the model has no tiny version."""
        described = self.paper if scale == "paper" else self.tiny
        if described is None:
            raise UserError(f"{self.paper.id} has no tiny version: {self.no_tiny or 'none was derived'}")
        if self.specification is None:
            return described.recipe(partial(_cannot_build, described.id))
        return described.recipe(partial(build, self.specification, described))


_REGISTERED: dict[str, Own] = {}


def register(own: Own) -> None:
    """Make a recipe known to this process, in which `models.find` finds it. Raise UserError where another one has its
    id. One that can be built stays over one that was read."""
    id = own.paper.id
    known = _REGISTERED.get(id)
    if known is not None and _data(known) != _data(own):
        raise UserError(f"two models have the id {id}, and differ: leave one of their folders out")
    if known is None or known.specification is None or own.specification is not None:
        _REGISTERED[id] = own


def is_id(text: str) -> bool:
    """Return whether a text looks like the id of a recipe of one's own."""
    return bool(_ID.fullmatch(text))


def registered(id: str) -> Own | None:
    """Return the recipe of one's own with this id; None where this process knows none."""
    return _REGISTERED.get(id)


def specification_of(id: str) -> Specification | None:
    """Return what builds a recipe of one's own; None for one that was read from a results folder, or another id."""
    own = _REGISTERED.get(id)
    return None if own is None else own.specification


def _cannot_build(id: str, custom_kernels: bool, attention: str) -> nn.Module:
    raise UserError(f"{id} was read from a results folder, which cannot build a model: name its file in --models")


def _data(own: Own) -> list[Described]:
    return [each.plain for each in (own.paper, own.tiny) if each is not None]


def described(ids: Iterable[str]) -> list[Described]:
    """Return the data of recipes of one's own at each of their scales; nothing for other ids."""
    return [each for id in ids if id in _REGISTERED for each in _data(_REGISTERED[id])]


def read(file: Path) -> list[str]:
    """Register the recipes of a results folder as data, and return their ids. Raise NotAsDeclaredError for other
    content, and UserError for a recipe that differs from a known one of its id."""
    found = value(list[Described], load(file))
    if problem := next(filter(None, (each.problem for each in found)), ""):
        raise NotAsDeclaredError(problem)
    tiny = {each.id: each for each in found if each.scale == "tiny"}
    for each in found:
        if each.scale == "paper":
            register(Own(each.plain, tiny.get(each.id) and tiny[each.id].plain))
    return list(dict.fromkeys(each.id for each in found))


def exported(id: str) -> dict[str, bytes]:
    """Return the files from which `read_exported` registers a recipe elsewhere: its specification, and its Python file
    where that imports nothing of its folder. Empty for another recipe. Raise UserError for one that was read from a
    results folder."""
    known = _REGISTERED.get(id)
    if known is None:
        return {}
    found = known.specification
    if found is None:
        raise UserError(f"{id} was read from a results folder, which cannot build it: name its model as the run did")
    copied = {}
    if found.source == "python":
        contents = _read(Path(found.place), found.text)
        if hashlib.sha256(contents).hexdigest() == found.digest:
            copied, found = {EXPORTED_CODE: contents}, replace(found, place=EXPORTED_CODE)
    return {EXPORTED: json.dumps(asdict(replace(known, specification=found)), indent=1).encode(), **copied}


def read_exported(file: Path) -> None:
    """Register the recipe of an exported file, whose Python file, if it has one, lies beside it."""
    found = value(Own, load(file))
    if found.specification is not None and found.specification.source == "python":
        beside = str(file.parent / found.specification.place)  # a place that is absolute stays
        found = replace(found, specification=replace(found.specification, place=beside))
    register(found)


def is_specification(text: str) -> bool:
    """Return whether a text names a model of one's own."""
    file = re.split(r"\.py:(?=[A-Za-z_]\w*$)", text)[0]
    return (
        text.startswith(("hf:", "timm:")) or file.endswith((".py", ".toml")) or f"{file}.py" == text.rpartition(":")[0]
    )


def specification(text: str, given: Fields) -> Specification:
    """Return the specification that a text and options make. Raise UserError where a file is missing or broken."""
    kind, _, rest = text.partition(":")
    if kind == "timm":
        name, _, arguments = rest.partition(":")
        if not name:
            raise UserError(f"{text}: expected timm:NAME, such as timm:vit_small_patch16_224")
        return Specification(text, "timm", name, given, config=_arguments(text, arguments))
    if kind == "hf":
        return _of_transformers(text, Path(rest), given)
    if text.endswith(".toml"):
        return _of_toml(text, given)
    file, _, name = text.partition(".py:")
    path = Path(f"{file}.py" if name else text)
    contents = _read(path, text)
    digest = hashlib.sha256(contents).hexdigest()
    return Specification(text, "python", str(path.absolute()), given, object=name, digest=digest)


def _read(path: Path, text: str) -> bytes:
    try:
        return files.read(path, 2**26)
    except OSError as error:
        raise UserError(f"{text}: {path} cannot be read ({error.strerror}); name a model's file") from None


def _arguments(text: str, arguments: str) -> dict[str, Any]:
    found = {}
    for pair in filter(None, re.split(r",(?=\w+=)", arguments)):
        key, equals, plain = pair.partition("=")
        if not equals or not re.fullmatch(r"[A-Za-z_]\w*", key):
            raise UserError(f"{text}: expected timm:NAME:key=value,..., found {pair!r}")
        try:
            found[key] = ast.literal_eval(plain)
        except (ValueError, SyntaxError):
            found[key] = plain
    return found


def _of_transformers(text: str, path: Path, given: Fields) -> Specification:
    file = path / "config.json" if path.is_dir() else path
    try:
        config = json.loads(_read(file, text))
    except ValueError as error:
        raise UserError(f"{text}: {file} is not JSON ({error}); name a transformers configuration") from None
    if not isinstance(config, dict) or not isinstance(config.get("model_type"), str):
        raise UserError(f"{text}: {file} has no model_type, as every transformers configuration has")
    return _configured(text, file, config, given)


def _configured(text: str, file: Path, config: dict[str, Any], given: Fields) -> Specification:
    name = given.name or (file.absolute().parent.name if file.name == "config.json" else file.stem)
    return Specification(text, "transformers", str(file.absolute()), replace(given, name=name), config=config)


def _of_toml(text: str, given: Fields) -> Specification:
    """Return the specification of a TOML file: the fields, and `model` as on the command line, or a table `config`."""
    path = Path(text)
    try:
        found = tomllib.loads(_read(path, text).decode())
    except ValueError as error:
        raise UserError(f"{path}: not TOML ({error})") from None
    known = [each.name for each in fields(Fields)]
    for key in found:
        if key not in (*known, "model", "config"):
            meant = suggest_names(key, (*known, "model", "config"))
            hint = f"did you mean {' or '.join(meant)}?" if meant else f"expected model, config, {', '.join(known)}"
            raise UserError(f"{path}: unknown key {key}; {hint}")
    plain = {name: found[name] for name in known if name in found}
    for name in ("tokens", "images", "dataset_size"):
        if isinstance(plain.get(name), str):
            plain[name] = quantity(plain[name], f"{path}: {name}")
    own = checked(plain, str(path))
    wanted, config = found.get("model"), found.get("config")
    if (wanted is None) == (config is None):
        raise UserError(
            f'{path}: expected one of model = "hf:config.json" (or timm:NAME, FILE.py) and a table [config]'
        )
    if config is not None:
        if not isinstance(config, dict) or not isinstance(config.get("model_type"), str):
            raise UserError(f"{path}: [config] has no model_type, as every transformers configuration has")
        return _configured(text, path, config, given.over(own))
    if not isinstance(wanted, str) or not is_specification(wanted) or wanted.endswith(".toml"):
        raise UserError(f"{path}: model is {str(wanted)[:60]!r}, expected FILE.py[:NAME], hf:CONFIG.json or timm:NAME")
    inner = specification(_beside(path, wanted), given.over(replace(own, name=own.name or path.stem)))
    return replace(inner, text=text)


def _beside(path: Path, wanted: str) -> str:
    """Return a model's text with its file relative to the folder of the TOML file that names it."""
    kind, _, rest = wanted.partition(":")
    if kind == "timm":
        return wanted
    return f"hf:{path.parent / rest}" if kind == "hf" else str(path.parent / wanted)


def checked(plain: Mapping[str, Any], place: str) -> Fields:
    """Return fields after a check of their types and bounds. Raise UserError for the first that is wrong."""
    kinds = get_type_hints(Fields)
    for name, found in plain.items():
        try:
            converted = value(Fields, {name: found})
        except NotAsDeclaredError:
            expected = _expected(kinds[name])
            raise UserError(f"{place}: {name} is {found!r}, expected {expected}") from None
        number = getattr(converted, name)
        if isinstance(number, int | float) and not isinstance(number, bool) and not 0 < number < 1e18:
            raise UserError(f"{place}: {name} is {found!r}, expected a number above 0")
    return value(Fields, dict(plain))


def _expected(kind: Any) -> str:
    [kind] = [each for each in get_args(kind) if each is not type(None)]
    words = get_args(kind)
    if words:
        return f"one of {', '.join(words)}"
    return {int: "a whole number", float: "a number", bool: "true or false"}.get(kind, "some text")


_UNITS = {"": 1, "k": 10**3, "m": 10**6, "b": 10**9, "t": 10**12}


def quantity(text: str, place: str) -> float:
    """Parse a number of tokens or images: 300000, 1.28M, 20B, 1.5T. Raise UserError for other text."""
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*([kmbt]?)", text.strip().lower())
    if not found or len(found[1]) > 18 or not float(found[1]):
        raise UserError(f"{place} {text}: expected a number such as 300000, 1.28M or 20B")
    return float(found[1]) * _UNITS[found[2]]


def missing(text: str, given: Fields, is_text: bool | None = None) -> None:
    """Raise UserError, which asks for what is missing, unless the batch size and the length are given."""
    lengths = [name for name in _LENGTHS if getattr(given, name) is not None]
    if len(lengths) > 1:
        named = " and ".join(f"--{name.replace('_', '-')}" for name in lengths)
        raise UserError(f"{text}: {named} exclude each other: each says how long the training is")
    wanted = []
    if given.batch_size is None:
        wanted.append("its batch size, --batch-size N")
    if not lengths:
        amount = {True: "--tokens 20B", False: "--images 100M", None: "--tokens 20B or --images 100M"}[is_text]
        wanted.append(f"its length, --training-steps N, {amount}, or --epochs N with --dataset-size N")
    elif given.epochs is not None and given.dataset_size is None:
        wanted.append("the size of an epoch, --dataset-size N")
    if wanted:
        raise UserError(f"{text} needs {', and '.join(wanted)}")


def steps(text: str, given: Fields, inputs: Text | Images) -> int:
    """Return the number of training steps that the given length makes."""
    missing(text, given, isinstance(inputs, Text))
    assert given.batch_size is not None
    if given.training_steps is not None:
        return given.training_steps
    examples = given.images
    if isinstance(inputs, Text):
        if examples is not None:
            raise UserError(f"{text}: --images counts images, and this model reads text: give --tokens")
        examples = None if given.tokens is None else given.tokens / inputs.sequence
    elif given.tokens is not None:
        raise UserError(f"{text}: --tokens counts tokens, and this model reads images: give --images")
    if examples is None:
        assert given.epochs is not None
        assert given.dataset_size is not None
        size = given.dataset_size / (inputs.sequence if isinstance(inputs, Text) else 1)
        examples = given.epochs * size
    return max(1, math.ceil(examples / given.batch_size))


def tiny(given: Fields, sequence: int | None) -> Fields:
    """Return the fields of a tiny version."""
    length = None if sequence is None else min(sequence, _TINY["sequence"])
    return replace(given, batch_size=_TINY["batch_size"], sequence=length, image_size=None, flops_per_example=None)


def build(specification: Specification, described: Described, custom_kernels: bool, attention: str) -> nn.Module:
    """Build the model of a recipe of one's own."""
    from . import configured

    if specification.source == "python":
        recipe = configured.from_file(specification, described.scale)
        return recipe.build(custom_kernels, attention)
    assert described.config is not None
    if specification.source == "timm":
        return configured.timm_model(specification.place, described.config, custom_kernels)
    chosen = described.attention if custom_kernels else "eager"
    return configured.transformers_model(described.config, chosen)
