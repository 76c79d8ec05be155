"""What each column of a form's export asks: a question, a row of a grid, or whether one choice was made.

A form service writes a question of several choices as one column with all of them, or as a column for each choice. The
choice then stands behind the question: `Question [Choice]`, `Question - Selected Choice - Choice`,
`Question (choice=Choice)`, `Question/Choice`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from .. import command
from ..console import UserError
from ..datafile import read_once
from .questions import OTHER, Question, all_columns, plain, questions, spellings

# A number or a code before the question, such as "3)", "Q3." or "G01Q03[SQ001]."
_NUMBERED = re.compile(r"^\W*(question\s*)?(((?=\w*[0-9])\w++|\w++(?=[.\[]))(\[\w*\])?\W+)?", re.IGNORECASE)
_ROW = re.compile(r"\b([0-9]{1,2}) gpus?\b ?(.*)$")
_ROW_ALONE = re.compile(r"([0-9]{1,2})\+? GPUs?[2-9]?", re.IGNORECASE)  # Microsoft's, which counts equal names
_OTHER = re.compile(r"(other|text)\b|.* other$")  # a column for a text of one's own
_TICKED = {"yes", "y", "1", "true", "checked", "x", "selected", "on"}
_NOT_TICKED = {"no", "n", "0", "false", "unchecked", "not selected", "off", "n a", "null"}
_MARKS = {"✓": "yes", "✔": "yes", "☑": "yes", "☐": "no", "-": "no", "\u2013": "no"}


@dataclass(frozen=True)
class Asked:
    """The columns that ask a question or a row of a grid, by their places: `whole` has the answer, or each of `choices`
    says whether its choice was made; those of `others` have a text of one's own."""

    question: Question
    whole: int | None
    choices: Mapping[int, str]
    others: Sequence[int]

    @property
    def first(self) -> int:
        """Return the place of the first of these columns."""
        return min(self.choices, default=0) if self.whole is None else self.whole

    def ticked(self, cells: Sequence[str], by_text: bool) -> frozenset[str]:
        """Return the choices made by a row of columns for each choice. Cells have the choice's text, or yes and no."""
        made = {
            choice
            for place, choice in self.choices.items()
            if (cells[place].strip() if by_text else _yes(cells[place]))
        }
        return frozenset(made)

    def by_text(self, rows: Iterable[tuple[int, Sequence[str]]], path: Path) -> bool:
        """Return whether every cell of the columns for each choice is empty or has its choice's text. Otherwise each
        must be yes or no: raise UserError for any that is neither. A "No" below the choice "No" is read by the rest."""
        known = spellings(self.question.id)
        odd, unlike = None, False
        for row, cells in rows:
            for place, choice in self.choices.items():
                if not cells[place].strip():
                    continue
                unlike |= known.get(plain(cells[place])) != choice
                if odd is None and _yes(cells[place]) is None:
                    odd = f"{path}, row {row}, column {place + 1}"
        if unlike and odd:
            raise UserError(
                f"{odd} (question {self.question.number}): it does not say whether its choice was made, expected Yes "
                "or No, Y, 1 or 0, Checked, the choice's text, or nothing"
            )
        return not unlike


def _yes(cell: str) -> bool | None:
    """Return whether a cell says yes; None where it says something else."""
    word = _MARKS.get(cell.strip(), plain(re.sub(r"\.0$", "", cell.strip())))
    return True if word in _TICKED else False if not cell.strip() or word in _NOT_TICKED else None


def recognised(header: Sequence[str]) -> dict[str, list[tuple[int, str]]]:
    """Return the columns of all questions that a header asks, by id: their places, and what stands behind the
    question."""
    found: dict[str, list[tuple[int, str]]] = {}
    before = None
    for place, heading in enumerate(header):
        column, rest = _asks(heading) or _asks_behind(heading) or _row_alone(heading, before) or ("", "")
        if column:
            before = all_columns()[column]
            found.setdefault(column, []).append((place, rest))
    return found


def names_a_choice(heading: str) -> bool:
    """Return whether a heading asks a question for one of its choices, or a row of a grid."""
    column, rest = _asks(heading) or ("", "")
    known = column and (rest in spellings(all_columns()[column].id) or _OTHER.match(rest))
    return bool(known or (column and not rest and all_columns()[column].kind == "grid"))


