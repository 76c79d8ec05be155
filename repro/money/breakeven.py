"""Break-even of owning and renting: the number of runs and the utilisation from which on owning is cheaper.

Also the rent-or-buy comment (BERT on a workstation with one card, against V100s by the hour), computed as printed and
again with its inputs corrected.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import date

from ..console import UserError
from ..datafile import read_csv
from ..formats import DAYS_A_YEAR, Interval, are, interval, listing, money_text
from ..paper.gpus import find
from ..paper.tables import quantities
from .days import TrainingDays
from .offers import lifespan_years, machine_paid_in, machine_price, older_price, rentals_left_out
from .prices import PriceList, Rate, Rental, Terms, known_rentals, worth
from .renting import in_proportion_remark, in_proportion_text, per_hour, priced, serving, whole_text


@dataclass(frozen=True)
class Case:
    """Owning a machine against renting it for the same hours, in one currency: its price and its resale value, which is
    at most the price; the rent of an hour, the owner's running cost of an hour, and the hours of a run."""

    machine: Interval
    resale: Interval
    rent: Interval
    running: Interval
    hours: Interval


@dataclass(frozen=True)
class BreakEven:
    """The point from which on owning is cheaper; infinite where renting stays cheaper. `utilisation` is the share of
    the machine's lifespan in use: above 1 owning never pays."""

    runs: Interval
    utilisation: Interval

    @property
    def whole_runs(self) -> int | None:
        """Return the first run after which owning costs no more than renting; None where there is none."""
        return first_run(self.runs.value)


@dataclass(frozen=True)
class Spent:
    """The money spent after a number of runs, by an owner and by a renter."""

    runs: int
    owning: float
    renting: float


def first_run(runs: float) -> int | None:
    """Round a number of runs up, to at least 1; None where it is infinite."""
    return None if math.isinf(runs) else max(math.ceil(runs - 1e-9), 1)


def break_even(case: Case, lifespan_years: float) -> BreakEven:
    """Return where owner and renter have spent the same: after (price - resale) / (rent - running cost) hours of use.

    Every input occurs once in the formula, so the bounds are reached at the bounds of the inputs.
    """
    paid, saved = case.machine - case.resale, case.rent - case.running
    hours = Interval(_over(paid.value, saved.value), _over(paid.low, saved.high), _over(paid.high, saved.low))
    lifespan = lifespan_years * DAYS_A_YEAR * 24
    return BreakEven(hours / case.hours, hours / lifespan)


def spending(case: Case, runs: Iterable[int]) -> list[Spent]:
    """Return what an owner and a renter have spent after each number of runs, by the middle of the inputs."""
    bought = case.machine.value - case.resale.value
    return [
        Spent(
            number,
            bought + number * case.hours.value * case.running.value,
            number * case.hours.value * case.rent.value,
        )
        for number in runs
    ]


def _over(paid: float, saved: float) -> float:
    return paid / saved if saved > 0 else math.inf


def comment_gpu_hours() -> Interval:
    """Return the GPU-hours of the comment's run: its minutes on all of its GPUs."""
    return _its("gpus") * _its("minutes") / 60


def comment_machine() -> Interval:
    """Return the comment's price of card and workstation, in USD."""
    return _its("card") + _its("workstation")


def comment_use() -> Use:
    """Return the comment's power, its price of a kWh in EUR, and the exchange rate by which it converts electricity."""
    rate = _its("electricity_a_run_usd").value / _its("electricity_a_run").value
    return Use(kilowatts=_its("power"), tariff=Tariff(_its("electricity"), "EUR", rate))


def comment_rate() -> str:
    """Return a phrase on the exchange rate of the comment's electricity."""
    dollars, euros = (f"{_its(name).value:g}" for name in ("electricity_a_run_usd", "electricity_a_run"))
    return f"EUR become USD at the comment's own rate, {dollars}/{euros}"


