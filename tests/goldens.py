"""Compare what people see of this checkout with what they see of another revision: for changes that keep behaviour.

    python tests/goldens.py [REVISION]

Prints each command whose output differs from the revision's (default: main), with the first lines of the difference,
and how many are equal. Exits with 1 where one differs. Nothing is kept: the golden outputs are made from the revision.
"""

from __future__ import annotations

import difflib
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
_SHOWN = 24  # lines of a difference
_RUNS = ["results/cpu-2-cores", "results/h100/text", "results/h100/vision"]
_TABLES = [
    *("table 1", "table 3", "table 4", "table 5", "table 6", "table 7", "table j"),
    *("table 1 --by true", "table 4 --by true"),
    *(f"table 1 --measured {run}" for run in _RUNS),
    *(f"table j --measured {run}" for run in _RUNS[1:]),
    *("audit", f"audit --measured {_RUNS[1]}"),
    *("claims", f"claims --measured {_RUNS[1]}", f"claims --measured {_RUNS[1]} --by authors"),
    *("predict --models pythia-1b --gpu H100 --gpus 4", "predict --validate"),
    f"predict --measured {_RUNS[1]} --gpu H100",
    *(
        f"cost pythia-1b {rest}"
        for rest in ("--budget 20000", "--terms either --deadline 30d", "--terms rent --budget 9000", "--by printed")
    ),
    *("cost", "cost --hours 100..200 --resale 2000 --co2 400", "cost mamba --gpu H100 --stack paper --electricity 0.2"),
    *("list settings", "list gpus", "list recipes"),
]
# The GPUs of this machine are none of the code's.
COMMANDS = [f"{command} --format {kind}" for command in _TABLES for kind in ("csv", "json", "text")] + [
    *(f"claims {claim}" for claim in ("four-h100-days", "lab-rate-t4-20-epochs")),
    *(f"{name} --help" for name in ("run", "predict", "cost", "report", "compare", "lab")),
    *(
        f"report {' '.join(runs)} --out {{out}} --format markdown"
        for runs in ([], *([run] for run in _RUNS), _RUNS[1:])
    ),
]


def output(root: Path, command: str) -> str:
    """Run one command of the checkout in `root`; returns its exit code, stdout, stderr, and the Markdown it wrote."""
    with tempfile.TemporaryDirectory() as out:
        words = command.format(out=out).split()
        done = subprocess.run(
            [sys.executable, "-m", "repro", *words], cwd=root, capture_output=True, text=True, check=False
        )
        written = [path.read_text() for path in sorted(Path(out).glob("*.md"))]
        text = "\n".join([f"exit {done.returncode}", done.stdout, done.stderr, *written])
        return text.replace(out, "OUT").replace(str(root), "ROOT")


def main(revision: str = "main") -> int:
    """Compare all commands; returns the exit code."""
    different = 0
    with tempfile.TemporaryDirectory() as folder:
        golden = Path(folder) / "golden"
        subprocess.run(["git", "worktree", "add", "-q", "--detach", golden, revision], cwd=ROOT, check=True)
        try:
            for command in COMMANDS:
                before, after = output(golden, command), output(ROOT, command)
                if before != after:
                    different += 1
                    lines = difflib.unified_diff(
                        before.splitlines(), after.splitlines(), revision, "here", n=1, lineterm=""
                    )
                    print(f"differs: {command}", *list(lines)[:_SHOWN], sep="\n    ", flush=True)
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", golden], cwd=ROOT, check=True)
    print(f"{len(COMMANDS) - different} of {len(COMMANDS)} outputs equal those of {revision}")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
