"""Compares projected ranks with rank 0 of real processes, for all settings that shard: python tests/projected.py.

Both search for the largest micro batch on this CPU, of the tiny recipes. The micro batches that fit and the weights and
moments that rank 0 holds have to be equal. What it takes at its largest micro batch may differ by 5 %: of resident
memory, and of its data segment, which a memory limit counts; or by 4 MiB of the latter, for gloo's buffers. Settings
that differ are tried again, three times. The exit code is 1 where anything differs.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tabulate import tabulate

from repro import models
from repro.measure.jobs import Job
from repro.measure.launcher import ForkServer
from repro.paper.settings import search_space
from repro.record import AsRun

_NEAR = 0.05  # of memory, relative
_TRIES = 4
_BUFFERS = 4 << 20  # bytes that gloo takes to send; a projected rank sends nothing
# For each of gloo's threads malloc would reserve 64 MiB of addresses. A limit counts none of it, the kernel's peak all.
VARIABLES = {"CUDA_VISIBLE_DEVICES": "", "MALLOC_ARENA_MAX": "1"}


@dataclass(frozen=True)
class Searched:
    """What rank 0 found in a search for the largest micro batch: the sizes that fitted, with the peak of its data
    segment at each in bytes; what ran; and the peak of its resident memory, 0 where it ran out of memory."""

    peaks: dict[int, int]
    as_run: AsRun
    resident: int

    @property
    def largest(self) -> int:
        return max(self.peaks)


def ranks_of(world: int, projected: bool) -> dict[str, Any]:
    """Return the arguments of a job for `world` real processes, or for the first of them alone, projected."""
    return {"ranks": 1, "projected": True, "world": world} if projected else {"ranks": world}


def searched(
    server: ForkServer, log: Path, recipe: str, settings: str, world: int, projected: bool, memory: int | None = None
) -> Searched:
    """Search in `world` real processes, which join by gloo, or in the first of them alone, projected; each with at most
    `memory` bytes, where a search may end in any way."""
    share = models.find(recipe, "tiny").batch_size // world
    arguments = {"recipe": recipe, "scale": "tiny", "settings": settings, "tf32": False, "start": 1, "largest": share}
    outcomes = server.call(
        Job(
            "tests.support.ranks:sized",
            arguments,
            log=str(log),
            timeout=300.0,
            memory=memory,
            **ranks_of(world, projected),
        )
    )
    first = outcomes[0]
    statuses = [outcome.status for outcome in outcomes]
    assert memory is not None or set(statuses) == {"ok"}, f"{statuses} {first.error}\n{first.traceback}"
    fits = min(max(outcome.fitted, default=0) for outcome in outcomes)
    assert first.as_run is not None
    return Searched({size: peak for size, peak in first.fitted.items() if size <= fits}, first.as_run, first.value or 0)


@dataclass(frozen=True)
class Pair:
    """What rank 0 of `count` real processes found, and what it did alone, projected."""

    recipe: str
    count: int
    settings: str
    real: Searched
    alone: Searched

    @property
    def missing(self) -> int:
        """Return the bytes of data segment that the projected rank takes less than the real one."""
        size = min(self.real.largest, self.alone.largest)
        return self.real.peaks[size] - self.alone.peaks[size]

    @property
    def off(self) -> tuple[float, float]:
        """Return how far data segment and resident memory of the projected rank are off, relative."""
        real = self.real.peaks[min(self.real.largest, self.alone.largest)]
        return -self.missing / real, self.alone.resident / self.real.resident - 1

    @property
    def differences(self) -> list[str]:
        """Return what differs, in words."""
        real, alone = self.real, self.alone
        found = []
        if list(real.peaks) != list(alone.peaks):
            found.append(f"micro batch {alone.largest}, not {real.largest}")
        for name in ("weights_held", "moments_held", "wrapper", "optimizer", "kernel_path", "precision"):
            if (should := getattr(real.as_run, name)) != (has := getattr(alone.as_run, name)):
                found.append(f"{name} {has}, not {should}")
        segment, resident = self.off
        if abs(segment) > _NEAR and abs(self.missing) > _BUFFERS:
            found.append(f"data segment {segment:+.1%}")
        if abs(resident) > _NEAR:
            found.append(f"resident memory {resident:+.1%}")
        return found


def compared(server: ForkServer, log: Path, recipe: str, settings: str, world: int) -> Pair:
    """Search in real processes, then projected; again where they differ, as a search takes more or less memory each
    time it is repeated: Mamba's 10 %."""
    for _ in range(_TRIES):
        real, alone = (searched(server, log, recipe, settings, world, projected) for projected in (False, True))
        pair = Pair(recipe, world, settings, real, alone)
        if not pair.differences:
            break
    return pair


def main(arguments: Sequence[str]) -> int:
    """Compare all, and print a row for each recipe and count, and a line for all that differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="pythia-1b,mamba,vit", help="(default: %(default)s)")
    parser.add_argument("--counts", default="2,4", help="of processes (default: %(default)s)")
    given = parser.parse_args(arguments)
    rows, wrong = [], 0
    with tempfile.TemporaryDirectory() as folder, ForkServer(Path(folder, "server.log"), VARIABLES) as server:
        for recipe in given.models.split(","):
            for world in map(int, given.counts.split(",")):
                pairs = [
                    compared(server, Path(folder, "log"), recipe, settings.id, world)
                    for settings in search_space(world)
                    if settings.stage
                ]
                differing = [pair for pair in pairs if pair.differences]
                for pair in differing:
                    print(f"{recipe}, {world}, {pair.settings}: {'; '.join(pair.differences)}", flush=True)
                wrong += len(differing)
                most = [f"{max(abs(pair.off[part]) for pair in pairs):.1%}" for part in (0, 1)]
                missing = f"{max(abs(pair.missing) for pair in pairs) / 2**20:.1f} MiB"
                rows.append((recipe, world, len(pairs), len(pairs) - len(differing), most[1], most[0], missing))
    names = ("recipe", "processes", "settings", "equal", "resident memory, at most", "data segment, at most", "or")
    print(tabulate(rows, names, tablefmt="github"))
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
