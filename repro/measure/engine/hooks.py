"""The hooks of methods of one's own, and of parts, at work: each is called with checks, and its errors name it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from torch import nn

from repro.console import one_line
from repro.measure.memory import is_out_of_memory

from ..method import Method, MethodError, MethodFile, load

if TYPE_CHECKING:
    from ...models.recipe import Optimizer


class Hooks:
    """The methods of one trial, and the hooks of its `parts`. Without any, all stays as it is."""

    def __init__(self, names: Sequence[str], files: Sequence[MethodFile], parts: Mapping[str, Method]) -> None:
        self._methods: dict[str, Method] = load(names, files) | dict(parts)

    @property
    def change_the_graph(self) -> bool:
        """Return whether a method changes what torch.compile sees."""
        return any(method.module or method.loss for method in self._methods.values())

    def module(self, module: nn.Module) -> nn.Module:
        """Return the model as the methods change it, with their loss. Raise MethodError where its weights differ."""
        for name, method in self._methods.items():
            if method.module is not None:
                before = weights_to_train(module)
                with _named(name, "module"):
                    changed = method.module(module)
                if not isinstance(changed, nn.Module):
                    raise MethodError(f"{name}: its module returned {type(changed).__name__}, not the model")
                if (after := weights_to_train(changed)) != before:
                    raise MethodError(
                        f"{name}: its module trains {after:,} weights, the model without it {before:,}: a method must "
                        "keep them"
                    )
                module = changed
        for name, method in self._methods.items():
            if method.loss is not None:
                module = _WithLoss(module, name, method)
        return module

    def optimizer(self, module: nn.Module, given: Optimizer) -> torch.optim.Optimizer | None:
        """Return the methods' optimizer for the model's parameters; None where they leave the recipe's."""
        for name, method in self._methods.items():
            if method.optimizer is not None:
                with _named(name, "optimizer"):
                    trained = (weight for weight in module.parameters() if weight.requires_grad)
                    made = method.optimizer(trained, given)
                if not isinstance(made, torch.optim.Optimizer):
                    raise MethodError(f"{name}: its optimizer returned {type(made).__name__}, no torch optimizer")
                if (left := weights_to_train(module) - _optimized(made)) != 0:
                    raise MethodError(
                        f"{name}: its optimizer leaves out {left:,} of {weights_to_train(module):,} weights"
                    )
                return made
        return None


class _WithLoss(nn.Module):
    """A recipe's model whose loss is a method's."""

    def __init__(self, module: nn.Module, name: str, method: Method) -> None:
        super().__init__()
        self.module, self._name, self._method = module, name, method

    def forward(self, **batch: torch.Tensor) -> torch.Tensor:
        assert self._method.loss is not None
        if torch.compiler.is_compiling():  # what is compiled has run uncompiled before
            return self._method.loss(self.module, batch)
        with _named(self._name, "loss"):
            loss = self._method.loss(self.module, batch)
        if not isinstance(loss, torch.Tensor) or loss.dim():
            found = f"a tensor of shape {tuple(loss.shape)}" if isinstance(loss, torch.Tensor) else type(loss).__name__
            raise MethodError(f"{self._name}: its loss returned {found}, not a scalar tensor")
        return loss


def weights_to_train(module: nn.Module) -> int:
    """Count the weights that are trained. Whole ones: of a model before it is sharded."""
    return sum(weight.numel() for weight in module.parameters() if weight.requires_grad)


def _optimized(optimizer: torch.optim.Optimizer) -> int:
    return sum(weight.numel() for group in optimizer.param_groups for weight in group["params"])


@contextlib.contextmanager
def _named(name: str, hook: str) -> Iterator[None]:
    """Have an error of a hook name it, except where memory ran out."""
    try:
        yield
    except MethodError:
        raise
    except Exception as error:
        if is_out_of_memory(error):
            raise
        raise MethodError(f"{name}: its {hook} raised {one_line(error)}") from error
