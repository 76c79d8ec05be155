"""What follows from the authors' raw results: their tables recomputed, as a command and a report show them."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, median
from typing import Any

from .. import command
from ..claims import Checked, check_all
from ..claims.measured import MEASURED
from ..claims.working import shown
from ..formats import FOR_MACHINES, Format, by_machine, counted, first, from_to, listing, render, significant, were, yes
from ..paper.settings import Settings
from ..paper.tables import TABLES, Place
from ..predict.audit import IMPLAUSIBLE
from ..predict.released import ReleasedStep, errors, off, possible, steps
from ..predict.released import row as step_row
from ..printout import people
from ..released.results import Archive, ReleasedCell
from ..run.reading import Joined
from ..run.settings_search import Search, Spread, searches
from .blocks import Block, Entry, Facts, Figure, Grid, Heading, Report, Row, Sentence, Table
from .figures import gains, in_order, of_searches
from .tables import Number

NOT_PRINTED = "≠"
_MOST_VERSIONS = 12  # a commit and six versions, unless several stacks measured
CLOCK = "Days are by the authors' clock, of their raw results: they were not measured here, and verify no cell."


def table(archive: Archive, number: Number, format: Format, every: bool) -> str:
    """Return Table 1 or 4, or Appendix J, as it follows from the raw results."""
    cells = of_table(archive, number)
    if format in FOR_MACHINES:
        return render([row(cell) for cell in cells], format)
    notes = [*coverage(archive), CLOCK]
    if number == "j":
        return people(follows_appendix_j(cells), [_appendix_j(cell) for cell in cells], notes, format, every)
    shown = {cell.place: f"{cell.text}{NOT_PRINTED * cell.differs}" for cell in cells}
    notes.insert(0, f"{NOT_PRINTED} is not the printed one, a dash fits with no settings, a dot has no result.")
    return people(follows(number, cells), by_machine(shown), notes, format)


def of_table(archive: Archive, number: Number) -> list[ReleasedCell]:
    """Return the cells of Table 1 or 4, or those of Table 1 that Appendix J has a row of."""
    table = "1" if number == "j" else number
    return [cell for cell in archive.cells if cell.printed.table == table and (number != "j" or cell.row is not None)]


def beside(archive: Archive | None, number: Number) -> dict[Place, dict[str, Any]]:
    """Return further columns with the released values of a table's cells; empty without an archive."""
    return {cell.place: released_columns(cell) for cell in of_table(archive, number)} if archive else {}


def released_columns(cell: ReleasedCell) -> dict[str, Any]:
    return {
        "released_days": cell.days,
        "released_settings": cell.settings or None,
        "released_mbs": cell.fastest[0].batch.micro_batch if cell.fastest else None,
    }


def row(cell: ReleasedCell) -> dict[str, Any]:
    """Return all of a cell for CSV and JSON."""
    return {
        "table": cell.printed.table,
        "model": cell.model,
        "gpu": cell.gpu,
        "gpus": cell.gpus,
        "printed": cell.printed.printed,
        "released": cell.text,
        "differs": cell.differs,
        **released_columns(cell),
        "next_longer_by": cell.lead,
        "appendix_j_follows": cell.follows,
        "settings_without_result": cell.missing,
        "source": "the authors' raw results",
    }


def follows(number: str, cells: Sequence[ReleasedCell]) -> str:
    """Return a sentence on whether a table's cells follow from the raw results."""
    known = [cell for cell in cells if cell.known]
    if not known:
        return f"Table {number} is not recomputed: no settings of it have a result here."
    compared = [cell for cell in known if cell.printed.state != "lost"]
    wrong = [
        f"{cell.model} on {cell.machine}: {cell.text}, printed {cell.printed.printed}"
        for cell in compared
        if cell.differs
    ]
    text = f"Of the {len(cells)} cells of Table {number}, {_given(len(compared), wrong)}"
    nothing = sum(cell.days is None for cell in known)
    return f"{text}; in {nothing} nothing fits." if nothing else f"{text}."


def _given(compared: int, wrong: Sequence[str]) -> str:
    """Return how many of the compared cells the raw results give as printed, and which otherwise."""
    text = f"the raw results give {compared - len(wrong)} as printed"
    return f"{text} and {len(wrong)} otherwise ({first(wrong)})" if wrong else text


def follows_appendix_j(cells: Sequence[ReleasedCell]) -> str:
    """Return a sentence on whether Appendix J's settings and micro batches are the fastest of the raw results."""
    known = [cell for cell in cells if cell.follows is not None]
    wrong = [f"{cell.model} on {cell.machine}" for cell in known if not cell.follows]
    ties = sum(len(cell.fastest) > 1 for cell in known)
    text = f"Of the {len(cells)} rows of Appendix J, {_given(len(known), wrong)}"
    return f"{text}; {ties} {were(ties)} ties." if ties else f"{text}."


