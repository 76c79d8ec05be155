"""Several nodes: here two on one machine, over loopback, through the command line."""

from __future__ import annotations

import errno
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

import psutil
import pytest

from repro import command
from repro.errors import UserError
from repro.measure import nodes
from repro.measure.job import Job
from repro.measure.launcher import ForkServer, ServerDiedError
from repro.measure.nodes import Nodes, parse_address
from repro.measure.rank import interface
from repro.packages import installed
from repro.plan import Options
from repro.run import Run
from tests import command_line
from tests.command_line import ROOT, process, refusal, stderr_of

VIT = ["--models", "vit", "--methods", "naive", "--processes", "1"]
Start = Callable[..., subprocess.Popen[str]]


@contextmanager
def starting() -> Iterator[Start]:
    """Starts commands, and ends those that a failing test has left."""
    nodes: list[subprocess.Popen[str]] = []

    def start(*arguments: str) -> subprocess.Popen[str]:
        nodes.append(command_line.started(*arguments))
        return nodes[-1]

    yield start
    for node in nodes:
        node.kill()  # its fork server and ranks end with it
        node.communicate()


@pytest.fixture
def started() -> Iterator[Start]:
    with starting() as start:
        yield start


def free_address() -> str:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return f"127.0.0.1:{probe.getsockname()[1]}"


def two_nodes(started: Start, tmp_path: Path, *options: str) -> tuple[subprocess.Popen[str], subprocess.Popen[str]]:
    """A run on two nodes that has told that it waits, and its second node."""
    address = free_address()
    first = started(*VIT, *options, "--nodes", "2", "--address", address, "--out", str(tmp_path / "first"))
    for line in stderr_of(first):
        if "waiting for node 2 of 2" in line:
            assert f" join {address}" in line
            break
    return first, started("join", address, "--out", str(tmp_path / "second"))


GUESTS = [
    (b"GET / HTTP/1.1\r\n", "node 2 (127.0.0.1) speaks as no fork server does: b'GET / HTTP/1.1"),
    (b"1\n", "node 2 (127.0.0.1) does not say what it has, as repro join does"),
    (b"", "node 2 (127.0.0.1) has left"),
    (b'{"device": "H100"}\n', "its device is H100, the first node's is cpu; give all nodes the same"),
    (b'{"device": "cpu", "torch": "1.0"}\n', "its torch is 1.0, the first node's is "),
]


@dataclass(frozen=True)
class Trained:
    """A run on two nodes that has ended, and what was told on each side."""

    folder: Path  # of the first node, and of two that joined
    address: str
    code: int
    let_go: list[str]  # what the run told of guests that are no nodes
    answers: list[str]  # and them
    ends: dict[int, str]  # what nodes that joined told at their end, by their exit code


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """A run to which come guests that are no nodes, then two nodes, of which it needs one."""
    folder, address = tmp_path_factory.mktemp("nodes"), free_address()
    let_go, answers = [], []
    with starting() as start:
        first = start(*VIT, "--nodes", "2", "--address", address, "--out", str(folder / "first"))
        giving_up = threading.Timer(120, first.kill)  # so that a line which does not come is a failure, and no hang
        giving_up.start()
        told = iter(stderr_of(first).readline, "")
        assert any("waiting for node 2 of 2" in line for line in told)
        for said, _ in GUESTS:
            with socket.create_connection(parse_address(address)) as guest:
                guest.sendall(said)
                guest.shutdown(socket.SHUT_WR)
                let_go.append(next(line for line in told if "let go: " in line))
                answers.append(guest.makefile().readline())
        giving_up.cancel()
        joined = [start("join", address, "--out", str(folder / name)) for name in ("second", "spare")]
        first.communicate(timeout=120)
        ends = {node.wait(timeout=60): stderr_of(node).read() for node in joined}
    return Trained(folder, address, first.returncode, let_go, answers, ends)


def test_two_nodes_train_as_one_machine_of_twice_the_ranks(trained: Trained) -> None:
    assert trained.code == 0
    (record,) = [json.loads(line) for line in (trained.folder / "first" / "trials.jsonl").read_text().splitlines()]
    assert (record["status"], record["nodes"], record["count"]) == ("ok", 2, 1)
    assert record["wrapper"] == "DistributedDataParallel"
    assert (record["micro_batch"], record["accumulation"]) == (8, 1)  # the batch of 16, over two ranks
    assert len(record["host"]) == 2
    assert len([log for name in ("second", "spare") for log in (trained.folder / name / "logs").glob("vit_*.log")]) == 1
    report = (trained.folder / "first" / "report.md").read_text()
    front = re.escape(command())
    resuming, joining = re.findall(rf"- `{front} (.*)`: (?:this run: it resumes|on each other node)", report)
    again = process(*shlex.split(resuming), CUDA_VISIBLE_DEVICES="")
    assert again.returncode == 0, again.stderr
    assert f"--address {joining.removeprefix('join ')} " in resuming


