"""DeepSpeed's Adam, compiled before the first trial that takes it, so that none is charged for it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import models
from repro import rules
from repro.settings import Settings
from repro.trial import Trial

from .launcher import ServerDiedError
from .rank import Rank
from .server import Job
from .trial import Bench

_SECONDS = 1800.0


def prepare(bench: Bench, trials: Iterable[Trial]) -> Bench:
    """Has what these trials need compiled into the build cache, once each for the GPU and for the host. The bench that
    is returned knows what does not compile, whose trials are unsupported on it."""
    for host in sorted({Settings.parse(trial.settings).offloading for trial in trials if _needed(bench, trial)}):
        why = _build(bench, host)
        if why is not None:
            stack = replace(bench.stack, host_adam=why) if host else replace(bench.stack, adam=why)
            bench = replace(bench, stack=stack)
    return bench


def _needed(bench: Bench, trial: Trial) -> bool:
    """Whether a trial will take an Adam of DeepSpeed's. On a CPU none does."""
    recipe, settings = models.find(trial.recipe, trial.scale), Settings.parse(trial.settings)
    able = rules.obstacle(recipe, settings, trial.world, bench.stack) is None
    return bench.cuda and settings.library == "deepspeed" and able


def _build(bench: Bench, host: bool) -> str | None:
    """Why it does not compile; None where it does. A server that dies of it dies again in the trial, which tells."""
    log = bench.logs / "build.log"
    call, arguments = "repro.measure.operators:build", {"host": host}
    job = Job(call, arguments, ranks=1, log=str(log), timeout=_SECONDS, cuda=True)
    try:
        outcomes = bench.server.call(job)
    except ServerDiedError:
        return None
    compiler = "the C++ compiler" if host else "nvcc"
    failed = [outcome for outcome in outcomes if outcome.status != "ok"]
    return (
        f"building it with {compiler} failed ({failed[0].error or failed[0].status}), see logs/{log.name}"
        if failed
        else None
    )


def build(rank: Rank, host: bool) -> None:
    """Compiles the Adam for the GPU, or for the `host` that offloaded states live on."""
    from deepspeed.ops.op_builder import CPUAdamBuilder, FusedAdamBuilder

    (CPUAdamBuilder if host else FusedAdamBuilder)().load()
