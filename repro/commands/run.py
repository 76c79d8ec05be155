"""`repro run`: measure, extrapolate, diff with the paper."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from .. import files, formats, models
from ..console import UserError, say
from ..formats import Format, bytes_, count, seconds, size
from ..machine import doctor, packages, support
from ..machine.cluster import Node, launched
from ..machine.devices import Device, capability_of, every_device, gpu_of
from ..machine.host import host, limited_cpus
from ..measure.method import MethodFile, methods_of
from ..models.recipe import Scale, sharing
from ..options import argument, flag, format_option, option, several
from ..paper.gpus import catalogue_file
from ..paper.settings import Attention
from ..paper.tables import COUNTS, TOLERANCE
from ..record import Clock, Trial
from ..run.plan import Methods, Options, default_scale, methods_and_parts, projecting, trials
from ..run.results import LOGS
from .custom_models import models_option
from .day_options import by_option
from .devices import Devices, cpus_option, devices_and_counts
from .preflight import check_compilers, check_disk, check_machine, check_packages, out_option
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


def _projected(text: str, option: str) -> tuple[int, ...]:
    asked = sorted({formats.count(part.strip(), option) for part in text.split(",")})
    if wrong := [count for count in asked if not 1 < count <= max(COUNTS)]:
        raise UserError(f"{option} {text}: {wrong[0]} is not from 2 to {max(COUNTS)}; take 2, 4 or 8, or several")
    return tuple(asked)


def _search(text: str, option: str) -> str:
    """Return `exhaustive`, or a positive number in digits."""
    if text == "exhaustive":
        return text
    if not text.isdecimal():
        raise UserError(
            f"{option} {text}: expected exhaustive or a number; --search N measures naive, free lunch and the N best "
            "predicted settings"
        )
    return str(formats.count(text, option))


def _tolerance(text: str, option: str) -> float:
    value = formats.number(text, f"{option} {text}")
    if value is None or not 0 < value < 1:
        raise UserError(f"{option} {text}: expected a share between 0 and 1, such as 0.15")
    return value


@dataclass(frozen=True, kw_only=True)
class Asked(Devices):
    epilog = f"{_NODES}\n\n{_EXIT_CODES}"
    cpus: int | None = cpus_option()
    models: str | None = models_option("recipes, by id: repro list recipes lists them (default all nine)")
    methods: tuple[Methods | None, tuple[str, ...]] = option(
        "published: naive and Appendix J's settings of each cell (default on GPUs); naive; free-lunch; all: naive and "
        "the paper's whole search; modern: free lunch with the parts of today's training software that make it faster "
        "here, modern:exact those with the same arithmetic alone, modern+PART+PART these parts (see "
        "docs/own-model.md); default without a GPU: naive and free lunch, and all for pythia-1b on several processes",
        "METHODS",
        lambda text, option: methods_and_parts(text),
        default=(None, ()),
    )
    search: str = option(
        "exhaustive: all settings asked for, as in the paper (default); N, such as 3: naive, free lunch and the N "
        "settings of the whole search that are predicted to be the fastest",
        "exhaustive|N",
        _search,
        default="exhaustive",
    )
    scale: Scale | None = option("size of the recipes (default: paper on GPUs, tiny on a CPU)", choices=get_args(Scale))
    steps: int = option(f"measured rounds (default {Trial.steps}, the paper's)", "N", count, default=Trial.steps)
    repeat: int = option("measure each trial N times, in fresh processes (default 1)", "N", count, default=1)
    tolerance: float = option(
        f"how far days may be off the printed ones, relative (default {TOLERANCE})", "X", _tolerance, default=TOLERANCE
    )
    by: Clock = by_option(printed=False)
    custom_methods: tuple[str, ...] = several(
        "also measure with this method of your own, against the same settings without it; several times for several, "
        "FILE.py:A+B for both together (without --methods: free lunch alone); see docs/own-model.md. attention=flash: "
        "the attention kernel of free lunch, in place of sdpa",
        "FILE.py:METHOD",
        name="--with",
    )
    micro_batches: int | None = option(
        "measure this micro batch alone (default: the largest power of two that fits, as in the paper, and of your own "
        "models the largest that divides the batch and fits)",
        "N",
        count,
    )
    budget: float | None = option("start no trial that would end after this", "4h", seconds)
    trial_timeout: float | None = option(
        "end a trial after this (default 1h, or 3 times its estimate where that is more)", "1h", seconds
    )
    memory: int | None = option("limit each rank's memory to this, on its GPU or on the CPU", "2GiB", bytes_)
    out: Path = out_option("results/local")
    project: tuple[int, ...] = option(
        "also project to so many GPUs, or processes, which need not exist: from one rank of them, or where nothing is "
        "sharded from a trial on fewer; see docs/prediction.md",
        "2,4,8",
        _projected,
        default=(),
    )
    require_comparison: bool = flag("exit with 3 if no cell of the paper could be compared")
    format: Format = format_option()
    words: tuple[str, ...] = argument("pytest's own options, such as -- -k vit", "-- OPTIONS", nargs="*")


@dataclass(frozen=True)
class Request:
    """A run as it is asked for on this machine. `files` are those of the methods of --with."""

    options: Options
    devices: Sequence[Device]
    files: Sequence[MethodFile]
    out: Path


@resumable("what is finished is kept")
def main(asked: Asked) -> int:
    with limited_cpus(asked.cpus):
        check_packages("pytest", "pytest-benchmark")  # which the driver imports
        node = launched()
        request = parsed(asked, node)
        if node is not None and node.rank:
            return _follow(node, request)
        from .driver import go_through

        driver = driver_of(request, node)
        return driver.finish(go_through(driver, asked.words), asked.format, asked.require_comparison)


def driver_of(request: Request, node: Node | None = None) -> Driver:
    """Return what carries out the run. Raise UserError where the machine cannot."""
    from ..run.run import Run
    from .driver import Driver

    health = _fitness(request.devices)
    run = Run(request.out, request.options, request.devices, node, request.files)
    return Driver(run, health)


def _follow(node: Node, request: Request) -> int:
    """Take part in node 0's run, with a folder of its own for logs: several nodes may share one file system."""
    from ..machine.stack import trial_environment
    from ..measure.launcher import ForkServer
    from ..measure.nodes import follow

    folder, devices = request.out, request.devices
    _fitness(devices)
    check_disk(folder)
    check_compilers(trials(request.options, devices), devices)
    stop_with(node)
    try:
        logs = files.make_folder(folder, f"{LOGS}/node-{node.rank}")
    except OSError as error:
        raise files.not_written(folder, error, "name another folder with --out") from error
    server = ForkServer(logs / "server.log", trial_environment(devices), methods=request.files)
    say(f"node {node.rank} of {node.count}: waiting for node 0, which reports; logs in {logs}")
    return follow(node, server, logs, every_device(devices), max(request.options.counts), bool(devices))


