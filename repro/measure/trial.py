"""The run of one trial: whether it can run, the search for the largest micro batch, the timing, and the record."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Protocol

from repro import files
from repro.formats import duration, significant
from repro.machine import support
from repro.machine.support import Obstacle
from repro.paper.gpus import Gpu
from repro.paper.settings import Settings
from repro.record import AsRun, RawTimes, Record, Status, Trial
from repro.steps import derive

from .. import models
from ..models.recipe import Recipe, divisors
from .jobs import AGAIN, Job, Measured, RankOutcome
from .launcher import ServerDiedError
from .micro_batch import failed_at, search
from .outcomes import (
    NOT_EVEN_1,
    REMEDIES,
    fail,
    first_failure,
    full_gpu,
    joint_status,
    largest_fitting,
    short_of_disk,
)

if TYPE_CHECKING:
    from .interleaving import Scheduler


class Server(Protocol):
    """A server that runs the jobs of trials: a ForkServer, or the Leader of several nodes. `broken` maps each module
    that does not import to the error; `lost` says why no more jobs can run, and is empty as long as they can."""

    broken: dict[str, str]

    @property
    def lost(self) -> str: ...

    def start(self) -> None:
        """Load the stack. Raises ServerDiedError where that fails."""

    def call(self, job: Job) -> list[RankOutcome]:
        """Run a job, and return the outcome of each rank. Raises ServerDiedError where the server dies of it."""

    def clean_build_caches(self) -> int:
        """Remove what killed compilers left; return the number of files."""


@dataclass(frozen=True)
class Bench:
    """The resources of trials: the server, the stack, the GPU's catalogue entry (None: a CPU, or unknown), the
    folder for logs, and the scheduler of interleaved processes. `adams` maps the host's Adam (True) and
    the GPU's (False) to why DeepSpeed could not compile it, None where it could. `group_bytes` of a GPU are what NCCL
    takes to connect several: projected ranks, which connect to none, leave them free. Every trial ends
    with `trained` training steps at the peak learning rate, whose losses are kept."""

    server: Server
    stack: support.Stack
    gpu: Gpu | None
    logs: Path
    scheduler: Scheduler | None = None
    adams: dict[bool, Obstacle | None] = field(default_factory=dict)
    group_bytes: int = 0
    trained: int = 0

    @property
    def cuda(self) -> bool:
        return self.stack.capability is not None

    def obstacle(self, trial: Trial) -> Obstacle | None:
        """Return the first reason why a trial cannot run here: a lost node, a module that the started server could not
        import, or another rule; None where it can."""
        if self.server.lost:
            return Obstacle(self.server.lost, AGAIN)
        stack = replace(self.stack, broken=self.server.broken)
        return support.obstacle(*trial.recipe_and_settings, trial.world, stack)


# cuDNN's message where no engine has enough memory. It could also mean that no engine exists, but what is timed has
# run in the search already.
_NO_ENGINE = "unable to find an engine to execute this computation"
_BUILD_SECONDS = 1800.0  # for DeepSpeed to compile an optimizer


def run_trial(trial: Trial, bench: Bench, *, fixed_size: bool = False, until: float = math.inf) -> Record:
    """Measure a trial in processes of its own and return its record; a failure is a status of the record.

    The search for the largest micro batch goes up from the trial's own, if it has one, and below it only where that
    does not fit. With `fixed_size` the trial's own micro batch is the only one tried. At every size the trial ends with
    its time limit, and by `until` on the monotonic clock.

    Raises only for an interruption, and UserError where a link would have the log leave the results folder.
    """
    started = time.monotonic()
    recipe, settings = trial.recipe_and_settings
    compiled, tf32 = support.compiles(recipe, settings), support.uses_tf32(settings, bench.stack)
    record = Record.of(trial, "ok", as_run=AsRun.asked(recipe, settings, compiled, tf32))
    obstacle = bench.obstacle(trial)
    try:
        if obstacle is None:
            bench.server.start()
            obstacle = bench.obstacle(trial) or _adam_obstacle(settings, bench)
        if obstacle is not None:
            record.status, record.reason, record.remedy = "unsupported", obstacle.reason, obstacle.remedy
            return record
        started = time.monotonic()  # no trial's time includes loading or compiling the stack
        ranks = _Ranks(trial, bench, tf32, min(started + trial.timeout, until))
        _measure(ranks, recipe, settings, record, fixed_size)
        if record.status == "timed_out":
            limit = f"{significant(trial.timeout)} s" if trial.timeout < 10 else duration(trial.timeout)
            late = f"the trial did not end within its time limit of {limit}"
            record.reason = "; ".join(filter(None, (late, record.reason.removeprefix("; "))))
    except ServerDiedError as error:
        record.status, record.reason, record.traceback = "crashed", error.reason, str(error)
        record.remedy = error.remedy or REMEDIES["crashed"]
    record.wall_seconds = time.monotonic() - started
    return record


def _adam_obstacle(settings: Settings, bench: Bench) -> Obstacle | None:
    """Have DeepSpeed's Adam compiled once where these settings need it; return why that failed, else None."""
    if not bench.cuda or settings.library != "deepspeed":
        return None
    host = settings.offloading
    if host not in bench.adams:
        bench.adams[host] = compile_adam(bench.server, host, bench.logs)
    return bench.adams[host]


