"""Recipes of one's own without torch: what a process of their own found out about them, kept by content.

The cache is $XDG_CACHE_HOME/repro/models, by default in ~/.cache. What it holds is data, and never executed.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from repro import __version__, datafile, files
from repro.console import UserError, say
from repro.datafile import NotAsDeclaredError
from repro.installation import installed, way_to_install
from repro.machine.processes import MARK, kill_marked
from repro.machine.stack import process_environment

from ..models import custom
from ..models import shipped as shipped_models
from ..models.custom import CustomModel
from ..models.recipe import Recipe
from ..models.specification import Fields, Specification
from . import decoders
from .decoders import Decoder
from .traces import FOLDER, Trace, Traced, Variant, can_trace, find, load, shipped

_MODULE = "repro.predict.trace.custom"
_PACKAGES = ("torch", "transformers", "timm")
_FORMAT = 5  # of what is kept: another where the same model is described or traced in another way
ANSWER = "answer.json"
POPULAR = FOLDER / "popular"
_SOON, _MOST = 10, 600  # seconds: after these a description that takes long is reported, and is ended


@dataclass(frozen=True)
class Cached:
    """A description in the cache: valid while the files that it came from, by path, have these hashes."""

    model: CustomModel
    imports: dict[str, str] = field(default_factory=dict)


def describe(specification: Specification, tiny: bool = False) -> CustomModel:
    """Return the recipe that a specification makes, from the cache or from a process that builds it without weights;
    where asked, with its `tiny` version, or why it has none. That of a popular model is shipped."""
    if not tiny and (known := _without_torch(specification)) is not None:
        return known
    here = json.dumps([_FORMAT, __version__, *map(installed, _PACKAGES)])
    file = _cache() / f"{hashlib.sha256(f'{specification.key} {here}'.encode()).hexdigest()[:32]}.json"
    found = _kept(file, specification)
    if found is None:
        found = _described({"describe": asdict(specification)}, specification.text, file)
    if tiny and found.model.tiny is None and not found.model.no_tiny:
        found = _described({"tiny": asdict(found)}, specification.text, file)
    return found.model


def _without_torch(specification: Specification) -> CustomModel | None:
    """Return the recipe of a popular model or of a decoder, which is shipped or computed; of a decoder's configuration
    only where no torch can trace it."""
    computes = specification.computed or (specification.source == "transformers" and installed("torch") is None)
    return (decoders.description(specification) if computes else None) or shipped_models.description(specification)


def _kept(file: Path, specification: Specification) -> Cached | None:
    """Return the description in the cache, where it is of this place and of files as they are; else None."""
    with contextlib.suppress(NotAsDeclaredError):
        cached = datafile.read(file, Cached)
        made = cached.model.specification
        of_here = made is not None and (made.source, made.place) == (specification.source, specification.place)
        if of_here and all(map(_unchanged, cached.imports.items())):
            return cached
    return None


def _described(request: dict[str, Any], text: str, file: Path) -> Cached:
    """Return the answer to a request for a description, and keep it in a file."""
    slow = f"still being imported and built without weights, after {_SOON} s; it may take {_MOST // 60:.0f} min"
    answer = _asked(request, text, _MOST, f"{text}: {slow}")
    try:
        found = datafile.from_json(Cached, answer)
    except NotAsDeclaredError as error:
        raise UserError(f"{text}: its recipe is not as declared ({error})") from None
    with contextlib.suppress(UserError):  # a cache that cannot be written saves no time
        datafile.write(file, asdict(found))
    return found


def _unchanged(item: tuple[str, str]) -> bool:
    path, digest = item
    with contextlib.suppress(OSError):
        return hashlib.sha256(files.read(Path(path))).hexdigest() == digest
    return False


def trace_of(recipe: Recipe, variant: Variant) -> Trace:
    """Return the trace of a recipe of one's own: that which is shipped of a popular model, else one on the installed
    stack, which is made on first use and kept. Raise UserError where it cannot be made here."""
    if decoder := _decoder(recipe):
        return decoder.trace(recipe.id, variant)
    if id := _shipped(recipe):
        return find(id, variant, stack(recipe), folder=POPULAR)
    folder = _folder(recipe)
    if not _traces(folder):
        _make(recipe, folder)
    id, scale, _ = next(iter(load(stack(recipe), folder)))  # of a recipe with another length, perhaps
    return find(id, variant, stack(recipe), scale, folder)


def _decoder(recipe: Recipe) -> Decoder | None:
    """Return a recipe as the decoder whose costs are computed; None where they are not."""
    known = custom.registered(recipe.id)
    if known is None or known.specification is None or recipe.scale != "paper":
        return None
    return decoders.decoder_of(known) if known.specification.computed or installed("torch") is None else None


def _shipped(recipe: Recipe) -> str | None:
    """Return the id under which the traces of a popular model are shipped; None of another model."""
    asked = custom.specification_of(recipe.id)
    return shipped_models.name_of(asked) if asked is not None and recipe.scale == "paper" else None


def is_traced(recipe: Recipe) -> bool:
    """Return whether a recipe has a trace already."""
    if not traces_here(recipe):
        return True
    return custom.specification_of(recipe.id) is not None and _traces(_folder(recipe))


def _traces(folder: Path) -> bool:
    return installed_stack() in shipped(folder)


def _folder(recipe: Recipe) -> Path:
    """Return the folder of a recipe's traces, which its length, batch size and optimizer do not change."""
    specification = custom.specification_of(recipe.id)
    if specification is None:
        raise UserError(f"{recipe.id} was read from a results folder, and a trace needs its model: name it in --models")
    kept = replace(specification, text="", fields=Fields())
    plain = [kept.key, recipe.scale, recipe.precision, asdict(recipe.inputs), recipe.layer, __version__, _FORMAT]
    return _cache() / "traces" / hashlib.sha256(json.dumps(plain).encode()).hexdigest()[:32]


