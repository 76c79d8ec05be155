"""Holds Appendix J's micro batches against searches by one process each: `run.sh GPU python appendix_j.py FOLDER`.

Each row's settings are searched on the row's own GPU, whatever GPU run.sh was given; on several the first rank alone,
as `--project` does. Of a row with lost marks one reading after the other is, until one finds what is printed.
FOLDER/searches.jsonl has a line for each search before the next begins, so that the same command goes on where it was
stopped. What needs more of the host's memory than is free, but for SPARE, waits for a later start, and is left out
where it never could be. `appendix_j.py FOLDER table`, by any Python, prints the rows as CSV.
"""

from __future__ import annotations

import csv
import json
import math
import sys
from collections.abc import Iterator
from dataclasses import asdict, astuple, dataclass, fields, replace
from itertools import groupby
from pathlib import Path

import psutil

from repro import models
from repro.machine.host import host
from repro.measure.launcher import ForkServer
from repro.paper.gpus import by_name
from repro.paper.settings import Settings
from repro.paper.tables import COUNTS, published_settings
from repro.run.projection import Projection
from tests.gpu.fitting import Ranks, server_of

# As a driver reports them: name, bytes, capability, multiprocessors.
GPUS = {
    "RTX 3090": "NVIDIA GeForce RTX 3090,25430786048,8.6,82",
    "A6000": "NVIDIA RTX A6000,51041533952,8.6,84",
    "A100": "NVIDIA A100-SXM4-80GB,85017755648,8.0,108",
    "H100": "NVIDIA H100 80GB HBM3,85017493504,9.0,132",
}
SPARE = 6e9  # bytes of the host's memory that others need
_STACK = 2e9  # bytes of the host's memory, of a rank and its fork server
_IDS = {models.find(id).name: id for id in models.IDS}
_SEARCHES = "searches.jsonl"


@dataclass(frozen=True)
class Search:
    """One reading of a row, and what was found for it: the micro batch, bytes that torch's allocator reserved, and why
    nothing was. `limit` are the bytes that it might reserve, `needed` those that the printed micro batch would take, on
    the line through the two largest that fit."""

    model: str
    gpu: str
    gpus: int
    settings: str
    printed: int
    found: int = 0
    reserved: int = 0
    limit: int = 0
    needed: int = 0
    seconds: float = 0.0
    why: str = ""

    @property
    def row(self) -> tuple[str, str, int]:
        """Return what names its row in the appendix."""
        return (self.model, self.gpu, self.gpus)

    @property
    def key(self) -> tuple[str, str, int, str]:
        return (*self.row, self.settings)


@dataclass(frozen=True)
class Row:
    """A row of the kept table: the reading that found the printed micro batch, or else comes nearest. `readings` counts
    those that the lost marks allow, `searched` those that were. Bytes are in GB: what torch's allocator `reserved` for
    the micro batch that was found, what a larger printed one `needed` on a line through two that fit, and the `limit`.
    `why` says why nothing was found."""

    model: str
    gpu: str
    gpus: int
    printed: int
    found: int | None
    settings: str
    readings: int
    searched: int
    reserved: str
    needed: str
    limit: str
    why: str


def host_bytes(wanted: Search) -> float:
    """Return about how much of the host's memory a search takes. Weights that the GPU drew are not written there, and
    take none of it here. A GPU too small for fp32 weights leaves drawing to the host, where DeepSpeed makes a copy in
    half precision. Offloading keeps fp32 weights, gradients and two moments there, and DeepSpeed a copy as well."""
    settings, weights = Settings.parse(wanted.settings), models.find(_IDS[wanted.model]).parameters
    drawn = wanted.gpus > 1 and 4 * weights < 0.8 * _gpu_bytes(wanted.gpu)
    taken = _STACK
    if settings.library != "torch" and not drawn:
        taken += (6 if settings.library == "deepspeed" else 4) * weights
    if settings.offloading:
        taken += (18 if settings.library == "deepspeed" else 16) * weights / wanted.gpus
    return taken


def planned() -> list[Search]:
    """Return the searches in an order that serves each model, GPU and count early: first one reading of each row, then
    the others."""
    seen: dict[tuple[str, str, int], int] = {}
    turns: dict[tuple[str, str, int, str], tuple[int, ...]] = {}
    for each in _in_print():
        reading = seen[each.row] = seen.get(each.row, -1) + 1
        gpu, count, model = list(GPUS).index(each.gpu), COUNTS.index(each.gpus), list(_IDS).index(each.model)
        weights = models.find(_IDS[each.model]).parameters
        turns[each.key] = (reading, 0 if reading else (gpu + count + model) % 4, gpu, weights, count)
    return sorted(_in_print(), key=lambda each: turns[each.key])