@dataclass(frozen=True)
class _Ranks:
    """The ranks of a trial, which run its functions one after the other until its deadline by the monotonic clock."""

    trial: Trial
    bench: Bench
    tf32: bool
    deadline: float

    @property
    def log(self) -> Path:
        """Return the file that they print to."""
        return self.bench.logs / f"{self.trial.id.replace('/', '_')}.log"

    def call(self, function: str, memory: int | None, arguments: dict[str, Any]) -> list[RankOutcome]:
        """Return each rank's outcome of a function of phases.py; `memory` is their limit in bytes."""
        trial, bench = self.trial, self.bench
        projected = trial.measured_on is not None
        return bench.server.call(
            Job(
                call=f"repro.measure.phases:{function}",
                arguments=arguments,
                ranks=trial.measured_on or trial.count,
                log=str(self.log),
                timeout=max(0.0, self.deadline - time.monotonic()),
                cuda=bench.cuda,
                memory=memory,
                scheduler=bench.scheduler,
                projected=projected,
                world=trial.world if projected else 0,
                set_aside=bench.group_bytes if projected and bench.cuda else 0,
            )
        )

    def attempt(self, function: str, **own: Any) -> tuple[Status, list[RankOutcome]]:
        """Run a function that builds the model, within the memory limit; return the joint status and outcomes."""
        trial = self.trial
        arguments: dict[str, Any] = {
            "recipe": trial.recipe,
            "scale": trial.scale,
            "settings": trial.settings,
            "tf32": self.tf32,
        } | own
        outcomes = self.call(function, trial.memory_limit, arguments)
        status = joint_status(outcomes)
        if status == "crashed" and trial.memory_limit is not None and not self.bench.cuda:
            # Native libraries crash in various ways without memory. If it works without the limit, that was the reason.
            if "largest" in arguments:
                arguments["largest"] = failed_at(arguments["largest"], arguments["start"], largest_fitting(outcomes))
            if joint_status(self.call(function, None, arguments)) == "ok":
                return "out_of_memory", outcomes
        return status, outcomes


def _measure(ranks: _Ranks, recipe: Recipe, settings: Settings, record: Record, fixed_size: bool) -> None:
    """Fill the record: search for the micro batch, then time the step."""
    trial, bench = ranks.trial, ranks.bench
    record.log = ranks.log.name
    files.inside(bench.logs.parent, f"{bench.logs.name}/{ranks.log.name}")
    ranks.log.unlink(missing_ok=True)
    if bench.cuda and settings.library == "deepspeed":
        bench.server.clean_build_caches()  # a rank killed while it builds DeepSpeed's operators leaves a lock
    share = recipe.batch_size // trial.world
    largest = min(share, trial.micro_batch or models.micro_batch_limit(recipe, trial.world))
    micro_batch = search(partial(ranks.attempt, "fit"), largest, trial.micro_batch or 1, record, fixed_size)
    if micro_batch:
        _time(ranks, recipe, record, micro_batch, fixed_size)
    if fixed_size and record.status == "out_of_memory":
        record.reason = record.reason.replace(NOT_EVEN_1, f"micro batch {largest} does not fit")


def _time(ranks: _Ranks, recipe: Recipe, record: Record, micro_batch: int, fixed_size: bool) -> None:
    """Time the step. Repeat it once after a killed compiler, uncompiled where the model cannot be compiled, and at
    the next smaller micro batch, unless it has a `fixed_size`, as long as it runs out of memory. The host's memory,
    around GPUs or for a compiler, does not depend on the micro batch. The authors' sequence comes first and keeps no
    gradients: its times stay those of the largest micro batch that completed it."""
    trial, cleaned = ranks.trial, False
    share, sizes = recipe.batch_size // trial.world, divisors(models.micro_batch_limit(recipe, trial.world))
    while micro_batch:
        status, outcomes = ranks.attempt(
            "measure",
            compiled=record.as_run.compiled,
            micro_batch=micro_batch,
            accumulation=share // micro_batch,
            steps=trial.steps,
            check_extrapolation=trial.check_extrapolation,
            trained=ranks.bench.trained,
        )
        if status == "crashed" and _NO_ENGINE in first_failure(outcomes).error:
            status = "out_of_memory"
        record.observed.busy_cpus = max(
            (outcome.busy_cpus for outcome in outcomes if outcome.busy_cpus is not None), default=None
        )
        if status == "crashed" and record.as_run.compiled and not short_of_disk(first_failure(outcomes)):
            if not cleaned and ranks.bench.server.clean_build_caches():
                cleaned = True
            elif _need_compiled(trial):
                break
            elif not _go_uncompiled(ranks, record, first_failure(outcomes)):
                return
        elif status == "out_of_memory" and not first_failure(outcomes).of_host:
            record.batch.full += full_gpu(first_failure(outcomes))
            if fixed_size:
                break
            authors = [outcome.authors for outcome in outcomes]
            if record.batch.authors_micro_batch is None and all(authors):
                record.times = replace(record.times, host=authors)
                record.batch.authors_micro_batch = micro_batch
            micro_batch = max((each for each in sizes if each < micro_batch), default=0)
            record.batch.halvings += 1
        else:
            break
    if status != "ok":
        record.times, record.batch.authors_micro_batch = RawTimes(), None
        fail(record, status, first_failure(outcomes), f"while timing micro batch {micro_batch}")
        return
    record.batch.micro_batch, record.batch.accumulation = micro_batch, share // micro_batch
    _take(outcomes, trial, ranks.bench, record)


