"""`repro run`: measure, extrapolate, diff with the paper."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from .. import files, formats, models
from ..console import UserError, say
from ..formats import add_format
from ..machine import doctor, packages, support
from ..machine.cluster import Node, launched
from ..machine.devices import Device, capability_of, every_device
from ..machine.host import host, limited_cpus
from ..measure.method import methods_of
from ..models.recipe import Scale, sharing
from ..paper.gpus import catalogue_file
from ..paper.settings import Attention
from ..paper.tables import COUNTS, TOLERANCE
from ..record import Trial
from ..run.plan import Options, default_scale, methods_and_parts, trials
from ..run.results import LOGS
from ..run.tracking import NAMES, Tracker
from .custom_models import add_models
from .day_options import add_by
from .devices import add_cpus, add_devices, cpus_of, devices_and_counts
from .preflight import add_out, check_compilers, check_disk, check_machine, check_packages
from .stopping import resumable, stop_with

if TYPE_CHECKING:
    from .driver import Driver

_EXIT_CODES = (
    "exit codes: 0 nothing that was compared failed; 1 a cell differs, a trial crashed, or an internal error; 2 usage; "
    "3 --require-comparison and nothing could be compared; 130 interrupted (the same command resumes)"
)


_EXHAUSTIVE = "use --search exhaustive"
_NODES = (
    "several nodes: start the same command on each of them by torchrun or SLURM, with one process a node:\n"
    "  torchrun --nnodes 2 --node-rank RANK --rdzv-endpoint HOST:PORT -m repro run ...\n"
    "  srun --nodes 2 --ntasks-per-node 1 ... (repro slurm prints a batch script)"
)


def options(parser: argparse.ArgumentParser) -> None:
    parser.epilog = f"{_NODES}\n\n{_EXIT_CODES}"
    add = parser.add_argument
    add_devices(parser)
    add_cpus(parser)
    add_models(parser, "recipes, by id: repro list recipes lists them (default all nine)")
    add(
        "--methods",
        metavar="METHODS",
        help="published: naive and Appendix J's settings of each cell (default on GPUs); naive; free-lunch; all: naive "
        "and the paper's whole search; modern: free lunch with the parts of today's training software that make it "
        "faster here, modern:exact those with the same arithmetic alone, modern+PART+PART these parts (see "
        "docs/own-model.md); default without a GPU: naive and free lunch, and all for pythia-1b on several processes",
    )
    add(
        "--search",
        metavar="exhaustive|N",
        default="exhaustive",
        help="exhaustive: all settings asked for, as in the paper (default); N, such as 3: naive, free lunch and the N "
        "settings of the whole search that are predicted to be the fastest",
    )
    add("--scale", choices=get_args(Scale), help="size of the recipes (default: paper on GPUs, tiny on a CPU)")
    add(
        "--attention",
        choices=get_args(Attention),
        default="sdpa",
        help="attention kernel of free lunch (default: sdpa)",
    )
    add("--steps", default=str(Trial.steps), metavar="N", help=f"measured rounds (default {Trial.steps}, the paper's)")
    add(
        "--tolerance",
        default=str(TOLERANCE),
        metavar="X",
        help=f"how far days may be off the printed ones, relative (default {TOLERANCE})",
    )
    add_by(parser, printed=False)
    add(
        "--with",
        dest="own",
        action="append",
        default=[],
        metavar="FILE.py:METHOD",
        help="also measure with this method of your own, against the same settings without it; several times for "
        "several, FILE.py:A+B for both together (without --methods: free lunch alone); see docs/own-model.md",
    )
    add(
        "--micro-batches",
        metavar="N",
        help="measure this micro batch alone (default: the largest power of two that fits, as in the paper, and of "
        "your own models the largest that divides the batch and fits)",
    )
    add("--budget", metavar="4h", help="start no trial that would end after this")
    add(
        "--trial-timeout",
        metavar="1h",
        help="end a trial after this (default 1h, or 3 times its estimate where that is more)",
    )
    add("--memory", metavar="2GiB", help="limit each rank's memory to this, on its GPU or on the CPU")
    add_out(parser, "results/local")
    add(
        "--check-extrapolation",
        action="store_true",
        help="also time whole accumulated steps, and report the extrapolation's error",
    )
    add(
        "--project",
        metavar="2,4,8",
        help="also project to so many GPUs, or processes, which need not exist: from one rank of them, or where "
        "nothing is sharded from a trial on fewer; see docs/prediction.md",
    )
    add("--check-projection", action="store_true", help="also project what is measured, and report the error")
    add("--strict-projection", action="store_true", help="let a projected cell that differs fail the run")
    add("--require-comparison", action="store_true", help="exit with 3 if no cell of the paper could be compared")
    add("--track", choices=NAMES, default="none", help="also log trials, verdicts and report with this tracker")
    add("-k", metavar="EXPRESSION", help="only the cases that match, handed to pytest")
    add_format(parser)


@resumable("what is finished is kept")
def main(given: argparse.Namespace) -> int:
    with limited_cpus(cpus_of(given)):
        return _run(given)


def _run(given: argparse.Namespace) -> int:
    check_packages("pytest", "pytest-benchmark")  # which the driver imports
    node = launched()
    if node is not None and node.rank:
        return _follow(node, given)
    from .driver import go_through

    driver = driver_of(given, node)
    return driver.finish(go_through(driver, given.k), given.format, given.require_comparison)


def driver_of(given: argparse.Namespace, node: Node | None = None) -> Driver:
    """What carries out the run that is asked for. Raises UserError where something is wrong with that."""
    from ..run.reporter import Reporter
    from ..run.run import Run
    from .driver import Driver

    options, devices, health = _ready(given, node)
    run = Run(given.out, options, devices, node, methods_of(given.own)[1])
    return Driver(run, Reporter(Tracker(given.track, given.out)), health)


def _follow(node: Node, given: argparse.Namespace) -> int:
    """Takes part in node 0's run, with a folder of its own for logs: several nodes may share one file system."""
    from ..machine.stack import trial_environment
    from ..measure.follower import follow
    from ..measure.launcher import ForkServer

    options, devices, _ = _ready(given, node)
    folder: Path = given.out
    logs = folder / LOGS / f"node-{node.rank}"
    check_disk(folder)
    check_compilers(trials(options, devices), devices)
    stop_with(node)
    try:
        files.inside(folder, LOGS, f"{LOGS}/{logs.name}")
        logs.mkdir(parents=True, exist_ok=True)
        files.inside(logs, *os.listdir(logs))
    except OSError as error:
        raise files.not_written(folder, error, "name another folder with --out") from error
    server = ForkServer(logs / "server.log", trial_environment(devices), methods=methods_of(given.own)[1])
    say(f"node {node.rank} of {node.count}: waiting for node 0, which reports; logs in {logs}")
    return follow(node, server, logs, every_device(devices), max(options.counts), bool(devices))


