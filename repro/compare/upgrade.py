"""Interleaved measurement of two stacks on one machine, in pairs, until the answer is clear.

On a CPU a process of each stack is alive at once, and they are interleaved round by round. On a GPU, which may not have
the memory for two, and at the paper's scale, one process follows the other. The order is reversed every time, so that a
drift affects both stacks. Processes are forked from servers that hold the imported stacks, and those of one server
share what its start decided, such as the layout of memory. So the servers of both stacks start anew every few
processes: a pair is one start of each, and its sample the median ratio of their processes.
"""

from __future__ import annotations

import math
import os
import secrets
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

from .. import files
from ..console import UserError, say_once
from ..machine import environment, support
from ..machine.devices import Device, gpu_of
from ..machine.environment import Environment
from ..machine.packages import Imports, complaint
from ..machine.stack import preloaded, trial_environment
from ..measure.interleaving import Scheduler
from ..measure.jobs import SEED
from ..measure.launcher import ForkServer, ServerDiedError
from ..measure.trial import Bench, run_trial
from ..record import Record, Trial
from ..run.records import history
from ..run.results import Results
from ..validity import is_final
from .budget import SIDES, forks, pair_of, search_of
from .candidate import Stack, folder
from .decision import BLOCK, FIRST_LOOK
from .side import SEARCHES, Side
from .trials import Compared, compare_trial


