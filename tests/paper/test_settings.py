"""The search space is Appendix F's, and settings have names that are read back as they were written."""

import pytest

from repro.console import UserError
from repro.paper.settings import FREE_LUNCH, NAIVE, SHARDINGS, Settings, Sharding, search_space

OFFLOADED = ["zero_1+offloading", "zero_2+offloading", "zero_3+offloading", "fsdp_2+offloading", "fsdp_3+offloading"]


def ids(*shardings: str) -> set[str]:
    """Free lunch with each sharding, without and with checkpointing."""
    return {"+".join(filter(None, ("free_lunch", kept, name))) for name in shardings for kept in ("", "checkpointing")}


def test_one_gpu_has_12_settings() -> None:
    space = search_space(1)
    assert len(space) == 12
    assert {settings.id for settings in space} == ids("", *OFFLOADED)


@pytest.mark.parametrize("count", [2, 4, 8])
def test_more_gpus_have_22_settings(count: int) -> None:
    space = search_space(count)
    assert len(space) == 22
    assert {settings.id for settings in space} == ids("", *SHARDINGS[1:], *OFFLOADED)


def test_naive_stands_outside_of_the_search_space() -> None:
    assert NAIVE.id == "naive"
    assert all(settings != NAIVE for count in (1, 2) for settings in search_space(count))


def test_everything_in_the_space_saves_memory_but_free_lunch_alone() -> None:
    assert [settings for settings in search_space(2) if not settings.saves_memory] == [FREE_LUNCH]
    assert not NAIVE.saves_memory


@pytest.mark.parametrize(
    ("sharding", "library", "stage", "every"),
    [
        ("none", "torch", 0, False),
        ("zero_1", "deepspeed", 1, False),
        ("zero_2", "deepspeed", 2, True),
        ("zero_3", "deepspeed", 3, True),
        ("fsdp_2", "fsdp", 2, True),
        ("fsdp_3", "fsdp", 3, True),
    ],
)
def test_sharded_gradients_are_reduced_in_every_micro_step(
    sharding: Sharding, library: str, stage: int, every: bool
) -> None:
    settings = Settings(True, sharding=sharding)
    assert (settings.library, settings.stage, settings.reduces_every_micro_step) == (library, stage, every)


def test_an_id_is_read_back_as_the_settings_it_names() -> None:
    flash = [Settings(True, s.checkpointing, s.sharding, s.offloading, "flash") for s in search_space(2)]
    naive = [Settings(False, s.checkpointing, s.sharding, s.offloading) for s in search_space(2)]
    named = [*search_space(2), *flash, *naive]
    assert [Settings.parse(settings.id) for settings in named] == named
    assert len({settings.id for settings in named}) == len(named)
    assert (Settings.parse("naive"), Settings.parse("free_lunch")) == (NAIVE, FREE_LUNCH)


@pytest.mark.parametrize(
    "id",
    [
        "",
        "zero_4",
        "Naive",
        "naive+zero_1",
        "free_lunch+",
        "free_lunch,zero_1",
        "zero_1+fsdp_2",
        "free_lunch+offloading",  # nothing to offload: Appendix F offloads what is sharded
        "flash",  # a kernel of free lunch
        "free_lunch+none",  # no sharding has no name
    ],
)
def test_unknown_settings_are_reported_in_one_line_with_the_words_there_are(id: str) -> None:
    with pytest.raises(UserError) as error:
        Settings.parse(id)
    message = str(error.value)
    assert message.startswith(f"unknown settings {id!r}: ")
    assert "\n" not in message
    for word in ("naive", "free_lunch", "flash", "checkpointing", "zero_3", "fsdp_2", "offloading"):
        assert word in message
    assert "none" not in message.removeprefix(f"unknown settings {id!r}: ")