def _ready(given: argparse.Namespace, node: Node | None) -> tuple[Options, list[Device], str]:
    """The run's options and GPUs, and in a container image the line that says what it is fit for. Raises UserError
    where the machine cannot run them."""
    options, devices = _checked(given, node)
    health = _image_health(devices)
    check_machine(devices)
    return options, devices, health


def _image_health(devices: Sequence[Device]) -> str:
    """In a container image the line that says what it is fit for; a UserError where it is not for these GPUs."""
    if packages.image_target() is None:
        return ""
    health = doctor.examine()
    if devices and health.complaint:
        raise UserError(health.complaint)
    return health.line


def _checked(given: argparse.Namespace, node: Node | None = None) -> tuple[Options, list[Device]]:
    """The run's options and GPUs; a UserError for the first thing that is wrong."""
    devices, counts = devices_and_counts(given)
    options = options_of(given, bool(devices), counts, node.count if node is not None else 1)
    if options.memory is not None:
        _check_memory(given.memory, options.memory, devices)
    if options.attention == "flash":
        _check_flash(options, devices)
    if options.projected and devices and devices[0].gpu is None:
        raise UserError(
            f"--project: {catalogue_file()} has no {devices[0].driver_name}, whose links a projection needs; add a "
            "row, or leave it out"
        )
    return options, devices


