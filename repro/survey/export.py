"""The table of a form service's export: how its columns are split, its header, and which rows are nobody's answers."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from .. import command
from ..console import UserError
from .columns import names_a_choice, recognised
from .questions import AUTHORS_COLUMNS, plain

_DELIMITERS = ",;\t|"
_HEADERS = 3  # rows among which the header is: Qualtrics has names, texts and ImportIds
_RESPONSE = re.compile("(open ended )?response")  # SurveyMonkey's second header row, of a question with one column
_PREVIEW = re.compile(r".*\b(preview|test|spam)\b.*|1|2|8|9|17")  # the numbers are Qualtrics'
_UNFINISHED = re.compile(
    r"|false|0|no|n|null|n a|.*\b(partial(ly)?|incomplete|unfinished|started|in progress|not \w+ed|draft|abandoned)\b.*"
)
_FINISHED = re.compile(r"true|1|2|yes|y|complete(d)?|finished|submitted|unverified|.*[0-9]{4}.*")
# Headings of columns that say whether a row is a person's finished answers.
_STATUS = {"status", "response type", "response status", "completion status"}
_WHETHER_FINISHED = {"finished", "complete", "completed"}
_SUBMITTED = {"date submitted", "submitdate", "submit date", "submit date utc"}


@dataclass(frozen=True)
class Export:
    """A table: its header, in which row, and the rows of people's answers, with their numbers as a spreadsheet counts.
    `others` are the places of columns that ask no question; `left_out` has how many rows are no finished answers, by
    what they are."""

    header: Sequence[str]
    header_row: int
    others: Sequence[int]
    rows: Sequence[tuple[int, list[str]]]
    left_out: Counter[str]


def export(path: Path, text: str) -> Export:
    """Read a table. Raise UserError where it is no CSV, or no row of its first asks a question."""
    delimiter = max(_DELIMITERS, key=lambda each: _score(_header(_first(text, each))[1]))
    row, header = _header(_first(text, delimiter))
    records = list(_records(path, text, delimiter if recognised(header) else ","))
    if not recognised(header):
        raise UserError(
            f"{path}, row 1: no column is one of the questions, expected a header row with their texts "
            f"({command()} survey --questions), or the {len(AUTHORS_COLUMNS)} names of the authors' file"
        )
    asking = {place for columns in recognised(header).values() for place, _ in columns}
    others = [place for place in range(len(header)) if place not in asking]
    left_out, rows, why = Counter[str](), [], _nobody(path, header, others)
    for number, cells in enumerate(records[row:], start=row + 1):
        if not any(cell.strip() for cell in cells):
            continue
        if reason := why(number, cells):
            left_out[reason] += 1
        else:
            rows.append((number, cells))
    return Export(header, row, others, rows, left_out)


def _score(header: Sequence[str]) -> tuple[int, int]:
    return sum(map(len, recognised(header).values())), len(header)


def _first(text: str, delimiter: str) -> list[list[str]]:
    """Return the first rows, as far as they can be read."""
    found = []
    try:
        for cells in islice(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True), _HEADERS):
            found.append(cells)
    except csv.Error:
        pass
    return found


def _header(first: Sequence[list[str]]) -> tuple[int, list[str]]:
    """Return the header and its row: the one that asks most questions, or SurveyMonkey's first two together."""
    found = [(row, cells) for row, cells in enumerate(first, start=1) if cells]
    if len(first) > 1 and (joined := _joined(*first[:2])):
        found.append((2, joined))
    return max(found, key=lambda each: (_score(each[1])[0], each[0]), default=(1, []))


def _joined(first: Sequence[str], second: Sequence[str]) -> list[str] | None:
    """Return the headings of two rows, of which the first names a question once, above the first of its columns; None
    for other rows."""
    if len(first) != len(second):
        return None
    found, question, blanks = list[str](), "", 0
    for above, below in zip(first, second, strict=True):
        question = above if above.strip() or not below.strip() else question
        blanks += not above.strip() and names_a_choice(f"{question} [{below}]")
        one = _RESPONSE.fullmatch(plain(below)) or not below.strip()
        found.append(question if one else f"{question} [{below}]")
    return found if blanks > 1 or any(_RESPONSE.fullmatch(plain(each)) for each in second) else None


def _records(path: Path, text: str, delimiter: str) -> Iterator[list[str]]:
    reader, row = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True), 0
    try:
        for row, cells in enumerate(reader, start=1):
            for column, cell in enumerate(cells, start=1):
                if re.search("[\udc80-\udcff]", cell):
                    raise UserError(f"{path}, row {row}, column {column}: no UTF-8: save it as CSV in UTF-8")
            yield cells
    except csv.Error as error:
        raise UserError(f"{path}, row {row + 1}: no CSV ({error}): save it as CSV in UTF-8") from None


def _nobody(path: Path, header: Sequence[str], others: Sequence[int]) -> Callable[[int, Sequence[str]], str | None]:
    """Return a function that says why a row is nobody's finished answers; None where it is somebody's."""
    named = {place: plain(header[place]) for place in others}

    def reason(row: int, cells: Sequence[str]) -> str | None:
        if list(cells) == list(header) or any(re.match(r"\W*ImportId\b", cell) for cell in cells):
            return "of headings"
        there = [(place, name, plain(cells[place])) for place, name in named.items() if place < len(cells)]
        if any(name in _STATUS and _PREVIEW.fullmatch(text) for _, name, text in there):
            return "of previews, tests or spam"
        for place, name, text in there:
            unfinished = _UNFINISHED.fullmatch(text)
            if name in _WHETHER_FINISHED and not unfinished and not _FINISHED.fullmatch(text):
                raise UserError(
                    f"{path}, row {row}, column {place + 1}: it does not say whether the answers are finished, "
                    "expected True or False, Complete or Incomplete, or a date"
                )
            if (
                (name in _WHETHER_FINISHED | _SUBMITTED and unfinished)
                or (name in _STATUS and text and unfinished and not text.isdecimal())
                or (name == "progress" and re.fullmatch("[0-9]{1,2}", text))
            ):
                return "of unfinished answers"
        return None

    return reason
