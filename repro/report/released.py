"""What follows from the authors' raw results: their tables recomputed, as a command and a report show them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..formats import FOR_MACHINES, Format, by_machine, counted, first, listing, render, significant, were
from ..paper.tables import Place
from ..printout import people
from ..released.results import Archive, ReleasedCell
from .tables import Number

NOT_PRINTED = "≠"
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
    wrong = [cell for cell in compared if cell.differs]
    text = f"Of the {len(cells)} cells of Table {number}, {len(compared) - len(wrong)} follow from the raw results"
    if wrong:
        off = [f"{cell.model} on {cell.machine}: {cell.text}, printed {cell.printed.printed}" for cell in wrong]
        text += f" and {len(wrong)} do not ({first(off)})"
    nothing = sum(cell.days is None for cell in known)
    return f"{text}; in {nothing} nothing fits." if nothing else f"{text}."


def follows_appendix_j(cells: Sequence[ReleasedCell]) -> str:
    """Return a sentence on whether Appendix J's settings and micro batches are the fastest of the raw results."""
    known = [cell for cell in cells if cell.follows is not None]
    wrong = [f"{cell.model} on {cell.machine}" for cell in known if not cell.follows]
    ties = sum(len(cell.fastest) > 1 for cell in known)
    text = f"Of the {len(cells)} rows of Appendix J, {len(known) - len(wrong)} follow from the raw results"
    text += f" and {len(wrong)} do not ({first(wrong)})" if wrong else ""
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
        "": NOT_PRINTED if cell.follows is False else None,
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
        named = listing([f"{number} of {step}" for step, number in sorted(archive.other.items())])
        lines.append(f"Results of no known setting: {named}.{_made_by(archive)}")
    if not archive.records:
        lines.append(
            "No result of a known setting was found: the ids are likely of another commit of the authors' code, which "
            f"says nothing of the tables.{'' if archive.other else _made_by(archive)}"
        )
    return lines


def _made_by(archive: Archive) -> str:
    return f" Its stepinfo.sqlite names {listing(archive.environment)}." if archive.environment else ""
