"""A trial (one combination of settings on one machine), and its record.

Changes of the format, newest first. Older records are read too; a field that they lack has its default.

- Steps, days and rates are derived from the raw times when a record is read. In the file they are for other readers.
- Warnings are worded from a record's numbers when it is read; before, `warnings` had the sentences.
- A verdict has the flags `projected` and `disturbed`; before, `projected_slower` and the like were verdicts.
- `gpu_state` has shares of the timed rounds, `too_hot` and `short_of_power`; before, `throttle_reasons` after them.
- `part_power` stands beside `mean_power`, and `joules_per_step` takes it.
- `busy_cpus` is of the timed rounds, also on GPUs; before, of building and compiling too, and of CPUs alone.
- `modern`, and `origin`, `measured_on`, `communication` and `sharing` of what is projected.
- `trials.jsonl` has the environment in a line; before, in `environment.json` alone.
- Every run checks its extrapolation; before, the id of a trial that did ended in `/checked`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal, get_args

from . import models
from .datafile import FLAT, flat
from .formats import size
from .models.recipe import Recipe, Scale
from .paper.settings import Settings
from .parts import Modern

Times = dict[str, list[float]]  # seconds by part of a step, one per round
GpuState = dict[str, int | float | None]  # as the driver has it: whole numbers stay whole in a file


# `not_measured` is no outcome of a trial: validity.py gives it to a record that the folder does not support.
Origin = Literal["measured", "projected", "released"]  # released: the authors' raw results, in no results folder
Status = Literal["ok", "out_of_memory", "unsupported", "crashed", "timed_out", "interrupted", "skipped", "not_measured"]


# Records are of one trial where they agree in these fields: only then does a comparison hold one against another.
MUST_AGREE = ("recipe", "scale", "settings", "count", "nodes", "memory_limit", "measured_on")


class OnMachine:
    """The machine of a trial, a record or a search: `count` of `device` on each of `nodes`, each device limited to
    `memory_limit` bytes unless that is None."""

    scale: Scale
    device: str
    count: int
    nodes: int
    memory_limit: int | None

    @property
    def world(self) -> int:
        """Return the number of devices on all nodes."""
        return self.count * self.nodes

    @property
    def machine(self) -> str:
        """Return the machine as text: 2 x cpu, 2 nodes of 4 x A100 of 40GB."""
        nodes = f"{self.nodes} nodes of " if self.nodes > 1 else ""
        limit = f" of {size(self.memory_limit)}" if self.memory_limit is not None else ""
        return f"{nodes}{self.count} x {self.device}{limit}"

    @property
    def like_papers(self) -> bool:
        """Return whether a cell of the paper has such a machine: a full recipe on one node's GPUs, in full memory."""
        return self.scale == "paper" and self.device != "cpu" and self.nodes == 1 and self.memory_limit is None


class OfSettings(OnMachine):
    """The recipe and settings of a trial or a record, each by its id."""

    recipe: str
    settings: str
    measured_on: int | None

    @property
    def ranks(self) -> int:
        """Return the number of devices that compute: fewer than `world` where the others are projected."""
        return self.world if self.measured_on is None else self.measured_on

    @property
    def recipe_and_settings(self) -> tuple[Recipe, Settings]:
        """Return the recipe and settings of these ids. Raise UserError for an unknown id."""
        return models.find(self.recipe, self.scale), Settings.parse(self.settings)