def stack(recipe: Recipe) -> Traced:
    """Return the stack that traces a recipe of one's own: the installed one, or that of a popular model's traces."""
    if _decoder(recipe):
        return decoders.stack()
    return shipped(POPULAR)[-1] if _shipped(recipe) else installed_stack()


def traces_here(recipe: Recipe) -> bool:
    """Return whether a recipe is one of one's own whose trace is made on the installed stack."""
    return custom.registered(recipe.id) is not None and not (_decoder(recipe) or _shipped(recipe))


def installed_stack() -> Traced:
    """Return the installed stack, which traces models of one's own. Raise UserError where a package is missing."""
    found = {name: installed(name) for name in ("transformers", "timm", "torch")}
    if lacking := [name for name, version in found.items() if version is None]:
        raise UserError(
            f"a model of your own is built with {', '.join(lacking)}, not installed here: {way_to_install()}"
        )
    return Traced(**{name: (version or "").partition("+")[0] for name, version in found.items()})


def _make(recipe: Recipe, folder: Path) -> None:
    known = custom.registered(recipe.id)
    assert known is not None
    assert known.specification is not None
    if not can_trace():
        raise UserError(f"tracing needs torch 2.4 or newer, this is {installed('torch')}")
    say(f"{recipe.id}: tracing {recipe.parameters / 1e9:.3g} B weights, once; some seconds for each 10 layers")
    request = {"trace": asdict(known), "scale": recipe.scale, "folder": str(folder)}
    _asked(request, known.specification.text, 3 * _MOST)


def _asked(request: dict[str, Any], text: str, most: float, slow: str = "") -> Any:
    """Return the answer of a process that has torch, after `most` seconds at the latest; say `slow` where it takes
    longer than some. Raise UserError for its error. Neither a thread nor a process that a user's file leaves keeps the
    answer back: it comes in a file, and all that was started ends with it."""
    installed_stack()
    with TemporaryDirectory(prefix="repro-") as name:
        folder, mark = Path(name), f"{os.getpid()}-{time.monotonic_ns()}"
        (folder / "request.json").write_text(json.dumps(request))
        with (folder / "request.json").open() as asked, (folder / "log").open("w") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", _MODULE],
                stdin=asked,
                stdout=log,
                stderr=log,
                cwd=folder,
                env=process_environment({"CUDA_VISIBLE_DEVICES": "", "TQDM_DISABLE": "1", MARK: mark}),
            )
        try:
            if slow:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(min(_SOON, most))
                if process.poll() is None:
                    say(slow)
            process.wait(most)
        except subprocess.TimeoutExpired:
            last = _last(folder) or "it said nothing"
            raise UserError(f"{text}: it was ended after {most / 60:.0f} min without an answer: {last}") from None
        finally:
            process.kill()
            process.wait()
            kill_marked(mark)
        try:
            answer = datafile.load(folder / ANSWER)
        except NotAsDeclaredError:
            last = _last(folder) or f"exit code {process.returncode}"
            raise UserError(f"{text}: its description failed: {last}") from None
    if "error" in answer:
        raise UserError(answer["error"])
    if "failed" in answer:
        raise UserError(f"{text}: its description failed: {answer['failed']}")
    return answer


def _last(folder: Path) -> str:
    """Return the last line that the process said."""
    lines = [line for line in (folder / "log").read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1][:300] if lines else ""


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "repro" / "models"
