"""The survey's questions and choices, expected/survey_questions.csv, and the form that asks them again."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from ..datafile import Count, complete, csv_rows, expected_folder, read_once

Kind = Literal["text", "one", "several", "grid", "sum"]
Part = Literal["question", "row", "choice", "other"]
KINDS = ("desktop", "workstation", "data_center")  # of GPUs, in the order of the questions
COUNTS = (1, 2, 4, 8, 16, 32, 64)  # GPUs that the rows of a grid ask about; the last stands for 64 and more
NOT_AVAILABLE = "N/A"  # in a grid
NOT_SURE, NONE_AVAILABLE = "Not sure", "None available"
DURATIONS = ("Hours", "Days", "Weeks", "Months", "Indefinitely")
OTHER = "Other"
_HOW = {
    "text": "a text",
    "one": "one choice",
    "several": "several choices",
    "grid": "one choice a row",
    "sum": "a number",
}


@dataclass(frozen=True)
class Choice:
    """A choice as printed. `added` is the year of what it names, if that was added to the paper's choices."""

    text: str
    added: str | None
    source: str

    @property
    def short(self) -> str:
        """Return the choice without what stands in brackets behind it."""
        return re.sub(r"(?<=\S) \(.*\)$", "", self.text)


@dataclass(frozen=True)
class Question:
    """A question of Table 2. A grid has `rows`, each answered by one of its choices; `other` allows a text as well."""

    number: int
    id: str
    kind: Kind
    text: str
    source: str
    choices: tuple[Choice, ...] = ()
    rows: tuple[str, ...] = ()
    other: bool = False

    @property
    def how(self) -> str:
        """Return how it is answered."""
        return _HOW[self.kind]

    @property
    def columns(self) -> dict[str, str]:
        """Return the columns of its answers in a form's export: ids, which name them in the authors' file, and
        headings."""
        if self.kind != "grid":
            return {self.id: self.text}
        return {f"{self.id}_{gpus(row)}": f"{self.text} [{row}]" for row in self.rows}


def gpus(row: str) -> int:
    """Return the number of GPUs that a row of a grid asks about."""
    found = re.match("[0-9]{1,3}", row)
    return int(found[0]) if found else 0


@dataclass(frozen=True)
class _Line:
    """A row of the file."""

    number: Count
    id: str
    kind: Kind
    part: Part
    text: str
    added: str | None
    source: str


@read_once
def questions() -> Mapping[str, Question]:
    """Return the questions by id, in their order. Raise UserError where the file is broken or lacks one of the 19."""
    file = "survey_questions.csv"
    found: dict[str, Question] = {}
    seen: dict[Any, int] = {}
    for row, line in csv_rows(expected_folder() / file, _Line):
        row.once("text", (line.id, line.part, line.text), seen)
        if line.part == "question":
            row.once("number", line.number, seen)
            found[line.id] = Question(line.number, line.id, line.kind, line.text, line.source)
        elif line.id not in found:
            row.problem("id", "a question that an earlier row asks")
        else:
            found[line.id] = _with(found[line.id], line)
    complete(file, [question.number for question in found.values()], range(1, 20))
    return found


def _with(question: Question, line: _Line) -> Question:
    """Return the question with the row, choice or text that a row of the file adds to it."""
    if line.part == "row":
        return replace(question, rows=(*question.rows, line.text))
    if line.part == "other":
        return replace(question, other=True)
    return replace(question, choices=(*question.choices, Choice(line.text, line.added, line.source)))


@read_once
def all_columns() -> Mapping[str, Question]:
    """Return the question of each column of an export, by the column's id."""
    return {column: question for question in questions().values() for column in question.columns}


# The columns of the authors' artifacts/survey.csv, in its order (their scripts/plotting/preprocess_survey.py).
AUTHORS_COLUMNS = (
    *("role", "areas", "uses", "satisfaction", "cloud_budget"),
    *(f"{kind}_{column}" for kind in KINDS for column in ("gen", "mem", *map(str, COUNTS))),
    *("gpu_link", "node_link"),
)
AUTHORS_PEOPLE = 50  # answers in that file (section 2)
# The classes of the one answer that is a sum.
BUDGETS = ("0 USD", "up to 500 USD", "501 to 1,000 USD", "1,001 to 5,000 USD", "more than 5,000 USD")


def plain(text: str) -> str:
    """Return a text for comparison: without case, accents' forms, punctuation and repeated blanks."""
    folded = re.sub("['\u2019.`]", "", unicodedata.normalize("NFKC", text).casefold())
    return " ".join(re.findall(r"\w+", folded))


@read_once
def spellings(id: str) -> Mapping[str, str]:
    """Return a question's choices by all texts that stand for one, as `plain` has them: as printed, without what is in
    brackets, and a rating's number alone."""
    found: dict[str, str] = {}
    for choice in questions()[id].choices:
        rating = re.match(r"\(([0-9])\) ", choice.text)
        for text in (choice.text, choice.short, rating[1] if rating else choice.text):
            found.setdefault(plain(text), choice.text)
    return found


def form() -> list[dict[str, Any]]:
    """Return a row for each column of the form's export: its heading, how it is answered, and with which choices."""
    return [
        {
            "number": question.number,
            "column": column,
            "question": heading,
            "answer": question.how,
            "choices": "; ".join([choice.text for choice in question.choices] + ["[Other]"] * question.other) or None,
            "added": "; ".join(choice.text for choice in question.choices if choice.added) or None,
            "source": question.source,
        }
        for question in questions().values()
        for column, heading in question.columns.items()
    ]


def listed(escape: Callable[[str], str]) -> list[str]:
    """Return the questions with their choices as lines of Markdown, their texts escaped."""
    lines = []
    for question in questions().values():
        of = f", in each of: {escape(', '.join(question.rows))}" if question.rows else ""
        lines += ["", f"## {question.number}. {escape(question.text)}", "", f"- Answer: {question.how}{of}."]
        for choice in question.choices:
            lines.append("- " + escape(f"{choice.text}{f' (added, of {choice.added})' if choice.added else ''}"))
        lines += ["- [Other]"] * question.other
    return lines[1:]
