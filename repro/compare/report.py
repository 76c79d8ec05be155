"""The report of a comparison: a verdict in one line, a row for each trial, and what else changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from typing import Any, Literal

from ..console import FAILED, INCONCLUSIVE, OK
from ..formats import Format, Interval, as_json, cell_text, counted, first, listing, prose, render
from ..machine.environment import ELSEWHERE
from ..machine.packages import PACKAGES
from ..printout import people
from .decision import change
from .side import Difference
from .trials import STATUSES, Compared, OnlyOnOneSide, SideStats, Status

_MIB = 2**20
_FEW = 8
_SERIOUS: tuple[Status, ...] = ("broke", "regressed", "incomparable", "inconclusive", "fixed", "improved", "unchanged")
# A trial in CSV and JSON: seconds of a training step, bytes, days; None where a value is not known.
_COLUMNS: dict[str, Callable[[Compared], Any]] = {
    "recipe": lambda each: each.trial.recipe,
    "scale": lambda each: each.trial.scale,
    "settings": lambda each: each.trial.settings,
    "machine": lambda each: each.trial.machine,
    "micro_batch": lambda each: each.trial.batch.micro_batch,
    "before_median": lambda each: each.before.median,
    "after_median": lambda each: each.after.median,
    "ratio": lambda each: each.judged and each.judged.ratio,
    "ratio_low": lambda each: (interval := _interval(each)) and interval.low,
    "ratio_high": lambda each: (interval := _interval(each)) and interval.high,
    "before_peak_memory": lambda each: each.before.peak_memory,
    "after_peak_memory": lambda each: each.after.peak_memory,
    "before_days": lambda each: each.before.days,
    "after_days": lambda each: each.after.days,
    "status": lambda each: each.status,
    "reason": lambda each: each.reason,
    "before_processes": lambda each: each.before.processes,
    "after_processes": lambda each: each.after.processes,
    "before_discarded": lambda each: each.before.discarded,
    "after_discarded": lambda each: each.after.discarded,
    "before_failed": lambda each: each.before.failed,
    "after_failed": lambda each: each.after.failed,
    "interleaved": lambda each: each.judged and each.judged.interleaved,
    "samples": lambda each: each.judged and each.judged.samples,
    "changes": lambda each: [str(found) for found in each.changes],
}


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
    only_before: Sequence[OnlyOnOneSide] = (),
    only_after: Sequence[OnlyOnOneSide] = (),
) -> str:
    """Return one line. It names what regressed or broke, else what was measured and is incomparable, or, where all is
    well, what improved, and counts the trials without a counterpart."""
    if not compared:
        return f"{after} beside {before}: no package that a trial may import differs, nothing was measured."
    counts = Counter(each.status for each in compared)
    message = ", ".join(f"{counts[status]} {status}" for status in STATUSES if counts[status])
    for side, alone in (("before", only_before), ("after", only_after)):
        message += f"; {counted(len(alone), 'trial')} only {side}" if alone else ""
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
    only_before: Sequence[OnlyOnOneSide] = (),
    only_after: Sequence[OnlyOnOneSide] = (),
    every: bool = False,
) -> str:
    """Return the report. CSV has one row a trial, those of one side alone last; JSON has the environment, the trials,
    the notes, such as the result of a bisection, and the verdict. Text and Markdown have all that differs for `every`,
    else what tells."""
    rows = [_row(each) for each in compared]
    alone = [_row_of_one(each, "before") for each in only_before], [_row_of_one(each, "after") for each in only_after]
    line = verdict(compared, before, after, only_before, only_after)
    if format == "csv":
        lines = [known | {"changes": "; ".join(known["changes"])} for known in (*rows, *alone[0], *alone[1])]
        return render(lines, "csv") if lines else ",".join(_COLUMNS)
    if format == "json":
        return as_json(
            {
                "before": before,
                "after": after,
                "environment": [asdict(difference) for difference in environment],
                "trials": rows,
                "only_before": alone[0],
                "only_after": alone[1],
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
    told = [*_reasons(each for each in compared if each.status != "unchanged")[:1], *notes]
    if differing := [*changed, *versions]:
        told.append(f"Also different: {listing(differing[:_FEW])}{'' if every else '; --all shows all'}.")
    parts = [people(line, [_people(each) for each in compared], told, format, every)]
    if not every:
        return parts[0]
    title = (lambda text: f"## {text}") if format == "markdown" else str.upper
    parts += [title("Why"), prose("\n".join(f"- {reason}" for reason in _reasons(compared)), format)]
    parts += [title("Environment"), *_environment(environment, format)]
    parts += [title("What changed besides speed"), prose("\n".join(changed), format) or "Nothing that is recorded."]
    for side, left_out in ((before, only_before), (after, only_after)):
        if left_out:
            number = counted(len(left_out), "trial")
            parts.append(prose(f"Only in {side}, and left out: {number}: {_left_out(left_out)}.", format))
    return "\n\n".join(parts)


def _row(each: Compared) -> dict[str, Any]:
    return {name: take(each) for name, take in _COLUMNS.items()}


def _row_of_one(each: OnlyOnOneSide, side: Literal["before", "after"]) -> dict[str, Any]:
    """Return the row of a trial that only one side has, with no measurements on the other."""
    nothing = SideStats(0, 0, None, None, None)
    halves, other = ((each.half, nothing), "after") if side == "before" else ((nothing, each.half), "before")
    compared = Compared(each.trial, *halves, "incomparable", f"{each.there or 'not recorded'} {other}")
    return _row(compared) | {"status": f"only_{side}"}


def _left_out(found: Sequence[OnlyOnOneSide]) -> str:
    """Name all of a few trials; of many, name the first and count the others."""
    named = [f"{_name(each)} ({each.there} in the other)" if each.there else _name(each) for each in found[:_FEW]]
    more = [f"and {len(found) - _FEW} more, named by --format json"] if len(found) > _FEW else []
    return "; ".join([*named, *more])


def _environment(environment: Sequence[Difference], format: Format) -> list[str]:
    """Render versions that differ between the sides as a table, and what only one side has as a line."""
    both = [asdict(each) for each in environment if each.before is not None and each.after is not None]
    parts = [render(both, format)] if both else ["Nothing that both record differs."]
    only_before = [(each.what, each.before) for each in environment if each.before is not None and each.after is None]
    only_after = [(each.what, each.after) for each in environment if each.after is not None and each.before is None]
    for side, alone in (("before", only_before), ("after", only_after)):
        if alone:
            parts.append(prose(f"Only {side}: {_alone(alone)}.", format))
    if neither := [each.what for each in environment if each.before is None and each.after is None]:
        parts.append(prose(f"Recorded on neither side: {', '.join(neither)}.", format))
    return parts


def _alone(found: Sequence[tuple[str, str]]) -> str:
    """Name all of a few; of many, name those that a measurement depends on and count the others."""
    named = [
        (what, said)
        for what, said in found
        if what in PACKAGES or what.startswith("variable ") or said.endswith(ELSEWHERE)
    ]
    if len(found) <= _FEW:
        named = list(found)
    message = [f"{what} {said}" for what, said in named]
    if len(named) < len(found):
        message.append(f"{counted(len(found) - len(named), 'other package')}, named by --format json")
    return ", ".join(message)


def _reasons(compared: Iterable[Compared]) -> list[str]:
    """Return every reason once, with the trials that it applies to, the most serious first."""
    about: dict[str, list[str]] = {}
    for each in sorted(compared, key=lambda each: _SERIOUS.index(each.status)):
        about.setdefault(f"{each.status}: {each.reason}", []).append(_name(each))
    return [f"{reason} ({first(names)})." for reason, names in about.items()]


def _people(each: Compared) -> dict[str, Any]:
    interval = _interval(each)
    found: dict[str, Any] = {
        "recipe": each.trial.recipe,
        "settings": each.trial.settings,
        "machine": each.trial.machine,
        "MBS": each.trial.batch.micro_batch,
        "step s before": each.before.median,
        "step s after": each.after.median,
        "ratio": f"{each.judged.ratio:.3f}" if each.judged else None,
        "interval": f"{interval.low:.3f} to {interval.high:.3f}" if interval else None,
        "peak MiB": _both(each.before.peak_memory, each.after.peak_memory, _MIB),
        "processes": f"{each.before.processes}, {each.after.processes}",
        "status": each.status,
    }
    counts = {
        "discarded": each.before.discarded + each.after.discarded,
        "failed": each.before.failed + each.after.failed,
    }
    if lost := ", ".join(f"{count} {what}" for what, count in counts.items() if count):
        found["processes"] += f" ({lost})"
    return found


def _interval(each: Compared) -> Interval | None:
    return each.judged.interval if each.judged else None


def _both(before: float | None, after: float | None, unit: float = 1.0) -> str | None:
    if before is after is None:
        return None
    return ", ".join(cell_text(value and value / unit, 4) for value in (before, after))


def _name(each: Compared | OnlyOnOneSide) -> str:
    return f"{each.trial.recipe}, {each.trial.settings}, {each.trial.machine}"


def _how(each: Compared) -> str:
    if each.status == "incomparable":
        return f"incomparable ({each.reason})"
    return change(each.judged.ratio) if each.judged else each.reason
