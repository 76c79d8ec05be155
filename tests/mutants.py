"""Put small faults into the code, one at a time, and see whether the tests that should find each do fail.

python tests/mutants.py                   all faults; about 20 minutes on 2 cores
python tests/mutants.py NAME ...          these
python tests/mutants.py --changed [BASE]  those whose file or tests differ from a commit, by default from main
python tests/mutants.py --random N [--seed S]  N others, at random places; about a minute each

Each is put into a scratch copy of the checkout, two at a time, and taken out again. A fault survives where its tests
pass all the same, or fail also without it; then the exit code is 1.
"""

from __future__ import annotations

import argparse
import os
import queue
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests import random_faults  # noqa: E402

_SECONDS = 900.0  # longest that the tests of one fault take
_AT_ONCE = 2


class Mutant(NamedTuple):
    """A fault: in a file of the checkout, `new` in place of the only `old`. `tests` are arguments of pytest; those
    marked slow run only where they are `slow`."""

    file: str
    old: str
    new: str
    tests: str
    slow: bool = False

    @property
    def paths(self) -> list[str]:
        """Return the files of its tests."""
        return [word for word in shlex.split(self.tests) if word.endswith(".py")]


MUTANTS = {
    # --- The runs that decide most ---
    "verify-reserve": Mutant(
        "repro/verify/order.py",
        "reserved = (1 + RESERVE) * minutes",
        "reserved = minutes",
        "tests/test_verify.py -k within_its_budget",
    ),
    "verify-bounds": Mutant(
        "repro/verify/runs.py",
        "differs = below(days, low / margin) + 1 - below(days, high * margin)",
        "differs = below(days, low * margin) + 1 - below(days, high / margin)",
        "tests/test_verify.py",
    ),
    "verify-set-up": Mutant(
        "repro/verify/order.py",
        "minutes = run.minutes + (0.0 if run.machine in rented else SETTING_UP)",
        "minutes = run.minutes",
        "tests/test_verify.py -k with_the_reserve",
    ),
    "verify-decided": Mutant(
        "repro/verify/runs.py",
        'if cell.state != "lost" and cell not in done)',
        'if cell.state != "lost")',
        "tests/test_verify.py -k kept_decide",
    ),
    "verify-several-gpus-alone": Mutant(
        "repro/verify/runs.py",
        "if self.gpus > 1 else []",
        "if self.gpus > 8 else []",
        "tests/test_rental.py -k on_several_gpus",
    ),
    "rental-minutes": Mutant(
        "repro/verify/rental.py",
        "accumulate(row.minutes for row in rows)",
        "(row.minutes for row in rows)",
        "tests/test_rental.py -k in_order",
    ),
    "rental-packs-each-run": Mutant(
        "repro/verify/rental.sh",
        "    running=\n    pack\n",
        "    running=\n",
        "tests/test_rental.py -k after_each_run",
    ),
    "rental-names": Mutant(
        "repro/verify/rental.sh",
        'read -ra words <<<"$(uname -n) ',
        'read -ra words <<<"',
        "tests/test_rental.py -k after_each_run",
    ),
    "rental-homes": Mutant(
        "repro/verify/rental.sh",
        "[[:alnum:]._@+-]+",
        "[[:alnum:]]+",
        "tests/test_rental.py -k after_each_run",
    ),
    "rental-in-time": Mutant(
        "repro/verify/rental.sh",
        'timeout --kill-after=60 "$seconds" "${repro[@]}"',
        '"${repro[@]}"',
        "tests/test_rental.py -k longer_than_planned",
    ),
    "rental-ends-on-refusal": Mutant(
        "repro/verify/rental.sh",
        "    2) exit 2 ;;",
        "    2) ;;",
        "tests/test_rental.py -k cannot_measure",
    ),
    "rental-always-ends": Mutant(
        "repro/verify/rental.sh",
        "trap finish EXIT\n",
        "",
        "tests/test_rental.py -k cannot_measure",
    ),
    "repeat-fresh-server": Mutant(
        "repro/run/run.py",
        "            self._number = number\n            self._server.close()\n",
        "            self._number = number\n",
        "tests/test_repeat.py -k fresh_server",
    ),
    "repeat-counts-what-is-kept": Mutant(
        "repro/run/run.py",
        "self._times = Counter(record.id for record in measured if believed(record, then).timed)",
        "self._times = Counter[str]()",
        "tests/test_repeat.py -k goes_on",
    ),
    "repeat-only-timed": Mutant(
        "repro/run/run.py",
        "if record.timed and self._times[record.id] < number:",
        "if self._times[record.id] < number:",
        "tests/test_repeat.py -k tried_once",
    ),
    "spread-of-starts": Mutant(
        "repro/run/spread.py",
        "if len(starts) > 1",
        "if starts",
        "tests/test_repeat.py -k medians_of_starts",
    ),
    "spread-over-the-median": Mutant(
        "repro/run/spread.py",
        "/ median(self.steps)",
        "/ max(self.steps)",
        "tests/test_repeat.py -k medians_of_starts",
    ),
    # --- The certificate ---
    "certificate-hashes": Mutant(
        "repro/verify/check.py",
        "elif old.sha256 != new.sha256:",
        "elif old.trial != new.trial:",
        "tests/test_certificate.py -k changed_byte",
    ),
    "certificate-of-projections": Mutant(
        "repro/verify/certificate.py",
        'if one.by_true_days is None or one.by_true_days.origin != "measured":',
        "if one.by_true_days is None:",
        "tests/test_certificate.py -k on_printed_days",
    ),
    "certificate-tolerance": Mutant(
        "repro/verify/certificate.py",
        "claim.printed.low * (1 - tolerance)",
        "claim.printed.low",
        "tests/test_certificate.py -k beyond_its_bound",
    ),
    "certificate-stays": Mutant(
        "repro/report/write.py",
        "files.remove(folder / CERTIFICATE)",
        "pass",
        "tests/test_certificate.py -k decides_nothing",
    ),
    "certificate-variation": Mutant(
        "repro/verify/certificate.py",
        "(there := spreads.get(each.id))",
        "(there := spreads.get(each.settings))",
        "tests/test_certificate.py -k its_variation",
    ),
    # --- Results that are shared ---
    "cleaning-owners": Mutant(
        "repro/verify/cleaning.py",
        "owners.add(path.owner())",
        "path.owner()",
        "tests/test_contribute.py -k owner_of_a_file",
    ),
    "cleaning-short-names": Mutant(
        "repro/verify/cleaning.py",
        "if name.lower() in _COMMON or len(name) < _LEAST:",
        "if name.lower() in _COMMON:",
        "tests/test_contribute.py -k is_replaced",
    ),
    "cleaning-versions": Mutant(
        "repro/verify/cleaning.py",
        "if match[0] not in self.kept and _is_address(match[0])",
        "if _is_address(match[0])",
        "tests/test_contribute.py -k is_replaced",
    ),
    "contribute-copies": Mutant(
        "repro/verify/contribute.py",
        "if times and times in known:",
        "if times and times in known and not line.record:",
        "tests/test_contribute.py -k copies_and_impossible",
    ),
    "contribute-changed": Mutant(
        "repro/commands/contribute.py",
        "contribute.refuse_changed(before, after,",
        "contribute.refuse_changed(after, after,",
        "tests/test_goldens.py -k are_refused",
    ),
    "contributors-copies": Mutant(
        "repro/commands/predict_paper.py",
        "[record for record in records if raw_times(record) not in ours]",
        "list(records)",
        "tests/test_contribute.py -k validation_has",
    ),
    # --- The page in a browser, popular models and decoders ---
    "decoder-products": Mutant(
        "repro/predict/decoders.py",
        'products = 2 if self.family == "gpt2" else 3',
        "products = 3",
        "tests/test_decoders.py -k popular_model_has",
    ),
    "decoder-squares": Mutant(
        "repro/predict/decoders.py",
        "4 * d.layers * d.sequence**2 * queries",
        "2 * d.layers * d.sequence**2 * queries",
        "tests/test_decoders.py -k popular_model_has",
    ),
    "popular-length": Mutant(
        "models/specification.py",
        "fields = given.over(Fields(**known.given))",
        "fields = Fields(**known.given)",
        "tests/test_decoders.py -k takes_another_length",
    ),
    "page-shell-words": Mutant(
        "repro/web.py",
        """shell_words(["repro", *words])""",
        """" ".join(["repro", *words])""",
        "tests/test_web.py -k quotes",
    ),
    "page-links-escaped": Mutant(
        "repro/report/html.py",
        "else Html(escape(visible(str(value))))",
        "else Html(str(value))",
        "tests/test_web.py -k escaped",
    ),
    # --- models/ and what follows from their sizes ---
    "flops-attention": Mutant(
        "models/transformer.py",
        "2 * 2 * tokens**2 * width",
        "2 * tokens**2 * width",
        "tests/test_flops.py -k known_numbers",
    ),
    "flops-convnext-stride": Mutant(
        "models/convnext.py", "side //= 2", "side //= 1", "tests/test_flops.py -k known_numbers"
    ),
    "flops-mamba-convolution": Mutant(
        "models/mamba.py",
        "convolution = 2 * inner *",
        "convolution = inner *",
        "tests/test_flops.py -k four_projections",
    ),
    "tokens-of-an-epoch": Mutant(
        "models/specification.py",
        "units / length / given.batch_size",
        "units / given.batch_size",
        "tests/test_own_model.py -k counted_in_tokens",
    ),
    "first-at": Mutant(
        "models/specification.py",
        're.fullmatch(f"(.+)@({key})"',
        're.fullmatch(f"(.+?)@({key})"',
        "tests/test_own_model.py -k last_at_before_a_key",
    ),
    # --- The paper's numbers ---
    "peak-of-volta-in-tf32": Mutant(
        "repro/paper/gpus.py",
        'if precision == "fp32" and tf32 and _ampere_or_newer(gpu.generation):',
        'if precision == "fp32" and _ampere_or_newer(gpu.generation):',
        "tests/test_gpus.py -k tf32_raises",
    ),
    "bf16-without-bf16": Mutant(
        "repro/predict/forecast.py",
        'return replace(recipe, precision="fp16"), NO_BF16',
        "return recipe, NO_BF16",
        "tests/test_predict_time.py -k without_bf16",
    ),
    "amds-link": Mutant(
        "repro/predict/hardware.py",
        "(?:NVLink|Infinity Fabric) (?:bridge )?",
        "NVLink (?:bridge )?",
        "tests/test_gpus.py -k another_vendor",
    ),
    "less-than-a-day": Mutant(
        "repro/formats.py",
        "minutes = round(rough(days) * 24 * 60)",
        "minutes = round(rough(days) * 24) * 60",
        "tests/test_units.py -k hours_and_minutes",
    ),
    "tokens-a-second": Mutant(
        "repro/predict/report.py",
        "rough(examples * recipe.inputs.sequence)",
        "rough(examples)",
        "tests/test_predict_command.py -k in_hours_with_its_speed",
    ),
    "cheapest-region": Mutant(
        "repro/money/prices.py",
        "min(known, each, key=lambda one: one.price)",
        "known",
        "tests/test_prices.py -k cheapest_region",
    ),
    "skypilots-a100": Mutant(
        "repro/money/prices.py",
        '_SKYPILOTS = {"A100": "A100 40 GB", ',
        "_SKYPILOTS = {",
        "tests/test_prices.py -k cheapest_region",
    ),
    "plan-passes": Mutant(
        "repro/plan/steps.py",
        "number /= backwards",
        "number /= 1",
        "tests/test_plan_scripts.py -k costs_what",
        slow=True,
    ),
    "plan-loader": Mutant(
        "repro/plan/steps.py",
        "number is None and isinstance(loop, ast.For) and batches is not None",
        "False",
        "tests/test_plan_scripts.py -k loader_in_a_loop",
    ),
    "plan-shares": Mutant(
        "repro/plan/answer.py",
        "fixed = state / self._share",
        "fixed = state",
        "tests/test_plan_scripts.py -k two_gpus",
        slow=True,
    ),
    "plan-writes": Mutant(
        "repro/plan/child.py",
        "if writes and outside(place):",
        "if writes and not outside(place):",
        "tests/test_plan_scripts.py -k reaches",
    ),
    "plan-variables": Mutant(
        "repro/plan/script.py",
        "kept = {name: known[name] for name in _KEPT if name in known}",
        "kept = dict(known)",
        "tests/test_plan_scripts.py -k reaches",
    ),
    "plan-samples": Mutant(
        "repro/plan/child.py",
        "if samples and not writes and",
        "if samples and writes and",
        "tests/test_plan_scripts.py -k samples",
    ),
    "plan-gradients": Mutant(
        "repro/plan/fake_cuda.py",
        'recorder.count_as(weight.grad, "gradients")',
        'recorder.count_as(weight.grad, "activations")',
        "tests/test_plan_scripts.py -k costs_what",
        slow=True,
    ),
    "plan-lists": Mutant(
        "repro/plan/fake_cuda.py",
        "        supported.append(FakeTensor)\n",
        "        pass\n",
        "tests/test_plan_scripts.py -k in_lists",
    ),
    "plan-cpu": Mutant(
        "repro/plan/script_causes.py",
        "replace(plan, machine=each, constants=constants)",
        "replace(plan, constants=constants)",
        "tests/test_plan_scripts.py -k a_minute",
        slow=True,
    ),
    "took-width": Mutant(
        "repro/plan/took.py",
        "** 2) / 2 - math.log(width)",
        "** 2) / 2",
        "tests/test_took.py -k ranked",
    ),
    "took-bounds": Mutant(
        "repro/plan/took.py",
        '"faster" if self.took < low else',
        '"faster" if self.took < self.predicted else',
        "tests/test_took.py -k interval_alone",
    ),
    "took-shift": Mutant(
        "repro/plan/took.py",
        "max(math.log(low) - at, at - math.log(high), 0.0)",
        "max(at - math.log(high), 0.0)",
        "tests/test_took.py -k 'ranked or cpu'",
    ),
    "took-training": Mutant(
        "repro/plan/took.py",
        'return self.value / (steps or 1) if self.kind == "training" else self.value',
        "return self.value",
        "tests/test_took.py -k 'as_people or same_step'",
    ),
    "took-tf32": Mutant(
        "repro/plan/causes.py",
        'tf32=full * machine.peak("fp32", False) / machine.peak("fp32", True)',
        "tf32=full",
        "tests/test_took.py -k without_tf32",
    ),
    "took-turing": Mutant(
        "repro/plan/causes.py",
        "replace(rates, matmul_half=full, matmul_half_geforce=full,",
        "replace(rates,",
        "tests/test_took.py -k bf16",
    ),
    "took-likely": Mutant(
        "repro/plan/took.py",
        "if share >= first / 2]",
        "]",
        "tests/test_took.py -k ranked",
    ),
    "took-links": Mutant(
        "repro/plan/causes.py",
        "replace(machine, network=1e9 / 8)",
        "replace(machine, network=1e9)",
        "tests/test_took.py -k slower_links",
    ),
    "took-threads": Mutant(
        "repro/plan/causes.py",
        "fp16=all_.fp16 / cores,",
        "",
        "tests/test_took.py -k one_thread",
    ),
    "seconds-of-a-step": Mutant(
        "repro/predict/published.py",
        'if self.unit == "s":\n            return self.measured',
        'if self.unit == "s":\n            return self.measured * self.accumulation',
        "tests/test_published.py -k 'units or public'",
    ),
    "analytic-gpus": Mutant(
        "repro/paper/arithmetic.py",
        "return flops / (peak * gpus) / SECONDS_A_DAY",
        "return flops / peak / SECONDS_A_DAY",
        "tests/test_reference.py -k analytic_estimate",
    ),
    "offloading-unsharded": Mutant(
        "repro/paper/settings.py",
        "return sharded == self.offloading if count == 1 else sharded or not self.offloading",
        "return sharded == self.offloading if count == 1 else True",
        "tests/test_settings.py -k 22_settings",
    ),
    "zero-3-keeps-parameters": Mutant(
        "repro/paper/deepspeed.py",
        'if settings.stage == 3:\n            zero["offload_param"]',
        'if settings.stage == 2:\n            zero["offload_param"]',
        "tests/test_correctness.py -k zeros_configuration",
        slow=True,
    ),
    # --- Records ---
    "gas": Mutant(
        "repro/steps.py",
        "(accumulation - 1) * parts.no_reduce[number]",
        "accumulation * parts.no_reduce[number]",
        "tests/test_extrapolate.py -k truly_one",
    ),
    "days-of-steps": Mutant(
        "repro/steps.py",
        "return step_seconds * training_steps / SECONDS_A_DAY",
        "return step_seconds * training_steps / 86_000",
        "tests/test_extrapolate.py -k days_are",
    ),
    "tf32-that-ran": Mutant(
        "repro/record.py",
        "return self.asked_tf32 if self.tf32 is None else self.tf32",
        "return self.asked_tf32",
        "tests/test_audit.py -k tf32_asked_for",
    ),
    "nodes-like-the-papers": Mutant(
        "repro/record.py",
        " and self.nodes == 1 and self.memory_limit is None",
        " and self.memory_limit is None",
        "tests/test_verdict.py -k another_machine",
    ),
    "peak-above-the-memory": Mutant(
        "repro/validity.py", "if most > memory:", "if most > 2 * memory:", "tests/test_forged.py -k does_not_support"
    ),
    "more-than-the-peak": Mutant(
        "repro/validity.py",
        "record.derived.utilisation is not None and record.derived.utilisation > 1:",
        "record.derived.utilisation is not None and record.derived.utilisation > 10:",
        "tests/test_forged.py -k more_than_the_gpus_peak",
    ),
    "ranks-without-times": Mutant(
        "repro/validity.py",
        "if len(ranks) != record.ranks:",
        "if len(ranks) > record.ranks:",
        "tests/test_reading.py -k raw_times_of_every_rank",
    ),
    # --- Predictions ---
    "offload-traffic": Mutant(
        "repro/predict/time.py",
        "self.trace.parameters / world * (self._adam_bytes + element_bytes(self.recipe))",
        "self.trace.parameters / world * self._adam_bytes",
        "tests/test_projection.py -k share_the_memory",
    ),
    "ring": Mutant(
        "repro/predict/time.py",
        "return (self.machine.world - 1) / self.machine.world",
        "return 1.0",
        "tests/test_predict_time.py -k 'settings_exchange or perfect_rates'",
    ),
    "latency-of-each-collective": Mutant(
        "repro/predict/time.py",
        "self._collectives * self.machine.latency",
        "self.machine.latency",
        "tests/test_predict_time.py -k 'settings_exchange or perfect_rates'",
    ),
    "gradients-in-half": Mutant(
        "repro/predict/time.py",
        '(2 if "bf16_weights" in settings.parts else 4) * self._ring',
        "2 * self._ring",
        "tests/test_predict_time.py -k settings_exchange",
    ),
    "tf32-of-naive": Mutant(
        "repro/predict/time.py",
        "if self.tf32 and machine.has_tf32:",
        "if machine.has_tf32:",
        "tests/test_predict_time.py -k 'perfect_rates or rates_of_their_own'",
    ),
    "launch-queue": Mutant(
        "repro/predict/launch_queue.py",
        "seconds - _last(backwards, room)))",
        "seconds + _last(backwards, room)))",
        "tests/test_launch_queue.py -k 'leaves_only_its_launching or never_shows'",
    ),
    "part-of-a-stretch": Mutant(
        "repro/predict/launch_queue.py",
        "return seconds + taken * room / launches",
        "return seconds + taken",
        "tests/test_launch_queue.py -k last_launches",
    ),
    "predicted-micro-batch": Mutant(
        "repro/predict/memory.py",
        "divisors(models.micro_batch_limit(recipe, gpus))",
        "divisors(models.micro_batch_limit(recipe, 1))",
        "tests/test_predict_memory.py -k with_room_for_all",
    ),
    "group-of-one": Mutant(
        "repro/predict/memory.py",
        "(allowance.group if gpus > 1 else 0.0)",
        "(allowance.group if gpus > 2 else 0.0)",
        "tests/test_predict_memory.py -k process_group",
    ),
    "fused-adam-temporaries": Mutant(
        "repro/predict/memory.py",
        "(12 * share, 4 * share)",
        "(12 * share, 0.0)",
        "tests/test_predict_memory.py -k 'update or peaks_at'",
    ),
    "logits-in-chunks": Mutant(
        "repro/predict/parts.py",
        "_CHUNK_PEAK * inputs.sequence * width - _LOGIT_PEAK * logits",
        "_CHUNK_PEAK * inputs.sequence * width",
        "tests/test_modern.py -k of_logits_in_chunks",
    ),
    "interval-of-the-ratio": Mutant(
        "repro/predict/scores.py",
        "return low <= 1 / self.ratio <= high",
        "return low <= self.ratio <= high",
        "tests/test_scores.py -k 'targets_are_met or intervals_hold'",
    ),
    "published-tokens": Mutant(
        "repro/predict/published.py",
        "return self.examples * units / self.measured",
        "return self.examples / units / self.measured",
        "tests/test_published.py -k units_are_read",
    ),
    "impossible-share": Mutant(
        "repro/predict/audit.py",
        "utilisation.low > 1:",
        "utilisation.high > 1:",
        "tests/test_audit.py -k no_rounding_saves",
    ),
    "bridge-of-four": Mutant(
        "repro/predict/hardware.py",
        'return "nvlink" if self.world == 2 and bridged else "pcie"',
        'return "nvlink" if bridged else "pcie"',
        "tests/test_predict_time.py -k links_are_read",
    ),
    "best-that-fit": Mutant(
        "repro/run/best_predicted.py",
        " if found[settings].feasible]",
        "]",
        "tests/test_best_predicted.py -k predicted_to_fit",
    ),
    # --- Measuring ---
    "shards": Mutant(
        "repro/measure/engine/base.py",
        'for what in ("weights",) if self._own else ("weights", "moments"):',
        "for what in ():",
        "tests/test_trial.py -k runs_otherwise_than_asked",
        slow=True,
    ),
    "tf32-of-convolutions": Mutant(
        "repro/measure/engine/base.py",
        "torch.backends.cudnn.allow_tf32 = on",
        "torch.backends.cudnn.allow_tf32 = True",
        "tests/test_tf32.py -k alike",
    ),
    "mean-over-micro-steps": Mutant(
        "repro/measure/engine/plain.py",
        "self.scaler.scale(loss / self.accumulation)",
        "self.scaler.scale(loss)",
        "tests/test_correctness.py -k one_process_that_accumulates",
        slow=True,
    ),
    "measured-micro-batch": Mutant(
        "repro/measure/trial.py",
        "trial.micro_batch or models.micro_batch_limit(recipe, trial.world))",
        "trial.micro_batch or share)",
        "tests/test_trial.py -k largest_power_of_two",
        slow=True,
    ),
    "search-below": Mutant(
        "repro/measure/micro_batch.py",
        "share = max(each for each in sizes if each < start)",
        "share = min(each for each in sizes if each < start)",
        "tests/test_trial.py -k goes_up_from_its_start",
    ),
    "fits-on-all-ranks": Mutant(
        "repro/measure/outcomes.py",
        "return min(max(outcome.fitted",
        "return max(max(outcome.fitted",
        "tests/test_trial.py -k 'goes_up_from_its_start or ranks_are_reported'",
    ),
    "built-while-others-are-timed": Mutant(
        "repro/measure/interleaving.py",
        "while not futures[-1].done() and not self._admit(_GLANCE_SECONDS):",
        "while False:",
        "tests/test_interleaving.py -k none_is_built",
    ),
    "a-turn-for-ever": Mutant(
        "repro/measure/interleaving.py",
        "return (process.poll(TURN_SECONDS) or process.poll(0)) and _is_idle(process)",
        "return process.poll(TURN_SECONDS) or True",
        "tests/test_interleaving.py -k 'keeps_its_turn or ends_early'",
    ),
    "processes-for-a-stranger": Mutant(
        "repro/measure/nodes.py",
        "if asked.ranks > most_ranks:",
        "if False:",
        "tests/test_nodes.py -k room_for",
    ),
    # --- Running ---
    "estimated-rounds": Mutant(
        "repro/run/estimate.py",
        "(10 + 4 * rounds) * micro_step",
        "(10 + 2 * rounds) * micro_step",
        "tests/test_estimate.py -k within_a_quarter",
    ),
    "projected-micro-steps": Mutant(
        "repro/run/projection.py",
        '"without": reducing if settings.reduces_every_micro_step else 0.0,',
        '"without": reducing,',
        "tests/test_projection.py -k sharded_alone",
    ),
    "projected-ratio": Mutant(
        "repro/run/projection.py",
        '"with": computing / reducing,',
        '"with": 1.0,',
        "tests/test_projection.py -k ratio_of_two",
    ),
    "projected-group": Mutant(
        "repro/run/projection.py",
        " - constants.allowance.context - constants.allowance.group",
        " - constants.allowance.context",
        "tests/test_projection.py -k leaves_room",
    ),
    "tolerance": Mutant(
        "repro/run/verdict.py",
        "return (expected - _ROUNDING) * (1 - tolerance), ",
        "return (expected - _ROUNDING) / (1 + tolerance), ",
        "tests/test_tolerance.py -k on_either_side",
    ),
    "tf32-of-a-cell": Mutant(
        "repro/run/verdict.py",
        "settings.free_lunch or record.device not in paper_gpus()",
        "settings.free_lunch or record.device in paper_gpus()",
        "tests/test_verdict.py -k tf32",
    ),
    "folder-of-two-runs": Mutant(
        "repro/run/results.py",
        "if not files.lock(self._file):",
        "if False:",
        "tests/test_results.py -k second_run",
    ),
    "lost-tail-of-a-trial": Mutant(
        "repro/run/results.py",
        "os.ftruncate(self._file.fileno(), len(content) - torn)",
        "os.ftruncate(self._file.fileno(), 0)",
        "tests/test_results.py -k torn_last_line",
    ),
    "cells-that-agree": Mutant(
        "repro/run/corrected.py",
        "if (row.printed_state, row.feasible) == (state, feasible)",
        "if row.printed_state == state",
        "tests/test_corrected.py -k feasibility_differs",
    ),
    "divisors": Mutant(
        "models/recipe.py",
        "for each in range(1, isqrt(number) + 1)",
        "for each in range(1, isqrt(number))",
        "tests/test_plan.py -k micro_batches_divide",
    ),
    # --- The machine ---
    "tf32-unasked": Mutant(
        "repro/machine/support.py",
        "return settings.free_lunch and stack.tf32",
        "return settings.free_lunch or stack.tf32",
        "tests/test_support.py tests/test_tf32.py -k 'tf32_comes_with or trials_obey'",
    ),
    "bf16-of-turing": Mutant(
        "repro/machine/support.py",
        'if recipe.precision != "bf16" or capability >= AMPERE:',
        'if recipe.precision != "bf16" or capability > (7, 0):',
        "tests/test_support.py -k before_ampere",
    ),
    "farthest-lock": Mutant(
        "repro/machine/environment.py",
        "min(found, key=lambda each: len(each.differences)",
        "max(found, key=lambda each: len(each.differences)",
        "tests/test_environment.py -k nearest_lock",
    ),
    "edit-of-the-same-size": Mutant(
        "repro/installation.py",
        "size == there and digest in (None, recorded)",
        "size == there",
        "tests/test_imports.py -k size_and_time_are_kept",
    ),
    "kernels-for-a-later-minor": Mutant(
        "repro/machine/doctor.py",
        "known[0] == major and known[1] <= minor",
        "known[0] == major",
        "tests/test_doctor.py -k torch_does_not_know",
    ),
    "quota-of-cpus": Mutant(
        "repro/machine/host.py",
        "min(allowed, math.ceil(quota))",
        "max(allowed, math.ceil(quota))",
        "tests/test_cgroups.py",
    ),
    "repeated-gpu": Mutant(
        "repro/machine/devices.py",
        "if device in chosen:\n            return []",
        "if device in chosen:\n            continue",
        "tests/test_gpus.py -k cuda_visible_devices",
    ),
    "nvcc-of-another-cuda": Mutant(
        "repro/machine/build_cache.py",
        '_cuda_of_nvcc(home / "bin" / "nvcc") == torch',
        '_cuda_of_nvcc(home / "bin" / "nvcc")',
        "tests/test_adam.py -k installed_beside_torch",
    ),
    "two-tasks-a-node": Mutant(
        "repro/machine/cluster.py",
        "if tasks > nodes:",
        "if tasks > 2 * nodes:",
        "tests/test_nodes.py -k that_slurm_says",
    ),
    # --- Money ---
    "price-of-a-machine": Mutant(
        "repro/money/prices.py",
        "gpus * each.price * gpu_worth + system.price * system_worth",
        "gpus * each.price * system_worth + system.price * gpu_worth",
        "tests/test_prices.py -k in_its_own_currency",
    ),
    "rate-backwards": Mutant(
        "repro/money/prices.py",
        "return 1 / rate.rate",
        "return rate.rate",
        "tests/test_prices.py -k in_its_own_currency",
    ),
    "daly-without-its-series": Mutant(
        "repro/money/spot.py",
        "(1 + math.sqrt(ratio) / 3 + ratio / 9)",
        "(1 + math.sqrt(ratio) / 3)",
        "tests/test_spot.py -k last_term",
    ),
    "reserved-in-part": Mutant(
        "repro/money/offers.py",
        "rental.price * max(math.ceil(hours / rental.hours - 1e-9), 1)",
        "rental.price * hours / rental.hours",
        "tests/test_prices.py -k whole_terms",
    ),
    "resale": Mutant(
        "repro/money/breakeven.py",
        "paid, saved = self.machine - self.resale, self.rent - self.running",
        "paid, saved = self.machine, self.rent - self.running",
        "tests/test_calculator.py -k both_have_spent",
    ),
    # --- One kind of day, the rule for upgrades, small groups, the training ---
    "days-of-the-other-stack": Mutant(
        "repro/money/days.py",
        "return models.is_own(self.recipe.id) or there.on == self.asked.stack",
        "return True",
        "tests/test_days.py -k 'own_stack'",
    ),
    "oldest-measurement": Mutant(
        "repro/money/days.py",
        "newest = max(each.age for each in of_it)",
        "newest = min(each.age for each in of_it)",
        "tests/test_days.py -k newest_stack",
    ),
    "neighbours-not-corrected": Mutant(
        "repro/money/days.py",
        "rough(days.value * factor)",
        "rough(days.value)",
        "tests/test_days.py -k one_measured_count",
    ),
    "changed-however-small": Mutant(
        "repro/compare/decision.py",
        "if strict and _beyond(pairs.value) and (",
        "if strict and (",
        "tests/test_decision.py -k call_follows",
    ),
    "stops-as-it-ends": Mutant(
        "repro/compare/decision.py",
        "EARLY = Levels(changed=0.001, unchanged=0.01)",
        "EARLY = Levels(changed=0.005, unchanged=0.05)",
        "tests/test_decision.py -k 'stricter_levels or first_look'",
    ),
    "outliers-weigh-in-full": Mutant(
        "repro/compare/decision.py",
        "return [min(rank, -(-pairs // 2)) for rank in range(1, pairs + 1)]",
        "return [*range(1, pairs + 1)]",
        "tests/test_decision.py -k 18_pairs",
        slow=True,
    ),
    "one-tail-for-two": Mutant(
        "repro/compare/decision.py",
        "limit, tail = alpha / 2 * sum(counts), 0.0",
        "limit, tail = alpha * sum(counts), 0.0",
        "tests/test_decision.py -k 'excludes_1 or attain'",
    ),
    "drift-is-a-change": Mutant(
        "repro/compare/decision.py",
        "elif interval.low > limit or interval.high < 1 / limit:",
        "elif interval.low > 1 or interval.high < 1:",
        "tests/test_decision.py -k 'drift'",
    ),
    "counts-rounded-down": Mutant(
        "repro/survey/counts.py",
        "(people + BASE // 2) // BASE * BASE",
        "people // BASE * BASE",
        "tests/test_survey.py -k rounded_to_5",
    ),
    "shares-tested-alone": Mutant(
        "repro/survey/counts.py",
        "if values[place] > LEVEL / (len(values) - tested):",
        "if values[place] > LEVEL:",
        "tests/test_survey.py -k fishers_and_holms",
    ),
    "torn-checkpoint-taken": Mutant(
        "repro/train/checkpoints.py",
        "if _checksum(folder / name) != manifest.files[name]:",
        "if not (folder / name).exists():",
        "tests/test_train.py -k torn_checkpoint",
        slow=True,
    ),
    "ranks-of-slurm-alone": Mutant(
        "repro/train/ranks.py",
        'if "SLURM_PROCID" not in variables or tasks == 1:',
        'if "SLURM_PROCID" not in variables or tasks > 1:',
        "tests/test_train.py -k else_are_alone",
        slow=True,
    ),
    # --- Claims, the survey, the lab report ---
    "gpu-days": Mutant(
        "repro/claims/numbers.py",
        "return (days * found.gpus).called(",
        "return days.called(",
        "tests/test_claims.py -k arithmetic_by_hand",
    ),
    "formulas-round": Mutant(
        "repro/claims/formulas.py",
        "lambda value: float(round(value))",
        "lambda value: float(int(value))",
        "tests/test_claims.py -k arithmetic_on_named_numbers",
    ),
    "formulas-least": Mutant(
        "repro/claims/formulas.py",
        '{"min": min, "max": max, "sum": added}',
        '{"min": max, "max": max, "sum": added}',
        "tests/test_claims.py -k arithmetic_on_named_numbers",
    ),
    "no-claim-too-soon": Mutant(
        "repro/survey/training.py",
        "_OVER_PEAK = 1.25",
        "_OVER_PEAK = 0.5",
        "tests/test_survey.py -k just_in_time",
    ),
    "most-gpus-alone": Mutant(
        "repro/survey/training.py",
        "took.days <= best[1].days",
        "took.days > best[1].days",
        "tests/test_survey.py -k fewest_days",
    ),
    "first-epochs": Mutant(
        "repro/lab/report.py",
        "(measured - first) / (epochs - 1)",
        "(measured - first) / epochs",
        "tests/test_lab.py -k four_predictions",
    ),
    "half-of-the-suspects": Mutant(
        "repro/compare/bisect.py",
        "if (package in together) == there]",
        "if (package in together) != there]",
        "tests/test_upgrade.py -k bisect",
    ),
    # --- The authors' raw results ---
    "plain-opcodes": Mutant(
        "repro/released/archive.py",
        "if opcode.name not in _PLAIN_OPCODES:",
        'if opcode.name == "LONG_BINPUT":',
        "tests/test_hostile.py -k pickle_in_the_authors_archive",
    ),
    "classes-of-an-archive": Mutant(
        "repro/released/archive.py",
        'raise RefusedError(f"its pickle asks for {module}.{name}")',
        "return super().find_class(module, name)",
        "tests/test_hostile.py -k refuses_every_class",
    ),
    "headers-of-a-tar": Mutant(
        "repro/released/archive.py",
        "found.type in _BEFORE_A_FILE and found.size > _MOST_NAME",
        "found.type in _BEFORE_A_FILE and found.size < 0",
        "tests/test_hostile.py -k tar_that_would_fill",
    ),
    "result-twice": Mutant(
        "repro/released/archive.py",
        "elif step in found.results:",
        "elif not step:",
        "tests/test_released.py -k there_twice",
    ),
    "trial-in-an-id": Mutant(
        "repro/released/steps.py",
        "        trial=0,",
        "        trial=1,",
        "tests/test_released.py -k tango_gave",
    ),
    "released-days-follow": Mutant(
        "repro/released/results.py",
        " or days != days_of_steps(step, steps)",
        "",
        "tests/test_released.py -k days_that_do_not_follow",
    ),
    "released-days-round": Mutant(
        "repro/released/results.py",
        "math.floor(self.days + 0.5)",
        "math.floor(self.days)",
        "tests/test_released.py -k rounded_as_the_authors",
    ),
    "ties-of-the-fastest": Mutant(
        "repro/released/results.py",
        "if len(self.fastest) > 1:",
        "if len(self.fastest) > 2:",
        "tests/test_released.py -k rounded_as_the_authors",
    ),
    "released-true-days": Mutant(
        "repro/predict/released.py",
        "implied = predicted.seconds * true_over_predicted(predicted, fit.queue, seconds)",
        "implied = seconds",
        "tests/test_released.py -k an_audit_names",
    ),
    "released-stands-alone": Mutant(
        "repro/run/reading.py",
        "if archive and len(readings) > 1:",
        "if archive and len(readings) > 2:",
        "tests/test_released.py -k beside_no_run",
    ),
    "released-in-a-run": Mutant(
        "repro/validity.py",
        'if record.origin == "released":',
        'if record.origin == "":',
        "tests/test_hostile.py -k call_its_records_released",
    ),
    # --- Reports and exported files ---
    "chart-axis": Mutant(
        "repro/report/charts.py",
        "spots = [(across(x), up(y)) for x, y in zip(xs, ys, strict=True)]",
        "spots = [(across(x), up(x)) for x, y in zip(xs, ys, strict=True)]",
        "tests/test_report.py -k marks_stand",
    ),
    "stacked-numbers": Mutant(
        "repro/report/charts.py",
        'drawn.append(_text((low + high) / 2, at * 18 + 13, words, class_="on"))',
        'drawn.append(_text(high, at * 18 + 13, words, class_="on"))',
        "tests/test_report.py -k parts_of_a_bar",
    ),
    "page-without-escapes": Mutant(
        "repro/report/html.py",
        "return value if isinstance(value, Html) else Html(escape(visible(str(value))))",
        "return Html(value)",
        "tests/test_hostile.py -k no_element_of_a_page",
    ),
    "prose-without-escapes": Mutant(
        "repro/formats.py",
        'return "\\n".join(map(console.markdown, text.split("\\n"))) if format == "markdown" else text',
        "return text",
        "tests/test_hostile.py -k 'are_text_too or is_text_too'",
    ),
    "stage-3": Mutant(
        "repro/export/configurations.py",
        '"reshard_after_forward": settings.stage == 3,',
        '"reshard_after_forward": settings.stage == 2,',
        "tests/test_export.py -k stage_3",
    ),
    "end-of-a-job": Mutant(
        "repro/commands/slurm.py",
        "{seconds}))}} - $(date +%s) - {margin}))",
        "{seconds}))}} - $(date +%s)))",
        "tests/test_slurm.py -k 'before_the_job or about_to_end'",
    ),
    # --- Text, files and the set-up ---
    "given-options": Mutant(
        "repro/options.py",
        "getattr(asked, name) != known[name].default",
        "getattr(asked, name) is not None",
        "tests/test_cli.py -k parsed_once",
    ),
    "formula-in-csv": Mutant("repro/console.py", '"[=+@', '"[+@', "tests/test_hostile.py -k formula"),
    "narrow-interval": Mutant(
        "repro/formats.py",
        "self.low / by.high, self.high / by.low",
        "self.low / by.low, self.high / by.high",
        "tests/test_reference.py -k keeps_the_bounds",
    ),
    "bits-and-bytes": Mutant(
        "repro/formats.py", '{"Gb/s": 1e9 / 8,', '{"Gb/s": 1e9,', "tests/test_gpus.py -k network_between"
    ),
    "a-row-twice": Mutant(
        "repro/datafile.py",
        "        row.once(key[0], place, seen)\n",
        "",
        "tests/test_expected.py -k broken",
    ),
    "text-as-it-is": Mutant(
        "repro/datafile.py",
        'if key == "traceback" else visible(plain)',
        'if key == "traceback" else plain',
        "tests/test_datafile.py -k escaped",
    ),
    "link-out-of-a-folder": Mutant(
        "repro/files.py",
        "if os.path.commonpath([home, target]) != home:",
        "if False:",
        "tests/test_hostile.py -k a_report_writes",
    ),
    "file-of-the-largest-size": Mutant(
        "repro/files.py", "while len(found) <= most:", "while len(found) < most:", "tests/test_files.py -k largest"
    ),
    "hashes": Mutant("locks/install.sh", "--require-hashes", "", "tests/test_setup.py -k without_a_hash", slow=True),
}


