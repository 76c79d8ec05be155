"""Several nodes: processes on one machine, started as by SLURM or torchrun, or each in a network of its own."""

from __future__ import annotations

import json
import os
import pickle
import random
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import psutil
import pytest

from repro.console import FAILED, UserError
from repro.machine.cluster import Node, first_host, launch, launched, local_address
from repro.machine.support import Stack
from repro.measure import nodes
from repro.measure.jobs import Job, RankOutcome
from repro.measure.launcher import ServerDiedError
from repro.measure.nodes import Answer, EndedError, Leader, Request, Store, follow
from repro.measure.rank import interface
from repro.measure.trial import Bench
from repro.record import Trial
from repro.run.plan import Options
from tests.support.command_line import PATIENCE, ROOT, process, refusal, trial_lines
from tests.support.scripted_server import ScriptedServer

VIT = ["run", "--models", "vit", "--processes", "1"]
LONG = [*VIT, "--steps", "100000"]  # two trials, of which the first outlives any test
AGAIN = "run the same command again on all nodes, once that one is back: it resumes"
TORCHRUN = [sys.executable, "-m", "torch.distributed.run"]
Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts commands, and ends those that a failing test has left, with all that they started."""
    started: list[subprocess.Popen[str]] = []

    def begin(*words: str, **variables: str) -> subprocess.Popen[str]:
        known = {"PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": "", "REPRO_COMMIT": "0123abc"}
        environment = {**os.environ, **known, **variables}
        started.append(
            subprocess.Popen(
                words,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )
        )
        return started[-1]

    yield begin
    for node in started:
        for each in family(node):
            each.kill()
        node.communicate()


def family(*processes: subprocess.Popen[str]) -> list[psutil.Process]:
    """Processes and all that they started, as far as they are there."""
    roots = [psutil.Process(process.pid) for process in processes if process.poll() is None]
    return [each for root in roots for each in (root, *root.children(recursive=True))]


def listens(process: subprocess.Popen[str]) -> int:
    """On how many ports a process listens."""
    return sum(each.status == psutil.CONN_LISTEN for each in psutil.Process(process.pid).net_connections("tcp"))


def as_task(rank: int, tasks: int, job: int, step: int = 0) -> dict[str, str]:
    """What SLURM tells a task of a step with one task a node."""
    return {
        "SLURM_JOB_ID": str(job),
        "SLURM_STEP_ID": str(step),
        "SLURM_STEP_NUM_TASKS": str(tasks),
        "SLURM_STEP_NUM_NODES": str(tasks),
        "SLURM_STEP_NODELIST": "localhost,other[1-7]",
        "SLURM_PROCID": str(rank),
    }


def step(
    start: Start, *words: str, tasks: int = 2, module: str = "tests.support.soon_gone"
) -> list[subprocess.Popen[str]]:
    """The same command once a node, as srun starts it."""
    job = random.randrange(10**6)
    return [start(sys.executable, "-m", module, *words, **as_task(rank, tasks, job)) for rank in range(tasks)]


def torchruns(start: Start, *words: str) -> list[subprocess.Popen[str]]:
    """torchrun on each of two nodes."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    command = [*TORCHRUN, "--nnodes=2", f"--rdzv-endpoint={address}"]
    return [start(*command, f"--node-rank={rank}", "-m", "tests.support.soon_gone", *words) for rank in range(2)]


def wait_for(path: Path, pattern: str, *processes: subprocess.Popen[str]) -> None:
    while not list(path.glob(pattern)):
        for each in processes:
            assert each.poll() is None, each.communicate()
        time.sleep(0.1)


def ends(*processes: subprocess.Popen[str]) -> list[tuple[int, str]]:
    """The exit codes, and what was said on stderr, of processes that end."""
    said = [process.communicate(timeout=PATIENCE)[1] for process in processes]
    return [(process.returncode, text) for process, text in zip(processes, said, strict=True)]


def records(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in trial_lines(folder)]


def repro_of(torchrun: subprocess.Popen[str]) -> psutil.Process:
    [found] = psutil.Process(torchrun.pid).children()
    return found


# What goes well


