"""The commands that give a report again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from decimal import Decimal
from pathlib import Path

from .. import command, models
from ..formats import shell_words, size
from ..machine.cluster import launch
from ..machine.environment import Environment
from ..record import DEFAULT, Clock
from ..run.plan import Options, default_scale
from ..run.reading import Reading
from ..run.verdict import Verdict


def rerun(runs: Sequence[Reading], verdicts: Sequence[Verdict], clock: Clock) -> list[tuple[str, str]]:
    """Return the commands that reproduce the report, each with a description."""
    found, front = [], command()
    judged = "" if clock == DEFAULT else f" --by {clock}"
    measured = "".join(f" --measured {shell_words([run.folder])}" for run in runs)
    for run in runs:
        of_all = [(each, "a run before this one, into the same folder") for each in run.earlier]
        if run.options:
            where = f", on each of its {run.options.nodes} nodes" if run.options.nodes > 1 else ""
            of_all.append((run.options, f"this run: it resumes{where}"))
        for options, gives in of_all:
            found.append((f"{launch(options.nodes)} {run_words(options, run.environment, run.folder)}", gives))
    if runs:
        folders = shell_words([run.folder for run in runs])
        found.append((f"{front} report {folders}{judged}", "this report, from the records alone"))
    else:
        found.append((f"{front} report", "this report"))
    beside = f"{measured}{judged}" if runs else ""
    found += [
        # tables 5, 6 and 7 have prices, which no run measures
        (f"{front} table 1{beside}", "Table 1; also 3, 4 and j" if runs else "Table 1; also 3, 4, 5, 6, 7 and j"),
        (f"{front} claims{beside}", "the claims; with an id the rows and the arithmetic of one"),
        (f"{front} audit{measured}", "the audit, with its arithmetic"),
    ]
    if any(verdict.verdict == "not_measured" for verdict in verdicts):
        found += [
            (f"{front} --gpus all", "measures naive and Appendix J's settings of every recipe on the GPUs here"),
            (f"{front} --gpus all --methods all", "measures the whole search, for figures 4, 5, 10 and 11"),
        ]
    return found


def run_words(options: Options, environment: Environment, folder: Path) -> str:
    """Return the command-line arguments of a run with these options."""
    on_gpus = bool(environment.gpus)  # GPUs of the folder's last run; earlier runs may have had more
    words = ["--gpus", str(max(options.counts))] if on_gpus else ["--processes", ",".join(map(str, options.counts))]
    if options.projected:
        words += ["--project", ",".join(map(str, options.projected))]
    if options.models != models.IDS:
        words += ["--models", ",".join(options.models)]
    if options.scale != default_scale(on_gpus):
        words += ["--scale", options.scale]
    flags = {field.name: field.default for field in fields(Options)}
    plain = ("methods", "search", "steps", "tolerance", "clock", "memory", "budget")
    for name in (*plain, "trial_timeout"):
        value = getattr(options, name)
        if value is not None and value != flags.get(name):
            unit = "s" if name in ("budget", "trial_timeout") else ""
            message = size(value) if name == "memory" else str(value)
            if isinstance(value, float):
                message = f"{Decimal(message):f}".removesuffix(".0") + unit  # options take no exponents
            if name == "methods" and options.parts:
                message = "+".join(["modern", *options.parts])
            words += [f"--{'by' if name == 'clock' else name.replace('_', '-')}", message]
    if options.attention != "sdpa":
        words += ["--with", f"attention={options.attention}"]
    for added in options.added:
        words += ["--with", f"{added.file}:{'+'.join(added.methods)}"]
    if options.micro_batch is not None:
        words += ["--micro-batches", str(options.micro_batch)]
    return shell_words([*words, "--out", folder])
