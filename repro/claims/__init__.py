"""The papers' claims as checks: each printed number is computed again, or measured, and gets a verdict.

`check_all(records)` returns a `Checked` for every row of expected/claims.csv.
"""

from .check import CLAIMS, Checked, check_all, counts_text, origins

__all__ = ["CLAIMS", "Checked", "check_all", "counts_text", "origins"]
