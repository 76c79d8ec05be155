"""What a training keeps of itself: training.json, beside its checkpoints."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from .. import datafile
from ..console import UserError
from ..datafile import NotAsDeclaredError
from ..models.recipe import Scale

FILE = "training.json"
STOPPED = 75  # the exit code of a training that was asked to stop, and saved a checkpoint


@dataclass(frozen=True)
class Kept:
    """Times in seconds, memory in bytes. `step_seconds` and `losses` are of the steps after `first_step`, `days` of the
    whole training at this pace; a loss is None where it was not finite."""

    recipe: str
    scale: Scale
    settings: str
    device: str
    count: int
    wrapper: str
    micro_batch: int
    accumulation: int
    first_step: int
    losses: list[float | None] = field(default_factory=list)
    step_seconds: list[float] = field(default_factory=list)
    checkpoint_bytes: int = 0
    checkpoint_seconds: float = 0.0
    seconds_a_step: float = 0.0
    days: float = 0.0
    peak_memory: int = 0


def read(folder: Path) -> Kept | None:
    """Return what train.py kept in a folder; None where it kept nothing. Raise UserError for other content, for a tiny
    model, and for what no training takes."""
    file = folder / FILE
    if not file.is_file():
        return None
    try:
        found = datafile.read(file, Kept)
    except NotAsDeclaredError as error:
        raise UserError(f"{file} is not what train.py keeps ({error})") from None
    if found.scale != "paper":
        raise UserError(f"{file} is of a tiny model, whose days and checkpoints say nothing of {found.recipe}")
    if min(found.days, found.checkpoint_seconds, found.count) <= 0:
        raise UserError(f"{file} has days, checkpoint_seconds or a count that are not above 0")
    return found
