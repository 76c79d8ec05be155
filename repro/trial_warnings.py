"""The warnings of a trial, worded from the numbers of its record: each says what happened, why, and what to do."""

from __future__ import annotations

from collections.abc import Iterator

from . import models
from .formats import from_to
from .paper.settings import Settings
from .record import SLOW_SCAN, Record
from .validity import cpu_disturbance, gpu_disturbance, larger_may_fit

_DISTURBED = 2.0  # slowest over fastest round, above which another process is likely


def warnings(record: Record) -> list[str]:
    """Return the warnings of a record. One of an older version has some of them as sentences."""
    of_trial = record.warnings or [*_of_what_ran(record), *_of_compiling(record), *_of_search(record)]
    if record.status == "ok" and not record.warnings:
        of_trial += [*_of_micro_batch(record), *_of_timing(record)]
    return [*of_trial, *_of_other_load(record)]


def _of_what_ran(record: Record) -> Iterator[str]:
    """Report where the precision or the kernels are other than asked for."""
    ran, asked = record.as_run, record.as_run.asked_precision
    if ran.precision not in ("", asked):
        yield f"DeepSpeed refuses {asked} on a CPU: asked {asked}, ran {ran.precision}; a GPU runs {asked}"
    if ran.asked_tf32 and ran.tf32 is False:
        yield "asked for TF32, fp32 products ran without: NVIDIA_TF32_OVERRIDE may be set; unset it"
    if ran.kernel_path == SLOW_SCAN and Settings.parse(record.settings).free_lunch:
        name = models.find(record.recipe, record.scale).name
        yield f"a CPU has none of {name}'s custom kernels: what ran is the slow path that naive settings take"


def _of_compiling(record: Record) -> Iterator[str]:
    """Report where the model, or a part of it, ran uncompiled."""
    ran = record.as_run
    if ran.compile_error:
        yield f"crashed while compiled, measured uncompiled: {ran.compile_error}; trials.jsonl has the traceback"
    graphs, see = ran.graphs or {}, "TORCH_LOGS=graph_breaks logs why"
    if graphs.get("layers") == 0:
        yield f"torch.compile left the sharded layers as they are: only what is around them is compiled; {see}"
    elif "layers" not in graphs and graphs.get("compiled", 0) > 1:
        made = f"torch.compile broke the model into {graphs['compiled']} graphs"
        yield f"{made}: what lies between them ran uncompiled; {see}"


def _of_search(record: Record) -> Iterator[str]:
    if error := record.batch.search_crash:
        fits = record.batch.peaks[-1][0]
        yield (
            f"the search crashed above micro batch {fits}, near the end of the GPU's memory, which it took for a lack "
            f"of memory: {error}; the log has the traceback"
        )


def _of_micro_batch(record: Record) -> Iterator[str]:
    """Report where timing took a smaller micro batch than the search had found, or than the GPU has room for."""
    batch = record.batch
    used = batch.micro_batch or 1
    searched, authors = max((size for size, _ in batch.peaks), default=used), batch.authors_micro_batch or used
    if searched > authors:
        yield f"timing ran out of memory at micro batch {searched}, which the search had fitted, so it used {authors}"
    if authors > used:
        yield (
            f"the authors' clock has micro batch {authors}, the others {used}, so their ratio is omitted: accumulated "
            f"gradients, which the authors' timing never keeps, leave no room for {authors}"
        )
    if beside := larger_may_fit(record):
        yield f"{beside}; run it again once no other process uses the GPU"


def _of_timing(record: Record) -> Iterator[str]:
    """Report what disturbed the timed rounds, or was not counted in them."""
    observed = record.observed
    if skipped := observed.skipped_updates:
        yield (
            f"{skipped} timed updates were skipped by the fp16 loss scale, and count too short; more rounds (--steps) "
            "make them fewer of all"
        )
    if observed.uncounted:
        yield f"kernel launches were not counted: {observed.uncounted}; the times do not depend on them"
    if disturbed := gpu_disturbance(record):
        yield f"{disturbed} while it was timed: its steps may take longer than they have to; run it again without that"


def _of_other_load(record: Record) -> Iterator[str]:
    """Report other processes on the CPUs, also where only the times show them: rounds of the same step, or both clocks
    of a CPU, that differ by more than a factor of two."""
    if (others := cpu_disturbance(record.observed.busy_cpus)) is not None:
        yield f"{others} while it was timed: its steps may have taken longer than alone"
    seconds = list(record.derived.step_rounds)
    if record.device == "cpu" and record.derived.synchronised_step is not None:
        seconds.append(record.derived.synchronised_step)
    if seconds and max(seconds) > _DISTURBED * min(seconds):
        yield f"its steps took {from_to(seconds)} s: what else ran on this machine?"
