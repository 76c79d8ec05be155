"""The folder that holds this package and what stands beside it: `expected/`, `locks/`, `tests/`."""

from pathlib import Path

# By the name that run_all.sh leads here by: what links lead to may be a name that compilers do not take.
ROOT = Path(__file__).absolute().parents[1]
