"""Explanations of measured days that differ from the printed ones of a cell."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from math import log

from ..formats import listing, significant
from ..paper.arithmetic import paper_gpu
from ..paper.tables import Cell
from ..predict.fits import EVERYTHING, fitted_constants
from ..predict.forecast import forecast
from ..predict.hardware import Machine
from ..predict.traces import PAPER_STACK, Traced, shipped
from ..record import CLOCKS, Clock, Record, days_text

NOT_EXPLAINED = "not explained"
_SHOWS = "the authors' clock shows when kernels were launched, not when they ended"


def explain_difference(
    record: Record, cell: Cell, printed_micro_batch: int | None, clock: Clock, agree: Callable[[float], bool]
) -> str:
    """Return what explains best that a record's days by a clock differ from the printed ones of a cell, with its
    arithmetic: of the explanations whose days `agree` with the printed ones the nearest.

    `printed_micro_batch` is Appendix J's for these settings, None where it prints none.
    """
    assert cell.days is not None
    printed = cell.days
    agreeing = [each for each in _explanations(record, cell, printed_micro_batch, clock) if agree(each[0])]
    return min(agreeing, key=lambda each: abs(log(each[0] / printed)))[1] if agreeing else NOT_EXPLAINED


def _explanations(
    record: Record, cell: Cell, printed_micro_batch: int | None, clock: Clock
) -> Iterator[tuple[float, str]]:
    """Yield days and their arithmetic for each thing that the paper did otherwise, alone and with others: its clock,
    its stack, its micro batch. Another clock's days are measured too; the rest is predicted, as a ratio."""
    (recipe, settings), today = record.recipe_and_settings, shipped()[-1]
    machine, fitted = Machine(paper_gpu(cell.gpu), cell.gpus), fitted_constants()[EVERYTHING]

    def predicted(stack: Traced, micro_batch: int, clock: Clock) -> float | None:
        found = forecast(recipe, machine, settings, fitted, stack, micro_batch=micro_batch)
        return found.days.value if clock == "true" and found.days else found.authors_days

    for by in CLOCKS:
        measured, here = record.days_by(by), record.micro_batch_by(by)
        if not measured or not here:
            continue
        micro_batches = dict.fromkeys((here, printed_micro_batch or here))
        for stack, micro_batch in product((today, PAPER_STACK), micro_batches):
            changes = {
                "the launch queue": by != clock,
                "the micro batch": micro_batch != record.micro_batch_by(clock),
                "the stack": stack != today,
            }
            named = [change for change, there in changes.items() if there]
            if not named or (by == "true" != clock and (stack, micro_batch) != (today, here)):
                continue  # the paper's clock is the authors', on its stack and at its micro batch
            what = f"{listing(named)} {'explains' if len(named) == 1 else 'explain'} it: {days_text(measured, by)}"
            if (stack, micro_batch) == (today, here):
                yield measured, f"{what} agree, and {_SHOWS}"
                continue
            then, now = predicted(stack, micro_batch, by), predicted(today, here, by)
            if then is None or now is None:
                continue
            days = measured * then / now
            at = f"at MBS {micro_batch} on {'the paper' if stack == PAPER_STACK else 'today'}'s stack"
            yield (
                days,
                f"{what} x {significant(then)} predicted {at} / {significant(now)} predicted at MBS {here} on today's "
                f"stack = {significant(days)} days",
            )
