"""`repro doctor`: the state of this machine and its suitability, in one line or as a table."""

from __future__ import annotations

import argparse

from ..console import FAILED, OK
from ..formats import FORMATS, render
from ..machine.doctor import examine


def options(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "exit codes: 0 healthy; 1 the driver does not report its GPUs, or this image or this torch is not for this "
        "GPU: the line ends with what would be right"
    )
    parser.add_argument("--format", choices=FORMATS, help="format of stdout (default: one line)")


def main(given: argparse.Namespace) -> int:
    health = examine()
    if given.format is None:
        print(health.line)
    else:
        row = {
            "gpus": ", ".join(health.gpus) or None,
            "driver": health.driver,
            "image": health.image,
            "torch": health.torch,
            "kernels": ", ".join(health.kernels) or None,
            "tf32": health.tf32,
            "advice": health.advice,
            "complaint": health.complaint,
        }
        print(render([row], given.format, headings={"gpus": "GPUs", "tf32": "TF32"}))
    return OK if health.complaint is None else FAILED
