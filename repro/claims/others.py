"""Claims of the review, the rent-or-buy comment, the lab report and the thesis."""

from __future__ import annotations

from dataclasses import replace
from math import ceil

from ..datafile import absent
from ..formats import Interval
from ..lab.specification import T4, T4_2_CPUS, T4_16_CPUS, V100
from . import facts
from .claim import recomputes
from .facts import SourceRow, Working, count, shown


@recomputes("review-saved-by-owning")
def saved() -> Working:
    """Return the rent less the cost of owning, both as the papers print them."""
    renting, machine = facts.rental("A100", 8, "AWS", "reserved"), facts.machine("A100", 8)
    more = shown(renting.value.value - machine.value.value)
    saving = renting - facts.quantity("paper/owned_8_a100")
    return saving.with_note(f"with the machine's own price, {shown(machine.value.value)} USD, it would be {more}")


@recomputes("review-budget-160k")
def cheaper_and_as_fast() -> Working:
    """Count machines that cost less than 8 A100 and train Pythia-1B in as few days; a "good balance" means none."""
    machines = facts.machines()
    cost, days = machines["A100", 8]
    better = {
        f"{gpus} {gpu} at {shown(its_cost.value.value)} USD in {shown(its_days.value.value)} days"
        for (gpu, gpus), (its_cost, its_days) in machines.items()
        if its_cost.value.value < cost.value.value and its_days.value.value <= days.value.value
    }
    numbers = [days.after(cost) for cost, days in machines.values()]
    found = count(len(better), numbers, "machines are cheaper than 8 A100 and as fast")
    here = f"8 A100 at {shown(cost.value.value)} USD, above that budget, in {shown(days.value.value)} days"
    return found.with_note(f"{here}; {' and '.join(sorted(better)) or 'no other'}")


@recomputes("review-under-50k", gpus=("RTX 3090",), least=0, most=50_000)
@recomputes("review-over-100k", gpus=("A100", "H100"), least=100_000, most=float("inf"))
def days_lost(gpus: tuple[str, ...], least: float, most: float) -> Working:
    """Return the days of Pythia-1B that a price range's fastest advised machine takes more than its fastest one."""
    within = {name: numbers for name, numbers in facts.machines().items() if least < numbers[0].value.value < most}
    advised = [days for (name, _), (_, days) in within.items() if name in gpus]
    if not advised:
        absent("table5.csv", "price that puts a machine in the range that the claim is of", " and ".join(gpus))
    fastest = min(within, key=lambda name: within[name][1].value.value)
    best, ours = within[fastest][1], min(advised, key=lambda days: days.value.value)
    lost = (ours - best).called(
        f"days more than {fastest[1]} {fastest[0]} at {shown(within[fastest][0].value.value)} USD"
    )
    return lost.after(*(cost for cost, _ in within.values()))


@recomputes("review-50k-to-100k")
def a6000_machines() -> Working:
    """Count the machines with A6000 that cost $50k to $100k."""
    costs = {name: cost for name, (cost, _) in facts.machines().items() if name[0] == "A6000"}
    there = sum(50_000 <= cost.value.value <= 100_000 for cost in costs.values())
    dearest = max(cost.value.value for cost in costs.values())
    found = count(there, list(costs.values()), "machines with A6000 cost 50,000 to 100,000 USD")
    return found.with_note(f"the dearest of them costs {shown(dearest)} USD")


@recomputes("review-original-gpus")
def original_gpus() -> Working:
    return facts.original_gpus("Pythia-1B")


_MINUTES_AN_HOUR, _HOURS_A_DAY = 60, 24


@recomputes("comment-gpu-hours")
def gpu_hours() -> Working:
    minutes = facts.quantity("comment/gpus") * facts.quantity("comment/minutes", rounded_to=1)
    found = (minutes / _MINUTES_AN_HOUR).called("GPU-hours of a run")
    days = found.value.value / _HOURS_A_DAY
    return found.with_note(f"that is also what one such card takes alone: {shown(days)} days without a pause")


@recomputes("comment-google-cost", provider="Google Cloud")
@recomputes("comment-exoscale-cost", provider="Exoscale")
def rent(provider: str) -> Working:
    """Return the US dollars of a run of 1,024 GPU-hours."""
    return _rent(facts.quantity("comment/hours_charged"), provider)


