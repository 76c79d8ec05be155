"""Holds the memory model against a run's searches for micro batches: `python tests/gpu/searched.py DIR`, of run_all.sh.

Prints as CSV, of each settings on one GPU: the micro batch that was found and the one predicted, and what torch's
allocator took at the one found beside its prediction, both without what CUDA and its libraries take.
"""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path

from repro import models
from repro.paper.gpus import find
from repro.paper.settings import Settings
from repro.predict import traces
from repro.predict.fits import EVERYTHING, fitted_constants
from repro.predict.memory import largest_micro_batch, peak_memory, variant_of

_FIELDS = ("recipe", "settings", "micro_batch", "predicted_micro_batch", "reserved", "predicted_reserved")


def main(folder: Path) -> None:
    allowance = fitted_constants()[EVERYTHING].allowance
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(_FIELDS)
    for line in (folder / "trials.jsonl").read_text().splitlines():
        record = json.loads(line)
        gpu, recipe = find(record["device"]), models.find(record["recipe"], record["scale"])
        assert gpu is not None, f"{record['device']} is not in the catalogue"
        if record["count"] > 1 or not record["peaks"]:
            continue  # nothing was found where the host's memory ran out
        settings = Settings.parse(record["settings"])
        trace = traces.find(recipe.id, variant_of(settings), traces.shipped()[-1], recipe.scale)
        found, reserved = record["peaks"][-1]
        most = largest_micro_batch(recipe, trace, settings, gpu, 1, allowance)
        memory = peak_memory(recipe, trace, settings, 1, found, allowance)
        writer.writerow(
            [recipe.id, settings.id, found, most, reserved, round(memory.peak - allowance.context)],
        )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
