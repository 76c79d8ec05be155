"""Options shared by the commands on money, and the reading of their values."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from dataclasses import replace

from .. import models
from ..console import UserError
from ..formats import Interval, add_format, count_if_given, counted, listing, path
from ..money.days import TrainingDays, predicted_days
from ..money.prices import GpuPrice, PriceList, Rental, amount, canonical_gpu, check, price_list, worth
from ..money.renting import serving
from ..paper.arithmetic import recipe_of
from ..paper.gpus import OwnGpu
from ..paper.own_gpu import own_gpu
from ..paper.tables import cells
from ..run.reading import add_measured

_MOST_GPUS = 100_000  # as many as the largest clusters have
GPU_OR_FILE = "only this GPU: a name, or a TOML file that describes one of your own"


def add_shared(parser: argparse.ArgumentParser) -> None:
    """Add --prices, --currency, --measured, --predicted and --format."""
    parser.add_argument(
        "--prices",
        type=path,
        metavar="FILE",
        help="TOML with prices of your own, which replace ours: see docs/prices.md",
    )
    parser.add_argument("--currency", metavar="CODE", help="currency of all sums, such as EUR (default: USD)")
    add_measured(parser, "take days from this results folder in place of the paper's")
    parser.add_argument("--predicted", action="store_const", const=True, help="add GPUs whose days are only predicted")
    add_format(parser)


def read_prices(given: argparse.Namespace) -> tuple[str, PriceList]:
    """Return the currency of all sums, and the prices."""
    unit = "USD" if given.currency is None else check(given.currency, "--currency")
    return unit, price_list(given.prices)


def read_sum(text: str, option: str, unit: str, prices: PriceList) -> Interval:
    """Return a sum of money in the currency of all sums. Raise UserError where no rate converts it."""
    value, given = amount(text, option, unit)
    each = worth(given, unit, prices.rates)
    if each is None:
        raise UserError(f"{option} {text}: no rate from {given} to {unit}; give a [[rate]] in --prices")
    return value * each


def given_in(given: argparse.Namespace, options: Iterable[str], unit: str) -> set[str]:
    """Return the currencies of the sums in these options."""
    texts = {name: getattr(given, name) for name in options}
    return {amount(text, name, unit)[1] for name, text in texts.items() if text is not None}


def unpriced(machines: Sequence[str], unit: str, so: str) -> list[str]:
    """Return a sentence on machines without a price, such as 2 A100, with the consequence `so` and the way out; none
    without such machines."""
    counts: dict[str, list[str]] = {}
    for machine in machines:
        count, _, gpu = machine.partition(" ")
        counts.setdefault(gpu, []).append(count)
    message = "; ".join(f"{listing(each)} {gpu}" for gpu, each in counts.items())
    return [f"Without a price in {unit}, and so {so}: {message}; {way_out(unit)}."] if machines else []


def without_days(
    days: Sequence[TrainingDays],
    given: argparse.Namespace,
    gpus: Iterable[str] = (),
    systems: Iterable[int] = (),
    rentals: Sequence[Rental] = (),
) -> list[str]:
    """Return sentences on the entries of --prices that no row can have: the model does not fit there, or its days are
    not known. `gpus` are GPUs, `systems` numbers of GPUs in a system, `rentals` rented machines. A price that the user
    wrote is not ignored silently."""
    known = {row.gpu for row in days}

    def lacking(rows: Sequence[TrainingDays]) -> set[tuple[str, int]]:
        """Return pairs of GPU and number; "" and 0 mean any."""
        there = {row.gpu for row in rows}
        hired = {(one.gpu, one.gpus) for one in rentals if not any(serving([one], row.gpu, row.gpus) for row in rows)}
        return (
            hired | {(gpu, 0) for gpu in set(gpus) - there} | {("", n) for n in set(systems) - {r.gpus for r in rows}}
        )

    def message(machines: set[tuple[str, int]]) -> str:
        whole = sorted({gpu for gpu, _ in machines if gpu and gpu not in known})
        numbered = [f"{number} {gpu}" for gpu, number in sorted(machines) if gpu in known]
        return listing(
            whole + numbered + [f"machines with {counted(n, 'GPU')}" for gpu, n in sorted(machines) if not gpu]
        )

    found, sentences = lacking(days), []
    if given.model in models.IDS:
        full = {(c.gpu, c.gpus) for c in cells("1") if c.state == "infeasible" and recipe_of(c.model).id == given.model}
        if too_large := found & full:
            sentences.append(f"In --prices, but {given.model} does not fit there: {message(too_large)}.")
        found -= full
    if found:
        foretold = set[tuple[str, int]]()
        if not given.predicted and given.model in models.IDS:
            foretold = found - lacking([*days, *predicted_days(given.model)])
        predicted = f"; --predicted brings predicted days on {message(foretold)}" if foretold else ""
        unknown = f"In --prices, but nobody knows how long {given.model} takes there"
        sentences.append(f"{unknown}: {message(found)}{predicted}.")
    return sentences


def way_out(unit: str) -> str:
    """Return advice how to give a machine a price in a currency."""
    return f"give prices, or a [[rate]] to {unit}, with --prices"


def read_gpu(given: argparse.Namespace) -> str | None:
    """Return the GPU that --gpu names; None without it. Raise UserError where it is a file, which `read_any_gpu`
    takes."""
    if own_gpu(given.gpu):
        raise UserError(f"--gpu {given.gpu}: a file is for predict, recommend and scaling; name a GPU of the catalogue")
    return None if given.gpu is None else canonical_gpu(given.gpu, "--gpu")


def read_gpus(given: argparse.Namespace) -> int | None:
    """Return the number of GPUs in --gpus; None without it."""
    return count_if_given(given.gpus, "--gpus", most=_MOST_GPUS)


def read_any_gpu(given: argparse.Namespace, prices: PriceList) -> tuple[str | OwnGpu | None, PriceList]:
    """Return the GPU that --gpu names or describes, None without it, and the prices, with its own if it has one."""
    gpu = own_gpu(given.gpu)
    if gpu is None:
        return read_gpu(given), prices
    if gpu.price is None or gpu.quoted is None:
        return gpu, prices
    price = GpuPrice(gpu.name, *gpu.price, gpu.quoted, gpu.source)
    return gpu, replace(prices, gpus=prices.gpus | {gpu.name: price})


def check_run(given: argparse.Namespace) -> None:
    """Raise UserError where two options set how long a run takes."""
    if given.hours is None:
        return
    if given.model is not None:
        raise UserError("--model and --hours exclude each other: both say how long a run takes")
    for option in ("measured", "predicted"):
        if getattr(given, option) is not None:
            raise UserError(f"--{option} needs --model ID: which model's days?")