def comment_rents() -> dict[str, Interval]:
    """Return USD per V100 and hour by provider, the cheapest first, which is the comment's choice."""
    cited = [known_rentals()["V100", 1, provider, "on-demand"] for provider in ("Exoscale", "Google Cloud")]
    return {row.provider: Interval.exact(row.price) for row in sorted(cited, key=lambda row: row.price)}


def comment_cases(grams: Interval | None = None) -> list[Computed]:
    """Return the comment's break-even as printed, then with its electricity and its GPU-hours corrected, at both
    rents."""
    charged = _its("hours_charged")
    power, electricity, gpus, minutes = (
        f"{_its(name).value:,g}" for name in ("power", "electricity", "gpus", "minutes")
    )
    by_provider = comment_rents()
    cheap, dear = by_provider
    taken = replace(comment_use(), grams=grams)
    return [
        _as_printed(cheap, charged),
        *(
            compute(what, provider, "comment", comment_machine(), by_provider[provider], hours, taken)
            for what, provider, hours in (
                (f"electricity corrected: {power} kW x hours x {electricity} EUR", cheap, charged),
                (f"GPU-hours corrected too: {minutes} min x {gpus} GPUs", cheap, comment_gpu_hours()),
                ("the same at its dearer rent", dear, comment_gpu_hours()),
            )
        ),
    ]


def _as_printed(provider: str, hours: Interval) -> Computed:
    dollars = _its("electricity_a_run_usd")
    case = Case(comment_machine(), Interval.exact(0.0), comment_rents()[provider], dollars / hours, hours)
    return Computed(
        what="as the comment computes",
        provider=provider,
        case=case,
        answer=break_even(case, lifespan_years()),
        energy=None,
        electricity=_its("electricity_a_run"),
        electricity_currency="EUR",
        converted=dollars,
        co2=None,
        origin="comment",
    )


def _its(name: str) -> Interval:
    """Return one of the comment's numbers."""
    return Interval.exact(quantities()[f"comment/{name}"].value)


@dataclass(frozen=True)
class PowerGrid:
    """The CO2 of a kWh from a region's grid, as the mean of a year."""

    region: str
    year: int
    grams_co2_per_kwh: float
    source: str


@dataclass(frozen=True)
class Power:
    """Kilowatts while training, and their source."""

    kilowatts: Interval
    source: str


def gpu_power(run: TrainingDays) -> Power | None:
    """Return the power of a machine's GPUs: measured where the days were, else the board power; None without either."""
    if run.watts is not None:
        how = "measured by the energy counters" if run.by_counter else "measured"
        return Power(Interval.exact(run.watts / 1000), f"{how}, {run.source}; GPUs alone")
    gpu = find(run.gpu)
    if gpu is None or gpu.board_power_w is None:
        return None
    return Power(Interval.exact(run.gpus * gpu.board_power_w / 1000), "board power of the GPUs alone, gpus.csv")


def intensity(text: str, option: str) -> tuple[Interval, str]:
    """Return grams of CO2 a kWh and their source: a number, or a region of grid.csv. Raises UserError for others."""
    grids = {grid.region.casefold(): grid for grid in read_csv(PowerGrid, "grid.csv", ("region",)).values()}
    grid = grids.get(text.casefold())
    if grid is not None:
        return Interval.exact(grid.grams_co2_per_kwh), f"{grid.source}, {grid.region} {grid.year}"
    try:
        return interval(text, option), f"{text.strip()} g a kWh, as given"
    except UserError:
        regions = ", ".join(grid.region for grid in grids.values())
        raise UserError(f"{option} {text}: expected grams of CO2 a kWh, or a region: {regions}") from None


@dataclass(frozen=True)
class Given:
    """The user's inputs, None where not given: sums in the currency of the comparison, `rent` per hour of the machine,
    `hours` of a run, `kilowatts` of the machine."""

    machine: Interval | None
    resale: Interval | None
    rent: Interval | None
    hours: Interval | None
    kilowatts: Interval | None
    pue: Interval | None
    tariff: Tariff | None
    grams: Interval | None


