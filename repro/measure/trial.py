"""The run of one trial: whether it can run, the search for the largest micro batch, the timing, and the record."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from repro import files
from repro.formats import duration, significant
from repro.machine import support
from repro.machine.build_cache import disk_full
from repro.machine.support import Obstacle
from repro.paper.gpus import Gpu
from repro.paper.settings import Settings
from repro.record import AsRun, RawTimes, Record, Status, Times, Trial, derive
from repro.validity import gpu_disturbance, larger_may_fit

from .. import models
from ..models.recipe import Recipe, divisors
from .launcher import ForkServer, ServerDiedError
from .nodes import AGAIN, Leader
from .rank_reports import Measured, Report
from .server import Job, RankOutcome


@dataclass(frozen=True)
class Bench:
    """The resources of trials: the fork server, the stack, the GPU's catalogue entry (None: a CPU, or unknown), the
    folder for logs, and the address of the scheduler of interleaved processes. `adams` maps the host's Adam (True) and
    the GPU's (False) to why DeepSpeed could not compile it, None where it could. `group_bytes` of a GPU are what NCCL
    takes to connect several: projected ranks, which connect to none, leave them free. Every trial ends
    with `trained` training steps at the peak learning rate, whose losses are kept."""

    server: ForkServer
    stack: support.Stack
    gpu: Gpu | None
    logs: Path
    scheduler: str | None = None
    adams: dict[bool, Obstacle | None] = field(default_factory=dict)
    group_bytes: int = 0
    trained: int = 0

    @property
    def cuda(self) -> bool:
        return self.stack.capability is not None

    def obstacle(self, trial: Trial) -> Obstacle | None:
        """Return the first reason why a trial cannot run here: a lost node, a module that the started server could not
        import, or another rule; None where it can."""
        if isinstance(self.server, Leader) and self.server.lost:
            return Obstacle(self.server.lost, AGAIN)
        stack = replace(self.stack, broken=self.server.broken)
        return support.obstacle(*trial.recipe_and_settings, trial.world, stack)


# cuDNN's message where no engine has enough memory. It could also mean that no engine exists, but what is timed has
# run in the search already.
_NO_ENGINE = "unable to find an engine to execute this computation"
# A micro batch takes at most twice what the size before it took. Where that was this share of the GPU's memory, a crash
# may be due to memory even if its message is another.
_NEAR_THE_END = 0.4
_REMEDIES: dict[str, str] = {
    "out_of_memory": "needs more memory: activation checkpointing, sharding over more devices, or offloading, which "
    "takes the host's",
    "host": "needs more memory of the host: settings without offloading, more GPUs, fewer compilers at once "
    "(TORCHINDUCTOR_COMPILE_THREADS=1), or another host",
    "shared": "run it again once no other process uses the GPU",
    "timed_out": "raise --trial-timeout",
    "unsupported": "leave the part out",
    "disk": "free some space, or name a folder elsewhere in REPRO_CACHE or TMPDIR, and run the same command again",
    "crashed": "read the traceback in trials.jsonl and the log",
}

_BUILD_SECONDS = 1800.0
_NOT_EVEN_1 = "not even a micro batch of 1 fits"


def run_trial(trial: Trial, bench: Bench, alone: bool = False, until: float = math.inf) -> Record:
    """Run a trial and return its record. A micro batch of the trial's own is where the search for one that fits begins,
    and goes down from; with `alone` it is the only one that is tried. At every size the trial ends with its time limit,
    and by `until` on the monotonic clock. Raises only for an interruption, and UserError where a link would have logs
    leave the folder."""
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
        _measure(ranks, recipe, settings, record, alone)
        if record.status == "timed_out":
            limit = f"{significant(trial.timeout)} s" if trial.timeout < 10 else duration(trial.timeout)
            late = f"the trial did not end within its time limit of {limit}"
            record.reason = "; ".join(filter(None, (late, record.reason.removeprefix("; "))))
    except ServerDiedError as error:
        record.status, record.reason, record.traceback = "crashed", error.reason, str(error)
        record.remedy = error.remedy or _REMEDIES["crashed"]
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
        return self.bench.server.call(
            Job(
                call=f"repro.measure.phases:{function}",
                arguments=arguments,
                ranks=self.trial.count if self.trial.measured_on is None else self.trial.measured_on,
                log=str(self.log),
                timeout=max(0.0, self.deadline - time.monotonic()),
                cuda=self.bench.cuda,
                memory=memory,
                scheduler=self.bench.scheduler,
                **self._projected(),
            )
        )

    def _projected(self) -> dict[str, Any]:
        """Return what a job has to say of ranks that are not started."""
        trial = self.trial
        if trial.measured_on is None:
            return {}
        return {"projected": True, "world": trial.world, "set_aside": self.bench.group_bytes if self.bench.cuda else 0}

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
        status = _status(outcomes)
        if status == "crashed" and trial.memory_limit is not None and not self.bench.cuda:
            # Native libraries crash in various ways without memory. If it works without the limit, that was the reason.
            if "largest" in arguments:
                arguments["largest"] = _failed_at(arguments["largest"], arguments["start"], _fitting(outcomes))
            if _status(self.call(function, None, arguments)) == "ok":
                return "out_of_memory", outcomes
        return status, outcomes


def _measure(ranks: _Ranks, recipe: Recipe, settings: Settings, record: Record, alone: bool) -> None:
    """Fill the record: search for the micro batch, then time the step."""
    trial, bench = ranks.trial, ranks.bench
    record.log = ranks.log.name
    files.inside(bench.logs.parent, f"{bench.logs.name}/{ranks.log.name}")
    ranks.log.unlink(missing_ok=True)
    if bench.cuda and settings.library == "deepspeed":
        bench.server.clean_build_caches()  # a rank killed while it builds DeepSpeed's operators leaves a lock
    share = recipe.batch_size // trial.world
    largest = min(share, trial.micro_batch or models.micro_batch_limit(recipe, trial.world))
    micro_batch = _fit(partial(ranks.attempt, "fit"), largest, trial.micro_batch or 1, record, alone)
    if micro_batch:
        _time(ranks, recipe, record, micro_batch, alone)
    if alone and record.status == "out_of_memory":
        record.reason = record.reason.replace(_NOT_EVEN_1, f"micro batch {largest} does not fit")


def _time(ranks: _Ranks, recipe: Recipe, record: Record, micro_batch: int, alone: bool) -> None:
    """Time the step. Repeat it once after a killed compiler, uncompiled where the model cannot be compiled, and at
    the next smaller micro batch, unless it is `alone`, as long as it runs out of memory. The host's memory, around
    GPUs or for a compiler, does not depend on the micro batch. The authors' sequence comes first and keeps no
    gradients: its times stay those of the largest micro batch that completed it."""
    trial, cleaned, found = ranks.trial, False, micro_batch
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
        if status == "crashed" and _NO_ENGINE in _failure(outcomes).error:
            status = "out_of_memory"
        record.observed.busy_cpus = max(
            (outcome.busy_cpus for outcome in outcomes if outcome.busy_cpus is not None), default=None
        )
        if status == "crashed" and record.as_run.compiled and not _short_of_disk(_failure(outcomes)):
            if not cleaned and ranks.bench.server.clean_build_caches():
                cleaned = True
            elif _need_compiled(trial):
                break
            elif not _go_uncompiled(ranks, record, _failure(outcomes)):
                return
        elif status == "out_of_memory" and not _failure(outcomes).of_host:
            record.batch.full += _full(_failure(outcomes))
            if alone:
                break
            if record.batch.authors_micro_batch is None and all(authors := [_authors(outcome) for outcome in outcomes]):
                record.times = replace(record.times, host=authors)
                record.batch.authors_micro_batch = micro_batch
            micro_batch = max((each for each in sizes if each < micro_batch), default=0)
            record.batch.halvings += 1
        else:
            break
    if status != "ok":
        record.times, record.batch.authors_micro_batch = RawTimes(), None
        _fail(record, status, _failure(outcomes), f"while timing micro batch {micro_batch}")
        return
    record.batch.micro_batch, record.batch.accumulation = micro_batch, share // micro_batch
    theirs = record.batch.authors_micro_batch or micro_batch
    if found > theirs:
        record.warnings.append(f"timing ran out of memory at micro batch {found}; it was reduced to {theirs}")
    if theirs > micro_batch:
        record.warnings.append(
            f"micro batch {theirs} fits only where no gradients accumulate, as none did in the authors' timing: their "
            f"clock is of it, all else of micro batch {micro_batch}"
        )
    if beside := larger_may_fit(record):
        record.warnings.append(beside)
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
    if _status(anything) == "crashed":
        # An import of the compiler that failed halfway makes every later one fail in another way.
        imports = (error for module, error in ranks.bench.server.broken.items() if module.startswith("torch._"))
        record.reason = f"torch.compile compiles nothing here: {next(imports, failure.error)}"
        record.status, record.traceback = "unsupported", _failure(anything).traceback
        record.remedy = "install what it lacks, such as a C++ compiler or Python's headers"
        return False
    record.warnings.append(f"crashed while compiled, measured uncompiled: {failure.error}")
    record.as_run, record.traceback = replace(record.as_run, compiled=False), failure.traceback
    return True


def _fit(
    attempt: Callable[..., tuple[Status, list[RankOutcome]]],
    share: int,
    start: int,
    record: Record,
    alone: bool = False,
) -> int:
    """Return the largest micro batch, of the divisors of `share`, that every rank ran; 0, and a status, without one.

    The search goes up from `start`. Where that does not fit, it goes below, unless `start` is to be tried `alone`: size
    by size, and after a crash from 1 up to the next below the size that crashed. It ends if the host ran out of
    memory, which does not depend on the size.
    """
    sizes, start = divisors(share), min(start, share)
    crash: RankOutcome | None = None
    while True:
        status, outcomes = attempt(start=start, largest=share)
        fitting, failure = _fitting(outcomes), _failure(outcomes)
        if status == "out_of_memory":
            record.batch.full += _full(failure)
        if fitting or start == 1 or alone or failure.of_host or status not in ("out_of_memory", "crashed"):
            break
        share = max(each for each in sizes if each < start)
        if status == "crashed":
            start, crash = 1, failure  # a crash may repeat at every size below, unlike a lack of memory
        else:
            start = share
    if status == "ok" and crash is not None:
        status, failure = "crashed", crash
    _take_reports(outcomes[0], record)
    record.batch.peaks = _peaks(outcomes, fitting)
    at = f"while searching at micro batch {_failed_at(sizes[-1], start, fitting)}"
    if fitting and status == "crashed" and _near_the_end(record, failure):
        # Libraries crash in various ways near the end of memory: the sizes that fitted remain valid.
        record.warnings.append(f"crashed {at}: {failure.error}")
        return fitting
    if status not in ("ok", "out_of_memory") or not fitting or failure.of_host:
        _fail(record, status, failure, at if fitting or start > 1 else "")
        return 0
    return fitting


def _failed_at(largest: int, start: int, fitting: int) -> int:
    """Return the micro batch after the last that fitted, of the divisors of `largest` from `start` on."""
    return next((each for each in divisors(largest) if each > fitting), largest) if fitting else start


def _take_reports(first: RankOutcome, record: Record) -> None:
    """Copy the first rank's reports of the search into the record."""
    for report in first.reports:
        if report.started is not None:
            record.observed.start_seconds = report.started
        if (step := report.first_step) is not None:
            record.as_run, record.stack_started = step.as_run, step.stack_started
            record.warnings += step.warnings


