"""Prices, each with its date and source: GPUs and machines to buy (Appendix H, section 4.1), GPUs to rent."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from msgspec import Meta

from .. import command
from ..console import UserError, suggest_names, visible
from ..datafile import (
    ContradictionError,
    Count,
    CsvRow,
    Currency,
    Positive,
    csv_rows,
    named,
    read_csv,
    read_once,
    read_toml,
    table,
)
from ..formats import seconds
from ..paper.gpus import OfGpus, by_name, find, known_gpu

Terms = Literal["on-demand", "reserved", "spot"]


@dataclass(frozen=True)
class PrintedGpuPrice:
    """The price of one GPU in US dollars, from Table 5."""

    gpu: str
    cost_usd: Positive
    quote: str
    quoted: date
    source: str


@dataclass(frozen=True)
class Component:
    """A part of the desktop for `gpus` GPUs, from Table 6; the part "Total" is the sum as printed."""

    gpus: Count
    part: str
    detail: str
    cost_usd: Positive
    quoted: date
    source: str


@dataclass(frozen=True)
class Server:
    """A server for `gpus` GPUs, without them, from Table 7."""

    gpus: Count
    server: str
    processors: str
    memory: str
    power_supplies: str
    storage: str
    cost_usd: Positive
    quoted: date
    source: str


@dataclass(frozen=True)
class System:
    """The price of a machine for `gpus` GPUs without them, from section 4.1."""

    gpus: Count
    system: str
    cost_usd: Positive
    quoted: date
    source: str


@dataclass(frozen=True)
class Rental(OfGpus):
    """An instance with `gpus` GPUs whose `hours` cost `price`: one hour or, reserved, the whole term, used or not."""

    gpu: str
    gpus: Count
    provider: str
    terms: Terms
    hours: Positive
    price: Positive
    currency: Currency
    quoted: date
    source: str

    def __post_init__(self) -> None:
        if self.terms == "reserved" and self.hours <= 1:
            raise ContradictionError("hours", "more than 1 as terms is reserved: the whole term that price pays for")
        if self.terms != "reserved" and self.hours != 1:
            raise ContradictionError("hours", f"1 as terms is {self.terms}: a term paid for as a whole is reserved")


@dataclass(frozen=True)
class InProportion:
    """A provider whose price of an instance is that of one GPU times the number of GPUs."""

    provider: str
    source: str


@read_once
def gpu_prices() -> Mapping[str, PrintedGpuPrice]:
    """Return Table 5, by GPU. Raises UserError where the file is broken."""
    return read_csv(PrintedGpuPrice, "table5.csv", ("gpu",), known_gpu)


@read_once
def parts() -> Mapping[tuple[int, str], Component]:
    """Return Table 6, by number of GPUs and part. Raises UserError where the file is broken."""
    return read_csv(Component, "table6.csv", ("gpus", "part"))


@read_once
def servers() -> Mapping[int, Server]:
    """Return Table 7, by number of GPUs. Raises UserError where the file is broken."""
    return read_csv(Server, "table7.csv", ("gpus",))


@read_once
def known_systems() -> Mapping[int, System]:
    """Return section 4.1's systems, by number of GPUs. Raises UserError where the file is broken."""
    return read_csv(System, "systems.csv", ("gpus",))


@read_once
def known_rentals() -> Mapping[tuple[str, int, str, str], Rental]:
    """Return rentals by GPU, number of GPUs, provider and terms. Raises UserError where the file is broken."""
    families = {re.sub(r" [0-9]+ GB.*", "", name) for name in by_name()}  # some providers do not name the V100's memory

    def check(row: CsvRow) -> None:
        row.choice("gpu", by_name().keys() | families, "a GPU of gpus.csv, with or without its memory, such as V100")

    return read_csv(Rental, "rental.csv", ("gpu", "gpus", "provider", "terms"), check)


