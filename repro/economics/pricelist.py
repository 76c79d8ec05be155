"""All prices in one place: those of expected/, and over them those of a file of one's own.

The file is TOML, a table for each price; its keys are the fields of the data classes below, of `Rental` and of `Rate`:

    [[gpu]]      name, price, currency, quoted, source
    [[system]]   gpus, price, currency, quoted, source       the machine without its GPUs
    [[rental]]   gpu, gpus, provider, terms, hours, price, currency, quoted, source
                 terms: on-demand or spot, where hours is 1, or reserved, where it is the term that price pays for
    [[rate]]     from, to, rate, quoted, source              one unit of `from` in `to`

A price replaces ours of the same GPU, number of GPUs or rental, whose provider may be in any case, and that of one GPU
where it stands for more ours of more; the others stay.
"""

from __future__ import annotations

import tomllib
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from datetime import date
from pathlib import Path
from typing import Any, Literal, NoReturn, TypeVar, get_args, get_origin, get_type_hints

from .. import currency, files, prices
from ..currency import Rate
from ..datafile import VALUE, ContradictionError, named, one_of
from ..errors import UserError, cut
from ..escape import visible
from ..prices import Rental
from ..units import LARGEST, MOST_COUNTED, SMALLEST
from .names import canonical_gpu

T = TypeVar("T")
_OLD_DAYS = 365
_MOST_BYTES = 10**6  # of a file: thousands of rentals, and nothing that goes on for ever


@dataclass(frozen=True)
class GpuPrice:
    """What one GPU costs to buy."""

    name: str
    price: float
    currency: str
    quoted: date
    source: str


@dataclass(frozen=True)
class SystemPrice:
    """What a machine for `gpus` GPUs costs without them."""

    gpus: int
    price: float
    currency: str
    quoted: date
    source: str


@dataclass(frozen=True)
class PriceList:
    """Prices of GPUs by name and of systems by number of GPUs, rentals, and rates between currencies; and of which
    GPUs a file of one's own says what they cost to buy, and to rent, and for how many GPUs what a system costs."""

    gpus: dict[str, GpuPrice]
    systems: dict[int, SystemPrice]
    rentals: tuple[Rental, ...]
    rates: tuple[Rate, ...]
    own_to_buy: frozenset[str] = frozenset()
    own_rentals: tuple[Rental, ...] = ()
    own_systems: frozenset[int] = frozenset()


def price_list(file: Path | None = None) -> PriceList:
    """The paper's prices and our rentals, and over them those of `file`. Raises UserError where a file is broken."""
    ours = PriceList(
        {gpu: GpuPrice(gpu, row.cost_usd, "USD", row.quoted, row.source) for gpu, row in prices.gpu_prices().items()},
        {n: SystemPrice(n, row.cost_usd, "USD", row.quoted, row.source) for n, row in prices.systems().items()},
        tuple(prices.rentals().values()),
        (),
    )
    return ours if file is None else _over(ours, file)


def old(quoted: date, today: date) -> bool:
    """Whether a price is older than a year."""
    return (today - quoted).days > _OLD_DAYS


def _over(ours: PriceList, file: Path) -> PriceList:
    data = _toml(file)
    for section in data:
        if section not in _SECTIONS:
            raise UserError(
                f"{file}: unknown key {_shown(section)}; expected {', '.join(f'[[{name}]]' for name in _SECTIONS)}"
            )
    gpus = [_known(row, "name", f"{file}, [[gpu]] {n}") for n, row in enumerate(_rows(GpuPrice, "gpu", data, file), 1)]
    providers = {row.provider.casefold(): row.provider for row in ours.rentals}  # ours under another case are ours
    rentals = [
        replace(
            _known(row, "gpu", f"{file}, [[rental]] {n}"),
            provider=providers.get(row.provider.casefold(), row.provider),
        )
        for n, row in enumerate(_rows(Rental, "rental", data, file), 1)
    ]
    systems, rates = _rows(SystemPrice, "system", data, file), _rows(Rate, "rate", data, file)
    _once("gpu", [row.name for row in gpus], file)
    _once("system", [row.gpus for row in systems], file)
    _once("rental", [_rental_key(row) for row in rentals], file)
    _once("rate", [tuple(sorted((row.from_, row.to))) for row in rates], file)  # one goes both ways
    left = [row for row in ours.rentals if not any(_stands_for(one, row) for one in rentals)]
    merged = {_rental_key(row): row for row in (*left, *rentals)}
    return PriceList(
        ours.gpus | {row.name: row for row in gpus},
        ours.systems | {row.gpus: row for row in systems},
        tuple(merged.values()),
        tuple(rates),
        frozenset(row.name for row in gpus),
        tuple(rentals),
        frozenset(row.gpus for row in systems),
    )


