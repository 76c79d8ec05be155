"""Answers of the page in a browser: three questions, each answered by the command that answers it in a terminal.

The page (web/) has no number and no formula of its own: it sends the fields of a form, and shows the HTML that comes
back. All text of others is escaped here, by `h`.
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import lru_cache
from pathlib import Path
from typing import Any

from . import models
from .cli import main
from .console import USAGE
from .formats import shell_words, significant
from .models import popular
from .money.prices import price_list
from .paper.gpus import catalogue
from .paper.tables import COUNTS
from .report.blocks import Panel, Row
from .report.charts import chart
from .report.html import Html, h

Fields = Mapping[str, str]
_SOFTWARE = {"today": ("--stack", "today"), "modern": ("--methods", "modern"), "paper": ("--stack", "paper")}
_FIELDS = {"stack": "software", "methods": "software"}  # of options with another name
_PRICES = ("buy ", "rent ")  # of these fields, followed by a GPU's name


@dataclass(frozen=True)
class Answered:
    """What a command gave: its answer, the table that people see, its notes, what it said on stderr, and all of it as
    JSON."""

    answer: str
    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str]
    said: str
    data: Any


class RefusedError(Exception):
    """A command refused what it was given; its message is the first argument."""


def run(*words: str) -> Answered:
    """Run a command for people and for machines. Raises RefusedError where it refuses its words."""
    text, said = _run(*words, "--format", "markdown")
    data, _ = _run(*words, "--format", "json")
    blocks = [block for block in text.split("\n\n") if block.strip()]
    table = next((block.splitlines() for block in blocks if block.startswith("|")), [])
    listed = [block for block in blocks if block.startswith("- ")]
    notes = [line for block in listed for line in re.split(r"^- ", block, flags=re.MULTILINE) if line]
    heads, _, *rows = [_cells(line) for line in table] or [[], []]
    return Answered(_plain(blocks[0]), heads, rows, [_plain(note) for note in notes], said, json.loads(data))


@lru_cache(200)  # a field that changes leaves most of an answer as it was
def _run(*words: str) -> tuple[str, str]:
    out, said = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(said):
        code = main(words)
    if code == USAGE:
        raise RefusedError(said.getvalue().strip().rpartition("repro: ")[2])
    return out.getvalue(), said.getvalue()


def _cells(line: str) -> list[str]:
    return [_plain(cell.strip()) for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def _plain(text: str) -> str:
    """Return text of Markdown without its escapes."""
    return re.sub(r"\\([^\w\s])", r"\1", " ".join(text.split()))


def form() -> str:
    """Return, as JSON, what the fields offer, and the line that says how wrong the answers are and how old their
    prices."""
    text, _ = _run("predict", "--validate")
    names = [(models.find(id).name, id, "") for id in models.TRACED]
    names += [(each.name, id, _training(id)) for id, each in popular.listed().items()]
    prices = price_list()
    days = [*(price.quoted for price in prices.gpus.values()), *(price.quoted for price in prices.rentals)]
    return json.dumps(
        {
            "models": [{"name": name, "id": id, "training": training} for name, id, training in names],
            "gpus": [gpu.called for gpu in catalogue()],
            "prices": [{"gpu": gpu, "buy": f"{price.price:,.0f}"} for gpu, price in prices.gpus.items()],
            "quoted": f"Our prices are of {min(days)} to {max(days)}.",
            "wrong": " ".join(text.partition("\n\n")[0].split()),
        }
    )


def _training(id: str) -> str:
    given = popular.listed()[id].given
    if "tokens" in given:
        return f"tokens={significant(given['tokens'] / 1e9)}B,batch={given['batch_size']},sequence={given['sequence']}"
    return f"epochs={given['epochs']},dataset={given['dataset_size']},batch={given['batch_size']}"


def answer(question: str, asked: str) -> str:
    """Answer one of the page's questions, of which `asked` are the fields as JSON. Return JSON: `html`, the `command`
    that answers it in a terminal and its `data`; or an `error` with the `field` that it belongs to."""
    fields = {name: text.strip() for name, text in json.loads(asked).items() if text.strip()}
    with tempfile.TemporaryDirectory(prefix="repro-") as folder:
        try:
            words, html, data = _QUESTIONS[question](fields, Path(folder))
        except RefusedError as error:
            field, text = _refused(str(error).replace(f"{folder}/", ""), fields)
            return json.dumps({"error": text, "field": field})
    command = shell_words(["repro", *words]).replace(f"{folder}/", "")
    return json.dumps({"html": html, "command": command, "data": data})


def _refused(text: str, fields: Fields) -> tuple[str, str]:
    """Return the field that an error is about, and its text without the option's name."""
    option = re.match(r"--(\w+):? ?", text)
    if option and (field := _FIELDS.get(option[1], option[1])) in fields:
        return field, text[option.end() :]
    if "GPUs" in text and "gpus" in fields:
        return "gpus", text
    if "GPU" in text and "gpu" in fields:
        return "gpu", text.partition("; ")[0]
    if priced := next((name for name in fields if name.startswith(_PRICES) and name in text), None):
        return priced, text
    trained = fields.get("training") and re.search(r"@|behind|tokens|images|batch|sequence|epochs|length", text)
    return ("training" if trained else "model"), text


