"""Probes of this machine: measurements that a prediction needs for a machine without a data sheet."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from ..console import UserError, say
from ..machine.devices import Device, name_of
from ..machine.host import host
from ..measure.jobs import Job, RankOutcome
from ..measure.launcher import ServerDiedError
from ..measure.trial import Bench, Server
from ..paper.gpus import Gpu
from ..predict.fits import Probes, load_probes
from ..predict.hardware import Probed
from .plan import counts_up_to

_SECONDS = 300.0


def probe(server: Server, devices: Sequence[Device], counts: Iterable[int], log: Path) -> Probes:
    """Probe each of these counts of devices working at once, and take the slowest device. An empty `devices` means
    processes on the CPU. Raise UserError where a probe fails."""
    found, memory, busy = {}, [], []
    try:
        server.start()
        started = time.monotonic()
        for count in counts:
            outcomes = _outcomes(server, devices, count, log)
            values = [outcome.value for outcome in outcomes]
            memory += [value.pop("memory") for value in values]
            busy += [outcome.busy_cpus for outcome in outcomes if outcome.busy_cpus is not None]
            found[count] = _slowest(values)
    except ServerDiedError as error:
        raise UserError(f"nothing can be probed: {error.reason}") from None
    seconds = time.monotonic() - started
    each = int(min(memory)) if devices else host().memory_bytes // max(found)
    capability = devices[0].compute_capability if devices else None
    return Probes(name_of(devices), each, capability, found, seconds, max(busy, default=None))


def known_machine(bench: Bench, devices: Sequence[Device], folder: Path, counts: Sequence[int]) -> Gpu | Probes:
    """Return the catalogue's GPU, else the probes of these counts."""
    return bench.gpu or _probes(bench, devices, folder, counts)


def links_of(bench: Bench, devices: Sequence[Device], folder: Path) -> Probes | None:
    """Return the probes of as many of these GPUs at once as the paper has a count for; None for a single one."""
    count = counts_up_to(len(devices))[-1] if devices else 1
    if count == 1:
        return None
    found = _probes(bench, devices, folder, [count])
    return replace(found, counts={count: found.counts[count]})


def host_bandwidth(bench: Bench) -> float:
    """Measure how many bytes a second the CPUs here read and write. Raise UserError where that fails."""
    try:
        [outcome] = _outcomes(bench.server, [], 1, bench.logs / "probes.log", "host")
    except ServerDiedError as error:
        raise UserError(f"the host cannot be probed: {error.reason}") from None
    return float(outcome.value)


def _probes(bench: Bench, devices: Sequence[Device], folder: Path, counts: Sequence[int]) -> Probes:
    """Return the probes of these counts, from an earlier run in the folder, or measured now."""
    file = folder / "probes.json"
    known = load_probes(file) if file.is_file() else None
    if known is not None and known.device == name_of(devices) and set(counts) <= known.counts.keys():
        found = known
    else:
        found = probe(bench.server, devices, counts, bench.logs / "probes.log")
        found.save(file, named=False)
    if found.warning:
        say(found.warning)
    return found


def _outcomes(
    server: Server, devices: Sequence[Device], count: int, log: Path, probe: str = "probe"
) -> list[RankOutcome]:
    """Return the outcome of the probe on each of `count` devices that work at once. Raise UserError where one fails."""
    job = Job(
        call=f"repro.measure.probes:{probe}",
        arguments={},
        ranks=count,
        log=str(log),
        timeout=_SECONDS,
        cuda=bool(devices),
    )
    outcomes = server.call(job)
    for outcome in outcomes:
        if outcome.status not in ("ok", "stopped"):
            text = outcome.error or f"did not end within {_SECONDS:.0f} s"
            raise UserError(f"probing {count} x {name_of(devices)} {outcome.status}: {text}; see {log}")
    return outcomes


def _slowest(ranks: Sequence[dict[str, float | None]]) -> Probed:
    """Return the lowest rates and the longest waits of all ranks."""
    found: dict[str, float | None] = {}
    for key in ranks[0]:
        values = [value for rank in ranks if (value := rank[key]) is not None]
        found[key] = (max if key in ("launch", "latency") else min)(values) if values else None
    return Probed(**found)  # type: ignore[arg-type]
