"""The training loop: steps of an engine over a user's examples, with checkpoints, stop signals and a record."""

from __future__ import annotations

import argparse
import contextlib
import gc
import itertools
import math
import os
import resource
import signal
import socket
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, NoReturn

import torch
import torch.distributed as dist

from .. import files, formats, models
from ..console import UserError, say, visible
from ..machine import nvml, stack
from ..measure import engine
from ..measure.batches import to_device
from ..measure.engine.base import Engine, rate_factor
from ..measure.jobs import SEED
from ..models import custom
from ..models.recipe import Recipe, Scale
from ..paper.settings import Settings
from ..run.tracking import NONE, TRACKERS, StepLog
from ..steps import days_of_steps
from .checkpoints import Checkpoints
from .kept import FILE, STOPPED, Kept
from .ranks import TrainingRank, place_of

_LOG_EVERY = 10  # steps
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
LOCK = "train.lock"


@dataclass(frozen=True)
class Options:
    """What a start of a script asks for: the folder of its output, its last step (None: all), a checkpoint at least
    every so many steps and seconds, and a tracker."""

    out: Path
    last: int | None
    steps: float
    seconds: float
    track: str


def train(
    examples: Callable[[], Any],
    *,
    folder: Path,
    recipe: str,
    settings: str,
    micro_batch: int,
    device: str,
    compiled: bool,
    tf32: bool,
    scale: Scale = "paper",
    expected: str = "",
) -> NoReturn:
    """Train a recipe as measured, and end this process with an exit code: 0 at the last step, `STOPPED` where a signal
    stopped it and all was saved, 1 where the last checkpoint could not be saved, 2 where it cannot begin.

    `examples` makes the data set; an example is what the model's forward pass takes, by name, for one of a batch. The
    micro batch is that of each `device`; on a CPU a GPU's is replaced by 1. A custom model is described by model.json
    in the `folder`, where the output goes, too, unless the command line names another. `expected` is printed beside
    the pace.
    """
    try:
        given = _options(folder)
        if (folder / "model.json").exists():
            custom.read_exported(folder / "model.json")
        found, wanted = models.find(recipe, scale), Settings.parse(settings)
        if wanted.library == "deepspeed":
            stack.preload(("deepspeed",))
        rank = TrainingRank(place_of(os.environ))
        with _alone(given.out, rank):
            rank.prepare(None)
            examples_at_once = micro_batch if rank.cuda or device == "cpu" else 1
            code = _Training(found, wanted, rank, given, examples_at_once, compiled, tf32, expected).run(examples)
            # DistributedDataParallel's reducer, freed after its group, would hold the GIL and wait for a thread of gloo
            # that asks for it.
            gc.collect()
            dist.destroy_process_group()
    except UserError as error:
        say(error)
        code = 2
    except KeyboardInterrupt:  # before the first step: nothing is lost
        code = 130
    sys.exit(code)


@contextlib.contextmanager
def _alone(out: Path, rank: TrainingRank) -> Iterator[None]:
    """Lock the output folder on rank 0. Raises UserError where another training has it, which it names."""
    if rank.index > 0:
        yield
        return
    try:
        out.mkdir(parents=True, exist_ok=True)
        opened = os.fdopen(files.open_to_append(out, LOCK), "a")
    except OSError as error:
        raise files.not_written(out, error) from None
    with opened as file:
        try:
            files.lock(file)
        except BlockingIOError:
            holder = visible(files.read(out / LOCK, 4096).decode(errors="replace").strip()) or "another process"
            raise UserError(f"{out} has a training, of {holder}: let it end, or name another --out") from None
        file.truncate(0)
        file.write(f"process {os.getpid()} on {socket.gethostname()}\n")
        file.flush()
        yield


