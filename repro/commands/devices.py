"""Options that choose the GPUs, or the number of CPU processes, of a command."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..console import UserError, say
from ..formats import count
from ..machine import nvml, packages
from ..machine.devices import Device
from ..machine.host import usable_cpus
from ..options import Options, option
from ..run.plan import counts_up_to

_PROCESSES_A_CPU = 8  # more bring a machine to a halt: each waits for all others in turn


def _processes(text: str, option: str) -> tuple[int, ...]:
    return tuple(sorted({count(part.strip(), option) for part in text.split(",")}))


@dataclass(frozen=True, kw_only=True)
class Devices(Options):
    """The options that choose GPUs, or the number of CPU processes."""

    gpus: str | None = option("GPUs to use: all, a count as in Docker, or indices (0,1 or device=0)", "all|N|0,1")
    processes: tuple[int, ...] | None = option(
        "run on the CPU, also beside --gpus, with these numbers of processes (default without a GPU 1,2)",
        "1,2",
        _processes,
    )


def cpus_option() -> Any:
    """Declare the option that keeps a command to fewer CPUs."""
    return option("use this many of the CPUs: one of each core first (default: all)", "N", count)


def devices_and_counts(gpus: str | None, processes: tuple[int, ...] | None) -> tuple[list[Device], tuple[int, ...]]:
    """Return the chosen GPUs, empty for the CPU, and the numbers of GPUs or processes to run on."""
    if processes is not None and gpus is not None:
        _asked(gpus)  # invalid values are still refused
        say(f"--processes {','.join(map(str, processes))} runs on the CPU, so --gpus {gpus} is left out")
    devices = alike(gpus, nvml.visible_devices()) if processes is None else []
    if devices:
        return devices, counts_up_to(len(devices))
    counts, cpus = processes or (1, 2), usable_cpus()
    if counts[-1] > (most := _PROCESSES_A_CPU * cpus):
        named = ",".join(map(str, counts))
        raise UserError(f"--processes {named}: at most {most}, {_PROCESSES_A_CPU} on each of the {cpus} CPUs here")
    return devices, counts


def counts_on(gpus: str | None, processes: tuple[int, ...] | None, available: int) -> tuple[int, ...]:
    """Return the numbers of GPUs or processes to run on where a machine with so many GPUs is elsewhere."""
    if processes is not None:
        return processes
    try:
        return counts_up_to(len(parse_gpus("all" if gpus is None else gpus, available)))
    except UserError as error:
        raise UserError(f"on a node of {available}: {error}") from None


def alike(asked: str | None, visible: Sequence[Device]) -> list[Device]:
    """Return the visible GPUs that `--gpus` selects, all without it. Raise UserError if no trial can use them
    jointly."""
    devices = [visible[index] for index in parse_gpus(asked, len(visible))] if asked is not None else list(visible)
    if len({device.driver_name for device in devices}) > 1:
        names = ", ".join(f"{device.index} {device.driver_name}" for device in devices)
        raise UserError(f"the GPUs are of several types ({names}): choose equal ones with --gpus")
    if len(devices) > 1 and any(device.sliced for device in devices):
        raise UserError(f"{len(devices)} MIG slices: CUDA gives a process one, and NCCL joins none; take --gpus 1")
    return devices


def parse_gpus(text: str, available: int) -> list[int]:
    """Return the indices that `--gpus` selects among `available` GPUs.

    The text is `all`, a bare number, which is a count as in Docker, or indices: `0,1`, `device=0`, `device=0,2`. Raise
    UserError for anything else, and for GPUs that do not exist.
    """
    number, indices = _asked(text)  # first values that are invalid on any machine
    if available == 0:
        raise UserError(f"--gpus {text}: no GPU is visible here; {packages.how_to_see_a_gpu()}")
    if (number or max(indices, default=0) + 1) > available:
        here = "1 is visible here, with index 0"
        if available > 1:
            here = f"{available} are visible here, with indices 0 to {available - 1}"
        missing = "more GPUs than there are" if number else f"there is no GPU {max(indices)}"
        raise UserError(f"--gpus {text}: {missing}; {here}")
    return indices or list(range(number or available))


def _asked(text: str) -> tuple[int | None, list[int]]:
    """Return the count or indices in `--gpus`, neither for all. Raise UserError for values invalid on any machine."""
    asked = text.strip().strip('"')
    if asked == "all":
        return None, []
    if re.fullmatch("[0-9]{1,9}", asked):
        if int(asked) == 0:
            raise UserError(f"--gpus {text}: a bare number is a count; for the GPU with index 0 write device=0")
        return int(asked), []
    listed = asked.removeprefix("device=")
    if not re.fullmatch("[0-9]{1,9}( *, *[0-9]{1,9})*", listed):
        raise UserError(f"--gpus {text}: expected all, a count such as 2, or indices such as 0,1 or device=0")
    return None, list(dict.fromkeys(map(int, listed.split(","))))
