"""Searches for the largest micro batch that fits, and peaks of what torch allocates, both without compiling: by all
ranks of several GPUs, or by the first alone, as `--project` runs it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from pathlib import Path

from repro import models
from repro.machine.nvml import visible_devices
from repro.machine.stack import trial_environment
from repro.measure.jobs import Job, RankOutcome
from repro.measure.launcher import ForkServer
from repro.models.recipe import Scale

_SECONDS = 900.0  # of a job


@dataclass(frozen=True)
class Found:
    """What a search found: bytes that torch's allocator reserved, by micro batch that fits, and why it ended before the
    share of the batch; "" at its end."""

    peaks: dict[int, int] = field(default_factory=dict)
    status: str = ""
    reason: str = ""
    seconds: float = 0.0

    @property
    def micro_batch(self) -> int:
        """Return the largest one that fits; 0 if none does."""
        return max(self.peaks, default=0)


@dataclass(frozen=True)
class Ranks:
    """A recipe in some settings on `count` GPUs: all ranks of them, or the first `alone`, with `set_aside` bytes of its
    GPU left free."""

    server: ForkServer
    log: Path
    recipe: str
    settings: str
    count: int
    alone: bool
    set_aside: int = 0
    scale: Scale = "paper"

    def search(self) -> Found:
        """Search from a micro batch of 1 on."""
        share, started = models.find(self.recipe, self.scale).batch_size // self.count, time.monotonic()
        outcomes = self._call("fit", start=1, largest=share & -share)
        seconds = time.monotonic() - started
        fitting = [outcome.fitted for outcome in outcomes]
        common = set.intersection(*(set(each) for each in fitting))
        peaks = {size: max(each[size] for each in fitting) for size in sorted(common)}
        failed = next((each for each in outcomes if each.status not in ("ok", "stopped")), None)
        if failed is None:
            return Found(peaks, seconds=seconds)
        return Found(peaks, f"host {failed.status}" if failed.of_host else failed.status, failed.error, seconds)

    def allocated(self) -> int:
        """Return the most bytes that a rank's tensors take in two micro-steps of one example and an update, both as the
        authors run them and with gradients that accumulate."""
        outcomes = self._call(
            "measure", compiled=False, micro_batch=1, accumulation=2, steps=1, check_extrapolation=False
        )
        assert {outcome.status for outcome in outcomes} == {"ok"}, outcomes[0].traceback
        return max(outcome.value.peak_memory for outcome in outcomes)

    def _call(self, phase: str, **more: object) -> list[RankOutcome]:
        model = {"recipe": self.recipe, "scale": self.scale, "settings": self.settings, "tf32": False}
        call = f"repro.measure.phases:{phase}"
        job = Job(call, model | more, 1 if self.alone else self.count, str(self.log), _SECONDS, cuda=True)
        if self.alone and self.count > 1:
            job = replace(job, projected=True, world=self.count, set_aside=self.set_aside)
        return self.server.call(job)


def server_of(gpu: str, logs: Path) -> ForkServer:
    """Return a fork server whose ranks run on this GPU: its description as run.sh takes it."""
    logs.mkdir(parents=True, exist_ok=True)
    return ForkServer(logs / "server.log", trial_environment(visible_devices()) | {"STAND_IN": gpu})