class Check:
    """An upgrade check in a results folder, resumed where it stopped. `trials` take the largest micro batch that fits
    on both stacks. A trial ends with `pairs` pairs, or sooner where its answer is clear. No pair begins that would end
    after `budget` seconds if it took as long as the longest before; what goes on longer is cut, and not kept. `tell`
    gets each of the `parts` when it is done, with its seconds, None where it is not measured: an earlier check had done
    it, or no trial needs it."""

    def __init__(
        self,
        folder: Path,
        trials: Sequence[Trial],
        stacks: tuple[Stack, Stack],
        devices: Sequence[Device],
        pairs: int,
        budget: float,
        tell: Callable[[str, float | None], None],
    ) -> None:
        self.folder, self.trials, self.pairs, self.tell = folder, list(trials), pairs, tell
        self._stacks = dict(zip(SIDES, stacks, strict=True))
        self._devices, self._deadline = list(devices), time.monotonic() + budget
        self._forks = forks(devices)
        self._longest, self.complete = 0.0, True
        self._failed: set[str] = set()

    def check(self) -> list[Compared]:
        """Measure what is missing, and compare. Raises UserError where a stack does not import, or where the folder
        holds a check of other stacks."""
        self._refuse_others()
        for arm in SIDES:
            self._search(arm)
        self._sample()
        return self.compared()

    def compared(self) -> list[Compared]:
        """Compare every trial, by what is measured so far."""
        return [self._compare(trial) for trial in self.trials]

    def sides(self) -> tuple[Side, Side]:
        """Return both stacks as sides, with their environments."""
        before, after = (
            Side(self._stacks[arm].name, tuple(history(self.folder / arm)), self._environment(arm)) for arm in SIDES
        )
        return before, after

    def samples(self, arm: str, trial: Trial) -> list[Record]:
        """Return an arm's records of a trial, in the order of measurement, without failures that were measured
        again."""
        sampled = self._sampled(trial)
        there = [] if sampled is None else [each for each in history(self.folder / arm) if each.id == sampled.id]
        return [each for each in there if is_final(each) or each is there[-1]]

    def _refuse_others(self) -> None:
        """Raise UserError for a check of other stacks. Packages that no measurement depends on may have changed."""
        files.inside(self.folder, *(f"{arm}/{SEARCHES}" for arm in SIDES))
        now = {arm: self._environment(arm) for arm in SIDES}
        self._refuse(now, _differing(now["before"], now["after"]))
        folders = [self.folder / arm / SEARCHES for arm in SIDES]
        self._refuse(now, _differing(*(environment.read(kept) if history(kept) else None for kept in folders)))

    def _refuse(self, now: Mapping[str, Environment], more: Collection[str]) -> None:
        for arm in SIDES:
            for kept in (self.folder / arm, self.folder / arm / SEARCHES):
                if history(kept):
                    environment.refuse_another(kept, now[arm], more)

    def _search(self, arm: str) -> None:
        """Find the largest micro batch of every trial on a stack."""
        waiting = self._unsearched(arm)
        began = time.monotonic()
        if waiting:
            with self._opened(self.folder / arm / SEARCHES, arm, waiting) as opened:
                for trial in waiting:
                    opened.keep(opened.measure(trial))
        self.tell(search_of(arm), time.monotonic() - began if waiting else None)

    def _sample(self) -> None:
        """Measure pair by pair what every trial still needs."""
        reported = 0
        while self.complete and (waiting := self._waiting()):
            number = min(waiting.values())
            for earlier in range(reported, number):
                self.tell(pair_of(earlier), None)
            began = time.monotonic()
            self.complete = began + self._longest <= self._deadline
            if not self.complete:
                return
            self._pair(number, [trial for trial, measured in waiting.items() if measured == number])
            seconds, reported = time.monotonic() - began, number + 1
            self._longest = max(self._longest, seconds)
            self.tell(pair_of(number), seconds)
        for needless in range(reported, self.pairs):
            self.tell(pair_of(needless), None)

    def _unsearched(self, arm: str) -> list[Trial]:
        """Return the trials whose largest micro batch on a stack is not found yet."""
        known = {record.id for record in _standing(self.folder / arm / SEARCHES)}
        return [trial for trial in self.trials if trial.id not in known]

    def _waiting(self) -> dict[Trial, int]:
        """Return the trials that need more pairs, as both stacks run them, each with the number of pairs it has."""
        found = {}
        for trial in self.trials:
            sampled = self._sampled(trial)
            if sampled is None or sampled.id in self._failed:
                continue
            sides = [[each for each in self.samples(arm, trial) if is_final(each)] for arm in SIDES]
            if not all(each.timed for side in sides for each in side):
                continue
            before, after = ({each.pair for each in side} for side in sides)
            pairs = len(before & after - {None})  # None is of a check before records had pairs
            if pairs < self.pairs and not self._may_stop(trial, pairs):
                found[sampled] = pairs
        return found

    def _may_stop(self, trial: Trial, pairs: int) -> bool:
        """Look, after every block of pairs, whether the answer is clear."""
        if pairs < FIRST_LOOK or (pairs - FIRST_LOOK) % BLOCK:
            return False
        judged = self._compare(trial).judged
        return judged is not None and judged.may_stop

    def _pair(self, number: int, trials: list[Trial]) -> None:
        """Start both stacks, and measure these trials in processes of each. A trial that fails is left out."""
        pair = secrets.token_hex(8)
        forks = self._forks
        with ExitStack() as stack:
            scheduler = Scheduler()
            arms = {arm: stack.enter_context(self._opened(self.folder / arm, arm, trials)) for arm in SIDES}
            for opened in arms.values():
                opened.load()
            for fork in range(number * forks, (number + 1) * forks):
                order = [arms[arm] for arm in SIDES[:: -1 if fork % 2 else 1]]
                for trial in list(trials):
                    if not self._measure(trial, order, scheduler, pair):
                        self._failed.add(trial.id)
                        trials.remove(trial)

    def _measure(self, trial: Trial, arms: Sequence[_Opened], scheduler: Scheduler, pair: str) -> bool:
        """Measure a trial once in these arms, and keep the records; return False where one failed, or was cut."""
        if self._devices or trial.scale == "paper":  # memory may not hold two processes
            return all(self._keep(arm, arm.measure(trial, until=self._deadline), pair) for arm in arms)
        works = [partial(arm.measure, trial, scheduler, self._deadline) for arm in arms]
        records = scheduler.run_in_turns(works, [arm.server.stop for arm in arms])
        timed = [self._keep(arm, record, pair) for arm, record in zip(arms, records, strict=True)]
        return all(timed)

    def _keep(self, arm: _Opened, record: Record, pair: str) -> bool:
        """Keep a record, unless the budget cut it; return whether it was timed."""
        if record.status == "timed_out" and time.monotonic() >= self._deadline:
            self.complete = False
            return False
        return arm.keep(record, pair).timed

    @contextmanager
    def _opened(self, folder: Path, arm: str, trials: Iterable[Trial]) -> Iterator[_Opened]:
        """Yield an arm that measures into a folder, its stack not yet loaded."""
        stack, found = self._stacks[arm], self._environment(arm)
        files.inside(self.folder, str(folder.relative_to(self.folder)))
        with (
            Results(folder) as results,
            ForkServer(results.logs / "server.log", self._variables(arm), stack.python, _modules(trials)) as server,
        ):
            environment.keep(found, folder, results.append_line)
            known = environment.stack(self._devices, stack.packages)
            bench = Bench(server, known, gpu_of(self._devices), results.logs)
            opened = _Opened(stack.name, self.folder, found, results, server, bench)
            opened.launch()
            yield opened

    def _compare(self, trial: Trial) -> Compared:
        largest = self._largest(trial)
        before, after = (self.samples(arm, trial) for arm in SIDES)
        if not before or not after:
            found = compare_trial(largest[:1], largest[1:])
            return replace(found, reason=found.reason + self._failure(trial))
        found = compare_trial(before, after)
        sizes = [record.batch.micro_batch for record in largest]
        if sizes[0] == sizes[1]:
            return found
        return replace(found, changes=(*found.changes, f"largest micro batch: {sizes[0]}, then {sizes[1]}"))

    def _failure(self, trial: Trial) -> str:
        """Describe a failure of one stack that ended the trial's pairs before the other had measured it."""
        for arm in SIDES:
            if failed := [record for record in self.samples(arm, trial) if not record.timed]:
                reason = f"{failed[-1].status}: {failed[-1].reason}"
                return f"; in {self._stacks[arm].name} it failed, which ended its pairs ({reason})"
        return ""

    def _sampled(self, trial: Trial) -> Trial | None:
        """Return the trial that both stacks repeat, at a micro batch that fits on both; None without one."""
        sizes = [record.batch.micro_batch for record in self._largest(trial)]
        return replace(trial, micro_batch=min(sizes)) if all(sizes) else None  # type: ignore[type-var]

    def _largest(self, trial: Trial) -> list[Record]:
        """Return what the search for a trial's largest micro batch found on each side; an `interrupted` record where it
        has not run yet."""
        found = []
        for arm in SIDES:
            there = [record for record in history(self.folder / arm / SEARCHES) if record.id == trial.id]
            found.append(there[-1] if there else Record.of(trial, "interrupted", reason="not measured yet"))
        return found

    def _variables(self, arm: str) -> dict[str, str]:
        """Return a stack's variables, with build caches and tools of its own: no stack uses what the other compiled."""
        stack = self._stacks[arm]
        found = trial_environment(self._devices, stack.packages.get("torch"))
        if stack.key:
            for name in [name for name in found if name.endswith("_DIR")]:
                found[name] = str(folder(stack.key) / Path(found[name]).name)
            found["PATH"] = os.pathsep.join([str(Path(stack.python).parent), found["PATH"]])
        return found

    def _environment(self, arm: str) -> Environment:
        options = {"pairs": self.pairs, "trials": [asdict(trial) for trial in self.trials]}
        stack = self._stacks[arm]
        return environment.describe(self._devices, stack.packages, SEED, options, self._variables(arm))


