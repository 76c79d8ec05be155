"""Verdicts on the paper's cells from measured records."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any, Literal

from ..formats import listing
from ..machine import support
from ..paper.arithmetic import recipe_of
from ..paper.gpus import paper_gpus
from ..paper.settings import NAIVE, Settings, search_space
from ..paper.tables import TOLERANCE, AtPlace, Cell, PublishedSettings, State, all_cells, settings_by_place
from ..record import CLOCKS, DEFAULT, Clock, Origin, Record, days_text, other
from ..validity import disturbance, feasible, larger_may_fit
from .settings_search import standing

Word = Literal["reproduced", "faster", "slower", "feasibility_differs", "no_reference", "not_measured"]
FAILED: tuple[Word, ...] = ("faster", "slower", "feasibility_differs")
_ORIGINS: tuple[Origin, ...] = ("measured", "projected")  # in the order in which they count
_ROUNDING = 0.5  # the tables print whole days


@dataclass(frozen=True)
class Judgement:
    """The result for a cell by one clock: the days of its fastest settings. `reason` explains fields that are None.
    Where its days are `projected` it verifies nothing; where they are `disturbed`, `reason` says by what."""

    verdict: Word
    days: float | None
    settings: str | None
    micro_batch: int | None
    reason: str
    projected: bool = False
    disturbed: bool = False

    @property
    def compared(self) -> bool:
        """Return whether the cell was compared: it was measured and the paper has a reference."""
        return not self.projected and self.verdict not in ("not_measured", "no_reference")


@dataclass(frozen=True)
class Verdict(AtPlace):
    """The judgements of one cell by each clock; the one by `clock` counts. `expected_days` is None where the paper has
    none; `expected` says why: infeasible, lost."""

    table: str
    model: str
    gpu: str
    gpus: int
    expected: State
    expected_days: int | None
    clock: Clock
    true: Judgement
    authors: Judgement
    tolerance: float = TOLERANCE

    def by(self, clock: Clock) -> Judgement:
        """Return the judgement by this clock."""
        return self.true if clock == "true" else self.authors

    @property
    def chosen(self) -> Judgement:
        """Return the judgement that counts."""
        return self.by(self.clock)

    @property
    def verdict(self) -> Word:
        return self.chosen.verdict

    @property
    def reason(self) -> str:
        return self.chosen.reason

    @property
    def compared(self) -> bool:
        """Return whether the cell was compared: it was measured and the paper has a reference."""
        return self.chosen.compared

    @property
    def differs(self) -> bool:
        """Return whether the cell was compared, and differs."""
        return self.compared and self.verdict in FAILED

    @property
    def projected(self) -> bool:
        """Return whether the days are projected: they verify nothing."""
        return self.chosen.projected

    @property
    def cell(self) -> str:
        """Return the cell's name."""
        return f"Table {self.table}, {self.model} on {self.machine}"

    def row(self) -> dict[str, Any]:
        """Return a flat row for machines: the cell, then `judged`."""
        cell = {name: getattr(self, name) for name in ("table", "model", "gpu", "gpus", "expected", "expected_days")}
        return cell | self.judged()

    def judged(self) -> dict[str, Any]:
        """Return the verdict by `clock`, and whether it is projected; then each judgement's fields by clock:
        true_verdict, true_days, authors_reason."""
        both = {f"{clock}_{name}": value for clock in CLOCKS for name, value in asdict(self.by(clock)).items()}
        return {"clock": self.clock, "verdict": self.verdict, "projected": self.projected} | both


def bounds(expected: int, tolerance: float) -> tuple[float, float]:
    """Return the least and the most days that are within `tolerance` (relative) of any value that rounds to the printed
    days."""
    return (expected - _ROUNDING) * (1 - tolerance), (expected + _ROUNDING) * (1 + tolerance)


def within(measured: float, expected: int, tolerance: float) -> Literal["reproduced", "faster", "slower"]:
    """Compare days: reproduced is within `tolerance` (relative) of any value that rounds to the printed days."""
    low, high = bounds(expected, tolerance)
    if measured < low:
        return "faster"
    if measured > high:
        return "slower"
    return "reproduced"


def comparable_with_cell(record: Record) -> bool:
    """Return whether a record can be compared with a cell of the paper: on a machine like the paper's, with its
    attention and, on the paper's GPUs, with TF32 exactly where free lunch is on (all of them have TF32)."""
    return record.comparable_with_paper and _as_in_paper(record)


def _as_in_paper(record: Record) -> bool:
    settings = Settings.parse(record.settings)
    as_asked = record.as_run.asked_tf32 == settings.free_lunch or record.device not in paper_gpus()
    return settings == settings.base and as_asked