@dataclass(frozen=True)
class Asked:
    """The comparisons, one for each rent, with notes on their inputs, the prices of ours that were used, each with its
    day, and the currencies of what the user did not give."""

    computed: list[Computed]
    notes: list[str]
    quoted: list[tuple[str, date]]
    paid_in: set[str]


def of_comment(given: Given, currency: str, rates: Iterable[Rate]) -> Asked:
    """Compare by the comment's own inputs, corrected, or the given ones in their place."""
    if currency != "USD" and None in (given.machine, given.rent):
        raise UserError(f"--currency {currency}: the comment's sums are in USD; give --machine and --rent, or --gpu")
    comment = comment_use()
    use = Use(
        given.kilowatts or comment.kilowatts, given.pue or comment.pue, given.tariff or comment.tariff, given.grams
    )
    its, tariff, notes = comment.tariff, use.tariff, list[str]()
    assert its is not None
    assert tariff is not None
    if tariff.currency != currency:
        rate = worth(tariff.currency, currency, rates)
        if rate is None and (tariff.currency, currency) == (its.currency, "USD"):
            rate = its.worth  # the comment's own rate is one of its inputs
            notes.append(f"{comment_rate()}.")
        use = replace(use, tariff=replace(tariff, worth=rate))
    provider, rent = next(iter(comment_rents().items()))
    row = compute(
        "the comment's workstation",
        provider if given.rent is None else "--rent",
        "comment" if given.hours is None else "given",
        given.machine or comment_machine(),
        given.rent or rent,
        given.hours or comment_gpu_hours(),
        use,
        given.resale,
    )
    notes.insert(0, "What was not given is the comment's of 2021-01-14, with its GPU-hours computed right.")
    return Asked([row], notes, [], {tariff.currency})


def of_machine(run: TrainingDays, given: Given, prices: PriceList, currency: str) -> Asked:
    """Compare a machine of our price list with every rental of it by the hour, or with a given rent."""
    name = run.machine
    price = machine_price(run.gpu, run.gpus, prices, currency)
    if given.machine is None and price is None:
        raise UserError(f"no price for a machine with {name} in {currency}; give --machine SUM, or --prices FILE")
    machine = given.machine or Interval.exact(price[0] if price else 0.0)
    rentals = [] if given.rent is not None else _rentals(run, prices, currency, "on-demand")
    rents = [
        (
            f"{rental.provider}, {rental.terms}{in_proportion_remark(rental, run.gpus)}",
            Interval.exact(per_hour(rental, run.gpus) * each),
        )
        for rental, each in rentals
    ]
    rents = rents if given.rent is None else [("--rent", given.rent)]
    left_out = rentals_left_out([run], prices, currency) if given.rent is None else []
    if not rents:
        reason = " ".join(each.rstrip(".") + "; " for each in left_out)
        raise UserError(
            f"no price in {currency} for renting {name} by the hour; {reason}give --rent SUM, or --prices FILE"
        )
    power = gpu_power(run)
    use = Use(
        given.kilowatts or (power.kilowatts if power else None), given.pue or Use().pue, given.tariff, given.grams
    )
    hours = given.hours or run.days * 24
    rows = [compute(name, who, run.origin, machine, rent, hours, use, given.resale) for who, rent in rents]
    notes = list[str]()
    if given.kilowatts is None:
        notes.append(f"Power: {power.source}." if power else _without_power(run.gpu, given))
    if given.tariff is None:
        notes.append("Electricity is not counted; --electricity SUM, the price of a kWh, counts it.")
    notes += [in_proportion_text()] if any(rental.gpus < run.gpus for rental, _ in rentals) else []
    notes += left_out
    reserved = _rentals(run, prices, currency, "reserved")
    notes += [_against(rental, rental.price * each, machine, currency) for rental, each in reserved]
    bought = given.machine is None and price is not None
    quoted = [older_price(run.gpu, run.gpus, prices, f"{name} to buy")] if bought else []
    quoted += [(f"{rental.gpu} at {rental.provider}", rental.quoted) for rental, _ in (*rentals, *reserved)]
    paid_in = machine_paid_in(run.gpu, run.gpus, prices) if given.machine is None else set()
    paid_in |= {rental.currency for rental, _ in (*rentals, *reserved)}
    return Asked(rows, notes, quoted, paid_in)