def _appendix_j(cell: ReleasedCell) -> dict[str, Any]:
    assert cell.row is not None
    printed = " or ".join(settings.id for settings in cell.row.readings())
    return {
        "model": cell.model,
        "GPUs": cell.machine,
        "printed": f"{_short(printed)}, MBS {cell.row.mbs}",
        "released": f"{_short(cell.settings)}, MBS {cell.fastest[0].batch.micro_batch}" if cell.fastest else cell.text,
        "days": cell.days and significant(cell.days),
        "follows": None if cell.follows is None else yes(cell.follows),
    }


def _short(settings: str) -> str:
    """Return settings without free lunch, which all of Table 1 have."""
    return settings.replace("free_lunch+", "").replace("checkpointing", "ckpt").replace("offloading", "offl")


def coverage(archive: Archive) -> list[str]:
    """Return what the archive lacks, and what of it is of no known setting."""
    lines = []
    if archive.missing:
        named = first([trial.id for trial in archive.missing])
        of = len(archive.records) + len(archive.missing)
        lines.append(f"{counted(len(archive.missing), 'setting')} of {of:,} have no result ({named}).")
    if archive.other:
        named = first([f"{number} of {step}" for step, number in sorted(archive.other.items())])
        lines.append(f"Results of no known setting: {named}.{_made_by(archive)}")
    if not archive.records:
        lines.append(
            "No result of a known setting was found: the ids are likely of another commit of the authors' code, which "
            f"says nothing of the tables.{'' if archive.other else _made_by(archive)}"
        )
    return lines


def _made_by(archive: Archive) -> str:
    return (
        f" Its stepinfo.sqlite names {'; '.join(archive.environment[:_MOST_VERSIONS])}." if archive.environment else ""
    )


# --- What a step needs of its GPU, and what is predicted of it ---


def audited(found: Sequence[ReleasedStep], format: Format, every: bool) -> str:
    """Return which raw step times cannot be true, and what the launch queue explains of them."""
    if format in FOR_MACHINES:
        return render(list(map(step_row, found)), format)
    above = sorted((each for each in found if each.share > IMPLAUSIBLE), key=lambda each: -each.share)
    notes = [
        f"Shown are those above {IMPLAUSIBLE:.0%} of the GPU's dense peak, beyond any published training.",
        "With the queue: with the kernels that the authors' clock leaves out, as predicted for the paper's stack.",
        CLOCK,
    ]
    return people(possible(found), list(map(_audited, above)), notes, format, every)


def _audited(each: ReleasedStep) -> dict[str, Any]:
    return {
        "model": each.model,
        "GPUs": each.record.machine,
        "settings": _short(each.record.settings),
        "days": significant(each.record.derived.authors_days or 0.0),
        "of peak": f"{each.share:.0%}",
        "with the queue": f"{each.implied_share:.0%}",
        "true days": significant(each.implied_days),
        "predicted": significant(each.predicted_days),
    }


def validated(found: Sequence[ReleasedStep], format: Format, every: bool) -> str:
    """Return how far off predictions are of the raw step times, by model, GPU and kind of setting."""
    if format in FOR_MACHINES:
        return render(list(map(step_row, found)), format)
    notes = [
        "Steps are predicted at the micro batch that the authors timed, for the paper's stack.",
        "Without the queue: the error of the true step, in which the authors' clock leaves nothing out.",
        CLOCK,
    ]
    return people(off(found), errors(found), notes, format, every)


# --- The report ---

_CLOSE = 0.03  # share of the days: a winner by less may be another one in the next measurement


def of_archive(runs: Joined, archive: Archive, decided: Sequence[Block]) -> Report:
    """Return the report of the authors' raw results: what is `decided` by them, what follows from them, how surely, and
    what can be true."""
    found = steps(archive.records)
    searched = [id for id in MEASURED if not id.startswith("table-")]
    checked = [one for one in check_all(archive.records, "authors", ids=searched) if one.working]
    differ = [cell for cell in archive.cells if cell.differs]
    close = [cell for cell in archive.cells if cell.lead is not None and cell.lead < _CLOSE]
    impossible = sorted((each for each in found if each.impossible), key=lambda each: -each.share)
    answers = [
        f"Do the printed tables follow? {_tables_follow(archive)}",
        f"How sure is the winner? {_winner(archive)}",
        f"Can they be true? {_true(found)}",
        f"What do the methods bring? {_methods(checked)}",
    ]
    blocks: list[Block] = [
        *decided,
        Heading("Do the printed tables follow?", "follows", "Tables"),
        *([Table("Cells that differ", list(map(_cell, differ)))] if differ else []),
        *(_grid(archive, number) for number in TABLES),
        Heading("How sure is the winner?", "winner", "Winner"),
        *([Table(f"Won by less than {_CLOSE:.0%}", list(map(_lead, close)), folded=True)] if close else []),
        Table("Appendix J", list(map(_appendix_j, of_table(archive, "j"))), folded=True),
        Heading("Can they be true?", "true", "True days"),
        *([Table("More FLOP/s than the GPU has", list(map(_audited, impossible)), folded=True)] if impossible else []),
        Sentence(off(found)),
        *([Table("How far off predictions are", errors(found), folded=True)] if found else []),
        Heading("What do the methods bring?", "methods", "Methods"),
        *_figures(in_order(searches(archive.records, "authors", "released"))),
        Heading("Run it again", "again"),
        Facts([(f"{command()} {line} {archive.path}", what) for line, what in _AGAIN], commands=True),
    ]
    notes = [*coverage(archive), CLOCK]
    return Report("Report of the authors' raw results", answers, [], notes, blocks, runs.verdicts)


