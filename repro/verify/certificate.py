"""The certificate of a report: what its folders decide of the paper, each verdict with the hashes of its records.

The environment's lines of trials.jsonl are not hashed: they may have names of a machine or a person, which `contribute`
takes out. What of them counts stands in the certificate's folders.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .. import __version__, files
from ..claims.check import Checked, check_all
from ..claims.claim import Claim
from ..claims.measured import MEASURED, unsettling
from ..claims.statements import statements
from ..formats import counted
from ..machine.environment import Lock
from ..paper.arithmetic import recipe_of
from ..paper.settings import NAIVE
from ..paper.tables import Cell, Place, all_cells, printed
from ..predict.audit import audit
from ..record import Clock, Origin, Record
from ..released.results import ReleasedCell
from ..run.reading import Joined, Reading
from ..run.results import TRIALS, read_trials
from ..run.spread import Spread, of_runs
from ..run.verdict import Verdict, comparable_with_cell
from .runs import resting_on

NOBODY = "Nobody signs it: it says which verdicts follow from which records, not who measured these."
DECIDED = ("holds", "holds_by_rounding", "differs")  # verdicts on claims that records decide


@dataclass(frozen=True)
class Hashed:
    """A line of a folder's trials.jsonl, with its trial and the sha256 of its bytes; folders count from 1. Of the
    authors' archive, which is one file, the line is 0."""

    folder: int
    line: int
    trial: str
    sha256: str


@dataclass(frozen=True)
class FolderOf:
    """A results folder, and what measured it. The hash of the lock, where the stack was one, stands for an image digest
    that was not recorded."""

    name: str
    repro: str | None = None
    commits: list[str | None] = field(default_factory=list)
    gpus: list[str] = field(default_factory=list)
    driver: str | None = None
    stack: str = ""
    image_digest: str | None = None
    lock: str | None = None
    lock_sha256: str | None = None


@dataclass(frozen=True)
class Variation:
    """Run-to-run variation of a trial: from how many starts of the stack it was measured, and how far the slowest true
    step is from the fastest, relative to their median."""

    trial: str
    starts: int
    spread: float


@dataclass(frozen=True)
class CellRow:
    """A cell that these folders have something of. `plausible` is the verdict on the printed days alone, `verdict` that
    on the measured ones by the certificate's clock, and `records` the hashes of what it rests on."""

    cell: str
    printed: str
    plausible: str | None
    verdict: str
    by_authors_clock: str
    true_days: float | None
    authors_days: float | None
    released_days: float | None
    settings: str | None
    variation: list[Variation]
    records: list[str]


@dataclass(frozen=True)
class ClaimRow:
    """A claim of a sentence of the abstract or the conclusion: `by_printed` is the verdict on the printed numbers,
    `verdict` that on the measured ones, or on the released ones of the authors' archive."""

    where: str
    sentence: str
    claim: str
    statement: str
    printed: str
    by_printed: str
    verdict: str
    number: float | None
    records: list[str]


@dataclass(frozen=True)
class Certificate:
    """A certificate, as certificate.json has it. What is released the authors measured, and nobody else."""

    note: str
    repro: str
    origin: Origin
    clock: Clock
    tolerance: float
    folders: list[FolderOf]
    claims: list[ClaimRow]
    cells: list[CellRow]
    cells_not_measured: int
    records: list[Hashed]

    @property
    def decided(self) -> list[ClaimRow]:
        """Return the claims that the records decide, once each."""
        return list({row.claim: row for row in self.claims if row.verdict in DECIDED}.values())

    @property
    def names(self) -> list[str]:
        return [folder.name for folder in self.folders]

    @property
    def summary(self) -> str:
        """Return how many cells and claims the records decide, as text."""
        undecided = ("not_measured", "no_reference") if self.origin == "measured" else ()
        compared = sum(row.verdict not in undecided for row in self.cells)
        return f"{counted(compared, 'cell')} and {counted(len(self.decided), 'claim')}"

    def rows(self) -> list[dict[str, Any]]:
        """Return the cells, and the claims that are decided, as rows of a table."""
        rows: list[tuple[CellRow | ClaimRow, str, str | None, float | None]] = [
            *((row, row.cell, row.plausible, row.true_days or row.released_days) for row in self.cells),
            *((row, row.statement, row.by_printed, row.number) for row in self.decided),
        ]
        return [
            {
                "cell_or_claim": what,
                "printed": row.printed,
                "verdict_on_printed": by_printed,
                "verdict": row.verdict,
                "days_or_number": number,
                "authors_days": getattr(row, "authors_days", None),
                "records": len(row.records),
            }
            for row, what, by_printed, number in rows
        ]


def build(runs: Joined) -> Certificate | None:
    """Return the certificate of these folders; None where they decide no cell and no claim."""
    released = runs.released
    if not released and unsettling(runs.records):
        return None
    lines = [each for number, run in enumerate(runs.runs, 1) for each in hashed(run, number)]
    plausible = {(row.table, row.place): row.verdict for row in audit()}
    there: dict[tuple[str, Place], ReleasedCell] = {
        (cell.printed.table, cell.place): cell for cell in (released.cells if released else ()) if cell.known
    }
    judged = [each for each in runs.verdicts if not each.projected and each.verdict != "not_measured"]
    behind = {(each.table, each.place): _behind(each.table, each.place, runs.records) for each in judged}
    spreads = {each.record.id: each for each in of_runs(runs)}
    kept: dict[tuple[str, Place], Cell] = {(cell.table, cell.place): cell for cell in all_cells()}
    cells = [
        _cell(each, plausible.get(key), behind.get(key, ()), lines, spreads, there.get(key))
        for each in runs.verdicts
        if (key := (each.table, each.place)) in behind or key in there
    ]
    claims = _claims(runs, lines, {kept[key]: records for key, records in behind.items()})
    found = Certificate(
        NOBODY,
        __version__,
        "released" if released else "measured",
        runs.clock,
        runs.verdicts[0].tolerance,
        [_folder(run) for run in runs.runs],
        claims,
        cells,
        len(runs.verdicts) - len(cells),
        lines,
    )
    return found if cells or found.decided else None