@dataclass(frozen=True)
class Trial(OfSettings):
    """A measurement to make on a machine, whose `device` is `cpu` or a GPU's name: `steps` rounds in at most `timeout`
    seconds. `micro_batch` is None for the largest that fits. `measured_on` is the number of devices that compute where
    the others are projected, None where all of them do. `method_digest` is the hash of the files of the settings' own
    methods, if any."""

    recipe: str
    scale: Scale
    settings: str
    device: str
    count: int
    memory_limit: int | None = None
    steps: int = 3
    timeout: float = 3600.0
    check_extrapolation: bool = False
    nodes: int = 1
    micro_batch: int | None = None
    measured_on: int | None = None
    method_digest: str = ""

    @property
    def id(self) -> str:
        """Return the name for display and resuming. It contains everything that changes the measurement."""
        machine = f"{self.count}x{self.device.replace(' ', '-')}"
        words = [self.recipe, self.scale, machine if self.nodes == 1 else f"{self.nodes}x{machine}", self.settings]
        if self.memory_limit is not None:
            words.append(size(self.memory_limit))
        if self.measured_on is not None:
            words.append(f"projected-from-{self.measured_on}")
        if self.steps != Trial.steps:
            words.append(f"{self.steps}-rounds")
        if self.micro_batch is not None:
            words.append(f"micro-batch-{self.micro_batch}")
        if self.method_digest:
            words.append(f"method-{self.method_digest}")
        return "/".join(words)


@dataclass
class BatchSearch:
    """The search for the largest micro batch that fits, and how it divides the batch.

    `authors_micro_batch` is the micro batch of the raw times `host`, and so of the authors' clock, where it is larger
    than `micro_batch`: their sequence accumulates no gradients, and so it fitted. `halvings` counts those that timing
    needed. `peaks` are the micro batches that fitted and the bytes that they took; `full` is the GPU's state each time
    that a larger one ran out of memory. `search_crash` is the error where the search ended by a crash that was taken
    for a lack of memory.
    """

    micro_batch: int | None = None
    accumulation: int | None = None
    authors_micro_batch: int | None = None
    halvings: int = 0
    peaks: list[list[int]] = field(default_factory=list)
    full: list[GpuState] = field(default_factory=list)
    search_crash: str = ""

    @property
    def compared_micro_batch(self) -> int | None:
        """Return the micro batch of the authors' clock, which is compared with the paper and with predictions."""
        return self.authors_micro_batch or self.micro_batch

    @property
    def compared_accumulation(self) -> int | None:
        """Return the accumulation steps of `compared_micro_batch`."""
        if not self.authors_micro_batch or self.micro_batch is None or self.accumulation is None:
            return self.accumulation
        return self.accumulation * self.micro_batch // self.authors_micro_batch


SLOW_SCAN = "slow scan (transformers)"  # the kernel path of a Mamba without its kernels


@dataclass(frozen=True)
class AsRun:
    """What ran, as the first rank found it after its first training step, beside what was asked for: `precision`,
    `compiled`, `tf32` and `reduction`.

    `compiled` is false where compiling failed, with the `compile_error`. `graphs` counts those of torch.compile.
    `weights` counts the model's, `weights_held` and `moments_held` the first rank's.
    """

    asked_precision: str = ""
    precision: str = ""
    wrapper: str = ""
    optimizer: str = ""
    kernel_path: str = ""
    compiled: bool = False
    compile_error: str = ""
    graphs: dict[str, int] | None = None
    asked_tf32: bool = False
    tf32: bool | None = None
    reduction: str = ""
    weights: int | None = None
    weights_held: int | None = None
    moments_held: int | None = None

    @classmethod
    def asked(cls, recipe: Recipe, settings: Settings, compiled: bool, tf32: bool) -> AsRun:
        """Return what is to run, before it does."""
        return cls(
            asked_precision=settings.precision_of(recipe.precision),
            compiled=compiled,
            asked_tf32=tf32,
            reduction="every micro-step" if settings.reduces_every_micro_step else "last micro-step",
        )

    @property
    def in_tf32(self) -> bool:
        """Return whether fp32 products ran in TF32 or, where that was not checked, whether TF32 was asked for."""
        return self.asked_tf32 if self.tf32 is None else self.tf32


@dataclass(frozen=True)
class RawTimes:
    """The seconds of every round and part, of each rank: by the host's clock, by the device's, and synchronised."""

    host: list[Times] = field(default_factory=list)
    device_times: list[Times] = field(default_factory=list)
    synchronised: list[Times] = field(default_factory=list)


