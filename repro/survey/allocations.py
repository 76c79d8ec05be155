"""The GPUs that a person may use: the catalogue's card for each answer, how many at once, for how long, how linked."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ..datafile import CsvRow, Positive, read_csv, read_once
from ..formats import DAYS_A_YEAR
from ..paper.gpus import Gpu, catalogue, find
from .counts import Person
from .questions import COUNTS, DURATIONS, KINDS, NONE_AVAILABLE, NOT_SURE, OTHER
from .shares import generation

A_NODE = 8  # GPUs; more need a network between nodes
# Days that a choice is taken for.
LASTS = {"Hours": 0.5, "Days": 7.0, "Weeks": 28.0, "Months": 180.0, "Indefinitely": 5.0 * DAYS_A_YEAR}
_UNKNOWN = {"Ethernet": 1.0, "Infiniband": 32.0}  # Gb/s where the throughput is not known: the slowest choice

Change = Literal["longer", "gpus"]  # longer allocations, or twice the GPUs at once


@dataclass(frozen=True)
class Card:
    """The catalogue's card that stands for a generation of a kind with so much memory; `without_link` is the one for
    GPUs that are not linked, if that is another."""

    kind: Literal["desktop", "workstation", "data_center"]
    generation: str
    memory_gb: Positive
    gpu: str
    without_link: str | None
    reason: str
    source: str


@read_once
def cards() -> Sequence[Card]:
    """Return the table of cards, expected/survey_cards.csv. Raise UserError where the file is broken."""
    known = {gpu.name: gpu for gpu in catalogue()}

    def check(row: CsvRow) -> None:
        for column in ("gpu", "without_link"):
            if row[column] != "-":
                row.choice(column, known, "a name of gpus.csv")

    return tuple(read_csv(Card, "survey_cards.csv", ("kind", "generation", "memory_gb"), check).values())


@dataclass(frozen=True)
class Allocation:
    """So many GPUs of a card for so many days. `network` is what connects nodes, in bytes a second in one direction;
    None where nothing does, or nobody said."""

    gpu: Gpu
    gpus: int
    days: float
    network: float | None


@dataclass(frozen=True)
class Access:
    """What a person may use, the largest allocations first. `known` is False where a person named GPUs, or ruled none
    out, and no card of the table stands for any."""

    allocations: tuple[Allocation, ...]
    known: bool


def access(person: Person, change: Change | None = None) -> Access:
    """Return what a person may use. With a `change`, allocations last one choice longer, or have twice the GPUs."""
    network = _network(person)
    found, unknown = list[Allocation](), False
    for kind in KINDS:
        long = _long(person, kind, change)
        gpus = _gpus(person, kind)
        unknown |= gpus != () if long is None else gpus is None and any(long.values())
        for gpu in gpus or ():
            for count, days in (long or {}).items():
                if days and (count <= A_NODE or network is not None):
                    found.append(Allocation(gpu, count, days, network if count > A_NODE else None))
    found.sort(key=lambda each: each.gpus * each.days, reverse=True)
    return Access(tuple(found), bool(found) or not unknown)


def _gpus(person: Person, kind: str) -> Sequence[Gpu] | None:
    """Return the cards of each generation that a person named: the largest whose memory is not above the answer; where
    the memory is not known, the smallest. Empty where none is available, None where no card stands for any."""
    named, memory = person.chosen.get(f"{kind}_gen", frozenset()), person.chosen.get(f"{kind}_mem", frozenset())
    if NONE_AVAILABLE in named or NONE_AVAILABLE in memory:
        return ()
    most = next((float(choice.split(" ")[0]) for choice in memory if choice not in (NOT_SURE, OTHER)), None)
    linked = not person.has("gpu_link", "No")
    found = []
    for name in sorted({generation(choice) for choice in named}):
        of = sorted(
            (card for card in cards() if (card.kind, card.generation) == (kind, name)), key=lambda card: card.memory_gb
        )
        if most is not None:
            of = [card for card in of if card.memory_gb <= most][-1:]
        if of:
            gpu = find(of[0].gpu if linked or of[0].without_link is None else of[0].without_link)
            assert gpu is not None
            found.append(gpu)
    return found or None


def _long(person: Person, kind: str, change: Change | None) -> dict[int, float] | None:
    """Return for how many days a person may use so many GPUs, 0 for none: as long as the longest allocation of at least
    as many. None where no row of the grid has an answer."""
    chosen = {count: next(iter(person.chosen.get(f"{kind}_{count}", ())), None) for count in COUNTS}
    if not any(chosen.values()):
        return None
    days = {}
    for count, choice in chosen.items():
        if choice not in DURATIONS:
            days[count] = 0.0
            continue
        place = DURATIONS.index(choice) + (change == "longer")
        days[count] = LASTS[DURATIONS[min(place, len(DURATIONS) - 1)]]
    if change == "gpus":
        days = {count: max(days[count], days.get(count // 2, 0.0)) for count in COUNTS}
    return {count: max(days[more] for more in COUNTS if more >= count) for count in COUNTS}


def _network(person: Person) -> float | None:
    """Return the fastest network between nodes that a person named, in bytes a second; None without any."""
    speeds = []
    for choice in person.chosen.get("node_link", ()):
        if (family := choice.split(" ")[0]) in _UNKNOWN:
            stated = re.search(r"([0-9]+)(?:/[0-9]+)? Gbps", choice)
            speeds.append((float(stated[1]) if stated else _UNKNOWN[family]) * 1e9 / 8)
    return max(speeds, default=None)
