"""Tables 1 and 4 as grids: verdicts, utilisation, and the days that one would wait."""

from __future__ import annotations

from collections.abc import Sequence

from ..formats import cell_text, significant
from ..paper.tables import COUNTS, cells, printed
from ..paper.tables import Table as TableNumber
from ..predict.audit import IMPLAUSIBLE, Audited
from ..record import BY_DAYS, DAYS, days_text, other
from ..run import corrected
from ..run.corrected import Corrected
from ..run.verdict import Judgement, Verdict
from .blocks import Entry, Grid

# The words that select a field's colour, each with its symbol and meaning.
VERDICTS: dict[str, tuple[str, str]] = {
    "reproduced": ("✓", "reproduced: days agree within the tolerance, or neither can train it"),
    "faster": ("▼", "faster than printed"),
    "slower": ("▲", "slower than printed"),
    "feasibility_differs": ("✗", "feasible in one, out of memory in the other"),
    "no_reference": ("?", "no reference: the paper's mark is lost, or its jobs had too little host memory"),
    "not_measured": ("", "not measured"),
}
# Those of verdicts, measured and projected.
KINDS = VERDICTS | {
    f"projected_{word}": (f"≈{symbol}", f"projected, which verifies nothing: {meaning}")
    for word, (symbol, meaning) in VERDICTS.items()
    if word != "not_measured"
}
AUDIT = {
    "impossible": ("✗", "impossible: above the GPU's dense peak, however the days were rounded"),
    "implausible": ("!", f"implausible: above {IMPLAUSIBLE:.0%} of peak, beyond any published training run"),
    "plausible": ("", "plausible"),
    "no_days": ("-", "no days to audit"),
}

_CORRECTED = {
    "predicted": ("", "predicted days, (printed days), interval"),
    "predicted_infeasible": ("-", "predicted infeasible"),
}


def kind_of(judged: Judgement) -> str:
    """Return the word of `KINDS` for a judgement."""
    return f"projected_{judged.verdict}" if judged.projected else judged.verdict


def verdict_grid(table: TableNumber, verdicts: Sequence[Verdict]) -> Grid:
    """Return Table 1 or 4: printed days, and below them the measured ones by the judging and by the other clock."""
    clock = verdicts[0].clock
    entries = {v.place: verdict_entry(v) for v in verdicts if v.table == table}
    what = "the best settings found" if table == "1" else "naive settings"
    caption = (
        f"Days of training with {what}, on 1 to {max(COUNTS)} GPUs: as printed, - infeasible and ? a mark that "
        "is illegible in our copy of the paper"
    )
    if any(entry.below for entry in entries.values()):
        caption += (
            f"; beside a verdict's symbol, {DAYS[clock]} here and, smaller or after a slash, {DAYS[other(clock)]}, - "
            "where nothing fitted"
        )
    return Grid(f"Table {table}", f"{caption}.", entries, KINDS)


def verdict_entry(verdict: Verdict) -> Entry:
    """Return a cell, coloured by its verdict."""
    clock, chosen = other(verdict.clock), verdict.chosen
    beside, kind, small = verdict.by(clock), kind_of(chosen), ""
    days = "" if chosen.verdict == "not_measured" else "-"
    message = f"{verdict.cell}: {kind.replace('_', ' ')}"
    message += f" with {chosen.settings}" if chosen.settings else ""
    if chosen.days is not None:
        days = significant(chosen.days)
        message += f", {days_text(chosen.days, verdict.clock)}"
    message += f", {chosen.reason}" if chosen.reason else ""
    if chosen.days is not None and beside.days is not None:
        small = significant(beside.days)
        message += f"; {BY_DAYS[clock]} {kind_of(beside).replace('_', ' ')}, {beside.days:.1f} days"
    return Entry(printed(verdict.expected, verdict.expected_days), days, kind, KINDS[kind][0], message, small)


def audit_grid(table: TableNumber, rows: Sequence[Audited]) -> Grid:
    """Return the utilisation, in per cent of the GPU's peak, that the days of Table 1 or 4 imply."""
    audited = {row.place: _audit_entry(row) for row in rows if row.table == table}
    symbol, meaning = AUDIT["no_days"]
    none = Entry(symbol, "", "no_days", "", meaning)
    entries = {cell.place: audited.get(cell.place, none) for cell in cells(table)}
    caption = (
        f"Model FLOP/s that the printed days imply, on 1 to {max(COUNTS)} GPUs, as a share of the GPU's dense peak at "
        "the recipe's precision."
    )
    return Grid(f"Table {table}, % of peak", caption, entries, AUDIT)


def _audit_entry(row: Audited) -> Entry:
    share = row.utilisation
    symbol, _ = AUDIT[row.verdict]
    message = (
        f"Table {row.table}, {row.model} on {row.machine}: {row.days:g} days are {share.value:.0%} of peak "
        f"({share.low:.0%} to {share.high:.0%}), {row.verdict}"
    )
    if row.corrected_share:
        message += f"; with the launch queue taken out {row.corrected_share}, {row.corrected_verdict}"
    return Entry(f"{share.value:.0%}".rstrip("%"), "", row.verdict, symbol, message)


def corrected_grid(table: TableNumber, rows: Sequence[Corrected]) -> Grid:
    """Return the predicted true days of Table 1 or 4, and below them their interval."""
    entries = {row.place: _corrected_entry(row) for row in rows}
    return Grid(corrected.title(table), corrected.basis(table), entries, _CORRECTED)


def _corrected_entry(row: Corrected) -> Entry:
    kind = "predicted" if row.feasible else "predicted_infeasible"
    interval = row.interval.replace("-", "\u2013")  # a page may break a line after an en dash
    # Three digits, as what is little faster prints alike with two.
    beside = "" if row.fastest_days is None else f"fastest {cell_text(row.fastest_days, 3)}"
    return Entry(f"{row.shown}{'*' if row.refused else ''} ({row.printed})", interval, kind, "", row.message, beside)