@read_once
def in_proportion() -> Mapping[str, InProportion]:
    """Return the providers with proportional prices, by name. Raises UserError where the file is broken."""
    return read_csv(InProportion, "in_proportion.csv", ("provider",))


@dataclass(frozen=True)
class Rate:
    """An exchange rate: one unit of `from_` is worth `rate` of `to`."""

    from_: Currency
    to: Currency
    rate: Positive
    quoted: date
    source: str

    def __post_init__(self) -> None:
        if self.from_ == self.to:
            raise ContradictionError("to", "another currency than from")


def worth(currency: str, to: str, rates: Iterable[Rate]) -> float | None:
    """Return the worth of one unit of `currency` in `to`; None without an exchange rate."""
    if currency == to:
        return 1.0
    for rate in rates:
        if (rate.from_, rate.to) == (currency, to):
            return rate.rate
        if (rate.from_, rate.to) == (to, currency):
            return 1 / rate.rate
    return None


def canonical_gpu(name: str, place: str) -> str:
    """Return the GPU's name in days and prices. Raises UserError, naming the place, for an unknown GPU."""
    known = find(name)
    if known is not None:
        return known.called
    by_folded = {
        each.casefold(): each for each in sorted(by_name().keys() | {rental.gpu for rental in known_rentals().values()})
    }
    if name.casefold() in by_folded:
        return by_folded[name.casefold()]
    meant = suggest_names(name, by_folded.values())
    hint = f"did you mean {', '.join(meant)}?" if meant else f"{command()} list gpus lists those we know"
    raise UserError(f"{place}: unknown GPU {name!r}; {hint}")


@dataclass(frozen=True)
class GpuPrice:
    """The price of one GPU to buy."""

    name: str
    price: Positive
    currency: Currency
    quoted: date
    source: str


@dataclass(frozen=True)
class SystemPrice:
    """The price of a machine for `gpus` GPUs, without them."""

    gpus: Count
    price: Positive
    currency: Currency
    quoted: date
    source: str


@dataclass(frozen=True)
class Storage:
    """The price of keeping a GB, 1e9 bytes, for a month, a twelfth of 365 days."""

    price: Positive
    currency: Currency
    quoted: date
    source: str


def _hours(text: str) -> float:
    try:
        return seconds(text, "") / 3600
    except UserError:
        raise ValueError from None


_Hours = Annotated[float, _hours, Meta(description='text with a unit such as "90s" or "10m"')]


@dataclass(frozen=True)
class Spot:
    """The hours from an interruption to training again, and of writing a checkpoint, which a training may measure."""

    restart: _Hours
    source: str
    checkpoint: _Hours | None = None


@dataclass(frozen=True)
class PriceList:
    """Prices of GPUs by name and of systems by number of GPUs, rentals, exchange rates, storage, and times on spot
    instances. `own` are the GPUs that the user's file has prices of."""

    gpus: dict[str, GpuPrice]
    systems: dict[int, SystemPrice]
    rentals: tuple[Rental, ...]
    rates: tuple[Rate, ...] = ()
    storage: Storage | None = None
    spot: Spot | None = None
    own: frozenset[str] = frozenset()


@read_once
def other_gpu_prices() -> Mapping[str, GpuPrice]:
    """Return the prices of GPUs that the paper has none of. Raises UserError where the file is broken."""
    return read_csv(
        GpuPrice, "gpu_prices.csv", ("name",), lambda row: row.choice("name", by_name(), "a GPU of gpus.csv")
    )


def price_list(file: Path | None = None) -> PriceList:
    """Return the paper's prices, and ours of other GPUs and of rentals, replaced by those in `file`: TOML, or a
    catalogue of SkyPilot's as CSV. Raises UserError for a broken file."""
    ours = PriceList(
        dict(other_gpu_prices())
        | {gpu: GpuPrice(gpu, row.cost_usd, "USD", row.quoted, row.source) for gpu, row in gpu_prices().items()},
        {n: SystemPrice(n, row.cost_usd, "USD", row.quoted, row.source) for n, row in known_systems().items()},
        tuple(known_rentals().values()),
    )
    if file is None:
        return ours
    return _with_catalogue(ours, file) if file.suffix.casefold() == ".csv" else _over(ours, file)