def judge_tables(
    records: Iterable[Record],
    tolerance: float,
    clock: Clock = DEFAULT,
    cells: Iterable[Cell] | None = None,
) -> list[Verdict]:
    """Return a verdict by `clock` for each of these cells, by default those of Tables 1 and 4, from the records that
    can be compared with a cell. One of which none can is judged by the projected trials of its machine."""
    by_place: dict[tuple[Origin, str, str, int], list[Record]] = {}
    for record in records:
        if record.like_papers and _as_in_paper(record):
            by_place.setdefault((record.origin, record.recipe, record.device, record.count), []).append(record)
    rows = settings_by_place()

    def by_clock(cell: Cell, clock: Clock) -> Judgement:
        place = (recipe_of(cell.model).id, cell.gpu, cell.gpus)
        measured, projected = (
            _Judge(cell, rows.get(cell.place), tolerance, clock, by_place.get((origin, *place), []))
            for origin in _ORIGINS
        )
        found = measured.judge()
        if found.verdict != "not_measured" or not projected.there:
            return found
        found = projected.judge()
        return replace(found, projected=found.verdict != "not_measured")

    def verdict(cell: Cell) -> Verdict:
        true, authors = (by_clock(cell, each) for each in CLOCKS)
        return Verdict(cell.table, *cell.place, cell.state, cell.days, clock, true, authors, tolerance)

    return list(map(verdict, all_cells() if cells is None else cells))


@dataclass(frozen=True)
class _Judge:
    """Judges one cell by one clock, by the records `there` of its machine. `published` is its row of Appendix J, None
    where there is none."""

    cell: Cell
    published: PublishedSettings | None
    tolerance: float
    clock: Clock
    there: Sequence[Record]

    @cached_property
    def readings(self) -> set[str]:
        """Return the settings that the row of Appendix J may mean."""
        return {settings.id for settings in self.published.readings()} if self.published else set()

    @cached_property
    def records(self) -> list[Record]:
        """Return the records of the cell's settings: naive ones in Table 4, all others in Table 1."""
        naive = self.cell.table == "4"
        return [record for record in standing(self.there).values() if (record.settings == NAIVE.id) == naive]

    @cached_property
    def settled(self) -> set[str]:
        """Return the settings of which is known whether they fit."""
        return {record.settings for record in self.records if feasible(record) is not None}

    @property
    def unsettled(self) -> set[str]:
        """Return the settings that may still turn out to be faster than the measured ones, or to fit."""
        return set() if self.cell.table == "4" else self.readings - self.settled

    def judge(self) -> Judgement:
        """Judge the cell."""
        if not self.there:
            return _judgement("not_measured", f"no run on {self.cell.machine}")
        if reason := self._not_searched():
            return _judgement("not_measured", reason)
        return self._of_what_ran() if any(record.timed for record in self.records) else self._of_none_ran()

    def _not_searched(self) -> str:
        """Return why a cell of Table 1, the best of a search, cannot be judged by what ran; empty where it can."""
        space = {settings.id for settings in search_space(self.cell.gpus)}
        if self.cell.table == "4" or space <= self.settled or self.readings & self.settled:
            return ""
        wanted = "Appendix J's settings were" if self.readings else "the whole search space was"
        not_run = f"{wanted} not run; --methods {'published' if self.readings else 'all'} does"
        return self._failures(self.readings or space) or not_run

    def _of_what_ran(self) -> Judgement:
        """Judge a cell of which some settings ran, by the fastest of them. For an infeasible cell, only settings that
        fit the memory of the paper's hosts count."""
        ran = [record for record in self.records if record.timed]
        there_too = [
            record
            for record in ran
            if self.cell.state != "infeasible" or support.fits_papers_hosts(*record.recipe_and_settings, record.world)
        ]
        best = min(there_too or ran, key=lambda record: record.days_by(self.clock) or 0.0)
        measured = best.days_by(self.clock)
        if not there_too:
            reason = "infeasible in the paper, whose jobs had 64 GB of host memory a GPU; here is more"
            return _judgement("no_reference", reason, best, measured)
        if self.cell.state == "lost":
            return _judgement("no_reference", "the paper's mark is lost", best, measured)
        if self.cell.state == "infeasible":
            return _judgement("feasibility_differs", "infeasible in the paper, it ran here", best, measured)
        assert measured is not None
        word = self._held(measured)
        if word == "reproduced":
            return _judgement(word, _doubts(best), best, measured)
        if word == "slower" and self.unsettled:
            text = f"{best.settings} takes {days_text(measured, self.clock)}, {self._lacking}"
            return _judgement("not_measured", text)
        if word == "slower" and (beside := larger_may_fit(best)):
            text = f"{best.settings} takes {days_text(measured, self.clock)} at MBS {best.batch.compared_micro_batch}"
            return _judgement("not_measured", f"{text}, and {beside}")
        return _judgement(word, "; ".join(filter(None, [self._explained(best), _doubts(best)])), best, measured)

    def _held(self, measured: float) -> Literal["reproduced", "faster", "slower"]:
        assert self.cell.days is not None
        return within(measured, self.cell.days, self.tolerance)

    def _explained(self, record: Record) -> str:
        """Return an explanation why the days of a record differ from the printed ones."""
        # Only a cell that differs needs predictions, which are slow to load.
        from .differences import explain_difference

        row = self.published if record.settings in self.readings and self.cell.table == "1" else None
        return explain_difference(
            record,
            self.cell,
            row.mbs if row else None,
            self.clock,
            lambda measured: self._held(measured) == "reproduced",
        )

    @property
    def _lacking(self) -> str:
        """Describe the other readings of Appendix J's row that did not run, and how they failed."""
        ends = self._failures(self.unsettled)
        return f"and of other readings of Appendix J {len(self.unsettled)} did not run{f' ({ends})' if ends else ''}"

    def _failures(self, settings: Collection[str]) -> str:
        """Describe the ends of those of these settings that are not settled."""
        return _ends(each for each in self.records if each.settings in settings and each.settings not in self.settled)

    def _of_none_ran(self) -> Judgement:
        """Judge a cell of which no settings ran; the result is known only where all of them ran out of memory."""
        others = _ends(each for each in self.records if feasible(each) is None)
        if not self.records or others:
            return _judgement("not_measured", others or "no such settings run")
        if self.unsettled:
            full = f"{listing(sorted(self.settled))} ran out of memory, {self._lacking}"
            return _judgement("not_measured", full)
        if self.cell.state == "lost":
            return _judgement("no_reference", "the paper's mark is lost; out of memory here")
        if self.cell.state == "infeasible":
            return _judgement("reproduced", "infeasible in the paper, and out of memory here")
        reason = f"the paper has {self.cell.days} days, all settings ran out of memory here"
        return _judgement("feasibility_differs", reason)


