"""People's answers to the survey, read from the spreadsheets that form services export, and from the authors' file.

A spreadsheet is data from others, and private: a cell is only ever compared with the known choices, never printed,
also in no error. Errors name the file, the row as a spreadsheet counts it, and the column.
"""

from __future__ import annotations

import codecs
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from .. import files
from ..console import UserError
from ..formats import counted
from .columns import Asked, answers_besides, arranged
from .counts import BASE, Answers, Person, Source
from .export import Export, export
from .questions import AUTHORS_COLUMNS, AUTHORS_PEOPLE, BUDGETS, OTHER, Question, gpus, plain, questions, spellings

if TYPE_CHECKING:
    from ..released.archive import Packed

_UP_TO = (0, 500, 1000, 5000)
_NOTHING = {"none", "no", "zero", "nothing", "no budget", "nil", "no cloud budget"}
_DIGITS = 15  # of a budget
_CODE = re.compile(  # in place of an answer's text, or of several
    r"yes|y|no?|x|true|false|checked|[a-z]{0,3}[0-9]{1,4}([,; ]+[a-z]{0,3}[0-9]{1,4})*[,; ]*", re.IGNORECASE
)
_NO_SUMS = {"m", "million", "hour", "hours", "h", "day", "week", "gpu", "gpus", "machines"}
_OWN_FORMATS = (b"PK\x03\x04", b"\xd0\xcf\x11\xe0")  # Excel and OpenDocument; old Excel
# Headings of columns that a form service adds, by which it knows a person; a name only where there is no other.
_IDENTITIES = (
    re.compile(
        r"(your )?(e ?mail( address)?|recipientemail|user ?name|respondent|participant)"
        r"|(respondent|response|participant) ?id"
    ),
    re.compile("(your |full )?name( optional)?"),
)
_TIME = re.compile(r"\b(time|timestamp|date|start(ed)?|submitted|completed|completion)\b")
_NOBODY = {"", "anonymous", "anon", "n a", "na", "none", "no"}  # as `plain` has them


@dataclass
class _Found:
    """What was read so far: people by what identifies them, with the place of their row."""

    people: dict[object, Person] = field(default_factory=dict)
    places: dict[object, str] = field(default_factory=dict)
    columns: set[str] = field(default_factory=set)
    problems: list[str] = field(default_factory=list)


def read(paths: Sequence[Path], exact: bool = False) -> Answers:
    """Read the files, whose counts are rounded unless they are `exact` or the authors' file alone.

    Raise UserError for one that is no spreadsheet as CSV, has no header row of questions or no answer, or is given
    twice.
    """
    found, sources = _Found(), list[Source]()
    for path in paths:
        data = _content(path)
        digest = hashlib.sha256(data).hexdigest()
        if other := next((source for source in sources if source.digest == digest), None):
            raise UserError(f"{path} has the same content as {other.name}: name each file once")
        people, header = _read(path, data, found)
        authors = header == AUTHORS_COLUMNS and people == AUTHORS_PEOPLE
        sources.append(Source(str(path), digest, people, authors))
    exact |= len(sources) == 1 and sources[0].authors
    return Answers(tuple(found.people.values()), frozenset(found.columns), sources, found.problems, exact)


def _content(path: Path) -> bytes:
    from ..released import archive  # unpacks, which other answers do not need

    try:
        data = _released(archive.read(path), path) if archive.is_archive(path) else files.read(path)
    except OSError as error:
        reason = "not found" if isinstance(error, FileNotFoundError) else f"cannot be read ({error.strerror})"
        raise UserError(f"{path}: {reason}, expected the answers as a CSV file") from None
    if not data.removeprefix(codecs.BOM_UTF8).strip():
        raise UserError(f"{path}, row 1: the file is empty, expected a header row of questions")
    if data.startswith(_OWN_FORMATS):
        raise UserError(f"{path}, row 1: a spreadsheet's own format, expected CSV: save it as CSV in UTF-8")
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise UserError(f"{path}, row 1, column 1: UTF-16, expected UTF-8: save it as CSV in UTF-8")
    return data