def _near_the_end(record: Record, failure: RankOutcome) -> bool:
    """Return whether a crash may be due to the GPU's memory, by what the size before took. False on a CPU, where a
    crash that happens only within the limit is known to be due to memory."""
    if record.device == "cpu":
        return False
    total = min(record.memory_limit or math.inf, _gpu_memory(failure).get("memory_bytes") or math.inf)
    return total == math.inf or record.batch.peaks[-1][1] >= _NEAR_THE_END * total


def _authors(outcome: RankOutcome) -> Times:
    """Return the raw times of the authors' sequence; empty where the rank did not complete it."""
    return next((report.authors for report in outcome.reports if report.authors is not None), {})


def _gpu_memory(outcome: RankOutcome) -> dict[str, float | None]:
    """Return the memory of a rank's GPU, and how much was in use before the rank began; empty where unknown."""
    reported = next((report.gpu_memory for report in outcome.reports if report.gpu_memory is not None), None)
    return {} if reported is None else dict(zip(("memory_bytes", "taken_bytes"), reported, strict=True))


def _full(failure: RankOutcome) -> list[dict[str, float | None]]:
    """Return what a GPU reported as its memory ran out; empty where it did not."""
    state = _gpu_memory(failure) | (failure.gpu_state or {})
    return [state] if state and failure.status == "out_of_memory" and not failure.of_host else []