def _judgement(word: Word, reason: str, record: Record | None = None, measured: float | None = None) -> Judgement:
    settings, micro_batch = (record.settings, record.batch.compared_micro_batch) if record else (None, None)
    return Judgement(word, measured, settings, micro_batch, reason, disturbed=bool(record and disturbance(record)))


def _ends(records: Iterable[Record]) -> str:
    """Return the outcomes of these records as text, without duplicates."""
    return "; ".join(sorted({_end(record) for record in records}))


def _end(record: Record) -> str:
    if record.status == "not_measured":
        return record.reason
    of_paper = "; the paper's jobs had 64 GB of host memory a GPU" if record.host_ran_out else ""
    return f"{record.status}: {record.reason}{of_paper}"


def _doubts(record: Record) -> str:
    """Describe deviations of how it ran: not as its settings ask, or on a disturbed GPU."""
    found = [
        "measured uncompiled, for compiling it crashed" if ran_uncompiled(record) else "",
        "fp32 products ran without the TF32 asked for"
        if record.as_run.asked_tf32 and record.as_run.tf32 is False
        else "",
        disturbance(record),
    ]
    return "; ".join(filter(None, found))


def ran_uncompiled(record: Record) -> bool:
    """Return whether it was measured uncompiled although its settings ask for compiling."""
    return record.timed and support.compiles(*record.recipe_and_settings) and not record.as_run.compiled


def differing(counts: Mapping[Word, int]) -> str:
    """Return the counts of differing cells as text: 1 faster, 2 slower."""
    return ", ".join(f"{counts[word]} {word.replace('_', ' ')}" for word in FAILED if counts[word])


def explain(verdict: Verdict) -> str:
    """Return one line on a failing cell: the printed and the measured days, the settings, and where to look."""
    chosen, beside = verdict.chosen, verdict.by(other(verdict.clock))
    if chosen.days is None:
        return f"{verdict.cell}: {chosen.reason}; see trials.jsonl"
    printed = verdict.expected if verdict.expected_days is None else f"{verdict.expected_days} days"
    measured = days_text(chosen.days, verdict.clock)
    if beside.days is not None:
        measured += f" ({days_text(beside.days, other(verdict.clock))})"
    return (
        f"{verdict.cell}: printed {printed}, {'projected' if verdict.projected else 'measured'} {measured}, "
        f"{chosen.verdict}; {chosen.settings}, "
        f"MBS {chosen.micro_batch}{f', {chosen.reason}' if chosen.reason else ''}; raw times in trials.jsonl"
    )
