"""Traces: exact over micro batches, true to the closed forms, and the same when made again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from repro import models
from repro.console import UserError
from repro.measure.jobs import Job
from repro.measure.launcher import ForkServer
from repro.models.recipe import Scale
from repro.predict import traces
from repro.predict.traces import Traced
from tests.support.command_line import PATIENCE

InRank = Callable[..., Any]


@pytest.fixture
def in_rank(fork_server: ForkServer, tmp_path: Any) -> InRank:
    def call(function: str, **arguments: Any) -> Any:
        job = Job(
            call=f"tests.support.tracing:{function}",
            arguments=arguments,
            ranks=1,
            log=str(tmp_path / "log"),
            timeout=PATIENCE,
        )
        (outcome,) = fork_server.call(job)
        assert outcome.status == "ok", f"{outcome.error}\n{outcome.traceback}"
        return outcome.value

    return call


@pytest.mark.parametrize(("recipe", "variant"), [("pythia-160m", "half"), ("convnext", "custom")])
def test_two_micro_batches_tell_what_another_costs(in_rank: InRank, recipe: str, variant: str) -> None:
    found = in_rank("extrapolated_and_recorded", recipe=recipe, variant=variant, examples=6)
    assert len(found) > 20
    for key, (extrapolated, recorded) in found.items():
        assert extrapolated == pytest.approx(recorded, rel=1e-6, abs=2.0), key


def test_checkpointing_saves_what_the_closed_form_says(in_rank: InRank) -> None:
    examples = 4
    real = in_rank("checkpointed_saved", recipe="pythia-160m", examples=examples)
    trace = traces.find("pythia-160m", "custom", traces.shipped()[-1])
    (layer,) = trace.layers
    saved = trace.rest.cost("saved").at(examples) + layer.count * layer.cost("inputs").at(examples)
    assert real["saved"] == pytest.approx(saved, rel=0.01)
    body = saved + trace.rest.cost("body").at(examples) + layer.cost("saved").at(examples)
    head = saved + trace.rest.cost("head").at(examples)
    assert real["peak"] == pytest.approx(max(head, body), rel=0.05)


@pytest.mark.parametrize("recipe", ["pythia-160m", "vit"])
def test_a_trace_made_again_is_the_one_that_is_shipped(in_rank: InRank, recipe: str) -> None:
    made, shipped = in_rank("traced_again", recipe=recipe, variant="custom")
    if shipped is None:
        pytest.skip("no trace is shipped for the installed transformers and timm")
    for key, cost in made.items():
        assert cost == pytest.approx(shipped[key], rel=1e-6), key


def test_autocast_is_cudas_whose_softmax_reads_fp16_as_it_is_and_has_bf16_cast_first(in_rank: InRank) -> None:
    fp16, bf16 = (in_rank("attention_on_cuda", precision=each)["operators"] for each in ("float16", "bfloat16"))
    assert ("_softmax", 2.0, 4.0) in fp16
    assert ("_softmax_backward_data", 8.0, 2.0) in fp16
    assert bf16[bf16.index(("_softmax", 4.0, 4.0)) - 1] == ("_to_copy", 2.0, 4.0)
    assert ("_softmax_backward_data", 8.0, 4.0) in bf16


def test_a_cross_entropy_keeps_log_probabilities_in_half_precision(
    in_rank: InRank,
) -> None:
    assert in_rank("cross_entropy_on_cuda", precision="float16") == [
        ("mm", 0.0, 2.0),
        ("_log_softmax", 2.0, 2.0),
        ("_to_copy", 2.0, 4.0),
        ("nll_loss_backward", 0.0, 4.0),
        ("_to_copy", 4.0, 2.0),
        ("_log_softmax_backward_data", 4.0, 2.0),
        ("mm", 2.0, 0.0),
    ]


def test_the_authors_stack_casts_logits_under_autocast_and_not_under_deepspeed(in_rank: InRank) -> None:
    moved, held = in_rank("cast_for_nobody", recipe="roberta", variant="custom")
    assert (moved, held) == (pytest.approx(2 + 4), pytest.approx(2 + 4, rel=0.01))
    assert in_rank("cast_for_nobody", recipe="roberta", variant="half") == [0, 0]


def test_what_only_the_backward_pass_needs_is_computed_again_where_compiled(in_rank: InRank) -> None:
    left = in_rank("attention_on_cuda", precision="float16")["fused"]
    # Of each score: read; weights for the product and the dropout's mask written. Then gradient, score and mask read
    # and the score's gradient written. Neither fp32 weights nor fp32 gradients are.
    assert left["forward"] == pytest.approx(2 + 2 + 1, rel=0.02)
    assert left["backward"] == pytest.approx(2 + 2 + 1 + 2, rel=0.02)


@pytest.mark.parametrize(
    ("name", "reads", "moved"),
    [
        ("mul", 15.0, [15.0, 15.0 + 10.0]),  # what is read once more is less than 10 written and read
        ("mul", 25.0, [25.0 + 10.0, 10.0 + 10.0]),
        ("native_dropout", 3.0, [3.0 + 2.0, 3.0 + 2.0 + 10.0]),  # chance does not fall alike twice: the mask is kept
    ],
)
def test_it_is_computed_again_only_where_that_moves_less(
    in_rank: InRank, name: str, reads: float, moved: list[float]
) -> None:
    assert in_rank("moved_by_hand", name=name, reads=reads) == moved


@pytest.mark.nightly  # it compiles for long
def test_what_compiling_leaves_is_what_the_compiler_counts(in_rank: InRank) -> None:
    found = in_rank("compiled_bytes", recipe="roberta", examples=4)
    for ours, counted, eager in zip(found["fused"], found["counted"], found["eager"], strict=True):
        assert ours == pytest.approx(counted, rel=0.10)
        assert ours < eager


def test_what_cannot_be_traced_is_reported_with_its_operator(in_rank: InRank) -> None:
    output = in_rank("what_cannot_be_traced")
    assert "cannot trace aten::_local_scalar_dense" in output
    assert "\n" not in output


@pytest.mark.parametrize(
    ("stack", "scale"), [*((stack, "paper") for stack in traces.shipped()), (traces.shipped()[-1], "tiny")], ids=str
)
@pytest.mark.parametrize("recipe", models.IDS)
def test_traced_flops_are_those_of_the_closed_form(recipe: str, stack: Traced, scale: Scale) -> None:
    trace = traces.find(recipe, "naive", stack, scale)
    keys = {key for part in trace.parts for key in part.costs if key.endswith("/flops") and "scan" not in key}
    found = sum(trace.total(key).per_example for key in keys)
    # Mamba's slow scan multiplies states with C as small matrix products, which the closed form leaves out.
    assert found == pytest.approx(models.find(recipe, scale).flops_per_example, rel=5e-3 if scale == "paper" else 0.05)


@pytest.mark.parametrize("stack", traces.shipped(), ids=str)
def test_half_precision_throughout_starts_fewer_kernels_and_saves_less(stack: Traced) -> None:
    for recipe in ("pythia-160m", "pythia-6.9b", "roberta"):
        mixed, half = (traces.find(recipe, variant, stack) for variant in ("custom", "half"))

        def kernels(trace: traces.Trace) -> float:
            keys = {key for part in trace.parts for key in part.costs if key.endswith("/kernels")}
            return sum(trace.total(key).fixed for key in keys if "fused" not in key)

        assert kernels(half) < 0.8 * kernels(mixed)
        assert half.total("saved").per_example < mixed.total("saved").per_example
        assert half.parameters == mixed.parameters


def test_another_stack_is_served_by_the_nearest_older_one(tmp_path: Path) -> None:
    for versions in (
        *(("4.42.3", "1.0.31", "2.13.0"), ("5.23.0", "1.0.31", "2.13.0")),
        *(("5.23.0", "1.0.31", "2.9.1"), ("5.23.0", "1.0.9", "2.9.1")),
    ):
        (tmp_path / traces._file(Traced(*versions), tmp_path).name).touch()

    def served(**packages: str) -> tuple[str, str, str]:
        found = traces.nearest(packages, tmp_path)
        return found.transformers, found.timm, found.torch

    oldest, newest = ("4.42.3", "1.0.31", "2.13.0"), ("5.23.0", "1.0.31", "2.13.0")
    assert served(transformers="4.42.3") == served(transformers="4.57.0") == served(transformers="4.1.0") == oldest
    assert served() == served(transformers="main") == newest, "a version without a number says as much as none"
    assert served(transformers="5.17.0") == served(transformers="5.99.1") == newest, "of the same major version"
    assert served(transformers="5.23.0", torch="2.13.0+cpu") == newest
    assert served(transformers="5.23.0", timm="1.0.12", torch="2.13.0") == ("5.23.0", "1.0.9", "2.9.1"), "timm before"
    assert served(transformers="5.23.0", timm="1.0.31", torch="2.10.0") == ("5.23.0", "1.0.31", "2.9.1")


def test_traces_are_written_and_read_alike(tmp_path: Path) -> None:
    stack = traces.shipped()[0]
    original = traces.load(stack)
    file = traces.save(original.values(), tmp_path)
    assert file.read_text() == (traces.FOLDER / file.name).read_text()
    assert traces.load(stack, tmp_path).keys() == original.keys()


def test_traces_of_another_torch_or_timm_stand_beside_those_there_are(tmp_path: Path) -> None:
    (each,) = [trace for trace in traces.load(traces.PAPER_STACK).values() if trace.recipe == "vit"][:1]
    others = [each.stack, replace(each.stack, torch="2.3.1"), replace(each.stack, timm="1.0.7")]
    for stack in others:
        traces.save([replace(each, stack=stack)], tmp_path)
    assert set(traces.shipped(tmp_path)) == set(others)


def test_broken_traces_are_reported_with_the_way_out(tmp_path: Path) -> None:
    broken = Traced("9.9", "1.0", "2.0")
    traces._file(broken, tmp_path).write_text('[{"recipe": "vit"}]')
    with pytest.raises(UserError, match=r"no traces .*restore it, or in a checkout"):
        traces.load(broken, tmp_path)
    with pytest.raises(UserError, match=r"no traces; restore it, or in a checkout"):
        traces.nearest({}, tmp_path / "empty")