@dataclass
class _Training:
    """A training of a recipe with its options, on this rank."""

    recipe: Recipe
    settings: Settings
    rank: TrainingRank
    given: Options
    micro_batch: int
    compiled: bool
    tf32: bool
    expected: str
    stops: list[int] = field(default_factory=list)

    def run(self, examples: Callable[[], Any]) -> int:
        """Train to the last step, or until a signal; return the exit code."""
        recipe, rank = self.recipe, self.rank
        accumulation, rest = divmod(recipe.batch_size, rank.world * self.micro_batch)
        if rest:
            raise UserError(
                f"the batch of {recipe.batch_size} does not divide by the number of processes, {rank.world}, x the "
                f"micro batch, {self.micro_batch}: change one of these"
            )
        rank.join()
        for number in _SIGNALS:  # not before: those who wait for others are ended at once
            signal.signal(number, self._stop)
        built = engine.build(recipe, self.settings, rank, accumulation, self.compiled, self.tf32)
        torch.manual_seed(SEED + rank.index)  # of dropout
        data = examples()
        if len(data) < recipe.batch_size:
            raise UserError(f"the data set has {len(data)} examples, and a batch is of {recipe.batch_size}")
        return self._train(built, data, accumulation)

    def _stop(self, number: int, _: Any) -> None:
        self.stops.append(number)
        for each in _SIGNALS:  # the second one ends at once
            signal.signal(each, signal.SIG_DFL)

    def _train(self, built: Engine, data: Any, accumulation: int) -> int:
        recipe, rank, given = self.recipe, self.rank, self.given
        checkpoints = Checkpoints(given.out / "checkpoints", built, rank)
        first, last = checkpoints.load(), min(given.last or recipe.training_steps, recipe.training_steps)
        device = nvml.visible_devices()[rank.local].name if rank.cuda else "cpu"
        kept = Kept(
            recipe.id,
            recipe.scale,
            self.settings.id,
            device,
            rank.world,
            built.wrapper,
            self.micro_batch,
            accumulation,
            first,
        )
        self._print(
            f"{recipe.id} with {built.wrapper} on {rank.world} x {device}, MBS {self.micro_batch}, GAS {accumulation}: "
            f"from step {first} to {last}"
        )
        batches = self._batches(data, first, accumulation)
        saved_at, stop, saved = time.monotonic(), False, True
        with StepLog(given.track if rank.index == 0 else NONE, given.out, asdict(kept)) as tracker:
            for step in range(first + 1, last + 1):
                started = time.perf_counter()
                loss = self._step(built, batches, accumulation)
                seconds = time.perf_counter() - started
                kept.losses.append(loss if math.isfinite(loss) else None)
                kept.step_seconds.append(seconds)
                rate = recipe.optimizer.rate * rate_factor(recipe.schedule, step - 1, recipe.training_steps)
                tracker.log(step, loss=loss, rate=rate, seconds=seconds)
                if step % _LOG_EVERY == 0 or step in (first + 1, last):
                    self._print(f"step {step}: loss {loss:.4f}, {seconds:.3g} s")
                due = step % given.steps == 0 or time.monotonic() - saved_at >= given.seconds
                stop, due = self._any(bool(self.stops), due)
                if stop or due or step == last:
                    saved, saved_at = checkpoints.save(step), time.monotonic()
                    if saved:
                        size, took = checkpoints.last_bytes / 1e9, checkpoints.last_seconds
                        self._print(f"step {step}: saved {size:.3g} GB in {took:.2g} s")
                    kept = self._keep(kept, checkpoints)
                if stop:
                    self._print("stopped: the same command goes on")
                    break
        if kept.losses:
            self._print(
                f"{kept.seconds_a_step:.3g} s a step, {kept.days:.3g} days for all {recipe.training_steps:,}"
                f"{f'; {self.expected}' if self.expected else ''}"
            )
        return 1 if not saved else STOPPED if stop and step < last else 0

    def _step(self, built: Engine, batches: Iterator[dict[str, torch.Tensor]], accumulation: int) -> float:
        """Run a training step; return its mean loss over all ranks, for which this waits."""
        mean = torch.zeros((), device=self.rank.device)
        for micro in range(accumulation):
            batch = to_device(next(batches), self.rank)
            mean += built.micro_step(batch, reduce=micro == accumulation - 1) / accumulation
        built.update()
        if self.rank.world > 1:
            dist.all_reduce(mean)
        return mean.item() / self.rank.world

    def _any(self, *words: bool) -> list[bool]:
        """Return of each word whether it is true on any rank."""
        found = torch.tensor(words, dtype=torch.int)
        if self.rank.world > 1:
            dist.all_reduce(found, op=dist.ReduceOp.MAX)
        return [bool(word) for word in found.tolist()]

    def _batches(self, data: Any, first: int, accumulation: int) -> Iterator[dict[str, torch.Tensor]]:
        """Yield this rank's micro batches from step `first` on. The order of an epoch depends on its number alone."""
        size, batch, rank = self.micro_batch, self.recipe.batch_size, self.rank.index

        def indices() -> Iterator[list[int]]:
            steps = len(data) // batch
            for step in itertools.count(first):
                if step == first or step % steps == 0:
                    order = torch.randperm(len(data), generator=torch.Generator().manual_seed(step // steps))
                start = step % steps * batch + rank * accumulation * size
                for at in range(start, start + accumulation * size, size):
                    yield order[at : at + size].tolist()

        draws = torch.Generator().manual_seed(SEED + first)  # else it would draw from the random numbers of dropout
        loader: Any = torch.utils.data.DataLoader(
            data,
            batch_sampler=indices(),
            generator=draws,
            num_workers=2 if self.rank.cuda else 0,
            pin_memory=self.rank.cuda,
            worker_init_fn=_ignore_signals,
        )
        return iter(loader)

    def _keep(self, kept: Kept, checkpoints: Checkpoints) -> Kept:
        """Write training.json, which `repro cost --measured` reads. The first two steps compile and warm up."""
        seconds = statistics.median(kept.step_seconds[2:] or kept.step_seconds)
        peak = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        found = replace(
            kept,
            checkpoint_bytes=checkpoints.last_bytes,
            checkpoint_seconds=checkpoints.last_seconds,
            seconds_a_step=seconds,
            days=days_of_steps(seconds, self.recipe.training_steps),
            peak_memory=torch.cuda.max_memory_allocated() if self.rank.cuda else peak,
        )
        if self.rank.index == 0:
            try:
                files.replace(self.given.out / FILE, formats.as_json(asdict(found)) + "\n")
            except UserError as error:  # the training is worth more than its record
                say(error)
        return found

    def _print(self, line: str) -> None:
        """Print a line on rank 0. A reader that closed our output does not end the training."""
        if self.rank.index > 0:
            return
        try:
            print(line, flush=True)
        except OSError:
            sys.stdout = open(os.devnull, "w")  # noqa: SIM115


def _ignore_signals(_: int) -> None:
    """Leave signals to the training, which ends its readers itself."""
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def _options(folder: Path) -> Options:
    parser = argparse.ArgumentParser(
        description="Train. A checkpoint is saved every --checkpoint-every, at the end, and on SIGTERM, SIGHUP or "
        f"Ctrl-C; the same command goes on from the last one. Exit code {STOPPED} means stopped and saved."
    )
    parser.add_argument("--max-steps", metavar="N", help="end after so many steps (default: all)")
    parser.add_argument("--checkpoint-every", default="30m", metavar="500|30m", help="steps or a time (default: 30m)")
    parser.add_argument("--out", type=Path, default=folder, metavar="DIR", help=f"folder of checkpoints and {FILE}")
    parser.add_argument("--track", choices=[*TRACKERS, NONE], default=NONE, help="log every step to this tracker")
    given = parser.parse_args()
    last = None if given.max_steps is None else formats.count(given.max_steps, "--max-steps")
    if given.checkpoint_every.isdigit():
        steps, seconds = float(formats.count(given.checkpoint_every, "--checkpoint-every")), math.inf
    else:
        steps, seconds = math.inf, formats.seconds(given.checkpoint_every, "--checkpoint-every")
    return Options(given.out, last, steps, seconds, given.track)
