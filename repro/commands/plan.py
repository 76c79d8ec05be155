"""`repro plan`: say how long a user's own training script takes on a GPU that is not here, and whether it fits."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..console import UserError
from ..formats import SECONDS_A_DAY, count, days_text, listing, path, significant
from ..options import Output, argument, behind, flag, option
from ..paper.gpus import Gpu
from ..plan.answer import Plan
from ..plan.script import Asked as Script
from ..plan.script import recorded
from ..plan.script_causes import causes_of
from ..plan.took import Normal, Took, Verdict, explain, seconds_text
from ..predict import fits
from ..predict.fits import load_probes
from ..printout import output
from .predict import any_gpu

_CHANGES = 3  # that are shown
_PLACES = 4  # that are named


@dataclass(frozen=True, kw_only=True)
class Asked(Output):
    epilog = "What stands behind -- goes to the script: plan train.py --gpu H100 -- --batch-size 32."
    script: Path = argument("a training script that uses torch", "SCRIPT", path)
    arguments: tuple[str, ...] = behind()
    gpu: Gpu | None = option("a GPU of the catalogue, or a TOML file", "NAME|FILE", any_gpu)
    probes: Path | None = option("a machine that repro probe measured, such as a CPU, in place of --gpu", "FILE", path)
    gpus: int = option("GPUs of one node (default: 1)", "N", count, default=1)
    steps: int | None = option("optimizer steps, where the script does not tell them", "N", count)
    took: Took | None = option(
        "what a step took you (or the training: 7h; or 45000 tokens/s, 1.2 it/s): is it normal, and if not, why",
        "13.8s",
        lambda text, option: Took.parse(text),
    )
    samples: Path | None = option("a small file in place of the data that it opens", "FILE", path)
    here: bool = flag("run it in its folder, read-only, and not in a copy")


def main(asked: Asked) -> str:
    steps, took, gpus = asked.steps, asked.took, asked.gpus
    device = load_probes(asked.probes) if asked.probes else asked.gpu
    if device is None or None not in (asked.gpu, asked.probes):
        raise UserError("expected --gpu NAME or --probes FILE, one of them, as in --gpu H100")
    machine, constants = fits.here(device, gpus, None)
    gpu = {"name": machine.gpu.name, "memory_bytes": machine.gpu.memory_bytes, "capability": machine.capability}
    found = recorded(Script(asked.script, asked.arguments, gpu, asked.gpus, asked.samples, asked.here))
    if not found["on_gpu"]:
        raise UserError(
            f"{asked.script}: no weights are moved to the GPU: .to('cuda') is missing, or it asks for a CPU"
        )
    plan = Plan.of(found, machine, constants)
    known = float(steps) if steps else found["steps"][0] if found["steps"] else None
    normal, notes = Normal.on(machine, plan.constants), _notes(plan, bool(steps))
    data, name = _data(plan, known, normal), asked.script.name
    more: dict[str, Any] = {
        "changes": [{"change": change, "speedup": speedup} for change, speedup in plan.changes()],
        "parts_of_a_step": plan.parts,
        "update_kernels": plan.update_kernels,
        "followed": {key: found[key] for key in ("isolation", "synchronisations", "branches", "untold", "steps")},
    }
    if took is None:
        answer, rows, shown = _sentence(name, plan, known), [data], _rows(plan, data)
    else:
        judged = _judged(plan, took, normal, known)
        answer, rows, shown = judged.sentence(f"{name} on {_where(plan)}"), judged.data(), judged.shown()
        notes[-1] = f"{normal.reason[0].upper()}{normal.reason[1:]}."
        more |= {"plan": data, "verdict": judged.verdict, "likely": judged.likely}
    return output(answer, rows, shown, notes, asked.format, asked.all, **more)


def _judged(plan: Plan, took: Took, normal: Normal, steps: float | None) -> Verdict:
    """Judge a speed that was measured."""
    batch = plan.machine.world * plan.examples * plan.micro_steps
    tokens = round(plan.recorded["tokens"] / plan.recorded["examples"]) if plan.recorded["tokens"] else None
    seconds = took.step(batch, tokens, round(steps) if steps else None)
    return explain(seconds, plan.seconds, causes_of(plan), normal)


def _data(plan: Plan, steps: float | None, normal: Normal) -> dict[str, Any]:
    """Return the answer's numbers, as CSV and JSON have them."""
    recorded, costs = plan.recorded, plan.recorded["micro"].items()
    saved = recorded["peaks"]["micro"]
    return {
        "gpu": plan.machine.gpu.name,
        "gpus": plan.machine.gpus,
        "fits": plan.fits,
        "peak_bytes": plan.peak,
        "usable_bytes": plan.room,
        "predicted_step_seconds": plan.seconds,
        "low": normal.low * plan.seconds,
        "high": normal.high * plan.seconds,
        "examples_per_second": plan.examples_a_second,
        "tokens_per_second": plan.examples_a_second * recorded["tokens"] / (recorded["examples"] or 1.0) or None,
        "steps": steps,
        "predicted_days": steps and steps * plan.seconds / SECONDS_A_DAY,
        "micro_batch": plan.examples,
        "micro_steps": plan.micro_steps,
        "largest_micro_batch": plan.largest,
        "precision": plan.precision,
        "compiled": plan.compiled,
        "weights": recorded["parameters"],
        "flops_per_micro_step": sum(sum(line) for key, line in costs if key.endswith("/flops")),
        "bytes_per_micro_step": sum(
            sum(line) for key, line in costs if key.endswith("/bytes") and "/fused/" not in key
        ),
        "activation_bytes": saved.get("activations", 0.0) + saved.get("copies", 0.0),
    }