_AGAIN = (
    ("report", "this report"),
    ("table 1 --measured", "Table 1; also 4 and j"),
    ("audit --measured", "the step times that cannot be true"),
    ("predict --validate --measured", "the errors of predictions"),
    ("claims --measured", "the claims"),
)


def _tables_follow(archive: Archive) -> str:
    tables = (follows(number, of_table(archive, number)) for number in TABLES)
    return f"{' '.join(tables)} {follows_appendix_j(of_table(archive, 'j'))}"


def _winner(archive: Archive) -> str:
    """Return the sentences on how surely the fastest settings won, and on what the tables leave out in silence."""
    leads = [cell.lead for cell in archive.cells if cell.lead is not None]
    close = sum(lead < _CLOSE for lead in leads)
    uncompiled = sum(
        record.status == "ok" and Settings.parse(record.settings).free_lunch and not record.as_run.compiled
        for record in archive.records
    )
    text = f"Compiling had failed for {counted(uncompiled, 'setting')}, which were timed uncompiled; "
    text += f"{counted(len(archive.missing), 'setting')} have no result, which the tables leave out in silence."
    if not leads:
        return text
    won = f"The next settings take {100 * median(leads):.1f} % longer in the median of {counted(len(leads), 'cell')}"
    return f"{won}, and less than {_CLOSE:.0%} longer in {close}. {text}"


def _true(found: Sequence[ReleasedStep]) -> str:
    """Return the sentences on what cannot be true, and on the true days behind it."""
    factors = [each.implied / each.seconds for each in found if each.impossible]
    text = possible(found)
    if factors:
        text += f" By it, true days of these are {median(factors):.2f} times the released ones in the median"
        text += f" ({from_to(factors, '.2f')})."
    return text


def _methods(checked: Sequence[Checked]) -> str:
    """Return a sentence on the claims about settings that the raw results recompute."""
    named = [
        f"{one.claim.id} {one.claim.with_unit(shown(one.working.value.value))} (published {one.claim.text})"
        for one in checked
        if one.working
    ]
    return f"{listing(named)}." if named else "No GPU was searched whole, so that nothing is recomputed."


def _cell(cell: ReleasedCell) -> dict[str, Any]:
    return {
        "table": cell.printed.table,
        "model": cell.model,
        "GPUs": cell.machine,
        "printed": cell.printed.printed,
        "released": cell.text,
        "exact days": cell.days and significant(cell.days),
        "settings": _short(cell.settings) or None,
    }


def _lead(cell: ReleasedCell) -> dict[str, Any]:
    lead = 0.0 if cell.lead is None else cell.lead
    return {
        "table": cell.printed.table,
        "model": cell.model,
        "GPUs": cell.machine,
        "settings": _short(cell.settings),
        "next longer by": f"{100 * lead:.2f} %",
    }


def _grid(archive: Archive, number: Number) -> Grid:
    """Return Table 1 or 4 as printed, with the released cells below."""
    kinds = {
        "reproduced": ("=", "follows from the raw results"),
        "slower": (NOT_PRINTED, "does not follow from the raw results"),
        "not_measured": ("", "no result, or no printed number"),
    }
    entries = {}
    for cell in of_table(archive, number):
        known = cell.known and cell.printed.state != "lost"
        kind = "not_measured" if not known else "slower" if cell.differs else "reproduced"
        symbol, meaning = kinds[kind]
        message = f"{cell.model} on {cell.machine}: printed {cell.printed.printed}, released {cell.text}, {meaning}"
        entries[cell.place] = Entry(cell.printed.printed, cell.text, kind, symbol, message)
    caption = "Days as printed, and below them as they follow from the raw results."
    return Grid(f"Table {number}", caption, entries, kinds)


def _figures(found: Sequence[Search]) -> list[Figure]:
    """Return figures 4, 5 and 11, which need a whole search: the gains of each, and means over the models."""
    whole = [search for search in found if search.whole]
    spreads: dict[str, list[Spread]] = {}
    for each in whole:
        if each.spread is not None:
            spreads.setdefault(each.machine, []).append(each.spread)
    rows = []
    for machine, there in spreads.items():
        note = counted(len(there), "model")
        rows.append(Row(machine, "median", fmean(one.median / one.best for one in there), note=note))
        rows.append(Row(machine, "worst", fmean(one.worst / one.best for one in there), note=note))
    title, says = "Best memory-saving settings against median and worst", "Means over the models."
    x = "time, best saving memory = 1"
    panels = of_searches("Where the whole space was searched", "dots", x, rows, whole, y="machine")
    return [figure for figure in (gains(whole), Figure("5", title, says, panels)) if figure.panels]
