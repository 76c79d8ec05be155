"""Messages between the nodes of a run: JSON as these data classes, in which every field is checked. A node is asked for
one of a few phases of a trial, by its name, and never for a function."""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, get_args

from repro.console import UserError
from repro.datafile import NotAsDeclaredError, from_json, parse
from repro.paper.settings import Settings

from .. import models
from ..models.recipe import Scale
from .rank_reports import PARTS, Measured, Report
from .server import Job, RankOutcome

MOST_BYTES = 1 << 24  # of one message: hundreds of times those of the longest trial
_MOST = 1 << 40  # upper bound of a count
_ENDS = {"ok", "out_of_memory", "unsupported", "crashed", "timed_out", "stopped"}  # statuses of a rank

Phase = Literal["fit", "measure", "compile_anything", "build_adam"]


class ForeignError(ValueError):
    """An error of a message that no node of this version sends, with the reason in one line."""


@dataclass(frozen=True)
class Model:
    recipe: str
    scale: Scale
    settings: str
    tf32: bool

    def check(self) -> None:
        models.find(self.recipe, self.scale)
        if Settings.parse(self.settings).id != self.settings:
            raise ForeignError(f"{self.settings} is no name of settings")


@dataclass(frozen=True)
class Fit(Model):
    start: int
    largest: int

    def check(self) -> None:
        super().check()
        _counts(self.start, self.largest)


@dataclass(frozen=True)
class Measure(Model):
    compiled: bool
    micro_batch: int
    accumulation: int
    steps: int
    check_extrapolation: bool
    trained: int = 0

    def check(self) -> None:
        super().check()
        _counts(self.micro_batch, self.accumulation, self.steps, self.trained + 1)


@dataclass(frozen=True)
class CompileAnything:
    def check(self) -> None:
        pass


@dataclass(frozen=True)
class BuildAdam:
    host: bool

    def check(self) -> None:
        pass


Arguments = Fit | Measure | CompileAnything | BuildAdam
_ARGUMENTS: dict[Phase, type[Arguments]] = {
    "fit": Fit,
    "measure": Measure,
    "compile_anything": CompileAnything,
    "build_adam": BuildAdam,
}
_CALLS: dict[Phase, str] = {phase: f"repro.measure.phases:{phase}" for phase in _ARGUMENTS}


@dataclass(frozen=True)
class Hello:
    """The greeting of a node. `address` is its own in the network that leads to node 0; `alike` maps what must be equal
    on all nodes to its value, as far as the node knows it."""

    host: str
    address: str
    alike: dict[str, str]


@dataclass(frozen=True)
class Ready:
    """The report that a node has loaded the stack: the modules that do not import, each with the error, or the `error`
    where torch does not."""

    broken: dict[str, str] = field(default_factory=dict)
    error: str = ""


@dataclass(frozen=True)
class End:
    """The end of the run: its exit code, and the reason where it ended early."""

    code: int
    reason: str = ""


@dataclass(frozen=True)
class PhaseRequest:
    """A request to all nodes to run one phase, each with `ranks` processes, which meet at `host`:`port`."""

    phase: Phase
    arguments: dict[str, Any]
    ranks: int
    log: str
    timeout: float
    cuda: bool
    memory: int | None
    host: str
    port: int

    @classmethod
    def of(cls, job: Job, host: str, port: int) -> PhaseRequest:
        """Return the request for a job."""
        [phase] = (phase for phase, call in _CALLS.items() if call == job.call)
        arguments = asdict(_arguments(phase, job.arguments))
        return cls(phase, arguments, job.ranks, _name(job.log), job.timeout, job.cuda, job.memory, host, port)

    def job(self, rank: int, count: int, logs: str) -> Job:
        """Return the job of node `rank` of `count`, which logs into a folder of its own."""
        return Job(
            call=_CALLS[self.phase],
            arguments=asdict(_arguments(self.phase, self.arguments)),
            ranks=self.ranks,
            log=f"{logs}/{self.log}",
            timeout=self.timeout,
            cuda=self.cuda,
            memory=self.memory,
            rendezvous=f"tcp://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}",
            world=self.ranks * count,
            first=self.ranks * rank,
        )


@dataclass(frozen=True)
class PhaseOutcomes:
    """The result of a phase on a node: an outcome for each rank, or an error."""

    outcomes: list[RankOutcome] = field(default_factory=list)
    error: str = ""


