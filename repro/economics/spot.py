"""A run on spot instances: the plan of its checkpoints, and what becomes of its hours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .interruptions import Expectation, Interruptions, daly, expected, young

Plan = Literal["daly", "young", "epoch"]


@dataclass(frozen=True)
class Spot:
    """The interruptions a run faces, and its checkpoints: by an optimum, after each of `epochs`, or every so many
    hours. All times are in hours."""

    faced: Interruptions
    plan: Plan | float
    epochs: int = 1

    def every(self, hours: float) -> float:
        """The training between two checkpoints of a run of that many hours."""
        if self.plan == "daly":
            return daly(self.faced)
        if self.plan == "young":
            return young(self.faced)
        return hours / self.epochs if self.plan == "epoch" else self.plan

    def expected(self, hours: float) -> Expectation:
        """What a run of that many hours without interruptions takes with them."""
        return expected(hours, self.every(hours), self.faced)