def problems(root: Path, mutants: Mapping[str, Mutant]) -> list[str]:
    """Return what is wrong with the list: a text that does not stand in its file once, or tests that do not exist."""
    found = []
    for name, each in mutants.items():
        if (times := (root / each.file).read_text().count(each.old)) != 1:
            found.append(f"{name}: {each.old!r} stands {times} times in {each.file}, expected once")
        if lost := [path for path in each.paths if not (root / path).is_file()]:
            found.append(f"{name}: no tests in {', '.join(lost)}")
            continue
        tests = [test for path in each.paths for test in re.findall(r"def (test_\w+)", (root / path).read_text())]
        words = re.findall(r"\w+", " ".join(shlex.split(each.tests)[len(each.paths) + 1 :]))
        lost = [word for word in words if word not in ("and", "or", "not") and not any(word in test for test in tests)]
        if lost or not tests:
            found.append(f"{name}: no test in {', '.join(each.paths)} is named {', '.join(lost) or 'test_'}")
    return found


def survivors(root: Path, mutants: Mapping[str, Mutant]) -> list[str]:
    """Put each fault into a copy of the checkout and run its tests. Print how each ended; return those not found."""
    with tempfile.TemporaryDirectory(prefix="mutants-") as scratch, ThreadPoolExecutor(_AT_ONCE) as pool:
        copies: queue.SimpleQueue[Path] = queue.SimpleQueue()
        for number in range(_AT_ONCE):
            copies.put(_copied(root, Path(scratch, str(number))))

        def survives(name: str) -> bool:
            copy, began = copies.get(), time.monotonic()
            try:
                survives, ended = _tried(copy, mutants[name])
            finally:
                copies.put(copy)
            print(f"{name}: {ended} ({time.monotonic() - began:.0f} s)", flush=True)
            return survives

        alive = list(pool.map(survives, mutants))
    return [name for name, lives in zip(mutants, alive, strict=True) if lives]


