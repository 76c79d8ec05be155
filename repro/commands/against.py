"""`repro compare --against`: measure this stack and another, interleaved on this machine."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from functools import partial

from .. import command, files, formats, models
from ..compare import bisect, candidate, report, side
from ..compare.budget import chosen_within, rounds, seconds_of_parts
from ..compare.decision import FINAL, SMALLEST_CHANGE
from ..compare.side import differences
from ..compare.trials import Compared
from ..compare.upgrade import Check
from ..console import INCONCLUSIVE, INSTALLED, OK, UserError, say
from ..datafile import expected_folder
from ..formats import Format, duration, first, shell_words
from ..machine import nvml, support
from ..machine.devices import Device, capability_of, gpu_of
from ..record import Trial
from ..run.estimate import estimate
from ..run.plan import Options, counts_up_to, default_scale, limited, trials
from ..run.progress import Progress
from ..run.results import REPORT
from .against_options import Against
from .devices import alike
from .preflight import check_compilers, check_disk, check_machine, check_packages
from .stopping import resumable, stop_on_sigterm

_CHECK = "check.json"


@resumable("what is measured is kept")
def measure(asked: Against) -> int:
    """Measure both stacks, print what became slower, and return the exit code."""
    budget, against = asked.budget, asked.against
    assert against is not None
    if INSTALLED:
        raise UserError(
            "--against builds the stacks that it compares from the locks of a checkout, and this repro is installed: "
            "clone its repository, and take ./run_all.sh compare --against there"
        )
    baseline = candidate.is_baseline(against)
    if baseline and asked.accept:
        raise UserError(f"--accept: {against} is the baseline already")
    check_packages()
    devices, candidates = _candidates(asked)
    check_machine(devices)
    check_compilers(candidates, devices)
    check_disk(asked.out, REPORT, _CHECK)
    stop_on_sigterm()
    first = candidate.this_stack()
    left_behind = candidate.left_behind(against, first)
    candidates = _carried(candidates, devices, first, left_behind)
    chosen, pairs = chosen_within(budget, candidates, devices, asked.pairs)
    other = candidate.build(against, first)
    stacks = (other, first) if baseline else (first, other)
    if not candidate.differ(first, other, left_behind):
        # No error: a regular check of the newest releases often finds none.
        say(f"nothing of {against} differs, every package that a trial may import is here in that version; done")
        if asked.accept:
            say("--accept: nothing was measured, so the baseline stays as it is")
        print(report.report([], [], stacks[0].name, stacks[1].name, [], asked.format))
        return INCONCLUSIVE if asked.accept else OK
    names = ", ".join(f"{trial.recipe} {trial.settings}" for trial in chosen)
    seconds = seconds_of_parts(chosen, devices, pairs)
    check = Check(asked.out, chosen, stacks, devices, pairs, budget, Progress(seconds, 0.0, budget).tell_part)
    short = f"; --budget {duration(budget)} will cut it short" if sum(seconds.values()) > budget else ""
    say(
        f"{len(chosen)} of {len(candidates)} trials, at most {pairs} starts of each stack: {names}; "
        f"about {duration(sum(seconds.values()))} in all, by estimate{short}"
    )
    notes: list[str] = []

    def text(format: Format, every: bool = True) -> str:
        return report.report(compared, found, before.name, after.name, notes, format, every=every)

    def keep() -> None:
        files.replace(asked.out / REPORT, text("markdown") + "\n")
        files.replace(asked.out / _CHECK, text("json") + "\n")

    compared = check.check()
    before, after = check.sides()
    found = differences(before, after)
    notes.append(_note(asked, check))
    keep()  # save now: bisecting may take hours and may be stopped
    if asked.bisect:
        notes.append(_bisect(asked, check, compared, stacks, devices))
        keep()
    code = report.exit_code(compared)
    if asked.accept and not _accepted(asked, check, compared, other):
        code = code or INCONCLUSIVE
    print(text(asked.format, every=asked.all))
    return code


def _candidates(asked: Against) -> tuple[list[Device], list[Trial]]:
    """Return the devices, and every requested trial. Raise UserError for the first error."""
    devices = alike(asked.gpus, nvml.visible_devices())
    devices = devices[: max(counts_up_to(len(devices)), default=0)]  # no batch size is divisible by 3
    ids = models.listed(asked.models)
    wanted = []
    for methods in (asked.methods,) if asked.methods else ("naive", "free-lunch"):
        scale = asked.scale or default_scale(bool(devices))
        options = Options(ids, methods, scale, (len(devices) or 1,), steps=rounds(devices))
        wanted += limited(trials(options, devices), None, partial(estimate, gpu=gpu_of(devices)))
    return devices, list({trial.id: trial for trial in wanted}.values())


def _carried(
    candidates: Sequence[Trial], devices: Sequence[Device], first: candidate.Stack, left_behind: Collection[str]
) -> list[Trial]:
    """Return the trials without those that run on the first stack only with kernels that the other stack lacks: they
    would break there for a reason other than its packages. Raise UserError where none is left."""

    def runs(trial: Trial, packages: dict[str, str]) -> bool:
        known = support.Stack(packages, capability_of(devices))
        return support.obstacle(*trial.recipe_and_settings, trial.world, known) is None

    rest = {name: version for name, version in first.packages.items() if name not in left_behind}
    lost = [trial for trial in candidates if runs(trial, first.packages) and not runs(trial, rest)]
    if lost:
        names = ", ".join(f"{trial.recipe} {trial.settings}" for trial in lost)
        text = f"{names}: its kernels are built from source, and no second stack by requirements has them"
        if len(lost) == len(candidates):
            raise UserError(f"{text}; name other --models or --methods")
        say(f"left out {text}")
    return [trial for trial in candidates if trial not in lost]


def _note(asked: Against, check: Check) -> str:
    """Return the rule, and what ended the check early, in a sentence."""
    changed, unchanged = (formats.percent(1 - alpha) for alpha in (FINAL.changed, FINAL.unchanged))
    short = (
        "" if check.complete else f"; the budget of {duration(asked.budget)} ended it early, the same command goes on"
    )
    return (
        f"A change is called where the {changed} interval of the pairs' ratio excludes 1 and the ratio is beyond "
        f"{SMALLEST_CHANGE:.0%}, and excluded where the {unchanged} interval lies within {SMALLEST_CHANGE:.0%}{short}."
    )


def _accepted(asked: Against, check: Check, compared: Sequence[Compared], other: candidate.Stack) -> bool:
    """Keep the other stack's lock as this machine's baseline, or print why not. Regressions may be accepted, as the
    user knows their size; undecided results may not."""
    undecided = [each for each in compared if each.status == "inconclusive" or each.unanswered]
    try:
        if not check.complete:
            raise UserError(f"the budget of {duration(asked.budget)} ended the check early, the same command goes on")
        if undecided:
            names = first([f"{each.trial.recipe} {each.trial.settings} is {each.status}" for each in undecided])
            raise UserError(f"{names}, more --pairs or a quieter machine may decide it")
        if not any(each.after.processes for each in compared):
            raise UserError("it ran no trial that this stack runs")
        kept = candidate.accept(other, side.machine(check.sides()[1].environment), expected_folder())
    except UserError as error:
        say(f"--accept: {error}, so the baseline stays as it is")
        return False
    say(f"the baseline is now {kept}; {command()} compare --against {shell_words([kept])} checks a stack by it")
    return True


def _bisect(
    asked: Against,
    check: Check,
    compared: Sequence[Compared],
    stacks: tuple[candidate.Stack, candidate.Stack],
    devices: Sequence[Device],
) -> str:
    """Return the package behind the worst regression or breakage, or why it is not found. The check's verdict stays."""
    worst = [each for each in compared if each.status in ("regressed", "broke")]
    if not worst:
        return "Nothing regressed or broke, so there is nothing to bisect."
    target = max(worst, key=lambda each: each.judged.ratio if each.judged else math.inf)
    trial = check.trials[compared.index(target)]

    def swapped(names: Sequence[str], stack: candidate.Stack) -> Compared:
        files.inside(asked.out, f"bisect/{stack.key}")
        folder = asked.out / "bisect" / stack.key
        tell = Progress(seconds_of_parts([trial], devices, check.pairs), 0.0, asked.budget).tell_part
        swapped_in = Check(folder, [trial], (stacks[0], stack), devices, check.pairs, asked.budget, tell)
        [found] = swapped_in.check()
        if not swapped_in.complete and found.status == "inconclusive":  # the package would be a guess
            reason = f"the budget of {duration(asked.budget)} ended the check of {', '.join(names)} early"
            raise UserError(f"{reason}, the same command goes on")
        return found

    return bisect.Swaps(*stacks, target, swapped).message()
