"""TF32: REPRO_TF32 decides where the GPU can, what ran is read off, and without it free lunch is no cell's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from repro.console import UserError
from repro.machine import environment, support
from repro.machine.devices import Device
from repro.machine.support import uses_tf32
from repro.paper.settings import FREE_LUNCH, NAIVE

VOLTA, TURING, AMPERE, HOPPER = (7, 0), (7, 5), (8, 0), (9, 0)


def gpu(capability: tuple[int, int]) -> Device:
    """A GPU that no catalogue lists, so that its capability alone speaks."""
    return Device(0, 0, "GPU-0", "NVIDIA Something", None, 2**34, capability)


@pytest.mark.parametrize("variable", [None, "", "auto"])
def test_left_alone_it_is_on_where_the_gpu_has_it(monkeypatch: pytest.MonkeyPatch, variable: str | None) -> None:
    monkeypatch.delenv("REPRO_TF32", raising=False)
    if variable is not None:
        monkeypatch.setenv("REPRO_TF32", variable)
    assert [support.tf32_allowed(capability) for capability in (None, VOLTA, TURING, AMPERE, HOPPER)] == [
        *(False, False, False),
        *(True, True),
    ]


def test_off_turns_it_off_on_every_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPRO_TF32", "off")
    assert not any(support.tf32_allowed(capability) for capability in (None, TURING, AMPERE, HOPPER))


def test_it_is_off_whatever_is_asked_on_a_gpu_that_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPRO_TF32", "on")
    assert [support.tf32_allowed(capability) for capability in (None, VOLTA, TURING, AMPERE)] == [
        False,
        False,
        False,
        True,
    ]


def test_another_word_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPRO_TF32", "yes")
    with pytest.raises(UserError, match="REPRO_TF32=yes: expected one of auto, on, off"):
        support.tf32_allowed(None)


def test_trials_obey_it_and_naive_never_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    ampere = gpu(AMPERE)
    monkeypatch.setenv("REPRO_TF32", "on")
    stack = environment.stack([ampere], {})
    assert uses_tf32(FREE_LUNCH, stack)
    assert not uses_tf32(NAIVE, stack)
    monkeypatch.setenv("REPRO_TF32", "off")
    assert not uses_tf32(FREE_LUNCH, environment.stack([ampere], {}))
    monkeypatch.delenv("REPRO_TF32")
    assert uses_tf32(FREE_LUNCH, environment.stack([ampere], {}))
    assert not uses_tf32(FREE_LUNCH, environment.stack([gpu(TURING)], {}))
    assert not uses_tf32(FREE_LUNCH, environment.stack([], {}))


def test_a_folder_measured_with_tf32_takes_no_trials_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def described() -> environment.Environment:
        return environment.describe([gpu(AMPERE)], {}, 0, {}, {})

    monkeypatch.delenv("REPRO_TF32", raising=False)
    environment.keep(described(), tmp_path)
    environment.refuse_another(tmp_path, described())
    monkeypatch.setenv("REPRO_TF32", "off")
    with pytest.raises(UserError, match=r"TF32 was True, is False.*--out"):
        environment.refuse_another(tmp_path, described())


def test_an_engine_has_convolutions_go_as_products_do_and_both_as_asked(in_ranks: Callable[..., list[Any]]) -> None:
    for asked, precision in ((True, "high"), (False, "highest")):
        assert in_ranks("tf32_of_an_engine", asked=asked) == [(asked, precision)]


def test_products_on_a_cpu_drop_nothing() -> None:
    import torch

    from repro.measure.engine import runs_tf32

    assert not runs_tf32(torch.device("cpu"))


def test_tf32_is_turned_on_and_off_in_products_and_convolutions_alike() -> None:
    import torch

    from repro.measure.engine.base import set_tf32

    for asked in (True, False, True, False):
        set_tf32(asked)
        assert (torch.backends.cudnn.allow_tf32, torch.get_float32_matmul_precision() == "high") == (asked, asked)


@pytest.mark.skipif(not any(Path("/dev").glob("nvidia[0-9]*")), reason="needs a GPU")
@pytest.mark.parametrize("asked", [True, False])
def test_products_drop_what_tf32_has_no_bits_for_only_where_asked(asked: bool) -> None:
    import torch

    from repro.measure.engine import runs_tf32
    from repro.measure.engine.base import set_tf32

    if torch.cuda.get_device_capability() < support.SINCE:
        pytest.skip("this GPU has no TF32")
    set_tf32(asked)
    assert runs_tf32(torch.device("cuda")) == asked
    set_tf32(False)