@dataclass(frozen=True)
class Derived:
    """The values that follow from the raw times: seconds of a training step, days of the training, and rates; and from
    the mean power of all GPUs together, the energy of a training step."""

    step_rounds: list[float] = field(default_factory=list)
    authors_step: float | None = None
    true_step: float | None = None
    synchronised_step: float | None = None
    authors_days: float | None = None
    true_days: float | None = None
    synchronised_days: float | None = None
    examples_per_second: float | None = None
    utilisation: float | None = None
    joules_per_step: float | None = None


@dataclass
class Observed:
    """What was observed around the timed rounds: memory, the start, the first losses, and the state of the machine.

    `losses` are those of the first rank's first micro-steps, None where not finite; `trained_losses` those of the
    training steps that a run with methods of one's own adds at the end, at the peak learning rate.
    `extrapolation_error` is that of the derived step against `whole_steps`, relative. `busy_cpus` is the number of CPUs
    that other processes used, at least, while the rounds were timed; None for interleaved measurements. `gpu_state`
    has, for each rank, the state of its GPU after them, and the shares of their time that it was `too_hot` and
    `short_of_power`. `mean_power` has, for each rank, the watts of its GPU while the rounds were timed, by its
    energy counter, `part_power` those of each part of a second or more, which the counter resolves. `launches`
    counts the kernels, copies and memory sets that the first rank's GPU ran in one micro-step `with` reduction and in
    one `update`, outside the timed rounds; None on a CPU, and where they were `uncounted`, for the reason there.
    `skipped_updates` counts the timed updates that the fp16 loss scale skipped.
    """

    peak_memory: int | None = None
    start_seconds: float | None = None
    warm_up_seconds: float | None = None
    losses: list[float | None] | None = None
    trained_losses: list[float | None] | None = None
    whole_steps: list[float] | None = None
    extrapolation_error: float | None = None
    gpu_state: list[GpuState | None] | None = None
    busy_cpus: float | None = None
    mean_power: list[float | None] | None = None
    part_power: list[dict[str, float]] | None = None
    launches: dict[str, int] | None = None
    uncounted: str | None = None
    skipped_updates: int = 0


# The names in files of the fields that have others here.
_AS_RUN = flat(asked_precision="precision", precision="ran_precision", asked_tf32="tf32", tf32="ran_tf32")