def options_of(given: argparse.Namespace, cuda: bool, counts: tuple[int, ...], nodes: int) -> Options:
    """Return the options of a run on so many GPUs, or processes of a CPU, on each node. Raise UserError for what is
    wrong with them on any machine."""
    if given.k == "":  # pytest would take it for every case, whoever gives an unset variable meant a few
        raise UserError("-k: it is empty; name cases, as in pytest, or leave it out for all")
    methods, parts = methods_and_parts(given.methods)
    options = Options(
        models=models.listed(given.models),
        methods=methods,
        scale=given.scale or default_scale(cuda),
        counts=counts,
        memory=formats.bytes_(given.memory, "--memory") if given.memory is not None else None,
        steps=formats.count(given.steps, "--steps"),
        trial_timeout=_seconds(given.trial_timeout, "--trial-timeout"),
        budget=_seconds(given.budget, "--budget"),
        tolerance=_tolerance(given.tolerance),
        attention=given.attention,
        check_extrapolation=given.check_extrapolation,
        nodes=nodes,
        search=_search(given.search),
        clock=given.by,
        projected=_projected(given, counts),
        strict_projection=given.strict_projection,
        added=methods_of(given.own)[0],
        micro_batch=formats.count_if_given(given.micro_batches, "--micro-batches"),
        parts=parts,
    )
    _check_modern(options)
    if options.projected:
        _check_projected(options)
    if options.best is not None:
        _check_search(options)
    _check_counts(options)
    _check_micro_batches(options)
    if options.added and options.methods == "naive":
        raise UserError("--with adds methods to free lunch: use it with --methods free-lunch (its default), or all")
    return options


def _check_modern(options: Options) -> None:
    """Raise UserError for options that modern training does not go with."""
    if not options.modern:
        return
    for option, there in (
        ("--with", options.added),
        ("--project", options.projected),
        ("--micro-batches", options.micro_batch),
        (f"--search {options.search}", options.best is not None),
    ):
        if there:
            raise UserError(f"--methods modern chooses its trials itself: leave out {option}")
    if options.nodes > 1:
        raise UserError(f"--methods modern runs on one node, this run was launched on {options.nodes}")


def _projected(given: argparse.Namespace, counts: tuple[int, ...]) -> tuple[int, ...]:
    """Return the counts of --project, without those in `counts`, which are measured, unless --check-projection asks for
    both. Raise UserError where none is left."""
    text: str | None = given.project
    for option, on in (("--check", given.check_projection), ("--strict", given.strict_projection)):
        if on and text is None:
            raise UserError(
                f"{option}-projection changes nothing without --project: give --project 2,4,8, or leave it out"
            )
    if text is None:
        return ()
    asked = sorted({formats.count(part.strip(), "--project") for part in text.split(",")})
    if wrong := [count for count in asked if not 1 < count <= max(COUNTS)]:
        raise UserError(f"--project {text}: {wrong[0]} is not from 2 to {max(COUNTS)}; take 2, 4 or 8, or several")
    left = tuple(count for count in asked if given.check_projection or count not in counts)
    if not left:
        raise UserError(f"--project {text}: all of them are measured here; leave it out, or add --check-projection")
    return left


def _seconds(text: str | None, option: str) -> float | None:
    return formats.seconds(text, option) if text is not None else None


def _check_micro_batches(options: Options) -> None:
    """Raise UserError for a micro batch that does not divide a device's part of a batch."""
    shares = {
        (id, count * options.nodes): models.find(id, options.scale).batch_size // (count * options.nodes)
        for id in options.models
        for count in (*options.counts, *options.projected)
        if models.find(id, options.scale).batch_size % (count * options.nodes) == 0
    }
    size = options.micro_batch
    for (id, devices), share in shares.items():
        if size is not None and share % size:
            raise UserError(
                f"--micro-batches {size}: it does not divide the {share} examples of {id}'s batch on each of {devices} "
                f"devices; take one that does, such as {min(share & -share, 1 << (size.bit_length() - 1))}"
            )


