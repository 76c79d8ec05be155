"""Measured days held against the paper's: one verdict for every cell of Tables 1 and 4."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from . import rules
from .expected import AtPlace, Cell, PublishedSettings, State, all_cells, published_settings
from .fairness import crowded_out, unfair
from .findings import recipe_of
from .formats import listing
from .gpus import paper_gpus
from .search import ran_out, standing
from .settings import NAIVE, Settings, search_space
from .trial import Record

Word = Literal["reproduced", "faster", "slower", "feasibility_differs", "no_reference", "not_measured"]
FAILED: tuple[Word, ...] = ("faster", "slower", "feasibility_differs")
_ROUNDING = 0.5  # the tables print whole days


@dataclass(frozen=True)
class Verdict(AtPlace):
    """One cell. Days are None where there are none: `expected` says why there (infeasible, lost), `reason` here."""

    table: str
    model: str
    gpu: str
    gpus: int
    expected: State
    expected_days: int | None
    measured_days: float | None
    true_days: float | None
    verdict: Word
    settings: str | None
    micro_batch: int | None
    reason: str

    @property
    def compared(self) -> bool:
        """Whether there was something to hold against something."""
        return self.verdict not in ("not_measured", "no_reference")

    @property
    def cell(self) -> str:
        """The cell's name, as people say it."""
        return f"Table {self.table}, {self.model} on {self.machine}"


def within(measured: float, expected: int, tolerance: float) -> Literal["reproduced", "faster", "slower"]:
    """Holds measured days against printed ones: within `tolerance` (relative) of any value that rounds to them."""
    if measured < (expected - _ROUNDING) * (1 - tolerance):
        return "faster"
    if measured > (expected + _ROUNDING) * (1 + tolerance):
        return "slower"
    return "reproduced"


def judge_tables(records: Iterable[Record], tolerance: float) -> list[Verdict]:
    """A verdict for every cell of Tables 1 and 4, as `judge` gives it."""
    return judge(all_cells(), records, published_settings(), tolerance)


def stands_for_cell(record: Record) -> bool:
    """Whether it can stand for one of the paper's cells: without an attention that the paper has not, and on its GPUs
    free lunch only with its TF32, which all of them have."""
    settings = Settings.parse(record.settings)
    as_asked = record.tf32 == settings.free_lunch or record.device not in paper_gpus()
    return record.stands_for_paper and settings == settings.base and as_asked


def judge(
    cells: Iterable[Cell], records: Iterable[Record], published: Sequence[PublishedSettings], tolerance: float
) -> list[Verdict]:
    """A verdict for every cell. Only records that can stand for one are compared."""
    by_place: dict[tuple[str, str, int], list[Record]] = {}
    for record in filter(stands_for_cell, records):
        by_place.setdefault((record.recipe, record.device, record.count), []).append(record)
    readings = {row.place: {settings.id for settings in row.readings()} for row in published}
    return [
        _judge(
            cell,
            by_place.get((recipe_of(cell.model).id, cell.gpu, cell.gpus), []),
            readings.get(cell.place, set()),
            tolerance,
        )
        for cell in cells
    ]


@dataclass(frozen=True)
class _Tried:
    """What became of the settings that a cell is of: those of `settled` are known, `failed` say nothing of theirs, and
    what is `unsettled` may yet be faster, or fit, than what was measured."""

    records: tuple[Record, ...]
    settled: set[str]
    failed: tuple[Record, ...]
    unsettled: set[str]


def _judge(cell: Cell, there: list[Record], published: set[str], tolerance: float) -> Verdict:
    if not there:
        return _verdict(cell, "not_measured", f"no run on {cell.machine}")
    tried = _tried(cell, there, published)
    if why := _not_searched(cell, tried, published):
        return _verdict(cell, "not_measured", why)
    if any(record.status == "ok" for record in tried.records):
        return _of_what_ran(cell, tried, tolerance)
    return _of_none_ran(cell, tried)


def _tried(cell: Cell, there: list[Record], published: set[str]) -> _Tried:
    """Of the records of a cell's machine those of its settings: naive ones in Table 4, all others in Table 1."""
    naive = cell.table == "4"
    records = tuple(record for record in standing(there).values() if (record.settings == NAIVE.id) == naive)
    settled = {record.settings for record in records if _settles(record)}
    failed = tuple(record for record in records if record.settings not in settled)
    return _Tried(records, settled, failed, set() if naive else published - settled)


def _not_searched(cell: Cell, tried: _Tried, published: set[str]) -> str:
    """Why nothing can be said of a cell of Table 1, which is the best of the search: other settings alone say nothing
    of it. Nothing where something can."""
    space = {settings.id for settings in search_space(cell.gpus)}
    if cell.table == "4" or space <= tried.settled or published & tried.settled:
        return ""
    wanted = "Appendix J's settings were" if published else "the whole search space was"
    not_run = f"{wanted} not run; --methods {'published' if published else 'all'} does"
    return _ends(each for each in tried.failed if each.settings in (published or space)) or not_run


