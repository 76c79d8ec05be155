"""Holds one projecting GPU against eight that join by NCCL: `run.sh GPU,8 python projected.py`.

Of a small recipe in all settings of the search, on both the same micro batches have to fit, and the peaks have to be
equal, but for 1 %: of what tensors take, and of what torch's allocator reserves for each micro batch, where one block,
which is more than 1 % of so little, is let pass. Prints the largest difference.
"""

from __future__ import annotations

import os
import sys
import tempfile
from functools import partial
from pathlib import Path

from repro.paper.settings import NAIVE, search_space
from tests.gpu.fitting import Ranks, server_of

_RECIPE = "pythia-160m"
_COUNT = 8
_MOST = 0.01  # off, relative
_BLOCK = 2 << 20  # bytes that torch's allocator reserves at once for small tensors; when it does depends on their order


def main(gpu: str) -> None:
    worst, wanted = 0.0, (NAIVE, *search_space(_COUNT))
    with tempfile.TemporaryDirectory() as folder, server_of(gpu, Path(folder, "logs")) as server:
        ranks = partial(Ranks, server, Path(folder, "logs", "ranks.log"), _RECIPE, count=_COUNT, scale="tiny")
        for settings in wanted:
            eight, one = ranks(settings.id, alone=False), ranks(settings.id, alone=True)
            found, beside = eight.search(), one.search()
            tensors, projected = eight.allocated(), one.allocated()
            off = abs(projected / tensors - 1)
            output = f"{settings.id}: eight {found}, tensors {tensors}; one {beside}, tensors {projected}"
            print(output, file=sys.stderr, flush=True)
            assert found.peaks.keys() == beside.peaks.keys() != set(), output
            assert found.status == beside.status == "", output
            assert off < _MOST, output
            for size, peak in found.peaks.items():
                assert abs(beside.peaks[size] - peak) <= max(_MOST * peak, _BLOCK), output
            worst = max(worst, off)
    print(f"gpu: in {len(wanted)} settings one projecting GPU takes what each of {_COUNT} does, within {worst:.2%}")


if __name__ == "__main__":
    main(os.environ["STAND_IN"])
