"""The papers' sentences as checks: what each says, what its numbers give when they are computed once more.

`check_all(records)` gives a `Checked` for every row of expected/claims.csv; `check(id, records)` one of them.
"""

from .check import Checked, check, check_all

__all__ = ["Checked", "check", "check_all"]