def hashed(run: Reading, number: int) -> list[Hashed]:
    """Return each line of a folder's trials, as that folder of this number."""
    if run.released is not None:
        if not run.folder.is_file():
            return []
        return [Hashed(number, 0, run.folder.name, hashlib.sha256(run.folder.read_bytes()).hexdigest())]
    raw = files.read(run.folder / TRIALS).split(b"\n") if (run.folder / TRIALS).is_file() else []
    return [
        Hashed(number, line.number, line.record.id if line.record else "", _sha256(raw[line.number - 1]))
        for line in read_trials(run.folder).lines
    ]


def _sha256(line: bytes) -> str:
    return hashlib.sha256(line).hexdigest()


def _folder(run: Reading) -> FolderOf:
    known, name = run.environment, Path(run.folder).resolve().name
    if run.released is not None:
        return FolderOf(name)
    lock = known.lock if known.lock.is_the_lock else Lock()
    return FolderOf(
        name,
        known.repro,
        known.commits or [known.commit],
        [gpu.name for gpu in known.gpus or []],
        known.driver,
        known.stack,
        known.image_digest,
        lock.file,
        lock.sha256,
    )


def _behind(table: str, place: Place, records: Sequence[Record]) -> list[Record]:
    """Return the records that a cell is judged by."""
    model, gpu, gpus = place
    of_place = (recipe_of(model).id, gpu, gpus)
    return [
        each
        for each in records
        if comparable_with_cell(each)
        and each.ended
        and (each.recipe, each.device, each.count) == of_place
        and (each.settings == NAIVE.id) == (table == "4")
    ]


def _cell(
    verdict: Verdict,
    plausible: str | None,
    records: Sequence[Record],
    lines: Sequence[Hashed],
    spreads: Mapping[str, Spread],
    released: ReleasedCell | None,
) -> CellRow:
    return CellRow(
        verdict.cell,
        printed(verdict.expected, verdict.expected_days),
        plausible,
        verdict.verdict,
        verdict.authors.verdict,
        _digits(verdict.true.days),
        _digits(verdict.authors.days),
        _digits(released.days) if released else None,
        verdict.chosen.settings,
        [
            Variation(each.id, len(there.steps), round(there.relative, 4))
            for each in records
            if (there := spreads.get(each.id))
        ],
        _hashes(records, lines),
    )


def _hashes(records: Sequence[Record], lines: Sequence[Hashed]) -> list[str]:
    ids = {record.id for record in records}
    return [each.sha256 for each in lines if each.trial in ids]


def _claims(runs: Joined, lines: Sequence[Hashed], behind: dict[Cell, list[Record]]) -> list[ClaimRow]:
    """Return a row for each claim of each sentence."""
    ids = list(dict.fromkeys(claim.id for each in statements() for claim in each.claims))
    records = runs.released.records if runs.released else runs.records
    clock = "authors" if runs.released else runs.clock
    checked = {one.claim.id: one for one in check_all(records, clock, ids=ids)}
    cells, tolerance = resting_on(), runs.verdicts[0].tolerance
    comparable = [each for each in runs.records if comparable_with_cell(each) and each.ended]
    found = []
    for each in statements():
        for claim in each.claims:
            verdict, number = _measured(checked[claim.id], tolerance)
            of_cells = [record for cell in cells.get(claim.id, ()) for record in behind.get(cell, ())]
            rests_on = of_cells if claim.id not in MEASURED else comparable
            hashes = [each.sha256 for each in lines] if runs.released else _hashes(rests_on, lines)
            by_printed = "needs_measurement" if claim.id in MEASURED else checked[claim.id].verdict
            of_claim = (claim.id, claim.statement, claim.text, by_printed)
            decided = hashes if verdict in DECIDED else []
            found.append(ClaimRow(each.where, each.sentence, *of_claim, verdict, _digits(number), decided))
    return found


def _measured(one: Checked, tolerance: float) -> tuple[str, float | None]:
    """Return the verdict on a claim by what was measured, and its number: of one that rests on printed days, by true
    days once all of these are measured, within the tolerance of the cells."""
    if one.claim.id in MEASURED:
        return one.verdict, one.working.value.value if one.working else None
    if one.by_true_days is None or one.by_true_days.origin != "measured":
        return "not_measured", None
    return "holds" if within(one.claim, one.by_true_days.value, tolerance) else "differs", one.by_true_days.value


def within(claim: Claim, number: float, tolerance: float) -> bool:
    """Return whether a number is a claim's, or within its bound, give or take the tolerance and rounding."""
    low, high = claim.printed.low * (1 - tolerance), claim.printed.high * (1 + tolerance)
    return (claim.relation == "at_most" or low <= number) and (claim.relation == "at_least" or number <= high)


def _digits(number: float | None) -> float | None:
    """Return a number with nine digits, which do not depend on the C library and the order of a sum."""
    return None if number is None or not math.isfinite(number) else float(f"{number:.9g}")