def _peaks(outcomes: list[RankOutcome], fitting: int) -> list[list[int]]:
    """Return the micro batches up to `fitting` and the bytes that they took, on the rank that took most."""
    found: dict[int, int] = {}
    for report in (report for outcome in outcomes for report in outcome.reports):
        if report.fits is not None and report.peak is not None and report.fits <= fitting:
            found[report.fits] = max(report.peak, found.get(report.fits, 0))
    return [[size, peak] for size, peak in sorted(found.items())]


def _fitting(outcomes: list[RankOutcome]) -> int:
    """Return the largest micro batch that fits on all ranks, or 0: one out of memory stops the others."""
    return min(max(report.fits or 0 for report in [Report(), *outcome.reports]) for outcome in outcomes)


def _status(outcomes: list[RankOutcome]) -> Status:
    """Return the trial's status from its ranks', except those that were stopped for another's failure.

    Where one rank runs out of memory, another's collective may crash on its absence, so memory comes first.
    """
    statuses = {outcome.status for outcome in outcomes} - {"stopped"}
    order: tuple[Status, ...] = ("out_of_memory", "timed_out", "unsupported", "crashed", "ok")
    return next(status for status in order if status in statuses)


def _failure(outcomes: list[RankOutcome]) -> RankOutcome:
    """Return the rank whose failure is the trial's: one that died without a report, else the first to fail."""
    status = _status(outcomes)
    failed = [outcome for outcome in outcomes if outcome.status == status]
    return min(failed, key=lambda outcome: outcome.failed)  # 0 for a rank that died


