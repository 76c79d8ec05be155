"""The order of runs: what decides most cells and claims a dollar, or a minute, first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import inf, prod

from ..paper.tables import Cell
from .runs import SETTING_UP, Run, resting_on

RESERVE = 0.25  # of the estimated minutes, which are within 25 % of those of results/h100
Machine = tuple[str, int]


@dataclass(frozen=True)
class Limits:
    """What may be spent: a budget in a currency, with the rent of an hour of each machine that has a price, and minutes
    of all machines together. Where there is no budget, minutes are what is spared."""

    rents: dict[Machine, float]
    budget: float | None = None
    minutes: float | None = None

    def cost(self, machine: Machine, minutes: float) -> float:
        """Return what so many estimated minutes of a machine cost, with the reserve: money, or minutes."""
        reserved = (1 + RESERVE) * minutes
        return reserved if self.budget is None else reserved / 60 * self.rents.get(machine, inf)


@dataclass(frozen=True)
class Row:
    """A run of the list: what it costs with the reserve, what it decides, and how much of that on average. The first
    run on a machine pays for setting it up."""

    run: Run
    minutes: float
    cells: tuple[Cell, ...]
    claims: tuple[str, ...]
    expected_cells: float
    expected_claims: float

    @property
    def probability(self) -> float:
        """Return the probability that it decides what it lists, in the mean."""
        there = len(self.cells) + len(self.claims)
        return min(1.0, (self.expected_cells + self.expected_claims) / there) if there else 0.0


@dataclass
class Orderer:
    """Chooses runs, of which `claims` says which cells each claim rests on."""

    runs: Sequence[Run]
    limits: Limits
    claims: dict[str, frozenset[Cell]] = field(default_factory=resting_on)

    @cached_property
    def odds(self) -> dict[Cell, float]:
        """Return the probability that a cell is decided, of those that some run may decide within the budget."""
        return {each.cell: each.decides for run in self.runs for each in run.odds}

    @cached_property
    def credits(self) -> dict[Cell, float]:
        """Return what deciding a cell adds to the claims that rest on it: their probability, shared by their cells."""
        found = dict.fromkeys(self.odds, 0.0)
        for of_claim in self.claims.values():
            if of_claim <= self.odds.keys():
                for cell in of_claim:
                    found[cell] += prod(self.odds[each] for each in of_claim) / len(of_claim)
        return found

    def chosen(self) -> list[Run]:
        """Return the runs that fit the limits, machine by machine, the best a dollar first. Claims on many cells pay
        only once all these are decided, so the list that looks at cells alone is tried too."""
        lists = [self._greedy(lambda cell: self.credits[cell]), self._greedy(lambda cell: 0.0)]
        return max(lists, key=lambda runs: sum(row.expected_cells + row.expected_claims for row in self.rows(runs)))

    def _greedy(self, credit: Callable[[Cell], float]) -> list[Run]:
        """Take again and again what brings most for its cost: a run on a machine that is rented already, or the best
        beginning of the runs on another, which also pays for setting it up."""
        gains = {run: sum(each.decides + credit(each.cell) for each in run.odds) for run in self.runs}
        cost = {run: self.limits.cost(run.machine, run.minutes) for run in self.runs}
        waiting: dict[Machine, list[Run]] = {}
        for run in sorted(self.runs, key=lambda run: gains[run] / cost[run], reverse=True):
            if cost[run] < inf:
                waiting.setdefault(run.machine, []).append(run)
        taken: dict[Machine, list[Run]] = {}
        spent, minutes = 0.0, 0.0
        while True:
            best: tuple[float, list[Run], float, float] | None = None
            for machine, runs in waiting.items():
                setting_up = 0.0 if machine in taken else SETTING_UP
                beginning: list[Run] = []
                gain, needs = 0.0, setting_up
                for run in runs if setting_up else runs[:1]:
                    if not self._fits(spent, minutes, machine, needs + run.minutes):
                        continue
                    gain, needs, beginning = gain + gains[run], needs + run.minutes, [*beginning, run]
                    ratio = gain / self.limits.cost(machine, needs)
                    if best is None or ratio > best[0]:
                        best = ratio, beginning, needs, self.limits.cost(machine, needs)
                if not setting_up and not beginning:  # the first does not fit: the next one may
                    runs[:1] = []
            if best is None:
                if not any(machine in taken and runs for machine, runs in waiting.items()):
                    return [run for runs in taken.values() for run in runs]
                continue
            _, beginning, needs, costs = best
            machine = beginning[0].machine
            taken.setdefault(machine, []).extend(beginning)
            waiting[machine] = [run for run in waiting[machine] if run not in beginning]
            spent, minutes = spent + costs, minutes + (1 + RESERVE) * needs

    def _fits(self, spent: float, minutes: float, machine: Machine, needs: float) -> bool:
        limits = self.limits
        in_budget = limits.budget is None or spent + limits.cost(machine, needs) <= limits.budget
        return in_budget and (limits.minutes is None or minutes + (1 + RESERVE) * needs <= limits.minutes)

    def rows(self, runs: Sequence[Run]) -> list[Row]:
        """Return what each run of a list decides after those before it."""
        found, done, rented = [], set[Cell](), set[Machine]()
        for run in runs:
            cells = tuple(each.cell for each in run.odds)
            after = done | set(cells)
            claims = [id for id, of_claim in self.claims.items() if of_claim <= after and not of_claim <= done]
            minutes = run.minutes + (0.0 if run.machine in rented else SETTING_UP)
            row = Row(
                run,
                (1 + RESERVE) * minutes,
                cells,
                tuple(claims),
                sum(each.decides for each in run.odds),
                sum(prod(self.odds[cell] for cell in self.claims[id]) for id in claims),
            )
            found.append(row)
            done = after
            rented.add(run.machine)
        return found