def encode(message: Any) -> bytes:
    """Return a message as JSON."""
    return json.dumps(asdict(message)).encode()


def decode(kind: type[Any], text: bytes) -> Any:
    """Return a message of this kind. Raises ForeignError where it is none."""
    if len(text) > MOST_BYTES:
        raise ForeignError(f"a message of {len(text):,} bytes")
    try:
        return from_json(kind, parse(text))
    except NotAsDeclaredError as error:
        raise ForeignError(str(error)) from None


def phase_request(text: bytes, most_ranks: int, cuda: bool) -> PhaseRequest:
    """Return a request, checked against this node's device and process limit. Raises ForeignError."""
    found: PhaseRequest = decode(PhaseRequest, text)
    _arguments(found.phase, found.arguments)
    _counts(found.ranks, *([] if found.memory is None else [found.memory]))
    if not is_address(found.host):
        raise ForeignError(f"{found.host:.60} is no address")
    if found.cuda != cuda or found.ranks > most_ranks or not 0 < found.port < 65536 or not 0 <= found.timeout < _MOST:
        raise ForeignError("it asks for what this node has not")
    if found.log != _name(found.log):
        raise ForeignError(f"{found.log} is no name of a log")
    return found


def outcomes(text: bytes, job: Job, rank: int) -> list[RankOutcome]:
    """Return node `rank`'s outcomes of a job. Raises ForeignError where it answers with anything else, or with an
    error."""
    answer: PhaseOutcomes = decode(PhaseOutcomes, text)
    if answer.error:
        raise ForeignError(answer.error)
    if [each.rank for each in answer.outcomes] != list(range(job.ranks * rank, job.ranks * (rank + 1))):
        raise ForeignError("it answers for other ranks than its own")
    for each in answer.outcomes:
        if each.status not in _ENDS:
            raise ForeignError(f"{each.status:.60} is no way for a rank to end")
        for report in each.reports:
            _check_report(report, job)
        each.value = _checked(job, each.value) if each.status == "ok" else None
    return answer.outcomes


def _checked(job: Job, plain: Any) -> Any:
    """Return a rank's result, checked against what its phase returns. Raises ForeignError."""
    if job.call == _CALLS["measure"]:
        try:
            measured = from_json(Measured, plain)
        except NotAsDeclaredError as error:
            raise ForeignError(str(error)) from None
        steps = job.arguments["steps"]
        for times in (measured.host, measured.device, measured.synchronised):
            _rounds(times, {*PARTS}, steps)
        if job.arguments["check_extrapolation"] and len(measured.whole_steps) != steps:
            raise ForeignError(f"it timed {len(measured.whole_steps)} whole steps of {steps}")
        return asdict(measured)
    if job.call == _CALLS["build_adam"]:
        if not isinstance(plain, str | None):
            raise ForeignError(f"its Adam is {json.dumps(plain):.60}")
        return plain
    return None


def _check_report(report: Report, job: Job) -> None:
    if (report.fits is None) != (report.peak is None):
        raise ForeignError("half a report")
    if report.authors is not None:
        _rounds(report.authors, {"with", "update"}, job.arguments.get("steps", 0))


def _rounds(times: Mapping[str, Sequence[float]], parts: set[str], steps: int) -> None:
    if times.keys() != parts or any(len(each) != steps or min(each, default=0.0) < 0 for each in times.values()):
        raise ForeignError(f"its times are not those of {steps} rounds")


def _arguments(phase: Phase, plain: dict[str, Any]) -> Arguments:
    """Return the checked arguments of a phase. Raises ForeignError."""
    try:
        found = from_json(_ARGUMENTS[phase], plain)
        found.check()
    except (NotAsDeclaredError, UserError) as error:
        raise ForeignError(str(error)) from None
    return found


def is_address(text: str) -> bool:
    """Return whether this is an IP address, and no name that has to be looked up."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _counts(*numbers: int) -> None:
    if not all(0 < number < _MOST for number in numbers):
        raise ForeignError(f"{numbers} are no counts")


def _name(log: str) -> str:
    """Return a log's name without its folder. Raises ForeignError for an unusual name."""
    name = log.rpartition("/")[2]
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._+,-]{0,250}\.log", name):
        raise ForeignError(f"{name!r:.60} is no name of a log")
    return name


assert {*get_args(Phase)} == _ARGUMENTS.keys()