def _copied(root: Path, copy: Path) -> Path:
    """Copy a checkout; what tests only read, and is large, is linked."""
    linked = [".venv", "results"]
    shutil.copytree(root, copy, ignore=shutil.ignore_patterns(*linked, ".*_cache", "__pycache__"), symlinks=True)
    for name in filter(lambda name: (root / name).exists(), linked):
        (copy / name).symlink_to(root / name)
    return copy


def _tried(copy: Path, mutant: Mutant) -> tuple[bool, str]:
    """Return whether a fault survives its tests, and how that ended in words: which test found it, or why none did."""
    path = copy / mutant.file
    text = path.read_text()
    path.write_text(text.replace(mutant.old, mutant.new))
    try:
        code, output = _tested(copy, mutant, "--cache-clear")
    finally:
        path.write_text(text)
    if code == 0:
        return True, "SURVIVES"
    failed = re.search(r"(?m)^(?:FAILED|ERROR) (\S+)", output)
    again, without = _tested(copy, mutant, "--last-failed")
    if failed is None or again:
        return True, f"SURVIVES, as its tests fail without it, too, or did not run:\n{without if again else output}\n"
    return False, f"found by {failed[1]}"


def _tested(copy: Path, mutant: Mutant, option: str) -> tuple[int, str]:
    """Return the exit code of its tests up to the first that fails, and what pytest printed."""
    words = ["-q", "-x", "-n", "0", "-o", f"cache_dir={copy}/.pytest_cache", option, *shlex.split(mutant.tests)]
    words += [] if mutant.slow else ["-m", "not slow"]
    # Bytecode of the stack is read where run_all.sh keeps it. That of a copy would outlive a fault of the same second.
    variables = {"PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    kept = os.environ.get("PYTHONPYCACHEPREFIX", str(copy / ".venv" / "build-cache" / "bytecode"))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words],
        cwd=copy,
        env=os.environ | variables | {"PYTHONPYCACHEPREFIX": kept},
        capture_output=True,
        text=True,
        timeout=_SECONDS,
    )
    return done.returncode, done.stdout + done.stderr


