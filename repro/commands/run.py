"""`repro run`: measure, extrapolate, diff with the paper."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from .. import files, formats, models
from ..console import UserError, say
from ..formats import Format, add_format
from ..machine import doctor, packages, support
from ..machine.cluster import Node, launched
from ..machine.devices import Device, capability_of, every_device, gpu_of
from ..machine.host import host, limited_cpus
from ..measure.method import MethodFile, methods_of
from ..models.recipe import Scale, sharing
from ..paper.gpus import catalogue_file
from ..paper.settings import Attention
from ..paper.tables import COUNTS, TOLERANCE
from ..record import Trial
from ..run.plan import Options, default_scale, methods_and_parts, projecting, trials
from ..run.results import LOGS
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
_FLASH = "attention=flash"
_NODES = (
    "several nodes: start the same command on each of them by torchrun or SLURM, with one process a node:\n"
    "  torchrun --nnodes 2 --node-rank RANK --rdzv-endpoint HOST:PORT -m repro run ...\n"
    "  srun --nodes 2 --ntasks-per-node 1 ... (repro slurm prints a batch script)"
)


@dataclass(frozen=True)
class Asked:
    """A run as the command line asks for it on this machine. `files` are those of the methods of --with, `words`
    pytest's own options."""

    options: Options
    devices: Sequence[Device]
    files: Sequence[MethodFile]
    out: Path
    format: Format
    require_comparison: bool
    words: Sequence[str]


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
    add("--steps", default=str(Trial.steps), metavar="N", help=f"measured rounds (default {Trial.steps}, the paper's)")
    add("--repeat", default="1", metavar="N", help="measure each trial N times, in fresh processes (default 1)")
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
        "several, FILE.py:A+B for both together (without --methods: free lunch alone); see docs/own-model.md. "
        "attention=flash: the attention kernel of free lunch, in place of sdpa",
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
        "--project",
        metavar="2,4,8",
        help="also project to so many GPUs, or processes, which need not exist: from one rank of them, or where "
        "nothing is sharded from a trial on fewer; see docs/prediction.md",
    )
    add("--require-comparison", action="store_true", help="exit with 3 if no cell of the paper could be compared")
    add_format(parser)
    add("words", nargs="*", metavar="-- OPTIONS", help="pytest's own options, such as -- -k vit")


@resumable("what is finished is kept")
def main(given: argparse.Namespace) -> int:
    with limited_cpus(cpus_of(given.cpus)):
        check_packages("pytest", "pytest-benchmark")  # which the driver imports
        node = launched()
        asked = parsed(given, node)
        if node is not None and node.rank:
            return _follow(node, asked)
        from .driver import go_through

        driver = driver_of(asked, node)
        return driver.finish(go_through(driver, asked.words), asked.format, asked.require_comparison)


def driver_of(asked: Asked, node: Node | None = None) -> Driver:
    """Return what carries out the run. Raise UserError where the machine cannot."""
    from ..run.run import Run
    from .driver import Driver

    health = _fitness(asked.devices)
    run = Run(asked.out, asked.options, asked.devices, node, asked.files)
    return Driver(run, health)


def _follow(node: Node, asked: Asked) -> int:
    """Take part in node 0's run, with a folder of its own for logs: several nodes may share one file system."""
    from ..machine.stack import trial_environment
    from ..measure.launcher import ForkServer
    from ..measure.nodes import follow

    folder, devices = asked.out, asked.devices
    _fitness(devices)
    check_disk(folder)
    check_compilers(trials(asked.options, devices), devices)
    stop_with(node)
    try:
        logs = files.make_folder(folder, f"{LOGS}/node-{node.rank}")
    except OSError as error:
        raise files.not_written(folder, error, "name another folder with --out") from error
    server = ForkServer(logs / "server.log", trial_environment(devices), methods=asked.files)
    say(f"node {node.rank} of {node.count}: waiting for node 0, which reports; logs in {logs}")
    return follow(node, server, logs, every_device(devices), max(asked.options.counts), bool(devices))


def _fitness(devices: Sequence[Device]) -> str:
    """Return, in a container image, the line that says what it is fit for. Raise UserError where the image, or the
    machine, is not fit for these devices."""
    findings = doctor.examine() if packages.image_target() is not None else {}
    for found in findings.values() if devices else ():
        if found.fault:
            raise UserError(found.fault)
    check_machine(devices)
    return doctor.summary(findings)


