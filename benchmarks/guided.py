"""The guided search against the exhaustive one: both with build caches of their own, on tiny recipes and this machine.

Where they name different settings as the fastest, both are measured again, in turns. About an hour on 2 cores."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from repro.compare.decision import Decision, decide
from repro.measure.interleaving import Scheduler
from repro.measure.launcher import ForkServer
from repro.measure.trial import Bench, run_trial
from repro.predict.fits import load_probes
from repro.record import Trial
from repro.run.plan import Options
from repro.run.reading import read
from repro.run.run import Run
from repro.run.settings_search import Search, searches

from . import tell

# Below a limit of 256 MiB the buckets of ZeRO 1 and 2 (1 and 0.8 GB) do not fit.
PLACES = (
    ("pythia-160m", None),
    ("pythia-410m", None),
    ("pythia-1b", None),
    ("pythia-2.8b", "256MiB"),
    ("pythia-6.9b", "256MiB"),
    ("roberta", "256MiB"),
    ("mamba", "256MiB"),
    ("convnext", "256MiB"),
    ("vit", None),
)
_STARTS, _FORKS = 6, 3
_ROUNDS = 10


def run(recipe: str, memory: str | None, search: str, folder: Path) -> Search:
    """Run one search by the whole command, its build caches cold."""
    command = [sys.executable, "-m", "repro", "run", "--models", recipe, "--processes", "2", "--methods", "all"]
    command += ["--search", search, "--steps", str(_ROUNDS), "--out", str(folder), "--format", "json"]
    command += ["--memory", memory] if memory else []
    variables = {**os.environ, "REPRO_CACHE": str(folder / "cache"), "CUDA_VISIBLE_DEVICES": ""}
    subprocess.run(command, env=variables, stdout=subprocess.DEVNULL, check=True)
    [found] = searches(read(folder).records)
    return found


def row(recipe: str, memory: str | None, folder: Path) -> dict[str, Any]:
    """Return both searches of one recipe, and how much slower guided's winner is than the exhaustive search's."""
    guided = run(recipe, memory, "guided", folder / "guided")
    probing = load_probes(folder / "guided" / "probes.json").seconds
    exhaustive = run(recipe, memory, "exhaustive", folder / "exhaustive")
    winners = [min(search.steps, key=search.steps.__getitem__) for search in (exhaustive, guided)]
    again = _again(exhaustive, winners, folder / "exhaustive") if winners[0] != winners[1] else None
    interval = again.interval if again else None
    return {
        "recipe": recipe,
        "memory": memory,
        "trials": len(exhaustive.trials),
        "guided": len(guided.trials) - len(guided.skipped),
        "exhaustive s": exhaustive.seconds,
        "guided s": guided.seconds + probing,
        "of it probing s": probing,
        "share": (guided.seconds + probing) / exhaustive.seconds,
        "estimated s": guided.exhaustive_seconds,
        "exhaustive's winner": winners[0],
        "guided's winner": winners[1],
        "slower by (%)": 100 * (again.ratio - 1) if again else 0.0,
        "from (%)": 100 * (interval.low - 1) if interval else None,
        "to (%)": 100 * (interval.high - 1) if interval else None,
    }


def _again(search: Search, settings: list[str], folder: Path) -> Decision:
    """Measure how much longer a step takes with the second settings than with the first, a process of each interleaved
    round by round. A search takes the least of many noisy times, which by itself is too short."""
    sizes = {trial.settings: trial.batch.micro_batch for trial in search.trials}
    options = Options((search.recipe,), "all", search.scale, (search.count,), search.memory_limit, _ROUNDS)
    os.environ["REPRO_CACHE"] = str(folder / "cache")
    first = Trial(search.recipe, search.scale, settings[0], "cpu", search.count, search.memory_limit, _ROUNDS)
    pair = [replace(first, settings=name, micro_batch=sizes[name]) for name in settings]
    starts = []
    for start in range(_STARTS):
        with Run(folder / f"{start}", options, []) as one, Run(folder / f"{start}-other", options, []) as other:
            starts.append(median(_ratio(pair, (one.bench, other.bench)) for _ in range(_FORKS)))
    return decide(starts)


def _ratio(pair: list[Trial], benches: tuple[Bench, Bench]) -> float:
    """Return the ratio of the step times of two interleaved trials."""
    with Scheduler() as scheduler:
        works = [
            partial(run_trial, trial, replace(bench, scheduler=scheduler.address), trial.micro_batch or 1)
            for trial, bench in zip(pair, benches, strict=True)
        ]
        stops = [bench.server.close for bench in benches if isinstance(bench.server, ForkServer)]
        before, after = (record.derived.authors_step for record in scheduler.run_in_turns(works, stops))
    assert before is not None, f"{pair[0].id} ran before"
    assert after is not None, f"{pair[1].id} ran before"
    return after / before


def rows() -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory(prefix="repro-") as folder:
        found = []
        for recipe, memory in PLACES:
            found.append(row(recipe, memory, Path(folder, recipe)))
            print(json.dumps(found[-1]), file=sys.stderr, flush=True)
        return found


if __name__ == "__main__":
    tell(__doc__, rows)