def changed(root: Path, base: str, mutants: Mapping[str, Mutant]) -> list[str]:
    """Return the faults whose file or tests differ from what a commit and this checkout grew from."""
    asked = ["git", "diff", "--name-only", "--merge-base", base]
    done = subprocess.run(asked, cwd=root, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise SystemExit(f"--changed {base}: expected a commit that git knows, such as HEAD")
    files = set(done.stdout.splitlines())
    return [name for name, each in mutants.items() if not files.isdisjoint({each.file, *each.paths})]


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="a fault (default: all)")
    parser.add_argument("--changed", nargs="?", const="main", metavar="BASE", help="those that a change may concern")
    parser.add_argument("--random", type=int, metavar="N", help="so many others, at random places")
    parser.add_argument("--seed", type=int, default=1, metavar="S", help="of the random places (default: 1)")
    given = parser.parse_args(arguments)
    if given.random:
        drawn = {name: Mutant(*fault) for name, fault in random_faults.sample(given.random, given.seed).items()}
        return _told(drawn, survivors(ROOT, drawn))
    if unknown := set(given.names) - MUTANTS.keys():
        parser.error(f"unknown: {', '.join(sorted(unknown))}; these are known: {', '.join(MUTANTS)}")
    if wrong := problems(ROOT, MUTANTS):
        parser.error("\n".join(["the list is not that of this checkout", *wrong]))
    names = given.names or (changed(ROOT, given.changed, MUTANTS) if given.changed else list(MUTANTS))
    chosen = {name: MUTANTS[name] for name in names}
    return _told(chosen, survivors(ROOT, chosen))


def _told(tried: Mapping[str, Mutant], alive: Sequence[str]) -> int:
    """Print which faults survived; return the exit code."""
    print(f"{len(tried)} mutants, survivors: {'; '.join(alive) or 'none'}")
    return 1 if alive else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
