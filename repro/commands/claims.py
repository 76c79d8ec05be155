"""`repro claims`: the papers' sentences, each computed once more."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from ..claims import Checked, check, check_all
from ..formats import Format, add_format, render
from ..results import read_or_refuse


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", nargs="?", metavar="ID", help="show the rows and the arithmetic of this claim alone")
    parser.add_argument("--measured", type=Path, metavar="DIR", help="check what needs measurements on this run")
    add_format(parser)


def main(given: argparse.Namespace) -> int:
    records = list(read_or_refuse(given.measured).values()) if given.measured else None
    if given.id is not None:
        print(_traced(check(given.id, records), given.format))
        return 0
    checked = check_all(records)
    rows = [_people(one) if given.format == "text" else one.row() for one in checked]
    print(render(rows, given.format))
    return 0


def _people(one: Checked) -> dict[str, Any]:
    claim = one.claim
    return {
        "id": claim.id,
        "verdict": one.verdict.replace("_", " "),
        "published": claim.published,
        "recomputed": one.row()["recomputed"],
        "unit": claim.unit,
        "source": claim.source,
        "statement": claim.statement,
    }


def _traced(one: Checked, format: Format) -> str:
    return render([one.row()], format)