@recomputes("comment-google-cost-of-44-minutes", provider="Google Cloud")
@recomputes("comment-exoscale-cost-of-44-minutes", provider="Exoscale")
def rent_of_44_minutes(provider: str) -> Working:
    return _rent(gpu_hours(), provider).with_note("1,024 GPUs for a whole hour are 1,024 GPU-hours")


def _rent(hours: Working, provider: str) -> Working:
    return (hours * facts.rental("V100", 1, provider, "on-demand")).called(f"USD of a run at {provider}")


@recomputes("comment-card-speed")
def card_speed() -> Working:
    """Return the single-precision peak of the Quadro RTX 6000 over the V100's."""
    card, v100 = (facts.datasheet(gpu, "fp32_tflops", "TFLOP/s") for gpu in ("Quadro RTX 6000", "V100 32 GB"))
    return card / v100


@recomputes("comment-card-power")
def card_power() -> Working:
    """Return the board power of the Quadro RTX 6000 less the V100's."""
    card, v100, pcie = (
        facts.datasheet(gpu, "board_power_w", "W") for gpu in ("Quadro RTX 6000", "V100 32 GB", "V100 32 GB PCIe")
    )
    return (card - v100).with_note(f"the PCIe part of the V100 takes {shown(pcie.value.value)} W, which is less")


@recomputes("comment-card-memory-over-16-gb")
@recomputes("comment-card-memory-under-32-gb")
def card_memory() -> Working:
    return facts.datasheet("Quadro RTX 6000", "memory_gb", "GB")


@recomputes("comment-system-cost")
def system() -> Working:
    return (facts.quantity("comment/card") + facts.quantity("comment/workstation")).called("USD to buy")


@recomputes("comment-electricity")
def electricity() -> Working:
    """Return the electricity in euros of a run of 1,024 hours on one card."""
    return _electricity(facts.quantity("comment/hours_charged"))


@recomputes("comment-electricity-of-44-minutes")
def electricity_of_44_minutes() -> Working:
    return _electricity(gpu_hours()).with_note("for the hours that one such card takes for the same work")


def _electricity(hours: Working) -> Working:
    energy = (hours * facts.quantity("comment/power")).called("kWh of a run")
    return (energy * facts.quantity("comment/electricity")).called("EUR of a run")


@recomputes("comment-break-even-equation")
def equation() -> Working:
    """Return the number of runs that cost the same rented and bought, by the comment's equation."""
    return _equation(rent("Exoscale"), facts.quantity("comment/electricity_a_run_usd"))


@recomputes("comment-break-even")
def break_even() -> Working:
    return _whole(equation())


@recomputes("comment-break-even-with-its-electricity")
def break_even_electricity() -> Working:
    """Return the first run that buying makes cheaper, with the electricity that 1,024 hours take."""
    return _whole(_equation(rent("Exoscale"), _dollars(electricity())))


@recomputes("comment-break-even-of-44-minutes")
def break_even_of_44_minutes() -> Working:
    """Return the first run that buying makes cheaper, with the rent and the electricity of 44 minutes."""
    electricity = _dollars(electricity_of_44_minutes())
    found = _whole(_equation(rent_of_44_minutes("Exoscale"), electricity))
    days = found.value.value * gpu_hours().value.value / _HOURS_A_DAY
    return found.with_note(f"they keep the one card busy for {shown(round(days))} days")


def _dollars(euros: Working) -> Working:
    """Convert a run's electricity to US dollars, at the comment's own rate."""
    rate = facts.quantity("comment/electricity_a_run_usd") / facts.quantity("comment/electricity_a_run")
    return (euros * rate.called("USD a EUR")).called("USD of electricity a run")


def _equation(rented: Working, electricity: Working) -> Working:
    return (system() / (rented - electricity).called("USD saved a run")).called("runs that cost the same")


def _whole(runs: Working) -> Working:
    """Return the first run that buying makes cheaper."""
    found = runs.mapped(lambda bound: float(ceil(bound)))
    return found.saying(f"cheaper from run {shown(found.value.value)} on")


_TENTH = 0.1  # the lab report prints seconds and TFLOP/s to a tenth
_SECONDS = {"min": 60, "h": 3600}


@recomputes("lab-v100-double-precision")
def v100_double() -> Working:
    s_single, s_double = (facts.quantity(f"v100s/{precision}_tflops") for precision in ("fp32", "fp64"))
    return facts.quantity("v100/fp64_tflops").with_note(
        f"{shown(s_single.value.value)} TFLOP/s are the V100S's in single precision, which the DGX has not; in double "
        f"precision that part has {shown(s_double.value.value)}"
    )