def _without_power(gpu: str, given: Given) -> str:
    asked = {"electricity": given.tariff, "CO2": given.grams}
    lost = [what for what, each in asked.items() if each is not None] or ["energy"]
    return f"The power of {gpu} is unknown, and so {listing(lost)} {are(len(lost))} not counted; give --power KW."


def _rentals(run: TrainingDays, prices: PriceList, currency: str, terms: Terms) -> list[tuple[Rental, float]]:
    """Return the rentals of the machine on these terms, each with the worth of one unit of its currency."""
    return [
        (rental, each)
        for rental, each in priced(serving(prices.rentals, run.gpu, run.gpus), currency, prices.rates)
        if rental.terms == terms
    ]


def _against(rental: Rental, price: float, machine: Interval, currency: str) -> str:
    """Describe a reservation. It has no break-even: one sum, paid as a whole, is the lesser from the first hour on."""
    less = "Owning costs less from the first hour" if machine.high < price else "It may cost less than owning"
    return (
        f"{rental.provider}, {rental.terms}: {whole_text(rental, price, currency)}, against "
        f"{money_text(machine.value, currency)} for the machine. {less}, before electricity."
    )


@dataclass(frozen=True)
class Tariff:
    """The price of a kWh, in a currency of its own. `worth` is one unit of that in the currency of the comparison, None
    without an exchange rate: then the electricity is listed separately, and not counted."""

    price: Interval
    currency: str
    worth: float | None


@dataclass(frozen=True)
class Use:
    """What a machine consumes while it trains: kilowatts, the power usage effectiveness of its room, the price of a
    kWh, and the grams of CO2 a kWh. None is unknown."""

    kilowatts: Interval | None = None
    pue: Interval = field(default_factory=lambda: Interval.exact(1.0))
    tariff: Tariff | None = None
    grams: Interval | None = None

    def energy(self, hours: Interval) -> Interval | None:
        """Return the kWh of a number of hours; None where the power is unknown."""
        return None if self.kilowatts is None else self.kilowatts * hours * self.pue


@dataclass(frozen=True)
class Computed:
    """A case and its break-even, with the provider of the rental. Of one run: `energy` in kWh, `electricity` in its own
    currency and, where a rate is known, `converted` to the case's; `co2` in kg. `origin` is that of a run's hours."""

    what: str
    provider: str
    case: Case
    answer: BreakEven
    energy: Interval | None
    electricity: Interval | None
    electricity_currency: str | None
    converted: Interval | None
    co2: Interval | None
    origin: str


def compute(
    what: str,
    provider: str,
    origin: str,
    machine: Interval,
    rent: Interval,
    hours: Interval,
    use: Use,
    resale: Interval | None = None,
) -> Computed:
    """Return the break-even of a machine and a rent per hour, all in one currency; `hours` are those of a run."""
    tariff = use.tariff
    energy = use.energy(hours)
    running = None
    if tariff is not None and tariff.worth is not None and use.kilowatts is not None:
        # Per hour, so that the hours of a run occur in the break-even's formula only once.
        running = use.kilowatts * use.pue * tariff.price * tariff.worth
    case = Case(machine, resale or Interval.exact(0.0), rent, running or Interval.exact(0.0), hours)
    return Computed(
        what=what,
        provider=provider,
        case=case,
        answer=break_even(case, lifespan_years()),
        energy=energy,
        electricity=energy * tariff.price if energy is not None and tariff is not None else None,
        electricity_currency=tariff.currency if tariff is not None else None,
        converted=running * hours if running is not None else None,
        co2=energy * use.grams / 1000 if energy is not None and use.grams is not None else None,
        origin=origin,
    )
