"""The paper's nine recipes, one file per family, at the paper's scale and in a tiny version. Others have no cell in the
paper: the lab report's GAN, further sizes of Pythia and ConvNeXt, and models of one's own."""

from collections.abc import Callable
from functools import cache
from importlib import import_module

from repro.console import UserError, suggest_names

from . import custom, specification
from .recipe import Recipe, Scale

# Each recipe's family: the module here that has it, imported when one of its recipes is asked for. First the paper's.
_OF_PAPER = {f"pythia-{size}": "pythia" for size in ("160m", "410m", "1b", "2.8b", "6.9b")}
_OF_PAPER |= {id: id for id in ("roberta", "mamba", "convnext", "vit")}
_OTHERS = {"gan": "gan"} | {f"pythia-{size}": "pythia" for size in ("1.4b", "70m", "12b")}
_OTHERS |= {"convnext-l": "convnext", "convnext-b": "convnext"}
IDS = tuple(_OF_PAPER)
PYTHIAS = tuple(id for id, family in _OF_PAPER.items() if family == "pythia")
OTHERS = tuple(_OTHERS)  # run only on request; the paper has no cell of them
TRACED = (*IDS, "pythia-1.4b")  # can be predicted: their traces are shipped


@cache
def _recipes(family: str) -> dict[tuple[str, Scale], Recipe]:
    """Return the recipes of a family, by id and scale."""
    found: tuple[Recipe, ...] = import_module(f".{family}", __name__).RECIPES
    return {(recipe.id, recipe.scale): recipe for recipe in found}


@cache
def names() -> tuple[str, ...]:
    """Return the names of the paper's nine, as the paper spells them."""
    return tuple(find(id).name for id in IDS)


def modules() -> tuple[str, ...]:
    """Return the modules of other packages that the models need."""
    return tuple(dict.fromkeys(module for id in (*IDS, *OTHERS) if (module := find(id).module)))


def typed(text: str) -> str:
    """Return the id for a model name that a user typed, in any case: also the paper's spelling, Pythia-1B. A text that
    names a model of one's own is left as it is."""
    return text if specification.is_specification(text) else text.strip().lower()


def find(id: str, scale: Scale = "paper") -> Recipe:
    """Return the recipe of this id. Raise UserError, which lists all ids, for an unknown one."""
    if (of_ones_own := custom.find(id, scale)) is not None:
        return of_ones_own
    families = _OF_PAPER | _OTHERS
    if id not in families:
        raise UserError(_unknown(id, (*families,)))
    return _recipes(families[id])[id, scale]


def listed(text: str | None, check: Callable[[str], Recipe] = find) -> tuple[str, ...]:
    """Return the ids in the value of `--models` without duplicates; the paper's nine for None. Raise UserError for an
    id that `check` refuses: `find`, `find_of_paper` or `find_traced`."""
    ids = IDS if text is None else tuple(dict.fromkeys(map(typed, text.split(","))))
    for id in ids:
        check(id)
    return ids


def find_of_paper(id: str) -> Recipe:
    """Return one of the paper's nine recipes, for which it prints days, at the paper's scale. Raise UserError, which
    lists the nine, for another id."""
    return _find_among(IDS, id)


def find_traced(id: str) -> Recipe:
    """Return a recipe that can be predicted, at the paper's scale: its traces are shipped, or it is one's own. Raise
    UserError, which lists the shipped ones, for another id."""
    if is_own(id):
        return find(id)
    return _find_among(TRACED, id)


def micro_batch_limit(recipe: Recipe, devices: int) -> int:
    """Return the micro batch whose divisors are those that are tried: a device's whole share of the batch for a recipe
    of one's own; for others its largest power of two, as the paper's authors search by doubling."""
    share = recipe.batch_size // devices
    return share if custom.is_id(recipe.id) else share & -share


def is_own(id: str) -> bool:
    """Return whether a recipe is one of the user's own."""
    return custom.registered(id) is not None


def _find_among(known: tuple[str, ...], id: str) -> Recipe:
    if id in known:
        return find(id)
    if is_own(id):
        raise UserError(f"{id} is your own model, so the paper printed no days of it: predict --gpu")
    if id not in OTHERS:
        raise UserError(_unknown(id, known))
    lacks = "printed, only predicted (predict --gpu)" if id in TRACED else "printed or predicted"
    raise UserError(f"{id} is no model of the paper, so no days of it are {lacks}: it is one of {', '.join(known)}")


def _unknown(id: str, known: tuple[str, ...]) -> str:
    if custom.is_id(id):
        return f"{id} is a model of one's own, and nothing here describes it: the run's recipes.json is missing"
    from . import popular

    meant = suggest_names(id, (*known, *popular.listed()))
    hint = f"did you mean {', '.join(meant)}? It" if meant else "it"
    return f"unknown model {id!r}: {hint} is one of {', '.join(known)}, or a popular one: list recipes --all"