def _model(fields: Fields, folder: Path) -> str:
    """Return a model's word: a name, or a decoder of one's own by its dimensions or its configuration."""
    named = fields.get("model", "")
    if named.startswith("{"):
        file = folder / "own.json"
        file.write_text(named)
        named = f"decoder:{file}"
    elif re.match(r"\w+ *=", named):
        named = f"decoder:{named.replace(' ', '')}"
    training = fields.get("training", "").replace(" ", "")
    return f"{named}@{training}" if training else named


def _how_long(fields: Fields, folder: Path) -> tuple[list[str], Html, Any]:
    """Answer: how long does it train, with which settings, and what stops it?"""
    model = _model(fields, folder)
    software = _SOFTWARE.get(fields.get("software", ""), _SOFTWARE["today"])
    gpus = [gpu.strip() for gpu in fields.get("gpu", "").split(",") if gpu.strip()] or ["A100"]
    words = ["predict", "--models", model, "--gpu", gpus[0], "--gpus", fields.get("gpus", "1"), *software]
    found = run(*words)
    rows = list(_days_by_count(words, gpus))
    parts: list[Any] = [*_screen(found, 6)]
    if rows:
        panel = Panel(
            "predicted", "Days by number of GPUs", "lines", "true days", "GPUs", rows, "", machines=_series(rows)
        )
        parts.insert(1, h("figure", chart(panel, "days"), class_="panel"))
    if len(gpus) > 1:
        parts.insert(1, _table(["GPU", "GPUs", "true days"], [[row.series, f"{row.x:g}", row.label] for row in rows]))
    return words, Html("".join(parts)), found.data


def _days_by_count(words: Sequence[str], gpus: Sequence[str]) -> Iterator[Row]:
    """Yield the days of the fastest settings on 1 to 8 of each GPU, without numbers that the batch does not divide
    among."""
    for gpu in gpus:
        for count in COUNTS:
            try:
                text, _ = _run(*words[:3], "--gpu", gpu, "--gpus", f"{count}", *words[7:], "--format", "json")
            except RefusedError:
                if count == 1:  # it is refused whatever the number
                    raise
                continue
            best = next((row for row in json.loads(text) if row["days"] is not None), None)
            if best is not None:
                yield Row(best["days"], best["gpu"], count, significant(best["days"]))


def _series(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(row.series for row in rows))


def _what_to_buy(fields: Fields, folder: Path) -> tuple[list[str], Html, Any]:
    """Answer: what should I buy or rent?"""
    words = ["cost", _model(fields, folder)]
    words += [f"--{name}={fields[name]}" for name in ("terms", "budget", "deadline", "gpu") if name in fields]
    if own := "".join(_price(name, fields[name]) for name in fields if name.startswith(_PRICES)):
        (folder / "prices.toml").write_text(own)
        words.append(f"--prices={folder / 'prices.toml'}")
    found = run(*words)
    parts: list[Any] = [*_screen(found)]
    rents, currency = found.data["terms"] == "rent", found.data["currency"]
    key = f"{'rent_a_run' if rents else 'price'}_{currency.lower()}"
    rows = [
        Row(row["days"], row["gpu"], row[key], str(row["gpus"]))
        for row in found.data["rows"]
        if row[key] and row["days"]
    ]
    if rows:
        what = "rent of a run" if rents else "price of the machine"
        panel = Panel(
            "predicted", "Days by cost", "marks", "true days", f"{what}, {currency}", rows, "", machines=_series(rows)
        )
        parts.insert(1, h("figure", chart(panel, "cost"), class_="panel"))
    return words, Html("".join(parts)), found.data


def _price(name: str, text: str) -> str:
    """Return the TOML of a price of one's own, which is today's: of a GPU, or an hour of it in machines of 1 to 8."""
    kind, _, gpu = name.partition(" ")
    try:
        price = float(text.replace(",", ""))
        if not 0 < price < math.inf:
            raise ValueError
    except ValueError:
        raise RefusedError(f"{name}: {text}: expected a sum above 0 such as 2.10, in USD") from None
    more = f'currency = "USD"\nquoted = {date.today()}\nsource = "the page"\n'
    if kind == "buy":
        return f"[[gpu]]\nname = {json.dumps(gpu)}\nprice = {price}\n{more}"
    rented = f'[[rental]]\ngpu = {json.dumps(gpu)}\nprovider = "own price"\nterms = "on-demand"\nhours = 1\n{more}'
    return "".join(f"{rented}gpus = {count}\nprice = {count * price}\n" for count in COUNTS)