@recomputes("lab-t4-single-precision")
def t4_single() -> Working:
    return facts.datasheet("T4", "fp32_tflops", "TFLOP/s")


@recomputes("lab-specification-ratio")
@recomputes("lab-twice-as-long")
def specification_ratio() -> Working:
    """Return the V100's TFLOP/s over the T4's, both as the lab report prints them."""
    return facts.quantity("lab/v100_tflops", _TENTH) / facts.quantity("lab/t4_tflops", _TENTH)


@recomputes("lab-specification-ratio-in-single-precision")
def single_precision_ratio() -> Working:
    v100, t4 = (facts.datasheet(gpu, "fp32_tflops", "TFLOP/s") for gpu in ("V100 32 GB", "T4"))
    return (v100 / t4).with_note("both in single precision, the V100 of a DGX")


@recomputes("lab-observed-ratio")
@recomputes("lab-hypothesis-supported")
@recomputes("lab-almost-three-times")
def observed_ratio() -> Working:
    """Return the seconds of 20 epochs on the T4 over those on the V100."""
    return _seconds(T4) / _seconds(V100)


@recomputes("lab-prediction-t4-2-cpus", resources=T4_2_CPUS)
@recomputes("lab-prediction-t4-16-cpus", resources=T4_16_CPUS)
@recomputes("lab-prediction-t4", resources=T4)
@recomputes("lab-prediction-v100", resources=V100)
def prediction(resources: str) -> Working:
    """Return 20 times the seconds of one epoch."""
    return _seconds(resources, epochs=1) * 20


@recomputes("lab-prediction-met-t4-2-cpus", resources=T4_2_CPUS)
@recomputes("lab-prediction-met-t4-16-cpus", resources=T4_16_CPUS)
@recomputes("lab-prediction-met-t4", resources=T4)
@recomputes("lab-prediction-met-v100", resources=V100)
def measured(resources: str) -> Working:
    """Return the seconds that 20 epochs took."""
    run, _ = facts.lab(resources, 20)
    assert run.predicted_seconds is not None  # lab_runs checks this for several epochs
    error = run.predicted_seconds / run.seconds - 1
    return _seconds(resources).with_note(f"the prediction is {abs(error):.1%} too {'long' if error > 0 else 'short'}")


@recomputes("lab-cpus-underestimated", sign=-1, resources=(T4_2_CPUS, T4_16_CPUS))
@recomputes("lab-gpus-overestimated", sign=1, resources=(T4, V100))
def errors(sign: int, resources: tuple[str, ...]) -> Working:
    """Count the predictions that are not off in the direction that the lab report states."""
    found, wrong = [], 0
    for name in resources:
        run, row = facts.lab(name, 20)
        assert run.predicted_seconds is not None
        off = run.predicted_seconds - run.seconds
        wrong += sign * off <= 0
        step = f"{name}: {shown(run.predicted_seconds)} - {shown(run.seconds)} = {shown(off)} s"
        found.append(Working(Interval.exact(off), (row,), (step,)))
    return count(wrong, found, "predictions are off in the other direction")


@recomputes("lab-2-cpus-hours", resources=T4_2_CPUS, unit="h")
@recomputes("lab-16-cpus-hours", resources=T4_16_CPUS, unit="h")
@recomputes("lab-t4-minutes", resources=T4, unit="min")
@recomputes("lab-v100-minutes", resources=V100, unit="min")
def duration(resources: str, unit: str) -> Working:
    return (_seconds(resources) / _SECONDS[unit]).called(unit)


@recomputes("lab-rate-t4-2-cpus-1-epoch", resources=T4_2_CPUS, epochs=1)
@recomputes("lab-rate-t4-16-cpus-1-epoch", resources=T4_16_CPUS, epochs=1)
@recomputes("lab-rate-t4-1-epoch", resources=T4, epochs=1)
@recomputes("lab-rate-v100-1-epoch", resources=V100, epochs=1)
@recomputes("lab-rate-t4-2-cpus-20-epochs", resources=T4_2_CPUS, epochs=20)
@recomputes("lab-rate-t4-16-cpus-20-epochs", resources=T4_16_CPUS, epochs=20)
@recomputes("lab-rate-t4-20-epochs", resources=T4, epochs=20)
@recomputes("lab-rate-v100-20-epochs", resources=V100, epochs=20)
def rate(resources: str, epochs: int) -> Working:
    """Return the images a second in the last epoch."""
    run, row = facts.lab(resources, epochs)
    epoch = SourceRow(row.file, f"{row.row}, the last", f"{run.last_epoch_seconds} s", row.source)
    return facts.quantity("lab/images") / Working.read(run.last_epoch_seconds, epoch, _TENTH)


