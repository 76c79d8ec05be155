"""A trial (one combination of settings on one machine), its record, and the steps and days derived from its raw times.

True days come from device time: the time that a user waits. The authors' clock is the paper's: host time without
synchronisation, which ends when the last kernel is launched.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from statistics import mean, median
from typing import Literal, get_args

from . import models
from .datafile import FLAT, flat
from .formats import SECONDS_A_DAY, size
from .models.recipe import Recipe, Scale
from .paper.gpus import Gpu, peak_flops
from .paper.settings import Settings

Times = dict[str, list[float]]  # seconds by part of a step, one per round
GpuState = dict[str, int | float | None]  # as the driver has it: whole numbers stay whole in a file


@dataclass(frozen=True)
class StepTimes:
    """Seconds of each round's parts on one rank: a micro-step `without` gradient reduction, which adds to existing
    gradients; one `with_` reduction, which starts from none; and an update."""

    no_reduce: tuple[float, ...]
    reduce: tuple[float, ...]
    update: tuple[float, ...]

    @classmethod
    def of(cls, times: Times) -> StepTimes:
        """Build from a record's raw times. `without` is empty where only the authors' sequence was timed."""
        return cls(tuple(times.get("without", ())), tuple(times["with"]), tuple(times["update"]))

    def plus(self, seconds: dict[str, float] | None) -> StepTimes:
        """Return a copy whose parts take so many seconds longer, by the names of the raw times."""
        if seconds is None:
            return self
        parts = (("without", self.no_reduce), ("with", self.reduce), ("update", self.update))
        return StepTimes(*(tuple(time + seconds[name] for time in times) for name, times in parts))


def authors_step(host: StepTimes, accumulation: int) -> float:
    """Return the seconds of a training step as the authors compute it: the mean time of micro-steps that all reduce, on
    the host's unsynchronised clock, times the accumulation steps, plus the mean update (their step_time.py, v1.0.0)."""
    return mean(host.reduce) * accumulation + mean(host.update)


def true_steps(device: list[StepTimes], accumulation: int) -> list[float]:
    """Return the seconds of a training step in each round, as a user would wait for it; the slowest rank counts.

    All but one of a step's micro-steps add to existing gradients and, where the settings allow it, all but one do not
    reduce. The sum counts both in the same way, whichever micro-step comes first.
    """
    return [
        max(
            (accumulation - 1) * parts.no_reduce[number] + parts.reduce[number] + parts.update[number]
            for parts in device
        )
        for number in range(len(device[0].update))
    ]


def true_step(device: list[StepTimes], accumulation: int) -> float:
    """Return the median round of `true_steps`, in seconds."""
    return median(true_steps(device, accumulation))


def days_of_steps(step_seconds: float, training_steps: int) -> float:
    """Return the days that all training steps take."""
    return step_seconds * training_steps / SECONDS_A_DAY


def utilisation(flops_per_step: float, step_seconds: float, count: int, peak: float) -> float:
    """Return the model FLOPs utilisation: FLOP/s that the model's mathematics needs, over the peak of `count` GPUs."""
    return flops_per_step / step_seconds / (count * peak)


def derive(record: Record, gpu: Gpu | None) -> Derived:
    """Return the derived values, steps in seconds. `gpu` is the device's catalogue entry; without one `utilisation` is
    None.

    The record must have an accumulation and the raw times of every rank. Raise KeyError, IndexError or ValueError where
    the raw times are incomplete.
    """
    accumulation, compared = record.batch.accumulation, record.batch.compared_accumulation
    assert accumulation is not None
    assert compared is not None
    (recipe, settings), raw = record.recipe_and_settings, record.times
    host, device, synchronised = (
        [StepTimes.of(times).plus(record.communication).plus(record.sharing) for times in clock]
        for clock in (raw.host, raw.device_times, raw.synchronised)
    )
    authors = authors_step(host[0], compared)
    true = true_step(device, accumulation)
    waited = true_step(synchronised, accumulation)
    peak = peak_flops(gpu, settings.precision_of(recipe.precision), record.as_run.in_tf32)
    flops, count = recipe.flops_per_example * recipe.batch_size, record.world
    watts = _step_watts(record, device, accumulation)
    return Derived(
        step_rounds=true_steps(device, accumulation),
        authors_step=authors,
        true_step=true,
        synchronised_step=waited,
        authors_days=days_of_steps(authors, recipe.training_steps),
        true_days=days_of_steps(true, recipe.training_steps),
        synchronised_days=days_of_steps(waited, recipe.training_steps),
        examples_per_second=recipe.batch_size / true,
        utilisation=utilisation(flops, true, count, peak) if peak else None,
        joules_per_step=sum(watts) * true if watts and len(watts) == count else None,
    )


