"""Training methods of one's own: hooks into the model, the optimizer or the loss, by name from a Python file."""

from __future__ import annotations

import hashlib
import re
import sys
import types
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from repro.console import UserError, one_line, suggest_names
from repro.formats import listing
from repro.paper.settings import WORDS

if TYPE_CHECKING:
    import torch
    from torch import nn

    from ..models.recipe import Optimizer

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,39}")  # it becomes part of settings, ids and names of logs
_DIGITS = 8  # of the hash in an id
EXAMPLE = "examples/methods.py:chunked_loss"


@dataclass(frozen=True)
class Method:
    """A training method of your own. Each hook is optional, and is called in every process that trains.

    `module(model)` returns the model to train, changed or another, with the same weights to train. `model` takes a
    batch's tensors by name and returns the mean loss; its attribute `model` is the transformers or timm model. The hook
    is called before the model is checkpointed, sharded, compiled or wrapped, under torch's default device for it.

    `optimizer(parameters, given)` returns the optimizer. `given` has the recipe's `name` (Adam or AdamW), `rate` (the
    peak), `betas` and `eps`. The schedule of the learning rate is applied to what it returns.

    `loss(model, batch)` returns the mean loss, a scalar tensor, in place of `model(**batch)`.
    """

    module: Callable[[nn.Module], nn.Module] | None = None
    optimizer: Callable[[Iterable[nn.Parameter], Optimizer], torch.optim.Optimizer] | None = None
    loss: Callable[[nn.Module, dict[str, torch.Tensor]], torch.Tensor] | None = None


class MethodError(RuntimeError):
    """An error of a method, in one line."""


class UnfitError(MethodError):
    """An error where a model lacks what a part of modern training changes."""


@dataclass(frozen=True)
class MethodFile:
    """The Python file at `path` (absolute) that defines the method `name`, and the `sha256` of its content as the
    command began."""

    name: str
    path: str
    sha256: str

    @property
    def where(self) -> str:
        """Return the method and its file for a message."""
        return f"{self.name} of {Path(self.path).name}"


@dataclass(frozen=True)
class Added:
    """The methods of one file, by its name without a folder, that are added to settings together, and the hash of its
    content."""

    file: str
    methods: tuple[str, ...]
    digest: str


def methods_of(given: Sequence[str]) -> tuple[tuple[Added, ...], tuple[MethodFile, ...]]:
    """Return what each `--with FILE.py:METHOD` or `FILE.py:A+B` adds, and the file of every method. Nothing is run
    yet. Raise UserError for what is wrong with them."""
    added: dict[tuple[str, ...], Added] = {}
    files: dict[str, MethodFile] = {}
    for text in given:
        path, _, names = text.rpartition(":")
        if not path.endswith(".py") or not names:
            raise UserError(f"--with {text}: expected FILE.py:METHOD, such as {EXAMPLE}")
        sha256, known = _read(Path(path), f"--with {text}")
        together = tuple(names.split("+"))
        for name in together:
            _check_name(name, path, known, f"--with {text}")
            found = MethodFile(name, str(Path(path).resolve()), sha256)
            if files.setdefault(name, found) != found:
                raise UserError(f"--with {text}: {files[name].path} has a method {name}, too; rename one of them")
        if together in added or len({*together}) < len(together):
            raise UserError(f"--with {text}: {names} is named twice; name each once")
        added[together] = Added(Path(path).name, together, sha256[:_DIGITS])
    return tuple(added.values()), tuple(files.values())


def _read(path: Path, option: str) -> tuple[str, tuple[str, ...]]:
    """Return the hash of a Python file and the names that its top level uses or defines, without running it."""
    try:
        source = path.read_bytes()
        return hashlib.sha256(source).hexdigest(), compile(source, path, "exec").co_names
    except OSError as error:
        raise UserError(f"{option}: {path} cannot be read: {error.strerror}") from None
    except (SyntaxError, ValueError) as error:
        line = f", line {error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
        raise UserError(f"{option}: {path}{line} is no Python: {getattr(error, 'msg', error)}") from None


def _check_name(name: str, path: str, names: Sequence[str], option: str) -> None:
    if not _NAME.fullmatch(name) or name in WORDS:
        raise UserError(
            f"{option}: {name!r} is no name for a method: expected up to 40 letters, digits and _, and no word of the "
            "paper's settings, such as zero_3"
        )
    if name not in names:
        meant = suggest_names(name, [each for each in names if not each.startswith("_")])
        there = f"; did you mean {listing(meant[:5])}?" if meant else ""
        raise UserError(f"{option}: {Path(path).name} defines no {name}{there}")


def load(names: Sequence[str], files: Iterable[MethodFile]) -> dict[str, Method]:
    """Run the files of these methods, and return the methods by name. Raise MethodError in one line."""
    known = {file.name: file for file in files}
    found: dict[str, Method] = {}
    for name in names:
        if name not in known:
            raise MethodError(f"the method {name} was not given here: start the command on every node with its --with")
        found[name] = _method(known[name])
    for hook in ("optimizer", "loss"):
        both = [name for name, method in found.items() if getattr(method, hook) is not None]
        if len(both) > 1:
            raise MethodError(f"{listing(both)} both replace the {hook}: use one of them")
    return found


def _method(file: MethodFile) -> Method:
    path = Path(file.path)
    try:
        source = path.read_bytes()
    except OSError as error:
        raise MethodError(f"{path.name} cannot be read: {error.strerror}") from None
    if hashlib.sha256(source).hexdigest() != file.sha256:
        raise MethodError(f"{path.name} has changed since the command began: run the same command again")
    module = types.ModuleType(f"repro_method_{path.stem}")
    module.__file__ = file.path
    sys.modules[module.__name__] = module  # where torch.compile and data classes look it up
    if (folder := str(path.parent)) not in sys.path:
        sys.path.append(folder)  # last: it may import what lies beside it, and replaces nothing
    try:
        exec(compile(source, file.path, "exec"), vars(module))
    except Exception as error:
        raise MethodError(f"{path.name} does not import: {one_line(error)}") from error
    found = getattr(module, file.name, None)
    if not isinstance(found, Method):
        raise MethodError(
            f"{file.where} is no repro.Method, but {type(found).__name__}: write {file.name} = Method(...)"
        )
    hooks = [found.module, found.optimizer, found.loss]
    if not any(hooks) or not all(hook is None or callable(hook) for hook in hooks):
        raise MethodError(f"{file.where} needs a function as its module, optimizer or loss: it changes nothing")
    return found


def methods_text(files: Sequence[MethodFile]) -> str:
    """Return the methods with the hashes of their files, which all nodes of a run must have alike."""
    return ", ".join(f"{file.name} {file.sha256[:_DIGITS]}" for file in files) or "none"
