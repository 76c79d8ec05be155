"""The paper's nine recipes, one file per family, at the paper's scale and as tiny twins; and the lab report's GAN."""

from repro.errors import UserError
from repro.near import near
from repro.recipe import Recipe, Scale

from . import convnext, gan, mamba, pythia, roberta, vit

_PAPERS = (pythia, roberta, mamba, convnext, vit)
_ALL = {(recipe.id, recipe.scale): recipe for family in (*_PAPERS, gan) for recipe in family.RECIPES}
IDS: tuple[str, ...] = tuple(dict.fromkeys(recipe.id for family in _PAPERS for recipe in family.RECIPES))
PYTHIAS: tuple[Recipe, ...] = tuple(_ALL[id, "paper"] for id in IDS if _ALL[id, "paper"].family == "pythia")
NAMES: tuple[str, ...] = tuple(_ALL[id, "paper"].name for id in IDS)  # what the paper calls them
OTHERS: tuple[str, ...] = ("gan",)  # run only when asked for; no cell of the paper is theirs


def typed(text: str) -> str:
    """The id that somebody typed, who may write it as the paper does: Pythia-1B."""
    return text.strip().lower()


def find(id: str, scale: Scale = "paper") -> Recipe:
    """The recipe of that id; a UserError names all ids when there is none."""
    if id not in (*IDS, *OTHERS):
        raise UserError(_unknown(id, (*IDS, *OTHERS)))
    return _ALL[id, scale]


def listed(text: str | None, of_paper: bool = False) -> tuple[str, ...]:
    """The ids that `--models` lists, each once; the nine without it. Raises UserError as `find` does, or as
    `find_of_paper` where they must be the paper's."""
    ids = IDS if text is None else tuple(dict.fromkeys(map(typed, text.split(","))))
    for id in ids:
        (find_of_paper if of_paper else find)(id)
    return ids


def find_of_paper(id: str) -> Recipe:
    """One of the paper's nine, at its scale: those that days are printed and traces are shipped of. A UserError names
    the nine for any other."""
    if id not in IDS:
        none = f"{id} is no model of the paper, so no days of it are printed or predicted: it is one of"
        raise UserError(f"{none} {', '.join(IDS)}" if id in OTHERS else _unknown(id, IDS))
    return find(id)


def _unknown(id: str, known: tuple[str, ...]) -> str:
    meant = near(id, known)
    hint = f"did you mean {', '.join(meant)}? It" if meant else "it"
    return f"unknown model {id!r}: {hint} is one of {', '.join(known)}"