def _step_watts(record: Record, device: list[StepTimes], accumulation: int) -> list[float]:
    """Return the mean power of each GPU whose power is known in a training step, which has other shares of the parts
    than the rounds have. A part whose own power is unknown takes that of all rounds."""
    parts_of_rank = record.observed.part_power or [{}] * len(device)
    found = []
    for all_rounds, own, times in zip(record.observed.mean_power or (), parts_of_rank, device, strict=False):
        if all_rounds is None:
            continue
        parts = {"without": times.no_reduce, "with": times.reduce, "update": times.update}
        seconds = {name: median(each) for name, each in parts.items()}
        seconds["without"] *= accumulation - 1
        joules = sum(own.get(name, all_rounds) * each for name, each in seconds.items())
        found.append(joules / sum(seconds.values()))
    return found


# `not_measured` is no outcome of a trial: validity.py gives it to a record that the folder does not support.
Origin = Literal["measured", "projected", "released"]  # released: the authors' raw results, in no results folder
Status = Literal["ok", "out_of_memory", "unsupported", "crashed", "timed_out", "interrupted", "skipped", "not_measured"]


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

    @property
    def comparable_with_paper(self) -> bool:
        """Return whether a cell of the paper can be compared with it."""
        return self.like_papers


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
    def comparable_with_paper(self) -> bool:
        """Return whether a cell of the paper can be compared with it: a projected trial never verifies one."""
        return self.like_papers and self.measured_on is None

    @property
    def recipe_and_settings(self) -> tuple[Recipe, Settings]:
        """Return the recipe and settings of these ids. Raise UserError for an unknown id."""
        return models.find(self.recipe, self.scale), Settings.parse(self.settings)


# Optional end of an id, which no record field has; older runs measured a largest micro batch that is no power of two.
AS_TIMED = r"(/[0-9]+-rounds)?(/micro-batch-([0-9]+|no-power-of-2))?(/method-[0-9a-f]+)?"


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

# The names in files of the fields that have others here.
AS_RUN_IN_FILES = {
    "asked_precision": "precision",
    "precision": "ran_precision",
    "asked_tf32": "tf32",
    "tf32": "ran_tf32",
}


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
class Modern:
    """What a trial of modern training was for: its parts, each with its class. `part` is the one that was left out of
    all that serve the model, or that is unsupported beside the others; empty where the trial is of all of them, or of
    the rest. A user `asked` for the parts by name."""

    parts: dict[str, str]
    part: str = ""
    asked: bool = False

    def stands(self, exact_only: bool = False) -> bool:
        """Return whether its settings are a result: no part was left out for comparison; if asked, all are exact."""
        return not self.part and not (exact_only and "precision" in self.parts.values())


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
    that other processes used, at least, while the rounds were timed; None for interleaved measurements. In older
    records it is the mean over building and compiling as well, and None beside a GPU.
    `gpu_state` has, for each rank, the state of its GPU after them, and the shares of their time that it was `too_hot`
    and `short_of_power`. `mean_power` has, for each rank, the watts of its GPU while the rounds were timed, by its
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

    `warnings` are sentences of older versions; trial_warnings.py words those of newer ones from the other fields.
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
    as_run: AsRun = field(default_factory=AsRun, metadata=flat(**AS_RUN_IN_FILES))
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
        """Return whether a cell of the paper can be compared with it."""
        return super().comparable_with_paper and not self.custom

    @property
    def clocks_ratio(self) -> float | None:
        """Return the authors' step over the true one, which is also the ratio of their days: below 1 where the authors'
        clock shows less than the time that a user waits. The authors' step is the mean of the rounds, the true one
        their median. None on a CPU, where both use one clock, and where the two micro batches differ."""
        if (
            self.device == "cpu"
            or self.batch.authors_micro_batch
            or not self.derived.authors_step
            or not self.derived.true_step
        ):
            return None
        return self.derived.authors_step / self.derived.true_step

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
            trial.id,
            trial.recipe,
            trial.scale,
            trial.settings,
            trial.device,
            trial.count,
            status,
            reason,
            remedy,
            origin="measured" if trial.measured_on is None else "projected",
            measured_on=trial.measured_on,
            nodes=trial.nodes,
            memory_limit=trial.memory_limit,
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
