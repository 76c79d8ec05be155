"""Messages between the nodes of a run: JSON whose fields are checked by their types, as nothing from a network is to be
unpickled. A node is asked for one of four phases, by its name, and never for a function."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass, field, make_dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar, get_type_hints

from repro.datafile import NotAsDeclaredError, from_json, parse

from .jobs import Job, RankOutcome
from .launcher import ServerDiedError

T = TypeVar("T")

MOST_BYTES = 1 << 24  # of one message: hundreds of times those of the longest trial
_ENDS = ("ok", "out_of_memory", "unsupported", "crashed", "timed_out", "stopped")  # statuses of a rank
_PHASES = "repro.measure.phases:"


class ForeignError(ServerDiedError):
    """An error of a message that no node of this version sends, with the reason in one line."""


@dataclass(frozen=True)
class Hello:
    """The greeting of a node. `address` is its own in the network that leads to node 0; `alike` maps what must be equal
    on all nodes to its value, as far as the node knows it."""

    host: str
    address: str
    alike: dict[str, str]


@dataclass(frozen=True)
class PhaseRequest:
    """A request to all nodes to run one phase, each with `ranks` processes."""

    phase: Literal["fit", "measure", "compile_anything", "build_adam"]
    arguments: dict[str, Any]
    ranks: int
    log: str
    timeout: float
    memory: int | None

    @classmethod
    def of(cls, job: Job) -> PhaseRequest:
        phase: Any = job.call.removeprefix(_PHASES)
        return cls(phase, job.arguments, job.ranks, Path(job.log).name, job.timeout, job.memory)

    def job(self, logs: Path, most_ranks: int, cuda: bool) -> Job:
        """Return the job, which logs into this folder. Raises ForeignError for what no run asks this node for."""
        arguments = asdict(_typed(_signature(self.phase)[0], self.arguments))
        if not 0 < self.ranks <= most_ranks:
            raise ForeignError(f"this node was asked for {self.ranks} processes, and has room for {most_ranks}")
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._+,-]{0,250}\.log", self.log):
            raise ForeignError(f"this node was asked to write {self.log!r:.80}, which names no log")
        log = str(logs / self.log)
        return Job(_PHASES + self.phase, arguments, self.ranks, log, self.timeout, cuda=cuda, memory=self.memory)


@dataclass(frozen=True)
class PhaseOutcomes:
    """The result of a phase on a node: an outcome for each rank, or an error."""

    outcomes: list[RankOutcome] = field(default_factory=list)
    error: str = ""

    def checked(self, job: Job, rank: int) -> list[RankOutcome]:
        """Return the outcomes of node `rank`. Raises ForeignError where they are none of the job's, or an error."""
        if self.error:
            raise ForeignError(self.error)
        if [each.rank for each in self.outcomes] != list(range(job.ranks * rank, job.ranks * (rank + 1))):
            raise ForeignError("it answers for other ranks than its own")
        for each in self.outcomes:
            if each.status not in _ENDS:
                raise ForeignError(f"{each.status:.60} is no way for a rank to end")
            if each.status == "ok":
                each.value = _typed(_signature(job.call.removeprefix(_PHASES))[1], each.value)
        return self.outcomes


def encode(message: Any) -> str:
    """Return a message as JSON."""
    return json.dumps(message, default=asdict)


def decode(kind: type[T], text: bytes) -> T:
    """Return a message of this kind. Raises ForeignError where it is none."""
    if len(text) > MOST_BYTES:
        raise ForeignError(f"a message of {len(text):,} bytes")
    try:
        plain = parse(text)
    except NotAsDeclaredError as error:
        raise ForeignError(str(error)) from None
    return _typed(kind, plain)


def _typed(kind: type[T], plain: Any) -> T:
    """Return plain data as this type. Raises ForeignError where they are none."""
    try:
        return from_json(kind, plain)
    except NotAsDeclaredError as error:
        raise ForeignError(str(error)) from None


def _signature(phase: str) -> tuple[type, Any]:
    """Return the arguments of a phase as a data class, and the type of its result."""
    from . import phases  # imports torch, which `repro --help` does not

    hints = get_type_hints(getattr(phases, phase))
    return make_dataclass(phase, [each for each in hints.items() if each[0] not in ("rank", "return")]), hints["return"]
