"""`repro verify`: list the runs that decide most of the paper for a budget, or in a time; or check a certificate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

from .. import files
from ..console import UserError, say
from ..formats import count, counted, listing, path
from ..money.amounts import budget as parse_budget
from ..money.amounts import money_text
from ..money.prices import PriceList, Rental, old, price_list, serving, worth
from ..options import Output, argument, given, option
from ..paper.gpus import find, paper_gpus
from ..printout import Column, finite, screen
from .calculator import currency_option
from .certificate import check

if TYPE_CHECKING:
    from ..verify.order import Row


def _of_paper(name: str, option: str) -> str:
    known = find(name)
    if known is None or known.paper_name is None:
        raise UserError(f"{option} {name}: expected a GPU of the paper's, {', '.join(paper_gpus())}")
    return known.paper_name


@dataclass(frozen=True, kw_only=True)
class Asked(Output):
    usage = "%(prog)s (--budget SUM | --minutes N | --gpu NAME | certificate.json DIR ...) [OPTIONS]"
    files: tuple[Path, ...] = argument(
        "a certificate that report wrote, and the folders it is of", "FILE", path, nargs="*"
    )
    budget: float | None = option("what the rented machines of all runs may cost together", "SUM", parse_budget)
    minutes: int | None = option("minutes that all runs may take together", "N", count)
    gpu: str | None = option("only this GPU of the paper's", "NAME", _of_paper)
    currency: str = currency_option()
    prices: Path | None = option("TOML with rentals of your own: docs/own-prices.toml", "FILE", path)
    script: Path | None = option(
        "write into DIR, for each rented machine, a shell script that sets up, goes through its runs, packs what "
        "they measured and shuts the machine down; a SkyPilot file beside it, and this checkout",
        "DIR",
        path,
    )
    at_the_end: str | None = option("in place of shutting down: the provider's own command", "COMMAND")


def main(asked: Asked) -> int:
    from ..verify.order import Limits, Orderer
    from ..verify.runs import SETTING_UP, candidates

    plans = given(asked, ("budget", "minutes", "gpu", "script", "at_the_end"))
    if asked.files:
        if plans:
            raise UserError(f"{asked.files[0]} is checked, {plans[0]} plans runs: give files or {plans[0]}, not both")
        return check(asked.files, asked.format, asked.all)
    if not plans:
        raise UserError("expected --budget SUM, --minutes N or --gpu NAME, such as --budget 20, or a certificate")
    if asked.script is not None and asked.budget is None:
        raise UserError(f"--script {asked.script}: it ends a rented machine, whose price --budget SUM limits: add it")
    if asked.at_the_end is not None and (asked.script is None or not asked.at_the_end.strip()):
        raise UserError("--at-the-end COMMAND: expected a command, for the scripts of --script DIR")
    budget, unit, prices = asked.budget, asked.currency, price_list(asked.prices)
    runs = candidates(asked.gpu, gpus=1 if budget is None else None)  # who names no budget has a machine, of one GPU
    machines = list(dict.fromkeys(run.machine for run in runs))
    rentals = {machine: rented for machine in machines if (rented := cheapest(machine, unit, prices))}
    limits = Limits({machine: hour for machine, (_, hour) in rentals.items()}, budget, asked.minutes)
    orderer = Orderer([run for run in runs if budget is None or run.machine in rentals], limits)
    rows = orderer.rows(orderer.chosen())
    without = [f"{count} x {name}" for name, count in machines if (name, count) not in rentals]
    if not rows:
        raise UserError(_nothing(asked, unit, without, bool(rentals)))

    def cost(row: Row) -> float | None:
        rented = rentals.get(row.run.machine)
        return None if rented is None else row.minutes / 60 * rented[1]

    def price(row: Row) -> str | None:
        rented = rentals.get(row.run.machine)
        return rented and f"{money_text(rented[1], unit)}/h, {rented[0].provider}, {rented[0].quoted}"

    costs = [each for row in rows if (each := cost(row)) is not None]
    decided = round(sum(row.expected_cells for row in rows)), round(sum(row.expected_claims for row in rows))
    minutes_needed = sum(row.minutes for row in rows)
    spends = f"Spend {money_text(sum(costs), unit)}" if budget is not None else f"Take {minutes_needed:.0f} minutes"
    decides = counted(decided[0], "cell") + (f" and {counted(decided[1], 'claim')}" if decided[1] else "")
    answer = f"{spends} on these {counted(len(rows), 'run')}: they decide about {decides}."
    columns = [
        Column("run", lambda row: f"{row.run.recipe} on {row.run.gpus} {row.run.gpu}", "run"),
        Column("price", price, "price"),
        Column("minutes", lambda row: finite(row.minutes, 1), "minutes"),
        Column(f"cost_{unit.lower()}", lambda row: finite(cost(row), 2), unit),
        Column("cells", lambda row: len(row.cells), "cells"),
        Column("claims", lambda row: len(row.claims), "claims", lambda number, row: number or None),
        Column("probability", lambda row: finite(row.probability, 2), "probability"),
        Column("command", lambda row: row.run.line),
        Column(
            "decides_cells",
            lambda row: "; ".join(f"Table {each.table}, {each.model} on {each.machine}" for each in row.cells),
        ),
        Column("decides_claims", lambda row: "; ".join(row.claims)),
        Column("gpu", lambda row: row.run.gpu),
        Column("gpus", lambda row: row.run.gpus),
        Column("provider", lambda row: (rented := rentals.get(row.run.machine)) and rented[0].provider),
        Column("quoted", lambda row: (rented := rentals.get(row.run.machine)) and rented[0].quoted.isoformat()),
    ]
    notes = [f"Minutes: estimates and a quarter more, with {SETTING_UP:g} in a machine's first run for setting it up."]
    if without and budget is not None:
        notes.append(f"No rental price in {unit}, and so left out: {_short(without)}; --prices FILE brings one.")
    late = sorted(
        {
            f"{name} at {rented.provider}"
            for (name, _), (rented, _) in rentals.items()
            if old(rented.quoted, date.today())
        }
    )
    if late:
        notes.append(f"Prices older than a year: {listing(late)}.")
    elif asked.script is None:
        notes.append("Left out are cells that kept results decide; --format json has commands, cells and claims.")
    if asked.script is not None:
        notes[1:] = [_written(rows, asked.script, asked.at_the_end), *notes[1:2]]
    print(screen(answer, columns, rows, notes, asked.format, asked.all))
    return 0


def _written(rows: Sequence[Row], folder: Path, at_the_end: str | None) -> str:
    """Write a script for each machine of the list, and what it needs. Return a note on them."""
    from ..machine import environment
    from ..verify.rental import CHECKOUT, scripts

    commit = environment.commit() or "unknown"
    found = scripts(rows, commit.removesuffix("-dirty"), at_the_end)
    files.refuse_to_replace(folder, [CHECKOUT, *found])
    for name, text in found.items():
        files.replace(folder / name, text)
    environment.archive(folder / CHECKOUT)
    if commit.endswith("-dirty"):
        say(f"{folder / CHECKOUT} is of the last commit: what has changed since is left out")
    shell = listing([name for name in found if name.endswith(".sh")])
    return f"Copy {folder} to a rented machine of each kind, and start its script there: {shell}."


def cheapest(machine: tuple[str, int], unit: str, prices: PriceList) -> tuple[Rental, float] | None:
    """Return the cheapest rental by the hour, with its price of an hour; None without one. Spot instances may end a run
    before it decides anything."""
    gpu, gpus = machine
    found = []
    for each in serving(prices.rentals, gpu, gpus):
        rate = worth(each.currency, unit, prices.rates)
        if each.terms == "on-demand" and rate is not None:
            found.append((each, each.price * rate * gpus / each.gpus))
    return min(found, key=lambda pair: pair[1], default=None)


def _nothing(asked: Asked, unit: str, without: list[str], priced: bool) -> str:
    if asked.budget is not None and not priced:
        return f"no rental price in {unit} of {_short(without)}: --prices FILE brings one, or plan with --minutes"
    limits = [f"--{name} {value:.15g}" for name in ("budget", "minutes") if (value := getattr(asked, name)) is not None]
    return f"no run fits {' and '.join(limits)}: give more"


def _short(machines: list[str]) -> str:
    return f"{', '.join(machines[:4])}{f' and {len(machines) - 4} more' if len(machines) > 4 else ''}"
