"""`repro probe`: probe this machine, for predictions on it."""

from __future__ import annotations

import contextlib
import os
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from .. import command
from ..console import UserError, say
from ..formats import FOR_MACHINES, Format, path, render, shell_words
from ..machine.devices import name_of
from ..options import format_option, option
from ..printout import people
from .devices import Devices, devices_and_counts
from .preflight import check_disk, check_machine, check_packages
from .stopping import resumable, stop_on_sigterm


@dataclass(frozen=True, kw_only=True)
class Asked(Devices):
    out: Path = option("default results/probes.json", "FILE", path, default=Path("results/probes.json"))
    format: Format = format_option()


@resumable("nothing is kept of probes")
def main(asked: Asked) -> int:
    from ..machine.stack import trial_environment
    from ..measure.launcher import ForkServer
    from ..run.probe import probe

    check_packages()
    devices, counts = devices_and_counts(asked.gpus, asked.processes)
    check_machine(devices)
    if os.path.isdir(asked.out):  # pathlib would raise where the name is too long
        raise UserError(f"--out {asked.out}: it is a folder, expected a file such as {asked.out / 'probes.json'}")
    check_disk(asked.out.parent, asked.out.name, asked=asked.out, way_out="name another file with --out")
    stop_on_sigterm()
    say(f"probing {', '.join(map(str, counts))} x {name_of(devices)}, after loading torch")
    log = asked.out.with_name(f"{asked.out.name}.log")  # the user may have redirected stderr to probes.log
    log.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as tidy, tempfile.TemporaryDirectory(prefix="repro-") as folder:
        tidy.callback(log.unlink, missing_ok=True)
        with ForkServer(Path(folder, "server.log"), trial_environment(devices), modules=("torch",)) as server:
            try:
                probes = probe(server, devices, counts, log)
            except UserError:
                tidy.pop_all()  # the error names the log, so keep it
                raise
    probes.save(asked.out)
    rows = [
        {"device": probes.device, "count": count, **asdict(probed), "busy_cpus": probes.busy_cpus}
        for count, probed in probes.counts.items()
    ]
    if probes.warning:
        say(probes.warning)
    if asked.format in FOR_MACHINES:
        print(render(rows, asked.format))
        return 0
    words = f" --processes {max(counts)}" if not devices else ""
    notes = [
        f"{command()} predict --probes {shell_words([asked.out])} predicts this machine, {command()} run --search "
        f"3{words} probes for itself."
    ]
    answer = f"Measured here, of each device while all of them work; kept in {asked.out}."
    print(people(answer, [_people(row) for row in rows], notes, asked.format))
    return 0


def _people(row: dict[str, Any]) -> dict[str, Any]:
    def scaled(name: str, by: float) -> float | None:
        return None if row[name] is None else row[name] * by

    return {
        "device": f"{row['count']} x {row['device']}",
        **{f"{name} GFLOP/s": scaled(name, 1e-9) for name in ("fp32", "tf32", "fp16", "bf16")},
        "copy GB/s": scaled("copy", 1e-9),
        "host GB/s": scaled("host", 1e-9),
        "launch us": scaled("launch", 1e6),
        "all-reduce GB/s": scaled("ring", 1e-9),
        "smallest us": scaled("latency", 1e6),
    }
