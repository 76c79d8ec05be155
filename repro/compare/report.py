"""The report of a comparison: a verdict in one line, a row for each trial, and what else changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict

from ..console import FAILED, INCONCLUSIVE, OK
from ..formats import Format, Interval, as_json, cell_text, counted, first, listing, prose, render
from ..printout import MOST_NOTES, Column, data, people, shown
from .decision import change
from .side import Difference
from .trials import STATUSES, Compared, OneSided, Status

_MIB = 2**20
_FEW = 8
_SERIOUS: tuple[Status | OneSided, ...] = (
    "broke",
    "regressed",
    "incomparable",
    "inconclusive",
    "fixed",
    "improved",
    "unchanged",
)


def _peaks_text(before: float | None, each: Compared) -> str | None:
    peaks = before, each.after.peak_memory
    return None if peaks == (None, None) else ", ".join(cell_text(peak and peak / _MIB, 4) for peak in peaks)


def _processes_text(before: int, each: Compared) -> str:
    counts = {
        "discarded": each.before.discarded + each.after.discarded,
        "failed": each.before.failed + each.after.failed,
    }
    lost = ", ".join(f"{count} {what}" for what, count in counts.items() if count)
    return f"{before}, {each.after.processes}{f' ({lost})' if lost else ''}"


# Seconds of a training step, bytes, days; None where a value is not known.
_COLUMNS = [
    Column("recipe", lambda each: each.trial.recipe, "recipe"),
    Column("scale", lambda each: each.trial.scale),
    Column("settings", lambda each: each.trial.settings, "settings"),
    Column("machine", lambda each: each.trial.machine, "machine"),
    Column("micro_batch", lambda each: each.trial.batch.micro_batch, "MBS"),
    Column("before_median", lambda each: each.before.median, "step s before"),
    Column("after_median", lambda each: each.after.median, "step s after"),
    Column("ratio", lambda each: each.judged and each.judged.ratio, "ratio", lambda ratio, _: ratio and f"{ratio:.3f}"),
    Column(
        "ratio_low",
        lambda each: (found := _interval(each)) and found.low,
        "interval",
        lambda low, each: low and f"{low:.3f} to {each.judged.interval.high:.3f}",
    ),
    Column("ratio_high", lambda each: (found := _interval(each)) and found.high),
    Column("before_peak_memory", lambda each: each.before.peak_memory, "peak MiB", _peaks_text),
    Column("after_peak_memory", lambda each: each.after.peak_memory),
    Column("before_days", lambda each: each.before.days),
    Column("after_days", lambda each: each.after.days),
    Column("before_processes", lambda each: each.before.processes, "processes", _processes_text),
    Column("after_processes", lambda each: each.after.processes),
    Column("before_discarded", lambda each: each.before.discarded),
    Column("after_discarded", lambda each: each.after.discarded),
    Column("before_failed", lambda each: each.before.failed),
    Column("after_failed", lambda each: each.after.failed),
    Column("status", lambda each: each.status, "status"),
    Column("reason", lambda each: each.reason),
    Column("interleaved", lambda each: each.judged and each.judged.interleaved),
    Column("samples", lambda each: each.judged and each.judged.samples),
    Column("changes", lambda each: list(each.changes)),
]


def exit_code(compared: Sequence[Compared]) -> int:
    """Return 1 where something regressed or broke; 3 where something is inconclusive, was measured and is incomparable,
    or nothing could be compared; else 0."""
    statuses = {each.status for each in compared}
    if statuses & {"regressed", "broke"}:
        return FAILED
    open_ones = "inconclusive" in statuses or any(each.unanswered for each in compared)
    return INCONCLUSIVE if open_ones or statuses == {"incomparable"} else OK


def verdict(
    compared: Sequence[Compared],
    before: str,
    after: str,
    alone: Sequence[Compared] = (),
) -> str:
    """Return one line. It names what regressed or broke, else what was measured and is incomparable, or, where all is
    well, what improved, and counts the trials without a counterpart."""
    if not compared:
        return f"{after} beside {before}: no package that a trial may import differs, nothing was measured."
    counts = Counter(each.status for each in compared)
    message = ", ".join(f"{counts[status]} {status}" for status in STATUSES if counts[status])
    for status in ("only_before", "only_after"):
        if number := sum(each.status == status for each in alone):
            message += f"; {counted(number, 'trial')} {status.replace('_', ' ')}"
    code = exit_code(compared)
    word = {FAILED: "slower or broken", INCONCLUSIVE: "inconclusive", OK: "nothing regressed"}[code]
    telling = [each for each in compared if each.status in ("regressed", "broke")]
    telling = telling or [each for each in compared if each.unanswered]
    if code == OK:
        telling = [each for each in compared if each.status == "improved"]
    named = first([f"{_name(each)} {_how(each)}" for each in telling])
    return f"{after} beside {before}: {word} ({message}){': ' if named else ''}{named}."


def report(
    compared: Sequence[Compared],
    environment: Sequence[Difference],
    before: str,
    after: str,
    notes: Sequence[str],
    format: Format,
    alone: Sequence[Compared] = (),
    every: bool = False,
) -> str:
    """Return the report. CSV has one row a trial, those of one side alone last; JSON has the environment, the trials,
    the notes, such as the result of a bisection, and the verdict. Text and Markdown have all that differs for `every`,
    else what tells."""
    line = verdict(compared, before, after, alone)
    if format == "csv":
        rows = data(_COLUMNS, (*compared, *alone))
        lines = [row | {"changes": "; ".join(row["changes"])} for row in rows]
        return render(lines, "csv") if lines else ",".join(column.key for column in _COLUMNS)
    if format == "json":
        return as_json(
            {
                "before": before,
                "after": after,
                "environment": [asdict(difference) for difference in environment],
                "trials": data(_COLUMNS, compared),
                "only_before": data(_COLUMNS, [each for each in alone if each.status == "only_before"]),
                "only_after": data(_COLUMNS, [each for each in alone if each.status == "only_after"]),
                "notes": list(notes),
                "counts": {status: sum(each.status == status for each in compared) for status in STATUSES},
                "verdict": line,
                "exit_code": exit_code(compared),
            }
        )
    if not compared:
        return prose(line, format)
    changed = [f"{_name(each)}: {found}" for each in compared for found in each.changes]
    versions = [f"{each.what} {each.before} to {each.after}" for each in environment if each.before and each.after]
    shown_notes = [*_reasons(each for each in compared if each.status != "unchanged")[:1], *notes]
    if (differing := [*changed, *versions]) and len(shown_notes) < MOST_NOTES:
        shown_notes.append(f"Also different: {listing(differing[:_FEW])}{'' if every else '; --all shows all'}.")
    parts = [people(line, shown(_COLUMNS, compared), shown_notes, format, every)]
    if not every:
        return parts[0]
    title = (lambda text: f"## {text}") if format == "markdown" else str.upper
    parts += [title("Why"), prose("\n".join(f"- {reason}" for reason in _reasons(compared)), format)]
    nothing = "Nothing that is recorded."
    parts += [title("Environment"), render([asdict(each) for each in environment], format) if environment else nothing]
    parts += [title("What changed besides speed"), prose("\n".join(changed), format) or nothing]
    for side, status in ((before, "only_before"), (after, "only_after")):
        if left_out := [f"{_name(each)} ({each.reason})" for each in alone if each.status == status]:
            more = f"; and {len(left_out) - _FEW} more" if len(left_out) > _FEW else ""
            number, named = counted(len(left_out), "trial"), "; ".join(left_out[:_FEW])
            parts.append(prose(f"Only in {side}, and left out: {number}: {named}{more}.", format))
    return "\n\n".join(parts)


def _reasons(compared: Iterable[Compared]) -> list[str]:
    """Return every reason once, with the trials that it applies to, the most serious first."""
    about: dict[str, list[str]] = {}
    for each in sorted(compared, key=lambda each: _SERIOUS.index(each.status)):
        about.setdefault(f"{each.status}: {each.reason}", []).append(_name(each))
    return [f"{reason} ({first(names)})." for reason, names in about.items()]


def _interval(each: Compared) -> Interval | None:
    return each.judged.interval if each.judged else None


def _name(each: Compared) -> str:
    return f"{each.trial.recipe}, {each.trial.settings}, {each.trial.machine}"


def _how(each: Compared) -> str:
    if each.status == "incomparable":
        return f"incomparable ({each.reason})"
    return change(each.judged.ratio) if each.judged else each.reason
