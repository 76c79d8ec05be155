"""A node of three that run two phases together, without a plan: python -m tests.support.two_phases FOLDER, once a
node. On the last the rank of the second is killed."""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path
from typing import Any

import psutil

from repro.machine.cluster import launched
from repro.measure.jobs import Job
from repro.measure.launcher import ForkServer
from repro.measure.nodes import Leader, follow
from tests.support.command_line import PATIENCE

CODE = 7


def main(folder: Path) -> int:
    node = launched()
    assert node is not None
    logs = folder / str(node.rank)
    logs.mkdir()
    used = ("torch.distributed", "timm.models.vision_transformer")
    if node.rank == 2:
        threading.Thread(target=kill_a_rank, args=(logs / "measure.log",), daemon=True).start()
    where: Any = (logs / "server.log", {"CUDA_VISIBLE_DEVICES": ""}, sys.executable, used)
    if node.rank:
        return follow(node, ForkServer(*where), logs, "cpu", 1, cuda=False)

    model = {"recipe": "vit", "scale": "tiny", "settings": "naive", "tf32": False}
    fit = model | {"start": 1, "largest": 1}
    steps = {
        "compiled": False,
        "micro_batch": 1,
        "accumulation": 1,
        "steps": 10**6,
        "check_extrapolation": False,
        "trained": 0,
    }
    output = {}
    with Leader(node, "cpu", *where) as leader:
        for name, arguments in (("fit", fit), ("measure", model | steps)):
            job = Job(f"repro.measure.phases:{name}", arguments, 1, str(logs / f"{name}.log"), timeout=PATIENCE)
            output[name] = [[each.rank, each.status, each.error] for each in leader.call(job)]
        leader.code = CODE
    (folder / "told.json").write_text(json.dumps(output))
    return CODE


def kill_a_rank(log: Path) -> None:
    while not log.exists():
        time.sleep(0.1)
    time.sleep(1)
    [server] = psutil.Process().children()
    for rank in server.children():
        rank.kill()


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