def _toml(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(files.read(file, _MOST_BYTES).decode("utf-8-sig"))
    except OSError as error:
        raise UserError(f"--prices {file}: cannot be read ({error.strerror})") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"--prices {file}: not TOML ({error})") from None
    except RecursionError:
        raise UserError(f"--prices {file}: nested too deep, expected a list of prices") from None
    except ValueError:  # of Python's int, which TOML does not bound
        raise UserError(f"--prices {file}: a number has thousands of digits, expected a list of prices") from None


_SECTIONS: tuple[str, ...] = ("gpu", "system", "rental", "rate")


def _known(row: T, field: str, place: str) -> T:
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
    """Whether a price of one GPU also says what the larger instance costs."""
    same = (one.gpu, one.provider, one.terms) == (larger.gpu, larger.provider, larger.terms)
    return same and one.gpus == 1 < larger.gpus and one.terms != "reserved" and one.provider in prices.in_proportion()


def _rows(kind: type[T], section: str, data: dict[str, Any], file: Path) -> list[T]:
    listed = data.get(section, [])
    if not isinstance(listed, list) or not all(isinstance(row, dict) for row in listed):
        raise UserError(f"{file}: {section} is no list of tables; write each as [[{section}]]")
    types = get_type_hints(kind)
    columns = [(field.name, field.name.rstrip("_")) for field in fields(kind)]  # type: ignore[arg-type]
    found = []
    for number, row in enumerate(listed, 1):
        place = f"{file}, [[{section}]] {number}"
        names = ", ".join(key for _, key in columns)
        for key in row:
            if key not in (known for _, known in columns):
                raise UserError(f"{place}: unknown key {_shown(key)}; expected {names}")
        for _, key in columns:
            if key not in row:
                raise UserError(f"{place}: {key} is missing; expected {names}")
        values = {name: _value(row[key], types[name], f"{place}, {key}") for name, key in columns}
        for name in {"currency", "from_", "to"} & set(values):
            currency.check(values[name], place)
        try:
            found.append(kind(**values))
        except ContradictionError as error:
            key = dict(columns)[error.field]
            _problem(row[key], f"{place}, {key}", error.expected)
    return found


def _problem(value: Any, place: str, expected: str) -> NoReturn:
    raise UserError(f"{place}: found {_shown(value)}, expected {expected}")


def _shown(value: Any) -> str:
    try:
        return cut(str(value) if isinstance(value, date) else repr(value), VALUE)
    except (RecursionError, ValueError):  # dotted keys nest without end, hexadecimal numbers have digits without end
        return "more than can be told"


def _value(value: Any, kind: Any, place: str) -> Any:
    def problem(expected: str) -> NoReturn:
        _problem(value, place, expected)

    if get_origin(kind) is Literal and value not in get_args(kind):
        problem(one_of(get_args(kind)))
    if kind is str and not (isinstance(value, str) and value.strip() and visible(value) == value):
        problem("some text in quotes, on one line")
    # A bool is an int to Python, and no number to people.
    if kind is int and not (isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MOST_COUNTED):
        problem(f"a whole number from 1 to {MOST_COUNTED:,}")
    if kind is float:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not SMALLEST <= value <= LARGEST:
            problem(f"a number above 0, from {SMALLEST:g} to {LARGEST:g}")
        return float(value)
    if kind is date and type(value) is not date:
        problem("a day such as 2026-11-01, without quotes")
    if kind is date and value > date.today():
        problem(f"a day up to today, {date.today()}")
    return value


def told_prices(
    quoted: Iterable[tuple[str, date]], paid_in: Iterable[str], to: str, rates: Iterable[Rate], today: date
) -> list[str]:
    """A sentence on each rate that brings one of the currencies that prices are in to that of all sums, and one on what
    is older than a year, of these rates and of `quoted`, what and its day."""
    used = currency.used(paid_in, to, rates)
    told = [
        f"{each} become {to} at the rate in --prices, {worth:g} ({by.source}, {by.quoted})." for each, worth, by in used
    ]
    late: dict[date, dict[str, None]] = {}
    for what, day in [*quoted, *((f"the rate of {each} to {to}", by.quoted) for each, _, by in used)]:
        if old(day, today):
            late.setdefault(day, {})[what] = None
    listed = "; ".join(f"{day.isoformat()} ({', '.join(late[day])})" for day in sorted(late))
    return [*told, f"Prices older than a year: {listed}. --prices FILE brings newer ones."] if late else told
