"""Tables laid out like the paper's Table 1, each field coloured by a word."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..audit import IMPLAUSIBLE, Audited
from ..clocks import BY_DAYS, DAYS, days_text, other
from ..corrected import Corrected, basis, title
from ..expected import COUNTS, Table, cells, printed
from ..formats import figures
from ..verdict import Verdict


@dataclass(frozen=True)
class Entry:
    """A field of a grid: what is printed, a second line below and a small third one `beside`, the word that colours it,
    and that word's symbol. `told` says it in full."""

    text: str
    below: str
    kind: str
    symbol: str
    told: str
    beside: str = ""


@dataclass(frozen=True)
class Grid:
    """A table laid out like the paper's Table 1: a line a model, a column a machine. `kinds` explains the colours that
    occur: word, symbol, meaning."""

    title: str
    caption: str
    gpus: Sequence[str]
    lines: Sequence[tuple[str, Sequence[Entry]]]
    kinds: Sequence[tuple[str, str, str]]


# What colours a field: its symbol, and what it means.
VERDICTS = {
    "reproduced": ("✓", "reproduced: days agree within the tolerance, or neither can train it"),
    "faster": ("▼", "faster than printed"),
    "slower": ("▲", "slower than printed"),
    "feasibility_differs": ("✗", "feasible in one, out of memory in the other"),
    "no_reference": ("?", "no reference: the paper's mark is lost, or its jobs had too little host memory"),
    "not_measured": ("", "not measured"),
}
AUDIT = {
    "impossible": ("✗", "impossible: above the GPU's dense peak, however the days were rounded"),
    "implausible": ("!", f"implausible: above {IMPLAUSIBLE:.0%} of peak, beyond any published training run"),
    "plausible": ("", "plausible"),
    "no_days": ("-", "no days to audit"),
}

CORRECTED = {
    "predicted": ("", "predicted days, (printed days), interval"),
    "predicted_infeasible": ("-", "predicted infeasible"),
}


def verdict_grid(table: Table, verdicts: Sequence[Verdict]) -> Grid:
    """Table 1 or 4: printed days, and below them what was measured, by the clock that judges and by the other."""
    clock = verdicts[0].clock
    entries = {v.place: verdict_entry(v) for v in verdicts if v.table == table}
    what = "the best settings found" if table == "1" else "naive settings"
    caption = (
        f"Days of training with {what}, on 1 to {max(COUNTS)} GPUs: as printed, - infeasible and ? a mark that the "
        "copy at hand has lost"
    )
    if any(entry.below for entry in entries.values()):
        caption += (
            f"; beside a verdict's symbol, {DAYS[clock]} here and, smaller or after a slash, {DAYS[other(clock)]}, - "
            "where nothing fitted"
        )
    caption += "."
    return _grid(f"Table {table}", caption, entries, VERDICTS)


def verdict_entry(verdict: Verdict) -> Entry:
    """A cell, coloured by its verdict."""
    clock = other(verdict.clock)
    chosen, beside = verdict.chosen, verdict.by(clock)
    measured = ""
    if chosen.days is not None:
        measured = figures(chosen.days)
    elif chosen.verdict != "not_measured":
        measured = "-"
    symbol, _ = VERDICTS[chosen.verdict]
    told = f"{verdict.cell}: {chosen.verdict.replace('_', ' ')}"
    told += f" with {chosen.settings}" if chosen.settings else ""
    told += f", {days_text(chosen.days, verdict.clock)}" if chosen.days is not None else ""
    told += f", {chosen.reason}" if chosen.reason else ""
    if chosen.days is not None and beside.days is not None:
        told += f"; {BY_DAYS[clock]} {beside.verdict.replace('_', ' ')}, {beside.days:.1f} days"
    small = figures(beside.days) if measured and beside.days is not None else ""
    return Entry(printed(verdict.expected, verdict.expected_days), measured, chosen.verdict, symbol, told, small)


def audit_grid(table: Table, rows: Sequence[Audited]) -> Grid:
    """What the days of Table 1 or 4 imply, in per cent of the GPU's peak."""
    audited = {row.place: _audit_entry(row) for row in rows if row.table == table}
    symbol, meaning = AUDIT["no_days"]
    none = Entry(symbol, "", "no_days", "", meaning)
    entries = {cell.place: audited.get(cell.place, none) for cell in cells(table)}
    caption = (
        f"Model FLOP/s that the printed days imply, on 1 to {max(COUNTS)} GPUs, as a share of the GPU's dense peak at "
        "the recipe's precision."
    )
    return _grid(f"Table {table}, % of peak", caption, entries, AUDIT)


def _audit_entry(row: Audited) -> Entry:
    share = row.utilisation
    symbol, _ = AUDIT[row.verdict]
    told = (
        f"Table {row.table}, {row.model} on {row.machine}: {row.days:g} days are {share.value:.0%} of peak "
        f"({share.low:.0%} to {share.high:.0%}), {row.verdict}"
    )
    if row.corrected_share:
        told += f"; with the launch queue taken out {row.corrected_share}, {row.corrected_verdict}"
    return Entry(f"{share.value:.0%}".rstrip("%"), "", row.verdict, symbol, told)


def corrected_grid(table: Table, rows: Sequence[Corrected]) -> Grid:
    """The days of Table 1 or 4 that one would really wait, and below them their interval."""
    entries = {row.place: _corrected_entry(row) for row in rows}
    return _grid(title(table), basis(table), entries, CORRECTED)


def _corrected_entry(row: Corrected) -> Entry:
    kind = "predicted" if row.feasible else "predicted_infeasible"
    interval = row.interval.replace("-", "\u2013")  # a page may break the line behind this one
    return Entry(f"{row.shown} ({row.printed})", interval, kind, "", row.told)


def _grid(
    title: str, caption: str, entries: dict[tuple[str, str, int], Entry], kinds: dict[str, tuple[str, str]]
) -> Grid:
    gpus = list(dict.fromkeys(gpu for _, gpu, _ in entries))
    lines = [
        (model, [entries[model, gpu, count] for gpu in gpus for count in COUNTS])
        for model in dict.fromkeys(model for model, _, _ in entries)
    ]
    there = {entry.kind for entry in entries.values()}
    return Grid(
        title,
        caption,
        gpus,
        lines,
        [(kind, symbol, meaning) for kind, (symbol, meaning) in kinds.items() if kind in there],
    )