def old(quoted: date, today: date) -> bool:
    """Return True where a price is older than a year."""
    return (today - quoted).days > 365


T = TypeVar("T")
_KINDS = {"gpu": GpuPrice, "system": SystemPrice, "rental": Rental, "rate": Rate}
_SECTIONS: dict[str, type] = {**_KINDS, "storage": Storage, "spot": Spot}


def _over(ours: PriceList, file: Path) -> PriceList:
    data = read_toml(file, "--prices", "a list of prices")
    for section in data:
        if section not in _SECTIONS:
            expected = ", ".join(f"[[{name}]]" for name in _SECTIONS)
            raise UserError(f"{file}: unknown key {section!r:.60}; expected {expected}")
    gpus, systems, rentals, rates, storage, spot = (_rows(name, data.get(name, []), file) for name in _SECTIONS)
    gpus = [_with_known(row, "name", f"{file}, [[gpu]] {n}") for n, row in enumerate(gpus, 1)]
    rentals = [_with_known(row, "gpu", f"{file}, [[rental]] {n}") for n, row in enumerate(rentals, 1)]
    rentals = _as_ours(ours, rentals)
    _once("gpu", [row.name for row in gpus], file)
    _once("system", [row.gpus for row in systems], file)
    _once("rental", [_rental_key(row) for row in rentals], file)
    _once("rate", [tuple(sorted((row.from_, row.to))) for row in rates], file)  # one rate serves both directions
    _once("storage", ["a price" for _ in storage], file)
    _once("spot", ["restart" for _ in spot], file)
    return PriceList(
        ours.gpus | {row.name: row for row in gpus},
        ours.systems | {row.gpus: row for row in systems},
        _replaced(ours, rentals),
        tuple(rates),
        next(iter(storage), None),
        next(iter(spot), None),
        frozenset([*(row.name for row in gpus), *(row.gpu for row in rentals)]),
    )


@dataclass(frozen=True)
class _Instance:
    """A row of SkyPilot's catalogue: dollars an hour of an instance in a region, without or with GPUs."""

    AcceleratorName: str | None
    AcceleratorCount: Positive | None
    Region: str | None
    Price: Positive | None
    SpotPrice: Positive | None


# What SkyPilot calls GPUs where another name of ours has the same letters.
_SKYPILOTS = {"A100": "A100 40 GB", "A100-80GB-SXM": "A100 80 GB", "V100": "V100 16 GB"}


def _with_catalogue(ours: PriceList, file: Path) -> PriceList:
    """Return our prices with the rentals of SkyPilot's catalogue of one cloud, such as aws.csv or aws/vms.csv: of each
    GPU and number of them the cheapest region. GPUs that we do not know are left out."""
    cloud = visible(file.absolute().parent.name if file.stem == "vms" else file.stem)
    cheapest: dict[tuple[str, int, str, str], Rental] = {}
    rows = list(csv_rows(file, _Instance, "name a catalogue of SkyPilot's, or TOML"))
    quoted = date.fromtimestamp(file.stat().st_mtime)
    for _, row in rows:
        name, count = row.AcceleratorName or "", row.AcceleratorCount or 0.5
        gpu = find(_SKYPILOTS.get(name, name.replace("-", " ")))
        if gpu is None or count % 1:  # a share of a GPU trains nothing that we predict
            continue
        offers: tuple[tuple[Terms, float | None], ...] = (("on-demand", row.Price), ("spot", row.SpotPrice))
        for terms, price in offers:
            if price is not None:
                source = f"{file}, {row.Region or 'no region'}, file of {quoted}"
                each = Rental(gpu.called, int(count), cloud, terms, 1.0, price, "USD", quoted, source)
                known = cheapest.setdefault(_rental_key(each), each)
                cheapest[_rental_key(each)] = min(known, each, key=lambda one: one.price)
    if not cheapest:
        raise UserError(f"{file}: no GPU of the catalogue ({command()} list gpus) has a price in it")
    rentals = _as_ours(ours, cheapest.values())
    own = frozenset(row.gpu for row in rentals)
    return replace(ours, rentals=_replaced(ours, rentals), own=own)


