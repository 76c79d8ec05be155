"""`repro doctor`: the state of this machine in one line, then everything that is wrong with it, or as a table."""

from __future__ import annotations

import argparse

from ..console import FAILED, OK
from ..formats import FORMATS, render
from ..machine.doctor import examine, summary


def options(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "exit codes: 0 healthy; 1 something is wrong, such as a driver that does not report its GPUs, or an image or a "
        "torch for other GPUs: a line for each fault says what would be right"
    )
    parser.add_argument("--format", choices=FORMATS, help="format of stdout, a row a check (default: text)")


def main(given: argparse.Namespace) -> int:
    findings = examine()
    if given.format is None:
        print(summary(findings), *(found.advice for found in findings.values() if found.advice), sep="\n")
    else:
        rows = [
            {"check": name, "state": found.state or None, "advice": found.advice or None, "fault": bool(found.fault)}
            for name, found in findings.items()
        ]
        print(render(rows, given.format))
    return FAILED if any(found.fault for found in findings.values()) else OK
