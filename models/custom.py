"""Recipes of your own: from a Python file, a TOML file, a transformers configuration or a timm name.

A command registers them at its start, by a word such as hf:llama.json@tokens=20B,batch=256, under an id that contains
a hash of what the word says. Other processes get the same specification, and build the model from it. What a results
folder holds of a recipe is plain data, which describes the model and cannot build it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta

from repro.console import UserError
from repro.datafile import Count, NotAsDeclaredError, from_json, load, to_json

from .recipe import Images, Optimizer, Precision, Recipe, Scale, Schedule, Text, Whole
from .specification import Specification, contents_of

if TYPE_CHECKING:
    from torch import nn

_ID = r"[a-z0-9][a-z0-9._-]{0,39}-[0-9a-f]{8}"
EXPORTED, EXPORTED_CODE = "model.json", "model.py"


@dataclass(frozen=True)
class Frozen:
    """The weights that no loss reaches, by their names in the model of naive settings and in that with custom kernels;
    `weights` counts those of the first. They are not trained: without a gradient they would stop
    DistributedDataParallel."""

    weights: int = 0
    naive: list[str] = field(default_factory=list)
    custom: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Described:
    """A recipe as plain data: all fields but `build`; of `text` and `images` one is given. Of a configured model
    `attention` is the implementation that free lunch takes, `config` what builds it at this scale, and `built` names
    its class. `slow_scan`: it was found without the kernel of its scan."""

    id: Annotated[str, Meta(pattern=rf"^{_ID}\Z")]
    scale: Scale
    name: str
    family: str
    batch_size: Count
    training_steps: Whole
    precision: Precision
    optimizer: Optimizer
    schedule: Schedule
    clip: float | None
    layer: str
    width: Whole
    parameters: Whole
    flops_per_example: Whole
    text: Text | None = None
    images: Images | None = None
    module: str = ""
    compiles: bool = True
    attends: bool = True
    custom_kernels: bool = True
    attention: str = ""
    config: dict[str, Any] | None = None
    frozen: Frozen = Frozen()
    built: str = ""
    slow_scan: bool = False

    @classmethod
    def of(cls, recipe: Recipe) -> Described:
        """Return a recipe's data."""
        known = {each.name: getattr(recipe, each.name) for each in fields(cls) if hasattr(recipe, each.name)}
        inputs = recipe.inputs
        return cls(
            **known,
            text=inputs if isinstance(inputs, Text) else None,
            images=inputs if isinstance(inputs, Images) else None,
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
        """Return the data without what only building needs, or what depends on the machine."""
        return replace(self, attention="", config=None, frozen=Frozen(), built="", slow_scan=False)


@dataclass(frozen=True)
class CustomModel:
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


_REGISTERED: dict[str, CustomModel] = {}
_WITH_TINY: dict[str, Callable[[], CustomModel]] = {}  # by id: what makes the tiny version once it is asked for


def register(model: CustomModel, with_tiny: Callable[[], CustomModel] | None = None) -> None:
    """Make a recipe known to this process, in which `models.find` finds it; `with_tiny` returns it with a tiny version,
    if that was not made yet. Raise UserError where another one has its id. One that can be built stays over one that
    was read."""
    id = model.paper.id
    known = _REGISTERED.get(id)
    scales = ((known.paper, model.paper), (known.tiny, model.tiny)) if known is not None else ()
    if any(one and other and one.plain != other.plain for one, other in scales):
        raise UserError(f"two models have the id {id}, and differ: leave one of their folders out")
    if known is None or known.specification is None or model.specification is not None:
        _REGISTERED[id] = model
    if with_tiny is not None:
        _WITH_TINY[id] = with_tiny


def find(id: str, scale: Scale) -> Recipe | None:
    """Return the recipe of one's own with this id, at a scale; None where this process knows none. Raise UserError
    where it has no tiny version."""
    known = _REGISTERED.get(id)
    if known is not None and scale == "tiny" and known.tiny is None and id in _WITH_TINY:
        known = _REGISTERED[id] = _WITH_TINY.pop(id)()
    return None if known is None else known.recipe(scale)


def is_id(text: str) -> bool:
    """Return whether a text looks like the id of a recipe of one's own."""
    return bool(re.fullmatch(_ID, text))


def registered(id: str) -> CustomModel | None:
    """Return the recipe of one's own with this id; None where this process knows none."""
    return _REGISTERED.get(id)


def specification_of(id: str) -> Specification | None:
    """Return what builds a recipe of one's own; None for one that was read from a results folder, or another id."""
    known = _REGISTERED.get(id)
    return None if known is None else known.specification


def _cannot_build(id: str, custom_kernels: bool, attention: str) -> nn.Module:
    raise UserError(f"{id} was read from a results folder, which cannot build a model: name its file in --models")


def described(ids: Iterable[str]) -> list[dict[str, Any]]:
    """Return recipes of one's own as JSON, at each of their scales; nothing for other ids. A configuration or timm's
    name goes with it, never code, and of files their name alone."""
    return [data for id in ids if id in _REGISTERED for data in _described(_REGISTERED[id])]


def _described(model: CustomModel) -> Iterator[dict[str, Any]]:
    specification = model.specification
    for each in filter(None, (model.paper, model.tiny)):
        if specification is None:
            yield to_json(each.plain)
            continue
        named = specification.place if specification.source == "timm" else Path(specification.place).name
        stored = replace(specification, text=named, place=named, config=without_code(specification.config))
        config = None if each.config is None else without_code(each.config)
        yield to_json(replace(each, config=config)) | {"specification": to_json(stored)}


def specifications(file: Path) -> list[Specification]:
    """Return what built the recipes of a results folder, of a Python file without its code. Nothing is built by it."""
    found = [each["specification"] for each in load(file) if isinstance(each, dict) and "specification" in each]
    return list({each.id: each for each in (from_json(Specification, one) for one in found)}.values())


def register_buildable(file: Path) -> None:
    """Register the recipes of a results folder that a configuration or a name of timm builds. Raise NotAsDeclaredError
    for other content."""
    for specification in specifications(file):
        if specification.source == "python":
            continue
        specification = replace(specification, config=without_code(specification.config))
        scales = {
            each.scale: replace(each, config=each.config and without_code(each.config))
            for each in from_json(list[Described], load(file))
            if each.id == specification.id
        }
        if "paper" in scales:
            register(CustomModel(scales["paper"], scales.get("tiny"), specification=specification))


def without_code(config: dict[str, Any]) -> dict[str, Any]:
    """Return a configuration without the entries by which transformers finds a model's own code."""
    return {
        key: without_code(entry) if isinstance(entry, dict) else entry
        for key, entry in config.items()
        if key not in ("auto_map", "custom_pipelines", "trust_remote_code")
    }


def read(file: Path) -> list[str]:
    """Register the recipes of a results folder as data, and return their ids. Raise NotAsDeclaredError for other
    content, and UserError for a recipe that differs from a known one of its id."""
    found = from_json(list[Described], load(file))
    if wrong := [each.id for each in found if (each.text is None) == (each.images is None)]:
        raise NotAsDeclaredError(f"{wrong[0]} needs one of text and images")
    tiny = {each.id: each for each in found if each.scale == "tiny"}
    for each in found:
        if each.scale == "paper":
            register(CustomModel(each.plain, tiny.get(each.id) and tiny[each.id].plain))
    return list(dict.fromkeys(each.id for each in found))


def exported(id: str) -> dict[str, str]:
    """Return the files from which `read_exported` registers a recipe elsewhere: its specification, and its Python file
    where that imports nothing of its folder. Empty for another recipe. Raise UserError for one that was read from a
    results folder."""
    known = _REGISTERED.get(id)
    if known is None:
        return {}
    found = known.specification
    if found is None:
        raise UserError(f"{id} was read from a results folder, which has no code: name its file, as --models FILE.py")
    copied = {}
    if found.source == "python":
        contents = contents_of(Path(found.place), found.text)
        if hashlib.sha256(contents).hexdigest() == found.digest:
            try:
                copied = {EXPORTED_CODE: contents.decode()}
            except UnicodeDecodeError:
                raise UserError(f"{found.place} is not UTF-8: save it so") from None
            found = replace(found, place=EXPORTED_CODE)
    return {EXPORTED: json.dumps(asdict(replace(known, specification=found)), indent=1), **copied}


def read_exported(file: Path) -> None:
    """Register the recipe of an exported file, whose Python file, if it has one, lies beside it."""
    found = from_json(CustomModel, load(file))
    if found.specification is not None and found.specification.source == "python":
        beside = str(file.parent / found.specification.place)  # a place that is absolute stays
        found = replace(found, specification=replace(found.specification, place=beside))
    register(found)


def build(specification: Specification, described: Described, custom_kernels: bool, attention: str) -> nn.Module:
    """Build the model of a recipe of one's own, without gradients of the weights that take no part."""
    model = _build(specification, described, custom_kernels, attention)
    frozen = {*(described.frozen.custom if custom_kernels else described.frozen.naive)}
    for name, weight in model.named_parameters():
        if name in frozen:
            weight.requires_grad_(False)
    return model


def _build(specification: Specification, described: Described, custom_kernels: bool, attention: str) -> nn.Module:
    from . import configured

    if specification.source == "python":
        recipe, _, digest = configured.load_file(specification, described.scale)
        if digest != specification.digest:
            raise UserError(f"{specification.place} changed after the command began: run it again")
        return recipe.build(custom_kernels, attention)
    assert described.config is not None
    return configured.build(specification, described.config, described.attention if custom_kernels else "eager")
