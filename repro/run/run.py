"""A run: its folder, its fork server, and its trials one by one."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import installation
from ..console import UserError, say
from ..formats import counted
from ..machine import environment, support
from ..machine.devices import Device, every_device, gpu_of
from ..machine.packages import Imports, installed_packages
from ..machine.stack import trial_environment
from ..measure.jobs import SEED
from ..measure.launcher import ForkServer, ServerDiedError, StackError
from ..measure.method import MethodFile
from ..measure.trial import Bench, run_trial
from ..paper.settings import Settings
from ..paper.tables import Cell, all_cells
from ..record import AsRun, Record, Trial
from ..validity import believed, is_final, larger_may_fit
from .plan import Options, checking, is_multiplied, limited, measurement, trials
from .records import Problem, all_valid_records, environment_of, latest_of, print_problems
from .results import BENCHMARK, CERTIFICATE, PAGE, RECIPES, REPORT, TRAININGS, TRIALS, VERDICTS, Results

if TYPE_CHECKING:
    from ..machine.cluster import Node
    from .projection import Projection
    from .verdict import Verdict

FILES = (TRIALS, RECIPES, VERDICTS, environment.FILE, BENCHMARK, REPORT, PAGE, CERTIFICATE)  # in the folder, and logs
_EXHAUSTIVE = "--search exhaustive measures it"
_TRAINED = 6  # losses of settings with and without a user's methods: the first is of equal weights


class Run:
    """One run of the benchmark in a results folder. A context manager: it holds the folder and ends all processes.

    It takes the valid records of earlier runs, and says on stderr which others there are: their trials wait again.

    `devices` are the GPUs it runs on, none means the CPU. Of its `trials` those `chosen` are measured, at first all.
    With a `node` it leads a run on several. `methods` are the files of its settings' own methods.
    """

    def __init__(
        self,
        folder: Path,
        options: Options,
        devices: Sequence[Device],
        node: Node | None = None,
        methods: Sequence[MethodFile] = (),
    ) -> None:
        from .estimate import estimate

        self.options, self.devices, self.node = options, list(devices), node
        self.cells = all_cells()
        self._estimate = partial(estimate, gpu=gpu_of(devices))
        planned = checking(trials(options, self.devices), self._estimate)
        self.trials = limited(planned, options.trial_timeout, self._estimate)
        self._chosen = {trial.id for trial in self.trials}
        self.results = Results(folder)
        self._packages = installed_packages()
        self._variables = trial_environment(self.devices)
        log = self.results.logs / "server.log"
        self._server = ForkServer(log, self._variables, methods=methods)
        if node is not None:
            from ..measure.nodes import Leader

            self._server = Leader(node, every_device(self.devices), log, self._variables, methods=methods)
        self.bench = Bench(
            server=self._server,
            stack=environment.stack(self.devices, self._packages),
            gpu=gpu_of(self.devices),
            logs=self.results.logs,
            trained=_TRAINED if options.added else 0,
        )
        self._deadline = time.monotonic() + (float("inf") if options.budget is None else options.budget)
        self.projection: Projection | None = None
        self._imports: Imports | None = None
        self._number = 1

    def __enter__(self) -> Run:
        if any(self.results.folder.glob(TRAININGS)):
            raise UserError(f"{self.results.folder} holds trainings of repro lab; name another folder with --out")
        with contextlib.ExitStack() as opened:
            opened.enter_context(self._server)  # first: where nodes are refused a new folder stays unmade
            opened.enter_context(self.results)
            self.results.keep_recipes(self.options.models)
            folder, problems = self.results.folder, list[Problem]()
            then = environment_of(folder, [])
            measured = all_valid_records(folder, problems)
            self._records = {record.id: record for record in latest_of(measured, then, problems)}
            self._times = Counter(record.id for record in measured if believed(record, then).timed)
            self._has_final = any(map(is_final, measured))  # believed or not
            print_problems(problems, folder)
            options = asdict(self.options)
            self.environment = environment.describe(self.devices, self._packages, SEED, options, self._variables)
            self._keep_environment()
            self._opened = opened.pop_all()
        return self

    def __exit__(self, *error: Any) -> None:
        self._opened.__exit__(*error)  # which a leader passes on to the other nodes

    def _keep_environment(self) -> None:
        """Write the environment beside the trials. Raise UserError where those were measured on another stack."""
        if self._has_final or any(map(is_final, self._records.values())):
            environment.refuse_another(self.results.folder, self.environment)
        self.environment = environment.keep(self.environment, self.results.folder, self.results.append_line)

    def _keep_imports(self) -> None:
        """Do the same once the stack has said what it imported; print what came from elsewhere, or was edited."""
        imports = self._server.imports
        if imports is None or imports is self._imports:
            return
        self._imports = imports
        self.environment = self.environment.with_imports(imports)
        self._keep_environment()
        if reason := self.environment.lock.reason:
            say(f"{reason}: what is measured is not a lock's stack, as {environment.FILE} records")
        if line := installation.summary(self.environment.lock.changed):
            say(line)

    def end(self, code: int) -> None:
        """Have the other nodes, where there are some, end with this exit code."""
        if self.node is not None:
            self._server.code = code  # type: ignore[attr-defined]  # of a leader

    def choose(self, trials: Iterable[Trial]) -> None:
        """Measure these of its trials alone."""
        self._chosen = {trial.id for trial in trials}

    def skip_but(self, taken: Sequence[Trial], trials: Iterable[Trial]) -> None:
        """Measure only those `taken` of these trials, in this order and before all others; keep a record that says so
        of each of the rest."""
        first = {trial.id: place for place, trial in enumerate(taken)}
        skipped = {trial.id for trial in trials} - first.keys()
        self.trials.sort(key=lambda trial: first.get(trial.id, len(first)))
        for trial in self.chosen:
            if trial.id in skipped and self.finished(trial) is None:
                tf32 = support.uses_tf32(trial.recipe_and_settings[1], self.bench.stack)
                self.keep(Record.of(trial, "skipped", self._not_best, _EXHAUSTIVE, AsRun(asked_tf32=tf32)))
        self._chosen -= skipped

    @property
    def _not_best(self) -> str:
        return f"it is not among the {self.options.best} best predicted"

    @property
    def chosen(self) -> list[Trial]:
        return [trial for trial in self.trials if trial.id in self._chosen]

    @property
    def measurements(self) -> dict[str, tuple[Trial, int]]:
        """Return the measurements of all trials, by name: the first of each, then the second of each, and so on."""
        numbers = range(1, self.options.repeat + 1)
        return {measurement(trial, number): (trial, number) for number in numbers for trial in self.trials}

    @property
    def seconds(self) -> dict[str, float]:
        """Return how long each measurement of the chosen trials should take, by name; none where an earlier run has
        finished it."""
        return {
            name: self.estimate(trial) if self.finished(trial, number) is None else 0.0
            for name, (trial, number) in self.measurements.items()
            if trial.id in self._chosen
        }

    @property
    def waiting(self) -> list[Trial]:
        """Return the chosen trials that no earlier run of this folder has finished."""
        return [trial for trial in self.chosen if self.finished(trial, self.options.repeat) is None]

    @property
    def left(self) -> float:
        """Return the seconds that are left of the time budget, without end where there is none."""
        return self._deadline - time.monotonic()

    @property
    def loads(self) -> bool:
        """Return whether a waiting trial that the time budget allows will need the stack and the other nodes."""
        return any(self.can_run(trial) and self.estimate(trial) <= self.left for trial in self.waiting)

    def load(self) -> None:
        """Load the stack, and wait for the other nodes, where a trial will need them. Say which trials cannot run as a
        package does not import. Raise UserError where torch does not."""
        if not self.loads:
            return
        could_run = [trial for trial in self.waiting if self.can_run(trial)]
        try:
            self.bench.server.start()
        except StackError as error:
            remedy = error.remedy or "set up with ./run_all.sh, or install what it lacks with pip"
            raise UserError(f"{error.reason}; {remedy}") from None
        except ServerDiedError:
            return  # it fails again in the first trial, which records it
        self._keep_imports()
        stopped: dict[support.Obstacle, list[Trial]] = {}
        for trial in could_run:
            if (obstacle := self.bench.obstacle(trial)) is not None:
                stopped.setdefault(obstacle, []).append(trial)
        for obstacle, concerned in stopped.items():
            recipes = ", ".join(dict.fromkeys(trial.recipe for trial in concerned))
            say(f"{obstacle.reason}; {counted(len(concerned), 'trial')} of {recipes} cannot run: {obstacle.remedy}")

    def estimate(self, trial: Trial) -> float:
        """Estimate the seconds that a trial takes; none where something is in its way."""
        return self._estimate(trial) if self.can_run(trial) and not is_multiplied(trial) else 0.0

    def record(
        self, trial: Trial, note: Callable[[Record], None] = lambda record: None, number: int = 1
    ) -> Record | None:
        """Measure a trial, for the how manyth time. Return its record, which is on disk then, with what `note` has put
        into it; None where the time budget would not suffice."""
        if self.estimate(trial) > self.left:
            return None
        if number > self._number:  # the processes of one server share what its start decided
            self._number = number
            self._server.close()
        self.results.check()
        if is_multiplied(trial) and self.projection is not None and self.can_run(trial):
            return self.keep(self._multiplied(trial, self.projection))
        try:
            bench = self._bench_of(trial)
            record = run_trial(trial, bench, fixed_size=trial.micro_batch is not None, until=self._deadline)
        except KeyboardInterrupt:
            reason, remedy = "the run was interrupted", "run it again"
            tf32 = support.uses_tf32(Settings.parse(trial.settings), self.bench.stack)
            self.keep(Record.of(trial, "interrupted", reason, remedy, AsRun(asked_tf32=tf32)))
            raise
        self._keep_imports()
        if record.status == "timed_out" and self.left <= 0:
            return None  # the budget's limit says nothing of the trial
        if trial.measured_on is not None and self.projection is not None:
            record = self.projection.complete(record, self.bench.gpu)
        note(record)
        return self.keep(record)

    def add(self, trial: Trial) -> None:
        """Add a trial that a search chose to those of this run."""
        if trial.id not in {each.id for each in self.trials}:
            [trial] = limited([trial], self.options.trial_timeout, self._estimate)
            self.trials.append(trial)
            self._chosen.add(trial.id)

    def project(self) -> None:
        """Find the links of machines with more devices than here, where a projected trial waits. Those of a CPU, and of
        several GPUs, are probed; so is the host of GPUs, where one offloads to it."""
        projected = [trial for trial in self.waiting if trial.measured_on is not None and self.can_run(trial)]
        if not projected:
            return
        from .probe import host_bandwidth, known_machine, links_of
        from .projection import Projection

        folder, links, host = self.results.folder, None, None
        found = known_machine(self.bench, self.devices, folder, (*self.options.counts, *self.options.projected))
        if self.devices:
            links = links_of(self.bench, self.devices, folder)
        if links is not None:
            say(f"communication is modelled by the links measured among {max(links.counts)} GPUs here")
        if self.devices and any(trial.recipe_and_settings[1].offloading for trial in projected):
            host = host_bandwidth(self.bench)
            say(f"memory of the host: {host / 1e9:.0f} GB/s, which projected GPUs that offload share")
        self.projection = Projection(found, links, host)

    def _multiplied(self, trial: Trial, projection: Projection) -> Record:
        """Return the record of a projected trial that does not run, from the same settings on the fewest devices."""
        for count in sorted(self.options.counts):
            base = self._records.get(replace(trial, count=count, measured_on=None).id)
            if count < trial.count and base is not None and base.ended:
                return projection.multiplied(trial, base, self.bench.gpu)
        reason = "nothing is measured of these settings on fewer devices, which this projection multiplies"
        return Record.of(trial, "unsupported", reason, "measure them too: all cases, or with a larger --budget")

    def _bench_of(self, trial: Trial) -> Bench:
        if trial.measured_on is None or self.projection is None:
            return self.bench
        return replace(self.bench, group_bytes=self.projection.group_bytes(trial.count))

    def verdict(self, cell: Cell) -> Verdict:
        """Judge a cell by all records of this folder."""
        from .verdict import judge_tables

        return judge_tables(self._records.values(), self.options.tolerance, self.options.clock, [cell])[0]

    @property
    def timed_ids(self) -> list[str]:
        """Return the ids of all trials of the folder that are `ok`, also of those that are none of this run's."""
        return [id for id, record in self._records.items() if record.timed]

    def records(self) -> list[Record]:
        """Return the records of this run's trials, in its order."""
        return [self._records[trial.id] for trial in self.trials if trial.id in self._records]

    def keep(self, record: Record) -> Record:
        """Write a record, and return it as it counts."""
        record.commit = record.commit or self.environment.commit  # a copied record keeps its own
        self.results.append(record)
        self._records.pop(record.id, None)  # of trials with other rounds the last that ran stands
        kept = self._records.setdefault(record.id, believed(record, self.environment))
        self._times[record.id] += kept.timed
        return kept

    def finished(self, trial: Trial, number: int = 1) -> Record | None:
        """Return the trial's last record if it was measured so many times, and needs no other try, as one after a crash
        or without a package does. What does not fit need not be tried again."""
        record = self._records.get(trial.id)
        if record is None:
            return None
        if record.status == "timed_out":
            standing = record.wall_seconds >= trial.timeout
        elif record.status == "skipped":
            standing = record.reason == self._not_best
        else:
            standing = is_final(record) and not larger_may_fit(record)  # others may leave more room by now
            if self.bench.trained and record.status == "ok" and record.observed.trained_losses is None:
                standing = False  # a run without methods measured it
            if record.timed and self._times[record.id] < number:
                standing = False
        return record if standing else None

    def can_run(self, trial: Trial) -> bool:
        """Return whether nothing is known that keeps a trial from running."""
        return self.bench.obstacle(trial) is None
