"""The papers' claims as checks: each printed number is computed again, or measured, and gets a verdict.

`check_all(records)` returns a `Checked` for every row of expected/claims.csv, `check(id, records)` returns one of them.
"""

from .check import Checked, check, check_all, origins

__all__ = ["Checked", "check", "check_all", "origins"]