def kept(folder: Path) -> dict[tuple[str, str, int, str], Search]:
    """Return the searches that a folder has, by their keys."""
    file = folder / _SEARCHES
    lines = file.read_text().splitlines() if file.is_file() else []
    return {search.key: search for search in (Search(**json.loads(line)) for line in lines)}


def run(folder: Path) -> None:
    """Run the searches that the folder lacks, and print each."""
    folder.mkdir(parents=True, exist_ok=True)
    done, most = kept(folder), host().memory_bytes - SPARE
    waiting = [search for search in planned() if search.key not in done or done[search.key].why.startswith("crashed")]
    for gpu, searches in groupby(waiting, lambda search: search.gpu):
        with server_of(GPUS[gpu], folder / "logs") as server:
            for wanted in searches:
                if (*wanted.row, wanted.printed) in {(*each.row, each.found) for each in done.values()}:
                    continue
                needed = host_bytes(wanted)
                if needed > most:
                    ran = replace(wanted, why=f"needs about {needed / 1e9:.0f} GB of the host's memory")
                elif needed > psutil.virtual_memory().available - SPARE:
                    print(f"{wanted.key} waits: {needed / 1e9:.0f} GB of the host's memory are not free", flush=True)
                    continue
                else:
                    ran = _searched(server, wanted, folder / "logs")
                with (folder / _SEARCHES).open("a") as file:
                    file.write(json.dumps(asdict(ran)) + "\n")
                done[ran.key] = ran
                print(ran, flush=True)


def _searched(server: ForkServer, wanted: Search, logs: Path) -> Search:
    count, known = wanted.gpus, by_name()[wanted.gpu]
    set_aside = Projection(known).group_bytes(count) if count > 1 else 0
    found = Ranks(server, logs / "ranks.log", _IDS[wanted.model], wanted.settings, count, True, set_aside).search()
    why = f"{found.status}: {found.reason}"[:200] if found.status not in ("", "out_of_memory") else ""
    return replace(
        wanted,
        found=found.micro_batch,
        reserved=found.peaks.get(found.micro_batch, 0),
        limit=_gpu_bytes(wanted.gpu) - set_aside,
        needed=_on_a_line(found.peaks, wanted.printed),
        seconds=round(found.seconds, 1),
        why=why,
    )


def _on_a_line(peaks: dict[int, int], size: int) -> int:
    """Return the bytes at a micro batch, on the line through the two largest of these; 0 for less than two."""
    if len(peaks) < 2:
        return 0
    (less, low), (more, high) = sorted(peaks.items())[-2:]
    return round(high + (high - low) * (size - more) / (more - less))


def table(folder: Path) -> Iterator[Row]:
    """Yield a row of the kept table for each of Appendix J's."""
    done = kept(folder)
    for (model, gpu, gpus, printed), group in groupby(_in_print(), lambda each: (*each.row, each.printed)):
        readings = list(group)
        ran = [done[each.key] for each in readings if each.key in done]
        found = [each for each in ran if not each.why]
        best = min(found, key=lambda each: abs(math.log2(max(each.found, 0.5) / printed)), default=None)
        yield Row(
            *(model, gpu, gpus, printed),
            found=best.found if best else None,
            settings=best.settings if best else readings[0].settings,
            readings=len(readings),
            searched=len(found),
            reserved=_gb(best.reserved) if best else "",
            needed=_gb(best.needed) if best and best.found < printed and best.needed > best.reserved else "",
            limit=_gb(best.limit) if best else "",
            why="" if best else next((each.why for each in ran), "not reached"),
        )


def _gb(size: int) -> str:
    return f"{size / 1e9:.1f}" if size else ""


def _in_print() -> list[Search]:
    """Return the searches of all rows, in the appendix's order."""
    return [
        Search(row.model, row.gpu, row.gpus, settings.id, row.mbs)
        for row in published_settings()
        for settings in row.readings()
    ]


def _gpu_bytes(gpu: str) -> int:
    return int(GPUS[gpu].split(",")[1])


def main(folder: Path, what: str = "") -> None:
    if what != "table":
        run(folder)
        return
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(field.name for field in fields(Row))
    writer.writerows(astuple(row) for row in table(folder))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
