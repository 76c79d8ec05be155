"""survey.html: the survey's answers as a page, with the paper's figures 1 and 8, and who can train what."""

from __future__ import annotations

from collections.abc import Sequence

from ..survey import shares
from ..survey.counts import BASE, FEW, Answers
from ..survey.questions import NOT_AVAILABLE, gpus
from ..survey.shares import Counts
from ..survey.training import CALLED, LEVELS, Reach
from .blocks import Figure, Origin, Panel, Row

PAGE = "survey.html"


def figures(answers: Answers, reached: Sequence[Reach]) -> list[Figure]:
    """Return the figures that have something to show."""
    every = [
        _training(reached, f"answers of {answers.number} people"),
        Figure(
            "1",
            "How long one may use N GPUs",
            "How many people may use so many GPUs, and for how long at most. Who may use none is left out.",
            [panel for each in shares.figure_1(answers) if (panel := _availability(each)) is not None],
        ),
        Figure(
            "8",
            "Who answered, and what they have",
            f"How many people made each choice. A choice without a bar has fewer than {BASE} people.",
            [panel for each in shares.figure_8(answers) if (panel := _breakdown(each)) is not None],
        ),
    ]
    return [figure for figure in every if figure.panels]


def _training(reached: Sequence[Reach], people: str) -> Figure:
    """Return the figure of who can train each model: naively, and who besides with the methods."""
    rows = []
    for each in reached:
        last = 0
        for level in LEVELS:
            number = each.shown(level)
            if isinstance(number, int):
                if number > last:
                    rows.append(Row(each.model, CALLED[level], number - last))
                last = number
    measured = any("measured" in each.origins for each in reached)
    origin: Origin = "measured and predicted" if measured else "predicted"
    panel = Panel(origin, "People by model", "bars", "model", f"of {reached[0].shown()} people", rows, people)
    says = (
        "How many people can train each model in the time for which they may use their GPUs: naively, besides these "
        f"with the free lunch, and besides these with all methods. A number below {BASE} is in the next bar."
    )
    return Figure("", "Who can train what", says, [panel] if rows else [])


def _availability(found: Counts) -> Panel | None:
    """Return figure 1 for one kind of GPUs; None where nothing can be shown."""
    most = found.rows[-1].question
    rows = [
        Row(f"{gpus(each.question)}{'+' * (each.question == most)}", each.choice, each.count.people)
        for each in found.rows
        if each.count.people is not None and each.choice != NOT_AVAILABLE
    ]
    source = f"{found.of} people who filled in every row"
    return Panel("answered", found.title, "bars", "number of GPUs", "people", rows, source) if rows else None


def _breakdown(found: Counts) -> Panel | None:
    """Return a panel of figure 8; None where nothing can be shown."""
    rows = [Row(each.choice, "people", each.count.people) for each in found.rows if each.count.people is not None]
    hidden = [each.choice for each in found.rows if each.count.people is None]
    source = f"{found.of} people" + (f"; {FEW} each: {', '.join(hidden)}" if hidden else "")
    return Panel("answered", found.title, "bars", "choice", "people", rows, source) if rows else None
