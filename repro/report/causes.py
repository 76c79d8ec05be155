"""Possible causes of published days that cannot be true, with evidence for and against each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from .. import command
from ..formats import counted, from_to, listing
from ..models.recipe import Images
from ..models.vit import patch_flops
from ..paper.arithmetic import paper_gpu, recipe_of
from ..paper.measured_days import measured_days
from ..predict.audit import IMPLAUSIBLE, Audited, queue_summary
from ..record import Record


@dataclass(frozen=True)
class Cause:
    """A possible cause of impossible numbers, and what proved it, or would prove it. `records` are results folders."""

    cause: str
    evidence_for: str
    evidence_against: str
    settled_by: str
    records: tuple[str, ...] = ()

    @property
    def decided(self) -> bool:
        """Return whether records of these results folders settled it."""
        return bool(self.records)

    @property
    def state(self) -> str:
        """Return the beginning of a sentence on what settles it."""
        return "Settled by" if self.decided else "Would settle it"


def causes(rows: Sequence[Audited], records: Sequence[Record]) -> list[Cause]:
    """Return the possible causes, with evidence computed from the audited cells and from measured records, if any. A
    cause without evidence in the cells is left out."""
    found = [_clock(rows, records), _boost(rows), _tf32(rows)]
    return [cause for cause in found if cause is not None]


def _clock(rows: Sequence[Audited], records: Sequence[Record]) -> Cause | None:
    of_shallow, of_deep = (
        [row.utilisation.value for row in rows if row.table == "1" and row.model == model]
        for model in ("Pythia-160M", "Pythia-6.9B")
    )
    if not of_shallow or not of_deep:
        return None
    shallow, deep = median(of_shallow), median(of_deep)
    unscaled, scaled = (
        [row.verdict != "plausible" for row in rows if row.table == "1" and (row.precision == "fp16") == fp16]
        for fp16 in (False, True)
    )
    ratios = [record.clocks_ratio for record in records if record.scale == "paper" and record.clocks_ratio is not None]
    measured = (
        f"; measured here, the authors' clock shows {from_to(ratios, '.0%')} of the true days in "
        f"{counted(len(ratios), 'trial')}"
        if ratios
        else ""
    )
    return Cause(
        "the authors' clock does not synchronise with the GPU",
        "their timer reads the host's clock around each micro-step and update, and kernels that still wait in the "
        "queue at its end are not timed; of the fp16 models the shallow Pythia-160M suffers most, its cells of Table 1 "
        f"have a median of {shallow:.0%} of peak, those of Pythia-6.9B {deep:.0%}; where no gradient scaler makes each "
        f"update wait, in bf16 and TF32, {sum(unscaled)} of {len(unscaled)} cells of Table 1 are above "
        f"{IMPLAUSIBLE:.0%}, in fp16 {sum(scaled)} of {len(scaled)}{measured}",
        "in fp16 the gradient scaler waits for the GPU in every update, so that of all that is queued only the "
        "micro-steps before the last go untimed" + _above_peak(rows),
        *_settled(rows),
    )


def _settled(rows: Sequence[Audited]) -> tuple[str, tuple[str, ...]]:
    """Return what proved that the authors' clock is the cause, with the folders of those records; else what would."""
    trials = [row for row in measured_days().values() if row.shown_by_authors_clock is not None]
    folders = tuple(dict.fromkeys(row.folder for row in trials))
    if not trials:
        would = (
            "a run on any of the paper's GPUs: every record has both clocks and their ratio; "
            f"{command()} --gpus all, then {command()} audit --measured DIR"
        )
        return would, ()
    ratios = [row.shown_by_authors_clock or 0.0 for row in trials]
    gpus = listing(sorted({row.gpu for row in trials}))
    text = (
        f"{listing(folders)}: in {counted(len(trials), 'trial')} on {gpus} the authors' clock shows "
        f"{from_to(ratios, '.0%')} of the true days, as the host runs ahead of the GPU by a fixed number of launches"
    )
    return "; ".join([text, *(f"{line[0].lower()}{line[1:-1]}" for line in queue_summary(rows))]), folders


def _above_peak(rows: Sequence[Audited]) -> str:
    stay = [f"{row.model} on {row.machine}" for row in rows if row.corrected_verdict == "impossible"]
    return f"; with the launch queue taken out, {listing(stay)} would still be above the peak" if stay else ""


def _without_queue(rows: Sequence[Audited]) -> str:
    """Return a clause on the utilisation of these cells without the effect of the launch queue."""
    shares = [row.corrected_utilisation for row in rows if row.corrected_utilisation is not None]
    return f"; with the launch queue taken out, they imply {from_to(shares, '.0%')} of the peak" if shares else ""


def _boost(rows: Sequence[Audited]) -> Cause | None:
    consumer = [row for row in rows if row.gpu == "RTX 3090" and row.verdict == "impossible"]
    others = [row for row in rows if row.gpu != "RTX 3090" and row.verdict == "impossible"]
    boost = paper_gpu("RTX 3090").boost_mhz
    if not consumer or boost is None:
        return None
    highest = max(consumer, key=lambda row: row.utilisation.value)
    elsewhere = " and ".join(sorted({row.gpu for row in others}))
    return Cause(
        "consumer boards clock above their data sheet",
        f"{len(consumer)} of the {len(consumer) + len(others)} impossible cells are on the RTX 3090, whose peak holds "
        f"at {boost:.0f} MHz, and boards run faster",
        f"{highest.model} on {highest.gpus} would need {highest.clock_mhz:.0f} MHz with every unit busy all the time"
        + (f"; the {len(others)} impossible cells on {elsewhere} are no consumer board's" if others else "")
        + _without_queue(consumer),
        "the clocks in the records of a run on an RTX 3090 (gpu_state in trials.jsonl)",
    )


def _tf32(rows: Sequence[Audited]) -> Cause | None:
    naive = [row for row in rows if row.table == "4" and row.verdict == "impossible"]
    vision = [row for row in naive if row.gpu == "A100" and row.precision == "fp32"]
    vit = [row.utilisation.value for row in vision if row.model == "ViT"]
    if not vit:
        return None
    recipe = recipe_of("ViT")
    assert isinstance(recipe.inputs, Images)
    patches = patch_flops(recipe.inputs.size, recipe.width) / recipe.flops_per_example
    return Cause(
        "Table 4's vision cells did not run in fp32 alone",
        f"{len(vision)} of the {len(naive)} impossible cells of Table 4 are fp32 on A100, of vision models, where TF32 "
        "is 8 times as fast; torch turns TF32 on for convolutions by default",
        f"ViT's one convolution has {patches:.1%} of its FLOPs, and it stands at {min(vit):.0%} to {max(vit):.0%} all "
        "the same: its matrix products would have to run in TF32 too, which torch leaves off" + _without_queue(vision),
        "the naive trials of vit and convnext on an A100, with TF32 off in both: "
        f"{command()} --models vit,convnext --methods naive",
    )