def _of_what_ran(cell: Cell, tried: _Tried, tolerance: float) -> Verdict:
    """A cell of which some settings ran, by the fastest of those that the paper's jobs had the memory for."""
    ran = [record for record in tried.records if record.status == "ok"]
    there_too = [
        record
        for record in ran
        if cell.state != "infeasible" or rules.fits_papers_hosts(*record.recipe_and_settings, record.world)
    ]
    best = min(there_too or ran, key=lambda record: record.authors_days or 0.0)
    if not there_too:
        why = "infeasible in the paper, whose jobs had 64 GB of host memory a GPU; here is more"
        return _verdict(cell, "no_reference", why, best)
    if cell.state == "lost":
        return _verdict(cell, "no_reference", "the paper's mark is lost", best)
    if cell.state == "infeasible":
        return _verdict(cell, "feasibility_differs", "infeasible in the paper, it ran here", best)
    assert best.authors_days is not None
    assert cell.days is not None
    word = within(best.authors_days, cell.days, tolerance)
    if word == "slower" and tried.unsettled:
        told = f"{best.settings} takes {best.authors_days:.1f} days, {_lacking(tried)}"
        return _verdict(cell, "not_measured", told)
    if word == "slower" and (beside := crowded_out(best)):
        told = f"{best.settings} takes {best.authors_days:.1f} days at MBS {best.compared_micro_batch}, and {beside}"
        return _verdict(cell, "not_measured", told)
    return _verdict(cell, word, _doubts(best), best)


def _of_none_ran(cell: Cell, tried: _Tried) -> Verdict:
    """A cell of which no settings ran: known only where all of them ran out of memory."""
    others = _ends(each for each in tried.records if each.status != "out_of_memory" or each in tried.failed)
    if not tried.records or others:
        return _verdict(cell, "not_measured", others or "no such settings run")
    if tried.unsettled:
        return _verdict(cell, "not_measured", f"{listing(sorted(tried.settled))} ran out of memory, {_lacking(tried)}")
    if cell.state == "lost":
        return _verdict(cell, "no_reference", "the paper's mark is lost; out of memory here")
    if cell.state == "infeasible":
        return _verdict(cell, "reproduced", "infeasible in the paper, and out of memory here")
    why = f"the paper has {cell.days} days, all settings ran out of memory here"
    return _verdict(cell, "feasibility_differs", why)


def _verdict(cell: Cell, word: Word, reason: str, record: Record | None = None) -> Verdict:
    return Verdict(
        table=cell.table,
        model=cell.model,
        gpu=cell.gpu,
        gpus=cell.gpus,
        expected=cell.state,
        expected_days=cell.days,
        measured_days=record.authors_days if record else None,
        true_days=record.true_days if record else None,
        verdict=word,
        settings=record.settings if record else None,
        micro_batch=record.compared_micro_batch if record else None,
        reason=reason,
    )


def _lacking(tried: _Tried) -> str:
    """What else Appendix J's row may mean, and what became of it."""
    ends = _ends(record for record in tried.failed if record.settings in tried.unsettled)
    return f"and of other readings of Appendix J {len(tried.unsettled)} did not run{f' ({ends})' if ends else ''}"


def _settles(record: Record) -> bool:
    """Whether it tells of its settings, a bound at least."""
    return record.status in ("ok", "skipped") or ran_out(record)


def _ends(records: Iterable[Record]) -> str:
    """What became of these, each end once."""
    return "; ".join(sorted({_end(record) for record in records}))


def _end(record: Record) -> str:
    of_paper = "; the paper's jobs had 64 GB of host memory a GPU" if record.host_ran_out else ""
    return f"{record.status}: {record.reason}{of_paper}"


def _doubts(record: Record) -> str:
    """How it ran otherwise than its settings, or its GPU, let expect."""
    found = [
        "measured uncompiled, for compiling it crashed" if ran_uncompiled(record) else "",
        "fp32 products ran without the TF32 asked for" if record.tf32 and record.ran_tf32 is False else "",
        unfair(record),
    ]
    return "; ".join(filter(None, found))


def ran_uncompiled(record: Record) -> bool:
    """Whether it was measured without the compiling that its settings ask for."""
    return record.status == "ok" and rules.compiles(*record.recipe_and_settings) and not record.compiled


def differing(counts: Mapping[Word, int]) -> str:
    """How cells differ from the paper's, as people say it: 1 faster, 2 slower."""
    return ", ".join(f"{counts[word]} {word.replace('_', ' ')}" for word in FAILED if counts[word])


def explain(verdict: Verdict) -> str:
    """A failing cell in one line that says what was expected, what was measured, with what, and where to look."""
    if verdict.measured_days is None:
        return f"{verdict.cell}: {verdict.reason}; see trials.jsonl"
    expected = verdict.expected if verdict.expected_days is None else f"{verdict.expected_days} days"
    return (
        f"{verdict.cell}: expected {expected}, measured {verdict.measured_days:.1f} days by the authors' clock "
        f"({verdict.true_days:.1f} true), {verdict.verdict}; {verdict.settings}, MBS {verdict.micro_batch}"
        f"{f', {verdict.reason}' if verdict.reason else ''}; raw times in trials.jsonl"
    )
