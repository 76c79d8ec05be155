"""The folder that holds this package and what stands beside it: `expected/`, `locks/`, `tests/`."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
