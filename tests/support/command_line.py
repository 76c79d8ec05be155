"""What tests of commands share: the command line as people call it, and a results folder with given records."""

from __future__ import annotations

import io
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import IO, Any

import pytest

from repro import __version__, datafile, models
from repro.cli import main
from repro.machine import environment
from repro.machine.environment import Environment, RunGpu
from repro.machine.support import compiles
from repro.models.recipe import Recipe, Scale
from repro.paper.gpus import find
from repro.paper.settings import Settings
from repro.record import RawTimes, Record, Status, Trial
from repro.run.results import TRIALS, Results
from repro.steps import derive

ROOT = Path(__file__).resolve().parents[2]
KEPT = ROOT / "results" / "cpu-2-cores"
PATIENCE = 1800.0  # seconds: what takes longer hangs, however busy the machine is
SLOW = {"torch", "deepspeed", "numpy", "pandas", "pytest", "importlib.metadata", "tabulate"}


_PROGRAM = (sys.executable, "-m", "repro")


def documentation(*pages: str) -> str:
    """Return these pages as one text without line breaks: by default README.md, CONTRIBUTING.md and all of docs/."""
    read = [ROOT / page for page in pages or ("README.md", "CONTRIBUTING.md")]
    read += [] if pages else sorted((ROOT / "docs").glob("*.md"))
    return " ".join(" ".join(page.read_text() for page in read).split())


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def repro(*arguments: str, cwd: Path = ROOT, **variables: str) -> subprocess.CompletedProcess[str]:
    """What `python -m repro` tells with these arguments, called in this process, which leaves out what starting one
    takes; tests/test_cli.py holds it to what a process tells. Of what measures, or of a process, take `process`."""
    return _called(io.StringIO(), arguments, cwd, variables)


