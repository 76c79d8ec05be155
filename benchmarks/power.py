"""How often the decision rule finds a slowdown that is there, and one that is not.

`python -m benchmarks.power collect` fills a pool of real samples on an otherwise idle machine: the tiny Pythia-1B,
naive, every sample from a process of a freshly started stack, in blocks of one of each arm: the stack, a copy of it,
the stack 5 % and 10 % slower. It goes on where it stopped. Without `collect` the rule is applied to the pool: to
disjoint windows, and to windows that start at random blocks.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from repro.compare import rule
from repro.compare.ratio import of_pairs
from repro.extrapolate import Parts, true_step
from repro.formats import FORMATS, render
from repro.measure.launcher import ForkServer

from . import Ask, asking

ARMS = {"stack": 0.0, "copy": 0.0, "5 % slower": 0.05, "10 % slower": 0.10}
POOL = Path(__file__).resolve().parent.parent / "results" / "pool-2-cores.jsonl"
_MODULES = ("transformers.models.gpt_neox.modeling_gpt_neox", "transformers.loss.loss_utils")
_EXAMPLES, _ROUNDS = 16, 10
_DRAWN = 200

Block = dict[str, float]  # seconds of a training step, by arm


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
        steps=_ROUNDS,
        check_extrapolation=False,
    )
    return true_step([Parts.of(outcome.value["synchronised"])], 1, reduces_every_micro_step=False)


def fresh(share: float) -> float:
    """The same, of a stack that is started for it."""
    with (
        tempfile.TemporaryDirectory(prefix="repro-") as folder,
        ForkServer(Path(folder, "server.log"), {}, modules=_MODULES) as server,
    ):
        return sample(asking(server, Path(folder)), share)


def collect(pool: Path, blocks: int, take: Callable[[float], float], seconds: float) -> None:
    """Adds samples to the pool until it has so many blocks, or `seconds` have passed. Every sample is on disk before
    the next is taken, and every second block turns the order round."""
    started, have = time.monotonic(), len(_rows(pool))
    plan = [(n, arm) for n in range(blocks) for arm in (list(ARMS), list(ARMS)[::-1])[n % 2]]
    with pool.open("a", encoding="utf-8") as file:
        for number, arm in plan[have:]:
            if time.monotonic() - started > seconds:
                return
            seconds_a_step = take(ARMS[arm])
            row = {"block": number, "arm": arm, "at": time.time(), "seconds": seconds_a_step}
            file.write(json.dumps(row) + "\n")
            file.flush()
            os.fsync(file.fileno())
            print(f"block {number + 1} of {blocks}, {arm}: {seconds_a_step * 1e3:.2f} ms", file=sys.stderr)


def read(pool: Path) -> list[Block]:
    """The whole blocks of a pool, in the order they were taken."""
    found: dict[int, Block] = {}
    for row in _rows(pool):
        found.setdefault(row["block"], {})[row["arm"]] = row["seconds"]
    return [block for _, block in sorted(found.items()) if block.keys() == ARMS.keys()]


def _rows(pool: Path) -> list[dict[str, Any]]:
    """The whole lines; what a kill left of the last one is cut off."""
    if not pool.is_file():
        return []
    whole = pool.read_text(encoding="utf-8")
    kept = whole[: whole.rfind("\n") + 1]
    if kept != whole:
        pool.write_text(kept, encoding="utf-8")
    return [json.loads(line) for line in kept.splitlines()]


def disjoint(blocks: Sequence[Block], size: int) -> Iterator[Sequence[Block]]:
    """One window after another."""
    for start in range(0, len(blocks) - size + 1, size):
        yield blocks[start : start + size]


def drawn(blocks: Sequence[Block], size: int, count: int = _DRAWN) -> Iterator[Sequence[Block]]:
    """Windows that start anywhere; they overlap, so they say less than as many disjoint ones."""
    places = random.Random(1)
    for _ in range(count if len(blocks) >= size else 0):
        start = places.randrange(len(blocks) - size + 1)
        yield blocks[start : start + size]


def call(window: Sequence[Block], arm: str) -> rule.Call:
    """What the rule calls an arm after the stack, half of the window a round, with the copy as the noise floor. Where
    the copy is the arm, there is none, and the threshold the smallest there is: nothing makes more false alarms."""
    half = len(window) // 2
    before, after = [block["stack"] for block in window], [block[arm] for block in window]
    rounds = [of_pairs(before[part], after[part]) for part in (slice(0, half), slice(half, None))]
    same = of_pairs(before[:half], [block["copy"] for block in window[:half]])
    floor = None if arm == "copy" else rule.noise_floor(same)
    return rule.decide(rounds, of_pairs(before, after), floor).call


def rows(blocks: Sequence[Block]) -> list[dict[str, Any]]:
    """For every slowdown, size of round and kind of window, how many windows were called what."""
    found = []
    for arm in list(ARMS)[1:]:
        for pairs in (rule.PAIRS_A_ROUND, 12):
            for kind, windows in (("disjoint", disjoint), ("drawn", drawn)):
                calls = Counter(call(window, arm) for window in windows(blocks, 2 * pairs))
                found.append(
                    {"arm": arm, "pairs a round": pairs, "windows": calls.total(), "kind": kind}
                    | {word: calls[word] for word in ("regressed", "improved", "unchanged", "inconclusive")}
                )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", nargs="?", choices=("collect",))
    parser.add_argument("--pool", type=Path, default=POOL, metavar="FILE")
    parser.add_argument("--blocks", type=int, default=150, metavar="N", help="samples of each arm (default 150)")
    parser.add_argument("--minutes", type=float, default=90.0, metavar="N", help="stop collecting after (default 90)")
    parser.add_argument("--format", choices=FORMATS, default="text")
    given = parser.parse_args()
    if given.action:
        collect(given.pool, given.blocks, fresh, given.minutes * 60)
    blocks = read(given.pool)
    if not blocks:
        sys.exit(f"{given.pool} holds no whole block: python -m benchmarks.power collect fills it")
    print(render(rows(blocks), given.format))


if __name__ == "__main__":
    main()
