"""`compare --against`, ten times against this stack itself and five times against one made 5 % slower: what it
calls, and how long it takes. 4 to 6 minutes a row, on an otherwise idle machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.support.wheels import linked, pin

from . import tell

SHARES = (0.0,) * 10 + (0.05,) * 5


def run(share: float, folder: Path, *options: str) -> dict[str, Any]:
    """Check the tiny ViT once against this stack, `share` slower, in a folder that is empty or its own."""
    start = f"import slower; slower.when_measuring({share})" if share else ""
    slower = Path(__file__).with_name("slower.py").read_text()
    lock = folder / "lock"
    folder.mkdir(exist_ok=True)
    lock.write_text(pin(linked(folder / "wheels", f"slower_by_{round(share * 1000)}", start, slower=slower)))
    command = [sys.executable, "-m", "repro", "compare", "--against", str(lock), "--out", str(folder / "out")]
    command += ["--models", "vit", "--methods", "naive", "--format", "json", *options]
    variables = {**os.environ, "UV_FIND_LINKS": str(folder / "wheels"), "UV_NO_INDEX": "1"}
    started = time.monotonic()
    done = subprocess.run(command, env=variables, stdout=subprocess.PIPE, text=True)
    if done.returncode not in (0, 1, 3):
        raise RuntimeError(f"{' '.join(command)} ended with exit code {done.returncode}")
    [row] = json.loads(done.stdout)["trials"]
    return {
        "slower by (%)": share * 100,
        "status": row["status"],
        "ratio": row["ratio"],
        "low": row["ratio_low"],
        "high": row["ratio_high"],
        "pairs": row["samples"],
        "exit code": done.returncode,
        "minutes": (time.monotonic() - started) / 60,
    }


def rows() -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory(prefix="repro-") as folder:
        found = []
        for number, share in enumerate(SHARES):
            found.append(run(share, Path(folder, f"{number}"), "--budget", "6m"))
            print(json.dumps(found[-1]), file=sys.stderr, flush=True)
        return found


if __name__ == "__main__":
    tell(__doc__, rows)