def _released(packed: Packed, path: Path) -> bytes:
    if packed.survey is None:
        raise UserError(f"{path}: it holds no artifacts/survey.csv, name the authors' artifacts.tar, or the answers")
    return packed.survey


def _read(path: Path, data: bytes, found: _Found) -> tuple[int, tuple[str, ...]]:
    """Add a file's people, and return their number and the header as names of columns."""
    table = export(path, data.removeprefix(codecs.BOM_UTF8).decode(errors="surrogateescape"))
    heading = f"{path}, row {table.header_row}"
    asked, again = arranged(table.header, heading)
    left = ", ".join(f"{number} {what}" for what, number in table.left_out.items())
    found.problems += [*_missing(heading, asked), *again, *([f"{path}: rows left out: {left}"] if left else [])]
    rows = _of_the_headers_length(path, table, found.problems)
    by_text = {column for column, each in asked.items() if each.choices and each.by_text(rows, path)}
    identities = _identities(table.header, table.others)
    timed = any(_TIME.search(plain(table.header[place])) for place in table.others)
    answered = list[tuple[int, list[str], Person]]()
    for row, cells in rows:
        made = {column: _made(each, cells, column in by_text) for column, each in asked.items()}
        person = Person({column: choices for column, choices in made.items() if choices})
        if person.chosen:
            answered.append((row, cells, person))
        else:
            found.problems.append(f"{path}, row {row}: it answers no question, and is left out")
    if not answered:
        besides = f" (rows left out: {left})" if left else ""
        raise UserError(f"{path}, row {table.header_row + 1}: no answers{besides}, expected a row for each person")
    people = sum(_add(path, row, cells, person, identities, timed, found) for row, cells, person in answered)
    for column, each in asked.items():
        if unlike := [(row, cells) for row, cells, person in answered if person.has(column, OTHER)]:
            known = any(person.chosen.get(column, {OTHER}) != {OTHER} for _, _, person in answered)
            found.problems.append(_none_of_the_choices(path, each, unlike, known))
    found.columns |= asked.keys()
    return people, tuple(cell.strip().casefold() for cell in table.header)


def _of_the_headers_length(path: Path, table: Export, problems: list[str]) -> list[tuple[int, list[str]]]:
    rows = []
    for row, cells in table.rows:
        if len(cells) == len(table.header):
            rows.append((row, cells))
            continue
        place = min(len(cells), len(table.header)) + 1
        problems.append(
            f"{path}, row {row}, column {place}: {counted(len(cells), 'cell')} where the header has "
            f"{len(table.header)}; the row is left out"
        )
    return rows


def _none_of_the_choices(path: Path, asked: Asked, rows: Sequence[tuple[int, Sequence[str]]], known: bool) -> str:
    """Return a line on the rows with answers that are none of the choices. Raise UserError where `known` says that no
    answer is one, and they look like codes, or are too many for chance."""
    place = f"{path}, row {rows[0][0]}, column {asked.first + 1} (question {asked.question.number})"
    coded = asked.whole is not None and all(_CODE.fullmatch(cells[asked.whole].strip()) for _, cells in rows)
    if not known and asked.question.kind != "sum" and (coded or len(rows) >= BASE):
        raise UserError(
            f"{place}: no answer is one of the choices; export the answers as texts, no codes, or leave the column out"
        )
    more = ", as in other rows" if len(rows) > 1 else ""
    return f"{place}: an answer that is none of the choices, counted as other{more}"


def _missing(heading: str, asked: Mapping[str, Asked]) -> list[str]:
    """Name the questions that a file does not ask; those whose answers are never used may be missing."""
    found = []
    for question in questions().values():
        lacking = [column for column in question.columns if column not in asked]
        if question.kind == "text" or not lacking:
            continue
        of = ""
        if len(lacking) < len(question.columns):
            of = f", in {', '.join(row for row in question.rows if f'{question.id}_{gpus(row)}' in lacking)}"
        first = question.text.partition("?")[0]
        found.append(f"{heading}: no column asks question {question.number} ({first}?){of}")
    return found


