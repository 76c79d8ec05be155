"""Prices: those of ours, and files of one's own, which replace them and may be broken."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest

from repro.money.offers import rent
from repro.money.prices import Rate, machine_price, old, price_list, serving, worth
from tests.support.command_line import refusal, repro
from tests.support.price_files import (
    catalogue,
    gpu_table,
    prices,
    rate_table,
    rental_table,
    spot_table,
    storage_table,
    system_table,
)

RENTAL = next(row for row in price_list().rentals if row.gpu == "RTX 4090" and row.terms == "on-demand")


def test_the_papers_rents_per_gpu_hour() -> None:
    hourly = {(row.gpu, row.gpus, row.provider, row.terms): row.price / row.hours for row in price_list().rentals}
    assert hourly["RTX 4090", 1, "RunPod", "on-demand"] == 0.69
    assert hourly["RTX 4090", 2, "RunPod", "on-demand"] == 2 * 0.69
    assert hourly["V100 16 GB", 1, "AWS", "on-demand"] == 3.06
    assert (hourly["V100", 1, "Google Cloud", "on-demand"], hourly["V100", 1, "Exoscale", "on-demand"]) == (2.48, 1.375)
    assert hourly["A100", 8, "AWS", "reserved"] == pytest.approx(650_000 / (5 * 365 * 24))


def test_a_machine_costs_its_gpus_and_one_system_each_in_its_own_currency(tmp_path: Path) -> None:
    text = gpu_table(price="900", currency='"EUR"') + system_table(8, 1000) + rate_table("EUR", "USD", 1.25)
    listed = price_list(Path(prices(tmp_path, text)))
    in_dollars, in_euros = (machine_price("RTX 3090", 8, listed, currency) for currency in ("USD", "EUR"))
    assert in_dollars
    assert in_euros
    assert in_dollars[0] == 8 * 900 * 1.25 + 1000
    assert in_euros[0] == pytest.approx(8 * 900 + 1000 / 1.25)


def test_a_machine_is_as_old_as_its_oldest_price(tmp_path: Path) -> None:
    system = system_table(8, 1000, quoted="2026-11-02")
    for text in (gpu_table(quoted="2026-11-01") + system, gpu_table(quoted="2026-11-03") + system):
        listed = price_list(Path(prices(tmp_path, text)))
        oldest = min(date(2026, 11, 2), listed.gpus["RTX 3090"].quoted)
        assert machine_price("RTX 3090", 8, listed, "USD") == (8 * 900 + 1000, oldest)


def test_a_price_is_old_from_a_year_and_a_day_on() -> None:
    assert not old(date(2024, 9, 21), date(2025, 9, 21))
    assert old(date(2024, 9, 21), date(2025, 9, 22))


def test_a_rate_works_both_ways_and_nothing_else_converts() -> None:
    rates = [Rate("EUR", "USD", 1.25, date(2026, 11, 1), "bank")]
    assert worth("EUR", "USD", rates) == 1.25
    assert worth("USD", "EUR", rates) == 0.8
    assert worth("CHF", "CHF", []) == 1
    assert worth("CHF", "USD", rates) is None


@pytest.mark.parametrize(("hours", "terms"), [(100, 1), (8760, 1), (8761, 2), (3 * 8760, 3)])
def test_a_reserved_machine_is_paid_for_in_whole_terms(hours: float, terms: int) -> None:
    assert rent(replace(RENTAL, terms="reserved", hours=8760.0, price=3000.5), 1, hours) == terms * 3000.5
    assert rent(RENTAL, 2, hours) == pytest.approx(2 * 0.69 * hours)


def test_a_run_as_long_as_a_term_pays_for_one() -> None:
    assert 770.4 / 24 * 24 > 770.4, "floats of the run's days make a little more of its hours"
    assert rent(replace(RENTAL, terms="reserved", hours=770.4, price=98.5), 1, 770.4 / 24 * 24) == 98.5


def test_one_gpu_stands_for_more_at_known_providers_and_a_reserved_one_nowhere() -> None:
    other, reserved = replace(RENTAL, provider="shop"), replace(RENTAL, terms="reserved", hours=8760.0)
    assert serving([RENTAL, other, reserved], "RTX 4090", 1) == [RENTAL, other, reserved]
    assert serving([RENTAL, other, reserved], "RTX 4090", 4) == [RENTAL]
    assert not serving([RENTAL], "RTX 3090", 1)
    assert not serving([replace(RENTAL, gpus=2)], "RTX 4090", 4)


def test_a_machine_that_has_a_price_of_its_own_has_none_in_proportion() -> None:
    whole = replace(RENTAL, gpus=3, price=4 * RENTAL.price)
    assert serving([RENTAL, whole], "RTX 4090", 3) == [whole]
    assert serving([RENTAL, replace(whole, terms="spot")], "RTX 4090", 3)[1:] == [RENTAL], "on other terms it has"


def test_a_rental_of_ones_own_replaces_that_of_the_same_terms_alone(tmp_path: Path) -> None:
    listed = price_list(Path(prices(tmp_path, rental_table(gpu="RTX 4090", gpus=1, provider="RunPod")))).rentals
    of_one = {row.terms: row.price for row in listed if (row.gpu, row.gpus) == ("RTX 4090", 1)}
    assert of_one == {"on-demand": 0.5, "spot": 0.35}
    assert (2, "on-demand") not in {(row.gpus, row.terms) for row in listed if row.gpu == "RTX 4090"}, "ours is older"


@pytest.mark.parametrize("text", ["a\\nb", "a\\u001b[31mb", "a\\u2028b"])
def test_a_providers_name_neither_breaks_a_line_nor_steers_a_terminal(tmp_path: Path, text: str) -> None:
    listed = price_list(Path(prices(tmp_path, rental_table(provider=text)))).rentals
    assert listed[-1].provider.startswith("a\\")
    assert listed[-1].provider.isprintable()


BROKEN = [
    (
        gpu_table().replace("price = 900\n", ""),
        ["[[gpu]] 1", "missing required field `price`; expected name, price"],
    ),
    (gpu_table() + gpu_table(price="-900"), ["[[gpu]] 2, $.price", "found -900", "above 0"]),
    (gpu_table() + gpu_table("GeForce RTX 3090"), ["[[gpu]] 2: expected RTX 3090 only once, and [[gpu]] 1 has it"]),
    (rate_table("EUR", "USD") + rate_table("USD", "EUR"), ["[[rate]] 2: expected EUR, USD only once"]),
    (gpu_table(price='"cheap"'), ["[[gpu]] 1, $.price", "found 'cheap'"]),
    (gpu_table(currency='"$"'), ["[[gpu]] 1, $.currency", "'$'", "expected three capital letters such as USD"]),
    (gpu_table(quoted='"yesterday"'), ["[[gpu]] 1, $.quoted", "expected a day such as 2024-09-21"]),
    (rate_table("USD", "USD"), ["[[rate]] 1, $.to", "found 'USD', expected another currency than from"]),
    (gpu_table("RTX 3900"), ["[[gpu]] 1, name", "unknown GPU 'RTX 3900'", "RTX 3090"]),
    *(
        (
            rental_table(terms),
            ["[[rental]] 1, $.terms:", f"found '{terms}', expected one of on-demand, reserved, spot"],
        )
        for terms in ("Spot", "On-Demand", "x")
    ),
    (rental_table("reserved"), ["[[rental]] 1, $.hours", "found 1, expected more than 1 as terms is reserved"]),
    (rental_table("spot", "2"), ["[[rental]] 1, $.hours", "found 2, expected 1 as terms is spot"]),
    (rental_table("on-demand", "0.5"), ["found 0.5, expected 1 as terms is on-demand"]),
    (gpu_table() + "colour = 1\n", ["[[gpu]] 1", "unknown key 'colour'"]),
    ("[[gpus]]\n", ["unknown key 'gpus'", "[[gpu]]"]),
    ('gpu = "A100"\n', ["write each as [[gpu]]"]),
    (spot_table() + spot_table(), ["[[spot]] 2: expected restart only once, and [[spot]] 1 has it"]),
    (spot_table(restart="10"), ["[[spot]] 1, $.restart: found '10', expected text with a unit such as"]),
    (storage_table(-1), ["[[storage]] 1, $.price: found -1", "above 0"]),
    ("[[gpu\n", ["not TOML", "line 1"]),
    ("a = " + "[" * 100_000, ["nested too deep"]),
    (gpu_table(price="9" * 10_000), ["a number has too many digits"]),
    (gpu_table().replace("quoted =", f"quoted{'.a' * 5_000} ="), ["nested too deep"]),
    *(
        (table, [f"found {found}, expected a number above 0, from 1e-30 to 1e+30"])
        for table, found in (
            (gpu_table(price="1e308"), "1e+308"),
            (gpu_table(price="inf"), "inf"),
            (rate_table("EUR", "USD").replace("1.25", "1e308"), "1e+308"),
            (rate_table("EUR", "USD").replace("1.25", "1e-320"), "1e-320"),
        )
    ),
    (gpu_table(price="0x" + "f" * 10_000), ["a number has too many digits"]),
    (rental_table().replace("gpus = 8", "gpus = 1" + "0" * 400), ["a number has too many digits"]),
    (rental_table().replace("gpus = 8", "gpus = 0"), ["[[rental]] 1, $.gpus: found 0, expected a whole number from 1"]),
    (gpu_table() + f"# {'a price ' * 200_000}", ["larger than 1,000,000 bytes"]),
]


@pytest.mark.parametrize(("text", "output"), BROKEN, ids=[output[-1] for _, output in BROKEN])
def test_a_broken_price_file_is_reported_with_its_place(text: str, output: list[str], tmp_path: Path) -> None:
    line = refusal("cost", "vit", "--prices", prices(tmp_path, text))
    for part in ("my.toml", *output):
        assert part in line


# --- SkyPilot's catalogue ---

ROWS = (
    "p4d.24xlarge,A100,8.0,96.0,1152.0,32.77,9.83,us-east-1",
    "p4de.24xlarge,A100-80GB,8.0,96.0,1152.0,40.97,,us-east-1",
    "p4de.24xlarge,A100-80GB,8.0,96.0,1152.0,39.5,12.3,us-west-2",
    "p3.2xlarge,V100,1.0,8.0,61.0,3.06,0.9,eu-west-1",
    "g6f.large,L4,0.125,2.0,8.0,0.2,,us-east-1",
    "trn1.2xlarge,Trainium,1.0,8.0,32.0,1.34,,us-east-1",
    "m5.large,,,2.0,8.0,0.096,0.04,us-east-1",
)


def test_skypilots_catalogue_gives_the_cheapest_region_of_each_instance(tmp_path: Path) -> None:
    file = Path(catalogue(tmp_path, *ROWS))
    listed = price_list(file)
    found = {(row.gpu, row.gpus, row.terms): row for row in listed.rentals if row.provider == "AWS" and row.hours == 1}
    assert {place: row.price for place, row in found.items() if str(file) in row.source} == {
        ("A100 40 GB", 8, "on-demand"): 32.77,
        ("A100 40 GB", 8, "spot"): 9.83,
        ("A100", 8, "on-demand"): 39.5,
        ("A100", 8, "spot"): 12.3,
        ("V100 16 GB", 1, "on-demand"): 3.06,
        ("V100 16 GB", 1, "spot"): 0.9,
    }
    cheapest = found["A100", 8, "on-demand"]
    day = date.fromtimestamp(file.stat().st_mtime)
    assert (cheapest.currency, cheapest.quoted) == ("USD", day)
    assert cheapest.source == f"{file}, us-west-2, file of {day}"
    assert listed.own == {"A100", "A100 40 GB", "V100 16 GB"}
    assert price_list(Path(catalogue(tmp_path, *ROWS, name="lambda/vms.csv"))).rentals[-1].provider == "lambda"


@pytest.mark.parametrize(
    ("rows", "header", "told"),
    [
        (ROWS, "Accelerator,Price", "line 1, $.AcceleratorName: found no such column, expected the columns"),
        (["x,A100,8,1,1,-3,,r"], "", "line 2, $.Price: found '-3', expected a number above 0"),
        (["x,A100,8,1,1,nan,,r"], "", "line 2, $.Price: found 'nan', expected a number above 0"),
        (["x,A100,8,1,1,1e308,,r"], "", "line 2, $.Price: found '1e308', expected a number above 0"),
        (["x,A100,eight,1,1,3,,r"], "", "line 2, $.AcceleratorCount: found 'eight'"),
        (["x,A100,8"], "", "line 2: too few fields"),
        (['x,"A100,8,1,1,3,,r'], "", "not CSV"),
        (["x,A100,8,1,1,3,,\x1b[31m\x00"], "", ""),
        (["x,TPU-v5,8,1,1,3,,r"], "", "no GPU of the catalogue"),
        ([], "", "no GPU of the catalogue"),
    ],
)
def test_a_broken_catalogue_is_one_clear_line(rows: list[str], header: str, told: str, tmp_path: Path) -> None:
    asked = ("cost", "vit", "--terms", "rent", "--gpu", "A100", "--prices", catalogue(tmp_path, *rows, header=header))
    if told:
        assert told in refusal(*asked)
    else:
        printed = repro(*asked, "--format", "csv")
        assert "\x1b" not in printed.stdout + printed.stderr