def parsed(given: argparse.Namespace, node: Node | None = None) -> Asked:
    """Return the run that is asked for. Raise UserError for the first thing that is wrong with it."""
    from ..run.estimate import estimate

    devices, counts = devices_and_counts(given.gpus, given.processes)
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
    if options.projected:
        options = projecting(options, devices, partial(estimate, gpu=gpu_of(devices)))
        if not options.projected:
            raise UserError(f"--project {given.project}: all of them are measured here; leave it out")
    return Asked(
        options=options,
        devices=devices,
        files=methods_of(_kernel_and_methods(given.own)[1])[1],
        out=given.out,
        format=given.format,
        require_comparison=given.require_comparison,
        words=given.words,
    )


def options_of(given: argparse.Namespace, cuda: bool, counts: tuple[int, ...], nodes: int) -> Options:
    """Return the options of a run on so many GPUs, or processes of a CPU, on each node. Raise UserError for what is
    wrong with them on any machine."""
    if given.words and not given.words[0].startswith("-"):
        raise UserError(f"{given.words[0]}: expected options; behind -- stand those of pytest, such as -- -k vit")
    kernel, own = _kernel_and_methods(given.own)
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
        attention=kernel,
        nodes=nodes,
        search=_search(given.search),
        clock=given.by,
        projected=_projected(given.project),
        added=methods_of(own)[0],
        micro_batch=formats.count_if_given(given.micro_batches, "--micro-batches"),
        parts=parts,
        repeat=formats.count(given.repeat, "--repeat"),
    )
    _check_together(options)
    _check_counts(options)
    _check_micro_batches(options)
    return options


def _check_together(options: Options) -> None:
    """Raise UserError for options that exclude each other."""
    modern, search = "--methods modern", f"--search {options.search}"
    repeats = options.repeat > 1
    others = {"--with": options.added, "--project": options.projected, "--micro-batches": options.micro_batch}
    others |= {"--repeat": repeats}
    for chooser, chooses in ((modern, options.modern), (search, options.best)):
        excluded = [option for option, there in {**others, search: options.best}.items() if there and option != chooser]
        if chooses and excluded:
            raise UserError(f"{chooser} chooses its trials itself: leave out {excluded[0]}")
    if options.best and options.methods not in (None, "all"):
        raise UserError(f"{search} chooses from the whole search: use it with --methods all, not {options.methods}")
    if options.added and options.methods == "naive":
        raise UserError("--with adds methods to free lunch: use it with --methods free-lunch (its default), or all")
    on_one_node = {modern: options.modern, search: options.best, "--project": options.projected, "--repeat": repeats}
    if options.nodes > 1 and (found := [option for option, there in on_one_node.items() if there]):
        raise UserError(f"{found[0]} runs on one node, this run was launched on {options.nodes}")
    for id in options.models if options.best or options.projected else ():
        models.find_traced(id)  # what is predicted, and the bytes of communication, come from traces


def _kernel_and_methods(given: Sequence[str]) -> tuple[Attention, list[str]]:
    """Divide what --with names into the attention kernel and the methods of one's own."""
    kernels = [text for text in given if text.startswith("attention=")]
    if kernels not in ([], [_FLASH]):
        raise UserError(f"--with {' --with '.join(kernels)}: expected {_FLASH} once, or none for sdpa")
    return "flash" if kernels else "sdpa", [text for text in given if text not in kernels]


def _projected(text: str | None) -> tuple[int, ...]:
    """Return the counts of --project."""
    if text is None:
        return ()
    asked = sorted({formats.count(part.strip(), "--project") for part in text.split(",")})
    if wrong := [count for count in asked if not 1 < count <= max(COUNTS)]:
        raise UserError(f"--project {text}: {wrong[0]} is not from 2 to {max(COUNTS)}; take 2, 4 or 8, or several")
    return tuple(asked)


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
    """Raise UserError where no trial could share its batch among the nodes, as they would report once they
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
            f"--with {_FLASH} changes nothing here: it serves free lunch of Pythia, on an Ampere or newer GPU; "
            "leave it out"
        )
    if plain:
        say(f"--with {_FLASH} serves Pythia alone, without it run {', '.join(plain)}")


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


def _tolerance(asked: str) -> float:
    value = formats.number(asked, f"--tolerance {asked}")
    if value is None or not 0 < value < 1:
        raise UserError(f"--tolerance {asked}: expected a share between 0 and 1, such as 0.15")
    return value
