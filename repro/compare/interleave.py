"""Two stacks on one machine, turn by turn: A B and A again, then A again, B, A, and so on.

Every sample is a process forked from a server that was started for it, so that memory layout and whatever else a start
decides are drawn anew each time. A block is one process of every arm; the order turns round from block to block, so
that a drift takes from none. The third arm is a copy of the first stack: what it differs by is noise.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import models

from .. import environment, rules
from ..errors import UserError
from ..hardware import Device
from ..measure.launcher import ForkServer, ServerDiedError
from ..measure.rank import SEED
from ..measure.trial import Bench
from ..measure.trial import run as run_trial
from ..results import Results, history
from ..run import server_environment
from ..settings import Settings
from ..stack import PRELOADED
from ..trial import Record, Trial
from .changes import Change
from .ratio import of_pairs, of_separate
from .rule import decide, noise_floor, settled
from .second import Stack, folder
from .side import Side, step_seconds
from .soundness import unsound
from .trials import Compared, Judge, Judged, compare_trial

ARMS = ("before", "after", "again")
ROUNDS = 10  # timed in each process: its sample is their median


class Check:
    """A check in a results folder, resumed where it stopped. `trials` take the largest micro batch that fits on both
    stacks. `pairs` are processes a side in each of two rounds; no block starts that would end after `budget` seconds.
    `tell` gets a line for people."""

    def __init__(
        self,
        folder: Path,
        trials: Sequence[Trial],
        stacks: tuple[Stack, Stack],
        devices: Sequence[Device],
        pairs: int,
        budget: float,
        tell: Callable[[str], None],
    ) -> None:
        self.folder, self.trials, self.pairs, self.tell = folder, list(trials), pairs, tell
        self._stacks = dict(zip(ARMS, (*stacks, stacks[0]), strict=True))
        self._devices, self._deadline = list(devices), time.monotonic() + budget
        self._longest, self.complete = 0.0, True

    def run(self) -> list[Compared]:
        """Measures what is missing, and compares. Raises UserError where a stack does not import."""
        for arm in ("before", "after"):
            self._processes(self.folder / arm / "largest", arm, self.trials, 1)
        alike = [trial for trial in self.trials if self._sampled(trial) is not None]
        self._round(alike, self.pairs, ARMS)
        self._round([trial for trial in alike if not self._is_settled(trial)], 2 * self.pairs, ARMS[:2])
        return self.compared()

    def compared(self) -> list[Compared]:
        """Every trial, from what is measured so far."""
        return [self._compare(trial) for trial in self.trials]

    def sides(self) -> tuple[Side, Side]:
        """Both stacks with what they ran on."""
        before, after = (
            Side(self._stacks[arm].name, tuple(history(self.folder / arm)), self._environment(arm))
            for arm in ("before", "after")
        )
        return before, after

    def samples(self, arm: str, trial: Trial) -> list[Record]:
        """What an arm has measured of a trial, in the order of the blocks."""
        sampled = self._sampled(trial)
        return [] if sampled is None else [r for r in history(self.folder / arm) if r.id == sampled.id]

    def _round(self, trials: Sequence[Trial], until: int, arms: Sequence[str]) -> None:
        """Has every arm measure these trials in blocks, up to number `until`. One that fails is left alone."""
        sampled = [wanted for trial in trials if (wanted := self._sampled(trial)) is not None]
        for number in range(until):
            started = time.monotonic()
            if started + self._longest > self._deadline:
                self.complete = False
                return
            failed = {r.id for arm in arms for r in history(self.folder / arm) if r.status not in ("ok", "interrupted")}
            waiting = [trial for trial in sampled if trial.id not in failed]
            measured = [
                self._processes(self.folder / arm, arm, waiting, number + 1) for arm in (arms, arms[::-1])[number % 2]
            ]
            if any(measured):
                self.tell(f"block {number + 1} of {until}: {time.monotonic() - started:.0f} s")
                self._longest = max(self._longest, time.monotonic() - started)

    def _processes(self, folder: Path, arm: str, trials: Iterable[Trial], wanted: int) -> bool:
        """One fresh process for each of these trials that has fewer than `wanted` in this folder; whether any."""
        known = [record.id for record in history(folder) if record.status != "interrupted"]
        waiting = [trial for trial in trials if known.count(trial.id) < wanted]
        if not waiting:
            return False
        stack, found = self._stacks[arm], self._environment(arm)
        with (
            Results(folder) as results,
            ForkServer(results.logs / "server.log", self._variables(arm), stack.python, _modules(waiting)) as server,
        ):
            if known:
                environment.refuse_another(folder, found)
            results.write_json("environment.json", found)
            try:
                server.start()
            except ServerDiedError as error:
                told = str(error).split("\nthe end of its log:")[0].strip().splitlines()[-1]
                raise UserError(
                    f"{stack.name} does not import: {told}; what was measured is kept in {self.folder}"
                ) from None
            gpu = self._devices[0].gpu if self._devices else None
            bench = Bench(server, self._rules(stack), gpu, results.logs)
            for trial in waiting:
                results.append(run_trial(trial, bench))
        return True

    def _compare(self, trial: Trial) -> Compared:
        largest = [_latest(self.folder / arm / "largest", trial) for arm in ("before", "after")]
        before, after = (self.samples(arm, trial) for arm in ("before", "after"))
        if not before or not after:
            return compare_trial(largest[:1], largest[1:])
        found = compare_trial(before, after, judge=judge_pairs(self.samples("again", trial), self.pairs))
        sizes = [record.micro_batch for record in largest]
        if sizes[0] == sizes[1]:
            return found
        return replace(found, changes=(*found.changes, Change("largest micro batch", *map(str, sizes))))

    def _is_settled(self, trial: Trial) -> bool:
        """By the first round alone, also where a check goes on in the second."""
        before, after = (self.samples(arm, trial)[: self.pairs] for arm in ("before", "after"))
        if not before or not after:
            return True
        judged = compare_trial(before, after, judge=judge_pairs(self.samples("again", trial), self.pairs)).judged
        return judged is not None and settled(judged.ratio, judged.floor)

    def _sampled(self, trial: Trial) -> Trial | None:
        """The trial that both stacks repeat, at a micro batch that fits on both; None where one cannot run it."""
        sizes = [_latest(self.folder / arm / "largest", trial).micro_batch for arm in ("before", "after")]
        return replace(trial, micro_batch=min(sizes)) if all(sizes) else None  # type: ignore[type-var]

    def _rules(self, stack: Stack) -> rules.Stack:
        return environment.stack(self._devices[0] if self._devices else None, dict(stack.packages))

    def _variables(self, arm: str) -> dict[str, str]:
        """A stack's own build caches and tools: what one compiled is nothing to the other."""
        found = server_environment(self._devices)
        if arm == "after":
            for name in [name for name in found if name.endswith("_DIR")]:
                found[name] = str(folder(self._stacks[arm].key) / Path(found[name]).name)
            found["PATH"] = os.pathsep.join([str(Path(self._stacks[arm].python).parent), found["PATH"]])
        return found

    def _environment(self, arm: str) -> dict[str, Any]:
        packages = dict(self._stacks[arm].packages)
        options = {"pairs": self.pairs, "trials": [asdict(trial) for trial in self.trials]}
        return environment.describe(self._devices, packages, SEED, options, self._variables(arm))


