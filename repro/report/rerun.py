"""The commands that give a report, a run and its parts again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from decimal import Decimal
from pathlib import Path

import models

from .. import command
from ..clocks import DEFAULT, Clock
from ..cluster import launch
from ..environment import Environment
from ..plan import Options, default_scale
from ..reading import Reading
from ..units import shell_words, size
from ..verdict import Verdict


def rerun(runs: Sequence[Reading], verdicts: Sequence[Verdict], clock: Clock) -> list[tuple[str, str]]:
    """The commands, and what each gives."""
    found, front = [], command()
    folders = [run.folder for run in runs]
    judged = "" if clock == DEFAULT else f" --clock {clock}"
    measured = "".join(f" --measured {shell_words([folder])}" for folder in folders)
    beside = f"{measured}{judged}" if folders else ""
    for run in runs:
        for earlier in run.earlier:
            words = run_words(earlier, run.environment, run.folder)
            found.append((f"{launch(earlier.nodes)} {words}", "a run before this one, into the same folder"))
        if run.options:
            words, nodes = run_words(run.options, run.environment, run.folder), run.options.nodes
            where = f", on each of its {nodes} nodes" if nodes > 1 else ""
            found.append((f"{launch(nodes)} {words}", f"this run: it resumes{where}"))
    if folders:
        found.append((f"{front} report {shell_words(folders)}{judged}", "this report, from the records alone"))
    else:
        found.append((f"{front} report", "this report"))
    found += [
        # 5, 6 and 7 are of prices, which no run measures
        (f"{front} table 1{beside}", "Table 1; also 3, 4 and j" if measured else "Table 1; also 3, 4, 5, 6, 7 and j"),
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
    """The arguments that give a run these options."""
    on_gpus = bool(environment.gpus)  # as many as the folder's last run had, others may have had more
    words = ["--gpus", str(max(options.counts))] if on_gpus else ["--processes", ",".join(map(str, options.counts))]
    if options.models != models.IDS:
        words += ["--models", ",".join(options.models)]
    if options.scale != default_scale(on_gpus):
        words += ["--scale", options.scale]
    flags = {field.name: field.default for field in fields(Options)}
    plain = ("methods", "search", "attention", "steps", "tolerance", "clock", "memory", "budget")
    for name in (*plain, "trial_timeout"):
        value = getattr(options, name)
        if value is not None and value != flags.get(name):
            unit = "s" if name in ("budget", "trial_timeout") else ""
            told = size(value) if name == "memory" else str(value)
            if isinstance(value, float):
                told = f"{Decimal(told):f}".removesuffix(".0") + unit  # options take no exponents
            words += [f"--{name.replace('_', '-')}", told]
    if options.check_extrapolation:
        words.append("--check-extrapolation")
    return shell_words([*words, "--out", folder])