@dataclass
class Record(OfSettings):
    """The result of a trial with any outcome, in parts. Times are in seconds, memory in bytes, rates per second. A
    field is None where nothing was measured. In a file the fields of the parts stand beside the record's own.

    `reason` and `remedy` explain a status other than `ok` and what to do. `host_ran_out` is true where the host's
    memory ran out, not the GPU's. `commit` is that of the checkout that measured. `stack_started` is the start time
    (epoch) of the server that the ranks were forked from: they share what its start decided, such as the layout of
    memory. `pair` names the start, common to both stacks of a `compare --against`, in which they were interleaved.

    The `origin` of a record is `projected` where only `measured_on` of its devices computed, whose raw times these are.
    `communication` has, by part, the modelled seconds that a step takes longer on all of its devices, `sharing` those
    in which devices that offload wait for the memory of their host: what is derived from the raw times contains both.
    """

    id: str
    recipe: str
    scale: Scale
    settings: str
    device: str
    count: int
    status: Status
    reason: str = ""
    remedy: str = ""
    traceback: str = ""
    host_ran_out: bool = False
    origin: Origin = "measured"
    measured_on: int | None = None
    communication: dict[str, float] | None = None
    sharing: dict[str, float] | None = None
    nodes: int = 1
    memory_limit: int | None = None
    batch: BatchSearch = field(default_factory=BatchSearch, metadata=FLAT)
    as_run: AsRun = field(default_factory=AsRun, metadata=_AS_RUN)
    times: RawTimes = field(default_factory=RawTimes, metadata=FLAT)
    derived: Derived = field(default_factory=Derived, metadata=FLAT)
    observed: Observed = field(default_factory=Observed, metadata=FLAT)
    modern: Modern | None = None
    warnings: list[str] = field(default_factory=list)
    wall_seconds: float = 0.0
    commit: str | None = None
    stack_started: float | None = None
    pair: str | None = None
    log: str = ""

    def __post_init__(self) -> None:
        self.id = self.id.replace("/checked", "")  # of older runs, whose option to time whole steps was part of an id

    @property
    def timed(self) -> bool:
        """Return whether a step was timed."""
        return self.status == "ok"

    @property
    def ended(self) -> bool:
        """Return whether the trial was carried out to an end, good or bad."""
        return self.status not in ("skipped", "interrupted", "not_measured")

    @property
    def custom(self) -> bool:
        """Return whether it has a method of one's own, parts of modern training, or a micro batch that was asked for:
        then it stands for no cell of the paper, and for no search of settings."""
        settings = Settings.parse(self.settings)
        return "/micro-batch-" in self.id or bool(settings.methods or settings.parts)

    @property
    def comparable_with_paper(self) -> bool:
        """Return whether a cell of the paper can be compared with it: a projected trial never verifies one."""
        return self.like_papers and self.measured_on is None and not self.custom

    @property
    def clocks_ratio(self) -> float | None:
        """Return the authors' step over the true one, which is also the ratio of their days: below 1 where the authors'
        clock shows less than the time that a user waits. The authors' step is the mean of the rounds, the true one
        their median. None on a CPU, where both use one clock, and where the two micro batches differ."""
        steps = self.derived.authors_step, self.derived.true_step
        if self.device == "cpu" or self.batch.authors_micro_batch or not steps[0] or not steps[1]:
            return None
        return steps[0] / steps[1]

    def step_by(self, clock: Clock) -> float | None:
        """Return the seconds of a training step by this clock; None where nothing was measured."""
        return self.derived.true_step if clock == "true" else self.derived.authors_step

    def days_by(self, clock: Clock) -> float | None:
        """Return the days of the whole training by this clock; None where nothing was measured."""
        return self.derived.true_days if clock == "true" else self.derived.authors_days

    def micro_batch_by(self, clock: Clock) -> int | None:
        """Return the micro batch that this clock timed. The authors' may be larger: their sequence accumulates no
        gradients, and fits where the true one needs half. Appendix J's is compared with `compared_micro_batch`."""
        return self.batch.micro_batch if clock == "true" else self.batch.compared_micro_batch

    @property
    def as_published(self) -> Record:
        """Return the record for publication, without days for a tiny recipe: they have no meaning. Its steps stay."""
        if self.scale == "paper":
            return self
        return replace(self, derived=replace(self.derived, authors_days=None, true_days=None, synchronised_days=None))

    @classmethod
    def of(
        cls,
        trial: Trial | Record,
        status: Status,
        reason: str = "",
        remedy: str = "",
        as_run: AsRun | None = None,
    ) -> Record:
        """Build the record of a trial, or of another record's trial, from what is known at once."""
        return cls(
            **{name: getattr(trial, name) for name in ("id", "device", *MUST_AGREE)},
            status=status,
            reason=reason,
            remedy=remedy,
            origin="measured" if trial.measured_on is None else "projected",
            as_run=as_run or AsRun(),
        )


Clock = Literal["true", "authors"]
By = Literal["true", "printed", "authors"]  # the days of an answer: printed ones are the paper's
CLOCKS: tuple[Clock, ...] = get_args(Clock)
DEFAULT: Clock = "true"

DAYS: dict[Clock, str] = {"true": "true days", "authors": "days by the authors' clock"}
BY_DAYS: dict[Clock, str] = {"true": "by true days", "authors": "by the authors' clock"}
BY_CLOCK: dict[Clock, str] = {"true": "by the true clock", "authors": "by the authors' clock"}  # of seconds


def other(clock: Clock) -> Clock:
    """Return the other clock."""
    return "authors" if clock == "true" else "true"


def days_text(days: float, clock: Clock) -> str:
    """Return days with the name of their clock: 8.2 true days, 1.7 days by the authors' clock."""
    return f"{days:.1f} {DAYS[clock]}"