def test_where_the_first_node_is_killed_all_end_and_a_script_resumes_on_one(start: Start, tmp_path: Path) -> None:
    """The script that is printed, under an srun that starts its tasks here."""
    out, bin = tmp_path / "out put", tmp_path / "bin"
    bin.mkdir()
    command = [*VIT, "--methods", "naive", "--out", str(out)]
    nodes = step(start, *command)
    wait_for(out, "logs/vit_*.log", *nodes)
    everyone = family(*nodes)
    assert [listens(node) for node in nodes] == [1, 0], "the ranks meet in the store of the nodes, at no other port"
    nodes[0].kill()
    _, (code, said) = ends(*nodes)
    assert code == 1
    last = said.splitlines()[-1]
    assert last.startswith("repro: node 0 is out of reach: the store that the nodes meet in does not answer")
    assert last.endswith(AGAIN)
    _, alive = psutil.wait_procs(everyone, timeout=PATIENCE)
    assert alive == []

    (bin / "srun").write_text(
        "#!/usr/bin/env bash\n"
        f'echo "$@" > {shlex.quote(str(tmp_path))}/asked\n'
        "while [[ $1 == -* ]]; do shift; done\n"
        "export SLURM_JOB_ID=$$ SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=2 SLURM_STEP_NUM_NODES=2\n"
        "export SLURM_STEP_NODELIST=localhost,other\n"
        'SLURM_PROCID=1 "$@" & SLURM_PROCID=0 "$@" && wait $!\n'
    )
    (bin / "srun").chmod(0o755)
    printed = process("slurm", "--nodes", "2", "--gpus-per-node", "1", "--time", "1h", "--", *command)
    assert (printed.returncode, printed.stderr) == (0, "")
    # A batch shell has SLURM's variables as well.
    environment = {
        **os.environ,
        **as_task(0, 1, 7),
        "REPRO_COMMIT": "0123abc",
        "PATH": f"{bin}{os.pathsep}{os.environ['PATH']}",
        "CUDA_VISIBLE_DEVICES": "",
        "SLURM_JOB_END_TIME": str(int(time.time()) + 1800),
        "LOCAL_WORLD_SIZE": "3",
        "RANK": "7",
    }
    done = subprocess.run(
        ["bash"], input=printed.stdout, env=environment, capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.returncode == 0, done.stderr
    assert "node 1 of 2: waiting for node 0" in done.stderr
    assert done.stdout.count("vit") > 0
    assert "--ntasks-per-node=1" in (tmp_path / "asked").read_text()
    [record] = records(out)
    assert (record["status"], record["nodes"], record["count"]) == ("ok", 2, 1)
    assert record["wrapper"] == "DistributedDataParallel"
    assert (record["micro_batch"], record["accumulation"]) == (8, 1)  # the batch of 16, over two ranks
    assert len(record["host"]) == 2
    logs = sorted(str(log.relative_to(out)) for log in (out / "logs").rglob("vit_*.log"))
    assert logs == ["logs/node-1/vit_tiny_2x1xcpu_naive.log", "logs/vit_tiny_2x1xcpu_naive.log"]
    options = json.loads((out / "environment.json").read_text())["options"]
    assert options["nodes"] == 2
    assert 0 < options["budget"] <= 1500
    resuming = f"- `{launch(2)} --processes 1 --models vit --methods naive "
    assert resuming in (out / "report.md").read_text()


def test_three_nodes_run_a_phase_together_and_the_first_to_fail_stops_the_others(start: Start, tmp_path: Path) -> None:
    tasks = step(start, str(tmp_path), tasks=3, module="tests.support.two_phases")
    said = ends(*tasks)
    assert [code for code, _ in said] == [7, 7, 7], said
    output = json.loads((tmp_path / "told.json").read_text())
    assert output["fit"] == [[rank, "ok", ""] for rank in range(3)]
    assert [rank for rank, *_ in output["measure"]] == [0, 1, 2]
    assert {status for _, status, _ in output["measure"]} <= {"crashed", "stopped"}, "nobody waited for the time limit"
    assert [rank for rank, _, error in output["measure"] if "was killed by SIGKILL" in error] == [2]


# What goes wrong


def test_a_node_that_is_killed_is_named_and_what_needs_it_is_unsupported(start: Start, tmp_path: Path) -> None:
    """Under torchrun, whose variables reach no rank."""
    leader, follower = torchruns(start, *LONG, "--out", str(tmp_path))
    wait_for(tmp_path, "logs/node-1/vit_*.log", leader, follower)
    everyone = family(leader, follower)
    ranks = [each for each in everyone if "repro.measure.server" in " ".join(each.cmdline())]
    assert len(ranks) >= 2
    for each in ranks:
        theirs = [name for name in each.environ() if name.startswith(("TORCHELASTIC", "MASTER_", "GROUP_", "ROLE_"))]
        assert theirs == []
        assert "TORCH_NCCL_ASYNC_ERROR_HANDLING" not in each.environ()
    repro_of(follower).kill()
    (_, said), _ = ends(leader, follower)
    naive, free_lunch = records(tmp_path)
    assert (naive["status"], free_lunch["status"]) == ("crashed", "unsupported"), said
    host = socket.gethostname()
    assert naive["reason"].startswith(f"node 1 ({host}) has left")
    assert free_lunch["reason"] == naive["reason"]
    assert naive["remedy"] == free_lunch["remedy"] == AGAIN
    assert (tmp_path / "report.md").is_file()
    _, alive = psutil.wait_procs(everyone, timeout=PATIENCE)
    assert alive == []


@pytest.mark.nightly
def test_a_network_that_goes_down_ends_all_nodes_and_is_named(start: Start, tmp_path: Path) -> None:
    """Two nodes, each in a network of its own with a link between them, which is cut without a word to anybody."""
    script = """
        ip link set lo up
        unshare --net sleep 1000 & other=$!
        until [[ $(readlink /proc/$other/ns/net) != $(readlink /proc/$$/ns/net) ]]; do sleep 0.1; done
        ip link add near0 type veth peer name far0 netns $other
        ip addr add 10.9.0.1/24 dev near0 && ip link set near0 up
        far() { nsenter --net=/proc/$other/ns/net "$@"; }
        far ip addr add 10.9.0.2/24 dev far0 && far ip link set far0 up && far ip link set lo up
        SLURM_PROCID=0 "$@" --out "$out/0" 2>"$out/0.err" & first=$!
        SLURM_PROCID=1 far "$@" --out "$out/1" 2>"$out/1.err" & second=$!
        until compgen -G "$out/1/logs/node-1/vit_*" >/dev/null; do sleep 0.1; kill -0 $first $second || break; done
        sleep 1
        far ip link set far0 down
        wait $first; echo $?; wait $second; echo $?
        kill $other
    """
    alone = ["unshare", "--net", "--map-root-user", "bash", "-c"]
    if subprocess.run([*alone, "ip link add near0 type veth peer name far0"], capture_output=True).returncode:
        pytest.skip("no network namespace may be made here")
    variables = as_task(0, 2, 1) | {"MASTER_ADDR": "10.9.0.1", "out": str(tmp_path)}
    nodes = start(*alone, script, "bash", sys.executable, "-m", "tests.support.soon_gone", *LONG, **variables)
    output, _ = nodes.communicate(timeout=PATIENCE)
    assert output.split()[-2:] == ["1", "1"], [(tmp_path / f"{node}.err").read_text() for node in (0, 1)]
    naive, free_lunch = records(tmp_path / "0")
    assert (naive["status"], free_lunch["status"]) == ("crashed", "unsupported")
    assert naive["reason"] == f"node 1 ({socket.gethostname()}) has left: it was silent for 8 s"
    last = (tmp_path / "1.err").read_text().splitlines()[-1]
    assert last.startswith("repro: node 0 ")
    assert last.endswith(f"silent for 8 s; {AGAIN}")


def test_nodes_that_are_not_alike_are_refused_in_one_line_on_each(start: Start, tmp_path: Path) -> None:
    job = random.randrange(10**6)
    nodes = [
        start(
            *(sys.executable, "-m", "tests.support.soon_gone", *VIT, "--out", str(tmp_path)),
            **as_task(rank, 2, job),
            REPRO_COMMIT="0123abc" if rank else "4567def",
        )
        for rank in range(2)
    ]
    output = (
        f"node 1 ({socket.gethostname()}): its commit is 0123abc, that of node 0 is 4567def; give all nodes the same"
    )
    lines = [(code, said.splitlines()[-1]) for code, said in ends(*nodes)]
    assert lines == [(2, f"repro: {output}"), (2, f"repro: node 0 ended the run: {output}")]
    assert not (tmp_path / "trials.jsonl").exists()


class Command:
    """Runs a command where it is unpickled."""

    def __init__(self, command: str) -> None:
        self._command = command

    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        return os.system, (self._command,)


def test_a_node_runs_nothing_that_a_stranger_asks_for(start: Start, tmp_path: Path) -> None:
    """This test is the stranger, in node 0's place."""
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    store, trace = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False), tmp_path / "trace"
    known = as_task(1, 2, 1) | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(store.port)}
    node = start(sys.executable, "-m", "tests.support.soon_gone", *VIT, "--out", str(tmp_path), **known)
    assert json.loads(store.get("repro/hello/1"))["host"] == socket.gethostname()
    store.set("repro/job/1", json.dumps({**ASKED, "arguments": {"recipe": "/etc/passwd"}}))
    [outcome] = json.loads(store.get("repro/job/1/1"))["outcomes"]
    assert outcome["status"] == "crashed"
    store.set("repro/job/2", pickle.dumps(Command(f"touch {trace}"), protocol=0).decode())
    [(code, said)] = ends(node)
    assert code == 1
    assert said.splitlines()[-1].startswith("repro: node 0 says what no node of this version says: not JSON")
    assert not trace.exists()