@recomputes("lab-epoch-t4-2-cpus", resources=T4_2_CPUS)
@recomputes("lab-epoch-t4-16-cpus", resources=T4_16_CPUS)
@recomputes("lab-epoch-t4", resources=T4)
@recomputes("lab-epoch-v100", resources=V100)
def epoch(resources: str) -> Working:
    """Return the mean seconds of one of 20 epochs."""
    return _seconds(resources) / 20


@recomputes("lab-stamps-t4-2-cpus-1-epoch", resources=T4_2_CPUS, epochs=1)
@recomputes("lab-stamps-t4-16-cpus-1-epoch", resources=T4_16_CPUS, epochs=1)
@recomputes("lab-stamps-t4-1-epoch", resources=T4, epochs=1)
@recomputes("lab-stamps-v100-1-epoch", resources=V100, epochs=1)
@recomputes("lab-stamps-t4-2-cpus-20-epochs", resources=T4_2_CPUS, epochs=20)
@recomputes("lab-stamps-t4-16-cpus-20-epochs", resources=T4_16_CPUS, epochs=20)
@recomputes("lab-stamps-t4-20-epochs", resources=T4, epochs=20)
@recomputes("lab-stamps-v100-20-epochs", resources=V100, epochs=20)
def stamps(resources: str, epochs: int) -> Working:
    """Return the seconds between the local time stamps, each in whole seconds, without a clock change between them."""
    run, row = facts.lab(resources, epochs)
    between = (run.ended - run.started).total_seconds()
    begun, ended = (
        Working.read(seconds, SourceRow(row.file, row.row, f"{stamp}, local", row.source), rounded_to=1)
        for seconds, stamp in ((0.0, run.started), (between, run.ended))
    )
    step = f"from {run.started} to {run.ended} the clock went on by {shown(between)} s"
    found = replace(ended - begun, steps=(step,))
    if not run.clock_change_seconds:
        return found
    elapsed = (found - run.clock_change_seconds).called("summer time began that night")
    return elapsed.with_note(f"the stamps read as they stand give {shown(between)} s, an hour more: summer time began")


def _seconds(resources: str, epochs: int = 20) -> Working:
    run, row = facts.lab(resources, epochs)
    return Working.read(run.seconds, row, _TENTH)


@recomputes("thesis-rtx-4090-cheaper", terms="on-demand")
@recomputes("thesis-spot-cheaper", terms="spot")
def hour(terms: str) -> Working:
    """Return the US dollars of an hour with one RTX 4090."""
    return facts.rental("RTX 4090", 1, "RunPod", terms)


@recomputes("thesis-bandwidth")
def bandwidth() -> Working:
    v100, rtx_4090 = (facts.datasheet(gpu, "bandwidth_gb_s", "GB/s") for gpu in ("V100 16 GB", "RTX 4090"))
    return rtx_4090 / v100


@recomputes("thesis-cuda-cores")
def cuda_cores() -> Working:
    return facts.quantity("rtx_4090/cuda_cores") / facts.quantity("v100/cuda_cores")


@recomputes("thesis-faster")
def faster() -> Working:
    """Return the RTX 4090's peak in half precision over the V100's."""
    v100, rtx_4090 = (facts.datasheet(gpu, "fp16_tflops", "TFLOP/s") for gpu in ("V100 16 GB", "RTX 4090"))
    return rtx_4090 / v100


@recomputes("thesis-cost-effective")
def cost_effective() -> Working:
    """Return the RTX 4090's peak per dollar of rent over the V100's."""
    v100 = facts.datasheet("V100 16 GB", "fp16_tflops", "TFLOP/s") / facts.rental("V100 16 GB", 1, "AWS", "on-demand")
    return facts.datasheet("RTX 4090", "fp16_tflops", "TFLOP/s") / hour("on-demand") / v100


@recomputes("thesis-two-gpus")
def two_gpus() -> Working:
    return hour("on-demand") * 2


@recomputes("thesis-two-gpus-per-gpu-hour")
def per_gpu_hour() -> Working:
    """Return the US dollars of a GPU-hour on the instance with two GPUs."""
    instance = facts.rental("RTX 4090", 2, "RunPod", "on-demand")
    return (instance / 2).with_note(f"{shown(instance.value.value)} USD are the price of an hour of the whole instance")