def test_who_is_no_node_is_let_go_and_the_run_waits_on_for_one(trained: Trained) -> None:
    for (_, answer), told, answered in zip(GUESTS, trained.let_go, trained.answers, strict=True):
        assert answer in told
        assert not answer.startswith("its ") or answer in answered
    assert trained.code == 0


def test_a_node_more_than_a_run_takes_is_told_that_it_ended_without_it(trained: Trained) -> None:
    assert trained.ends[0] == "", "whichever came first took part"
    assert trained.ends[2] == (
        f"repro: the run on {trained.address} ended without this node: it had all its --nodes, or was stopped\n"
    )


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGTERM])
def test_a_node_that_leaves_is_a_crash_of_the_trial_and_no_process_stays(
    started: Start, tmp_path: Path, ending: signal.Signals
) -> None:
    first, second = two_nodes(started, tmp_path, "--steps", "100000")
    while not list((tmp_path / "second" / "logs").glob("vit_*.log")):
        assert first.poll() is None
        assert second.poll() is None
    family = [child for node in (first, second) for child in psutil.Process(node.pid).children(recursive=True)]
    second.send_signal(ending)
    _, told = first.communicate(timeout=60)
    assert first.returncode == 1, told
    assert "crashed" in told
    (record,) = [json.loads(line) for line in (tmp_path / "first" / "trials.jsonl").read_text().splitlines()]
    assert record["reason"] == "node 2 (127.0.0.1) has left"
    assert " join 127.0.0.1:" in record["remedy"]
    _, alive = psutil.wait_procs(family, timeout=10)
    assert alive == []
    assert second.wait() == (-ending if ending == signal.SIGKILL else 130)


def test_a_node_that_left_between_two_jobs_ends_the_next_one_at_once(tmp_path: Path) -> None:
    here, address = ForkServer(tmp_path / "server.log", {}, modules=("torch",)), free_address()
    others = set(psutil.Process().children())  # of other tests, such as their fork server
    told: list[str] = []
    with Nodes(here, 2, address, told.append, "cpu", 0) as nodes:

        def join() -> None:
            with socket.create_connection(parse_address(address)) as node:
                node.sendall(b'{"device": "cpu"}\n{"ready": true, "broken": {}}\n')
                nodes.start()

        join()
        [server] = set(psutil.Process().children()) - others
        server.suspend()  # so that it finds the job and the word that ends it at once
        threading.Timer(0.5, server.resume).start()
        began = time.monotonic()
        with pytest.raises(ServerDiedError):
            nodes.call(Job("tests.ranks:hang", {"pids": str(tmp_path)}, 1, str(tmp_path / "log"), timeout=20))
        assert time.monotonic() - began < 10
        join()
        assert [line.split(":")[0] for line in told] == ["waiting for node 2 of 2"] * 2


@contextmanager
def joined_by(guest: Callable[[socket.socket, TextIO], None], tmp_path: Path) -> Iterator[Nodes]:
    """Two nodes, of which the second is what plays one, with its end of the stream, and what it hears there."""
    here, address = ForkServer(tmp_path / "server.log", {}, modules=("torch",)), free_address()
    with Nodes(here, 2, address, lambda line: None, "cpu", 0) as nodes:
        with socket.create_connection(parse_address(address)) as node, node.makefile() as heard:
            node.sendall(b'{"device": "cpu"}\n{"ready": true, "broken": {}}\n')
            nodes.start()
            playing = threading.Thread(target=guest, args=(node, heard), daemon=True)
            playing.start()
            yield nodes
            playing.join(20)
        assert not playing.is_alive()


def test_the_first_node_to_fail_stops_the_others(tmp_path: Path) -> None:
    def waits_for_its_ranks(node: socket.socket, heard: TextIO) -> None:
        job = json.loads(heard.readline())
        assert (job["world"], job["first"], job["ranks"]) == (2, 1, 1)
        assert json.loads(heard.readline()) == {"stop": True}
        node.sendall(b'[{"rank": 1, "status": "stopped"}]\n')

    with joined_by(waits_for_its_ranks, tmp_path) as nodes:
        asked = Job("tests.ranks:report_then", {"what": "raise"}, 1, str(tmp_path / "log"), timeout=20)
        assert [outcome.status for outcome in nodes.call(asked)] == ["crashed", "stopped"]


