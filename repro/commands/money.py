"""Options shared by the commands on money, and the reading of their values."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from dataclasses import replace

from ..console import UserError
from ..formats import Interval, add_format, count_if_given, counted, listing, path
from ..money.days import DaysAsked, Measurement, ModelDays, TrainingDays
from ..money.prices import GpuPrice, PriceList, Rental, amount, canonical_gpu, check, price_list, worth
from ..money.renting import serving
from ..paper.custom_gpu import custom_gpu
from ..paper.gpus import CustomGpu, Gpu, by_name, paper_gpus
from ..run.plan import ModernMethods
from .day_options import add_by, add_measured_days, add_stack, measured_days

_MOST_GPUS = 100_000  # as many as the largest clusters have
GPU_OR_FILE = "only this GPU: a name, or a TOML file that describes one of your own"


def add_shared(parser: argparse.ArgumentParser) -> None:
    """Add --prices, --currency, --by, --stack, --measured and --format."""
    parser.add_argument(
        "--prices",
        type=path,
        metavar="FILE",
        help="TOML with prices of your own, which replace ours: see docs/prices.md",
    )
    parser.add_argument("--currency", metavar="CODE", help="currency of all sums, such as EUR (default: USD)")
    add_by(parser)
    add_stack(parser, "today")
    add_measured_days(parser)
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


def model_days(
    given: argparse.Namespace, methods: ModernMethods | None = None, trained: Iterable[Measurement] = ()
) -> ModelDays:
    """Return what is known of the days of --model."""
    runs, shipped = measured_days(given)
    known = ModelDays(given.model, DaysAsked(given.by, given.stack, runs, shipped, methods, tuple(trained)))
    known.check_runs()
    return known


def days_on(
    known: ModelDays, gpu: str | CustomGpu | None, gpus: int | None, prices: PriceList | None = None
) -> list[TrainingDays]:
    """Return the days on that GPU and that number of them; None matches all numbers, and of GPUs those of the paper,
    whose kinds were measured, those that the user's file has prices of, and measured ones. Raise UserError where there
    are none, naming those that are known."""
    if isinstance(gpu, CustomGpu):
        asked: list[Gpu] = [gpu]
    else:
        asked = [by_name()[each] for each in (_compared(prices) if gpu is None else [gpu]) if each in by_name()]
    name = gpu.name if isinstance(gpu, CustomGpu) else gpu
    if gpu is not None and gpus is not None and (row := known.on(asked[0], gpus)) is not None:
        return [row]
    days = known.everywhere(asked)
    there = [row for row in days if name in (None, row.gpu)]
    found = [row for row in there if gpus in (None, row.gpus)]
    if not found:
        machine = f"{gpus or ''} {name or ('GPU' if gpus == 1 else 'GPUs')}".strip()
        counts = sorted({row.gpus for row in there})
        names = f"{', '.join(map(str, counts))} {name or 'GPUs'}" if counts else ""
        if known.traced is None and not counts:
            names = listing(list(dict.fromkeys(row.gpu for row in days)))
        raise UserError(f"{_unknown(known, gpus)} on {machine}{f'; known: {names}' if names else ''}")
    return found


def _compared(prices: PriceList | None) -> list[str]:
    priced = [] if prices is None else [*prices.own_to_buy, *(rental.gpu for rental in prices.own_rentals)]
    return list(dict.fromkeys([*paper_gpus(), *sorted(priced)]))


def compared_text(gpu: str | CustomGpu | None) -> list[str]:
    """Return a sentence on the GPUs that are compared where none is named."""
    return [] if gpu else ["The paper's GPUs, measured ones and those that --prices has: --gpu names another."]


def _unknown(known: ModelDays, gpus: int | None) -> str:
    """Return the beginning of a sentence that says why a machine has no days."""
    model = known.recipe.id
    if known.asked.by == "printed":
        return f"the paper prints no days of {model}"
    return f"{model} does not train" if known.foretells(gpus) else f"nobody knows how long {model} takes"


def without_days(
    known: ModelDays,
    days: Sequence[TrainingDays],
    gpus: Iterable[str] = (),
    systems: Iterable[int] = (),
    rentals: Sequence[Rental] = (),
) -> list[str]:
    """Return sentences on the entries of --prices that no row can have: the model does not fit there, or its days are
    not known. `gpus` are GPUs, `systems` numbers of GPUs in a system, `rentals` rented machines. A price that the user
    wrote is not ignored silently."""
    there = {row.gpu for row in days}
    hired = {(one.gpu, one.gpus) for one in rentals if not any(serving([one], row.gpu, row.gpus) for row in days)}
    lacking = {  # pairs of GPU and number; "" and None mean any
        *hired,
        *((gpu, None) for gpu in set(gpus) - there),
        *(("", number) for number in set(systems) - {row.gpus for row in days}),
    }

    def message(machines: Iterable[tuple[str, int | None]]) -> str:
        ordered = sorted(machines, key=lambda each: (each[0] == "", each[0], each[1] or 0))
        names = (
            f"{n} {gpu}" if gpu in there else gpu or f"machines with {counted(n or 0, 'GPU')}" for gpu, n in ordered
        )
        return listing(list(dict.fromkeys(names)))

    kinds: dict[str, set[tuple[str, int | None]]] = {}
    for machine in lacking:
        kinds.setdefault(_unknown(known, machine[1]), set()).add(machine)
    return [f"In --prices, but {reason} there: {message(machines)}." for reason, machines in sorted(kinds.items())]


def way_out(unit: str) -> str:
    """Return advice how to give a machine a price in a currency."""
    return f"give prices, or a [[rate]] to {unit}, with --prices"


def read_gpu(given: argparse.Namespace) -> str | None:
    """Return the GPU that --gpu names; None without it. Raise UserError where it is a file, which `read_any_gpu`
    takes."""
    if custom_gpu(given.gpu):
        raise UserError(f"--gpu {given.gpu}: a file is for predict, recommend and scaling; name a GPU of the catalogue")
    return None if given.gpu is None else canonical_gpu(given.gpu, "--gpu")


def read_gpus(given: argparse.Namespace) -> int | None:
    """Return the number of GPUs in --gpus; None without it."""
    return count_if_given(given.gpus, "--gpus", most=_MOST_GPUS)


def read_any_gpu(given: argparse.Namespace, prices: PriceList) -> tuple[str | CustomGpu | None, PriceList]:
    """Return the GPU that --gpu names or describes, None without it, and the prices, with its own if it has one."""
    gpu = custom_gpu(given.gpu)
    if gpu is None:
        return read_gpu(given), prices
    if any(given.measured or ()):
        raise UserError(f"--measured changes nothing of --gpu {gpu.file}, whose days are predicted: leave it out")
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
    if given.measured is not None:
        raise UserError("--measured needs --model ID: which model's days?")