def _asks(heading: str) -> tuple[str, str] | None:
    """Return the column whose question a heading asks, by its id or its question's first sentence, and what stands
    behind it."""
    name = heading.strip().casefold()
    if name in all_columns():
        return name, ""
    by_id = re.match(r"([a-z_0-9]+)\W+(.+)", name)
    if by_id and by_id[1] in all_columns():
        rest = _choice(plain(by_id[2].replace("_", " ")))
        if rest in spellings(all_columns()[by_id[1]].id) or _OTHER.match(rest):
            return by_id[1], rest
    text = plain(_NUMBERED.sub("", heading.strip()))
    first = next((each for each in _first_sentences() if f"{text} ".startswith(f"{each} ")), None)
    if first is None:
        return None
    question = _first_sentences()[first]
    whole = plain(question.text)
    rest = _choice(text[len(whole if f"{text} ".startswith(f"{whole} ") else first) :].strip())
    if question.kind != "grid":
        return question.id, rest
    row = _ROW.search(rest)
    column = f"{question.id}_{row[1] if row else ''}"
    return (column, _choice(row[2])) if row and column in question.columns else None


def _asks_behind(heading: str) -> tuple[str, str] | None:
    """Return the same of a heading with the question behind its choice or row, as Alchemer writes them."""
    choice, colon, question = heading.partition(":")
    turned = f"{question} [{choice}]"
    return _asks(turned) if colon and names_a_choice(turned) else None


def _choice(rest: str) -> str:
    return re.sub(r"^(selected )?choice\b ?", "", rest)


def _row_alone(heading: str, before: Question | None) -> tuple[str, str] | None:
    """Return the column of a grid's row that is named without its question, by the question before it."""
    row = _ROW_ALONE.fullmatch(heading.strip())
    for question in questions().values():
        if row and before and question.kind == "grid" and question.number - before.number in (0, 1):
            column = f"{question.id}_{row[1]}"
            return (column, "") if column in question.columns else None
    return None


@read_once
def _first_sentences() -> Mapping[str, Question]:
    return {plain(question.text.partition("?")[0]): question for question in questions().values()}


def arranged(header: Sequence[str], place: str) -> tuple[dict[str, Asked], list[str]]:
    """Return what answers each question, and a line for each column that asks one again and is left out. `place` names
    the header's row. Raise UserError where it is not clear which column has the answer."""
    found, left = dict[str, Asked](), list[str]()
    for column, columns in recognised(header).items():
        if all_columns()[column].kind != "text":
            found[column] = _arranged(all_columns()[column], columns, place, left)
    return found, left


def _arranged(question: Question, columns: Sequence[tuple[int, str]], row: str, left: list[str]) -> Asked:
    several = question.kind == "several" and len(columns) > 1
    others, choices, whole, unknown = list[int](), dict[int, str](), list[int](), list[int]()
    for place, rest in columns:
        choice = spellings(question.id).get(rest) or (_at_the_end(question, rest) if several else None)
        if choice:
            choices[place] = choice
        elif _OTHER.match(rest):
            others.append(place)
        else:
            (unknown if rest else whole).append(place)
    if choices and (unknown or len(set(choices.values())) < len(choices)):
        doubtful = unknown or [place for place in choices if list(choices.values()).count(choices[place]) > 1][1:]
        raise UserError(
            f"{row}, column {doubtful[0] + 1}: asks question {question.number} for what is none of its choices, or one "
            f"again; name its columns by the choices ({command()} survey --questions), or leave them out"
        )
    if choices:  # a column of the whole answer says the same again
        return Asked(question, None, choices, others)
    answers = whole + unknown
    if not answers or len(whole) > 1 or (len(answers) > 1 and (several or not whole)):
        raise UserError(
            f"{row}, column {(answers or others)[-1] + 1}: it is not clear which of the columns that ask question "
            f"{question.number} has the answer; leave one of them, or name them by the choices ({command()} survey "
            "--questions)"
        )
    left += [
        f"{row}, column {place + 1}: asks question {question.number} again, and is left out" for place in answers[1:]
    ]
    return Asked(question, answers[0], {}, others)


def _at_the_end(question: Question, rest: str) -> str | None:
    """Return the choice that stands behind an instruction, such as to select all that apply."""
    known = spellings(question.id)
    return next((known[each] for each in sorted(known, key=len, reverse=True) if rest.endswith(f" {each}")), None)


def answers_besides(asked: Asked, cells: Sequence[str]) -> frozenset[str]:
    """Return `OTHER` where a text of one's own was written."""
    written = any(cells[place].strip() and _yes(cells[place]) is not False for place in asked.others)
    return frozenset({OTHER}) if written else frozenset()