@dataclass
class _Opened:
    """An arm with a running server. `kept` is the check's folder, for messages; `described` is what the arm runs on.
    `imports` is what its stack imported, as last written."""

    stack: str
    kept: Path
    described: Environment
    results: Results
    server: ForkServer
    bench: Bench
    imports: Imports | None = None

    def launch(self) -> None:
        """Start the stack without waiting for it. Raises UserError where it was removed since it was built."""
        with self._clear():
            self.server.launch()

    def load(self) -> None:
        """Wait for the stack. Raises UserError where it does not import, or where it imports files of another stack."""
        with self._clear():
            self.server.start()
        imports = self.server.imports
        if imports is None or imports is self.imports:
            return
        if foreign := complaint(imports.packages):
            raise UserError(
                f"{self.stack}: {foreign}, which makes two stacks alike: unset PYTHONPATH, and take away what leads "
                f"elsewhere, such as an editable install or a .pth file; what was measured is kept in {self.kept}"
            )
        found = environment.keep(self.described.with_imports(imports), self.results.folder, self.results.append_line)
        for package, what in found.lock.changed.items():
            say_once(f"{self.stack}: {package} is not as it was installed: {what}")
        self.imports = imports

    @contextmanager
    def _clear(self) -> Iterator[None]:
        try:
            yield
        except (ServerDiedError, OSError) as error:
            if isinstance(error, OSError):
                reason = f"it does not start ({error.filename}: {error.strerror})"
            else:
                reason = error.reason
            raise UserError(f"{self.stack}: {reason}; what was measured is kept in {self.kept}") from None

    def measure(self, trial: Trial, scheduler: Scheduler | None = None, until: float = math.inf) -> Record:
        """Run a trial in a process of its own, see `run_trial`; with a `scheduler` interleaved with another."""
        self.load()
        return run_trial(trial, replace(self.bench, scheduler=scheduler), until=until)

    def keep(self, record: Record, pair: str | None = None) -> Record:
        """Write a record to the arm's results, and return it. `pair` is None for a search."""
        record.commit, record.pair = self.described.commit, pair
        self.results.append(record)
        return record


def _differing(*stacks: Environment | None) -> set[str]:
    """Return the packages of which two stacks have different versions; empty where one stack is not known."""
    before, after = (stack and stack.packages for stack in stacks)
    return {name for name, _ in before.items() ^ after.items()} if before and after else set()


def _standing(folder: Path) -> list[Record]:
    """Return the records of a folder that are not to be measured again."""
    return [record for record in history(folder) if is_final(record)]


def _modules(trials: Iterable[Trial]) -> list[str]:
    """Return those preloaded modules that these trials use: a check loads its stacks many times."""
    prefixes = {"torch.distributed"}
    for trial in trials:
        recipe, settings = trial.recipe_and_settings
        prefixes.update(support.packages_of(recipe))
        if settings.library == "deepspeed":
            prefixes.add("deepspeed")
        if support.compiles(recipe, settings):
            prefixes |= {"torch._dynamo", "torch._inductor"}
    return [module for module in preloaded() if module.startswith(tuple(prefixes))]