def _identities(header: Sequence[str], others: Sequence[int]) -> list[int]:
    """Return the places of the columns, of those that ask no question, by which a form service knows a person."""
    for pattern in _IDENTITIES:
        if there := [place for place in others if pattern.fullmatch(plain(header[place]))]:
            return there
    return []


def _add(
    path: Path, row: int, cells: Sequence[str], person: Person, identities: Sequence[int], timed: bool, found: _Found
) -> int:
    """Add a person, in place of earlier answers of the same one, and return by how many the people became more. Equal
    rows are one person where they have a time, else they may be of two."""
    named = next(
        ((place, name) for place in identities if plain(name := cells[place].strip().casefold()) not in _NOBODY),
        None,
    )
    key: object = ("row", tuple(cells))
    if named:  # a number counts the answers of one file, an address or name is the same in all
        key = ("person", named[1], str(path) if named[1].isdecimal() else "")
    place = f"{path}, row {row}"
    earlier = found.places.get(key)
    if earlier is not None and named:
        found.problems.append(
            f"{place}, column {named[0] + 1}: the same person as in {earlier}; the later answers are counted"
        )
    elif earlier is not None and timed:
        found.problems.append(f"{place}: the same in every column as {earlier}; it is counted once")
    elif earlier is not None:
        found.problems.append(f"{place}: the same in every column as {earlier}; both are counted")
        key = ("row", place)
    found.people[key] = person
    found.places[key] = place
    return int(earlier is None or key == ("row", place))


def _made(asked: Asked, cells: Sequence[str], by_text: bool) -> frozenset[str]:
    """Return the choices that a row makes; `OTHER` for what is none of the question's, and for several where it has
    one answer."""
    if asked.whole is None:
        made = asked.ticked(cells, by_text) | answers_besides(asked, cells)
        return made if len(made) < 2 or asked.question.kind == "several" else frozenset({OTHER})
    cell = cells[asked.whole].strip()
    return _chosen(asked.question, cell) if cell else answers_besides(asked, cells)


def _chosen(question: Question, cell: str) -> frozenset[str]:
    """Return the choices in a cell; `OTHER` where one is none of the question's."""
    if question.kind == "sum":
        return frozenset({_budget(cell)})
    known = spellings(question.id)
    whole = known.get(plain(re.sub(r"\.0$", "", cell.strip(",; "))))
    if whole is not None or question.kind != "several":
        return frozenset({whole or OTHER})
    parts = filter(None, map(str.strip, re.split("[,;\n]", cell)))
    return frozenset(known.get(plain(part), OTHER) for part in parts)


def _budget(cell: str) -> str:
    """Return the class of a monthly sum in US dollars; `OTHER` for what is no such number."""
    text = plain(cell)
    if text in _NOTHING:
        return BUDGETS[0]
    sums = re.sub(r"usd|us(?=\$)", " ", cell.casefold())
    numbers = re.findall(r"([0-9]+(?:,[0-9]{3})*(?:\.[0-9]+)?) ?(k\b)?", sums)
    # Names such as EC2 are no sums, and 1.000 may be one or a thousand.
    if len(numbers) != 1 or len(numbers[0][0]) > _DIGITS or re.search(r"[a-z][0-9]|\b[0-9]{1,3}\.[0-9]{3}\b", sums):
        return OTHER
    if _NO_SUMS & set(plain(sums).split()):
        return OTHER
    number, thousands = numbers[0]
    sum_ = float(number.replace(",", "")) * (1000 if thousands else 1)
    if re.search(r"year|annual|annum|\byrs?\b|\bp ?a\b", text):
        sum_ /= 12
    return next((name for name, most in zip(BUDGETS, _UP_TO, strict=False) if sum_ <= most), BUDGETS[-1])