def _as_ours(ours: PriceList, rentals: Iterable[Rental]) -> list[Rental]:
    """Return rentals with our spelling of providers, of whom only the case may differ."""
    providers = {row.provider.casefold(): row.provider for row in ours.rentals}
    return [replace(row, provider=providers.get(row.provider.casefold(), row.provider)) for row in rentals]


def _replaced(ours: PriceList, rentals: Sequence[Rental]) -> tuple[Rental, ...]:
    """Return our rentals, those of the same terms replaced by the user's, and the rest of the user's."""
    left = [row for row in ours.rentals if not any(_stands_for(one, row) for one in rentals)]
    return tuple({_rental_key(row): row for row in (*left, *rentals)}.values())


def _rows(section: str, listed: Any, file: Path) -> list[Any]:
    if not isinstance(listed, list) or not all(isinstance(row, dict) for row in listed):
        raise UserError(f"{file}: {section} is no list of tables; write each as [[{section}]]")
    kind = _SECTIONS[section]
    return [table(kind, row, f"{file}, [[{section}]] {number}") for number, row in enumerate(listed, 1)]


def _with_known(row: T, field: str, place: str) -> T:
    return replace(row, **{field: canonical_gpu(getattr(row, field), f"{place}, {field}")})  # type: ignore[type-var]


def _once(section: str, keys: Sequence[Hashable], file: Path) -> None:
    for number, key in enumerate(keys, 1):
        first = keys.index(key) + 1
        if first < number:
            raise UserError(
                f"{file}, [[{section}]] {number}: expected {named(key)} only once, and [[{section}]] {first} has it"
            )


def _rental_key(row: Rental) -> tuple[str, int, str, str]:
    return row.gpu, row.gpus, row.provider, row.terms


def _stands_for(one: Rental, larger: Rental) -> bool:
    """Return True where a price of one GPU also gives that of the larger instance."""
    same = (one.gpu, one.provider, one.terms) == (larger.gpu, larger.provider, larger.terms)
    return same and one.gpus == 1 < larger.gpus and one.terms != "reserved" and one.provider in in_proportion()


def machine_price(gpu: str, gpus: int, prices: PriceList, currency: str) -> tuple[float, date] | None:
    """Return the price of a machine, GPUs and the system around them, and the day of its older price; None without a
    price or an exchange rate."""
    each, system = prices.gpus.get(gpu), prices.systems.get(gpus)
    if each is None or system is None:
        return None
    gpu_worth, system_worth = (worth(price.currency, currency, prices.rates) for price in (each, system))
    if gpu_worth is None or system_worth is None:
        return None
    return gpus * each.price * gpu_worth + system.price * system_worth, min(each.quoted, system.quoted)


def serving(rentals: Iterable[Rental], gpu: str, gpus: int) -> list[Rental]:
    """Return the rentals of a machine with `gpus` of `gpu`: instances with so many, and instances with one GPU of
    providers with proportional prices, where the larger one has no price of its own. Other providers' instances with
    one GPU do not count: nothing says that they are in one node."""
    listed = [rental for rental in rentals if rental.gpu == gpu]
    whole = [rental for rental in listed if rental.gpus == gpus]
    alone = [rental for rental in listed if rental.gpus == 1 < gpus and rental.terms != "reserved"]
    known = {(rental.provider, rental.terms, rental.currency) for rental in whole}
    return whole + [
        one for one in alone if one.provider in in_proportion() and (one.provider, one.terms, one.currency) not in known
    ]
