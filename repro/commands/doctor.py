"""`repro doctor`: the state of this machine in one line, then everything that is wrong with it, or as a table."""

from __future__ import annotations

from dataclasses import dataclass

from ..console import FAILED, OK
from ..formats import FORMATS, Format, render
from ..machine.doctor import examine, summary
from ..options import Options, option


@dataclass(frozen=True, kw_only=True)
class Asked(Options):
    epilog = (
        "exit codes: 0 healthy; 1 something is wrong, such as a driver that does not report its GPUs, or an image or a "
        "torch for other GPUs: a line for each fault says what would be right"
    )
    format: Format | None = option("format of stdout, a row a check (default: text)", choices=FORMATS)


def main(asked: Asked) -> int:
    findings = examine()
    if asked.format is None:
        print(summary(findings), *(found.advice for found in findings.values() if found.advice), sep="\n")
    else:
        rows = [
            {"check": name, "state": found.state or None, "advice": found.advice or None, "fault": bool(found.fault)}
            for name, found in findings.items()
        ]
        print(render(rows, asked.format))
    return FAILED if any(found.fault for found in findings.values()) else OK