def on_a_screen(columns: int, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The same on a terminal of so many columns."""
    return _called(_Terminal(), arguments, ROOT, {"COLUMNS": str(columns)})


def _called(
    output: io.StringIO, arguments: Sequence[str], cwd: Path, variables: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    beside = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(output), redirect_stderr(beside):
        patch.chdir(cwd)
        patch.setattr(sys, "argv", ["repro", *arguments])
        for name, value in variables.items():
            patch.setenv(name, value)
        try:
            code = main(arguments)
        except SystemExit as end:  # --help
            code = int(end.code or 0)
    return subprocess.CompletedProcess(["repro", *arguments], code, output.getvalue(), beside.getvalue())


def process(*arguments: str, cwd: Path = ROOT, **variables: str) -> subprocess.CompletedProcess[str]:
    """Runs `python -m repro` with these arguments."""
    return process_of([], *arguments, cwd=cwd, **variables)


def process_of(
    prefix: Sequence[str], *arguments: str, cwd: Path = ROOT, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Runs `python -m repro` with these arguments, started by the command `prefix`."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **variables}
    command = [*prefix, *_PROGRAM, *arguments]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True)


def started(*arguments: str, program: Sequence[str] = (), **variables: str) -> subprocess.Popen[str]:
    """Starts it, or a `program` like it, on the CPU, in a session of its own, to be listened to and stopped."""
    return subprocess.Popen(
        [*(program or _PROGRAM), *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": "", **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def stderr_of(process: subprocess.Popen[str]) -> IO[str]:
    """What a command that was `started` says, as it says it."""
    assert process.stderr is not None
    return process.stderr


def wait_for(what: Callable[[], object], process: subprocess.Popen[str] | None = None) -> None:
    """Wait until something is so, as long as the process that is to make it so runs."""
    deadline = time.monotonic() + PATIENCE
    while not what():
        assert time.monotonic() < deadline, "waited in vain"
        assert process is None or process.poll() is None, process.communicate()
        time.sleep(0.02)


def program(path: Path, text: str) -> Path:
    """Write a program that can be executed, a shell's unless its first line names another."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text if text.startswith("#!") else f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def answer(*arguments: str) -> Any:
    """What a command answers as JSON, which has no NaN and no infinity."""
    done = repro(*arguments, "--format", "json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout, parse_constant=pytest.fail)


def refusal(*arguments: str, cwd: Path = ROOT, **variables: str) -> str:
    """The one line with which a command refuses bad input."""
    return one_line(repro(*arguments, cwd=cwd, **variables))


def one_line(done: subprocess.CompletedProcess[str]) -> str:
    """The one line that a command which refused bad input told."""
    assert (done.returncode, done.stdout) == (2, ""), done.stdout
    of_another = "(REPRO_EXPECTED), not those that come with repro\n"  # which each command says
    output = [line for line in done.stderr.splitlines(keepends=True) if not line.endswith(of_another)]
    assert len(output) == 1, done.stderr
    return output[0]


def slow_imports(*arguments: str) -> set[str]:
    """Which of the libraries that are slow to import a command imports."""
    code = f"""
import sys
from repro.cli import main
try:
    main(sys.argv[1:])
finally:
    print(*{SLOW} & set(sys.modules))
"""
    command = [sys.executable, "-c", code, *arguments]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return set(found.stdout.splitlines()[-1].split())


def record(
    model: str,
    settings: str,
    days: float | None,
    gpu: str = "A100",
    count: int = 4,
    status: Status = "ok",
    scale: Scale = "paper",
    true_days: float | None = None,
    nodes: int = 1,
    memory: int | None = None,
    **known: Any,
) -> Record:
    """A sound record of a trial that took `days` by the authors' clock, and by the others too unless `true_days`.
    Free lunch ran in TF32; `memory` is a limit in bytes."""
    compiled = compiles(models.find(model, scale), Settings.parse(settings))
    known = {"tf32": "free_lunch" in settings and gpu != "cpu", "compiled": compiled, "wrapper": "a wrapper", **known}
    known = {"weights_held": models.find(model, scale).parameters, **known}
    if gpu != "cpu" and status == "ok":
        known = {"gpu_state": [{"sm_mhz": 1410, "processes": 1}] * count * nodes, **known}
    elif gpu != "cpu" and status == "out_of_memory" and not {"full", "peaks"} & known.keys():
        known["full"] = [{"memory_bytes": memory_of(gpu), "taken_bytes": 0}]
    trial = Trial(model, scale, Settings.parse(settings).id, gpu, count, memory, nodes=nodes)
    found = altered(Record.of(trial, status), **known)
    if days is None:
        return found
    recipe = models.find(model, scale)
    found.batch.micro_batch = found.batch.micro_batch or min(4, recipe.batch_size // trial.world)
    found.batch.accumulation = recipe.batch_size // found.batch.micro_batch // trial.world
    host = [_times(days, recipe, found.batch.compared_accumulation or 1)] * trial.world
    device = [_times(true_days or days, recipe, found.batch.accumulation)] * trial.world
    if gpu != "cpu":  # whose clock never reads the same as the host's
        time = host[0]["with"][0]
        around = [math.nextafter(time, 0.0), time, math.nextafter(time, math.inf)]  # whose mean it is
        host = [host[0] | {"with": around}] * trial.world
    found.times = RawTimes(host, device, device)
    found.derived = derive(found, find(gpu))
    return found


def altered(one: Record, **known: Any) -> Record:
    """The record with other values in these fields, of its own or of its parts: those by their names in a file."""
    own = {name: known.pop(name) for name in [*known] if name in vars(one)}
    for each in fields(one):
        if "flat" in each.metadata:
            part = own.get(each.name, getattr(one, each.name))
            names = {each.metadata["flat"].get(name, name): name for name in vars(part)}
            own[each.name] = replace(part, **{names[name]: known.pop(name) for name in [*known] if name in names})
    assert not known, "a record has no such fields"
    return replace(one, **own)


def of_more_rounds(one: Record) -> Record:
    """The same as if measured again, with more rounds."""
    return replace(one, id=f"{one.id}/9-rounds")


def _times(days: float, recipe: Recipe, accumulation: int) -> dict[str, list[float]]:
    """Three equal rounds that make so many days; the update takes as long as a micro-step."""
    part = days * 86_400 / recipe.training_steps / (accumulation + 1)
    return {"without": [part] * 3, "with": [part] * 3, "update": [part] * 3}


def memory_of(gpu: str) -> int:
    """The bytes that a GPU has: those of the catalogue, of an unknown one 64 GiB."""
    known = find(gpu)
    return int(known.memory_bytes) if known else 2**36


def listed(*records: Record) -> Environment:
    """What environment.json holds of a run that left these records, as far as they are believed by it."""
    most: dict[str, int] = {}
    for each in records:
        if each.device != "cpu":
            most[each.device] = max(each.count, most.get(each.device, 0))
    names = {gpu: gpu.removeprefix("unknown GPU (").removesuffix(")") for gpu in most}
    gpus = [RunGpu(gpu, names[gpu], memory_of(gpu)) for gpu, count in most.items() for _ in range(count)]
    return Environment(repro=__version__, gpus=gpus, commits=[*dict.fromkeys(each.commit for each in records)])


def results_folder(folder: Path, *records: Record, **described: Any) -> Path:
    """A results folder that holds these records, and lists their GPUs where there are any. `described` is what else its
    environment.json holds."""
    with Results(folder), (folder / TRIALS).open("a", encoding="utf-8") as file:
        file.writelines(f"{json.dumps(datafile.to_json(each))}\n" for each in records)
    if described or any(each.device != "cpu" for each in records):
        own = {name: value for name, value in asdict(listed(*records)).items() if name in ("gpus", "commits")}
        datafile.write(folder / environment.FILE, {"repro": __version__} | described | own)
    return folder


def trial_lines(folder: Path) -> list[str]:
    """The lines of a folder's trials, without those of the environments of its runs."""
    lines = (folder / TRIALS).read_text(encoding="utf-8").splitlines()
    return [line for line in lines if not line.startswith('{"environment": ')]