def _fail(record: Record, status: Status, failure: RankOutcome, at: str = "") -> None:
    """Give the record a status that is not `ok`. `at` says when the host's memory ran out, unless at a micro batch of
    1."""
    record.status, record.host_ran_out = status, failure.of_host
    said = _full(failure)
    if status == "out_of_memory" and failure.of_host and (memory := _gpu_memory(failure)):
        said = [memory]  # records that the host has a GPU
    record.observed.gpu_state = [*said] or None
    record.remedy = _REMEDIES["host" if failure.of_host else status]
    record.reason = _NOT_EVEN_1 if status == "out_of_memory" else failure.error
    if at and failure.of_host:
        record.reason = f"the host's memory ran out {at}: {failure.error}"
    elif status == "out_of_memory" and (failure.of_host or not failure.traceback):  # a rank that was killed has none
        record.reason += f": {failure.error}"
    if status == "crashed" and (short := _short_of_disk(failure)):
        record.reason, record.remedy = f"{short}: {failure.error}", _REMEDIES["disk"]
    if (shared := gpu_disturbance(record)) and not failure.of_host:
        record.reason, record.remedy = f"{record.reason}; {shared}", _REMEDIES["shared"]
    record.traceback = failure.traceback


def _short_of_disk(failure: RankOutcome) -> str | None:
    """Return why a rank crashed where a disk was full, else None."""
    return disk_full(f"{failure.error}\n{failure.traceback}")


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
    if graphs and graphs.get("layers") == 0:
        record.warnings.append(
            "torch.compile left the sharded layers as they are: only what is around them is compiled"
        )
    elif graphs and "layers" not in graphs and graphs["compiled"] > 1:
        made = f"torch.compile broke the model into {graphs['compiled']} graphs"
        record.warnings.append(f"{made}: what lies between them ran uncompiled")
    record.observed.losses = ranks[0].losses
    record.observed.trained_losses = ranks[0].trained_losses or None
    if skipped := ranks[0].skipped_updates:
        record.warnings.append(f"{skipped} timed updates were skipped by the fp16 loss scale, and count too short")
    record.observed.gpu_state = [rank.gpu_state for rank in ranks] if bench.cuda else None
    record.observed.mean_power = [rank.mean_power for rank in ranks] if bench.cuda else None
    record.observed.part_power = [rank.part_power for rank in ranks] if bench.cuda else None
    record.observed.launches = ranks[0].launches
    if reason := ranks[0].uncounted:
        record.warnings.append(f"kernel launches were not counted: {reason}")
    if held_down := gpu_disturbance(record):
        record.warnings.append(f"{held_down} while it was timed")
    if record.as_run.compiled and not (graphs and graphs["compiled"]):
        silent = "torch.compile made no graph and said nothing: the model ran uncompiled"
        _fail(record, "crashed", RankOutcome(0, "crashed", error=silent))
        return

    record.derived = derive(record, bench.gpu)
    if trial.check_extrapolation:
        record.observed.whole_steps = [max(times) for times in zip(*(rank.whole_steps for rank in ranks), strict=True)]
        assert record.derived.true_step is not None
        record.observed.extrapolation_error = record.derived.true_step / median(record.observed.whole_steps) - 1


def compile_adam(server: ForkServer, host: bool, logs: Path) -> Obstacle | None:
    """Compile DeepSpeed's Adam into each node's build cache, for the GPU or for the `host` with offloaded states.

    Return why compiling failed, else None. Any other failure is left to the trial, which reports it.
    """
    log = logs / "build.log"
    call, arguments = "repro.measure.phases:build_adam", {"host": host}
    for outcome in server.call(Job(call, arguments, ranks=1, log=str(log), timeout=_BUILD_SECONDS, cuda=True)):
        if outcome.status == "ok" and outcome.value is not None:
            where, whose = (f" on node {outcome.rank}", " of that node") if isinstance(server, Leader) else ("", "")
            return Obstacle(
                f"DeepSpeed cannot compile its Adam{where}: {outcome.value}",
                f"read logs/{log.name}{whose}: the compilers have to know the GPU, and each other, and to find the "
                "headers and libcudart.so of torch's CUDA, which nvcc alone may not bring",
            )
    return None
