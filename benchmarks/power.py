"""How often the decision rule finds a slowdown that is there, and one that is not.

`python -m benchmarks.power collect` fills a pool of real samples on an otherwise idle machine, as `--against` takes
them: the tiny Pythia-1B, naive, a few processes from each start of a stack, which take turns with those of the other
arms: the stack, a copy of it, the stack 5 % and 10 % slower. It goes on where it stopped. Without `collect` the rule is
applied to windows of starts drawn from the pool: of a fixed size, and as a check takes them, which stops when it is
clear.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from statistics import fmean, median
from typing import Any

from repro.compare.budget import FORKS, rounds
from repro.compare.decision import BLOCK, FIRST_LOOK, decide
from repro.console import UserError
from repro.formats import FORMATS, duration, render
from repro.measure.interleaving import Scheduler
from repro.measure.launcher import ForkServer
from repro.steps import StepTimes, true_step

from . import Ask, asking

ARMS = {"stack": 0.0, "copy": 0.0, "5 % slower": 0.05, "10 % slower": 0.10}
POOL = Path(__file__).resolve().parent.parent / "results" / "pool-2-cores.jsonl"
_MODULES = ("transformers.models.gpt_neox.modeling_gpt_neox", "transformers.loss.loss_utils")
PAIRS = (18, 36, 48)  # of a window
MOST = 41  # of a check that stops when it is clear: what the default budget allows
_EXAMPLES = 16
_DRAWN = 200

Fork = dict[str, float]  # seconds of a training step in a process of each arm, by arm
Start = dict[str, float]  # ratio of a step's time to the stack's, by arm: the median of its forks


def sample(ask: Ask, share: float, scheduler: Scheduler | None = None) -> float:
    """Return the seconds of a training step in its own process, slowed down by `share`: the median of rounds."""
    [outcome] = ask(
        "benchmarks.slower:measure",
        scheduler=scheduler,
        share=share,
        recipe="pythia-1b",
        scale="tiny",
        settings="naive",
        tf32=False,
        compiled=False,
        micro_batch=_EXAMPLES,
        accumulation=1,
        steps=rounds([]),
        check_extrapolation=False,
    )
    return true_step([StepTimes.of(outcome.value.synchronised)], 1)


def start(arms: Sequence[str] = tuple(ARMS)) -> Iterator[Fork]:
    """Start a stack for each arm, and yield the step times of interleaved processes of all arms, without end."""
    with tempfile.TemporaryDirectory(prefix="repro-") as folder, ExitStack() as stack:
        scheduler = Scheduler()
        servers = {}
        for arm in arms:
            Path(folder, arm).mkdir()
            servers[arm] = stack.enter_context(ForkServer(Path(folder, arm, "server.log"), {}, modules=_MODULES))
            servers[arm].launch()
        for server in servers.values():
            server.start()
        stops = [server.stop for server in servers.values()]
        for order in itertools.cycle((arms, arms[::-1])):
            asks = {arm: asking(servers[arm], Path(folder, arm)) for arm in order}
            works = [partial(sample, asks[arm], ARMS[arm], scheduler) for arm in order]
            yield dict(zip(order, scheduler.run_in_turns(works, stops), strict=True))


def collect(pool: Path, starts: int, start: Callable[[], Iterator[Fork]], seconds: float) -> None:
    """Add starts to the pool until it has so many, or `seconds` have passed. Each is on disk before the next."""
    began = time.monotonic()
    with pool.open("a", encoding="utf-8") as file:
        for number in range(len(read(pool)), starts):
            if time.monotonic() - began > seconds:
                return
            taken = {"start": number, "at": time.time(), "forks": list(itertools.islice(start(), FORKS))}
            file.write(json.dumps(taken) + "\n")
            file.flush()
            os.fsync(file.fileno())
            print(f"start {number + 1} of {starts}, after {duration(time.monotonic() - began)}", file=sys.stderr)


def read(pool: Path) -> list[Start]:
    """Return the starts of a pool, in order; an incomplete last line, which a kill leaves, is removed. Raises
    UserError, naming the line, for one that is no start."""
    if not pool.is_file():
        return []
    whole = pool.read_text(encoding="utf-8")
    kept = whole[: whole.rfind("\n") + 1]
    if kept != whole:
        pool.write_text(kept, encoding="utf-8")
    return [_start(line, f"{pool}:{number}") for number, line in enumerate(kept.splitlines(), 1)]


def _start(line: str, place: str) -> Start:
    try:
        forks = json.loads(line)["forks"]
        return {arm: median(fork[arm] / fork["stack"] for fork in forks) for arm in ARMS}
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise UserError(
            f"{place} is no start of a pool, with seconds of {', '.join(ARMS)}: remove it, or collect into another file"
        ) from error


def windows(starts: Sequence[Start], arm: str, size: int) -> Iterator[list[float]]:
    """Yield the ratios of windows of starts drawn from the pool: a balanced bootstrap, in which every start is drawn as
    often as any other."""
    deck = list(starts) * math.ceil(_DRAWN * size / len(starts))
    random.Random(1).shuffle(deck)
    for first in range(0, _DRAWN * size, size):
        yield [start[arm] for start in deck[first : first + size]]


def stopped(window: list[float]) -> list[float]:
    """Return the pairs after which a check stops."""
    for pairs in range(FIRST_LOOK, len(window), BLOCK):
        if decide(window[:pairs]).may_stop:
            return window[:pairs]
    return window


def rows(starts: Sequence[Start]) -> list[dict[str, Any]]:
    """Return for every arm and size of window how many windows got each call; the last size is a check's."""
    found = []
    for arm in list(ARMS)[1:]:
        for size in (*PAIRS, None):
            taken = list(windows(starts, arm, size or MOST))
            if size is None:
                taken = list(map(stopped, taken))
            calls = Counter(decide(window).call for window in taken)
            pairs = fmean(map(len, taken))
            found.append(
                {"arm": arm, "window": f"{size} pairs" if size else f"{MOST} pairs at most", "pairs": pairs}
                | {"processes": 2 * pairs, "windows": len(taken)}
                | {word: calls[word] for word in ("regressed", "improved", "unchanged", "inconclusive")}
            )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", nargs="?", choices=("collect",))
    parser.add_argument("--pool", type=Path, default=POOL, metavar="FILE")
    parser.add_argument("--starts", type=int, default=200, metavar="N", help="of each arm (default 200)")
    parser.add_argument("--minutes", type=float, default=90.0, metavar="N", help="stop collecting after (default 90)")
    parser.add_argument("--format", choices=FORMATS, default="text")
    given = parser.parse_args()
    try:
        if given.action:
            collect(given.pool, given.starts, start, given.minutes * 60)
        starts = read(given.pool)
    except UserError as error:
        parser.error(str(error))
    if not starts:
        sys.exit(f"{given.pool} holds no whole start: python -m benchmarks.power collect fills it")
    print(render(rows(starts), given.format))


if __name__ == "__main__":
    main()