def _need_compiled(trial: Trial) -> bool:
    """Return whether the trial has a part that would not run in a model that is not compiled."""
    parts = Settings.parse(trial.settings).parts
    if not parts:
        return False
    from repro.parts import NEED_COMPILED

    return not NEED_COMPILED.isdisjoint(parts)


def _go_uncompiled(ranks: _Ranks, record: Record, failure: RankOutcome) -> bool:
    """Record that a model which could not be compiled is measured uncompiled. Return False, and set a status, where
    nothing can be compiled here."""
    anything = ranks.call("compile_anything", None, {})
    if joint_status(anything) == "crashed":
        # An import of the compiler that failed halfway makes every later one fail in another way.
        imports = (error for module, error in ranks.bench.server.broken.items() if module.startswith("torch._"))
        record.reason = f"torch.compile compiles nothing here: {next(imports, failure.error)}"
        record.status, record.traceback = "unsupported", first_failure(anything).traceback
        record.remedy = "install what it lacks, such as a C++ compiler or Python's headers"
        return False
    record.as_run = replace(record.as_run, compiled=False, compile_error=failure.error)
    record.traceback = failure.traceback
    return True


def _take(outcomes: list[RankOutcome], trial: Trial, bench: Bench, record: Record) -> None:
    """Copy the ranks' raw times into the record, and derive its other values."""
    ranks: list[Measured] = [outcome.value for outcome in outcomes]
    record.times = RawTimes(
        host=[rank.host for rank in ranks] if record.batch.authors_micro_batch is None else record.times.host,
        device_times=[rank.device for rank in ranks],
        synchronised=[rank.synchronised for rank in ranks],
    )
    record.observed.peak_memory = max(rank.peak_memory for rank in ranks)
    record.observed.warm_up_seconds = max(rank.warm_up for rank in ranks)
    graphs = ranks[0].graphs
    record.as_run = replace(record.as_run, graphs=graphs)
    record.observed.losses = ranks[0].losses
    record.observed.trained_losses = ranks[0].trained_losses or None
    record.observed.skipped_updates = ranks[0].skipped_updates
    record.observed.gpu_state = [rank.gpu_state for rank in ranks] if bench.cuda else None
    record.observed.mean_power = [rank.mean_power for rank in ranks] if bench.cuda else None
    record.observed.part_power = [rank.part_power for rank in ranks] if bench.cuda else None
    record.observed.launches = ranks[0].launches
    record.observed.uncounted = ranks[0].uncounted
    if record.as_run.compiled and not (graphs and graphs["compiled"]):
        silent = "torch.compile made no graph and said nothing: the model ran uncompiled"
        fail(record, "crashed", RankOutcome(0, "crashed", error=silent))
        return

    record.derived = derive(record, bench.gpu)
    if trial.check_extrapolation:
        record.observed.whole_steps = [max(times) for times in zip(*(rank.whole_steps for rank in ranks), strict=True)]
        assert record.derived.true_step is not None
        record.observed.extrapolation_error = record.derived.true_step / median(record.observed.whole_steps) - 1


def compile_adam(server: Server, host: bool, logs: Path) -> Obstacle | None:
    """Compile DeepSpeed's Adam into each node's build cache, for the GPU or for the `host` with offloaded states.

    Return why compiling failed, else None. Any other failure is left to the trial, which reports it.
    """
    log = logs / "build.log"
    call, arguments = "repro.measure.phases:build_adam", {"host": host}
    outcomes = server.call(Job(call, arguments, ranks=1, log=str(log), timeout=_BUILD_SECONDS, cuda=True))
    for outcome in outcomes:
        if outcome.status == "ok" and outcome.value is not None:
            where, whose = (f" on node {outcome.rank}", " of that node") if len(outcomes) > 1 else ("", "")
            return Obstacle(
                f"DeepSpeed cannot compile its Adam{where}: {outcome.value}",
                f"read logs/{log.name}{whose}: it takes a C++ compiler and nvcc of torch's CUDA, which know the GPU, "
                "and the headers and libcudart.so of that CUDA, which nvcc alone may not bring",
            )
    return None
