"""`repro join`: this machine as one more node of a run."""

from __future__ import annotations

import argparse
import os

from .. import nvml
from ..build_cache import mend
from ..devices import name_of
from .devices import alike
from .preflight import add_out, check_cuda, check_disk, check_packages, stop_on_sigterm


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("address", metavar="HOST:PORT", help="what the run was given as --address")
    parser.add_argument("--gpus", metavar="all|N|0,1", help="as on the first node (default: all there are)")
    add_out(parser, "results/local", "folder for the logs")


def main(given: argparse.Namespace) -> int:
    from ..measure.nodes import join
    from ..variables import trial_environment

    check_packages()
    devices = alike(given.gpus, nvml.visible_devices())
    check_cuda(devices)
    logs = given.out / "logs"
    check_disk(logs)
    stop_on_sigterm()
    os.environ.update(trial_environment(devices))
    mend(os.environ)
    join(given.address, logs, name_of(devices), len(devices))
    return 0