def test_an_interruption_ends_the_job_on_all_nodes(tmp_path: Path) -> None:
    told: list[str] = []

    def computes_to_the_end(node: socket.socket, heard: TextIO) -> None:
        heard.readline()
        while not any((tmp_path / "pids").iterdir()):
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGINT)
        told.append(heard.readline())

    (tmp_path / "pids").mkdir()
    began = time.monotonic()
    with joined_by(computes_to_the_end, tmp_path) as nodes, pytest.raises(KeyboardInterrupt):
        nodes.call(Job("tests.ranks:hang", {"pids": str(tmp_path / "pids")}, 1, str(tmp_path / "log"), timeout=60))
    assert time.monotonic() - began < 30
    assert told == [""], "the stream's end ends what it computes"
    assert [int(pid.name) for pid in (tmp_path / "pids").iterdir() if psutil.pid_exists(int(pid.name))] == []


def test_who_says_nothing_has_too_few_gpus_or_cannot_load_is_let_go_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("repro.measure.nodes._HELLO_SECONDS", 0.1)
    told: list[str] = []
    here, address = ForkServer(tmp_path / "server.log", {}, modules=("torch",)), free_address()
    guests = [
        (None, b"", "node 2 (127.0.0.1) does not answer"),
        (None, b'{"GPUs": 2}\n', "node 2 (127.0.0.1) does not say what it has, as repro join does"),
        (1, b"", "it has 1 of the 2 GPUs that the run takes of each node; give it as many"),
        (2, b'{"error": "RuntimeError: no luck"}\n', "its stack does not import: RuntimeError: no luck"),
        (2, b"[1]\n", "node 2 (127.0.0.1) does not say that it is ready, as repro join does: [1]"),
        (8, b'{"ready": true, "broken": {}}\n', ""),
    ]
    with Nodes(here, 2, address, told.append, "H100", 2) as nodes, ExitStack() as connections:
        for gpus, said, _ in guests:
            guest = connections.enter_context(socket.create_connection(parse_address(address)))
            hello = b"" if gpus is None else b'{"device": "H100", "GPUs": %d}\n' % gpus
            guest.sendall(hello + said)
        nodes.start()
    answers = [line for line in told if line.startswith("let go: ")]
    assert len(answers) == 5
    assert all(answer in line for line, (*_, answer) in zip(answers, guests, strict=False))


def test_a_node_whose_stack_does_not_import_says_so_at_both_ends(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise RuntimeError('no luck')")
    with socket.create_server(("127.0.0.1", 0)) as run:
        address = f"127.0.0.1:{run.getsockname()[1]}"
        paths = f"{tmp_path}{os.pathsep}{ROOT}"
        told = process("join", address, "--out", str(tmp_path), PYTHONPATH=paths, CUDA_VISIBLE_DEVICES="")
        _, error = run.accept()[0].makefile().read().splitlines()
    assert told.returncode == 2
    assert told.stderr == "repro: this node's stack does not import: RuntimeError: no luck\n"
    assert json.loads(error)["error"] == "RuntimeError: no luck"


def test_nodes_whose_run_cannot_begin_leave_the_address_free(tmp_path: Path) -> None:
    (tmp_path / "environment.json").mkdir()
    address = free_address()
    options = Options(("vit",), "naive", "tiny", (1,), nodes=2, address=address)
    run = Run(tmp_path, options, [])
    with pytest.raises(UserError, match="cannot write to"):
        run.__enter__()
    socket.create_server(parse_address(address)).close()


@pytest.mark.parametrize(
    "address",
    [
        *("host:0", "host:65536", "host:-1", "host:\u00b2", "host:\uff18\uff10", f"host:{'8' * 5000}", "host:"),
        *(":80", "host", "node..cluster:80", f"{'x' * 64}:80"),
    ],
)
def test_an_address_is_a_host_and_a_port(address: str) -> None:
    assert parse_address("host:65535") == ("host", 65535)
    with pytest.raises(UserError, match="expected HOST:PORT"):
        parse_address(address)


@pytest.mark.parametrize("host", ["0.0.0.0", "*"])
def test_every_address_is_none_by_which_others_reach_this_machine(host: str) -> None:
    with pytest.raises(UserError, match="not every address"):
        parse_address(f"{host}:80")


def test_a_node_says_what_it_has_and_waits_as_long_as_the_run_may_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def serve(connection: socket.socket, logs: Path) -> bool:
        assert connection.gettimeout() is None
        assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE), "whose other end may lose its power"
        assert logs.is_dir()
        return True

    monkeypatch.setattr(nodes, "serve", serve)
    monkeypatch.setenv("REPRO_COMMIT", "0123abc")
    with socket.create_server(("127.0.0.1", 0)) as run:
        nodes.join(f"127.0.0.1:{run.getsockname()[1]}", tmp_path / "new" / "logs", "H100", 2)
        connection, _ = run.accept()
        with connection:
            said = json.loads(connection.makefile().readline())
    assert said.items() >= {"device": "H100", "GPUs": 2, "commit": "0123abc", "torch": installed("torch")}.items()
    assert None not in said.values(), "what it does not know it does not say"


