"""The paper's nine recipes, one file per family, at the paper's scale and as tiny twins. Beside them two that it has no
cell of: the lab report's GAN, and Pythia-1.4B."""

from collections.abc import Callable

from repro.console import UserError, near

from . import convnext, gan, mamba, pythia, roberta, vit
from .recipe import Recipe, Scale

_PAPERS = (pythia, roberta, mamba, convnext, vit)
_OF_PAPER = [recipe for family in _PAPERS for recipe in family.RECIPES]
_ALL = {(recipe.id, recipe.scale): recipe for recipe in (*_OF_PAPER, *gan.RECIPES, *pythia.OTHERS)}
IDS: tuple[str, ...] = tuple(dict.fromkeys(recipe.id for recipe in _OF_PAPER))
PYTHIAS: tuple[Recipe, ...] = tuple(_ALL[id, "paper"] for id in IDS if _ALL[id, "paper"].family == "pythia")
NAMES: tuple[str, ...] = tuple(_ALL[id, "paper"].name for id in IDS)  # what the paper calls them
OTHERS: tuple[str, ...] = ("gan", "pythia-1.4b")  # run only when asked for; no cell of the paper is theirs
TRACED: tuple[str, ...] = (*IDS, "pythia-1.4b")  # traces of these are shipped, so that they can be predicted


def typed(text: str) -> str:
    """The id that somebody typed, who may write it as the paper does: Pythia-1B."""
    return text.strip().lower()


def find(id: str, scale: Scale = "paper") -> Recipe:
    """The recipe of that id; a UserError names all ids when there is none."""
    if id not in (*IDS, *OTHERS):
        raise UserError(_unknown(id, (*IDS, *OTHERS)))
    return _ALL[id, scale]


def listed(text: str | None, check: Callable[[str], Recipe] = find) -> tuple[str, ...]:
    """The ids that `--models` lists, each once; the nine without it. Raises UserError as `check` does: `find`,
    `find_of_paper` or `find_traced`."""
    ids = IDS if text is None else tuple(dict.fromkeys(map(typed, text.split(","))))
    for id in ids:
        check(id)
    return ids


def find_of_paper(id: str) -> Recipe:
    """One of the paper's nine, at its scale: those that days are printed of. A UserError names the nine for any
    other."""
    return _find_among(IDS, id)


def find_traced(id: str) -> Recipe:
    """A recipe that traces are shipped of, at the paper's scale. A UserError names these for any other."""
    return _find_among(TRACED, id)


def _find_among(known: tuple[str, ...], id: str) -> Recipe:
    if id in known:
        return find(id)
    if id not in OTHERS:
        raise UserError(_unknown(id, known))
    lacks = "printed, only predicted (predict --gpu)" if id in TRACED else "printed or predicted"
    raise UserError(f"{id} is no model of the paper, so no days of it are {lacks}: it is one of {', '.join(known)}")


def _unknown(id: str, known: tuple[str, ...]) -> str:
    meant = near(id, known)
    hint = f"did you mean {', '.join(meant)}? It" if meant else "it"
    return f"unknown model {id!r}: {hint} is one of {', '.join(known)}"