def _check_memory(asked: str, limit: int, devices: Sequence[Device]) -> None:
    """Raise UserError for a limit above all the memory that a rank has: it would limit nothing, and its trials could be
    compared with no cell. Ranks on a CPU share the machine's, and each may be given up to all of it: a
    limit sets nothing aside, and most ranks take less."""
    most = min((device.memory_bytes for device in devices), default=host().memory_bytes)
    if limit > most:
        of = f"each {devices[0].name} here" if devices else "this machine"
        raise UserError(
            f"--memory {asked}: expected at most {most >> 20}MiB, the memory of {of}; name less, or leave it out"
        )


def _check_counts(options: Options) -> None:
    """Raises UserError where no trial could share its batch among the nodes, as they would report once they
    had met, or among so many processes."""
    batches = {models.find(id, options.scale).batch_size for id in options.models}
    idle = [
        one for one in (*options.counts, *options.projected) if all(batch % (one * options.nodes) for batch in batches)
    ]
    if options.nodes > 1 and len(idle) == len(options.counts):
        counts = " or ".join(map(str, options.counts))
        raise UserError(
            f"launched on {options.nodes} nodes: no replication batch here divides by {options.nodes} nodes of "
            f"{counts}; take 2 or 4 nodes"
        )
    if options.nodes == 1 and idle:
        option, what = ("--processes", " processes") if idle[0] in options.counts else ("--project", "")
        take = sharing(batches, idle[0])
        raise UserError(f"{option} {idle[0]}: no replication batch here divides by {idle[0]}; take {take}{what}")


def _check_flash(options: Options, devices: Sequence[Device]) -> None:
    capability = capability_of(devices)
    plain = [id for id in options.models if support.flash_obstacle(models.find(id), capability)]
    if options.methods == "naive" or len(plain) == len(options.models):
        raise UserError(
            "--attention flash changes nothing here: it serves free lunch of Pythia, on an Ampere or newer GPU; "
            "leave it out"
        )
    if plain:
        say(f"--attention flash serves Pythia alone, without it run {', '.join(plain)}")


def _check_projected(options: Options) -> None:
    """Raise UserError where the other ranks of a trial cannot be projected."""
    for id in options.models:
        models.find_traced(id)  # the time model takes the bytes of communication from traces
    if options.best is not None:
        raise UserError(
            f"--project: a search of the best predicted is of measured counts; leave out --search {options.search}"
        )
    if options.nodes > 1:
        raise UserError(f"--project: it projects from one machine, this run was launched on {options.nodes}")


def _search(asked: str) -> str:
    """Return `exhaustive`, or a positive number in digits."""
    if asked == "exhaustive":
        return asked
    if not asked.isdecimal():
        raise UserError(
            f"--search {asked}: expected exhaustive or a number; --search N measures naive, free lunch and the N best "
            "predicted settings"
        )
    return str(formats.count(asked, "--search"))


def _check_search(options: Options) -> None:
    """Raise UserError for options that a search of the best predicted settings does not go with."""
    asked = f"--search {options.search}"
    if options.added or options.micro_batch:
        option = "--with" if options.added else "--micro-batches"
        raise UserError(f"{asked} chooses from the paper's search alone: leave out {option}, or {_EXHAUSTIVE}")
    for id in options.models:
        models.find_traced(id)
    if options.methods not in (None, "all"):
        raise UserError(f"{asked} chooses from the whole search: use it with --methods all, not {options.methods}")
    if options.nodes > 1:
        raise UserError(f"{asked} knows one node only, this run was launched on {options.nodes}: {_EXHAUSTIVE}")


def _tolerance(asked: str) -> float:
    value = formats.number(asked, f"--tolerance {asked}")
    if value is None or not 0 < value < 1:
        raise UserError(f"--tolerance {asked}: expected a share between 0 and 1, such as 0.15")
    return value