def test_joining_where_no_run_listens_is_one_clear_line(started: Start, tmp_path: Path) -> None:
    free = free_address()
    for address, part in [
        (free, "no run listens"),
        (free, f"start it first: {command()} run --nodes N --address {free}"),
        ("nonsense", "HOST:PORT"),
        ("0.0.0.0:9", "every address"),
        ("[::1]:9", "address '[::1]:9': expected IPv4 or a host's name"),
        ("::1:9", "address '::1:9': expected IPv4 or a host's name"),
    ]:
        node = started("join", address, "--out", str(tmp_path))
        _, told = node.communicate(timeout=20)
        assert node.returncode == 2
        assert part in told
        assert len(told.splitlines()) == 1


@pytest.mark.parametrize(
    ("said", "answer"),
    [
        (b"SSH-2.0-OpenSSH\r\n", "what listens there is no run: it says b'SSH-2.0-OpenSSH"),
        (b'{"refused": "another torch"}\n', "another torch"),
    ],
)
def test_a_node_that_is_not_taken_says_why_in_one_line(
    started: Start, tmp_path: Path, said: bytes, answer: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        node = started("join", f"127.0.0.1:{other.getsockname()[1]}", "--out", str(tmp_path))
        connection, _ = other.accept()
        with connection:
            connection.sendall(said)
            _, told = node.communicate(timeout=120)
    assert node.returncode == 2
    assert answer in told
    assert len(told.splitlines()) == 1


def test_ranks_meet_by_the_interface_of_the_address_that_they_were_given() -> None:
    """The host's name, which gloo would go by, means 127.0.1.1 on many systems."""
    assert interface("/tmp/meeting") == interface("tcp://127.0.0.1:29400") == "lo"
    for name, addresses in psutil.net_if_addrs().items():
        for each in addresses:
            if each.family == socket.AF_INET and psutil.net_if_stats()[name].isup:
                assert interface(f"tcp://{each.address}:29400") == name
    assert interface("tcp://no-such-host.invalid:29400") is None


@pytest.mark.parametrize(
    ("options", "part"),
    [
        (["--nodes", "2"], "--nodes needs --address HOST:PORT"),
        (["--address", "localhost:1234"], "--address localhost:1234 changes nothing of a run on one node"),
        (["--nodes", "2", "--address", "[::1]:1234"], "address '[::1]:1234': expected IPv4 or a host's name"),
        (
            ["--nodes", "5", "--address", "localhost:1234"],
            "--nodes 5: no replication batch here divides by 5 nodes of 1",
        ),
    ],
)
def test_nodes_and_their_address_come_together(tmp_path: Path, options: list[str], part: str) -> None:
    assert part in refusal(*VIT, *options, "--out", str(tmp_path), CUDA_VISIBLE_DEVICES="")


def test_where_a_run_cannot_listen_the_way_out_is_told(tmp_path: Path) -> None:
    def told(address: str) -> str:
        asked = ["--nodes", "2", "--address", address, "--out", str(tmp_path / "out")]
        return refusal(*VIT, *asked, CUDA_VISIBLE_DEVICES="")

    with socket.create_server(("127.0.0.1", 0)) as first:
        taken = f"127.0.0.1:{first.getsockname()[1]}"
        why = "cannot listen there as another run or program does; wait for it to end, or give another port"
        assert told(taken) == f"repro: --address {taken}: {why}\n"
    assert told("192.0.2.1:29400").endswith("; give an address of this machine by which the other nodes reach it\n")


def test_a_port_that_only_the_system_may_take_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> socket.socket:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(socket, "create_server", refused)
    here = ForkServer(tmp_path / "server.log", {}, modules=("torch",))
    with pytest.raises(UserError) as told, Nodes(here, 2, "127.0.0.1:80", lambda line: None, "cpu", 0):
        pass
    assert str(told.value) == (
        "--address 127.0.0.1:80: cannot listen there (Permission denied); give a port from 1024 on"
    )


def test_a_node_mends_its_build_cache_before_it_joins(tmp_path: Path) -> None:
    cut = tmp_path / "cache" / "inductor" / "cut.so"
    cut.parent.mkdir(parents=True)
    cut.touch()
    nobody = "127.0.0.1:1"
    told = process("join", nobody, "--out", str(tmp_path), REPRO_CACHE=str(tmp_path / "cache"), CUDA_VISIBLE_DEVICES="")
    assert (told.returncode, f"no run listens on {nobody}" in told.stderr) == (2, True)
    assert not cut.exists()