def _the_paper(fields: Fields, folder: Path) -> tuple[list[str], Html, Any]:
    """Answer: can I believe the paper? Of a cell that is named, with its arithmetic."""
    table, by = fields.get("table", "1"), fields.get("by", "printed")
    words = ["table", table, "--by", by]
    shown = json.loads(_run(*words, "--format", "json")[0])
    true = json.loads(_run("table", table, "--by", "true", "--format", "json")[0])
    audited = {_place(row): row for row in json.loads(_run("audit", "--format", "json")[0]) if row["table"] == table}
    impossible = sum(row["verdict"] == "impossible" for row in audited.values())
    answer = (
        f"{impossible} of the {len(audited)} days that Table {table} prints cannot be true: they need more FLOP/s than "
        "the GPUs have."
    )
    parts = [h("p", answer, class_="answer")]
    named = fields.get("cell")
    for row in true:
        if named == " ".join(_place(row)):
            parts.append(_arithmetic(row, audited.get(_place(row))))
    return words, Html("".join([*parts, _grid(shown, audited, named)])), shown


def _place(row: Mapping[str, Any]) -> tuple[str, str, str]:
    return row["model"], str(row["gpus"]), row["gpu"]


def _arithmetic(row: Mapping[str, Any], audited: Mapping[str, Any] | None) -> Html:
    """Return what is known of a cell: the arithmetic of its printed days, true days, and what was measured."""
    place = f"{row['model']} on {row['gpus']} x {row['gpu']}"
    lines = [f"{place}: the paper prints {row['printed_days'] or 'no'} days."]
    if audited is not None:
        lines.append(
            f"In so many days each GPU would compute {audited['tflops']:.3g} TFLOP/s, "
            f"{audited['utilisation']:.0%} of its peak of {audited['peak_tflops']:g} in {audited['precision']}: "
            f"{audited['verdict']}."
        )
        if audited["settled_cause"]:
            lines.append(f"Cause: {audited['settled_cause']} (measured in {audited['settled_by']}).")
    if row["true_days"] is not None:
        lines.append(f"True days on the paper's software: {significant(row['true_days'])}, {row['origin']}.")
    if row["measured_days"] is not None:
        lines.append(
            f"Measured: {significant(row['measured_days'])} true days, {significant(row['measured_authors_days'])} by "
            f"the authors' clock ({row['measured_source']}, {row['measured_stack']})."
            if row["measured_authors_days"]
            else f"Measured: {significant(row['measured_days'])} true days ({row['measured_source']})."
        )
    return h("div", *(h("p", line) for line in lines), class_="cell", role="status")


def _grid(rows: Sequence[Mapping[str, Any]], audited: Mapping[Any, Mapping[str, Any]], named: str | None) -> Html:
    """Return a table of machines by models, whose cells are buttons that ask for their arithmetic."""
    names = list(dict.fromkeys(row["model"] for row in rows))
    machines = list(dict.fromkeys((str(row["gpus"]), row["gpu"]) for row in rows))
    known = {_place(row): row for row in rows}
    body = []
    for gpus, gpu in machines:
        cells = [_cell(known[name, gpus, gpu], audited.get((name, gpus, gpu)), named) for name in names]
        body.append(h("tr", h("th", f"{gpus} x {gpu}", scope="row"), *cells))
    head = h("thead", h("tr", h("th", "days"), *(h("th", name, scope="col") for name in names)))
    return h("div", h("table", head, h("tbody", *body)), class_="scroll grid", tabindex="0")


def _cell(row: Mapping[str, Any], audited: Mapping[str, Any] | None, named: str | None) -> Html:
    place = " ".join(_place(row))
    verdict = audited["verdict"] if audited else ""
    days = "-" if row["days"] is None else significant(row["days"]) + ("!" if verdict == "impossible" else "")
    button = h("button", days, type="button", data_cell=place, aria_pressed=str(place == named).lower(), title=place)
    return h("td", button, class_=verdict)


def _screen(found: Answered, most: int | None = None) -> Iterator[Html]:
    """Yield a command's answer, its table and its notes."""
    yield h("p", found.answer, class_="answer")
    if found.rows:
        yield _table(found.heads, found.rows[:most])
        if most is not None and len(found.rows) > most:
            rest = _table(found.heads, found.rows[most:])
            yield h("details", h("summary", f"{len(found.rows) - most} slower settings"), rest)
    notes = [*found.notes, *(line.removeprefix("repro: ") for line in found.said.splitlines())]
    if notes:
        yield h("ul", *(h("li", note) for note in notes))


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Html:
    number = re.compile(r"[-+]?[\d.,]+( ?%)?|-|")
    body = [
        h("tr", *(h("td", cell, class_="number" if number.fullmatch(cell) else None) for cell in row)) for row in rows
    ]
    table = h("table", h("thead", h("tr", *(h("th", head, scope="col") for head in heads))), h("tbody", *body))
    return h("div", table, class_="scroll", tabindex="0")


_QUESTIONS = {"how": _how_long, "cost": _what_to_buy, "paper": _the_paper}