def _where(plan: Plan) -> str:
    return f"{plan.machine.gpus} x {plan.machine.gpu.name}"


def _sentence(name: str, plan: Plan, steps: float | None) -> str:
    memory = f"{plan.peak / 2**30:.1f} of {plan.room / 2**30:.1f} GiB"
    if not plan.fits:
        most = f"a micro batch of {plan.largest} would fit" if plan.largest else "no micro batch fits"
        return f"{name} does not fit on {_where(plan)}: it needs {memory}; {most}."
    whole = f"{days_text(steps * plan.seconds / SECONDS_A_DAY)} for {steps:,.0f} steps, " if steps else ""
    step = seconds_text(plan.seconds)
    return f"{name} fits on {_where(plan)} ({memory}) and takes {whole}{step} a step (predicted)."


def _rows(plan: Plan, data: dict[str, Any]) -> list[dict[str, str]]:
    """Return what people see: a line for each thing to know, then one for each change that helps."""
    steps, ends = data["steps"], (data["low"], data["high"])
    low, high = map(seconds_text, ends)
    found = {"a step": f"{seconds_text(plan.seconds)}; {low} to {high} would be normal"}
    if steps:
        found["all steps"] = " to ".join(days_text(steps * end / SECONDS_A_DAY) for end in ends)
    tokens = f"{data['tokens_per_second']:,.0f} tokens or " if data["tokens_per_second"] else ""
    found["a second"] = f"{tokens}{significant(plan.examples_a_second)} examples"
    found["micro batch"] = f"{plan.examples:.0f}, {plan.micro_steps:.0f} a step on each GPU; at most {plan.largest} fit"
    largest = sorted(plan.parts.items(), key=lambda each: -each[1])[:3]
    found["its time goes to"] = ", ".join(f"{name} {part / plan.seconds:.0%}" for name, part in largest)
    rows = [{"what": key, "value": value} for key, value in found.items()]
    changes = plan.changes()[:_CHANGES]
    return rows + [{"what": f"{speedup:.2f}x as fast", "value": name} for name, speedup in changes]


def _notes(plan: Plan, given_steps: bool) -> list[str]:
    """Return where the number of steps is from, what could not be followed, and how it ran."""
    recorded = plan.recorded
    source = "--steps" if given_steps else recorded["steps"][1] if recorded["steps"] else ""
    steps = f"Steps are from {source}." if source else "No loop or name tells the number of steps: give --steps."
    lost = list(recorded["untold"])
    if places := [*recorded["branches"]][:_PLACES]:
        lost.append(f"branches on computed values at {listing(places)}, taken for 1.0, 1 or False")
    followed = f"Not followed: {'; '.join(lost[:_PLACES])}." if lost else "All of a step was followed."
    waiting = plan.waiting(recorded["workers"])
    loading = f" Its data loader, timed here, would add {seconds_text(waiting)} a step, not counted." if waiting else ""
    ran = f"It ran without network ({recorded['isolation']}); nothing was computed.{loading}"
    return [steps, f"{followed} Code after the third step did not run.", ran]
