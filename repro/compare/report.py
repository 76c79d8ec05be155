"""What a comparison says: environment on top, a row a trial, what else changed, one line of verdict."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from ..exit_codes import FAILED, INCONCLUSIVE, OK
from ..formats import Format, as_json, counted, figures, first, render
from ..packages import PACKAGES
from .environments import Difference
from .rule import change
from .trials import STATUSES, Compared

_MIB = 2**20
_FEW = 8


def exit_code(compared: Sequence[Compared]) -> int:
    """1 where something regressed or broke, 3 where something is inconclusive or nothing could be compared, else 0."""
    statuses = {each.status for each in compared}
    if statuses & {"regressed", "broke"}:
        return FAILED
    return INCONCLUSIVE if "inconclusive" in statuses or statuses == {"incomparable"} else OK


def verdict(compared: Sequence[Compared], before: str, after: str) -> str:
    """One line. It names what regressed or broke, else what is best known."""
    counts = Counter(each.status for each in compared)
    told = ", ".join(f"{counts[status]} {status}" for status in STATUSES if counts[status])
    word = {FAILED: "slower or broken", INCONCLUSIVE: "inconclusive", OK: "nothing regressed"}[exit_code(compared)]
    worst = [each for each in compared if each.status in ("regressed", "broke")]
    named = first([f"{_name(each)} {_how(each)}" for each in worst])
    return f"Verdict on {after} after {before}: {word} ({told}){': ' if named else ''}{named}."


def report(
    compared: Sequence[Compared],
    environment: Sequence[Difference],
    before: str,
    after: str,
    notes: Sequence[str],
    format: Format,
) -> str:
    """CSV is one row a trial; JSON holds the environment, the trials, and the verdict."""
    rows = [row(each) for each in compared]
    line = verdict(compared, before, after)
    if format == "csv":
        return render([known | {"changes": "; ".join(known["changes"])} for known in rows], "csv")
    if format == "json":
        return as_json(
            {
                "before": before,
                "after": after,
                "environment": [asdict(difference) for difference in environment],
                "trials": rows,
                "counts": {status: sum(each.status == status for each in compared) for status in STATUSES},
                "verdict": line,
                "exit_code": exit_code(compared),
            }
        )
    title = (lambda text: f"## {text}") if format == "markdown" else str.upper
    parts = [f"**{line}**" if format == "markdown" else line, title("Environment")]
    parts += _environment(environment, format)
    parts += [title("Trials"), render([_people(each) for each in compared], format)]
    parts += [title("Why"), "\n".join(_reasons(compared))]
    changed = [f"- {_name(each)}: {found}" for each in compared for found in each.changes]
    parts += [title("What changed besides speed"), "\n".join(changed) or "Nothing that is recorded."]
    parts += notes
    return "\n\n".join(parts)


def _environment(environment: Sequence[Difference], format: Format) -> list[str]:
    """What both sides have in another version as a table, what one side has alone as a line."""
    both = [asdict(each) for each in environment if each.before is not None and each.after is not None]
    parts = [render(both, format)] if both else ["Nothing that both record differs."]
    only_before = [(each.what, each.before) for each in environment if each.before is not None and each.after is None]
    only_after = [(each.what, each.after) for each in environment if each.after is not None and each.before is None]
    for side, alone in (("before", only_before), ("after", only_after)):
        if alone:
            parts.append(f"Only {side}: {_alone(alone)}.")
    return parts


def _alone(found: Sequence[tuple[str, str]]) -> str:
    """All of a few. Of many, such as the tools of one side, those that a measurement depends on; the others counted."""
    named = [(what, said) for what, said in found if what in PACKAGES or what.startswith("variable ")]
    if len(found) <= _FEW:
        named = list(found)
    told = [f"{what} {said}" for what, said in named]
    if len(named) < len(found):
        told.append(f"{counted(len(found) - len(named), 'other package')}, named by --format json")
    return ", ".join(told)


def _reasons(compared: Sequence[Compared]) -> list[str]:
    """Every reason once, with the trials that it is about."""
    about: dict[str, list[str]] = {}
    for each in compared:
        about.setdefault(f"{each.status}: {each.reason}", []).append(_name(each))
    return [f"- {reason} ({first(names)})" for reason, names in about.items()]


def row(each: Compared) -> dict[str, Any]:
    """A trial for machines: seconds of a training step, bytes, days; None where it is not known."""
    judged, interval = each.judged, each.judged.ratio.interval if each.judged else None
    return {
        "recipe": each.trial.recipe,
        "scale": each.trial.scale,
        "settings": each.trial.settings,
        "machine": each.trial.machine,
        "micro_batch": each.trial.micro_batch,
        "before_median": each.before.median,
        "after_median": each.after.median,
        "ratio": judged.ratio.value if judged else None,
        "ratio_low": interval.low if interval else None,
        "ratio_high": interval.high if interval else None,
        "before_peak_memory": each.before.peak_memory,
        "after_peak_memory": each.after.peak_memory,
        "before_days": each.before.days,
        "after_days": each.after.days,
        "status": each.status,
        "reason": each.reason,
        "before_processes": each.before.processes,
        "after_processes": each.after.processes,
        "before_discarded": each.before.discarded,
        "after_discarded": each.after.discarded,
        "smallest_p": judged.ratio.smallest_p if judged else None,
        "noise_floor": judged.floor if judged else None,
        "threshold": judged.decision.threshold if judged else None,
        "changes": [str(found) for found in each.changes],
    }


def _people(each: Compared) -> dict[str, Any]:
    interval = each.judged.ratio.interval if each.judged else None
    found: dict[str, Any] = {
        "recipe": each.trial.recipe,
        "settings": each.trial.settings,
        "machine": each.trial.machine,
        "MBS": each.trial.micro_batch,
        "synchronised step s, before": each.before.median,
        "after": each.after.median,
        "ratio": f"{each.judged.ratio.value:.3f}" if each.judged else None,
        "interval": f"{interval.low:.3f} to {interval.high:.3f}" if interval else None,
        "peak MiB": _both(each.before.peak_memory, each.after.peak_memory, _MIB),
        "days": _both(each.before.days, each.after.days) if each.trial.scale == "paper" else None,
        "processes": f"{each.before.processes}, {each.after.processes}",
        "status": each.status,
    }
    discarded = each.before.discarded + each.after.discarded
    if discarded:
        found["processes"] += f" ({discarded} discarded)"
    return found


def _both(before: float | None, after: float | None, unit: float = 1.0) -> str:
    return ", ".join("-" if value is None else figures(value / unit, 4) for value in (before, after))


def _name(each: Compared) -> str:
    return f"{each.trial.recipe}, {each.trial.settings}, {each.trial.machine}"


def _how(each: Compared) -> str:
    return change(each.judged.ratio.value) if each.judged else each.reason