def _fitness(devices: Sequence[Device]) -> str:
    """Return, in a container image, the line that says what it is fit for. Raise UserError where the image, or the
    machine, is not fit for these devices."""
    findings = doctor.examine() if packages.image_target() is not None else {}
    for found in findings.values() if devices else ():
        if found.fault:
            raise UserError(found.fault)
    check_machine(devices)
    return doctor.summary(findings)


def parsed(asked: Asked, node: Node | None = None) -> Request:
    """Return the run that is asked for. Raise UserError for the first thing that is wrong with it."""
    from ..run.estimate import estimate

    devices, counts = devices_and_counts(asked.gpus, asked.processes)
    options = options_of(asked, bool(devices), counts, node.count if node is not None else 1)
    if options.memory is not None:
        _check_memory(options.memory, devices)
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
            raise UserError(
                f"--project {','.join(map(str, asked.project))}: all of them are measured here; leave it out"
            )
    return Request(options, devices, methods_of(_kernel_and_methods(asked.custom_methods)[1])[1], asked.out)


def options_of(asked: Asked, cuda: bool, counts: tuple[int, ...], nodes: int) -> Options:
    """Return the options of a run on so many GPUs, or processes of a CPU, on each node. Raise UserError for what is
    wrong with them on any machine."""
    if asked.words and not asked.words[0].startswith("-"):
        raise UserError(f"{asked.words[0]}: expected options; behind -- stand those of pytest, such as -- -k vit")
    kernel, method_files = _kernel_and_methods(asked.custom_methods)
    methods, parts = asked.methods
    options = Options(
        models=models.listed(asked.models),
        methods=methods,
        scale=asked.scale or default_scale(cuda),
        counts=counts,
        memory=asked.memory,
        steps=asked.steps,
        trial_timeout=asked.trial_timeout,
        budget=asked.budget,
        tolerance=asked.tolerance,
        attention=kernel,
        nodes=nodes,
        search=asked.search,
        clock=asked.by,
        projected=asked.project,
        added=methods_of(method_files)[0],
        micro_batch=asked.micro_batches,
        parts=parts,
        repeat=asked.repeat,
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


def _check_memory(limit: int, devices: Sequence[Device]) -> None:
    """Raise UserError for a limit above all the memory that a rank has: it would limit nothing, and its trials could be
    compared with no cell. Ranks on a CPU share the machine's, and each may be given up to all of it: a
    limit sets nothing aside, and most ranks take less."""
    most = min((device.memory_bytes for device in devices), default=host().memory_bytes)
    if limit > most:
        of = f"each {devices[0].name} here" if devices else "this machine"
        raise UserError(
            f"--memory {size(limit)}: expected at most {most >> 20}MiB, the memory of {of}; name less, or leave it out"
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
