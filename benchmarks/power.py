"""How often the decision rule finds a slowdown that is there, and one that is not.

`python -m benchmarks.power collect` fills a pool of real samples on an otherwise idle machine, as `upgrade-check` takes
them: the tiny Pythia-1B, naive, a few processes from each start of a stack, in turns of one of each arm: the stack, a
copy of it, the stack 5 % and 10 % slower. It goes on where it stopped. Without `collect` the rule is applied to the
pool: to disjoint windows, and to windows that begin at any start.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from repro.compare import rule
from repro.compare.interleave import ROUNDS, TURNS
from repro.compare.ratio import of_pairs
from repro.extrapolate import Parts, true_step
from repro.formats import FORMATS, render
from repro.measure.launcher import ForkServer
from repro.progress import duration

from . import Ask, asking

ARMS = {"stack": 0.0, "copy": 0.0, "5 % slower": 0.05, "10 % slower": 0.10}
POOL = Path(__file__).resolve().parent.parent / "results" / "pool-2-cores.jsonl"
_MODULES = ("transformers.models.gpt_neox.modeling_gpt_neox", "transformers.loss.loss_utils")
PAIRS = (6, 12, 22)  # a round of a window; 22 is what the default budget buys
_EXAMPLES = 16
_DRAWN = 200

Start = dict[str, float]  # seconds of a training step, by arm
Take = Callable[[str], float]  # the same of another process of an arm


def sample(ask: Ask, share: float) -> float:
    """Seconds of a training step in a process of its own, slowed down by `share`: the median of its rounds."""
    [outcome] = ask(
        "benchmarks.slower:measure",
        share=share,
        recipe="pythia-1b",
        scale="tiny",
        settings="naive",
        tf32=False,
        compiled=False,
        micro_batch=_EXAMPLES,
        accumulation=1,
        steps=ROUNDS,
        check_extrapolation=False,
    )
    return true_step([Parts.of(outcome.value["synchronised"])], 1, reduces_every_micro_step=False)


@contextmanager
def started() -> Iterator[Take]:
    """The same of an arm, each of a stack that is started for it."""
    with tempfile.TemporaryDirectory(prefix="repro-") as folder, ExitStack() as stack:
        servers = {}
        for arm in ARMS:
            Path(folder, arm).mkdir()
            servers[arm] = stack.enter_context(ForkServer(Path(folder, arm, "server.log"), {}, modules=_MODULES))
            servers[arm].launch()
        for server in servers.values():
            server.start()
        asks = {arm: asking(server, Path(folder, arm)) for arm, server in servers.items()}
        yield lambda arm: sample(asks[arm], ARMS[arm])


def collect(pool: Path, starts: int, start: Callable[[], AbstractContextManager[Take]], seconds: float) -> None:
    """Adds processes to the pool until it has so many starts, or `seconds` have passed. Each is on disk before the next
    runs, and every second turn goes round the other way."""
    began, have = time.monotonic(), len(_rows(pool))
    plan = [(turn, arm) for turn in range(starts * TURNS) for arm in (list(ARMS), list(ARMS)[::-1])[turn % 2]][have:]
    with pool.open("a", encoding="utf-8") as file:
        for number, turns in itertools.groupby(plan, lambda process: process[0] // TURNS):
            with start() as take:
                for turn, arm in turns:
                    if time.monotonic() - began > seconds:
                        return
                    row = {"start": number, "turn": turn, "arm": arm, "at": time.time(), "seconds": take(arm)}
                    file.write(json.dumps(row) + "\n")
                    file.flush()
                    os.fsync(file.fileno())
            print(f"start {number + 1} of {starts}, after {duration(time.monotonic() - began)}", file=sys.stderr)


def read(pool: Path) -> list[Start]:
    """The whole starts of a pool, in their order."""
    found: dict[int, dict[str, list[float]]] = {}
    for row in _rows(pool):
        found.setdefault(row["start"], {}).setdefault(row["arm"], []).append(row["seconds"])
    whole = [
        arms for _, arms in sorted(found.items()) if [len(arms.get(arm, ())) for arm in ARMS] == [TURNS] * len(ARMS)
    ]
    return [{arm: median(arms[arm]) for arm in ARMS} for arms in whole]


def _rows(pool: Path) -> list[dict[str, Any]]:
    """The whole lines; what a kill left of the last one is cut off."""
    if not pool.is_file():
        return []
    whole = pool.read_text(encoding="utf-8")
    kept = whole[: whole.rfind("\n") + 1]
    if kept != whole:
        pool.write_text(kept, encoding="utf-8")
    return [json.loads(line) for line in kept.splitlines()]


def disjoint(starts: Sequence[Start], size: int) -> Iterator[Sequence[Start]]:
    """One window after another."""
    for first in range(0, len(starts) - size + 1, size):
        yield starts[first : first + size]


def drawn(starts: Sequence[Start], size: int, count: int = _DRAWN) -> Iterator[Sequence[Start]]:
    """Windows that begin anywhere; they overlap, so they say less than as many disjoint ones."""
    places = random.Random(1)
    for _ in range(count if len(starts) >= size else 0):
        first = places.randrange(len(starts) - size + 1)
        yield starts[first : first + size]


def call(window: Sequence[Start], arm: str) -> rule.Call:
    """What the rule calls an arm after the stack, half of the window a round, with the copy as the noise floor. Where
    the copy is the arm, there is none, and the threshold the smallest there is: nothing makes more false alarms."""
    half = len(window) // 2
    before, after = [each["stack"] for each in window], [each[arm] for each in window]
    rounds = [of_pairs(before[part], after[part]) for part in (slice(0, half), slice(half, None))]
    floor = None if arm == "copy" else rule.noise_floor(of_pairs(before, [each["copy"] for each in window]))
    return rule.decide(rounds, of_pairs(before, after), floor).call


def rows(starts: Sequence[Start]) -> list[dict[str, Any]]:
    """For every slowdown, size of round and kind of window, how many windows were called what."""
    found = []
    for arm in list(ARMS)[1:]:
        for pairs in PAIRS:
            for kind, windows in (("disjoint", disjoint), ("drawn", drawn)):
                calls = Counter(call(window, arm) for window in windows(starts, 2 * pairs))
                found.append(
                    {"arm": arm, "pairs a round": pairs, "windows": calls.total(), "kind": kind}
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
    if given.action:
        collect(given.pool, given.starts, started, given.minutes * 60)
    starts = read(given.pool)
    if not starts:
        sys.exit(f"{given.pool} holds no whole start: python -m benchmarks.power collect fills it")
    print(render(rows(starts), given.format))


if __name__ == "__main__":
    main()
