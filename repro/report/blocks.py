"""The parts of a report: a list of blocks, which the page, the Markdown file and the terminal render."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ..formats import listing
from ..paper.tables import COUNTS
from ..run.reading import Joined
from ..run.verdict import Verdict
from ..verify.certificate import Certificate

Rows = Sequence[dict[str, Any]]
Origin = Literal["measured", "published", "computed", "predicted", "measured and predicted", "answered", "released"]
Kind = Literal["dots", "bars", "fields", "marks", "lines"]


@dataclass(frozen=True)
class Heading:
    """A heading. With an `id` it begins a section, which the page's navigation names by `short`."""

    text: str
    id: str = ""
    short: str = ""


@dataclass(frozen=True)
class Sentence:
    """A paragraph."""

    text: str


@dataclass(frozen=True)
class Bullets:
    """A list."""

    lines: Sequence[str]


@dataclass(frozen=True)
class Facts:
    """Names with values, or with `commands` command lines with what they give."""

    pairs: Sequence[tuple[str, str]]
    commands: bool = False


@dataclass(frozen=True)
class Table:
    """A table of rows with equal keys. The page folds up one that is `folded`; `stacked` rows are blocks on a phone. A
    terminal has the columns of `brief`, all if empty."""

    title: str
    rows: Rows
    folded: bool = False
    stacked: bool = False
    brief: Sequence[str] = ()


@dataclass(frozen=True)
class Fold:
    """Blocks that the page folds up below a title and a summary."""

    title: str
    blocks: Sequence[Block]
    summary: str = ""


@dataclass(frozen=True)
class Entry:
    """A field of a grid: the printed value, the line `below` it and the small text `beside`, the word that selects its
    colour and the word's symbol. `message` is the complete text."""

    text: str
    below: str
    kind: str
    symbol: str
    message: str
    beside: str = ""


@dataclass(frozen=True)
class Grid:
    """A table of models by machines. `kinds` has the symbol and the meaning of each word for a colour."""

    title: str
    caption: str
    entries: Mapping[tuple[str, str, int], Entry]
    kinds: Mapping[str, tuple[str, str]]

    @property
    def legend(self) -> list[tuple[str, str, str]]:
        """Return the words that occur, each with its symbol and meaning."""
        there = {entry.kind for entry in self.entries.values()}
        return [(kind, symbol, meaning) for kind, (symbol, meaning) in self.kinds.items() if kind in there]

    @property
    def gpus(self) -> list[str]:
        return list(dict.fromkeys(gpu for _, gpu, _ in self.entries))

    def lines(self, gpus: Sequence[str]) -> list[tuple[str, list[Entry]]]:
        """Return each model with its entries on these GPUs."""
        models = dict.fromkeys(model for model, _, _ in self.entries)
        return [(model, [self.entries[model, gpu, count] for gpu in gpus for count in COUNTS]) for model in models]


@dataclass(frozen=True)
class Row:
    """A datum of a chart. `y` is a group or a number, `x` a number or a column; `label` stands beside its mark, and
    `note` says what it is the value of."""

    y: str | float
    series: str
    x: str | float
    label: str = ""
    note: str = ""


@dataclass(frozen=True)
class Panel:
    """One chart. `x` and `y` name its axes, with units. `reference` is a value marked by a dashed line, with its name.
    `machines` are all machines of the run, in order: a machine's look depends on its place in it."""

    origin: Origin
    title: str
    kind: Kind
    y: str
    x: str
    rows: Sequence[Row]
    source: str
    reference: tuple[float, str] | None = None
    machines: Sequence[str] = ()

    @property
    def table(self) -> Rows:
        """Return the rows as a table without empty columns."""
        every = [
            {
                self.y or "y": row.y,
                "series" if self.kind != "fields" else "state": row.series,
                self.x or "machine": row.x,
                "label": row.label or None,
                "of": row.note or None,
            }
            for row in self.rows
        ]
        return [{key: row[key] for key in row if any(each[key] is not None for each in every)} for row in every]


@dataclass(frozen=True)
class Figure:
    """A figure. `number` is the paper's, empty where the paper has no such figure; `says` describes the result with its
    numbers, `lacking` what the paper does not print; `measured_by` is the command that measures it."""

    number: str
    title: str
    says: str
    panels: Sequence[Panel]
    lacking: str = ""
    measured_by: str = ""

    @property
    def name(self) -> str:
        """Return the paper's name of the figure, empty if it has none."""
        numbers = self.number.split(", ")
        return f"Figure{'s' if len(numbers) > 1 else ''} {listing(numbers)}" if self.number else ""


Block = Heading | Sentence | Bullets | Facts | Table | Fold | Grid | Figure


@dataclass(frozen=True)
class Report:
    """A report of runs, or of the published numbers alone where `runs` is None.

    It begins with the sentences of its `answer`; `counts` are the numbers of it that the page shows large, each with
    the word that selects its colour, and its name; `notes` limit it, the most important first."""

    title: str
    answer: Sequence[str]
    counts: Sequence[tuple[str, str, int]]
    notes: Sequence[str]
    blocks: Sequence[Block]
    verdicts: Sequence[Verdict]
    runs: Joined | None = None
    certificate: Certificate | None = None