def test_a_node_that_is_asked_for_more_processes_than_it_has_room_for_ends(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store: Any = MagicMock()
    store.__enter__.return_value.receive.side_effect = [Request(**{**ASKED, "ranks": 2}), EndedError(0, "")]
    monkeypatch.setattr(nodes, "Store", lambda node: store)
    server = MagicMock(methods=(), broken={})
    assert follow(Node(1, 2, "127.0.0.1", 0, "SLURM"), server, tmp_path, "cpu", 1, cuda=False) == FAILED
    assert capsys.readouterr().err == "repro: node 0 asks for 2 processes, there is room for 1\n"
    server.begin.assert_not_called()


def test_a_usage_error_is_one_line_on_each_node(start: Start, tmp_path: Path) -> None:
    """Three nodes share no batch."""
    nodes = step(start, *VIT, "--out", str(tmp_path), tasks=3)
    output = "repro: launched on 3 nodes: no replication batch here divides by 3 nodes of 1; take 2 or 4 nodes\n"
    assert ends(*nodes) == [(2, output)] * 3


# How it was launched


def test_a_process_is_the_node_that_torchrun_says() -> None:
    variables = {
        "TORCHELASTIC_RUN_ID": "none",
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "RANK": "0",
        "WORLD_SIZE": "2",
        "LOCAL_WORLD_SIZE": "1",
        "MASTER_ADDR": "node7",
        "MASTER_PORT": "4321",
    }
    assert launched(variables) == Node(0, 2, "node7", 4321, "torchrun", serve=False)
    assert launched(variables | {"TORCHELASTIC_USE_AGENT_STORE": "False"}) == Node(
        0, 2, "node7", 4321, "torchrun", True
    )
    assert launched(variables | {"WORLD_SIZE": "1"}) is None
    assert launched(variables | as_task(1, 2, 5)) == launched(variables), "torchrun under srun"
    with pytest.raises(UserError, match=r"torchrun started 4 processes on this node.*--nproc-per-node 1"):
        launched(variables | {"LOCAL_WORLD_SIZE": "4", "WORLD_SIZE": "8"})
    with pytest.raises(UserError, match="RANK=: expected a whole number"):
        launched(variables | {"RANK": ""})


def test_a_process_is_the_node_that_slurm_says_within_a_step_of_several_tasks() -> None:
    found = launched(as_task(1, 2, 1000, 2))
    assert found == Node(1, 2, "localhost", 20_000 + (1000 * 31 + 2) % 10_000, "SLURM", serve=False)
    leader = launched(as_task(0, 2, 1000, 2))
    assert leader is not None
    assert leader.serve
    assert leader.port == found.port
    own = launched(as_task(1, 2, 1000) | {"MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "9999"})
    assert own is not None
    assert (own.host, own.port) == ("10.0.0.1", 9999)
    assert launched(as_task(0, 1, 1000)) is None
    batch_shell = {"SLURM_JOB_ID": "7", "SLURM_PROCID": "0", "SLURM_NTASKS": "2", "SLURM_NNODES": "2"}
    assert launched(batch_shell) is None
    assert launched({}) is None
    for tasks in (3, 8):
        with pytest.raises(UserError, match=rf"SLURM started {tasks} tasks on 2 nodes.*--ntasks-per-node 1"):
            launched(as_task(0, tasks, 1) | {"SLURM_STEP_NUM_NODES": "2"})
    with pytest.raises(UserError, match=r"task 0 runs on node9.*MASTER_ADDR"):
        launched(as_task(0, 2, 1) | {"SLURMD_NODENAME": "node9"})


@pytest.mark.parametrize(
    ("listed", "first"),
    [
        ("node7", "node7"),
        ("node7,node8", "node7"),
        ("node[07-09,12],gpu3", "node07"),
        ("r[1,3]n[02-04]-ib,x", "r1n02-ib"),
        ("", ""),
    ],
)
def test_the_first_host_of_a_list_is_found(listed: str, first: str) -> None:
    assert first_host(listed) == first


def test_a_search_of_the_best_predicted_is_refused_on_several_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in as_task(0, 2, 1).items():
        monkeypatch.setenv(name, value)
    output = refusal("run", "--search", "3", CUDA_VISIBLE_DEVICES="")
    assert "--search 3 runs on one node, this run was launched on 2" in output


def test_a_report_says_how_several_nodes_are_launched(monkeypatch: pytest.MonkeyPatch) -> None:
    given = "--nnodes 4 --node-rank RANK --rdzv-endpoint HOST:PORT -m repro"
    assert launch(4) == f"torchrun {given}"
    monkeypatch.setenv("REPRO_COMMAND", "./run_all.sh")
    assert (launch(4), launch(1)) == (f"./run_all.sh torchrun {given}", "./run_all.sh")


# What nodes tell each other

FIT = {"recipe": "vit", "scale": "tiny", "settings": "naive", "tf32": False, "start": 1, "largest": 8}
ASKED: dict[str, Any] = {
    "phase": "fit",
    "arguments": FIT,
    "ranks": 1,
    "log": "vit.log",
    "timeout": 60.0,
    "memory": None,
}


class Kept(dict[str, bytes]):
    """What torch's store holds."""

    def check(self, keys: list[str]) -> bool:
        return all(key in self for key in keys)


def heard(monkeypatch: pytest.MonkeyPatch, text: bytes) -> Store:
    """The store of node 0, where node 1 has left a message under its name."""
    store = Store(Node(0, 2, "127.0.0.1", 0, "SLURM"))
    monkeypatch.setattr(store, "_ask", lambda question: question())
    monkeypatch.setattr(store, "_store", Kept({"message": text}), raising=False)
    return store


def refuses(monkeypatch: pytest.MonkeyPatch, kind: type, text: bytes) -> None:
    with pytest.raises(ServerDiedError, match=r"^node 1 says what no node of this version says: "):
        heard(monkeypatch, text).get(kind, "message", 1)


@pytest.mark.parametrize(
    "changed",
    [
        {"phase": "os:system"},
        {"phase": ["fit"]},
        {"arguments": {**FIT, "start": [1]}},
        {"ranks": 0},
        {"timeout": float("nan")},
        {"log": "../../.bashrc"},
        {"log": "a/b.log"},
        {"log": ".log"},
    ],
    ids=lambda changed: json.dumps(changed)[:50],
)
def test_a_node_refuses_what_no_run_asks_for(monkeypatch: pytest.MonkeyPatch, changed: dict[str, Any]) -> None:
    assert heard(monkeypatch, json.dumps(ASKED).encode()).get(Request, "message", 1) == Request(**ASKED)
    refuses(monkeypatch, Request, json.dumps({**ASKED, **changed}).encode())


@pytest.mark.parametrize("text", [b"[" * 100_000, b"\xff", b"null", b"[]"])
def test_a_message_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch, text: bytes) -> None:
    for kind in (Request, Answer):
        refuses(monkeypatch, kind, text)


ROUNDS = {part: [1.0, 1.0, 1.0] for part in ("without", "with", "update")}
TIMED = {"host": ROUNDS, "device": ROUNDS, "synchronised": ROUNDS, "warm_up": 1.0, "peak_memory": 5, "unknown": "x"}


def answered(monkeypatch: pytest.MonkeyPatch, folder: Path, *outcomes: RankOutcome, error: str = "") -> Any:
    """What node 0 takes for the outcomes of node 1."""
    leader = Leader(Node(0, 2, "127.0.0.1", 0, "SLURM"), "cpu", folder / "log", {})
    store = heard(monkeypatch, b"")
    told = json.dumps(asdict(Answer([*outcomes], error)))
    monkeypatch.setattr(store, "_store", Kept({"repro/job/0/1": told.encode()}))
    monkeypatch.setattr(leader, "_store", store)
    return leader._outcomes(1, Job("repro.measure.phases:measure", {}, 1, "vit.log", timeout=60.0))


def test_an_answer_is_taken_for_what_its_phase_answers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    told = RankOutcome(1, "ok", TIMED, fitted={4: 9})
    [found] = answered(monkeypatch, tmp_path, told)
    assert found.value.host == ROUNDS
    assert found.fitted == {4: 9}
    with pytest.raises(ServerDiedError, match=r"^node 1: the fork server has left"):
        answered(monkeypatch, tmp_path, error="the fork server has left")


@pytest.mark.parametrize(
    "outcome",
    [
        RankOutcome(0, "ok", TIMED),
        RankOutcome(1, "fine", TIMED),  # type: ignore[arg-type]
        RankOutcome(1, "ok", None),
        RankOutcome(1, "ok", {**TIMED, "peak_memory": "much"}),
        RankOutcome(1, "ok", {**TIMED, "host": {"with": ["soon"]}}),
        RankOutcome(1, "crashed", error=["x"]),  # type: ignore[arg-type]
    ],
)
def test_an_answer_that_is_none_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, outcome: RankOutcome
) -> None:
    with pytest.raises(ServerDiedError, match=r"^node 1 says what no node of this version says: "):
        answered(monkeypatch, tmp_path, outcome)


def test_the_address_that_others_reach_a_node_by_is_found() -> None:
    assert local_address("127.0.0.1", 29400) == "127.0.0.1"
    assert local_address("no-such-host.invalid", 29400) == ""


def test_ranks_of_several_nodes_meet_by_the_interface_of_their_address() -> None:
    """The host's name, which gloo would go by, means 127.0.1.1 on many systems."""
    assert interface("127.0.0.1") == "lo"
    for name, addresses in psutil.net_if_addrs().items():
        for each in addresses:
            if each.family == socket.AF_INET and psutil.net_if_stats()[name].isup:
                assert interface(each.address) == name
    assert interface("") is None


def test_all_trials_of_a_run_that_lost_a_node_are_unsupported() -> None:
    bench = Bench(ScriptedServer(lost="node 1 (gpu7) has left"), Stack({}, None), None, Path())
    obstacle = bench.obstacle(Trial("vit", "tiny", "naive", "cpu", 1, nodes=2))
    assert obstacle is not None
    assert obstacle.reason == "node 1 (gpu7) has left"


def test_options_of_older_runs_still_say_what_they_were_asked() -> None:
    from repro import datafile

    older = {"models": ["vit"], "methods": None, "scale": "tiny", "counts": [1], "nodes": 2, "address": "host:1"}
    assert datafile.from_json(Options, older).nodes == 2
