"""A container's limits hold for a run in it: no more threads than its CPUs, no larger --memory than its own."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

from repro.machine import host as cgroups
from repro.machine import nvml
from repro.machine.host import host
from repro.measure.rank import Rank
from tests.measure.test_fork_server import ended
from tests.support.command_line import refusal

CPU, MEMORY, NONE = "50000 100000\n", f"{2**28}\n", "9223372036854771712\n"
OF_ITS_OWN = ("0::/", {"cpu.max": CPU, "memory.max": MEMORY})
AROUND = (
    "0::/pod/box",
    {"pod/cpu.max": CPU, "pod/memory.max": MEMORY, "pod/box/cpu.max": "max 100000\n", "pod/box/memory.max": "max\n"},
)
OF_VERSION_1 = (
    "5:memory:/docker/box\n4:cpu,cpuacct:/docker/box\n3:pids:/\n0::/",
    {
        "cpu/cpu.cfs_quota_us": "50000\n",
        "cpu/cpu.cfs_period_us": "100000\n",
        "memory/docker/box/memory.limit_in_bytes": MEMORY,
        "memory/memory.limit_in_bytes": NONE,
    },
)
UNLIMITED = ("0::/box", {"box/cpu.max": "max 100000\n", "box/memory.max": "max\n"})
UNLIMITED_1 = (
    "2:memory:/\n1:cpu:/",
    {
        "cpu/cpu.cfs_quota_us": "-1\n",
        "cpu/cpu.cfs_period_us": "100000\n",
        "memory/memory.limit_in_bytes": NONE,
    },
)
Groups = tuple[str, dict[str, str]]


@pytest.fixture
def groups(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This process is in these control groups, on a computer of four CPUs."""
    own, files = request.param
    (tmp_path / "own").write_text(own)
    for name, text in files.items():
        file = tmp_path / "mounted" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    monkeypatch.setattr(cgroups, "OWN", tmp_path / "own")
    monkeypatch.setattr(cgroups, "MOUNTED", tmp_path / "mounted")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3})


@pytest.mark.usefixtures("groups")
@pytest.mark.parametrize("groups", [OF_ITS_OWN, AROUND, OF_VERSION_1], indirect=True)
def test_a_run_takes_what_its_container_has(tmp_path: Path) -> None:
    assert (host().usable_cpus, host().memory_bytes) == (1, 2**28), "half a CPU is one thread"
    out = ("--out", str(tmp_path / "out"))
    assert "at most 256MiB, the memory of this machine" in refusal("--memory", "257MiB", *out)
    assert "on each of the 1 CPUs here" in refusal("--processes", "1000", *out)


@pytest.mark.usefixtures("groups")
@pytest.mark.parametrize("groups", [OF_ITS_OWN, UNLIMITED], indirect=True)
def test_ranks_share_the_threads_that_these_cpus_can_run(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[int] = []
    monkeypatch.setattr(torch, "set_num_threads", threads.append)
    monkeypatch.setattr(os, "environ", dict(os.environ))
    Rank(0, 2, 0, 2, cuda=False, report=lambda **_: None).prepare(None)
    assert threads == [max(1, (host().usable_cpus or 0) // 2)]


@pytest.mark.usefixtures("groups")
@pytest.mark.parametrize("groups", [UNLIMITED], indirect=True)
@pytest.mark.parametrize(("given", "threads"), [("1", []), (None, [("threads", 2)])])
def test_a_rank_on_a_gpu_keeps_its_threads_and_first_tells_of_its_own_gpu(
    monkeypatch: pytest.MonkeyPatch, given: str | None, threads: list[Any]
) -> None:
    output: list[Any] = []
    monkeypatch.setattr(torch, "set_num_threads", lambda number: output.append(("threads", number)))
    monkeypatch.setattr(torch.cuda, "set_device", lambda number: output.append(("takes", number)))
    monkeypatch.setattr(nvml, "memory", lambda local: (80, local))
    monkeypatch.setattr(os, "environ", {} if given is None else {"OMP_NUM_THREADS": given})
    rank = Rank(5, 8, 1, 2, cuda=True, report=lambda **said: output.append(said))
    rank.prepare(None)
    assert output == [*threads, {"gpu_memory": (80, 1)}, ("takes", 1)]
    numbers = {name: os.environ[name] for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_SIZE")}
    assert numbers == {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_SIZE": "2"}, "DeepSpeed reads them"


@pytest.mark.usefixtures("groups")
@pytest.mark.parametrize("groups", [UNLIMITED, UNLIMITED_1, ("", {})], indirect=True)
def test_a_container_without_limits_has_all_of_the_computer() -> None:
    assert (host().usable_cpus, host().memory_bytes) == (4, psutil.virtual_memory().total)


KILLS = "low 0\nhigh 0\nmax 9\noom 5\noom_kill {}\noom_group_kill 0\n"
HOST = "pgfault 12\noom_kill 70\nnuma_hit 3\n"
IN_A_BOX = ("0::/pod/box", {"pod/memory.events": KILLS.format(41), "pod/box/memory.events": KILLS.format(2)})
AT_THE_TOP = ("0::/docker/box", {"memory.events": KILLS.format(2)})
OF_THE_PARENT = ("0::/pod/box", {"pod/memory.events": KILLS.format(2), "pod/box/pids.max": "max\n"})
IN_VERSION_1 = (
    "5:memory:/docker/box\n3:pids:/\n0::/",
    {
        "memory/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 41\n",
        "memory/docker/box/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n",
    },
)
OF_AN_OLD_KERNEL = ("5:memory:/box", {"memory/box/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\n"})


@pytest.mark.usefixtures("groups")
@pytest.mark.parametrize(
    ("groups", "kills"),
    [
        *((each, 2) for each in (IN_A_BOX, AT_THE_TOP, OF_THE_PARENT, IN_VERSION_1)),
        *((each, 70) for each in (UNLIMITED, OF_AN_OLD_KERNEL, ("", {}))),
    ],
    indirect=["groups"],
)
def test_kills_are_counted_in_the_nearest_memory_cgroup_else_in_the_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kills: int
) -> None:
    monkeypatch.setattr(cgroups, "VMSTAT", tmp_path / "vmstat")
    assert cgroups.oom_kills() == (kills if kills == 2 else 0), "without the system's counter"
    (tmp_path / "vmstat").write_text(HOST)
    assert cgroups.oom_kills() == kills


@pytest.mark.usefixtures("groups")
@pytest.mark.parametrize("groups", [IN_A_BOX], indirect=True)
@pytest.mark.parametrize(("here", "status"), [(2, "crashed"), (3, "out_of_memory")])
def test_a_killed_rank_lacked_memory_only_where_its_own_cgroup_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, here: int, status: str
) -> None:
    monkeypatch.setattr(cgroups, "VMSTAT", tmp_path / "vmstat")
    (tmp_path / "vmstat").write_text(HOST)
    before = cgroups.oom_kills()
    (tmp_path / "vmstat").write_text(HOST.replace("70", "71"))  # of whichever container
    (tmp_path / "mounted" / "pod" / "memory.events").write_text(KILLS.format(42))
    (tmp_path / "mounted" / "pod" / "box" / "memory.events").write_text(KILLS.format(here))
    assert ended(signal.SIGKILL, before)[0] == status