def judge_pairs(again: Sequence[Record], first: int) -> Judge:
    """Judges processes block by block, the first `first` of them as the first round; `again` is the first stack's copy.
    A block with a sample that is not sound is left out."""

    def pairs(left: Sequence[Record], right: Sequence[Record]) -> tuple[list[float], list[float]]:
        sound = [(a, b) for a, b in zip(left, right, strict=False) if unsound(a) is None and unsound(b) is None]
        return [step_seconds(a) or 0.0 for a, _ in sound], [step_seconds(b) or 0.0 for _, b in sound]

    def judge(before: Sequence[Record], after: Sequence[Record]) -> Judged:
        blocks = [pairs(before[part], after[part]) for part in (slice(0, first), slice(first, None))]
        rounds = [of_pairs(*block) for block in blocks if block[0]]
        if len(rounds) > 1 and rounds[1].interval is None:
            del rounds[1]  # cut short, it can neither confirm nor deny
        if not rounds:  # no block has two sound samples: what there is tells at least both medians
            together = of_separate(
                *([step_seconds(r) or 0.0 for r in side if not unsound(r)] for side in (before, after))
            )
            return Judged(together, decide([together], together, None), None)
        together = of_pairs(*pairs(before, after))
        same = pairs(before, again)
        floor = noise_floor(of_pairs(*same)) if same[0] else None
        return Judged(together, decide(rounds, together, floor), floor)

    return judge


def _latest(folder: Path, trial: Trial) -> Record:
    """A trial's record; that it has not run yet is one, too."""
    found = [record for record in history(folder) if record.id == trial.id]
    return found[-1] if found else Record.of(trial, "interrupted", reason="not measured yet")


def _modules(trials: Iterable[Trial]) -> list[str]:
    """Of what is preloaded only what these trials use: each process of a check is loaded for itself alone."""
    prefixes = {"torch.distributed"}
    for trial in trials:
        recipe, settings = models.find(trial.recipe, trial.scale), Settings.parse(trial.settings)
        prefixes.add("timm" if recipe.family in ("convnext", "vit") else "transformers")
        if settings.library == "deepspeed":
            prefixes.add("deepspeed")
        if rules.compiles(recipe, settings):
            prefixes |= {"torch._dynamo", "torch._inductor"}
    return [module for module in PRELOADED if module.startswith(tuple(prefixes))]
